"""Endive simulates the commit protocol of Apache Iceberg."""

from typing import Final

__version__: Final = "0.1.0"

MODEL_VERSION: Final = 1
"""Rises whenever the same configuration and seed give other results."""
