"""Frames in, frames out: each step from rows to differences, on frames of a few literal rows."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from endive.pipeline import aggregate
from endive.pipeline.consolidated import rows_path, write_rows
from endive.pipeline.consolidated_runs import consolidated_files, run_summaries
from endive.pipeline.experiments import configurations, find_experiments
from endive.pipeline.histogram import from_arrow
from endive.pipeline.plan import to_row
from endive.pipeline.run_summary import SERIES_BINS, RunSummarizer, Window
from endive.pipeline.run_task import perform_run
from endive.pipeline.schemas import (
    ALL,
    COMMIT_RATES,
    CONFIGURATIONS,
    CONSOLIDATED,
    DIFFERENCES,
    METRICS,
    PAIRS,
    RUN_METRICS,
    RUN_SUMMARY,
    SUMMARY,
    WINDOWS,
)
from endive.simulation import InFlightTimes
from tests.result_rows import aborted, committed
from tests.run_summaries import assert_same_summaries
from tests.sweeps import tiny_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DURATION_MS = 1200.0
BIN_MS = DURATION_MS / SERIES_BINS
WINDOW = Window(100.0, 1000.0)
NAN = pytest.approx(math.nan, nan_ok=True)


def of_run(*records: dict[str, Any], seed: int = 1, name: str = "base") -> list[dict[str, Any]]:
    return [record | {"exp_name": name, "exp_hash": f"hash-of-{name}", "seed": seed} for record in records]


def rows_frame(spark: SparkSession, records: list[dict[str, Any]], parts: int = 1) -> DataFrame:
    """Return rows as `schemas.CONSOLIDATED`, dealt to so many partitions."""
    tables = [pa.Table.from_pylist(records[part::parts], schema=CONSOLIDATED) for part in range(parts)]
    frames = [spark.createDataFrame(table).coalesce(1) for table in tables]
    return reduce(lambda one, other: one.unionAll(other), frames)


def windows_frame(spark: SparkSession, window: Window = WINDOW, names: tuple[str, ...] = ("base",)) -> DataFrame:
    records = [
        dict(zip(WINDOWS.names, (name, f"hash-of-{name}", DURATION_MS, window.start_ms, window.end_ms), strict=True))
        for name in names
    ]
    return spark.createDataFrame(pa.Table.from_pylist(records, schema=WINDOWS))


def summary_of(
    *in_flight: tuple[float, float], seed: int = 1, name: str = "base", operation: str = "fast_append"
) -> pa.Table:
    """Return the summary that a run left that finished nothing, with the starts of what was in flight."""
    submits, starts = (array("d", times) for times in zip(*in_flight, strict=True)) if in_flight else ((), ())
    summarizer = RunSummarizer(name, f"hash-of-{name}", seed, DURATION_MS, WINDOW)
    return summarizer.finish({operation: InFlightTimes(submits, starts)} if in_flight else {})  # type: ignore[arg-type]


def metrics_table(name: str, values: dict[int, float | None], operation: str = ALL) -> pa.Table:
    """Run metrics of an experiment: the success rate of each seed, and nothing else."""
    nothing: dict[str, Any] = {field.name: None if field.nullable else 0 for field in RUN_METRICS}
    keys = {"exp_name": name, "exp_hash": f"hash-of-{name}", "operation_type": operation, "submitted": 10}
    records = [nothing | keys | {"seed": seed, "success_rate": value} for seed, value in values.items()]
    return pa.Table.from_pylist(records, schema=RUN_METRICS)


def pairs_frame(spark: SparkSession, *pairs: tuple[str, str]) -> DataFrame:
    records = [
        dict(zip(PAIRS.names, (one, f"hash-of-{one}", other, f"hash-of-{other}"), strict=True)) for one, other in pairs
    ]
    return spark.createDataFrame(pa.Table.from_pylist(records, schema=PAIRS))


def collected(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a frame's rows in order, once its columns are found to be those of a schema."""
    assert frame.columns == schema.names
    assertSchemaEqual(frame.schema, aggregate.spark_schema(schema))
    table = frame.toArrow().cast(schema)
    keys = [name for name in (*PAIRS.names, "seed", "operation_type", "metric", "start_ms") if name in schema.names]
    return table.sort_by([(name, "ascending") for name in keys])


def one_row(table: pa.Table) -> dict[str, Any]:
    (row,) = table.to_pylist()
    return row


def summarized(spark: SparkSession, records: list[dict[str, Any]], window: Window = WINDOW, parts: int = 1) -> pa.Table:
    """Return the merged summaries of rows."""
    found = aggregate.summarize_rows(rows_frame(spark, records, parts), windows_frame(spark, window))
    return collected(found.transform(aggregate.merge_parts), RUN_SUMMARY)


