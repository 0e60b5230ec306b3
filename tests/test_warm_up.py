"""MSER-5: a plain oracle, series whose transient is known, and how often it cries wolf."""

from __future__ import annotations

import numpy as np
import pytest

from endive.saturation_analysis import AnalysisError, mser, warm_up_check


def plain_mser(series: np.ndarray) -> int | None:
    """The definition, batch by batch."""
    batches = [series[start : start + 5].mean() for start in range(0, len(series) - 4, 5)]
    best, least = 0, np.inf
    for dropped in range(len(batches) // 2 + 1):
        rest = np.array(batches[dropped:])
        error = ((rest - rest.mean()) ** 2).sum() / len(rest) ** 2
        if error < least:
            best, least = dropped, error
    return None if best == len(batches) // 2 else 5 * best


def autoregressive(rng: np.random.Generator, phi: float, count: int, start: float) -> np.ndarray:
    """An AR(1) series of unit innovations about 0 that begins at `start`: its transient is start · phi ** t."""
    series = np.empty(count)
    value = start
    for place in range(count):
        series[place] = value
        value = phi * value + rng.standard_normal()
    return series


@pytest.mark.parametrize("seed", range(20))
def test_it_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = autoregressive(rng, rng.uniform(0.0, 0.95), int(rng.integers(50, 400)), rng.uniform(-30.0, 30.0))
    assert mser(series) == plain_mser(series)


@pytest.mark.parametrize(("phi", "start"), [(0.5, 30.0), (0.8, -40.0), (0.9, 60.0)])
def test_the_transient_of_an_autoregressive_series_is_dropped(phi: float, start: float) -> None:
    """What is left of it biases the mean by a small part of the mean's standard error; all of it, by about one or two.

    The transient sums to start · phi ** d / (1 - phi) from d on, and the mean of n has a standard error of
    1 / ((1 - phi) · sqrt(n)).
    """
    rng = np.random.default_rng(1)
    assert abs(start) / np.sqrt(1000) > 0.9
    for _ in range(100):
        dropped = mser(autoregressive(rng, phi, 1000, start))
        assert dropped is not None
        assert abs(start) * phi**dropped / np.sqrt(1000 - dropped) < 0.25
        assert dropped < 500


@pytest.mark.parametrize("seed", range(10))
def test_a_step_is_dropped_to_the_batch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = np.concatenate([np.full(100, 9.0), np.zeros(900)]) + rng.normal(0.0, 1.0, size=1000)
    assert mser(series) == pytest.approx(100, abs=10)


def test_constant_and_short_series() -> None:
    assert mser(np.full(200, 3.7)) == 0
    assert mser(np.zeros(200)) == 0
    assert mser(np.arange(49.0)) is None
    assert mser([]) is None
    assert mser(np.full(200, np.nan)) is None


def test_a_run_that_never_settles_is_too_short() -> None:
    assert mser(np.arange(500.0)) is None


def test_gaps_are_no_observations() -> None:
    rng = np.random.default_rng(3)
    series = np.concatenate([np.full(50, 20.0), rng.normal(size=450)])
    gaps = series.copy()
    gaps[10:20] = np.nan
    gaps[201] = np.nan
    assert mser(gaps) == pytest.approx(50, abs=10)


def test_a_window_after_the_transient_is_quiet_and_one_before_is_not() -> None:
    rng = np.random.default_rng(0)
    series = rng.poisson(np.concatenate([np.linspace(0.0, 200.0, 40), np.full(160, 200.0)]))
    late = warm_up_check(series, 1000.0, 45_000.0)
    assert late.warning == ""
    assert late.settled_ms == pytest.approx(40_000.0, abs=6_000.0)
    early = warm_up_check(series, 1000.0, 10_000.0)
    assert early.settled_ms == late.settled_ms
    assert early.bias == pytest.approx(series[10:].mean() / series[int(early.settled_ms // 1000) :].mean() - 1.0)
    assert early.bias < -0.05
    assert "after the window began at 10 s" in early.warning


def test_what_comes_after_the_window_does_not_count() -> None:
    series = np.concatenate([np.full(100, 5.0), np.full(100, 90.0)])
    assert warm_up_check(series, 1.0, 10.0, 100.0).settled_ms == 0.0
    assert warm_up_check(series, 1.0, 10.0).warning


def test_a_short_run_cannot_tell() -> None:
    found = warm_up_check(np.ones(20), 1000.0, 5000.0)
    assert found.settled_ms is None
    assert "too short to tell" in found.warning
    with pytest.raises(AnalysisError, match="bin of 0"):
        warm_up_check([1.0], 0.0, 0.0)


def test_a_steady_run_is_seldom_warned_of() -> None:
    """120 bins of 300 commits, window from a twelfth on, as in an hour: at most one warning in eight."""
    rng = np.random.default_rng(2)
    warned = sum(bool(warm_up_check(rng.poisson(300.0, size=110), 30_000.0, 300_000.0).warning) for _ in range(500))
    assert warned < 500 / 8
