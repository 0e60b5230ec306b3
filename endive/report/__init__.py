"""Reports: figures, tables and a page from plain frames of the pipeline's metrics. Nothing here knows Spark."""