@pytest.mark.parametrize(
    ("step", "given", "made"),
    [
        (lambda spark, frame: aggregate.summarize_rows(frame, windows_frame(spark)), CONSOLIDATED, RUN_SUMMARY),
        (lambda spark, frame: aggregate.summarize_in_flight(frame, windows_frame(spark)), RUN_SUMMARY, RUN_SUMMARY),
        (lambda _, frame: aggregate.merge_parts(frame), RUN_SUMMARY, RUN_SUMMARY),
        (lambda _, frame: aggregate.run_metrics(frame), RUN_SUMMARY, RUN_METRICS),
        (lambda _, frame: aggregate.summarize_experiments(frame), RUN_METRICS, SUMMARY),
        (lambda _, frame: aggregate.commit_rates(frame), RUN_SUMMARY, COMMIT_RATES),
        (
            lambda spark, frame: aggregate.paired_differences(frame, pairs_frame(spark, ("base", "new"))),
            RUN_METRICS,
            DIFFERENCES,
        ),
    ],
    ids=["rows", "in flight", "parts", "metrics", "experiments", "rates", "differences"],
)
def test_nothing_makes_nothing_with_the_columns_of_the_contract(
    spark: SparkSession, step: Callable[[SparkSession, DataFrame], DataFrame], given: pa.Schema, made: pa.Schema
) -> None:
    assert collected(step(spark, spark.createDataFrame(given.empty_table())), made).num_rows == 0


def test_one_row_is_summarized_by_hand(spark: SparkSession) -> None:
    record = committed(1, 200.0, 300.0, attempts=3, n_retries=2, conflict_io_ms=40.0)
    row = one_row(summarized(spark, of_run(record)))
    assert (row["exp_name"], row["exp_hash"], row["seed"]) == ("base", "hash-of-base", 1)
    assert (row["operation_type"], row["duration_ms"]) == ("fast_append", DURATION_MS)
    assert (row["window_start_ms"], row["window_end_ms"], row["series_bin_ms"]) == (100.0, 1000.0, BIN_MS)
    assert [row[name] for name in ("submitted", "committed", "aborted", "in_flight", "acknowledged")] == [1, 1, 0, 0, 1]
    assert (row["attempts"], row["n_retries"], row["max_retries_exceeded"]) == (3, 2, 0)
    latency = row["commit_latency"]
    assert (latency["counts"], latency["sum"], latency["sum_of_squares"]) == ([1], 100.0, 10_000.0)
    assert (row["conflict_io_ms"]["sum"], row["aborted_latency"]["counts"]) == (40.0, [])
    assert {place: count for place, count in enumerate(row["series_submitted"]) if count} == {20: 1}
    assert {place: ms for place, ms in enumerate(row["series_commit_latency_ms"]) if ms} == {30: 100.0}


def test_rows_of_a_run_are_summarized_wherever_they_lie(spark: SparkSession) -> None:
    records = [
        *of_run(
            committed(1, 200.0, 300.0, n_retries=1),
            aborted(2, 250.0, 900.0),
            committed(3, 400.0, 401.0, operation_type="merge_append"),
            committed(4, 400.0, 600.0, n_retries=5),
        ),
        *of_run(committed(1, 200.0, 350.0), seed=2),
        *of_run(aborted(2, 50.0, 100.0), seed=2),
    ]
    whole = summarized(spark, records)
    assert_same_summaries(summarized(spark, records[::-1], parts=6), whole)
    counts = [
        tuple(row[name] for name in ("seed", "operation_type", "committed", "aborted")) for row in whole.to_pylist()
    ]
    assert counts == [(1, "fast_append", 2, 1), (1, "merge_append", 1, 0), (2, "fast_append", 1, 0)]
    assert whole.column("n_retries").to_pylist() == [6, 0, 0]
    assert sum(whole.column("series_aborted")[2].as_py()) == 1, "the series has what the window has not"


def test_a_row_that_is_there_twice_counts_twice(spark: SparkSession) -> None:
    row = one_row(summarized(spark, of_run(*[committed(1, 200.0, 300.0)] * 2), parts=2))
    assert (row["submitted"], row["commit_latency"]["counts"], row["commit_latency"]["sum"]) == (2, [2], 200.0)


def test_texts_that_are_null_count_as_no_reason(spark: SparkSession) -> None:
    records = of_run(committed(1, 200.0, 300.0), aborted(2, 200.0, 300.0), aborted(3, 200.0, 300.0, abort_reason=None))
    assert records[0]["abort_reason"] is None
    row = one_row(summarized(spark, records))
    reasons = [row[name] for name in ("max_retries_exceeded", "retry_timeout", "validation_exception")]
    assert (row["aborted"], reasons) == (2, [1, 0, 0])


