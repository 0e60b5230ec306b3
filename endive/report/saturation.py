"""The figure of saturation points: up to which load most commit, up to which half do, and where throughput bends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from endive.report.axes import Axis
from endive.report.figure import OKABE_ITO, Figure, new_canvas, set_log_ticks
from endive.report.labels import POINT_TITLES, Value
from endive.report.sweep import Sweep, pick_levels
from endive.saturation_analysis import AnalysisError, saturation_table

_MARKERS: Final = dict(zip(POINT_TITLES, ("o", "s", "D"), strict=True))
_MARKER_OF_CENSORED: Final = {"below": "<", "above": ">"}
_MOST_LEVELS: Final = 8
_MOST_PANELS: Final = 4
_STEP: Final = 0.24


def saturation_figures(sweep: Sweep) -> Iterator[Figure]:
    """Yield the figure, where a load was swept. Its numbers cover every combination of the other settings."""
    if sweep.x is None or not sweep.x.is_load or len(sweep.x.levels) < 2:
        return
    try:
        table = saturation_table(sweep.runs, [axis.key for axis in sweep.axes if axis is not sweep.x])
    except AnalysisError:
        return
    fixed = sweep.fixed(sweep.x, sweep.series, sweep.panels)
    shown = sweep.at(fixed, table)
    if shown["load"].isna().all() and shown["censored"].isna().all():
        return
    held = f" Held at: {sweep.phrase(fixed)}; the table has every combination." if fixed else ""
    ends = " Hollow arrows: the load lies outside of what was swept." if shown["censored"].notna().any() else ""
    intervals = sweep.interval_note("Bars: 95 % intervals over seeds.")
    yield Figure(
        name="saturation",
        title="Where it saturates",
        caption=(
            "Loads at which success falls to 95 % and to 50 %, and the knee: the load at which the asymptotes of "
            f"throughput meet. {intervals}{ends}{held}"
        ),
        numbers=table,
        draw=partial(_draw, sweep.series, sweep.panels, shown),
    )


def _draw(series: Axis | None, panels: Axis | None, points: pd.DataFrame) -> Canvas:
    levels: list[Value] = [None] if series is None else pick_levels(series, _MOST_LEVELS)
    shown: list[Value] = [None] if panels is None else pick_levels(panels, _MOST_PANELS)
    across = min(2, len(shown))
    canvas, grid = new_canvas(-(-len(shown) // across), across, row_inches=0.9 + 0.36 * len(levels), sharex=True)
    places = [axes for line in grid for axes in line]
    for axes, level in zip(places, shown, strict=False):
        own = points if panels is None else points[points[panels.key] == level]
        _draw_panel(axes, series, levels, own)
        axes.set_title("" if panels is None else panels.phrase(level))
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("submissions per second")
    set_log_ticks(places[0], "x", float(points["swept_low"].min()), float(points["swept_high"].max()))
    handles = [
        Line2D([], [], color=color, marker=_MARKERS[point], linestyle="none", label=title)
        for (point, title), color in zip(POINT_TITLES.items(), OKABE_ITO, strict=False)
    ]
    canvas.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return canvas


def _draw_panel(axes: Axes, series: Axis | None, levels: Sequence[Value], points: pd.DataFrame) -> None:
    for row, level in enumerate(levels):
        own = points if series is None else points[points[series.key] == level]
        for step, (name, color) in enumerate(zip(_MARKERS, OKABE_ITO, strict=False)):
            for point in own[own["point"] == name].to_dict("records"):
                _draw_point(axes, point, row + (step - 1) * _STEP, color, _MARKERS[name])
    axes.set_yticks(range(len(levels)), ["" if series is None else series.text(level) for level in levels])
    axes.set_ylabel("" if series is None else series.label)
    axes.set_ylim(len(levels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _draw_point(axes: Axes, point: Any, row: float, color: str, marker: str) -> None:
    if point["censored"] in _MARKER_OF_CENSORED:
        edge = point["swept_low" if point["censored"] == "below" else "swept_high"]
        axes.plot([edge], [row], _MARKER_OF_CENSORED[point["censored"]], color=color, markerfacecolor="white")
    elif pd.notna(point["load"]):
        if pd.notna(point["low"]):
            axes.hlines(row, point["low"], point["high"], color=color, alpha=0.6, linewidth=1.6)
        axes.plot([point["load"]], [row], marker, color=color)
