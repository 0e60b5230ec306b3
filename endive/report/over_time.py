"""Figures over simulated time: the rate of commits, and how many transactions are in flight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy import stats

from endive.report.axes import Axis
from endive.report.figure import FAINT, INK, Figure, level_colors, new_canvas
from endive.report.labels import Value
from endive.report.material import Floats, Material, TimeSeries
from endive.report.sweep import Sweep, pick_levels, telling_levels

_MOST_PANELS: Final = 4
_MOST_SERIES: Final = 3
_BINS: Final = 60
_SHADE: Final = "#f1ece0"


@dataclass(frozen=True, eq=False)
class _Line:
    """One experiment of a figure: in which panel, as which of its lines."""

    panel: Value
    level: Value
    series: TimeSeries


def time_figures(sweep: Sweep, material: Material) -> Iterator[Figure]:
    """Yield what a few telling experiments did over time."""
    lines = _choose(sweep, material)
    if not lines:
        return
    window = "Shaded: warm-up and cool-down, outside the steady window."
    band = sweep.interval_note("Bands: 95 % intervals over seeds.")
    fixed = sweep.fixed(sweep.x, sweep.series)
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    for name, title, caption, values in (
        ("commit-rate", "Commit rate over time", "Commits per second. Dotted: submissions.", _committed),
        ("in-flight", "Transactions in flight over time", "Submitted, neither committed nor aborted.", _in_flight),
    ):
        unit = "commits per second" if values is _committed else "transactions in flight"
        yield Figure(
            name=name,
            title=title,
            caption=f"{caption} {window} {band}{held}",
            numbers=_numbers(sweep, lines, name.replace("-", "_"), values),
            draw=partial(_draw, sweep, lines, unit, values),
        )


def _committed(series: TimeSeries) -> Floats:
    return series.committed / series.bin_s


def _in_flight(series: TimeSeries) -> Floats:
    return series.in_flight


def _choose(sweep: Sweep, material: Material) -> list[_Line]:
    """Return a few experiments: over the x axis those that tell most, over the series its ends."""
    panels: list[Value] = [None] if sweep.x is None else telling_levels(sweep, _MOST_PANELS)
    levels: list[Value] = [None] if sweep.series is None else pick_levels(sweep.series, _MOST_SERIES)
    rows = sweep.at(sweep.fixed(sweep.x, sweep.series), sweep.whole)
    lines = []
    for panel in panels:
        for level in levels:
            at = {} if sweep.x is None else {sweep.x.key: panel}
            at |= {} if sweep.series is None else {sweep.series.key: level}
            found = [material.over_time.get(exp_hash) for exp_hash in sweep.at(at, rows)["exp_hash"]]
            lines += [_Line(panel, level, series.coarser(_BINS)) for series in found if series is not None]
    return lines


def _mean_and_band(table: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean over seeds in each bin, and its 95 % Student's t interval (NaN with one seed)."""
    seeds, mean = len(table), table.mean(axis=0)
    if seeds < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = stats.t.ppf(0.975, seeds - 1) * table.std(axis=0, ddof=1) / math.sqrt(seeds)
    return mean, mean - half, mean + half


def _numbers(sweep: Sweep, lines: Sequence[_Line], name: str, values: Callable[[TimeSeries], Floats]) -> pd.DataFrame:
    frames = []
    for line in lines:
        mean, low, high = _mean_and_band(values(line.series))
        columns: dict[str, Any] = {} if sweep.x is None else {sweep.x.key: line.panel}
        columns |= {} if sweep.series is None else {sweep.series.key: line.level}
        columns |= {"time_s": line.series.middles_s, name: mean, f"{name}_low": low, f"{name}_high": high}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _draw(sweep: Sweep, lines: Sequence[_Line], unit: str, values: Callable[[TimeSeries], Floats]) -> Canvas:
    panels = list(dict.fromkeys(line.panel for line in lines))
    levels = list(dict.fromkeys(line.level for line in lines))
    shape = {1: (1, 1), 2: (1, 2), 3: (1, 3)}.get(len(panels), (2, 2))
    canvas, grid = new_canvas(*shape, row_inches=2.4)
    places = [axes for row in grid for axes in row]
    colors = dict(zip(levels, level_colors(sweep.series, levels), strict=True))
    for axes, panel in zip(places, panels, strict=False):
        own = [line for line in lines if line.panel == panel]
        for line in own:
            _draw_line(axes, line.series, values(line.series), colors[line.level])
        if values is _committed:
            _draw_submissions(axes, own, colors)
        _finish(axes, own[0].series, "" if sweep.x is None else sweep.x.phrase(panel))
    for row in grid:
        row[0].set_ylabel(unit)
    for axes in grid[-1]:
        axes.set_xlabel("simulated time (min)")
    _add_legend(canvas, sweep.series, colors, with_submissions=values is _committed)
    return canvas


def _draw_line(axes: Axes, series: TimeSeries, table: Floats, color: Any) -> None:
    mean, low, high = _mean_and_band(table)
    minutes = series.middles_s / 60.0
    axes.fill_between(minutes, np.maximum(low, 0.0), high, color=color, alpha=0.2, linewidth=0)
    axes.plot(minutes, mean, color=color, linewidth=1.2)


def _draw_submissions(axes: Axes, lines: Sequence[_Line], colors: Mapping[Value, Any]) -> None:
    """Draw what was submitted: once, where it is the same for every line, else for each in its color."""
    shared = all(np.array_equal(line.series.submitted, lines[0].series.submitted) for line in lines)
    for line in lines[:1] if shared else lines:
        rate = line.series.submitted.mean(axis=0) / line.series.bin_s
        color = FAINT if shared else colors[line.level]
        axes.plot(line.series.middles_s / 60.0, rate, ":", color=color, linewidth=1.0)


def _finish(axes: Axes, series: TimeSeries, title: str) -> None:
    end = series.committed.shape[1] * series.bin_s / 60.0
    start, stop = (edge / 60.0 for edge in series.window_s)
    for left, right in ((0.0, start), (stop, end)):
        axes.axvspan(left, right, color=_SHADE, linewidth=0, zorder=0)
    axes.set_xlim(0.0, end)
    axes.set_ylim(bottom=0.0)
    axes.set_title(title)


def _add_legend(canvas: Canvas, axis: Axis | None, colors: dict[Value, Any], *, with_submissions: bool) -> None:
    handles: list[Any] = []
    if axis is not None:
        handles = [Line2D([], [], color=color, label=axis.phrase(level)) for level, color in colors.items()]
    if with_submissions:
        handles.append(Line2D([], [], color=FAINT, linestyle=":", label="submitted"))
    handles.append(Patch(facecolor=_SHADE, edgecolor=INK, linewidth=0.3, label="warm-up and cool-down"))
    canvas.legend(handles=handles, loc="outside upper center", ncols=len(handles))