def test_another_window_has_another_cohort(spark: SparkSession) -> None:
    records = of_run(committed(1, 50.0, 300.0), committed(2, 200.0, 1100.0), committed(3, 1000.0, 1010.0))
    for window, ids in ((WINDOW, [2]), (Window(0.0, 100.0), [1]), (Window(0.0, 1200.0), [1, 2, 3])):
        row = one_row(summarized(spark, records, window))
        assert row["submitted"] == len(ids)
        latencies = {1: 250.0, 2: 900.0, 3: 10.0}
        assert row["commit_latency"]["sum"] == sum(latencies[each] for each in ids)
        assert sum(row["series_submitted"]) == 3


def test_rows_of_an_experiment_without_a_window_are_left_out(spark: SparkSession) -> None:
    row = committed(1, 200.0, 300.0)
    table = summarized(spark, [*of_run(row), *of_run(row, name="other")])
    assert table.column("exp_name").to_pylist() == ["base"]


def test_what_never_finished_is_counted_in_the_window_asked_for(spark: SparkSession) -> None:
    left = pa.concat_tables(
        [
            summary_of((50.0, 60.0), (500.0, math.nan), (600.0, 1150.0)),
            summary_of((700.0, math.nan), operation="merge_append"),
            summary_of(seed=2),
        ]
    )
    found = aggregate.summarize_in_flight(spark.createDataFrame(left), windows_frame(spark, Window(0.0, 600.0)))
    rows = collected(found, RUN_SUMMARY).to_pylist()
    counts = [tuple(row[name] for name in ("seed", "operation_type", "submitted", "in_flight")) for row in rows]
    assert counts == [(1, "fast_append", 2, 2), (1, "merge_append", 0, 0), (2, ALL, 0, 0)]
    assert (rows[0]["in_flight_latency"]["counts"], rows[0]["in_flight_latency"]["sum"]) == ([1], 1140.0)
    assert rows[0]["in_flight_submit_ms"] == [50.0, 500.0, 600.0]
    assert rows[0]["in_flight_commit_start_ms"] == [60.0, NAN, 1150.0]
    assert sum(rows[1]["series_submitted"]) == 1


def test_a_run_that_left_nothing_but_its_start_is_not_lost_and_gives_way_to_rows(spark: SparkSession) -> None:
    left = spark.createDataFrame(pa.concat_tables([summary_of(seed=1), summary_of(seed=2)]))
    of_rows = aggregate.summarize_rows(rows_frame(spark, of_run(committed(1, 200.0, 300.0))), windows_frame(spark))
    parts = of_rows.unionAll(aggregate.summarize_in_flight(left, windows_frame(spark)))
    merged = collected(aggregate.merge_parts(parts), RUN_SUMMARY)
    assert merged.select(["seed", "operation_type", "submitted"]).to_pylist() == [
        {"seed": 1, "operation_type": "fast_append", "submitted": 1},
        {"seed": 2, "operation_type": ALL, "submitted": 0},
    ]


def test_quantiles_are_within_half_a_percent_however_rows_are_dealt(spark: SparkSession) -> None:
    latencies = np.random.default_rng(7).lognormal(5.0, 2.0, 2000)
    records = of_run(*(committed(place, 500.0, 500.0 + ms) for place, ms in enumerate(latencies)))
    exact = {q: float(np.quantile(latencies, q, method="inverted_cdf")) for q in (0.5, 0.95, 0.99)}
    column = summarized(spark, records, parts=3).column("commit_latency").combine_chunks()
    (histogram,) = from_arrow(column)
    found = {q: histogram.quantile(q) for q in exact}
    assert found == pytest.approx(exact, rel=0.005)
    runs = aggregate.run_metrics(spark.createDataFrame(summarized(spark, records)))
    metrics = collected(runs, RUN_METRICS).to_pylist()[0]
    named = {0.5: "commit_latency_p50_ms", 0.95: "commit_latency_p95_ms", 0.99: "commit_latency_p99_ms"}
    assert {q: metrics[name] for q, name in named.items()} == pytest.approx(exact, rel=0.005)
    assert metrics["commit_latency_mean_ms"] == pytest.approx(latencies.mean())


