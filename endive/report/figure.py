"""A figure of a report: what it is called, what it shows, its numbers, and how it is drawn and saved."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from endive.report.axes import Axis
from endive.report.labels import Value, number

WIDTH_INCHES: Final = 8.0
DOTS_PER_INCH: Final = 150

OKABE_ITO: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
INK: Final = "#222222"
FAINT: Final = "#8a8a8a"
_MOST_TICKS: Final = 7
_FEWEST_TICKS: Final = 3
_LABEL_LETTERS: Final = 28
_TICK_ROOM: Final = 0.14
"""The share of an axis that a tick's label takes."""
HOLLOW_NOTE: Final = "Hollow points: fewer than half of the finished transactions committed."

PERCENT: Final = (-2.0, 103.0)
"""The limits of a scale of shares, with room for marks at its ends."""

STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "endive",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, eq=False)
class Figure:
    """Something to look at. `name` is that of its files; `numbers` is all that it draws; `draw` makes the canvas."""

    name: str
    title: str
    caption: str
    numbers: pd.DataFrame
    draw: Callable[[], Canvas]


def render(figure: Figure) -> tuple[bytes, bytes]:
    """Return a figure as PNG and as SVG, the same bytes for the same numbers."""
    with mpl.rc_context(STYLE):
        canvas = figure.draw()
        pixels: Any = FigureCanvasAgg(canvas)
        if (layout := canvas.get_layout_engine()) is not None:
            layout.execute(canvas)
            canvas.set_layout_engine("none")  # so that neither format lays out anew: that takes longer than drawing
        png, svg = io.BytesIO(), io.BytesIO()
        pixels.print_png(png, metadata={"Software": None})
        vectors: Any = FigureCanvasSVG(canvas)
        vectors.print_svg(svg, metadata={"Date": None, "Creator": None})
    return png.getvalue(), svg.getvalue()


def new_canvas(rows: int, columns: int, row_inches: float = 3.0, **options: Any) -> tuple[Canvas, list[list[Axes]]]:
    """Return a canvas of the width of every figure, and its axes row by row."""
    canvas = Canvas(
        figsize=(WIDTH_INCHES, row_inches * rows + 0.6), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white"
    )
    axes = canvas.subplots(rows, columns, squeeze=False, **options)
    return canvas, [list(row) for row in axes]


def level_colors(axis: Axis | None, levels: Sequence[Value]) -> list[Any]:
    """Return a color for each level: an even ramp where they are numbers, else colors that nobody confuses."""
    if axis is None or not axis.is_number or len(levels) < 3:
        return [OKABE_ITO[place % len(OKABE_ITO)] for place in range(len(levels))]
    return [colormaps["viridis"](share) for share in np.linspace(0.0, 0.88, len(levels))]


def set_log_ticks(axes: Axes, which: str, low: float, high: float, pad: float | None = None) -> None:
    """Make an axis logarithmic over a range and a factor `pad` more on each side, with round ticks."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    if pad is None:
        pad = (high / low) ** 0.04 if high > low else 1.5
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / pad, high * pad)
    axis.set_major_locator(FixedLocator(_log_ticks(low / pad, high * pad)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from low to high: 1, 2 and 5 of each decade, or fewer or more of many or few decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)

    def ticks(*steps: float) -> list[float]:
        return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]

    found = next((few for few in (ticks(1, 2, 5), ticks(1, 3)) if len(few) <= _MOST_TICKS), ticks(1))
    if len(found) < _FEWEST_TICKS:
        found = ticks(1, 1.5, 2, 3, 4, 5, 7)
    return found if len(found) > 1 else [low, high]


def set_level_ticks(axes: Axes, axis: Axis) -> None:
    """Give the x axis of a curve a tick for each level of a swept axis, or round ones where those have no room."""
    levels = [level for level in axis.levels if isinstance(level, float)]
    axes.set_xlabel(fill(axis.label, _LABEL_LETTERS))
    if not axis.is_number:
        axes.set_xticks(range(len(axis.levels)), [axis.text(level) for level in axis.levels])
        return
    if axis.is_log:
        set_log_ticks(axes, "x", levels[0], levels[-1])
    gaps = np.diff(np.log(levels) if axis.is_log else levels)
    if gaps.min() >= _TICK_ROOM * gaps.sum():
        axes.set_xticks(levels, [axis.text(level) for level in levels])


def place_of(axis: Axis, value: Value) -> float:
    """Return where on a curve's x axis a level stands."""
    return value if axis.is_number and isinstance(value, float) else float(axis.levels.index(value))


def finite(values: pd.Series) -> list[float]:
    """Return the values that are numbers."""
    return [float(value) for value in values if value is not None and math.isfinite(value)]
