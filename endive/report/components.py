"""Figures of what commit time is made of, and how operation types fare beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from endive.pipeline.schemas import COMPONENTS
from endive.report.axes import Axis
from endive.report.curves import censoring_note, draw_curve, interval_note, marks_note
from endive.report.figure import MARKERS, OKABE_ITO, PERCENT, Figure, finite, new_canvas, set_level_ticks, set_log_ticks
from endive.report.labels import COMPONENT_TITLES, METRIC_OF, Value, number, operation_label
from endive.report.sweep import Sweep, pick_levels, reference_level, spread

COMPONENT_COLORS: Final = ("#56B4E9", "#0072B2", "#D55E00", "#009E73", "#E69F00", "#999999", "#CC79A7")
_MOST_PANELS: Final = 4
_MOST_BARS: Final = 12
_TYPE_METRICS: Final = ("success_rate", "commit_latency_p50_ms", "commit_latency_p99_ms")


def component_figures(sweep: Sweep) -> Iterator[Figure]:
    """Yield where commit time goes, and, with several operation types, how each fares."""
    if sweep.x is None:
        return
    panels = _panels(sweep)
    if _present(panels):
        yield Figure(
            name="breakdown",
            title="Where commit time goes",
            caption=_breakdown_caption(sweep, pd.concat([rows for _, rows in panels])),
            numbers=_breakdown_numbers(sweep, panels),
            draw=partial(_draw_breakdown, sweep.x, panels),
        )
    if (sweep.summary.groupby("exp_hash")["operation_type"].nunique() > 2).any():
        yield _operations_figure(sweep)


def _mean(component: str) -> str:
    return f"{component.removesuffix('_ms')}_mean_ms"


def _breakdown_caption(sweep: Sweep, rows: pd.DataFrame) -> str:
    series = sweep.series
    fixed = sweep.fixed(sweep.x, series)
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    intervals = sweep.interval_note("Means over seeds; their intervals are in the table.")
    return (
        "Mean time of a committed transaction's commit by what it was spent on, in seconds and as shares. "
        f"{intervals}{held} Over the bars: committed of finished.{censoring_note(rows)}"
    )


def _panels(sweep: Sweep) -> list[tuple[str, pd.DataFrame]]:
    """Return a panel for the ends of the series (or the one experiment row there is), with its rows."""
    series = sweep.series
    rows = sweep.at(sweep.fixed(sweep.x, series), sweep.whole)
    if series is None:
        return [("", rows)]
    levels = pick_levels(series, _MOST_PANELS)
    found = [(series.phrase(level), sweep.at({series.key: level}, rows)) for level in levels]
    return [(title, own) for title, own in found if len(own)]


def _breakdown_numbers(sweep: Sweep, panels: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    rows = pd.concat([own for _, own in panels])
    shown = [_mean(component) + end for component in _present(panels) for end in ("", "_low", "_high")]
    return rows[[*(axis.key for axis in sweep.axes), "seeds", *shown, "success_rate"]].reset_index(drop=True)


def _present(panels: Sequence[tuple[str, pd.DataFrame]]) -> list[str]:
    """Return the components on which any time was spent."""
    return [
        component
        for component in COMPONENTS
        if any((own[_mean(component)].astype(float).fillna(0.0) > 0.0).any() for _, own in panels)
    ]


def _draw_breakdown(x: Axis | None, panels: Sequence[tuple[str, pd.DataFrame]]) -> Canvas:
    assert x is not None
    components = _present(panels)
    canvas, grid = new_canvas(len(panels), 2, row_inches=3.0 if len(panels) == 1 else 1.9)
    levels = pick_levels(x, _MOST_BARS)
    for place, ((left, right), (title, rows)) in enumerate(zip(grid, panels, strict=True)):
        own = rows[rows[x.key].isin(levels)].set_index(x.key)
        table = np.array([[_seconds(own, level, component) for level in levels] for component in components])
        totals = table.sum(axis=0)
        _draw_bars(left, table, components)
        _draw_bars(right, 100.0 * np.divide(table, totals, out=np.zeros_like(table), where=totals > 0), components)
        _note_success(left, totals, [_success(own, level) for level in levels])
        left.set_ylabel(f"{title}\nseconds per commit" if title else "seconds per commit")
        right.set_ylabel("share (%)")
        right.set_ylim(0.0, 100.0)
        for axes in (left, right):
            is_last = place == len(panels) - 1
            axes.set_xticks(range(len(levels)), [x.text(level) if is_last else "" for level in levels])
            axes.set_xlabel(x.label if is_last else "")
    handles = [
        Patch(color=COMPONENT_COLORS[COMPONENTS.index(component)], label=COMPONENT_TITLES[component])
        for component in components
    ]
    canvas.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return canvas


def _seconds(rows: pd.DataFrame, level: Value, component: str) -> float:
    value = rows[_mean(component)].get(level)
    return 0.0 if value is None or not np.isfinite(value) else float(value) / 1000.0


def _success(rows: pd.DataFrame, level: Value) -> float | None:
    value = rows["success_rate"].get(level)
    return None if value is None or not np.isfinite(value) else float(value)


def _draw_bars(axes: Axes, table: Any, components: Sequence[str]) -> None:
    bottom = np.zeros(table.shape[1])
    for component, heights in zip(components, table, strict=True):
        color = COMPONENT_COLORS[COMPONENTS.index(component)]
        axes.bar(range(len(heights)), heights, bottom=bottom, color=color, width=0.8)
        bottom += heights
    axes.grid(visible=False, axis="x")


def _note_success(axes: Axes, totals: Any, success: Sequence[float | None]) -> None:
    axes.set_ylim(0.0, 1.18 * max(float(totals.max()), 1e-9))
    for place, (total, share) in enumerate(zip(totals, success, strict=True)):
        text = "–" if share is None else f"{number(100.0 * share, 2 if share < 0.995 else 3)}%"
        axes.annotate(text, (place, total), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=6.5)


def _operations_figure(sweep: Sweep) -> Figure:
    """Return the figure over the experiments that have several types; other axes held where most types occur."""
    series = sweep.series
    rows = sweep.summary[sweep.summary["operation_type"].isin(sweep.operations)]
    rows = rows[rows.groupby("exp_hash")["operation_type"].transform("nunique") > 1]
    fixed = {}
    for axis in sweep.axes:
        if axis not in (sweep.x, series):
            there = [level for level in axis.levels if (rows[axis.key] == level).any()]
            reference = reference_level(axis)
            fixed[axis.key] = reference if reference in there else there[-1]
    rows = sweep.at(fixed, rows)
    levels: list[Value] = [None]
    if series is not None:
        there = [level for level in series.levels if (rows[series.key] == level).any()]
        levels = spread(there, _MOST_PANELS)
        rows = rows[rows[series.key].isin(levels)]
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    names = [name + end for name in _TYPE_METRICS for end in ("", "_low", "_high")]
    keys = [axis.key for axis in sweep.axes]
    return Figure(
        name="operations",
        title="Operation types beside each other",
        caption=f"Success and commit latency of each type. {interval_note(sweep)}{held}{marks_note(rows)}",
        numbers=rows[[*keys, "operation_type", "seeds", *names, "in_flight_share"]].reset_index(drop=True),
        draw=partial(_draw_operations, sweep, rows, levels),
    )


def _draw_operations(sweep: Sweep, rows: pd.DataFrame, levels: Sequence[Value]) -> Canvas:
    assert sweep.x is not None
    series = sweep.series
    canvas, grid = new_canvas(len(levels), 3, row_inches=3.0 if len(levels) == 1 else 1.9)
    for place, (line, level) in enumerate(zip(grid, levels, strict=True)):
        own = rows if series is None else rows[rows[series.key] == level]
        for axes, name in zip(line, _TYPE_METRICS, strict=True):
            for kind, (operation, color) in enumerate(zip(sweep.operations, OKABE_ITO, strict=False)):
                mine = own[own["operation_type"] == operation]
                draw_curve(axes, sweep.x, None, METRIC_OF[name], mine, color=color, marker=MARKERS[kind])
            _finish(axes, sweep, name, rows, is_last=place == len(levels) - 1)
        if series is not None:
            line[0].set_title(series.phrase(level), loc="left")
    handles = [
        Line2D([], [], color=color, marker=marker, label=operation_label(operation))
        for operation, color, marker in zip(sweep.operations, OKABE_ITO, MARKERS, strict=False)
    ]
    canvas.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    return canvas


def _finish(axes: Axes, sweep: Sweep, name: str, rows: pd.DataFrame, *, is_last: bool) -> None:
    assert sweep.x is not None
    metric = METRIC_OF[name]
    values = [value * metric.factor for value in finite(rows[name]) if value > 0]
    axes.set_ylabel(metric.label.replace("commit latency, ", "latency, "))
    set_level_ticks(axes, sweep.x)
    if metric.is_share:
        axes.set_ylim(*PERCENT)
    elif values:
        set_log_ticks(axes, "y", min(values), max(values))
    if not is_last:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
