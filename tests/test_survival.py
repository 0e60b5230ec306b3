"""Kaplan-Meier and its relatives: by hand, statsmodels, coverage, and what they are for: survivor bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.duration.survfunc import CumIncidenceRight, SurvfuncRight

from endive.saturation_analysis import AnalysisError, align_counts, incidence, kaplan_meier, latency_views

TIMES = [10.0, 20.0, 30.0, 40.0]


def test_by_hand() -> None:
    """At risk 10, 7, 4, 2: survival 0.8, then 0.8 · 5/7, then unchanged, then half of that."""
    curve = kaplan_meier(TIMES, [2, 2, 0, 1], [1, 1, 2, 1])
    assert curve.at_risk.tolist() == [10, 7, 4, 2]
    assert curve.survival.tolist() == pytest.approx([0.8, 4 / 7, 4 / 7, 2 / 7])
    greenwood = np.cumsum([2 / (10 * 8), 2 / (7 * 5), 0.0, 1 / (2 * 1)])
    assert curve.standard_error == pytest.approx(curve.survival * np.sqrt(greenwood))
    assert [curve.quantile(share) for share in (0.2, 0.3, 0.6, 0.72)] == [10.0, 20.0, 40.0, None]


def unrolled(times: Any, events: Any, censored: Any) -> tuple[np.ndarray, np.ndarray]:
    """A row per transaction: its time, and whether it committed."""
    return np.repeat(np.concatenate([times, times]), np.concatenate([events, censored]).astype(int)), np.repeat(
        [1, 0], [int(np.sum(events)), int(np.sum(censored))]
    )


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.5, 2.0, size=12))
    events, censored = rng.integers(0, 6, size=12), rng.integers(0, 4, size=12)
    events[3] = 0
    censored[-1] += 1
    curve = kaplan_meier(times, events, censored)
    theirs = SurvfuncRight(*unrolled(times, events, censored))
    at = np.searchsorted(times, theirs.surv_times)
    assert curve.survival[at] == pytest.approx(theirs.surv_prob)
    assert curve.standard_error[at] == pytest.approx(theirs.surv_prob_se)
    assert curve.at_risk[at] == pytest.approx(theirs.n_risk)
    for share in (0.1, 0.5, 0.77):
        expected = theirs.quantile(share)
        assert curve.quantile(share) == (None if np.isnan(expected) else pytest.approx(expected))


def test_the_bands_are_greenwoods_on_the_log_log_scale() -> None:
    curve = kaplan_meier(TIMES, [2, 2, 0, 1], [1, 1, 2, 1], confidence=0.9)
    survival, error = curve.survival, curve.standard_error
    transformed = np.log(-np.log(survival))
    half = stats.norm.ppf(0.95) * error / (survival * np.abs(np.log(survival)))
    assert curve.low == pytest.approx(np.exp(-np.exp(transformed + half)))
    assert curve.high == pytest.approx(np.exp(-np.exp(transformed - half)))
    assert (curve.low >= 0.0).all()
    assert (curve.high <= 1.0).all()


def test_without_censoring_a_quantile_is_the_nearest_rank() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(1, 40, size=500)
    times, counts = np.unique(values, return_counts=True)
    curve = kaplan_meier(times, counts, np.zeros(times.size))
    for share in (0.01, 0.5, 0.9, 0.95, 0.99, 0.998):
        assert curve.quantile(share) == np.quantile(values, share, method="inverted_cdf")
    assert curve.survival[-1] == 0.0
    assert np.isnan(curve.low[-1])


def test_bands_and_quantiles_cover_as_often_as_they_say() -> None:
    """Exponential commits, censored at exponential times: a band holds at one time, an interval for the median."""
    rng = np.random.default_rng(77)
    in_band = in_interval = 0
    for _ in range(600):
        latency, cut = rng.exponential(1.0, size=80), rng.exponential(2.0, size=80)
        order = np.argsort(np.minimum(latency, cut))
        curve = kaplan_meier(np.minimum(latency, cut)[order], (latency <= cut)[order], (latency > cut)[order])
        at = np.searchsorted(curve.time_ms, 0.7, side="right") - 1
        in_band += curve.low[at] <= np.exp(-0.7) <= curve.high[at]
        low, high = curve.quantile_interval(0.5)
        in_interval += (low or 0.0) <= np.log(2.0) <= (high or np.inf)
    for covered in (in_band, in_interval):
        assert stats.binomtest(int(covered), 600, 0.95).pvalue > 1e-4, covered / 600


@pytest.mark.parametrize("seed", range(3))
def test_incidence_is_that_of_statsmodels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.arange(1.0, 11.0)
    committed, aborted, lost = (rng.integers(0, 5, size=10) for _ in range(3))
    status = np.repeat([1, 2, 0], [committed.sum(), aborted.sum(), lost.sum()])
    lasted = np.repeat(np.tile(times, 3), np.concatenate([committed, aborted, lost]))
    theirs = CumIncidenceRight(lasted, status)
    found = incidence(times, committed, aborted, lost)
    assert found[np.searchsorted(times, theirs.times)] == pytest.approx(theirs.cinc[0])


def test_incidence_without_anyone_in_flight_is_plain_counting() -> None:
    found = incidence(TIMES, [2, 3, 0, 1], [0, 1, 2, 1], np.zeros(4))
    assert found.tolist() == pytest.approx([0.2, 0.5, 0.5, 0.6])


def test_the_four_views_of_latency() -> None:
    views = latency_views(TIMES, [4, 4, 0, 2], [0, 0, 6, 0], [0, 0, 0, 4], shares=(0.3, 0.5, 0.9)).set_index("share")
    assert views.committed_ms.tolist() == [10.0, 20.0, 40.0]
    assert views.answered_ms.tolist() == [20.0, 20.0, 40.0]
    assert views.kaplan_meier_ms.tolist() == [20.0, 40.0, None]  # survival 0.8, 0.6, 0.6, 0.4
    assert views.submitted_ms.tolist() == [20.0, 40.0, None]  # 0.2, 0.4, 0.4, 0.5 of all
    assert views.low_ms[0.3] <= 20.0


def test_latency_of_the_committed_flatters_where_the_slow_give_up() -> None:
    """Exponential commits of mean 1 s, patience of 1.5 s: the censoring-aware median alone is right."""
    rng = np.random.default_rng(5)
    latency = np.ceil(rng.exponential(1000.0, size=20_000))
    times, (committed, aborted) = align_counts(
        np.unique(latency[latency <= 1500.0], return_counts=True), {1500.0: int((latency > 1500.0).sum())}
    )
    row = latency_views(times, committed, aborted, np.zeros(times.size), shares=[0.5, 0.95]).set_index("share")
    assert row.kaplan_meier_ms[0.5] == pytest.approx(1000.0 * np.log(2.0), rel=0.03)
    assert row.low_ms[0.5] <= 1000.0 * np.log(2.0) <= row.high_ms[0.5]
    assert row.committed_ms[0.5] < 550.0
    assert row.kaplan_meier_ms[0.95] is None
    assert row.submitted_ms[0.95] is None


def test_without_commits_there_is_no_latency() -> None:
    row = latency_views(TIMES, np.zeros(4), [1, 1, 1, 1], np.zeros(4), shares=[0.5]).iloc[0]
    assert [row.committed_ms, row.kaplan_meier_ms, row.low_ms, row.submitted_ms] == [None] * 4
    assert row.answered_ms == 20.0


def test_histograms_are_aligned_by_time() -> None:
    times, (first, second, third) = align_counts({3.0: 1, 1.0: 2}, ([2.0, 3.0, 2.0], [4, 5, 6]), {})
    assert times.tolist() == [1.0, 2.0, 3.0]
    assert (first.tolist(), second.tolist(), third.tolist()) == ([2, 0, 1], [0, 10, 5], [0, 0, 0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1.0, 2.0], [1], [1, 1]), "differ in length"),
        (([2.0, 1.0], [1, 1], [0, 0]), "times must rise"),
        (([1.0, 2.0], [1, -1], [0, 0]), "counts must be 0 or more"),
        (([1.0, 2.0], [0, 0], [0, 0]), "no transaction began to commit"),
        (([], [], []), "no transaction began to commit"),
    ],
)
def test_what_is_no_histogram(arguments: Any, said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        kaplan_meier(*arguments)
