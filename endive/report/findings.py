"""What a sweep found, in sentences with numbers: no more than the data bear, and what to beware of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from endive.pipeline.schemas import ALL
from endive.report.axes import Axis
from endive.report.costs import PARTS, TOTAL, cost_frame
from endive.report.labels import Value, number, operation_label
from endive.report.material import Material
from endive.report.sweep import WELL, Sweep
from endive.saturation_analysis import AnalysisError, anova, saturation_table, warm_up_check

_SUCCESS: Final = "success 0.95"
_HALF: Final = "success 0.5"
_KNEE: Final = "knee"
_CENSORED_SHARE: Final = 0.05
_MOST_NAMED: Final = 3
_WIDE_GAP: Final = 2.0
"""Loads further apart than this are joined by a line that may be off by a quarter."""


@dataclass(frozen=True)
class Finding:
    """A sentence or two. `topic` groups them; a warning is about the data, not about the system."""

    topic: str
    text: str
    is_warning: bool = False


def find(sweep: Sweep, material: Material) -> list[Finding]:
    """Return what there is to say of a sweep, what matters most first, warnings last."""
    return [
        *_saturation(sweep),
        *_operations(sweep),
        *_latency(sweep),
        *_cost(sweep),
        *_effects(sweep),
        *_bare(sweep),
        *_warnings(sweep, material),
    ]


def saturation_frame(sweep: Sweep) -> pd.DataFrame | None:
    """Return the saturation points of each level of the series, other axes held; None where no load was swept."""
    if sweep.x is None or not sweep.x.is_load or len(sweep.x.levels) < 2:
        return None
    keys = [] if sweep.series is None else [sweep.series.key]
    runs = sweep.at(sweep.fixed(sweep.x, sweep.series), sweep.runs)
    try:
        return saturation_table(runs, keys)
    except AnalysisError:
        return None


def _saturation(sweep: Sweep) -> Iterator[Finding]:
    table = saturation_frame(sweep)
    if table is None:
        return
    held = _held(sweep, sweep.x, sweep.series)
    levels: tuple[Value, ...] = (None,) if sweep.series is None else sweep.series.levels
    for level in levels:
        of = table if sweep.series is None else table[table[sweep.series.key] == level]
        points = {point["point"]: point for point in _records(of)}
        who = "" if sweep.series is None else sweep.series.phrase(level)
        if points:
            yield Finding("saturation", _sentence(_saturation_text(points), who, held))


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as mappings, with None for what has no value."""
    return [
        {str(name): None if value is None or value != value else value for name, value in row.items()}  # noqa: PLR0124
        for row in table.to_dict("records")
    ]


def _saturation_text(points: Mapping[str, Mapping[str, Any]]) -> str:
    success, knee = points[_SUCCESS], points[_KNEE]
    if success["note"] and success["seeds"] == 0 and success["load"] is None and success["censored"] is None:
        return f"saturation cannot be told ({success['note']})"
    if success["censored"] == "above":
        return f"at least 95 % commit at every load swept, up to {number(success['swept_high'])}/s"
    if success["censored"] == "below":
        return f"fewer than 95 % commit even at the smallest load swept, {number(success['swept_low'])}/s"
    text = f"success falls below 95 % at {_with_interval(success)} submissions per second"
    if knee["load"] is not None:
        text += f", and throughput saturates at {_with_interval(knee)} commits per second"
    elif knee["censored"] == "above":
        text += f"; throughput still follows the load at {number(knee['swept_high'])}/s"
    return text


def _with_interval(point: Mapping[str, Any]) -> str:
    """Return a load with its interval, or why it has none."""
    load, low, high = (point[name] for name in ("load", "low", "high"))
    if low is not None and high is not None:
        return f"{number(load)} ({number(low)} to {number(high)})"
    return f"{number(load)} (one seed: no interval)" if point["seeds"] == 1 else f"about {number(load)} (no interval)"


def _sentence(text: str, who: str, held: str) -> str:
    """Return text as a sentence about whom it concerns, under which circumstances."""
    named = f"{who[:1].upper()}{who[1:]}: {text}" if who else f"{text[:1].upper()}{text[1:]}"
    return f"{named}{held}."


def _held(sweep: Sweep, *shown: Axis | None) -> str:
    fixed = sweep.fixed(*shown)
    return f", with {sweep.phrase(fixed)}" if fixed else ""


