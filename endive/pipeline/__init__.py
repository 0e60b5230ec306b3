"""Sweeps and what becomes of their results. Only `session` and the modules of jobs import Spark."""
