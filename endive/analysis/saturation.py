"""Where a system saturates: the load at which success falls to a level, and the knee of throughput."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from endive.analysis.frames import AnalysisError, Floats, check_columns, floats, of_operation, with_values
from endive.analysis.intervals import CONFIDENCE, check_confidence, geometric_mean_interval
from endive.pipeline.schemas import ALL

LEVELS: Final = (0.95, 0.50)
"""The shares of success whose loads are asked for."""

LINEAR_SHARE: Final = 0.90
"""A curve in its linear regime has at least this share of the throughput of that regime."""

Censoring = Literal["below", "above"]


@dataclass(frozen=True, slots=True)
class SaturationPoint:
    """A load, in the unit of the load column, with its confidence interval across seeds.

    `censored`: the load lies below or above the swept range; then `load` is None. `low` and `high` are None with one
    seed, and where seeds do not agree that it lies in the range. `note` says what to know, or is empty.
    """

    load: float | None
    low: float | None
    high: float | None
    censored: Censoring | None
    seeds: int
    swept_low: float
    swept_high: float
    note: str


@dataclass(frozen=True, slots=True)
class _Curve:
    """A response by rising load."""

    load: Floats
    response: Floats


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The curve of each seed that ran every experiment, that of the means over seeds, and how many seeds did not."""

    curves: tuple[_Curve, ...]
    pooled: _Curve
    seeds_left_out: int


def success_load(
    runs: pd.DataFrame,
    level: float = LEVELS[0],
    *,
    load: str = "offered_per_s",
    success: str = "success_rate",
    operation_type: str = ALL,
    confidence: float = CONFIDENCE,
) -> SaturationPoint:
    """Return the load at which success falls to `level`.

    `runs` are the RUN_METRICS rows of one sweep over the load, all else equal. Each seed's curve is made monotone
    (isotonic regression) and joined by straight lines over the logarithm of the load; the interval is that of the mean
    of the logarithms of the seeds' loads.
    """
    if not 0.0 < level < 1.0:
        raise AnalysisError(f"success level {level}: must be more than 0 and less than 1")
    sweep = _sweep(runs, load, success, operation_type)
    return _across_seeds(sweep, lambda curve: falls_to(curve.load, curve.response, level), confidence)


def throughput_knee(
    runs: pd.DataFrame,
    *,
    load: str = "offered_per_s",
    throughput: str = "throughput_per_s",
    slope: float | None = 1.0,
    operation_type: str = ALL,
    confidence: float = CONFIDENCE,
) -> SaturationPoint:
    """Return the knee of the throughput curve: the load at which its two asymptotes meet.

    One is the linear regime, throughput = `slope` · load (1: all that is offered commits; None: the ratio at the
    smallest load, for a load that is no rate, such as clients). The other is the largest throughput reached. The knee
    lies above the swept range if the throughput at the largest load is at least 90 % of the linear regime's, and below
    it if that at the smallest load is less.
    """
    sweep = _sweep(runs, load, throughput, operation_type)
    return _across_seeds(sweep, lambda curve: knee_of(curve.load, curve.response, slope), confidence)