def _operations(sweep: Sweep) -> Iterator[Finding]:
    """Say at what load each operation type stops committing, where several run beside each other."""
    if sweep.x is None or not sweep.x.is_load or len(sweep.operations) < 2:
        return
    mixed = sweep.runs[sweep.runs.groupby("exp_hash")["operation_type"].transform("nunique") > 2]
    fixed: dict[str, Value] = {}
    for axis in sweep.axes:
        if axis is not sweep.x:
            there = [level for level in axis.levels if (mixed[axis.key] == level).any()]
            if not there:
                return
            reference = sweep.fixed(sweep.x)[axis.key]
            fixed[axis.key] = reference if reference in there else there[-1]
    rows = sweep.at(fixed, mixed)
    load = rows[rows["operation_type"] == ALL][["exp_hash", "seed", "offered_per_s"]]
    rows = rows.merge(load.rename(columns={"offered_per_s": "all_offered_per_s"}), on=["exp_hash", "seed"])
    held = f", with {sweep.phrase(fixed)}" if fixed else ""
    for operation in sweep.operations:
        try:
            table = saturation_table(rows, levels=(0.5,), load="all_offered_per_s", operation_type=operation)
        except AnalysisError:
            continue
        half = _records(table[table["point"] == _HALF])[0]
        if half["load"] is not None:
            text = f"half of them no longer commit from {_with_interval(half)} submissions of all kinds per second on"
            yield Finding("operations", _sentence(text, operation_label(operation), held))


def _latency(sweep: Sweep) -> Iterator[Finding]:
    """Say what a commit takes at the lowest load, and at the highest at which 95 % still commit."""
    if sweep.x is None or len(sweep.x.levels) < 2:
        return
    rows = sweep.at(sweep.fixed(sweep.x), sweep.whole)
    rows = rows[(rows["committed"] > 0) & (rows["success_rate"] >= WELL)]
    if len(rows) < 2:
        return
    ends = [rows.iloc[0], rows.iloc[-1]]
    said = [
        f"{_latency_of(row, 'p50')} in the median and {_latency_of(row, 'p99')} at P99 at "
        f"{sweep.x.phrase(row[sweep.x.key])}"
        for row in ends
    ]
    which = "the highest load" if sweep.x.is_load else "the last level"
    text = f"a commit takes {said[0]}, and {said[1]}, {which} at which at least 95 % commit"
    yield Finding("latency", _sentence(text, "", _held(sweep, sweep.x)))


def _latency_of(row: pd.Series, point: str) -> str:
    mean, low, high = (row[f"commit_latency_{point}_ms{end}"] / 1000.0 for end in ("", "_low", "_high"))
    interval = f" ({number(low)} to {number(high)})" if np.isfinite(low) else ""
    return f"{number(mean)} s{interval}"


def _cost(sweep: Sweep) -> Iterator[Finding]:
    """Say what requests cost at the ends of the x axis, and how much of it retries are."""
    if sweep.x is None or len(sweep.x.levels) < 2:
        return
    rows = sweep.at(sweep.fixed(sweep.x), sweep.runs[sweep.runs["operation_type"] != ALL])
    costs = cost_frame(sweep, rows)
    costs = costs.dropna(subset=[TOTAL]) if len(costs) else costs
    if len(costs) < 2:
        return
    first, last = costs.iloc[0], costs.iloc[-1]
    text = (
        f"the requests of 1,000 commits cost ${number(first[TOTAL])} at {sweep.x.phrase(first[sweep.x.key])} and "
        f"${number(last[TOTAL])} at {sweep.x.phrase(last[sweep.x.key])}, list prices"
    )
    wasted = last[[name for name in PARTS if name != "first_attempts_usd"]].astype(float).sum()
    if np.isfinite(last["retries_usd"]) and last[TOTAL] > 0:
        text += f", {number(100.0 * wasted / last[TOTAL], 2)} % of it for retries and for what is given up"
    yield Finding("cost", _sentence(text, "", _held(sweep, sweep.x)))


def _effects(sweep: Sweep) -> Iterator[Finding]:
    """Say how much of the variance of success each setting explains alone."""
    if len(sweep.axes) < 2 or sweep.seeds < 2:
        return
    shares = {}
    for axis in sweep.axes:
        try:
            table = anova(sweep.runs, "success_rate", [axis.key]).table
        except AnalysisError:
            continue
        shares[axis.label] = float(table.loc[table["term"] == axis.key, "eta_squared"].iloc[0])
    if len(shares) > 1 and all(np.isfinite(list(shares.values()))):
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        said = ", ".join(f"{label} {number(100.0 * share, 2)} %" for label, share in ranked)
        text = f"of the variance of success over all runs, each setting alone explains (η²): {said}"
        yield Finding("effects", _sentence(text, "", ""))


