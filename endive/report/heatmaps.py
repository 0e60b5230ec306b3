"""Figures of metrics over two swept settings: a cell for each pair of levels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle

from endive.report.axes import Axis
from endive.report.curves import censoring_note
from endive.report.figure import FAINT, INK, Figure, finite, new_canvas, set_log_ticks
from endive.report.labels import METRIC_OF, Metric, Value, number
from endive.report.sweep import Sweep, pick_levels

HEATMAP_METRICS: Final = ("success_rate", "throughput_per_s", "commit_latency_p99_ms")
_MOST_FIGURES: Final = 6
_MOST_LEVELS: Final = 12
_SIDE_BY_SIDE: Final = 5
_HATCH: Final = "////"

Grid = npt.NDArray[np.float64]


def heatmap_figures(sweep: Sweep, metrics: Sequence[str] = HEATMAP_METRICS) -> Iterator[Figure]:
    """Yield a figure for the pairs of swept settings that come first, with a panel for each metric."""
    pairs = [(x, y) for x, y in combinations(sweep.axes, 2) if len(x.levels) * len(y.levels) > 2]
    for x, y in pairs[:_MOST_FIGURES]:
        yield from _heatmaps_over(sweep, x, y, metrics)


def _heatmaps_over(sweep: Sweep, x: Axis, y: Axis, metrics: Sequence[str]) -> Iterator[Figure]:
    """Yield the figure of metrics over two axes, the others held, if any metric has a value there."""
    fixed = sweep.fixed(x, y) | _telling_load(sweep, x, y)
    rows = sweep.at(fixed, sweep.whole)
    levels = [pick_levels(axis, _MOST_LEVELS) for axis in (x, y)]
    rows = rows[rows[x.key].isin(levels[0]) & rows[y.key].isin(levels[1])]
    shown = [metric for metric in metrics if rows[metric].notna().any()]
    if not shown:
        return
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    hatched = " Hatched: fewer than half of the finished transactions committed." if _is_low(rows).any() else ""
    intervals = sweep.interval_note("The intervals are in the table.")
    yield Figure(
        name=f"heatmap-{_slug(x, sweep.axes)}-{_slug(y, sweep.axes)}",
        title=f"{_capital(x.label)} and {y.label}",
        caption=f"Means over seeds, a cell for each pair of levels. {intervals}{held}{hatched}{censoring_note(rows)}",
        numbers=_numbers(sweep, rows, shown),
        draw=partial(_draw, x, y, levels[0], levels[1], rows, [METRIC_OF[metric] for metric in shown]),
    )


def _telling_load(sweep: Sweep, x: Axis, y: Axis) -> dict[str, Value]:
    """Return the load at which success varies most over the pair, where neither is the load."""
    load = sweep.x
    if load is None or load in (x, y):
        return {}
    others = {key: level for key, level in sweep.fixed(x, y).items() if key != load.key}
    spread = sweep.at(others, sweep.whole).groupby(load.key)["success_rate"].std().fillna(0.0)
    return {load.key: spread.idxmax()} if len(spread) else {}


def _slug(axis: Axis, axes: Sequence[Axis]) -> str:
    """Return a short name for a file, or a long one where several axes have the same."""
    names = ["load" if each.is_load else each.key.rsplit(".", maxsplit=1)[-1] for each in axes]
    name = names[axes.index(axis)]
    return re.sub("[._]", "-", name if names.count(name) == 1 else axis.key)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_low(rows: pd.DataFrame) -> pd.Series:
    return rows["success_rate"] < 0.5


def _numbers(sweep: Sweep, rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    shown = [name + end for name in metrics for end in ("", "_low", "_high")]
    rest = [name for name in ("success_rate",) if name not in shown]
    return rows[[*(axis.key for axis in sweep.axes), "seeds", *shown, *rest]].reset_index(drop=True)


def _draw(
    x: Axis, y: Axis, across: Sequence[Value], up: Sequence[Value], rows: pd.DataFrame, metrics: Sequence[Metric]
) -> Canvas:
    is_beside = len(across) <= _SIDE_BY_SIDE and len(metrics) > 1
    shape = (1, len(metrics)) if is_beside else (len(metrics), 1)
    canvas, grid = new_canvas(*shape, row_inches=max(1.6, 0.9 + 0.3 * len(up)))
    is_low = _grid(x, y, across, up, rows, rows["success_rate"]) < 0.5
    for place, (axes, metric) in enumerate(zip((axes for line in grid for axes in line), metrics, strict=True)):
        cells = _grid(x, y, across, up, rows, rows[metric.name] * metric.factor)
        norm = _norm(metric, cells)
        _draw_cells(axes, cells, is_low, norm)
        axes.set_title(metric.label)
        axes.set_xticks(range(len(across)), [x.text(level) for level in across])
        axes.set_yticks(range(len(up)), [y.text(level) for level in up])
        axes.set_xlabel(x.label if is_beside or place == len(metrics) - 1 else "")
        axes.set_ylabel(y.label if not is_beside or place == 0 else "")
        bar = canvas.colorbar(ScalarMappable(norm, colormaps["cividis"]), ax=axes, pad=0.01, aspect=14)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=7)
        if isinstance(norm, LogNorm):
            set_log_ticks(bar.ax, "y", float(norm.vmin or 1.0), float(norm.vmax or 1.0), pad=1.0)
    if is_low.any():
        patch = Patch(facecolor="white", edgecolor=INK, hatch=_HATCH, label="fewer than half committed", linewidth=0.5)
        canvas.legend(handles=[patch], loc="outside upper right")
    return canvas


def _grid(
    x: Axis, y: Axis, across: Sequence[Value], up: Sequence[Value], rows: pd.DataFrame, values: pd.Series
) -> Grid:
    """Return the values with a row for each level of y and a column for each of x; NaN where there is none."""
    cells = np.full((len(up), len(across)), np.nan)
    for column, row, value in zip(rows[x.key], rows[y.key], values, strict=True):
        cells[up.index(row), across.index(column)] = np.nan if value is None else value
    return cells


def _norm(metric: Metric, cells: Grid) -> Normalize:
    values = finite(pd.Series(cells.ravel()))
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if metric.is_share:
        return Normalize(0.0, 100.0)
    if metric.is_log and low > 0 and high > 10 * low:
        return LogNorm(low, high)
    return Normalize(min(0.0, low), high or 1.0)


def _draw_cells(axes: Axes, cells: Grid, is_low: npt.NDArray[np.bool_], norm: Normalize) -> None:
    axes.imshow(np.ma.masked_invalid(cells), cmap="cividis", norm=norm, origin="lower", aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for (row, column), value in np.ndenumerate(cells):
        is_dark = np.isfinite(value) and norm(value) < 0.55
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
        if is_low[row, column]:
            edge = "#ffffff70" if is_dark else "#00000050"
            square = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch=_HATCH, edgecolor=edge, linewidth=0)
            axes.add_patch(square)
        ink = FAINT if not np.isfinite(value) else "white" if is_dark else INK
        axes.text(column, row, number(value), color=ink, **style)
