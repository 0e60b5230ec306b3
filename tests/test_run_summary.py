"""A run's summary: what is counted, when, and that it is the same however the rows come."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_examples
from hypothesis import strategies as st

from endive.config import build_simulation_config, parse_settings
from endive.pipeline.histogram import from_arrow
from endive.pipeline.run_summary import (
    MEASURES,
    SERIES_BINS,
    RunSummarizer,
    Window,
    merge_run_summaries,
    read_run_summary,
    steady_window,
    write_run_summary,
)
from endive.pipeline.schemas import (
    CENSORED_MEASURES,
    COMMITTED_MEASURES,
    COMPONENTS,
    COUNTS,
    RUN_SUMMARY,
    SUMMED_COUNTS,
)
from endive.simulation import InFlightTimes, Simulation, Statistics
from tests.result_rows import aborted, committed, rows
from tests.run_summaries import assert_same_summaries

DURATION_MS = 1200.0
WINDOW = Window(100.0, 1000.0)
MINUTE = 60_000.0


def summarize(*pieces: pa.Table, in_flight: dict[str, InFlightTimes] | None = None) -> pa.Table:
    summarizer = RunSummarizer("label", "0123456789ab", 7, DURATION_MS, WINDOW)
    for piece in pieces:
        summarizer.add_rows(piece)
    return summarizer.finish(in_flight or {})


def the_row(table: pa.Table, operation: str = "fast_append") -> dict[str, Any]:
    (row,) = (row for row in table.to_pylist() if row["operation_type"] == operation)
    return row


def in_flight(submit_ms: list[float], commit_start_ms: list[float]) -> InFlightTimes:
    return InFlightTimes(array("d", submit_ms), array("d", commit_start_ms))


def settings(duration_ms: float = 60 * MINUTE, **transaction: Any) -> Any:
    return parse_settings(
        {
            "simulation": {"duration_ms": duration_ms},
            "storage": {"provider": "s3"},
            "transaction": {"inter_arrival": {"scale": 100.0}, "runtime": {"median": 1000.0, "sigma": 0.0}}
            | transaction,
        }
    )


@pytest.mark.parametrize(
    ("runtime", "edge_minutes"),
    [
        ({"distribution": "fixed", "value": 1000.0}, 5.0),
        ({"distribution": "fixed", "value": 2.5 * MINUTE}, 7.5),
        ({"distribution": "fixed", "value": 10 * MINUTE}, 15.0),
        ({"median": 2 * MINUTE, "sigma": 0.0, "min": 3 * MINUTE}, 9.0),
        ({"distribution": "exponential", "scale": 2 * MINUTE}, 6.0),
    ],
    ids=["short", "three means", "long", "floor", "exponential"],
)
def test_the_steady_window_leaves_out_three_mean_runtimes_within_5_to_15_minutes(
    runtime: dict[str, Any], edge_minutes: float
) -> None:
    window = steady_window(settings(runtime=runtime))
    assert window.start_ms == pytest.approx(edge_minutes * MINUTE)
    assert window.end_ms == pytest.approx((60 - edge_minutes) * MINUTE)


def test_the_steady_window_is_at_least_half_of_the_run() -> None:
    assert steady_window(settings(duration_ms=8 * MINUTE)) == Window(2 * MINUTE, 6 * MINUTE)


def test_the_steady_window_of_several_streams_waits_for_the_slowest() -> None:
    several = parse_settings(
        {
            "simulation": {"duration_ms": 60 * MINUTE},
            "storage": {"provider": "s3"},
            "transaction": {"runtime": {"distribution": "fixed", "value": 1.0}},
            "streams": [
                {"name": "quick", "inter_arrival": {"scale": 100.0}},
                {
                    "name": "slow",
                    "clients": 1,
                    "think_time": {"distribution": "fixed", "value": 1.0},
                    "runtime": {"distribution": "fixed", "value": 2 * MINUTE},
                },
            ],
        }
    )
    assert steady_window(several) == Window(6 * MINUTE, 54 * MINUTE)


@pytest.mark.parametrize(
    ("start_ms", "end_ms"), [(5.0, 5.0), (5.0, 3.0), (-1.0, 3.0), (math.nan, 3.0), (0.0, math.nan)]
)
def test_a_window_that_holds_nothing_is_refused(start_ms: float, end_ms: float) -> None:
    with pytest.raises(ValueError, match="allowed is from 0 to a later instant"):
        Window(start_ms, end_ms)


def test_a_run_with_no_submission_has_one_row_so_that_it_is_counted() -> None:
    table = summarize(rows())
    assert table.schema.equals(RUN_SUMMARY)
    (row,) = table.to_pylist()
    assert (row["operation_type"], row["seed"], row["duration_ms"]) == ("all", 7, DURATION_MS)
    assert [row[name] for name in COUNTS] == [0] * len(COUNTS)
    assert [row[name]["bins"] for name in MEASURES] == [[]] * len(MEASURES)


def test_a_row_says_which_run_and_window_it_is_of() -> None:
    row = the_row(summarize(rows(committed(1, 200.0, 300.0))))
    assert (row["exp_name"], row["exp_hash"], row["seed"]) == ("label", "0123456789ab", 7)
    assert (row["duration_ms"], row["window_start_ms"], row["window_end_ms"]) == (DURATION_MS, 100.0, 1000.0)
    assert row["series_bin_ms"] == DURATION_MS / SERIES_BINS


def test_the_cohort_is_what_was_submitted_in_the_window() -> None:
    row = the_row(
        summarize(
            rows(
                committed(1, 99.9, 150.0),  # before
                committed(2, 100.0, 400.0),  # at its start: in it
                aborted(3, 999.9, 1100.0),  # in it, though it ended later
                committed(4, 1000.0, 1001.0),  # at its end: after
            ),
            in_flight={"fast_append": in_flight([50.0, 500.0, 1100.0], [math.nan, math.nan, math.nan])},
        )
    )
    assert [row[name] for name in ("submitted", "committed", "aborted", "in_flight")] == [3, 1, 1, 1]


def test_acknowledged_counts_commits_answered_in_the_window_whenever_submitted() -> None:
    row = the_row(
        summarize(
            rows(
                committed(1, 10.0, 99.9),
                committed(2, 10.0, 100.0),
                committed(3, 500.0, 999.9),
                committed(4, 500.0, 1000.0),
                aborted(5, 500.0, 600.0),
            )
        )
    )
    assert row["acknowledged"] == 2


def test_aborts_are_counted_by_reason() -> None:
    row = the_row(
        summarize(
            rows(
                aborted(1, 200.0, 300.0),
                aborted(2, 200.0, 300.0, abort_reason="retry_timeout"),
                aborted(3, 200.0, 300.0, abort_reason="validation_exception"),
                aborted(4, 200.0, 300.0, abort_reason="validation_exception"),
                aborted(5, 50.0, 300.0, abort_reason="validation_exception"),
                committed(6, 200.0, 300.0),
            )
        )
    )
    assert [row[name] for name in ("max_retries_exceeded", "retry_timeout", "validation_exception")] == [1, 1, 2]


@pytest.mark.parametrize("name", SUMMED_COUNTS)
def test_each_count_is_summed_over_the_finished_of_the_cohort(name: str) -> None:
    table = summarize(
        rows(
            committed(1, 200.0, 300.0, **{name: 2}),
            aborted(2, 200.0, 300.0, **{name: 5}),
            committed(3, 50.0, 300.0, **{name: 11}),
        )
    )
    assert the_row(table)[name] == 7


@pytest.mark.parametrize("name", COMMITTED_MEASURES)
def test_each_measure_is_of_the_committed_of_the_cohort(name: str) -> None:
    table = summarize(
        rows(
            committed(1, 200.0, 300.0) | {name: 2.0},
            committed(2, 200.0, 300.0) | {name: 4.0},
            aborted(3, 200.0, 300.0) | {name: 8.0},
            committed(4, 50.0, 300.0) | {name: 16.0},
        )
    )
    measured = the_row(table)[name]
    assert (sum(measured["counts"]), measured["sum"], measured["sum_of_squares"]) == (2, 6.0, 20.0)


def test_what_did_not_commit_is_measured_by_how_long_its_commit_had_lasted() -> None:
    row = the_row(
        summarize(
            rows(aborted(1, 200.0, 300.0, commit_latency=40.0), aborted(2, 50.0, 300.0, commit_latency=80.0)),
            in_flight={"fast_append": in_flight([300.0, 400.0, 20.0], [1150.0, math.nan, 30.0])},
        )
    )
    assert (sum(row["aborted_latency"]["counts"]), row["aborted_latency"]["sum"]) == (1, 40.0)
    assert (sum(row["in_flight_latency"]["counts"]), row["in_flight_latency"]["sum"]) == (1, 50.0)


def test_the_series_covers_the_whole_run_and_not_what_a_drain_adds() -> None:
    row = the_row(
        summarize(
            rows(
                committed(1, 0.0, 10.0, commit_latency=3.0),
                committed(2, 9.9, 19.9, commit_latency=4.0),
                aborted(3, 9.9, 1199.9),
                committed(4, 1195.0, 1200.0, commit_latency=5.0),
                aborted(5, 1195.0, 1300.0),
            ),
            in_flight={"fast_append": in_flight([15.0], [math.nan])},
        )
    )
    assert {place: count for place, count in enumerate(row["series_submitted"]) if count} == {0: 3, 1: 1, 119: 2}
    assert {place: count for place, count in enumerate(row["series_committed"]) if count} == {1: 2}
    assert {place: count for place, count in enumerate(row["series_aborted"]) if count} == {119: 1}
    assert {place: ms for place, ms in enumerate(row["series_commit_latency_ms"]) if ms} == {1: 7.0}
    assert {len(row[name]) for name in row if name.startswith("series_") and name != "series_bin_ms"} == {SERIES_BINS}


def test_what_never_finished_is_listed_whenever_submitted() -> None:
    row = the_row(summarize(in_flight={"fast_append": in_flight([50.0, 500.0], [60.0, math.nan])}))
    assert row["in_flight_submit_ms"] == [50.0, 500.0]
    assert row["in_flight_commit_start_ms"] == [60.0, pytest.approx(math.nan, nan_ok=True)]


def test_each_operation_type_has_a_row_in_order() -> None:
    table = summarize(
        rows(
            committed(1, 200.0, 300.0, operation_type="validated_overwrite", commit_latency=1.0, attempts=3),
            committed(2, 200.0, 300.0, operation_type="fast_append", commit_latency=2.0),
            aborted(3, 200.0, 300.0, operation_type="validated_overwrite"),
        ),
        in_flight={"merge_append": in_flight([300.0], [math.nan])},
    )
    assert table.column("operation_type").to_pylist() == ["fast_append", "merge_append", "validated_overwrite"]
    assert table.column("submitted").to_pylist() == [1, 1, 2]
    assert the_row(table, "validated_overwrite")["attempts"] == 4
    assert the_row(table, "validated_overwrite")["max_retries_exceeded"] == 1
    assert the_row(table, "fast_append")["commit_latency"]["sum"] == 2.0


def test_an_operation_type_outside_the_window_has_a_row_without_a_cohort() -> None:
    row = the_row(summarize(rows(committed(1, 10.0, 20.0))))
    assert (row["submitted"], sum(row["series_committed"])) == (0, 1)


def test_finishing_twice_tells_the_same() -> None:
    summarizer = RunSummarizer("label", "0123456789ab", 7, DURATION_MS, WINDOW)
    summarizer.add_rows(rows(committed(1, 200.0, 300.0)))
    times = {"fast_append": in_flight([300.0], [400.0])}
    assert summarizer.finish(times).equals(summarizer.finish(times))


instants = st.floats(0.0, DURATION_MS)
records = st.builds(
    lambda make, txn_id, t_submit, lasted, operation, attempts: make(
        txn_id, t_submit, t_submit + lasted, operation_type=operation, attempts=attempts, conflict_io_ms=lasted / 3
    ),
    st.sampled_from([committed, aborted]),
    st.integers(1, 1000),
    instants,
    st.floats(0.0, 500.0),
    st.sampled_from(["fast_append", "merge_append", "validated_overwrite"]),
    st.integers(1, 11),
)


@settings_of_examples(max_examples=30)
@given(st.lists(records, max_size=30), st.data())
def test_the_summary_is_the_same_however_the_rows_come(all_records: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = summarize(rows(*all_records))
    order = data.draw(st.permutations(all_records))
    cut = data.draw(st.integers(0, len(order)))
    first, second = rows(*order[:cut]), rows(*order[cut:])
    assert_same_summaries(summarize(first, second), whole)
    assert_same_summaries(summarize(pa.concat_tables([first, second])), whole)
    assert_same_summaries(merge_run_summaries(pa.concat_tables([summarize(first), summarize(second)])), whole)


def test_rows_with_operations_in_a_dictionary_are_the_same_rows() -> None:
    table = rows(committed(1, 200.0, 300.0), aborted(2, 200.0, 300.0, operation_type="merge_append"))
    encoded = table
    for name in ("operation_type", "abort_reason"):
        place = table.column_names.index(name)
        encoded = encoded.set_column(place, name, table.column(name).dictionary_encode())
    assert summarize(encoded).equals(summarize(table))


def test_summaries_of_several_runs_stay_apart_when_merged() -> None:
    def of_seed(seed: int) -> pa.Table:
        summarizer = RunSummarizer("label", "0123456789ab", seed, DURATION_MS, WINDOW)
        summarizer.add_rows(rows(committed(1, 200.0, 300.0)))
        return summarizer.finish({})

    nothing = RunSummarizer("label", "0123456789ab", 2, DURATION_MS, WINDOW).finish({})
    merged = merge_run_summaries(pa.concat_tables([of_seed(2), nothing, of_seed(1), of_seed(2)]))
    assert merged.select(["seed", "operation_type", "submitted"]).to_pylist() == [
        {"seed": 1, "operation_type": "fast_append", "submitted": 1},
        {"seed": 2, "operation_type": "fast_append", "submitted": 2},
    ]
    assert merge_run_summaries(pa.concat_tables([nothing, nothing])).num_rows == 1
    assert merge_run_summaries(RUN_SUMMARY.empty_table()).num_rows == 0


def run_and_summarize(path: Path) -> tuple[Statistics, pa.Table]:
    simulation = Simulation(build_simulation_config(settings(duration_ms=10 * MINUTE), seed_override=3))
    summarizer = RunSummarizer("label", "0123456789ab", 3, 10 * MINUTE, Window(0.0, 10 * MINUTE))
    statistics = simulation.run(output=path, on_rows=summarizer.add_rows, keep_transactions=False)
    return statistics, summarizer.finish(statistics.in_flight_times)


def test_a_summary_of_all_of_a_run_agrees_with_its_statistics(tmp_path: Path) -> None:
    statistics, table = run_and_summarize(tmp_path / "results.parquet")
    assert sum(table.column("submitted").to_pylist()) == statistics.submitted
    for operation, totals in statistics.operations.items():
        row = the_row(table, operation)
        assert (row["committed"], row["aborted"]) == (totals.committed, totals.aborted.total())
        assert row["n_retries"] == totals.retries
        for name in ("real_conflicts", "manifest_list_reads", "manifest_file_writes"):
            assert row[name] == totals.counts[name]
        latencies = np.asarray(totals.commit_latencies_ms)
        (measured,) = from_arrow(pa.array([row["commit_latency"]], type=RUN_SUMMARY.field("commit_latency").type))
        for q in (0.5, 0.95, 0.99):
            assert measured.quantile(q) == pytest.approx(np.quantile(latencies, q, method="inverted_cdf"), rel=0.005)
        finished = set(COMPONENTS) | {"commit_latency", "total_latency"}
        assert finished == set(COMMITTED_MEASURES)
        assert not finished & set(CENSORED_MEASURES)


def test_the_same_run_leaves_the_same_bytes_as_its_rows_summarized_later(tmp_path: Path) -> None:
    _, while_running = run_and_summarize(tmp_path / "results.parquet")
    statistics, _ = run_and_summarize(tmp_path / "again.parquet")
    later = RunSummarizer("label", "0123456789ab", 3, 10 * MINUTE, Window(0.0, 10 * MINUTE))
    file = pq.ParquetFile(tmp_path / "results.parquet")
    for group in range(file.num_row_groups):
        later.add_rows(file.read_row_group(group))
    write_run_summary(tmp_path / "one.parquet", while_running)
    write_run_summary(tmp_path / "two.parquet", later.finish(statistics.in_flight_times))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    _, table = run_and_summarize(tmp_path / "results.parquet")
    write_run_summary(tmp_path / "summary.parquet", table)
    read = read_run_summary(tmp_path / "summary.parquet")
    assert read.schema.equals(RUN_SUMMARY)
    assert read.drop_columns(["in_flight_commit_start_ms"]).equals(table.drop_columns(["in_flight_commit_start_ms"]))
    assert read_run_summary(tmp_path / "summary.parquet", ["seed", "commit_latency"]).column_names == [
        "seed",
        "commit_latency",
    ]