def _bare(sweep: Sweep) -> Iterator[Finding]:
    """Tell of an experiment that stands alone what can be told."""
    if sweep.axes:
        return
    row = sweep.whole.iloc[0]
    if row["committed"] == 0:
        return
    low, high = row["throughput_per_s_low"], row["throughput_per_s_high"]
    interval = f" ({number(low)} to {number(high)})" if np.isfinite(low) else ""
    text = (
        f"{number(row['throughput_per_s'])} commits per second{interval}, {number(100.0 * row['success_rate'])} % of "
        f"the finished committed, in {_latency_of(row, 'p50')} in the median and {_latency_of(row, 'p99')} at P99"
    )
    yield Finding("result", _sentence(text, "", ""))


def _warnings(sweep: Sweep, material: Material) -> Iterator[Finding]:
    rows = sweep.whole
    if sweep.seeds < 2:
        few = "every experiment has" if sweep.most_seeds == 1 else "some experiments have only"
        yield _warning(f"{few} one seed: no interval over seeds there, and small differences may be chance")
    elif sweep.most_seeds > sweep.seeds:
        yield _warning(f"experiments have from {sweep.seeds_phrase}; some are missing")
    without = rows[rows["committed"] == 0]
    if len(without):
        yield _warning(f"{_experiments(len(without))} without a single commit ({_some(sweep, without)}): no latency")
    cut = rows[rows["in_flight_share"] > _CENSORED_SHARE]
    if len(cut):
        share = number(100.0 * float(cut["in_flight_share"].max()), 2)
        yield _warning(
            f"{_experiments(len(cut))} with more than 5 % of the submitted in flight at the end (up to {share} %), "
            "which count in neither success nor latency: both look better than they are"
        )
    yield from _wide_gaps(sweep)
    yield from _warm_up(sweep, material)


def _wide_gaps(sweep: Sweep) -> Iterator[Finding]:
    """Warn of loads at which 95 % commit that were read off a straight line across a wide gap of the sweep."""
    table = saturation_frame(sweep)
    if table is None or sweep.x is None:
        return
    swept = [level for level in sweep.x.levels if isinstance(level, float)]
    found = [load for load in table.loc[table["point"] == _SUCCESS, "load"] if pd.notna(load)]
    gaps = {gap for gap in pairwise(swept) if gap[1] > _WIDE_GAP * gap[0] and any(gap[0] < x < gap[1] for x in found)}
    if gaps:
        between = " and ".join(f"{number(low)} and {number(high)}/s" for low, high in sorted(gaps))
        yield _warning(
            f"saturation lies between {between}, where nothing was swept: its interval knows how seeds scatter, not "
            "how the curve runs in between; sweep loads there"
        )


def _warm_up(sweep: Sweep, material: Material) -> Iterator[Finding]:
    """Warn of experiments that had not settled when their window began."""
    unsettled: list[tuple[float, str]] = []
    untold = 0
    for exp_hash in sweep.whole["exp_hash"]:
        series = material.over_time.get(exp_hash)
        if series is None or not series.committed.any():
            continue
        start_ms, end_ms = (1000.0 * edge for edge in series.window_s)
        found = warm_up_check(series.committed.mean(axis=0), 1000.0 * series.bin_s, start_ms, end_ms)
        untold += found.settled_ms is None
        if found.warning and found.settled_ms is not None:
            unsettled.append((abs(found.bias), exp_hash))
    if unsettled:
        worst, exp_hash = max(unsettled)
        who = _some(sweep, sweep.whole[sweep.whole["exp_hash"] == exp_hash])
        yield _warning(
            f"{_experiments(len(unsettled))} had not settled when the window began (MSER-5), the worst off by "
            f"{number(100.0 * worst, 2)} % ({who}): longer runs, or a later window, would tell better"
        )
    if untold:
        yield _warning(f"MSER-5 cannot tell of {_experiments(untold)} whether the window began late enough")


def _experiments(count: int) -> str:
    return f"{count} experiment{'s' if count != 1 else ''}"


def _some(sweep: Sweep, rows: pd.DataFrame) -> str:
    """Return a few experiments in words."""
    named = [
        ", ".join(axis.phrase(row[axis.key]) for axis in sweep.axes) or str(row["exp_hash"])
        for row in rows.head(_MOST_NAMED).to_dict("records")
    ]
    return "; ".join(named) + ("; …" if len(rows) > _MOST_NAMED else "")


def _warning(text: str) -> Finding:
    return Finding("data", _sentence(text, "", ""), is_warning=True)
