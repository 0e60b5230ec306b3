"""Figures of curves: a metric against the load or against another metric, a curve for each level of an axis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from endive.analysis.model_bounds import RateBounds
from endive.report.axes import Axis
from endive.report.figure import (
    FAINT,
    HOLLOW_NOTE,
    MARKERS,
    PERCENT,
    Figure,
    finite,
    level_colors,
    new_canvas,
    place_of,
    set_level_ticks,
    set_log_ticks,
)
from endive.report.labels import METRIC_OF, Metric, Value, number
from endive.report.material import Material, bounds_by_metric
from endive.report.sweep import Sweep, pick_levels

MOST_SERIES: Final = 8
BOUNDS: Final = {"throughput_per_s": "bound_per_s", "success_rate": "success_bound"}
"""The column of what the model allows at most, for metrics that have such a bound."""
_MOST_PANELS: Final = 6
_MOST_ROWS: Final = 3
_HALF_STEP: Final = 0.3
_LEGEND_COLUMNS: Final = 6


@dataclass(frozen=True)
class Curve:
    """A kind of figure: for each column of it, the metric across (None: the swept axis) and the metric up."""

    name: str
    title: str
    columns: tuple[tuple[str | None, str], ...]
    caption: str


CURVES: Final = (
    Curve(
        "throughput",
        "Throughput against load",
        ((None, "throughput_per_s"),),
        "Commits answered per second of the steady window. Dotted: every submission commits. Dashed, where near: what "
        "the round trips of typical attempts allow, and no more than the clients of closed streams ask for. Many "
        "contenders pass it, since the fastest of them wins: a little, or far where latencies scatter.",
    ),
    Curve(
        "latency-throughput",
        "Commit latency against throughput",
        tuple(("throughput_per_s", f"commit_latency_{point}_ms") for point in ("p50", "p95", "p99")),
        "Points run along what was swept; latency is that of the committed, from the end of the work to the answer.",
    ),
    Curve(
        "success",
        "Success against load and against throughput",
        ((None, "success_rate"), ("throughput_per_s", "success_rate")),
        "Committed of the transactions that finished, among those submitted in the steady window.",
    ),
    Curve(
        "retries",
        "What a commit takes",
        ((None, "retries_per_commit"), (None, "attempts_per_transaction")),
        "Retries of all finished transactions for each commit, and attempts for each finished transaction.",
    ),
    Curve(
        "overhead",
        "Share of commit time spent on conflicts",
        ((None, "overhead_share"),),
        "Conflict I/O, backoff and work done again, of all the time that the committed spent on committing.",
    ),
    Curve(
        "convoy",
        "The convoy: manifest lists of missed commits",
        ((None, "historical_reads_per_commit"), (None, "conflict_io_mean_ms")),
        "Historical manifest lists read for each commit, and the mean conflict I/O of a commit. The longer a commit "
        "takes, the more it misses, and the longer its next attempt takes.",
    ),
)


@dataclass(frozen=True, eq=False)
class _Panel:
    """What one set of axes draws, and the values that its scales have room for."""

    title: str
    x: str | None
    y: str
    rows: pd.DataFrame
    values: Mapping[str, Sequence[float]]


def curve_figures(sweep: Sweep, material: Material) -> Iterator[Figure]:
    """Yield every kind of curve that this sweep has something to show of."""
    if sweep.x is None or len(sweep.x.levels) < 2:
        return
    for curve in CURVES:
        if _says_something(sweep, curve):
            yield curve_figure(sweep, curve, material)


def _says_something(sweep: Sweep, curve: Curve) -> bool:
    columns = [sweep.whole[y] for _, y in curve.columns]
    return any(column.notna().any() and (column.fillna(0.0) > 0.0).any() for column in columns)


def curve_figure(sweep: Sweep, curve: Curve, material: Material) -> Figure:
    """Return a figure of one kind."""
    assert sweep.x is not None
    series, panels = sweep.series, sweep.panels
    fixed = sweep.fixed(sweep.x, series, panels)
    rows = sweep.at(fixed, sweep.whole)
    for axis, most in ((series, MOST_SERIES), (panels, _MOST_PANELS if len(curve.columns) == 1 else _MOST_ROWS)):
        if axis is not None:
            rows = rows[rows[axis.key].isin(pick_levels(axis, most))]
    rows = _with_bounds(rows, curve, material.bounds)
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    return Figure(
        name=curve.name,
        title=curve.title.replace("load", "load" if sweep.x.is_load else sweep.x.label),
        caption=f"{curve.caption}{_success_bound_note(rows)} {interval_note(sweep)}{held}{marks_note(rows)}",
        numbers=_numbers(sweep, curve, rows),
        draw=partial(_draw, sweep, curve, rows),
    )


def _with_bounds(rows: pd.DataFrame, curve: Curve, bounds: Mapping[str, RateBounds]) -> pd.DataFrame:
    """Return rows with a column for each bound of the curve's metrics that any of them has."""
    found = bounds_by_metric(list(rows["exp_hash"]), bounds)
    wanted = [y for x, y in curve.columns if x is None and y in found]
    return rows.assign(**{BOUNDS[y]: pd.Series(found[y], index=rows.index, dtype=float) for y in wanted})