def test_an_experiment_with_no_commit_has_rates_and_no_latency(spark: SparkSession) -> None:
    records = [*of_run(aborted(1, 200.0, 300.0), aborted(2, 300.0, 320.0)), *of_run(aborted(1, 200.0, 300.0), seed=3)]
    runs = aggregate.run_metrics(spark.createDataFrame(summarized(spark, records)))
    rows = collected(runs, RUN_METRICS).to_pylist()
    assert [(row["seed"], row["operation_type"]) for row in rows] == [
        (1, ALL), (1, "fast_append"), (3, ALL), (3, "fast_append")
    ]  # fmt: skip
    for row in rows:
        assert (row["success_rate"], row["throughput_per_s"], row["commit_latency_p50_ms"]) == (0.0, 0.0, None)
    assert [row["offered_per_s"] for row in rows] == pytest.approx([2 / 0.9] * 2 + [1 / 0.9] * 2)
    summary = collected(aggregate.summarize_experiments(runs), SUMMARY).to_pylist()[0]
    assert (summary["seeds"], summary["aborted"], summary["success_rate"]) == (2, 3, 0.0)
    assert (summary["commit_latency_p99_ms"], summary["commit_latency_p99_ms_high"]) == (None, None)


def test_an_operation_type_that_one_seed_never_saw_has_a_rate_of_zero_there(spark: SparkSession) -> None:
    records = [
        *of_run(committed(1, 200.0, 300.0), committed(2, 200.0, 300.0, operation_type="merge_append")),
        *of_run(committed(1, 200.0, 300.0), seed=2),
        *of_run(committed(1, 200.0, 300.0), name="other"),
    ]
    windows = windows_frame(spark, names=("base", "other"))
    summaries = aggregate.merge_parts(aggregate.summarize_rows(rows_frame(spark, records), windows))
    runs = collected(aggregate.run_metrics(summaries), RUN_METRICS).to_pylist()
    rates = {
        (run["exp_name"], run["seed"]): run["throughput_per_s"]
        for run in runs
        if run["operation_type"] == "merge_append"
    }
    assert rates == {("base", 1): pytest.approx(1 / 0.9), ("base", 2): 0.0}


def test_an_experiment_is_the_mean_of_its_seeds_and_experiments_do_not_mix(spark: SparkSession) -> None:
    values = [0.2, 0.4, 0.9]
    metrics = pa.concat_tables(
        [
            metrics_table("base", {1: 0.2, 3: 0.9}),
            metrics_table("one", {1: 0.5}),
            metrics_table("base", {2: 0.4, 7: None}),
        ]
    )
    table = collected(aggregate.summarize_experiments(spark.createDataFrame(metrics)), SUMMARY)
    base, one = table.to_pylist()
    low, high = scipy.stats.t.interval(0.95, 2, loc=0.5, scale=scipy.stats.sem(values))
    found = tuple(base[name] for name in ("success_rate", "success_rate_low", "success_rate_high"))
    assert found == pytest.approx((0.5, low, high))
    assert (base["exp_name"], base["seeds"], base["submitted"]) == ("base", 4, 40)
    assert [one[name] for name in ("seeds", "success_rate", "success_rate_low")] == [1, 0.5, None]


def test_differences_are_taken_seed_by_seed_for_each_pair(spark: SparkSession) -> None:
    metrics = pa.concat_tables(
        [
            metrics_table("base", {1: 0.2, 2: 0.5, 3: 0.8, 9: 0.1}),
            metrics_table("better", {3: 0.9, 1: 0.4, 2: 0.8}),
            metrics_table("worse", {1: 0.1, 2: None, 5: 0.3}),
            metrics_table("base", {1: 0.3}, "merge_append"),
        ]
    )
    pairs = pairs_frame(spark, ("base", "better"), ("base", "worse"), ("base", "absent"))
    table = collected(aggregate.paired_differences(spark.createDataFrame(metrics), pairs), DIFFERENCES)
    assert table.num_rows == 2 * len(METRICS), "only the operation types of both, only pairs of which both are there"
    better, worse = (row for row in table.to_pylist() if row["metric"] == "success_rate")
    differences = [0.2, 0.3, 0.1]
    low, high = scipy.stats.t.interval(0.95, 2, loc=0.2, scale=scipy.stats.sem(differences))
    names = ("seeds", "baseline", "value", "difference", "difference_low", "difference_high", "relative_difference")
    assert [better[name] for name in names] == pytest.approx([3, 0.5, 0.7, 0.2, low, high, 0.4])
    assert high - 0.2 == pytest.approx(4.30265 * 0.1 / math.sqrt(3), rel=1e-5)
    assert (better["baseline_name"], better["exp_hash"], better["operation_type"]) == ("base", "hash-of-better", ALL)
    assert [worse[name] for name in names[:4]] == pytest.approx([1, 0.2, 0.1, -0.1])
    assert (worse["difference_low"], worse["difference_high"]) == (None, None)


