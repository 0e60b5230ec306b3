"""Whether a run had settled when its steady window began: MSER-5 (White, 1997; White, Cobb and Spratt, 2000)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from endive.analysis.frames import AnalysisError, Floats

BATCH: Final = 5
TOLERANCE: Final = 0.01
"""A window whose mean is off by less needs no warning."""
FEWEST_BATCHES: Final = 10
"""With fewer batches nothing can be told."""


def mser(series: ArrayLike, batch: int = BATCH) -> int | None:
    """Return how many observations of a series to drop, so that the rest tells its mean best.

    Of batch means, those before d are dropped, where the squared standard error of the mean of the rest is least, for
    d in the first half. None: the series is too short to tell, since it has fewer than ten batches, or the least is at
    the middle and may lie beyond. NaN is no observation.
    """
    means = _batch_means(np.asarray(series, dtype=np.float64), batch)
    present = np.flatnonzero(~np.isnan(means))
    if present.size < FEWEST_BATCHES:
        return None
    kept = means[present]
    kept = kept - kept.mean()
    left = np.arange(kept.size, 0, -1)
    sums, squares = np.cumsum(kept[::-1])[::-1], np.cumsum(kept[::-1] ** 2)[::-1]
    scatter = np.maximum(squares - sums**2 / left, 0.0)
    scatter[scatter <= 1e-12 * squares[0]] = 0.0
    middle = kept.size // 2
    first = int(np.argmin((scatter / left**2)[: middle + 1]))
    if first == middle:
        return None
    return int(present[first]) * batch if first else 0


def _batch_means(series: Floats, batch: int) -> Floats:
    """Return the means of whole batches, without the observations that are left over; NaN for a batch of NaN."""
    if series.ndim != 1:
        raise AnalysisError("a series has one dimension")
    batches = series[: series.size // batch * batch].reshape(-1, batch)
    counts = (~np.isnan(batches)).sum(axis=1)
    means: Floats = np.divide(np.nansum(batches, axis=1), counts, out=np.full(len(batches), np.nan), where=counts > 0)
    return means


@dataclass(frozen=True, slots=True)
class WarmUp:
    """When a series had settled, in milliseconds (None: cannot be told), and a warning, or an empty text.

    `bias` is by how much, relative to the mean after settling, the mean of the window is off because it begins before.
    """

    settled_ms: float | None
    window_start_ms: float
    bias: float
    warning: str


def warm_up_check(
    series: ArrayLike,
    bin_ms: float,
    window_start_ms: float,
    window_end_ms: float | None = None,
    *,
    batch: int = BATCH,
    tolerance: float = TOLERANCE,
) -> WarmUp:
    """Check that a series of equal bins from time 0 on had settled when the window began.

    Commits per bin are a good series; average it over the seeds of an experiment first. Bins that begin at or after
    `window_end_ms` are left out. There is a warning if MSER drops more than what precedes the window, and that moves
    the window's mean by more than `tolerance`.
    """
    if not bin_ms > 0.0:
        raise AnalysisError(f"bin of {bin_ms} ms: must be more than 0")
    values = np.asarray(series, dtype=np.float64)
    if window_end_ms is not None:
        values = values[: max(0, math.ceil(window_end_ms / bin_ms))]
    dropped = mser(values, batch)
    if dropped is None:
        return WarmUp(None, window_start_ms, 0.0, "the run is too short to tell whether it had settled (MSER-5)")
    settled_ms = dropped * bin_ms
    if settled_ms <= window_start_ms:
        return WarmUp(settled_ms, window_start_ms, 0.0, "")
    bias = _bias(values[math.ceil(window_start_ms / bin_ms) :], values[dropped:])
    if abs(bias) <= tolerance:
        return WarmUp(settled_ms, window_start_ms, bias, "")
    warning = (
        f"settled at {settled_ms / 1000.0:.0f} s (MSER-5), after the window began at {window_start_ms / 1000.0:.0f} s: "
        f"its mean is off by {100.0 * bias:+.1f} %"
    )
    return WarmUp(settled_ms, window_start_ms, bias, warning)


def _bias(window: Floats, settled: Floats) -> float:
    mean = float(np.nanmean(settled))
    return (float(np.nanmean(window)) - mean) / abs(mean) if mean else 0.0