def _success_bound_note(rows: pd.DataFrame) -> str:
    if BOUNDS["success_rate"] not in rows:
        return ""
    return " Dashed: the share that the pointers allow clients who never retry, about 1 / clients."


def interval_note(sweep: Sweep) -> str:
    """Return what the bands are, or why there are none."""
    return sweep.interval_note(f"Bands and bars: 95 % confidence intervals of the mean over {sweep.seeds_phrase}.")


def marks_note(rows: pd.DataFrame) -> str:
    """Return what marks in a figure of these rows mean, and how much of them is censored."""
    hollow = f" {HOLLOW_NOTE}" if (rows["success_rate"] < 0.5).any() else ""
    return hollow + censoring_note(rows)


def censoring_note(rows: pd.DataFrame) -> str:
    """Return how much of these rows no figure can show: what was in flight at the end, and what never committed."""
    note = ""
    share = rows["in_flight_share"].max()
    if share > 0.01:
        note += f" Up to {number(100.0 * share, 2)} % of the submitted were still in flight at the end, and count in "
        note += "neither latency nor success."
    without = int((rows["committed"] == 0).sum())
    if without:
        note += f" {without} point{'s' if without > 1 else ''} without a commit: no latency to show."
    return note


def _numbers(sweep: Sweep, curve: Curve, rows: pd.DataFrame) -> pd.DataFrame:
    metrics = list(dict.fromkeys(name for column in curve.columns for name in column if name is not None))
    shown = [name + end for name in metrics for end in ("", "_low", "_high")]
    rest = [
        name for name in ("success_rate", "in_flight_share", *BOUNDS.values()) if name in rows and name not in shown
    ]
    return rows[[*(axis.key for axis in sweep.axes), "seeds", *shown, *rest]].reset_index(drop=True)


def _draw(sweep: Sweep, curve: Curve, rows: pd.DataFrame) -> Canvas:
    grid = _lay_out(sweep, curve, rows)
    canvas, axes = new_canvas(len(grid), len(grid[0]), row_inches=3.0 if len(grid) == 1 else 2.5)
    series = sweep.series
    levels: list[Value] = [None] if series is None else pick_levels(series, MOST_SERIES)
    for row, (line, panels) in enumerate(zip(axes, grid, strict=True)):
        for column, (place, panel) in enumerate(zip(line, panels, strict=True)):
            if panel is None:
                place.set_visible(False)
                continue
            _draw_panel(place, sweep, panel, levels)
            if panel.x is None and panel.y in BOUNDS:
                _draw_bounds(place, sweep, panel, levels)
            if column and (left := panels[0]) is not None and _family(left.y) == _family(panel.y):
                place.set_ylabel("")
                place.tick_params(labelleft=False)
            if row < len(grid) - 1 and grid[row + 1][column] is not None:
                place.set_xlabel("")
                place.tick_params(labelbottom=False)
    if series is not None:
        _add_legend(canvas, series, levels)
    return canvas


def _family(metric: str) -> str:
    """Return what metrics have in common that share a scale: the quantiles of one latency do."""
    return re.sub(r"_(p50|p95|p99|mean)_ms", "", metric)


def _is_quantile(metric: str) -> bool:
    return _family(metric) != metric and not metric.endswith("_mean_ms")


def _lay_out(sweep: Sweep, curve: Curve, rows: pd.DataFrame) -> list[list[_Panel | None]]:
    """Return the panels: a row for each level of their axis, or, of a curve with one column, rows of three."""
    values: dict[str, list[float]] = {}
    for metric in {name for column in curve.columns for name in column if name is not None}:
        values.setdefault(_family(metric), []).extend(finite(rows[metric] * METRIC_OF[metric].factor))
    axis = sweep.panels
    if axis is None:
        return [[_Panel(_point(curve, y), x, y, rows, values) for x, y in curve.columns]]
    of = {level: rows[rows[axis.key] == level] for level in axis.levels if (rows[axis.key] == level).any()}
    lines: list[list[_Panel | None]] = [
        [_Panel(_point(curve, y, axis.phrase(level)), x, y, found, values) for x, y in curve.columns]
        for level, found in of.items()
    ]
    if len(curve.columns) > 1:
        return lines
    panels = [panel for line in lines for panel in line]
    across = 3 if len(panels) > 4 or len(panels) == 3 else 2
    panels += [None] * (-len(panels) % across)
    return [panels[start : start + across] for start in range(0, len(panels), across)]


def _point(curve: Curve, metric: str, title: str = "") -> str:
    """Return a panel's title, with the quantile where only that tells the columns apart."""
    is_family = len(curve.columns) > 1 and _is_quantile(metric)
    return ", ".join(part for part in (metric.split("_")[-2].upper() if is_family else "", title) if part)


