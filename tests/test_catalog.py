"""The catalog's state, its scopes, and the log of the append catalog, driven commit by commit."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from endive.catalog import (
    AppendCatalog,
    AppendLog,
    CASCatalog,
    Catalog,
    CatalogSnapshot,
    CommitResult,
    InstantCatalog,
    IntentionRecord,
    Scope,
)
from endive.config import PROVIDER_PROFILES
from endive.storage import FailureLatencies, FixedLatency, create_provider
from endive.test_utils import fixed_storage, run_generator

PARTITIONS = (3, 3, 3, 3)
KINDS = ["cas", "append", "instant"]


def make(kind: str, **options: Any) -> Catalog:
    if kind == "instant":
        return InstantCatalog(4, PARTITIONS, 5.0, **options)
    return {"cas": CASCatalog, "append": AppendCatalog}[kind](fixed_storage(), 4, PARTITIONS, **options)


def read(catalog: Catalog) -> CatalogSnapshot:
    return run_generator(catalog.read())[1]


def intend(
    base: CatalogSnapshot,
    partitions: dict[int, tuple[int, ...]] | None,
    *tables: int,
    txn_id: int = 1,
    reads: tuple[int, ...] = (),
    partitions_read: dict[int, tuple[int, ...]] | None = None,
) -> IntentionRecord:
    writes = {table: base.tables[table].version + 1 for table in tables}
    return IntentionRecord(
        txn_id, base.seq, writes, partitions, base=base, tables_read=reads, partitions_read=partitions_read
    )


def submit(catalog: Catalog, intention: IntentionRecord) -> Generator[float, None, CommitResult]:
    return catalog.commit(intention.expected_seq, intention.tables_written, 0.0, intention)


def succeeds(catalog: Catalog, intention: IntentionRecord) -> bool:
    return run_generator(submit(catalog, intention))[1].success


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_bumps_sequence_table_and_partitions_by_one(kind: str) -> None:
    catalog = make(kind)
    base = read(catalog)
    assert succeeds(catalog, intend(base, {1: (0, 2)}, 1))
    after = read(catalog)
    assert (base.seq, after.seq, catalog.seq) == (0, 1, 1)
    assert [table.version for table in after.tables] == [0, 1, 0, 0]
    assert after.get_table(1).partition_versions == (1, 0, 1)
    assert after.get_partition_version(1, 2) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_tracks_no_partitions_bumps_all_of_its_tables(kind: str) -> None:
    catalog = make(kind)
    assert succeeds(catalog, intend(read(catalog), None, 0, 2))
    assert [table.partition_versions for table in read(catalog).tables] == [(1,) * 3, (0,) * 3, (1,) * 3, (0,) * 3]


# Two commits from one snapshot; the first always succeeds. Does the second?
SECOND_COMMIT: list[tuple[str, tuple[int, int], tuple[int, int], dict[Scope, bool]]] = [
    ("same partition", (0, 0), (0, 0), {"catalog": False, "group": False, "table": False, "partition": False}),
    ("other partition", (0, 0), (0, 1), {"catalog": False, "group": False, "table": False, "partition": True}),
    ("same group", (0, 0), (2, 0), {"catalog": False, "group": False, "table": True, "partition": True}),
    ("other group", (0, 0), (1, 0), {"catalog": False, "group": True, "table": True, "partition": True}),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["catalog", "group", "table", "partition"])
@pytest.mark.parametrize(("case", "first", "second", "expected"), SECOND_COMMIT)
def test_scope_decides_what_a_commit_must_find_unchanged(
    kind: str, scope: Scope, case: str, first: tuple[int, int], second: tuple[int, int], expected: dict[Scope, bool]
) -> None:
    catalog = make(kind, scope=scope, groups=(0, 1, 0, 1))
    base = read(catalog)
    assert succeeds(catalog, intend(base, {first[0]: (first[1],)}, first[0]))
    assert succeeds(catalog, intend(base, {second[0]: (second[1],)}, second[0])) == expected[scope], case
    assert catalog.seq == 1 + expected[scope]


def test_partition_scope_bumps_the_table_from_where_it_is() -> None:
    catalog = make("cas", scope="partition")
    base = read(catalog)
    for partition in (0, 1, 2):
        assert succeeds(catalog, intend(base, {0: (partition,)}, 0))
    assert read(catalog).tables[0].version == 3


def test_partition_scope_treats_untracked_commits_as_touching_all() -> None:
    catalog = make("cas", scope="partition")
    base = read(catalog)
    assert succeeds(catalog, intend(base, None, 0))
    assert not succeeds(catalog, intend(base, {0: (2,)}, 0))
    assert not succeeds(catalog, intend(base, None, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_serializable_commits_also_need_what_they_read_unchanged(kind: str) -> None:
    for scope, expected in (("table", False), ("partition", True)):
        catalog = make(kind, scope=scope)
        base = read(catalog)
        assert succeeds(catalog, intend(base, {0: (0,)}, 0))
        reader = intend(base, {1: (0,)}, 1, reads=(0, 1), partitions_read={0: (1,), 1: (0,)})
        assert succeeds(catalog, reader) == expected, scope


def test_a_table_read_without_listed_partitions_is_read_whole() -> None:
    catalog = make("cas", scope="partition")
    base = read(catalog)
    assert succeeds(catalog, intend(base, {1: (2,)}, 1))
    reader = intend(base, {0: (0,)}, 0, reads=(0, 1), partitions_read={0: (0,)})
    assert not succeeds(catalog, reader)


def test_multi_table_commits_are_all_or_nothing() -> None:
    catalog = make("cas", scope="table")
    base = read(catalog)
    assert succeeds(catalog, intend(base, None, 0))
    assert not succeeds(catalog, intend(base, None, 0, 1))
    assert [table.version for table in read(catalog).tables] == [1, 0, 0, 0]


def test_without_an_intention_the_proposed_versions_are_what_is_expected() -> None:
    catalog = make("cas", scope="table")
    assert run_generator(catalog.commit(0, {0: 1}))[1].success
    assert not run_generator(catalog.commit(0, {0: 1}))[1].success
    assert run_generator(catalog.commit(0, {0: 2}))[1].success


def test_snapshots_share_their_tables() -> None:
    catalog = make("instant")
    first, second = read(catalog), read(catalog)
    assert first.tables is second.tables
    assert succeeds(catalog, intend(second, None, 1))
    third = read(catalog)
    assert third.tables[0] is first.tables[0]
    assert first.tables[1].version == 0


def test_a_snapshot_is_stamped_when_it_was_taken() -> None:
    for effect_point, stamp in ((1.0, 105.0), (0.5, 102.5), (0.0, 100.0)):
        elapsed_ms, snapshot = run_generator(make("instant", effect_point=effect_point).read(100.0))
        assert (elapsed_ms, snapshot.timestamp_ms) == (5.0, stamp)


def test_fresh_state_shares_nothing_and_views_share_all() -> None:
    catalog = make("cas")
    view, fresh = catalog.bind(fixed_storage().rng), catalog.fresh()
    assert succeeds(view, intend(read(view), None, 0))
    assert (catalog.seq, view.seq, fresh.seq) == (1, 1, 0)


def test_unacknowledged_commits_are_known_until_they_are_answered() -> None:
    catalog = make("cas", effect_point=0.5)
    commit = submit(catalog, intend(read(catalog), None, 0, 2, txn_id=9))
    next(commit)
    assert (catalog.seq, dict(catalog.report().unacknowledged)) == (0, {})
    next(commit)
    assert (catalog.seq, dict(catalog.report().unacknowledged)) == (1, {9: (0, 2)})
    with pytest.raises(StopIteration):
        next(commit)
    assert not catalog.report().unacknowledged


def test_partition_counts_must_match_the_tables() -> None:
    with pytest.raises(ValueError, match="2 partition counts for 3 tables"):
        InstantCatalog(3, (1, 1))


def test_effect_point_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"effect_point is 1.5"):
        InstantCatalog(1, (1,), effect_point=1.5)


@pytest.mark.parametrize(
    ("effect_point", "failure_ms", "expected_ms"),
    [(1.0, 7.0, 7.0), (1.0, 2.0, 5.0), (0.5, 2.0, 2.5), (0.5, 4.0, 4.0), (0.0, 2.0, 2.0)],
)
def test_a_failure_is_known_at_its_latency_but_not_before_it_is_decided(
    effect_point: float, failure_ms: float, expected_ms: float
) -> None:
    """Compare-and-swap 5 ms: the answer comes at max(f·L, L of failure)."""
    storage = fixed_storage(cas_failure_ms=failure_ms)
    catalog = CASCatalog(storage, 4, PARTITIONS, effect_point=effect_point)
    base = read(catalog)
    assert succeeds(catalog, intend(base, None, 0))
    assert run_generator(submit(catalog, intend(base, None, 0))) == (expected_ms, CommitResult(False, expected_ms))


def test_a_failure_latency_is_drawn_on_failure_only() -> None:
    """One number for a swap that succeeds, a second one for a swap that fails."""
    rng, other = np.random.RandomState(3), np.random.RandomState(3)
    storage = create_provider("gcp", rng, PROVIDER_PROFILES, failures=FailureLatencies(cas=True))
    catalog = CASCatalog(storage, 4, PARTITIONS)
    intention = intend(read(catalog), None, 0)
    other.standard_normal()
    for draws, succeeded in ((1, True), (2, False)):
        assert succeeds(catalog, intention) == succeeded
        other.standard_normal(draws)
        assert rng.standard_normal() == other.standard_normal()


class TestAppendLog:
    """read 10 ms, append 4 ms, compare-and-swap 5 ms, failed append 50 ms where given."""

    def test_a_landed_record_costs_an_append_and_a_discovery_read(self) -> None:
        catalog = make("append")
        elapsed_ms, result = run_generator(submit(catalog, intend(read(catalog), None, 0)))
        assert (elapsed_ms, result) == (14.0, CommitResult(True, 14.0))
        assert read(catalog).log_offset == 100

    def test_a_stale_offset_fails_physically_and_appends_again_at_the_reported_one(self) -> None:
        storage = fixed_storage(append_failure_ms=50.0)
        catalog = AppendCatalog(storage, 4, PARTITIONS)
        base = read(catalog)
        assert succeeds(catalog, intend(base, None, 0))
        elapsed_ms, result = run_generator(submit(catalog, intend(base, None, 1)))
        assert elapsed_ms == 50.0 + 4.0 + 10.0
        assert result == CommitResult(True, 64.0, physical_failures=1)
        counters = catalog.report().counters
        assert (counters.append_physical_success, counters.append_physical_failure) == (2, 1)
        assert (counters.append_logical_success, counters.append_logical_conflict) == (2, 0)

    def test_one_failure_tells_where_the_log_ends_however_far_behind_the_client_is(self) -> None:
        catalog = make("append")
        base = read(catalog)
        for table in (0, 1, 2):
            assert succeeds(catalog, intend(read(catalog), None, table))
        elapsed_ms, result = run_generator(submit(catalog, intend(base, None, 3)))
        assert (elapsed_ms, result) == (18.0, CommitResult(True, 18.0, physical_failures=1))
        assert read(catalog).log_offset == 400

    def test_a_record_that_does_not_apply_is_in_the_log_all_the_same(self) -> None:
        catalog = make("append")
        base = read(catalog)
        assert succeeds(catalog, intend(base, None, 0))
        assert not succeeds(catalog, intend(base, None, 0))
        assert (catalog.seq, read(catalog).log_offset) == (1, 200)
        assert catalog.report().counters.append_logical_conflict == 1

    def test_physical_retries_are_limited(self) -> None:
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=AppendLog(max_physical_retries=0))
        base = read(catalog)
        assert succeeds(catalog, intend(base, None, 0))
        elapsed_ms, result = run_generator(submit(catalog, intend(base, None, 1)))
        assert (elapsed_ms, result) == (4.0, CommitResult(False, 4.0, physical_failures=1))
        assert (catalog.seq, read(catalog).log_offset) == (1, 100)

    def test_the_retry_after_the_last_allowed_one_is_not_made(self) -> None:
        """A rival lands before each append: with one retry allowed, the second miss is the end."""
        for allowed, misses in ((1, 2), (2, 3)):
            catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=AppendLog(max_physical_retries=allowed))
            commit = submit(catalog, intend(read(catalog), None, 1, txn_id=2))
            result = None
            while result is None:
                assert succeeds(catalog, intend(read(catalog), None, 0))
                try:
                    next(commit)
                except StopIteration as stop:
                    result = stop.value
            assert result == CommitResult(False, 4.0 * misses, physical_failures=misses)

    @pytest.mark.parametrize(
        ("log", "entries_to_seal"),
        [
            (AppendLog(compaction_max_entries=3), 3),
            (AppendLog(compaction_threshold_bytes=300), 4),
            (AppendLog(compaction_threshold_bytes=299), 3),
            (AppendLog(compaction_threshold_bytes=500, compaction_max_entries=2), 2),
        ],
    )
    def test_the_append_that_crosses_a_threshold_seals(self, log: AppendLog, entries_to_seal: int) -> None:
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=log)
        for entry in range(1, entries_to_seal + 1):
            assert not read(catalog).log_sealed
            assert succeeds(catalog, intend(read(catalog), None, entry % 4))
        assert read(catalog).log_sealed
        assert catalog.report().counters.append_compactions_triggered == 1

    def test_who_knows_of_the_seal_compacts_first(self) -> None:
        log = AppendLog(compaction_max_entries=1, compaction_latency=FixedLatency(70.0))
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=log)
        assert succeeds(catalog, intend(read(catalog), None, 0))
        elapsed_ms, result = run_generator(submit(catalog, intend(read(catalog), None, 1)))
        assert elapsed_ms == 70.0 + 4.0 + 10.0
        assert result.success
        assert result.physical_failures == 0
        counters = catalog.report().counters
        assert (counters.append_compactions_triggered, counters.append_compactions_completed) == (2, 1)

    def test_a_compaction_takes_at_least_the_providers_floor(self) -> None:
        storage = create_provider("s3x", np.random.RandomState(1), PROVIDER_PROFILES)
        log = AppendLog(compaction_max_entries=1, compaction_latency=FixedLatency(3.0))
        catalog = AppendCatalog(storage, 4, PARTITIONS, log=log)
        assert succeeds(catalog, intend(read(catalog), None, 0))
        assert next(submit(catalog, intend(read(catalog), None, 1))) == 10.0

    def test_who_does_not_know_of_the_seal_learns_it_from_a_failed_append(self) -> None:
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=AppendLog(compaction_max_entries=1))
        stale = read(catalog)
        assert succeeds(catalog, intend(stale, None, 0))
        elapsed_ms, result = run_generator(submit(catalog, intend(stale, None, 1)))
        assert elapsed_ms == 4.0 + 5.0 + 4.0 + 10.0
        assert result == CommitResult(True, 23.0, physical_failures=1)

    def test_of_two_compactions_the_first_to_arrive_wins_and_both_pay(self) -> None:
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=AppendLog(compaction_max_entries=1))
        assert succeeds(catalog, intend(read(catalog), None, 0))
        base = read(catalog)
        first, second = submit(catalog, intend(base, None, 1)), submit(catalog, intend(base, None, 2, txn_id=2))
        assert (next(first), next(second)) == (5.0, 5.0)
        next(first)
        next(second)
        assert catalog.report().counters.append_compactions_completed == 1
        assert run_generator(first)[1].success
        assert run_generator(second)[1].success

    def test_a_compaction_that_comes_too_late_yields_the_offset_of_its_instant(self) -> None:
        """The winner has compacted and appended; the loser pays the swap, and appends without a miss."""
        catalog = AppendCatalog(fixed_storage(), 4, PARTITIONS, log=AppendLog(compaction_max_entries=2))
        assert succeeds(catalog, intend(read(catalog), None, 0))
        assert succeeds(catalog, intend(read(catalog), None, 0))
        base = read(catalog)
        loser = submit(catalog, intend(base, None, 2, txn_id=2))
        assert next(loser) == 5.0
        assert succeeds(catalog, intend(base, None, 1))
        assert run_generator(loser)[1] == CommitResult(True, 5.0 + 4.0 + 10.0, physical_failures=0)
        assert catalog.report().counters.append_compactions_completed == 1

    def test_a_compaction_that_comes_second_is_a_failed_swap(self) -> None:
        """Compare-and-swap 5, its failure 50: the loser waits 50 before it appends."""
        log = AppendLog(compaction_max_entries=1)
        catalog = AppendCatalog(fixed_storage(cas_failure_ms=50.0), 4, PARTITIONS, log=log)
        assert succeeds(catalog, intend(read(catalog), None, 0))
        base = read(catalog)
        first, second = submit(catalog, intend(base, None, 1)), submit(catalog, intend(base, None, 2, txn_id=2))
        assert [next(first), next(second)] == [5.0, 5.0]
        assert next(first) == 4.0
        assert next(second) == 45.0

    def test_racing_appenders_of_one_version_never_both_succeed(self) -> None:
        """Every interleaving of two commits, step by step."""
        outcomes = set()
        for schedule in range(2**8):
            catalog = AppendCatalog(fixed_storage(append_failure_ms=6.0), 4, PARTITIONS, effect_point=0.5)
            base = read(catalog)
            racers = [submit(catalog, intend(base, None, 0, txn_id=txn_id)) for txn_id in (1, 2)]
            done: dict[int, bool] = {}
            for step in range(40):
                racer = (schedule >> step % 8) & 1 if len(done) == 0 else 1 - next(iter(done))
                if len(done) == 2:
                    break
                try:
                    next(racers[racer])
                except StopIteration as stop:
                    done[racer] = stop.value.success
            if len(done) == 2:
                assert sorted(done.values()) == [False, True]
                assert catalog.seq == 1
                outcomes.add(done[0])
        assert outcomes == {False, True}
