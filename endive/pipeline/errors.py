"""What keeps a sweep from starting, told before anything runs."""


class SparkUnavailableError(Exception):
    """Spark cannot be started here, or not on the master that was asked for."""


class SweepError(Exception):
    """A sweep that ended before each of its runs was tried."""