def _draw_panel(axes: Axes, sweep: Sweep, panel: _Panel, levels: Sequence[Value]) -> None:
    assert sweep.x is not None
    colors = level_colors(sweep.series, levels)
    for level, color, marker in zip(levels, colors, MARKERS, strict=False):
        rows = panel.rows if sweep.series is None else panel.rows[panel.rows[sweep.series.key] == level]
        draw_curve(axes, sweep.x, panel.x, METRIC_OF[panel.y], rows, color=color, marker=marker)
    axes.set_title(panel.title)
    _label_up(axes, METRIC_OF[panel.y], panel.values[_family(panel.y)], is_family=_is_quantile(panel.y))
    if panel.x is None:
        set_level_ticks(axes, sweep.x)
    else:
        _label_across(axes, METRIC_OF[panel.x], panel.values[_family(panel.x)])


def draw_curve(
    axes: Axes, along: Axis, x: str | None, y: Metric, rows: pd.DataFrame, *, color: Any, marker: str
) -> None:
    """Draw one curve and its intervals, points only where its axis has words; hollow where success is below a half."""
    up, low, high = (rows[y.name + end].to_numpy(dtype=float) * y.factor for end in ("", "_low", "_high"))
    bars: dict[str, Any] = {"color": color, "alpha": 0.55, "linewidth": 1.0}
    if x is None:
        across = np.array([place_of(along, value) for value in rows[along.key]])
    else:
        factor = METRIC_OF[x].factor
        across, left, right = (rows[x + end].to_numpy(dtype=float) * factor for end in ("", "_low", "_high"))
        axes.hlines(up, left, right, **bars)
    if x is None and along.is_number:
        axes.fill_between(across, low, high, color=color, alpha=0.2, linewidth=0)
    else:
        axes.vlines(across, low, high, **bars)
    if along.is_number:
        axes.plot(across, up, color=color)
    is_hollow = rows["success_rate"].to_numpy(dtype=float) < 0.5
    for chosen, face in ((~is_hollow, color), (is_hollow, "white")):
        axes.plot(across[chosen], up[chosen], marker, color=color, markerfacecolor=face, zorder=3)


def _label_up(axes: Axes, metric: Metric, values: Sequence[float], *, is_family: bool) -> None:
    axes.set_ylabel(re.sub(r", P\d+ ", " ", metric.label) if is_family else metric.label)
    positive = [value for value in values if value > 0]
    if metric.is_log and positive and max(positive) > 5 * min(positive):
        set_log_ticks(axes, "y", min(positive), max(positive))
    elif metric.is_share and positive and max(positive) > 50.0:
        axes.set_ylim(*PERCENT)
    else:
        axes.set_ylim(0.0, 1.06 * max([*positive, 1e-9]))


def _label_across(axes: Axes, metric: Metric, values: Sequence[float]) -> None:
    axes.set_xlabel(metric.label)
    positive = [value for value in values if value > 0]
    if metric.is_log and positive and max(positive) > 20 * min(positive):
        set_log_ticks(axes, "x", min(positive), max(positive))
    else:
        axes.set_xlim(0.0, 1.06 * max([*positive, 1e-9]))


def _draw_bounds(axes: Axes, sweep: Sweep, panel: _Panel, levels: Sequence[Value]) -> None:
    """Draw throughput = load, where the axis across is a load, and each curve's bound, without moving the scales."""
    assert sweep.x is not None
    limits = axes.get_ylim()
    if sweep.x.is_load and panel.y == "throughput_per_s":
        line = np.geomspace(max(axes.get_xlim()[0], 1e-9), axes.get_xlim()[1], 50)
        axes.plot(line, line, color=FAINT, linestyle=":", linewidth=1.2, zorder=1)
    if BOUNDS[panel.y] not in panel.rows:
        return
    for level, color in zip(levels, level_colors(sweep.series, levels), strict=False):
        rows = panel.rows if sweep.series is None else panel.rows[panel.rows[sweep.series.key] == level]
        bounds = rows[BOUNDS[panel.y]].to_numpy(dtype=float) * METRIC_OF[panel.y].factor
        style: dict[str, Any] = {"color": color, "linestyle": "--", "linewidth": 0.9, "alpha": 0.8, "zorder": 1}
        if len(set(bounds)) == 1 and np.isfinite(bounds[0]):
            axes.axhline(bounds[0], **style)
        elif len(set(bounds)) > 1:
            places = np.array([place_of(sweep.x, value) for value in rows[sweep.x.key]])
            if sweep.x.is_number:
                axes.plot(places, bounds, **style)
            else:
                axes.hlines(bounds, places - _HALF_STEP, places + _HALF_STEP, **style)
    axes.set_ylim(limits)


def _add_legend(canvas: Canvas, axis: Axis, levels: Sequence[Value]) -> None:
    colors = level_colors(axis, levels)
    handles = [
        Line2D([], [], color=color, marker=marker, label=axis.text(level))
        for level, color, marker in zip(levels, colors, MARKERS, strict=False)
    ]
    columns = min(len(handles), _LEGEND_COLUMNS)
    canvas.legend(handles=handles, title=axis.label, loc="outside upper center", ncols=columns)