def saturation_table(
    runs: pd.DataFrame,
    group_by: Sequence[str] = (),
    *,
    levels: Sequence[float] = LEVELS,
    load: str = "offered_per_s",
    slope: float | None = 1.0,
    operation_type: str = ALL,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return the points of every group: the group's keys, `point`, and the fields of `SaturationPoint`.

    `point` is `success 0.95` and so on for each level, and `knee`. Where a group cannot tell (one load, say), there is
    no load and `note` is the reason.
    """
    selected = of_operation(runs, operation_type)
    options: dict[str, Any] = {"load": load, "operation_type": operation_type, "confidence": confidence}
    questions: dict[str, Callable[[pd.DataFrame], SaturationPoint]] = {
        f"success {level:.6g}": partial(success_load, level=level, **options) for level in levels
    }
    questions["knee"] = partial(throughput_knee, slope=slope, **options)
    names = [field.name for field in fields(SaturationPoint)]
    rows = []
    for keys, group in _groups(selected, group_by):
        for point, ask in questions.items():
            try:
                found = ask(group)
            except AnalysisError as error:
                found = SaturationPoint(None, None, None, None, 0, np.nan, np.nan, str(error))
            rows.append([*keys, point, *(getattr(found, name) for name in names)])
    return pd.DataFrame(rows, columns=[*group_by, "point", *names])


def _groups(frame: pd.DataFrame, group_by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Yield the values of the keys and the rows of each group, in order; all rows where there are no keys."""
    check_columns(frame, group_by)
    if not group_by:
        yield (), frame
        return
    for values, rows in frame.groupby(list(group_by), dropna=False, sort=True):
        yield tuple(values), rows


def falls_to(load: Floats, success: Floats, level: float) -> float | Censoring:
    """Return the load at which success, made to fall monotonically, first is at `level`. Loads rise."""
    fitted = isotonic_regression(success, increasing=False).x
    if fitted[0] < level:
        return "below"
    if fitted[-1] > level:
        return "above"
    after = int(np.argmax(fitted <= level))
    if after == 0:
        return float(load[0])
    share = (fitted[after - 1] - level) / (fitted[after - 1] - fitted[after])
    return float(load[after - 1] * (load[after] / load[after - 1]) ** share)


def knee_of(load: Floats, throughput: Floats, slope: float | None = 1.0) -> float | Censoring:
    """Return the load at which the linear regime reaches the largest throughput. Loads rise."""
    slope = float(throughput[0] / load[0]) if slope is None else slope
    if slope <= 0.0:
        raise AnalysisError("no throughput at the smallest load, so no linear regime")
    share = throughput / (slope * load)
    if share[0] < LINEAR_SHARE:
        return "below"
    if share[-1] >= LINEAR_SHARE:
        return "above"
    return float(throughput.max() / slope)


def _sweep(runs: pd.DataFrame, load: str, response: str, operation_type: str) -> _Sweep:
    selected = of_operation(runs, operation_type)
    check_columns(selected, ["exp_hash", "seed", load, response])
    rows = with_values(selected, [load, response])
    points = pd.DataFrame(
        {"exp": rows["exp_hash"], "seed": rows["seed"], "load": floats(rows, load), "response": floats(rows, response)}
    )
    if points["load"].min() <= 0.0:
        raise AnalysisError(f"{load}: has values that are not positive")
    experiments = points["exp"].nunique()
    whole = points.groupby("seed").filter(lambda seed: len(seed) == experiments)
    curves = tuple(_curve(seed, load) for _, seed in whole.groupby("seed"))
    pooled = _curve(points.groupby("exp", as_index=False)[["load", "response"]].mean(), load)
    return _Sweep(curves, pooled, points["seed"].nunique() - len(curves))


def _curve(points: pd.DataFrame, load: str) -> _Curve:
    ordered = points.sort_values("load")
    loads = floats(ordered, "load")
    if loads.size < 2:
        raise AnalysisError(f"{load}: one value only; a curve needs two or more")
    if not (np.diff(loads) > 0.0).all():
        repeated = loads[:-1][np.diff(loads) <= 0.0][0]
        raise AnalysisError(f"{load}: several experiments at {repeated:.6g}; group by what else was swept")
    return _Curve(loads, floats(ordered, "response"))


def _across_seeds(sweep: _Sweep, locate: Callable[[_Curve], float | Censoring], confidence: float) -> SaturationPoint:
    """Ask each seed's curve; where they do not agree that the load is in the range, ask that of the means."""
    check_confidence(confidence)
    found = [locate(curve) for curve in sweep.curves]
    located = [load for load in found if not isinstance(load, str)]
    swept = (float(sweep.pooled.load[0]), float(sweep.pooled.load[-1]))
    notes = [f"{sweep.seeds_left_out} seeds without every load are left out"] if sweep.seeds_left_out else []
    if found and len(located) == len(found):
        interval = geometric_mean_interval(located, confidence)
        notes += ["one seed: no interval"] if len(found) == 1 else []
        return SaturationPoint(interval.mean, interval.low, interval.high, None, len(found), *swept, "; ".join(notes))
    answer = locate(sweep.pooled)
    load, censored = (None, answer) if isinstance(answer, str) else (answer, None)
    notes.append(_censoring_note(found, censored, swept))
    return SaturationPoint(load, None, None, censored, len(found), *swept, "; ".join(notes))


def _censoring_note(found: Sequence[float | Censoring], censored: Censoring | None, swept: tuple[float, float]) -> str:
    where = "in the swept range"
    if censored is not None:
        where = f"below {swept[0]:.4g}" if censored == "below" else f"above {swept[1]:.4g}"
    if not found:
        return f"no seed has every load, so the mean over seeds is used, without an interval: {where}"
    if all(load == censored for load in found):
        return f"{where}, the {'smallest' if censored == 'below' else 'largest'} load swept"
    outside = sum(isinstance(load, str) for load in found)
    return (
        f"{outside} of {len(found)} seeds are outside the swept range, so no interval; the mean over seeds is {where}"
    )
