"""The identities that hold on every run, asserted over random configurations of the whole schema."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from endive.config import build_simulation_config, parse_settings
from endive.simulation import Simulation, Statistics
from endive.transaction import TransactionResult, TransactionStatus
from tests.strategies import configurations


def run(config: dict[str, Any]) -> Statistics:
    return Simulation(build_simulation_config(parse_settings(config))).run()


def assert_transactions_add_up(statistics: Statistics) -> None:
    finished = statistics.transactions
    in_flight = sum(statistics.in_flight.values())
    assert statistics.submitted == len(finished) + in_flight
    assert statistics.committed == sum(row.status is TransactionStatus.COMMITTED for row in finished)
    assert statistics.aborted == len(finished) - statistics.committed
    assert statistics.committed + statistics.in_flight_applied == statistics.final_seq
    assert statistics.in_flight_applied <= in_flight


def assert_times_in_flight_add_up(statistics: Statistics) -> None:
    """Who commits has begun to; who does not has not, unless it restarted."""
    totals: Counter[str] = Counter()
    for (operation, _), count in statistics.in_flight.items():
        totals[operation] += count
    assert {name: len(times.submit_ms) for name, times in statistics.in_flight_times.items()} == dict(totals)
    for name, times in statistics.in_flight_times.items():
        assert list(times.submit_ms) == sorted(times.submit_ms)
        begun = [start - submit for submit, start in zip(times.submit_ms, times.commit_start_ms, strict=True)]
        assert sum(wait >= 0.0 for wait in begun) >= statistics.in_flight[name, "committing"]
        assert not any(wait < 0.0 for wait in begun)


def assert_tables_add_up(statistics: Statistics) -> None:
    written: Counter[int] = Counter(statistics.in_flight_applied_tables)
    for row in statistics.transactions:
        if row.status is TransactionStatus.COMMITTED:
            written.update(row.tables_written)
    assert statistics.table_versions == tuple(written[table] for table in range(len(statistics.table_versions)))


def assert_row_adds_up(row: TransactionResult) -> None:
    components = (
        row.catalog_read_ms
        + row.per_attempt_io_ms
        + row.conflict_io_ms
        + row.catalog_commit_ms
        + row.backoff_ms
        + row.overhead_ms
        + row.restart_ms
    )
    assert components == pytest.approx(row.commit_latency_ms + row.start_ms, rel=1e-6)
    assert row.total_latency_ms == pytest.approx(row.start_ms + row.runtime_ms + row.commit_latency_ms, rel=1e-6)
    assert row.total_retries == row.attempts - 1
    ended = row.commit_time_ms if row.abort_reason is None else row.abort_time_ms
    assert ended == pytest.approx(row.submit_time_ms + row.total_latency_ms, rel=1e-6)
    assert (row.commit_time_ms == -1.0) == (row.abort_reason is not None) == (row.abort_time_ms != -1.0)
    assert row.historical_ml_reads <= row.manifest_list_reads


def assert_conflicts_add_up(row: TransactionResult) -> None:
    """Each failed commit that was followed by a read is of one kind, within the last run of the transaction."""
    kinds = row.no_overlap_conflicts + row.false_conflicts + row.real_conflicts
    if row.restarts:
        assert kinds >= row.attempts - 1
    elif row.abort_reason == "validation_exception":
        assert kinds == row.attempts
    else:
        assert kinds == row.attempts - 1


@pytest.mark.parametrize("catalog_type", ["cas", "append", "instant"])
def test_identities_hold_for_every_catalog_type(catalog_type: str) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=120)
    @given(configurations(catalog_type=catalog_type))
    def check(config: dict[str, Any]) -> None:
        statistics = run(config)
        assert_transactions_add_up(statistics)
        assert_tables_add_up(statistics)
        assert_times_in_flight_add_up(statistics)
        for row in statistics.transactions:
            assert_row_adds_up(row)
            assert_conflicts_add_up(row)
        if config["simulation"]["drain"]:
            assert not statistics.in_flight
        seen.update(committed=statistics.committed, retries=statistics.total_retries, aborted=statistics.aborted)
        seen.update(applied=statistics.in_flight_applied, in_flight=sum(statistics.in_flight.values()))

    check()
    assert all(seen[kind] for kind in ("committed", "retries", "aborted", "in_flight"))


@settings(max_examples=60)
@given(configurations())
def test_append_outcomes_add_up(config: dict[str, Any]) -> None:
    statistics = run(config)
    counters = statistics.catalog_counters
    assert counters.append_physical_success == counters.append_logical_success + counters.append_logical_conflict
    if config["catalog"]["type"] == "append":
        assert counters.append_logical_success == statistics.final_seq
    assert counters.append_compactions_completed <= counters.append_compactions_triggered
    assert counters.append_compactions_triggered - counters.append_compactions_completed <= 1
    finished_failures = sum(row.append_physical_failures for row in statistics.transactions)
    assert finished_failures <= counters.append_physical_failure
