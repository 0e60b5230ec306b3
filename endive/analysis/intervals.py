"""Confidence intervals across seeds, and the adjustment of many tests at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from endive.analysis.frames import AnalysisError, Floats

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of `count` values and its confidence interval; without bounds where there are fewer than two values."""

    mean: float
    low: float | None
    high: float | None
    count: int


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of independent values (one per seed) and its Student's t interval.

    NaN is no value. Raise AnalysisError if there is no value at all.
    """
    check_confidence(confidence)
    present = np.asarray(values, dtype=np.float64)
    present = present[~np.isnan(present)]
    if not present.size:
        raise AnalysisError("no value to take the mean of")
    mean = float(present.mean())
    if present.size < 2:
        return Interval(mean, None, None, 1)
    half = half_width(present, confidence)
    return Interval(mean, mean - half, mean + half, int(present.size))


def geometric_mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Return the geometric mean of positive values, with the t interval of their logarithms."""
    found = mean_interval(np.log(np.asarray(values, dtype=np.float64)), confidence)
    return Interval(
        math.exp(found.mean),
        None if found.low is None else math.exp(found.low),
        None if found.high is None else math.exp(found.high),
        found.count,
    )


def half_width(values: Floats, confidence: float) -> float:
    """Return half the width of the t interval of the mean of two or more values."""
    standard_error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(stats.t.ppf(0.5 + confidence / 2.0, values.size - 1)) * standard_error


def check_confidence(confidence: float) -> None:
    """Raise AnalysisError unless it is a share strictly between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise AnalysisError(f"confidence {confidence}: must be more than 0 and less than 1")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjustment of p-values: the chance of any false alarm among them is kept.

    NaN is no test: it stays NaN, and does not count.
    """
    given = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(given.size, np.nan)
    tested = np.flatnonzero(~np.isnan(given))
    order = tested[np.argsort(given[tested], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * factors))
    return [float(value) for value in adjusted]
