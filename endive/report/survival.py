"""The figure of survivor bias: latency of the committed beside views that count who gave up or is still at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from endive.pipeline.histogram import Histogram, bin_value, merge_histograms
from endive.report.figure import OKABE_ITO, PERCENT, Figure, new_canvas, set_log_ticks
from endive.report.labels import Value
from endive.report.material import Floats, Material
from endive.report.sweep import Sweep, telling_levels
from endive.saturation_analysis import SurvivalCurve, align_counts, incidence, kaplan_meier, latency_views

_MOST_PANELS: Final = 4
_VIEWS: Final = {
    "of the committed": OKABE_ITO[0],
    "Kaplan–Meier": OKABE_ITO[1],
    "of all that began to commit": OKABE_ITO[2],
}


@dataclass(frozen=True, eq=False)
class _Latencies:
    """How long commits of an experiment lasted, as counts at rising times in milliseconds."""

    level: Value
    time_ms: Floats
    committed: Floats
    aborted: Floats
    in_flight: Floats

    @property
    def curve(self) -> SurvivalCurve:
        return kaplan_meier(self.time_ms, self.committed, self.aborted + self.in_flight)


def survival_figures(sweep: Sweep, material: Material) -> Iterator[Figure]:
    """Yield the figure, where somebody gave up or was still committing at the end."""
    found = [each for each in _load(sweep, material) if each.committed.sum() > 0]
    if not any(each.aborted.sum() + each.in_flight.sum() > 0 for each in found):
        return
    fixed = sweep.fixed(sweep.x)
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    yield Figure(
        name="survivor-bias",
        title="Survivor bias: whose latency it is",
        caption=(
            "Share done by each time. Of the committed: what a dashboard shows. Kaplan–Meier: who gave up or was in "
            "flight is censored, as if they would have gone on like the others (optimistic); band: 95 % (Greenwood). "
            f"Of all that began to commit: who gave up never does. All seeds together.{held}"
        ),
        numbers=_numbers(sweep, found),
        draw=partial(_draw, sweep, found),
    )


def _load(sweep: Sweep, material: Material) -> list[_Latencies]:
    levels: list[Value] = [None] if sweep.x is None else telling_levels(sweep, _MOST_PANELS)
    rows = sweep.at(sweep.fixed(sweep.x), sweep.whole)
    hashes = {
        level: set(rows["exp_hash"] if sweep.x is None else sweep.at({sweep.x.key: level}, rows)["exp_hash"])
        for level in levels
    }
    loaded = material.run_rows([exp_hash for own in hashes.values() for exp_hash in own])
    found = []
    for level, own in hashes.items():
        summaries = [summary for run, _, summary in loaded if run.exp_hash in own]
        merged = [
            merge_histograms(summary.histograms[name] for summary in summaries)
            for name in ("commit_latency", "aborted_latency", "in_flight_latency")
        ]
        if any(each.count for each in merged):
            found.append(_latencies(level, merged))
    return found


def _latencies(level: Value, histograms: Sequence[Histogram]) -> _Latencies:
    pairs = []
    for histogram in histograms:
        bins, counts = histogram.nonempty()
        pairs.append((np.array([bin_value(int(each)) for each in bins]), counts.astype(np.float64)))
    time_ms, (committed, aborted, in_flight) = align_counts(*pairs)
    return _Latencies(level, time_ms, committed, aborted, in_flight)


def _numbers(sweep: Sweep, found: Sequence[_Latencies]) -> pd.DataFrame:
    frames = []
    for each in found:
        frame = latency_views(each.time_ms, each.committed, each.aborted, each.in_flight)
        frame.insert(0, "committed", int(each.committed.sum()))
        frame.insert(1, "aborted", int(each.aborted.sum()))
        frame.insert(2, "in_flight", int(each.in_flight.sum()))
        if sweep.x is not None:
            frame.insert(0, sweep.x.key, each.level)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _draw(sweep: Sweep, found: Sequence[_Latencies]) -> Canvas:
    shape = {1: (1, 1), 2: (1, 2), 3: (1, 3)}.get(len(found), (2, 2))
    canvas, grid = new_canvas(*shape, row_inches=2.5)
    places = [axes for line in grid for axes in line]
    positive = np.concatenate([each.time_ms[each.time_ms > 0] for each in found]) / 1000.0
    for axes, each in zip(places, found, strict=False):
        _draw_views(axes, each)
        axes.set_title("" if sweep.x is None else sweep.x.phrase(each.level))
        set_log_ticks(axes, "x", float(positive.min()), float(positive.max()))
        axes.set_ylim(*PERCENT)
    for line in grid:
        line[0].set_ylabel("done (%)")
    for axes in grid[-1]:
        axes.set_xlabel("since the end of the work (s)")
    handles = [Line2D([], [], color=color, label=label) for label, color in _VIEWS.items()]
    canvas.legend(handles=handles, loc="outside upper center", ncols=3)
    return canvas


def _draw_views(axes: Axes, each: _Latencies) -> None:
    seconds = np.maximum(each.time_ms, 1e-3) / 1000.0
    curve = each.curve
    all_of_them = incidence(each.time_ms, each.committed, each.aborted, each.in_flight)
    shares = (np.cumsum(each.committed) / each.committed.sum(), 1.0 - curve.survival, all_of_them)
    axes.fill_between(
        seconds, 100.0 * (1.0 - curve.high), 100.0 * (1.0 - curve.low), color=OKABE_ITO[1], alpha=0.2, lw=0
    )
    for share, color in zip(shares, _VIEWS.values(), strict=True):
        axes.plot(seconds, 100.0 * share, color=color, drawstyle="steps-post")
