"""Saturation points, intervals and verdicts: by hand, against SciPy and statsmodels, by how often they hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from endive import saturation_analysis
from endive.pipeline.metrics import paired_differences
from endive.pipeline.schemas import METRICS, RUN_METRICS
from endive.saturation_analysis import (
    HEADLINE_METRICS,
    AnalysisError,
    falls_to,
    geometric_mean_interval,
    good_direction,
    holm,
    judge,
    knee_of,
    mean_interval,
    saturation_table,
    success_load,
    throughput_knee,
)

LOADS = (1.0, 10.0, 100.0)


def sweep(
    success: Callable[[float, int], float], loads: Sequence[float] = LOADS, seeds: Sequence[int] = (0, 1, 2)
) -> pd.DataFrame:
    """A run for each load and seed, in no order; throughput is what succeeds of what is offered."""
    rows = [
        {
            "exp_name": "sweep",
            "exp_hash": f"{load:g}",
            "seed": seed,
            "operation_type": operation,
            "offered_per_s": load,
            "success_rate": success(load, seed) if operation == "all" else 0.0,
            "throughput_per_s": load * success(load, seed),
        }
        for load in loads
        for seed in seeds
        for operation in ("fast_append", "all")
    ]
    return pd.DataFrame(rows).sample(frac=1.0, random_state=7)


def by_load(*values: float) -> Callable[[float, int], float]:
    return lambda load, _: values[LOADS.index(load)]


def test_the_load_at_a_level_by_hand() -> None:
    point = success_load(sweep(by_load(1.0, 0.9, 0.1)), 0.5)
    assert point.load == pytest.approx(10.0**1.5)
    assert (point.low, point.high) == pytest.approx((point.load, point.load))
    assert (point.censored, point.seeds, point.swept_low, point.swept_high, point.note) == (None, 3, 1.0, 100.0, "")


def test_the_interval_is_that_of_the_mean_logarithm_over_seeds() -> None:
    found = [10.0**1.5, 10.0**1.6, 10.0**1.9]
    frame = sweep(lambda load, seed: {1.0: 1.0, 10.0: 0.9}.get(load, 0.9 - 0.4 / np.log10(found[seed] / 10.0)))
    point = success_load(frame, 0.5)
    low, high = stats.t.interval(0.95, 2, loc=np.log(found).mean(), scale=stats.sem(np.log(found)))
    assert point.load == pytest.approx(stats.gmean(found))
    assert (point.low, point.high) == pytest.approx((np.exp(low), np.exp(high)))


def test_a_bump_of_noise_is_made_monotone() -> None:
    load = np.array([1.0, 2.0, 4.0, 8.0])
    success = np.array([1.0, 0.6, 0.7, 0.2])  # made monotone: 1, 0.65, 0.65, 0.2
    assert falls_to(load, success, 0.65) == pytest.approx(2.0)
    assert falls_to(load, success, 0.825) == pytest.approx(2.0**0.5)
    assert falls_to(load, success, 0.425) == pytest.approx(4.0 * 2.0**0.5)


def test_a_level_that_is_met_at_a_swept_load_is_there() -> None:
    load = np.array([1.0, 2.0, 4.0])
    assert falls_to(load, np.array([0.9, 0.9, 0.1]), 0.9) == 1.0
    assert falls_to(load, np.array([0.9, 0.5, 0.1]), 0.1) == 4.0


@pytest.mark.parametrize(
    ("values", "censored", "said"),
    [((0.4, 0.3, 0.2), "below", "below 1, the smallest load swept"), ((1.0, 0.9, 0.8), "above", "above 100")],
)
def test_a_level_that_is_never_crossed_is_censored(values: tuple[float, ...], censored: str, said: str) -> None:
    point = success_load(sweep(by_load(*values)), 0.5)
    assert (point.load, point.low, point.high, point.censored) == (None, None, None, censored)
    assert said in point.note


def test_seeds_that_do_not_agree_give_no_interval() -> None:
    point = success_load(sweep(lambda load, seed: by_load(1.0, 0.9, 0.6 if seed == 0 else 0.3)(load, seed)), 0.5)
    assert point.load == pytest.approx(10.0 * 10.0 ** (0.4 / 0.5))  # of the mean over seeds, which ends at 0.4
    assert (point.low, point.high, point.censored) == (None, None, None)
    assert "1 of 3 seeds" in point.note


def test_one_seed_has_no_interval_and_says_so() -> None:
    point = success_load(sweep(by_load(1.0, 0.9, 0.1), seeds=[4]), 0.5)
    assert (point.low, point.high, point.note) == (None, None, "one seed: no interval")


def test_seeds_without_every_load_are_left_out() -> None:
    frame = sweep(by_load(1.0, 0.9, 0.1))
    point = success_load(frame[(frame.seed != 1) | (frame.offered_per_s < 100.0)], 0.5)
    assert (point.seeds, point.note) == (2, "1 seeds without every load are left out")
    point = success_load(frame[frame.seed.astype(float) == np.log10(frame.offered_per_s)], 0.5)
    assert point.load == pytest.approx(10.0**1.5)
    assert (point.low, point.seeds) == (None, 0)
    assert "no seed has every load" in point.note


def test_the_knee_is_where_the_asymptotes_meet() -> None:
    loads = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    point = throughput_knee(sweep(lambda load, _: min(1.0, 10.0 / load), loads))
    assert point.load == pytest.approx(10.0)
    falling = sweep(lambda load, _: min(1.0, 10.0 / load) if load < 32.0 else 0.1, loads)
    assert throughput_knee(falling).load == pytest.approx(10.0)
    assert throughput_knee(sweep(lambda *_: 1.0, loads)).censored == "above"
    assert throughput_knee(sweep(lambda load, _: 0.5 / load, loads)).censored == "below"


def test_the_knee_of_a_closed_loop_has_a_slope_of_its_own() -> None:
    clients = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    throughput = np.minimum(2.0 * clients, 10.0)
    assert knee_of(clients, throughput, None) == pytest.approx(5.0)
    with pytest.raises(AnalysisError, match="no throughput at the smallest load"):
        knee_of(clients, np.zeros(5), None)


def test_a_table_has_every_point_of_every_group_and_the_reason_of_those_without() -> None:
    fast, slow = sweep(by_load(1.0, 0.99, 0.3)), sweep(by_load(1.0, 0.9, 0.1))
    alone = sweep(by_load(1.0, 0.9, 0.1)).query("exp_hash == '10'")
    frame = pd.concat([fast.assign(store="fast"), slow.assign(store="slow"), alone.assign(store="alone")])
    table = saturation_table(frame, ["store"]).set_index(["store", "point"])
    assert list(table.index.get_level_values("point").unique()) == ["success 0.95", "success 0.5", "knee"]
    assert table.load[("slow", "success 0.5")] == pytest.approx(10.0**1.5)
    assert table.load[("fast", "success 0.5")] > table.load[("slow", "success 0.5")]
    assert np.isnan(table.load[("alone", "knee")])
    assert "one value only" in table.note[("alone", "knee")]


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (sweep(by_load(1, 1, 1)), {"success": "sucess_rate"}, "sucess_rate: no such metric or key; did you mean"),
        (sweep(by_load(1, 1, 1)), {"operation_type": "fast_apend"}, "did you mean fast_append"),
        (sweep(by_load(1, 1, 1)), {"level": 1.0}, "success level 1.0: must be"),
        (sweep(by_load(1, 1, 1)), {"confidence": 95.0}, "confidence 95.0: must be"),
        (sweep(by_load(1, 1, 1)).assign(offered_per_s=0.0), {}, "offered_per_s: has values that are not positive"),
        (sweep(by_load(1, 1, 1)).assign(success_rate=np.nan), {}, "success_rate: no run has a value"),
        (sweep(by_load(1, 1, 1)).assign(success_rate="high"), {}, "success_rate: has values that are not numbers"),
        (sweep(by_load(1, 1, 1)).assign(offered_per_s=3.0), {}, "several experiments at 3; group by what else"),
        (sweep(by_load(1, 1, 1)).query("exp_hash == '1'"), {}, "one value only; a curve needs two"),
        (sweep(by_load(1, 1, 1)).iloc[:0], {}, "the frame is empty"),
    ],
)
def test_what_cannot_be_answered_is_one_line(frame: pd.DataFrame, options: dict[str, Any], said: str) -> None:
    with pytest.raises(AnalysisError, match=said) as caught:
        success_load(frame, **options)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def covers(trials: int, is_covered: Callable[[np.random.Generator], bool], share: float = 0.95) -> None:
    """Assert that intervals hold the truth as often as they say, with one chance in ten thousand to be wrong."""
    rng = np.random.default_rng(20240601)
    covered = sum(is_covered(rng) for _ in range(trials))
    assert stats.binomtest(covered, trials, share).pvalue > 1e-4, covered / trials


def test_intervals_of_means_cover_as_often_as_they_say() -> None:
    def is_covered(rng: np.random.Generator) -> bool:
        found = mean_interval(rng.normal(3.0, 2.0, size=5))
        assert found.low is not None
        assert found.high is not None
        return found.low <= 3.0 <= found.high

    covers(2000, is_covered)


def test_intervals_of_saturation_points_cover_as_often_as_they_say() -> None:
    """Success falls by 0.1 for each factor of 2, shifted by the seed: it is 0.55 at 2 ** 4.5, at the median seed."""

    def is_covered(rng: np.random.Generator) -> bool:
        shifts = rng.normal(0.0, 0.5, size=4)
        loads = 2.0 ** np.arange(1, 9)
        frame = sweep(lambda load, seed: 1.0 - 0.1 * (np.log2(load) - shifts[seed]), loads.tolist(), range(4))
        point = success_load(frame, 0.55)
        assert point.low is not None
        assert point.high is not None
        return point.low <= 2.0**4.5 <= point.high

    covers(120, is_covered)


def test_noise_at_each_load_does_not_bias_the_point() -> None:
    """Success counted of 300 transactions at each load: what isotonic regression does to noise is small beside it."""
    loads = 2.0 ** np.linspace(0.0, 8.0, 9)
    truth = 1.0 / (1.0 + (loads / 16.0) ** 1.5)  # half at 16, which is swept

    def is_covered(rng: np.random.Generator) -> bool:
        found = [falls_to(loads, rng.binomial(300, truth) / 300.0, 0.5) for _ in range(5)]
        interval = geometric_mean_interval(found)
        assert interval.low is not None
        assert interval.high is not None
        return interval.low <= 16.0 <= interval.high

    covers(600, is_covered)


def test_an_interval_is_scipys() -> None:
    values = [3.0, np.nan, 4.5, 9.0]
    found, present = mean_interval(values, 0.9), [3.0, 4.5, 9.0]
    expected = stats.ttest_1samp(present, 0.0).confidence_interval(0.9)
    assert (found.mean, found.low, found.high, found.count) == pytest.approx((5.5, *expected, 3))
    assert mean_interval([2.0]) == saturation_analysis.Interval(2.0, None, None, 1)
    with pytest.raises(AnalysisError, match="no value"):
        mean_interval([np.nan])


def test_holms_adjustment_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(5)
    for size in (1, 2, 7, 30):
        p_values = rng.uniform(size=size) ** 3
        assert holm(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
    adjusted = holm([0.01, float("nan"), 0.04])
    assert adjusted[0] == 0.02
    assert np.isnan(adjusted[1])
    assert adjusted[2] == 0.04
    assert holm([]) == []


def runs(values: dict[str, Sequence[float | None]], name: str = "a", seeds: Sequence[int] | None = None) -> pa.Table:
    """Runs that have given metrics, one for each seed."""
    count = len(next(iter(values.values())))
    fixed: dict[str, Any] = {"exp_name": name, "exp_hash": name, "operation_type": "all", "duration_ms": 6e5}
    rows = []
    for place, seed in enumerate(seeds or range(count)):
        row = {field.name: fixed.get(field.name, None if field.nullable else 0) for field in RUN_METRICS}
        rows.append(row | {"seed": seed} | {metric: values[metric][place] for metric in values})
    return pa.Table.from_pylist(rows, schema=RUN_METRICS)


def differences(before: pa.Table, after: pa.Table, metrics: Sequence[str] = HEADLINE_METRICS) -> pd.DataFrame:
    frame = paired_differences(before, after).to_pandas()
    return frame[frame.metric.isin(metrics)]


def test_the_p_value_of_a_difference_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(11)
    before, after = rng.normal(50.0, 5.0, size=6), rng.normal(53.0, 5.0, size=6)
    found = judge(differences(runs({"commit_latency_p50_ms": before}), runs({"commit_latency_p50_ms": after})))
    tested = found.set_index("metric").p_value["commit_latency_p50_ms"]
    assert tested == pytest.approx(stats.ttest_rel(after, before).pvalue)


def test_verdicts_know_which_way_is_good() -> None:
    noise = np.array([0.0, 0.01, -0.01, 0.02, -0.02])
    up = {"success_rate": 0.5 + noise, "commit_latency_p50_ms": 50.0 + noise, "offered_per_s": 5.0 + noise}
    down = {"success_rate": 0.3 - noise, "commit_latency_p50_ms": 30.0 - noise, "offered_per_s": 3.0 - noise}
    metrics = tuple(up)
    verdicts = judge(differences(runs(down), runs(up), metrics)).set_index("metric").verdict
    assert dict(verdicts) == {
        "success_rate": "better",
        "commit_latency_p50_ms": "worse",
        "offered_per_s": "different",
    }
    verdicts = judge(differences(runs(up), runs(down), metrics)).set_index("metric").verdict
    assert (verdicts["success_rate"], verdicts["commit_latency_p50_ms"]) == ("worse", "better")


def test_without_noise_a_difference_is_certain_and_equality_is_none() -> None:
    same, less = runs({"success_rate": [0.9, 0.9]}), runs({"success_rate": [0.8, 0.8]})
    assert judge(differences(same, less, ["success_rate"])).verdict.tolist() == ["worse"]
    equal = judge(differences(same, same, ["success_rate"]))
    assert (equal.verdict.tolist(), equal.p_value.tolist()) == (["no evidence"], [1.0])


def test_one_seed_or_no_value_is_no_evidence() -> None:
    found = judge(differences(runs({"success_rate": [0.9]}), runs({"success_rate": [0.1]}), ["success_rate"]))
    assert found.verdict.tolist() == ["no evidence"]
    assert found.p_holm.isna().all()
    nothing = runs({"commit_latency_p50_ms": [None, None, None]})
    found = judge(differences(nothing, nothing, ["commit_latency_p50_ms"]))
    assert (found.verdict.tolist(), found.seeds.tolist()) == (["no evidence"], [0])


def test_of_many_metrics_without_a_difference_one_is_seldom_judged_different() -> None:
    """Holm keeps the chance of any false verdict at 5 %; without it, of six metrics, it would be 26 %."""
    rng = np.random.default_rng(3)
    base = differences(runs({metric: [1.0, 1.0] for metric in HEADLINE_METRICS}), runs({"success_rate": [1.0, 1.0]}))
    base = base.assign(seeds=5, baseline=9.0, value=9.0)
    t_quantile = stats.t.ppf(0.975, 4)
    alarms = 0
    for _ in range(250):
        values = rng.normal(size=(6, 5))
        half = t_quantile * stats.sem(values, axis=1)
        mean = values.mean(axis=1)
        frame = base.assign(difference=mean, difference_low=mean - half, difference_high=mean + half)
        alarms += (judge(frame).verdict != "no evidence").any()
    assert stats.binomtest(alarms, 250, 0.05, alternative="greater").pvalue > 1e-4, alarms / 250
    assert alarms > 3


def test_every_metric_has_a_direction() -> None:
    assert {good_direction(metric) for metric in METRICS} == {"higher", "lower", None}
    assert good_direction("conflict_io_p99_ms") == "lower"
    with pytest.raises(AnalysisError, match="did you mean commit_latency_p99_ms"):
        good_direction("commit_latency_p99")


def test_the_analysis_needs_neither_spark_nor_figures() -> None:
    check = "import sys, endive.saturation_analysis; print([m for m in ('pyspark', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_there_and_told() -> None:
    for name in saturation_analysis.__all__:
        found = getattr(saturation_analysis, name)
        assert not callable(found) or found.__doc__, name
