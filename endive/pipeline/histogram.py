"""Histograms whose bins are a factor of 1.01 apart: mergeable, and exact to 0.5 % at every rank.

Bin i holds the values above GROWTH^(i-1) up to GROWTH^i, and stands for the value between them that is at most
(GROWTH - 1) / (GROWTH + 1) < 0.5 % away from either. The lowest bin, ZERO_BIN, holds what is up to 8.4e-10: zero,
negative and next to nothing; it stands for 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from endive.pipeline.schemas import HISTOGRAM

GROWTH: Final = 1.01
RELATIVE_ERROR: Final = (GROWTH - 1.0) / (GROWTH + 1.0)
ZERO_BIN: Final = -2100
LARGEST: Final = 1e100

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]

_BINS_PER_LOG: Final = 1.0 / math.log(GROWTH)
_IN_ZERO_BIN: Final = GROWTH ** (ZERO_BIN - 0.5)


def bin_value(index: int) -> float:
    """Return the value that a bin stands for."""
    if index <= ZERO_BIN:
        return 0.0
    return 2.0 / (GROWTH + 1.0) * math.exp(index / _BINS_PER_LOG)


class Histogram:
    """Counts of values by bin, with their sum and sum of squares.

    Counts, and so quantiles, do not depend on the order or the pieces in which values come; the sums do, by rounding.
    """

    def __init__(self) -> None:
        self._lowest = 0
        self._counts: Counts = np.zeros(0, dtype=np.int64)
        self.sum = 0.0
        self.sum_of_squares = 0.0

    @classmethod
    def _of(cls, bins: npt.NDArray[np.int32], counts: Counts, total: float, total_of_squares: float) -> Self:
        """Return the histogram with these counts in these rising bins, and these sums."""
        histogram = cls()
        if bins.size:
            histogram._lowest = int(bins[0])
            histogram._counts = np.zeros(int(bins[-1]) - histogram._lowest + 1, dtype=np.int64)
            histogram._counts[bins - histogram._lowest] = counts
        histogram.sum, histogram.sum_of_squares = float(total), float(total_of_squares)
        return histogram

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def mean(self) -> float | None:
        """The mean, exact but for rounding; None without values."""
        count = self.count
        return self.sum / count if count else None

    def add(self, values: Floats) -> None:
        """Add values; raise ValueError if one is not within ±LARGEST."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not (low >= -LARGEST and high <= LARGEST):
            raise ValueError(f"a histogram was given {low} to {high}; allowed is -{LARGEST} to {LARGEST}")
        bins = _bins_of(values[:1] if low == high else values)
        lowest = int(bins.min())
        counts = np.array([values.size]) if low == high else np.bincount(bins - lowest)
        self._add_counts(lowest, counts)
        self.sum += float(values.sum())
        self.sum_of_squares += float(np.square(values).sum())

    def merge(self, other: Histogram) -> None:
        """Add all that another histogram holds."""
        self._add_counts(other._lowest, other._counts)
        self.sum += other.sum
        self.sum_of_squares += other.sum_of_squares

    def quantiles(self, points: Sequence[float]) -> list[float | None]:
        """Return the value at rank ceil(q · count) for each q, within RELATIVE_ERROR of it; None without values."""
        for q in points:
            if not 0.0 <= q <= 1.0:
                raise ValueError(f"quantile is {q}; allowed is 0 to 1")
        ranks = np.cumsum(self._counts)
        if not ranks.size:
            return [None] * len(points)
        count = int(ranks[-1])
        places = np.searchsorted(ranks, [max(1, math.ceil(q * count)) for q in points])
        return [bin_value(self._lowest + place) for place in places.tolist()]

    def quantile(self, q: float) -> float | None:
        """Return the value at rank ceil(q · count), within RELATIVE_ERROR of it; None without values."""
        return self.quantiles([q])[0]

    def nonempty(self) -> tuple[npt.NDArray[np.int32], Counts]:
        """Return the bins that hold something, rising, and their counts."""
        places = np.flatnonzero(self._counts)
        return (places + self._lowest).astype(np.int32), self._counts[places]

    def _add_counts(self, lowest: int, counts: Counts) -> None:
        if not counts.size:
            return
        if not self._counts.size:
            self._lowest, self._counts = lowest, counts.astype(np.int64)
            return
        end = self._lowest + self._counts.size
        if lowest < self._lowest or lowest + counts.size > end:
            start = min(lowest, self._lowest)
            grown = np.zeros(max(lowest + counts.size, end) - start, dtype=np.int64)
            grown[self._lowest - start : end - start] = self._counts
            self._lowest, self._counts = start, grown
        place = lowest - self._lowest
        self._counts[place : place + counts.size] += counts


def merge_histograms(parts: Iterable[Histogram]) -> Histogram:
    """Return a new histogram of all that the parts hold."""
    whole = Histogram()
    for part in parts:
        whole.merge(part)
    return whole


def to_arrow(histograms: Sequence[Histogram]) -> pa.StructArray:
    """Return histograms as a column of type `schemas.HISTOGRAM`."""
    contents = [histogram.nonempty() for histogram in histograms]
    ends = pa.array(np.cumsum([0, *(bins.size for bins, _ in contents)]), type=pa.int32())
    bins = pa.array(np.concatenate([np.empty(0, dtype=np.int32), *(bins for bins, _ in contents)]))
    counts = pa.array(np.concatenate([np.empty(0, dtype=np.int64), *(counts for _, counts in contents)]))
    children: list[pa.Array[Any]] = [
        pa.ListArray.from_arrays(ends, bins, type=HISTOGRAM.field("bins").type),
        pa.ListArray.from_arrays(ends, counts, type=HISTOGRAM.field("counts").type),
        pa.array([histogram.sum for histogram in histograms], type=pa.float64()),
        pa.array([histogram.sum_of_squares for histogram in histograms], type=pa.float64()),
    ]
    return pa.StructArray.from_arrays(children, fields=list(HISTOGRAM))


def from_arrow(column: pa.Array[Any]) -> list[Histogram]:
    """Return the histograms of a column of type `schemas.HISTOGRAM`."""
    assert isinstance(column, pa.StructArray)
    bins, counts, sums, squares = column.flatten()
    contents = zip(lists_of(bins), lists_of(counts), sums.to_numpy(), squares.to_numpy(), strict=True)
    return [Histogram._of(*content) for content in contents]


def lists_of(column: pa.Array[Any]) -> list[npt.NDArray[Any]]:
    """Return the lists of a column as views of its values."""
    assert isinstance(column, pa.ListArray)
    values, ends = column.values.to_numpy(), column.offsets.to_numpy()
    return [values[start:end] for start, end in itertools.pairwise(ends)]


def _bins_of(values: Floats) -> npt.NDArray[np.int64]:
    places = np.maximum(values, _IN_ZERO_BIN)
    np.log(places, out=places)
    np.multiply(places, _BINS_PER_LOG, out=places)
    np.ceil(places, out=places)
    return places.astype(np.int64)