def test_commit_rates_are_of_each_bin(spark: SparkSession) -> None:
    records = of_run(
        committed(1, 0.0, 10.0, commit_latency=3.0),
        committed(2, 5.0, 19.0, commit_latency=5.0),
        aborted(3, 5.0, 1199.0),
    )
    rates = collected(aggregate.commit_rates(spark.createDataFrame(summarized(spark, records))), COMMIT_RATES)
    assert rates.column("start_ms").to_pylist() == [place * BIN_MS for place in range(SERIES_BINS)]
    columns = rates.select(["submitted", "committed", "aborted", "commits_per_s", "commit_latency_mean_ms"])
    rows = [tuple(row.values()) for row in columns.to_pylist()]
    nothing = (0, 0, 0, 0.0, None)
    assert rows == [(3, 0, 0, 0.0, None), (0, 2, 0, 200.0, 4.0), *[nothing] * 117, (0, 0, 1, 0.0, None)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a consolidated tiny sweep, a configuration of which submits nothing."""
    plan = tiny_plan(tmp_path_factory.mktemp("swept"), scales=(20, 200, 1e9))
    for run in plan.runs:
        perform_run(to_row(run), plan.root)
    for each in find_experiments(plan.root):
        write_rows(rows_path(plan.root, each.name, each.hash), each.folder, each.seeds)
    pq.write_table(configurations(find_experiments(plan.root)), plan.root / "configurations.parquet")
    return plan.root


def left_by_runs(root: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(root.glob("*/*/summary.parquet")))


def test_files_rows_and_runs_tell_the_same(spark: SparkSession, swept: Path) -> None:
    experiments = find_experiments(swept)
    left = left_by_runs(swept)
    sorted_left = left.sort_by([(name, "ascending") for name in (*PAIRS.names[2:], "seed", "operation_type")])
    assert sorted_left.num_rows >= 6
    files = run_summaries(spark, consolidated_files(swept, experiments, pytest.fail))
    assert_same_summaries(collected(files, RUN_SUMMARY), sorted_left)
    windows = aggregate.windows_frame(spark, experiments)
    of_rows = aggregate.summarize_rows(aggregate.read_consolidated(spark, swept).repartition(3), windows)
    parts = of_rows.unionAll(aggregate.summarize_in_flight(spark.createDataFrame(left), windows))
    assert_same_summaries(collected(aggregate.merge_parts(parts), RUN_SUMMARY), sorted_left)


def test_files_and_rows_tell_the_same_of_another_window(spark: SparkSession, swept: Path) -> None:
    experiments, window = find_experiments(swept), Window(0.0, 20_000.0)
    files = collected(run_summaries(spark, consolidated_files(swept, experiments, pytest.fail, window)), RUN_SUMMARY)
    windows = aggregate.windows_frame(spark, experiments, window)
    of_rows = aggregate.summarize_rows(aggregate.read_consolidated(spark, swept), windows)
    left = spark.createDataFrame(left_by_runs(swept))
    parts = of_rows.unionAll(aggregate.summarize_in_flight(left, windows))
    assert_same_summaries(files, collected(aggregate.merge_parts(parts), RUN_SUMMARY))
    totals = [sum(files.column(name).to_pylist()) for name in ("committed", "aborted", "in_flight")]
    rows = pa.concat_tables(pq.read_table(path) for path in swept.glob("*/*/results.parquet"))
    assert totals[:2] == [rows.column("status").to_pylist().count(status) for status in ("committed", "aborted")]
    assert totals[2] == sum(len(times) for times in left_by_runs(swept).column("in_flight_submit_ms"))


def test_consolidated_rows_and_configurations_are_read_with_their_columns(spark: SparkSession, swept: Path) -> None:
    rows = aggregate.read_consolidated(spark, swept)
    assert rows.columns == CONSOLIDATED.names
    assertSchemaEqual(rows.schema, aggregate.spark_schema(CONSOLIDATED))
    sizes = {
        (each.hash, seed): pq.read_metadata(each.results(seed)).num_rows
        for each in find_experiments(swept)
        for seed in each.seeds
    }
    counts = {(row.exp_hash, row.seed): row["count"] for row in rows.groupBy("exp_hash", "seed").count().collect()}
    assert counts == {run: size for run, size in sizes.items() if size}
    settings = pq.read_table(swept / "configurations.parquet", schema=CONFIGURATIONS)
    assertDataFrameEqual(aggregate.read_configurations(spark, swept), spark.createDataFrame(settings))
