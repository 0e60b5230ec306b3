"""The numbers of a figure as CSV, for programs, and as Markdown, for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import pandas as pd

from endive.report.axes import Axis
from endive.report.labels import METRIC_OF, POINT_TITLES, number, operation_label
from endive.saturation_analysis import INTERACTION

_ENDS: Final = ("_low", "_high")
_TITLES: Final = {
    "seeds": "seeds",
    "operation_type": "operation",
    "time_s": "time (s)",
    "commit_rate": "commits per second",
    "in_flight": "in flight",
    "committed": "committed",
    "aborted": "aborted",
    "share": "quantile",
    "committed_ms": "of the committed (ms)",
    "answered_ms": "until commit or abort (ms)",
    "kaplan_meier_ms": "Kaplan–Meier (ms)",
    "low_ms": "its low end (ms)",
    "high_ms": "its high end (ms)",
    "submitted_ms": "of all that began to commit (ms)",
    "bound_per_s": "bound (1/s)",
    "success_bound": "bound of success",
    "swept_low": "swept from (1/s)",
    "swept_high": "swept to (1/s)",
    "df": "degrees of freedom",
    "f": "F",
    "p_value": "p",
    "eta_squared": "η²",
    "partial_eta_squared": "partial η²",
    "r_squared": "R²",
    "durbin_watson": "Durbin-Watson",
    "breusch_pagan_p": "p (Breusch-Pagan)",
    "total_usd": "$ per 1,000 commits",
    "first_attempts_usd": "first attempts ($)",
    "given_up_usd": "first attempts of what was given up ($)",
    "retries_usd": "retries ($)",
}


_P_VALUES: Final = ("p_value", "breusch_pagan_p")
_LEAST_P: Final = 0.001


def _term(names: str, axes: Sequence[Axis]) -> str:
    labels = {axis.key: axis.label for axis in axes}
    return INTERACTION.join(labels.get(name, name) for name in names.split(INTERACTION))


_NAMES: Final[dict[str, Callable[[str, Sequence[Axis]], str]]] = {
    "metric": lambda name, _: METRIC_OF[name].title,
    "factors": _term,
    "term": _term,
    "point": lambda name, _: POINT_TITLES[name],
}
"""How values are told that name something: a metric, a term of an analysis of variance, a saturation point."""


def to_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV: names and units of the pipeline's schemas, six significant digits."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_markdown(frame: pd.DataFrame, axes: Sequence[Axis]) -> str:
    """Return a frame as a Markdown table in units for people; an interval stands in brackets behind its mean."""
    header, columns = [], []
    for name in frame.columns:
        if name.endswith(_ENDS) and name.rsplit("_", 1)[0] in frame.columns:
            continue
        header.append(column_title(name, axes))
        columns.append([_cell(frame, name, row, axes) for row in range(len(frame))])
    lines = [header, ["---"] * len(header), *map(list, zip(*columns, strict=True))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def column_title(name: str, axes: Sequence[Axis]) -> str:
    """Return what people call a column of a figure's numbers."""
    for axis in axes:
        if axis.key == name:
            return axis.label
    if name in METRIC_OF:
        return METRIC_OF[name].label
    return _TITLES.get(name, name.replace("_", " "))


def _cell(frame: pd.DataFrame, name: str, row: int, axes: Sequence[Axis]) -> str:
    value: Any = frame[name].iloc[row]
    if name in _NAMES:
        return _NAMES[name](value, axes)
    if name in _P_VALUES:
        return "< 0.001" if value < _LEAST_P else number(_float(value, 1.0))
    for axis in axes:
        if axis.key == name:
            return axis.text(value)
    if isinstance(value, str):
        return operation_label(value) if name == "operation_type" else value
    factor = METRIC_OF[name].factor if name in METRIC_OF else 1.0
    ends = [frame[name + end].iloc[row] if name + end in frame else math.nan for end in _ENDS]
    if any(end is None or not math.isfinite(end) for end in ends):
        return number(_float(value, factor))
    low, high = (number(_float(end, factor)) for end in ends)
    return f"{number(_float(value, factor))} ({low} to {high})"


def _float(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor
