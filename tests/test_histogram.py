"""Histograms: within half a percent of NumPy's nearest rank, and the same however their values are put together."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endive.pipeline.histogram import (
    GROWTH,
    LARGEST,
    RELATIVE_ERROR,
    ZERO_BIN,
    Histogram,
    bin_value,
    from_arrow,
    merge_histograms,
    to_arrow,
)
from endive.pipeline.schemas import HISTOGRAM

SMALLEST = 1e-9
RANKS = [0.0, 1e-9, 0.01, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0]

positive = st.floats(SMALLEST, LARGEST)
anything = st.floats(-LARGEST, LARGEST) | st.floats(0.001, 1e9) | st.sampled_from([0.0, 1.0, GROWTH, GROWTH**700])


def histogram_of(values: list[float] | np.ndarray) -> Histogram:
    histogram = Histogram()
    histogram.add(np.asarray(values, dtype=np.float64))
    return histogram


def contents(histogram: Histogram) -> tuple[list[int], list[int]]:
    bins, counts = histogram.nonempty()
    return bins.tolist(), counts.tolist()


def assert_quantiles_are_near(values: np.ndarray) -> None:
    histogram = histogram_of(values)
    for q in RANKS:
        exact = float(np.quantile(values, q, method="inverted_cdf"))
        estimate = histogram.quantile(q)
        assert estimate is not None
        if exact < SMALLEST:
            assert abs(estimate) <= SMALLEST, (q, exact, estimate)
        else:
            assert abs(estimate - exact) <= 0.005 * exact, (q, exact, estimate)


def test_the_bound_is_half_a_percent() -> None:
    assert RELATIVE_ERROR < 0.005


@pytest.mark.parametrize(
    "values",
    [
        GROWTH ** np.arange(-2000.0, 20000.0),
        np.nextafter(GROWTH ** np.arange(-2000.0, 20000.0), np.inf),
        np.nextafter(GROWTH ** np.arange(-2000.0, 20000.0), 0.0),
        np.geomspace(SMALLEST, LARGEST, 10_001),
        np.geomspace(1.0, 3.6e6, 65_536)[::-1],
        np.repeat([1.0, 1.01, 1.0201, 50.0, 61.0], [7, 1, 100, 3, 2]),
        np.full(1000, 61.5),
        np.zeros(10),
        np.array([0.0] * 95 + [1.0] * 4 + [1e6]),
        np.array([3.0]),
        np.array([5e-324, 1e-300, 1e-12, 1.0]),
    ],
    ids=["powers", "above", "below", "range", "falling", "ties", "constant", "zeros", "mixed", "one", "tiny"],
)
def test_quantiles_are_within_half_a_percent_of_nearest_rank(values: np.ndarray) -> None:
    assert_quantiles_are_near(values)


@given(st.lists(positive | st.just(0.0), min_size=1, max_size=200))
def test_quantiles_of_any_values_are_within_half_a_percent_of_nearest_rank(values: list[float]) -> None:
    assert_quantiles_are_near(np.array(values))


@given(positive)
def test_a_bin_stands_for_each_of_its_values(value: float) -> None:
    bins, counts = contents(histogram_of([value]))
    assert counts == [1]
    assert abs(bin_value(bins[0]) - value) <= 0.005 * value


def test_a_bin_reaches_up_to_its_power_of_the_growth() -> None:
    assert contents(histogram_of([1.0, 1.000001, 1.0099, 1.0102])) == ([0, 1, 2], [1, 2, 1])


def test_zero_and_less_have_a_bin_that_stands_for_zero() -> None:
    assert contents(histogram_of([0.0, -0.0, -5.0, 1e-10, 1.0])) == ([ZERO_BIN, 0], [4, 1])
    assert bin_value(ZERO_BIN) == 0.0


def test_the_mean_and_the_sums_are_of_the_values_themselves() -> None:
    histogram = histogram_of([1.0, 2.0, 6.0])
    assert (histogram.count, histogram.sum, histogram.sum_of_squares, histogram.mean) == (3, 9.0, 41.0, 3.0)


def test_an_empty_histogram_has_no_mean_and_no_quantile() -> None:
    empty = histogram_of([])
    assert (empty.count, empty.mean, empty.quantile(0.5)) == (0, None, None)
    assert contents(empty) == ([], [])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101])
def test_a_value_out_of_range_is_refused_and_changes_nothing(value: float) -> None:
    histogram = histogram_of([1.0])
    with pytest.raises(ValueError, match="allowed is"):
        histogram.add(np.array([2.0, value]))
    assert (histogram.count, histogram.sum) == (1, 1.0)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="allowed is 0 to 1"):
        histogram_of([1.0]).quantile(q)


@given(st.lists(st.lists(anything, max_size=20), max_size=6), st.randoms())
def test_merging_is_adding_at_once_in_any_order(pieces: list[list[float]], random: object) -> None:
    whole = histogram_of([value for piece in pieces for value in piece])
    parts = [histogram_of(piece) for piece in pieces]
    random.shuffle(parts)  # type: ignore[attr-defined]
    merged = merge_histograms(parts)
    assert contents(merged) == contents(whole)
    scale = sum(abs(value) for piece in pieces for value in piece)
    assert merged.sum == pytest.approx(whole.sum, abs=1e-12 * scale)


def test_merging_leaves_the_other_alone() -> None:
    one, other = histogram_of([1.0]), histogram_of([2.0])
    merged = merge_histograms([one, other])
    merged.add(np.array([1.0, 2.0]))
    assert (one.count, other.count, merged.count) == (1, 1, 4)


@given(st.lists(st.lists(anything, max_size=20), max_size=5))
def test_a_column_holds_all_of_its_histograms(rows: list[list[float]]) -> None:
    histograms = [histogram_of(row) for row in rows]
    column = to_arrow(histograms)
    assert column.type == HISTOGRAM
    column.validate(full=True)
    for back, histogram in zip(from_arrow(column), histograms, strict=True):
        assert contents(back) == contents(histogram)
        assert (back.sum, back.sum_of_squares) == (histogram.sum, histogram.sum_of_squares)


def test_a_slice_of_a_column_is_read_as_what_it_shows() -> None:
    column = to_arrow([histogram_of([1.0]), histogram_of([5.0, 500.0]), histogram_of([])])
    (second,) = from_arrow(column.slice(1, 1))
    assert contents(second) == contents(histogram_of([5.0, 500.0]))
    (after_parquet,) = from_arrow(pa.concat_arrays([column.slice(1, 1)]))
    assert contents(after_parquet) == contents(second)
