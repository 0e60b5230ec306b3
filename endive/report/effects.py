"""Figures of what moves a metric: how much each swept setting explains, and how fast metrics grow along the x axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from endive.pipeline.schemas import ALL
from endive.report.axes import Axis
from endive.report.figure import FAINT, OKABE_ITO, Figure, new_canvas
from endive.report.labels import METRIC_OF, Value, number
from endive.report.sweep import WELL, Sweep, pick_levels
from endive.saturation_analysis import INTERACTION, AnalysisError, anova, log_log_fit

_EXPLAINED: Final = ("success_rate", "throughput_per_s", "commit_latency_p99_ms")
_GROWING: Final = ("throughput_per_s", "commit_latency_p50_ms", "retries_per_commit")
_SEED: Final = "seed"
_MOST_FACTORS: Final = 4
_MOST_LEVELS: Final = 8
_FEWEST_PLACES: Final = 3
_BENDS_BELOW: Final = 1.0
"""A Durbin-Watson statistic as small as this tells of residuals that follow each other: a line is the wrong curve."""


def effect_figures(sweep: Sweep) -> Iterator[Figure]:
    """Yield what the data can tell of: shares of the variance, and exponents along the x axis."""
    shares = _variance_shares(sweep)
    if len(shares):
        yield Figure(
            name="effects",
            title="What explains the differences",
            caption=(
                "Share of the variance over runs (η²) that a setting explains alone, and × two settings beyond the sum "
                "of both, with p-values of F tests; seeds are blocks. The table has the whole analyses of variance, "
                "one-way and two-way, with partial η². Near saturation runs do not scatter equally: read the shares, "
                "and p with care."
            ),
            numbers=shares,
            draw=partial(_draw_shares, shares, {axis.key: axis.label for axis in sweep.axes}),
        )
    exponents = _exponents(sweep)
    if len(exponents):
        fixed = sweep.fixed(sweep.x, sweep.series)
        held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
        yield Figure(
            name="exponents",
            title="How metrics grow below saturation",
            caption=(
                "Slopes of straight lines through logarithms, over the runs in which at least 95 % commit: at an "
                f"exponent of 1 the metric doubles as the {_across(sweep)} doubles. Bars: 95 % intervals. Hollow: the "
                f"residuals follow each other (Durbin-Watson below {_BENDS_BELOW:g}), so the relation bends and has no "
                f"single exponent. The table has R² and a test of equal scatter (Breusch-Pagan).{held}"
            ),
            numbers=exponents,
            draw=partial(_draw_exponents, sweep.series, exponents),
        )


def _variance_shares(sweep: Sweep) -> pd.DataFrame:
    """Return the analyses of variance of each metric: one for each setting, one for each pair of settings."""
    keys = [axis.key for axis in sweep.axes[:_MOST_FACTORS]]
    questions = [[key] for key in keys] + [list(pair) for pair in combinations(keys, 2)]
    frames = []
    for metric in _EXPLAINED if sweep.seeds > 1 else ():
        for factors in questions:
            try:
                found = anova(sweep.runs, metric, factors, block=_SEED)
            except AnalysisError:
                continue
            frames.append(found.table.assign(metric=metric, factors=INTERACTION.join(factors), runs=found.rows))
    if not frames:
        return pd.DataFrame()
    table = pd.concat(frames, ignore_index=True)
    return table[["metric", "factors", *(name for name in table.columns if name not in ("metric", "factors"))]]


def _draw_shares(shares: pd.DataFrame, labels: dict[str, str]) -> Canvas:
    main = [key for key in labels if ((shares["factors"] == key) & (shares["term"] == key)).any()]
    pairs = [term for term in dict.fromkeys(shares["term"]) if INTERACTION in term]
    metrics = list(dict.fromkeys(shares["metric"]))
    terms = [*main, *pairs]
    canvas, grid = new_canvas(1, len(metrics), row_inches=0.7 + 0.3 * len(terms), sharey=True)
    for axes, metric in zip(grid[0], metrics, strict=True):
        own = shares[shares["metric"] == metric]
        _draw_bars(axes, own[(own["term"] == own["factors"])], terms, len(main))
        axes.set_title(METRIC_OF[metric].title)
        axes.set_xlabel("η² (%)")
    names = [INTERACTION.join(labels[key] for key in term.split(INTERACTION)) for term in terms]
    grid[0][0].set_yticks(range(len(terms)), names)
    grid[0][0].set_ylim(len(terms) - 0.5, -0.5)
    return canvas


def _draw_bars(axes: Axes, rows: pd.DataFrame, terms: Sequence[str], main_terms: int) -> None:
    of = {row["term"]: row for row in rows.to_dict("records")}
    for place, term in enumerate(terms):
        if term not in of or not np.isfinite(of[term]["eta_squared"]):
            axes.text(1.0, place, "–", va="center", color=FAINT)
            continue
        share, p_value = 100.0 * of[term]["eta_squared"], of[term]["p_value"]
        axes.barh(place, share, height=0.62, color=OKABE_ITO[0] if place < main_terms else OKABE_ITO[5])
        axes.text(share + 1.5, place, _share_text(share, p_value), va="center", fontsize=7.5)
    axes.set_xlim(0.0, 135.0)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(visible=False, axis="y")


def _share_text(share: float, p_value: float) -> str:
    if not np.isfinite(p_value):
        return number(share, 2)
    return f"{number(share, 2)}, p {'< 0.001' if p_value < 0.001 else f'= {p_value:.3f}'}"


def _exponents(sweep: Sweep) -> pd.DataFrame:
    """Return the slope of each growing metric for each level of the series, with what tells whether to believe it."""
    if sweep.x is None or not sweep.x.is_log:
        return pd.DataFrame()
    across = "offered_per_s" if sweep.x.is_load else sweep.x.key
    rows = sweep.at(sweep.fixed(sweep.x, sweep.series), sweep.runs)
    rows = rows[(rows["operation_type"] == ALL) & (rows["success_rate"] >= WELL)]
    levels: list[Value] = [None] if sweep.series is None else pick_levels(sweep.series, _MOST_LEVELS)
    records = []
    for level in levels:
        own = rows if sweep.series is None else rows[rows[sweep.series.key] == level]
        for metric in _GROWING:
            told = own[own[metric].notna() & (own[metric].astype(float) > 0.0)]
            if told[sweep.x.key].nunique() < _FEWEST_PLACES:
                continue
            try:
                fit = log_log_fit(told[across].astype(float), told[metric].astype(float))
            except AnalysisError:
                continue
            series = {} if sweep.series is None else {sweep.series.key: level}
            records.append(
                series
                | {
                    "metric": metric,
                    "exponent": fit.slope,
                    "exponent_low": fit.slope_low,
                    "exponent_high": fit.slope_high,
                    "r_squared": fit.r_squared,
                    "durbin_watson": fit.durbin_watson,
                    "breusch_pagan_p": fit.breusch_pagan_p,
                    "runs": fit.rows,
                }
            )
    return pd.DataFrame(records)


def _across(sweep: Sweep) -> str:
    assert sweep.x is not None
    return "load" if sweep.x.is_load else sweep.x.label


def _draw_exponents(series: Axis | None, exponents: pd.DataFrame) -> Canvas:
    levels: list[Value] = [None] if series is None else pick_levels(series, _MOST_LEVELS)
    metrics = [metric for metric in _GROWING if (exponents["metric"] == metric).any()]
    canvas, grid = new_canvas(1, len(metrics), row_inches=0.8 + 0.28 * len(levels), sharey=True)
    for axes, metric in zip(grid[0], metrics, strict=True):
        own = exponents[exponents["metric"] == metric]
        for place, level in enumerate(levels):
            for row in (own if series is None else own[own[series.key] == level]).to_dict("records"):
                face = "white" if row["durbin_watson"] < _BENDS_BELOW else OKABE_ITO[0]
                axes.hlines(place, row["exponent_low"], row["exponent_high"], color=OKABE_ITO[0], alpha=0.6)
                axes.plot([row["exponent"]], [place], "o", color=OKABE_ITO[0], markerfacecolor=face)
        axes.axvline(0.0, color=FAINT, linewidth=0.8)
        axes.set_title(METRIC_OF[metric].title)
        axes.set_xlabel("exponent")
        axes.grid(visible=False, axis="y")
    grid[0][0].set_yticks(range(len(levels)), ["" if series is None else series.text(level) for level in levels])
    grid[0][0].set_ylabel("" if series is None else series.label)
    grid[0][0].set_ylim(len(levels) - 0.5, -0.5)
    return canvas
