"""Selecting from frames of run metrics (`endive.pipeline.schemas.RUN_METRICS`), and what is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from endive.pipeline.schemas import ALL

Floats = NDArray[np.float64]


class AnalysisError(ValueError):
    """A question that the data cannot answer, told in one line."""


def check_columns(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise AnalysisError for the first of `names` that is no column, with those that come close."""
    for name in names:
        if name not in frame.columns:
            known = [str(column) for column in frame.columns]
            raise AnalysisError(unknown_name("metric or key", name, known))


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """Return the line that says that `name` is none of `known`, with those that come close."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"
    return f"{name}: no such {kind}; {hint}"


def of_operation(frame: pd.DataFrame, operation_type: str = ALL) -> pd.DataFrame:
    """Return the rows of one operation type; a frame without that column is of one type already."""
    if "operation_type" not in frame.columns:
        return frame
    rows = frame[frame["operation_type"] == operation_type]
    if rows.empty:
        known = sorted({str(kind) for kind in frame["operation_type"]})
        raise AnalysisError(
            unknown_name("operation type", operation_type, known) if known else "no runs: the frame is empty"
        )
    return rows


def floats(frame: pd.DataFrame, column: str) -> Floats:
    """Return a column as floats; what has no value is NaN. Raise AnalysisError where a value is no number."""
    check_columns(frame, [column])
    try:
        return frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise AnalysisError(f"{column}: has values that are not numbers") from error


def with_values(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows that have a value in each of `columns`; raise AnalysisError if there are none."""
    check_columns(frame, columns)
    rows = frame.dropna(subset=list(columns))
    if rows.empty:
        without = next((name for name in columns if frame[name].isna().all()), columns[0])
        raise AnalysisError(f"{without}: no run has a value (is there a commit?)" if len(frame) else "no runs")
    return rows
