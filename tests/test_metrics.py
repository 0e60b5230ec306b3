"""Metrics of runs, means over seeds, and differences between experiments: against figures worked out by hand."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from endive.pipeline.metrics import paired_differences, run_metrics, summarize_experiments
from endive.pipeline.run_summary import RunSummarizer, Window
from endive.pipeline.schemas import ALL, DIFFERENCES, METRICS, RUN_METRICS, RUN_SUMMARY, SUMMARY
from endive.simulation import InFlightTimes
from tests.result_rows import aborted, committed, rows

WINDOW = Window(0.0, 10_000.0)


def summary_of(*records: dict[str, Any], seed: int = 1, name: str = "base", in_flight: int = 0) -> pa.Table:
    summarizer = RunSummarizer(name, f"hash-of-{name}", seed, 12_000.0, WINDOW)
    summarizer.add_rows(rows(*records))
    times = InFlightTimes(array("d", [5.0] * in_flight), array("d", [6.0] * in_flight))
    return summarizer.finish({"fast_append": times} if in_flight else {})


def metrics_of(*summaries: pa.Table) -> list[dict[str, Any]]:
    table = run_metrics(pa.concat_tables(summaries))
    assert table.schema.equals(RUN_METRICS)
    return table.to_pylist()


def of_type(records: list[dict[str, Any]], operation: str) -> dict[str, Any]:
    (record,) = (record for record in records if record["operation_type"] == operation)
    return record


def metrics_table(name: str, values: dict[int, float | None], operation: str = ALL, **others: float) -> pa.Table:
    """Run metrics of an experiment: the success rate of each seed, and nothing else unless named."""
    nothing: dict[str, Any] = {field.name: None if field.nullable else 0 for field in RUN_METRICS}
    keys = {"exp_name": name, "exp_hash": f"hash-of-{name}", "operation_type": operation}
    return pa.Table.from_pylist(
        [nothing | keys | {"seed": seed, "success_rate": value} | others for seed, value in values.items()],
        schema=RUN_METRICS,
    )


def test_no_run_has_no_metrics() -> None:
    assert run_metrics(RUN_SUMMARY.empty_table()).equals(RUN_METRICS.empty_table())
    assert summarize_experiments(RUN_METRICS.empty_table()).equals(SUMMARY.empty_table())


def test_the_metrics_of_a_run_by_hand() -> None:
    records = metrics_of(
        summary_of(
            committed(
                1, 0.0, 100.0, attempts=1, manifest_list_reads=1, manifest_list_writes=1, manifest_file_writes=1,
                catalog_read_ms=10.0, per_attempt_io_ms=60.0, catalog_commit_ms=30.0,
            ),
            committed(
                2, 0.0, 300.0, attempts=3, n_retries=2, manifest_list_reads=5, historical_ml_reads=3,
                manifest_file_reads=4, manifest_list_appends=2, manifest_file_writes=1,
                catalog_read_ms=10.0, per_attempt_io_ms=40.0, conflict_io_ms=150.0, catalog_commit_ms=50.0,
                backoff_ms=40.0, restart_ms=10.0,
            ),
            aborted(3, 0.0, 500.0, attempts=11, n_retries=10, manifest_list_reads=2, historical_ml_reads=1),
            in_flight=2,
        )
    )  # fmt: skip
    record = of_type(records, "fast_append")
    expected = {
        "success_rate": 2 / 3,
        "in_flight_share": 2 / 5,
        "offered_per_s": 0.5,
        "throughput_per_s": 0.2,
        "retries_per_commit": 6.0,
        "attempts_per_transaction": 5.0,
        "historical_reads_per_commit": 2.0,
        "manifest_reads_per_commit": 6.0,
        "manifest_writes_per_commit": 2.5,
        "overhead_share": 0.5,
        "commit_latency_mean_ms": 200.0,
        "per_attempt_io_mean_ms": 50.0,
        "conflict_io_mean_ms": 75.0,
    }
    assert {name: record[name] for name in expected} == pytest.approx(expected)
    quantiles = {
        "commit_latency_p50_ms": 100.0,
        "commit_latency_p95_ms": 300.0,
        "commit_latency_p99_ms": 300.0,
        "conflict_io_p50_ms": 0.0,
        "conflict_io_p99_ms": 150.0,
        "total_latency_p50_ms": 100.0,
    }
    assert {name: record[name] for name in quantiles} == pytest.approx(quantiles, rel=0.005)
    assert (record["seed"], record["duration_ms"], record["window_end_ms"]) == (1, 12_000.0, 10_000.0)
    assert (record["submitted"], record["committed"], record["aborted"], record["in_flight"]) == (5, 2, 1, 2)
    assert record["max_retries_exceeded"] == 1


def test_all_is_every_operation_type_together() -> None:
    records = metrics_of(
        summary_of(
            committed(1, 0.0, 100.0),
            committed(2, 0.0, 200.0),
            committed(3, 0.0, 1000.0, operation_type="validated_overwrite"),
            aborted(4, 0.0, 300.0, operation_type="validated_overwrite"),
        )
    )
    assert [record["operation_type"] for record in records] == [ALL, "fast_append", "validated_overwrite"]
    whole = of_type(records, ALL)
    assert (whole["submitted"], whole["success_rate"], whole["throughput_per_s"]) == (4, 0.75, 0.3)
    assert whole["commit_latency_p50_ms"] == pytest.approx(200.0, rel=0.005)
    assert whole["commit_latency_mean_ms"] == pytest.approx(1300.0 / 3)


def test_an_experiment_with_no_commit_has_a_rate_and_no_latency() -> None:
    record = of_type(metrics_of(summary_of(aborted(1, 0.0, 100.0), aborted(2, 0.0, 100.0))), ALL)
    assert (record["success_rate"], record["throughput_per_s"], record["attempts_per_transaction"]) == (0.0, 0.0, 1.0)
    unknown = {"retries_per_commit", "manifest_reads_per_commit", "manifest_writes_per_commit", "overhead_share"}
    unknown |= {"historical_reads_per_commit"} | {name for name in METRICS if name.endswith("_ms")}
    assert {name for name in METRICS if record[name] is None} == unknown


def test_with_all_in_flight_even_success_is_unknown() -> None:
    record = of_type(metrics_of(summary_of(in_flight=3)), ALL)
    assert (record["success_rate"], record["in_flight_share"], record["offered_per_s"]) == (None, 1.0, 0.3)


def test_a_run_with_no_submission_counts_with_rates_of_zero() -> None:
    records = metrics_of(summary_of(seed=1), summary_of(committed(1, 0.0, 100.0), seed=2))
    assert [(record["seed"], record["operation_type"], record["throughput_per_s"]) for record in records] == [
        (1, ALL, 0.0),
        (1, "fast_append", 0.0),
        (2, ALL, 0.1),
        (2, "fast_append", 0.1),
    ]
    assert records[0]["success_rate"] is None


def test_an_operation_type_that_one_seed_never_saw_has_a_rate_of_zero_there() -> None:
    records = metrics_of(
        summary_of(committed(1, 0.0, 100.0), committed(2, 0.0, 100.0, operation_type="merge_append"), seed=1),
        summary_of(committed(1, 0.0, 100.0), seed=2),
    )
    rates = {(record["seed"], record["operation_type"]): record["throughput_per_s"] for record in records}
    assert rates[1, "merge_append"] == 0.1
    assert rates[2, "merge_append"] == 0.0


def test_experiments_of_one_table_do_not_mix() -> None:
    records = metrics_of(
        summary_of(committed(1, 0.0, 100.0), name="b"),
        summary_of(committed(1, 0.0, 100.0, operation_type="merge_append"), name="a"),
    )
    assert [(record["exp_name"], record["operation_type"]) for record in records] == [
        ("a", ALL),
        ("a", "merge_append"),
        ("b", ALL),
        ("b", "fast_append"),
    ]


def test_an_experiment_is_the_mean_of_its_seeds_with_a_t_interval() -> None:
    table = summarize_experiments(metrics_table("base", {1: 0.2, 2: 0.4, 3: 0.9}, submitted=10))
    assert table.schema.equals(SUMMARY)
    (record,) = table.to_pylist()
    assert (record["exp_name"], record["exp_hash"], record["operation_type"]) == ("base", "hash-of-base", ALL)
    assert (record["seeds"], record["submitted"]) == (3, 30)
    values = [0.2, 0.4, 0.9]
    low, high = scipy.stats.t.interval(0.95, 2, loc=0.5, scale=scipy.stats.sem(values))
    assert (record["success_rate"], record["success_rate_low"], record["success_rate_high"]) == pytest.approx(
        (0.5, low, high)
    )
    assert high - 0.5 == pytest.approx(4.30265 * np.sqrt(0.13 / 3), rel=1e-5)  # the t table's two degrees of freedom


def test_a_single_seed_has_a_mean_and_no_interval() -> None:
    (record,) = summarize_experiments(metrics_table("base", {1: 0.2})).to_pylist()
    assert (record["success_rate"], record["success_rate_low"], record["success_rate_high"]) == (0.2, None, None)


def test_a_seed_without_the_metric_is_left_out_of_its_mean() -> None:
    (record,) = summarize_experiments(metrics_table("base", {1: 0.2, 2: None, 3: 0.4})).to_pylist()
    assert record["seeds"] == 3
    half = 12.7062 * 0.1  # one degree of freedom; standard error 0.1
    expected = (0.3, 0.3 - half, 0.3 + half)
    assert (record["success_rate"], record["success_rate_low"], record["success_rate_high"]) == pytest.approx(
        expected, rel=1e-5
    )


def test_a_metric_that_no_seed_has_is_none() -> None:
    (record,) = summarize_experiments(metrics_table("base", {1: None, 2: None})).to_pylist()
    assert (record["success_rate"], record["success_rate_low"], record["success_rate_high"]) == (None, None, None)


def test_seeds_that_agree_have_an_interval_of_no_width() -> None:
    (record,) = summarize_experiments(metrics_table("base", {1: 0.3, 2: 0.3})).to_pylist()
    assert (record["success_rate"], record["success_rate_low"], record["success_rate_high"]) == (0.3, 0.3, 0.3)


def difference(baseline: pa.Table, other: pa.Table) -> dict[str, Any]:
    table = paired_differences(baseline, other)
    assert table.schema.equals(DIFFERENCES)
    (record,) = (record for record in table.to_pylist() if record["metric"] == "success_rate")
    return record


def test_differences_are_taken_seed_by_seed() -> None:
    record = difference(metrics_table("base", {1: 0.2, 2: 0.5, 3: 0.8}), metrics_table("new", {3: 0.9, 1: 0.3, 2: 0.6}))
    assert (record["baseline_name"], record["exp_hash"], record["operation_type"]) == ("base", "hash-of-new", ALL)
    assert record["seeds"] == 3
    expected = {
        "baseline": 0.5,
        "value": 0.6,
        "difference": 0.1,
        "difference_low": 0.1,
        "difference_high": 0.1,
        "relative_difference": 0.2,
    }
    assert {name: record[name] for name in expected} == pytest.approx(expected)


def test_only_seeds_of_both_are_paired() -> None:
    record = difference(
        metrics_table("base", {1: 0.2, 2: 0.4, 3: None, 4: 0.9}), metrics_table("new", {1: 0.1, 2: 0.4, 3: 0.5, 5: 1.0})
    )
    half = 12.7062 * 0.05
    expected = (2, 0.3, 0.25, -0.05, -0.05 - half, -0.05 + half)
    names = ("seeds", "baseline", "value", "difference", "difference_low", "difference_high")
    assert tuple(record[name] for name in names) == pytest.approx(expected, rel=1e-5)


def test_without_a_shared_seed_there_is_no_difference() -> None:
    record = difference(metrics_table("base", {1: 0.2}), metrics_table("new", {2: 0.4}))
    assert (record["seeds"], record["baseline"], record["difference"], record["difference_low"]) == (
        0,
        None,
        None,
        None,
    )


def test_one_shared_seed_gives_a_difference_without_an_interval() -> None:
    record = difference(metrics_table("base", {1: 0.2}), metrics_table("new", {1: 0.4}))
    assert (record["seeds"], record["difference"], record["difference_low"]) == (1, pytest.approx(0.2), None)


def test_relative_to_nothing_there_is_no_relative_difference() -> None:
    record = difference(metrics_table("base", {1: 0.0, 2: 0.0}), metrics_table("new", {1: 0.4, 2: 0.4}))
    assert (record["difference"], record["relative_difference"]) == (0.4, None)


def test_differences_are_of_the_operation_types_of_both() -> None:
    baseline = pa.concat_tables([metrics_table("base", {1: 0.2}), metrics_table("base", {1: 0.2}, "merge_append")])
    other = pa.concat_tables([metrics_table("new", {1: 0.2}), metrics_table("new", {1: 0.2}, "fast_append")])
    assert set(paired_differences(baseline, other).column("operation_type").to_pylist()) == {ALL}
    assert paired_differences(RUN_METRICS.empty_table(), other).equals(DIFFERENCES.empty_table())


def test_differences_are_between_two_experiments() -> None:
    both = pa.concat_tables([metrics_table("base", {1: 0.2}), metrics_table("new", {1: 0.2})])
    with pytest.raises(ValueError, match="allowed is one"):
        paired_differences(both, both)
