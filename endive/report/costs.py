"""The figure of what the requests of a thousand commits cost, and how much of it retries add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from endive.analysis.intervals import mean_interval
from endive.pipeline.schemas import ALL
from endive.report.axes import Axis
from endive.report.figure import Figure, new_canvas
from endive.report.labels import Value, number
from endive.report.prices import first_attempt_usd, load_prices, request_prices, requests_usd
from endive.report.sweep import Sweep, pick_levels, spread

PARTS: Final = {
    "first_attempts_usd": "first attempts of what committed",
    "given_up_usd": "first attempts of what was given up",
    "retries_usd": "retries",
}
TOTAL: Final = "total_usd"
_COLORS: Final = ("#0072B2", "#E69F00", "#D55E00")
_MOST_PANELS: Final = 6
_MOST_BARS: Final = 12
_EXCLUDED: Final = "Requests only: no storage, no transfer out, no data files, no service that is the catalog."


def cost_figures(sweep: Sweep) -> Iterator[Figure]:
    """Yield the cost of requests against the x axis, where the stores have prices."""
    x, series = sweep.x, sweep.series
    if x is None:
        return
    fixed = sweep.fixed(x, series)
    rows = sweep.at(fixed, sweep.runs[sweep.runs["operation_type"] != ALL])
    rows = rows[rows[x.key].isin(pick_levels(x, _MOST_BARS))]
    if series is not None:
        rows = rows[rows[series.key].isin(pick_levels(series, _MOST_PANELS))]
    costs = cost_frame(sweep, rows)
    if costs.empty:
        return
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    intervals = sweep.interval_note("Their 95 % intervals over seeds are in the table.")
    without = " No bar: no commit." if costs[TOTAL].isna().any() else ""
    yield Figure(
        name="request-cost",
        title="What the requests of a thousand commits cost",
        caption=f"{_provenance(sweep)} {_EXCLUDED} {intervals}{held}{without}",
        numbers=costs,
        draw=partial(_draw, x, series, costs),
    )


def _provenance(sweep: Sweep) -> str:
    prices = load_prices()
    stores = [prices[name] for name in sorted(set(sweep.settings["storage.provider"])) if name in prices]
    sources = "; ".join(f"{store.title}, {store.region}, {store.as_of}" for store in stores)
    return f"US dollars at list prices ({sources})."


def cost_frame(sweep: Sweep, runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each experiment: dollars per 1,000 commits, in all and in parts, with intervals over seeds.

    NaN where there is no commit; the parts are NaN where first attempts cannot be told from retries.
    """
    rows = []
    for exp_hash, own in runs.groupby("exp_hash", sort=False):
        costs = _costs_of_seeds(sweep.settings_of(str(exp_hash)), own)
        if costs is None:
            continue
        row: dict[str, Any] = {axis.key: axis.values[str(exp_hash)] for axis in sweep.axes}
        for name in (TOTAL, *PARTS):
            values = costs[name].dropna()
            interval = mean_interval(values) if len(values) else None
            row[name] = interval.mean if interval else np.nan
            row[f"{name}_low"] = None if interval is None or interval.low is None else max(0.0, interval.low)
            row[f"{name}_high"] = interval.high if interval else None
        rows.append(row | {"seeds": len(costs)})
    frame = pd.DataFrame(rows)
    numeric = [column for column in frame.columns if "_usd" in column]
    return frame.astype(dict.fromkeys(numeric, float))


def _costs_of_seeds(settings: Mapping[str, Value], runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return dollars per 1,000 commits for each seed; None where the store has no prices."""
    prices = request_prices(settings)
    if prices is None:
        return None
    costs = pd.DataFrame({"seed": runs["seed"], TOTAL: requests_usd(runs, prices), "committed": runs["committed"]})
    first = [first_attempt_usd(settings, operation, prices) for operation in runs["operation_type"]]
    each = np.array([np.nan if usd is None else usd for usd in first])
    costs["first_attempts_usd"] = runs["committed"].to_numpy() * each
    costs["given_up_usd"] = runs["aborted"].to_numpy() * each
    costs["retries_usd"] = costs[TOTAL] - costs["first_attempts_usd"] - costs["given_up_usd"]
    by_seed = costs.groupby("seed").sum(min_count=1)
    commits = by_seed["committed"].where(by_seed["committed"] > 0)
    return by_seed[[TOTAL, *PARTS]].div(commits / 1000.0, axis=0)


def _draw(x: Axis, series: Axis | None, costs: pd.DataFrame) -> Canvas:
    levels: list[Value] = [None]
    if series is not None:
        levels = spread([level for level in series.levels if (costs[series.key] == level).any()], _MOST_PANELS)
    across = 1 if len(levels) == 1 else 2 if len(levels) in (2, 4) else 3
    canvas, grid = new_canvas(-(-len(levels) // across), across, row_inches=3.0 if len(levels) == 1 else 2.3)
    places = [axes for line in grid for axes in line]
    for place, axes in enumerate(places):
        if place >= len(levels):
            axes.set_visible(False)
            continue
        own = costs if series is None else costs[costs[series.key] == levels[place]]
        _draw_bars(axes, x, own.set_index(x.key))
        axes.set_title("" if series is None else series.phrase(levels[place]))
        axes.set_ylabel("$ per 1,000 commits" if place % across == 0 else "")
        axes.set_xlabel(x.label if place + across >= len(levels) else "")
    handles = [Patch(color=color, label=label) for color, label in zip(_COLORS, PARTS.values(), strict=True)]
    canvas.legend(handles=handles, loc="outside upper center", ncols=3)
    return canvas


def _draw_bars(axes: Axes, x: Axis, costs: pd.DataFrame) -> None:
    levels = pick_levels(x, _MOST_BARS)
    bottom = np.zeros(len(levels))
    for color, name in zip(_COLORS, PARTS, strict=True):
        heights = np.nan_to_num([_at(costs, level, name) for level in levels])
        axes.bar(range(len(levels)), heights, bottom=bottom, color=color, width=0.8)
        bottom += heights
    errors: Sequence[float] = [_at(costs, level, f"{TOTAL}_high") - _at(costs, level, TOTAL) for level in levels]
    if np.isfinite(errors).any():
        axes.errorbar(range(len(levels)), bottom, yerr=errors, fmt="none", ecolor="#222222", elinewidth=0.8, capsize=2)
    axes.set_xticks(range(len(levels)), [x.text(level) for level in levels], rotation=45 if len(levels) > 6 else 0)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0.0, 1.12 * max(float(bottom.max()), float(np.nanmax([*(bottom + np.nan_to_num(errors)), 1e-9]))))
    axes.yaxis.set_major_formatter(lambda value, _: number(value))


def _at(costs: pd.DataFrame, level: Value, column: str) -> float:
    value = costs[column].get(level)
    return np.nan if value is None else float(value)
