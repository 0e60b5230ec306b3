"""What keeps a sweep or a consolidation from being done."""


class SparkUnavailableError(Exception):
    """Spark cannot be started here, or not on the master that was asked for."""


class SweepError(Exception):
    """A sweep that ended before each of its runs was tried."""


class ConsolidationError(Exception):
    """A consolidation that ended before each experiment was written."""


class SummarizationError(Exception):
    """A summarization that ended before each table was written."""
