"""How long a commit takes when not every commit is seen to its end: the censoring-aware view of latency.

Looking only at committed transactions flatters an overloaded system: those that would have taken longest gave up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from endive.analysis.frames import AnalysisError, Floats
from endive.analysis.intervals import CONFIDENCE, check_confidence

_ROUNDING = 1e-9
"""Products of shares that should be equal to a quantile may miss it by this much."""


@dataclass(frozen=True, slots=True)
class SurvivalCurve:
    """A Kaplan-Meier curve: the share of commits that have lasted longer than each of `time_ms`.

    `low` and `high` are Greenwood's interval on the log(-log) scale: always within 0 and 1. They are NaN once nobody is
    left at risk of whom it could be told. Times without an event are kept, as a step of height 0.
    """

    time_ms: Floats
    at_risk: Floats
    events: Floats
    survival: Floats
    standard_error: Floats
    low: Floats
    high: Floats

    def quantile(self, share: float) -> float | None:
        """Return the first time, in milliseconds, by which a share has committed; None where the curve ends before."""
        return _first(self.time_ms, self.survival, share)

    def quantile_interval(self, share: float) -> tuple[float | None, float | None]:
        """Return where the bands of the curve cross that share (Brookmeyer and Crowley); None beyond the curve."""
        return _first(self.time_ms, self.low, share), _first(self.time_ms, self.high, share)


def kaplan_meier(
    time_ms: ArrayLike, events: ArrayLike, censored: ArrayLike, confidence: float = CONFIDENCE
) -> SurvivalCurve:
    """Return the Kaplan-Meier estimate from counts at rising times, as mergeable histograms give them.

    `events[i]` commits took `time_ms[i]`; `censored[i]` had lasted that long without an outcome (aborted, in flight).
    At one time events come before censoring. Assumes that whoever is censored would have gone on like those that stay:
    of aborts for want of retries that is optimistic. Raise AnalysisError if nothing was counted.
    """
    check_confidence(confidence)
    time, happened, lost = _checked_counts(time_ms, events, censored)
    leaving = happened + lost
    at_risk = leaving.sum() - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    share = np.divide(happened, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0.0)
    survival = np.cumprod(1.0 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(np.where(happened > 0.0, happened / (at_risk * (at_risk - happened)), 0.0))
        error = np.where(survival > 0.0, survival * np.sqrt(greenwood), np.nan)
        spread = float(stats.norm.ppf(0.5 + confidence / 2.0)) * np.sqrt(greenwood) / np.abs(np.log(survival))
        low, high = survival ** np.exp(spread), survival ** np.exp(-spread)
    untouched, over = survival == 1.0, survival == 0.0
    low, high = (np.where(untouched, 1.0, np.where(over, np.nan, band)) for band in (low, high))
    return SurvivalCurve(time, at_risk, happened, survival, error, low, high)


def incidence(time_ms: ArrayLike, events: ArrayLike, competing: ArrayLike, censored: ArrayLike) -> Floats:
    """Return the share that has committed by each time, where an abort is an end of its own (Aalen-Johansen).

    Unlike `kaplan_meier` it does not suppose that who gave up would have committed: it levels off at the success rate.
    """
    _, happened, given_up, lost = _checked_counts(time_ms, events, competing, censored)
    leaving = happened + given_up + lost
    at_risk = leaving.sum() - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    share_of = [np.divide(n, at_risk, out=np.zeros_like(n), where=at_risk > 0.0) for n in (happened, given_up)]
    unresolved = np.concatenate([[1.0], np.cumprod(1.0 - share_of[0] - share_of[1])[:-1]])
    found: Floats = np.cumsum(unresolved * share_of[0])
    return found


def align_counts(*histograms: Mapping[float, int] | tuple[ArrayLike, ArrayLike]) -> tuple[Floats, list[Floats]]:
    """Return the rising times that occur in any of the histograms, and the counts of each histogram at them.

    A histogram is a mapping of time to count, or a pair of times and counts; counts at one time are added.
    """
    pairs = [
        (np.array(list(each.keys()), dtype=np.float64), np.array(list(each.values()), dtype=np.float64))
        if isinstance(each, Mapping)
        else (np.asarray(each[0], dtype=np.float64), np.asarray(each[1], dtype=np.float64))
        for each in histograms
    ]
    times = np.unique(np.concatenate([time for time, _ in pairs]))
    aligned = []
    for time, counts in pairs:
        found = np.zeros(times.size)
        np.add.at(found, np.searchsorted(times, time), counts)
        aligned.append(found)
    return times, aligned


def latency_views(
    time_ms: ArrayLike,
    committed: ArrayLike,
    aborted: ArrayLike,
    in_flight: ArrayLike,
    shares: Sequence[float] = (0.50, 0.95, 0.99),
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return quantiles of commit latency, seen four ways, in milliseconds; None where there is no such quantile.

    A row per share, and `share`; `committed_ms`: of committed transactions alone; `answered_ms`: until commit or abort;
    `kaplan_meier_ms`, `low_ms`, `high_ms`: aborts and in-flight censored; `submitted_ms`: when that share of all that
    began to commit had committed, those that gave up never doing so.
    """
    time, commits, aborts, pending = _checked_counts(time_ms, committed, aborted, in_flight)
    curve = kaplan_meier(time, commits, aborts + pending, confidence)
    not_committed = 1.0 - incidence(time, commits, aborts, pending)
    rows: list[dict[str, Any]] = []
    for share in shares:
        low, high = curve.quantile_interval(share)
        rows.append(
            {
                "share": share,
                "committed_ms": _first(time, _above(commits), share),
                "answered_ms": _first(time, _above(commits + aborts), share),
                "kaplan_meier_ms": curve.quantile(share),
                "low_ms": low,
                "high_ms": high,
                "submitted_ms": _first(time, not_committed, share),
            }
        )
    return pd.DataFrame(rows, dtype=object).astype({"share": float})


def _checked_counts(time_ms: ArrayLike, *counts: ArrayLike) -> tuple[Floats, ...]:
    """Return rising times, and counts at each of them of which not all are 0."""
    time, *found = (np.asarray(values, dtype=np.float64) for values in (time_ms, *counts))
    if time.ndim != 1 or any(each.shape != time.shape for each in found):
        raise AnalysisError(
            f"times and counts differ in length: {', '.join(str(each.size) for each in (time, *found))}"
        )
    if not (np.diff(time) > 0.0).all() or not np.isfinite(time).all():
        raise AnalysisError("times must rise, each above the one before")
    if not all((each >= 0.0).all() and np.isfinite(each).all() for each in found):
        raise AnalysisError("counts must be 0 or more")
    if not any(each.any() for each in found):
        raise AnalysisError("nothing was counted: no transaction began to commit")
    return time, *found


def _above(counts: Floats) -> Floats:
    """Return the share of counts above each place; NaN where there are none."""
    total = counts.sum()
    return 1.0 - np.cumsum(counts) / total if total else np.full(counts.size, np.nan)


def _first(time: Floats, survival: Floats, share: float) -> float | None:
    if not 0.0 < share < 1.0:
        raise AnalysisError(f"quantile {share}: must be more than 0 and less than 1")
    reached = survival <= 1.0 - share + _ROUNDING
    return float(time[np.argmax(reached)]) if reached.any() else None
