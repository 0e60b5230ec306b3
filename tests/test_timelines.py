"""Timelines computed by hand from the specification, with fixed latencies, to the millisecond.

Every latency is another prime number, so that a wrong sum names the operation that is missing. Most tests
submit a writer at 0 that works for a second, and rivals, which pay no manifest I/O, to commit under it:

    0 read 7 work 1007 attempt 1060 commit 1071
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from endive.catalog import AppendCatalog, AppendLog, CASCatalog, Catalog, CatalogCounters, InstantCatalog
from endive.policy import CommitPolicy
from endive.simulation import Simulation, Statistics
from endive.storage import ArtifactLatency, FixedLatency, LatencyDistribution, ProfiledStorage
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage
from endive.transaction import (
    ConflictCost,
    FastAppendTransaction,
    MergeAppendTransaction,
    OperationCosts,
    Transaction,
    TransactionStatus,
    ValidatedOverwriteTransaction,
)

CATALOG_READ = 7.0
CAS = 11.0
APPEND = 5.0
LIST_READ, LIST_WRITE = 13.0, 17.0
FILE_READ, FILE_WRITE = 19.0, 23.0
METADATA_READ, METADATA_WRITE = 29.0, 31.0
RUNTIME = 1000.0

ATTEMPT = LIST_READ + FILE_WRITE + LIST_WRITE
WORKED = CATALOG_READ + RUNTIME  # 1007: the work of a writer submitted at 0 is done
ANSWER = WORKED + ATTEMPT + CAS  # 1071: its first commit is answered
FREE_RETRY = CATALOG_READ + CAS
RETRY = CATALOG_READ + ATTEMPT + CAS  # 71: a retry that redoes its manifests
MERGED = FILE_READ + FILE_WRITE  # a batch of manifest files is read and written

NOTHING = ConflictCost()
RIVAL = OperationCosts("rival", first_attempt=NOTHING, redone_attempt=NOTHING)
MERGE, OVERWRITE = "merge_append", "validated_overwrite"
OPERATIONS: dict[str, type[Transaction]] = {
    "fast_append": FastAppendTransaction,
    MERGE: MergeAppendTransaction,
    OVERWRITE: ValidatedOverwriteTransaction,
}


@dataclass(frozen=True)
class Row:
    """All that is checked of a finished transaction. The defaults are a writer's that meets nobody.

    Times in milliseconds: when it ended, then what it spent. `free`, `false` and `real` count its conflicts.
    """

    end: float
    start: float = CATALOG_READ
    read: float = CATALOG_READ
    attempt: float = ATTEMPT
    conflict: float = 0.0
    commit: float = CAS
    backoff: float = 0.0
    reason: str | None = None
    retries: int = 0
    free: int = 0
    false: int = 0
    real: int = 0
    lists_read: int = 1
    historical: int = 0
    lists_written: int = 1
    lists_appended: int = 0
    files_read: int = 0
    files_written: int = 1
    metadata_read: int = 0
    metadata_written: int = 0
    physical: int = 0


ATTRIBUTES = (
    "start_ms", "catalog_read_ms", "per_attempt_io_ms", "conflict_io_ms", "catalog_commit_ms", "backoff_ms",
    "abort_reason", "total_retries", "no_overlap_conflicts", "false_conflicts", "real_conflicts",
    "manifest_list_reads", "historical_ml_reads", "manifest_list_writes", "manifest_list_appends",
    "manifest_file_reads", "manifest_file_writes", "metadata_reads", "metadata_writes", "append_physical_failures",
)  # fmt: skip


def redone(times: int, **changes: object) -> Row:
    """Return the row of a fast append that commits after `times` false conflicts."""
    attempts = times + 1
    spent = {"read": attempts * CATALOG_READ, "attempt": attempts * ATTEMPT, "commit": attempts * CAS}
    counts = {"lists_read": attempts, "lists_written": attempts, "files_written": attempts}
    row = Row(ANSWER + times * RETRY, retries=times, false=times, **spent, **counts)
    return replace(row, **changes)


class SequenceLatency(LatencyDistribution):
    """The given durations, in the order in which they are drawn."""

    def __init__(self, *latencies_ms: float) -> None:
        self._left: Iterator[float] = iter(latencies_ms)

    def sample(self, rng: np.random.RandomState) -> float:
        return next(self._left)

    def mean_ms(self) -> float:
        raise NotImplementedError


def lake(cas_failure_ms: float | None = None, append_failure_ms: float | None = None) -> ProfiledStorage:
    """Return a store whose operations take the latencies above."""
    artifacts = {
        "catalog": ArtifactLatency(read=FixedLatency(CATALOG_READ)),
        "manifest_file": ArtifactLatency(FixedLatency(FILE_READ), FixedLatency(FILE_WRITE)),
        "metadata": ArtifactLatency(FixedLatency(METADATA_READ), FixedLatency(METADATA_WRITE)),
    }
    failures = {"cas_failure_ms": cas_failure_ms, "append_failure_ms": append_failure_ms}
    return fixed_storage(LIST_READ, LIST_WRITE, CAS, APPEND, artifacts=artifacts, **failures)


def writer(
    operation: str = "fast_append",
    txn_id: int = 0,
    submit_ms: float = 0.0,
    runtime_ms: float = RUNTIME,
    tables: Sequence[int] = (0,),
    partitions: Sequence[int] | None = None,
) -> Transaction:
    """Return a transaction; `partitions` are those of table 0 that it writes."""
    tracked = None if partitions is None else {0: frozenset(partitions)}
    return OPERATIONS[operation](txn_id, submit_ms, runtime_ms, frozenset(tables), tracked)


def bare(
    txn_id: int, submit_ms: float, runtime_ms: float, table: int = 0, partitions: Sequence[int] | None = None
) -> Transaction:
    """Return a transaction without manifest I/O: its commit starts when its work is done."""
    tracked = None if partitions is None else {table: frozenset(partitions)}
    return FastAppendTransaction(txn_id, submit_ms, runtime_ms, frozenset({table}), tracked, costs=RIVAL)


def rival(txn_id: int, commit_ms: float, table: int = 0, partitions: Sequence[int] | None = None) -> Transaction:
    """Return a transaction whose compare-and-swap succeeds at `commit_ms`."""
    return bare(txn_id, commit_ms - CAS - CATALOG_READ, 0.0, table, partitions)


def append_rival(txn_id: int, landed_ms: float, table: int = 0) -> Transaction:
    """Return a transaction whose record lands in the log of an append catalog at `landed_ms`."""
    return bare(txn_id, landed_ms - APPEND - CATALOG_READ, 0.0, table)


def rivals(count: int, table: int = 0) -> list[Transaction]:
    """Return rivals 1 to `count`, which commit at 100, 200, ...: all of them while the writer works."""
    return [rival(number, 100.0 * number, table) for number in range(1, count + 1)]


def simulate(
    transactions: Sequence[Transaction],
    catalog: Catalog | None = None,
    storage: ProfiledStorage | None = None,
    partitions: tuple[int, ...] = (1,),
    duration_ms: float = 10_000.0,
    **options: object,
) -> Statistics:
    """Run transactions on tables of so many partitions, by compare-and-swap if need be; check the accounts."""
    storage = storage or lake()
    config = create_test_config(
        duration_ms=duration_ms,
        num_tables=len(partitions),
        partitions_per_table=partitions,
        storage=storage,
        catalog=catalog or CASCatalog(storage, len(partitions), partitions),
        workload=ScriptedWorkload(lambda: transactions, len(partitions), partitions),
        **options,
    )
    statistics = Simulation(config).run()
    check_accounts(statistics)
    return statistics


def check_accounts(statistics: Statistics) -> None:
    """Check the accounting identities of a run."""
    rows = statistics.transactions
    assert len(rows) == statistics.committed + statistics.aborted
    assert statistics.submitted == len(rows) + statistics.in_flight.total()
    assert statistics.final_seq == statistics.committed + statistics.in_flight_applied
    written = Counter(table for row in rows if row.abort_reason is None for table in row.tables_written)
    written += statistics.in_flight_applied_tables
    assert statistics.table_versions == tuple(written[table] for table in range(len(statistics.table_versions)))
    for count in ("manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes"):
        assert getattr(statistics, count) == sum(getattr(row, count) for row in rows)
    assert statistics.total_retries == sum(row.total_retries for row in rows)
    assert statistics.validation_exceptions == sum(row.abort_reason == "validation_exception" for row in rows)


def row_of(statistics: Statistics, txn_id: int = 0) -> Row:
    """Return a row of the results, once its times and its states are found to agree exactly."""
    result = next(result for result in statistics.transactions if result.txn_id == txn_id)
    committed = result.abort_reason is None
    assert result.status is (TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED)
    end, other = (result.commit_time_ms, result.abort_time_ms)[:: 1 if committed else -1]
    assert other == -1.0
    row = Row(end, *(getattr(result, name) for name in ATTRIBUTES))
    assert result.total_latency_ms == end - result.submit_time_ms
    assert result.commit_latency_ms == result.total_latency_ms - row.start - result.runtime_ms
    assert result.commit_latency_ms == row.read - row.start + row.attempt + row.conflict + row.commit + row.backoff
    assert result.attempts == row.retries + 1
    return row


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("catalog", "read", "commit"),
    [
        (CASCatalog(lake(), 1, (1,)), CATALOG_READ, CAS),
        (InstantCatalog(1, (1,), latency_ms=3.0), 3.0, 3.0),
        (AppendCatalog(lake(), 1, (1,)), CATALOG_READ, APPEND + CATALOG_READ),  # the commit reads its discovery
    ],
    ids=["cas", "instant", "append"],
)
def test_alone(operation: str, catalog: Catalog, read: float, commit: float) -> None:
    """Read, work, one attempt, one commit; the type of operation makes no difference."""
    statistics = simulate([writer(operation, submit_ms=100.0)], catalog)
    end = 100.0 + read + RUNTIME + ATTEMPT + commit
    assert row_of(statistics) == Row(end, start=read, read=read, commit=commit)
    result = statistics.transactions[0]
    assert (result.operation_type, result.submit_time_ms, result.runtime_ms) == (operation, 100.0, RUNTIME)
    assert result.commit_latency_ms == ATTEMPT + commit
    assert result.tables_written == (0,)


def test_alone_writing_two_tables() -> None:
    """Each written table has its attempt, in series; the commit is one."""
    row = row_of(simulate([writer(tables=(0, 1))], partitions=(1, 1)))
    assert row == Row(ANSWER + ATTEMPT, attempt=2 * ATTEMPT, lists_read=2, lists_written=2, files_written=2)


def test_generated_arrivals_come_after_one_delay_each() -> None:
    """Arrivals at 100, 200, 300, 400 (not at 500 = duration); reads of 10, writes of 20, catalog answers of 1."""
    config = create_test_config(
        duration_ms=500.0,
        inter_arrival_ms=100.0,
        runtime_ms=200.0,
        storage=fixed_storage(10.0, 20.0),
        catalog=InstantCatalog(1, (1,), latency_ms=1.0),
        workload_options={"fast_append_weight": 1.0, "merge_append_weight": 0.0, "validated_overwrite_weight": 0.0},
    )
    statistics = Simulation(config).run()
    assert statistics.submitted == 4
    # The second one fails at 200 + 1 + 200 + 50 + 1 = 452, reads until 453, and is redoing its attempt.
    assert statistics.in_flight == Counter({("fast_append", "committing"): 1, ("fast_append", "executing"): 2})
    (result,) = statistics.transactions
    assert result.commit_time_ms == 100.0 + 1.0 + 200.0 + (10.0 + 20.0 + 20.0) + 1.0


@pytest.mark.parametrize("racers", [2, 3])
def test_race(racers: int) -> None:
    """All are answered at 1071, the losers again 71 later, and so on; the lowest id wins each round."""
    statistics = simulate([writer(txn_id=txn_id) for txn_id in range(racers)])
    for txn_id in range(racers):
        assert row_of(statistics, txn_id) == redone(times=txn_id)
    assert [result.txn_id for result in statistics.transactions] == list(range(racers))


FREE = Row(ANSWER + FREE_RETRY, read=2 * CATALOG_READ, commit=2 * CAS, retries=1, free=1)
"""A writer after one conflict without overlap."""
ALONE = Row(ANSWER)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("missed", [1, 3])
def test_cross_table_retry_is_free(operation: str, missed: int) -> None:
    """Commits to another table cost a catalog read and a commit, however many there were, whatever the operation."""
    transactions = [writer(operation), *rivals(missed, table=1)]
    assert row_of(simulate(transactions, partitions=(1, 1), real_conflict_probability=1.0)) == FREE


@pytest.mark.parametrize(
    ("scope", "table", "row"),
    [("catalog", 1, FREE), ("table", 1, ALONE), ("catalog", 0, FREE), ("table", 0, FREE), ("partition", 0, ALONE)],
)
def test_commit_without_overlap_by_scope(scope: str, table: int, row: Row) -> None:
    """A wide scope meets commits that do not overlap, and their retry is free; a narrow one does not meet them."""
    catalog = CASCatalog(lake(), 2, (2, 2), scope=scope)
    transactions = [writer(partitions=[0]), rival(1, 500.0, table, partitions=[1])]
    assert row_of(simulate(transactions, catalog, partitions=(2, 2))) == row


@pytest.mark.parametrize(
    ("own", "other", "overlap"),
    [([0, 1], [1, 2], "partition"), (None, [2], "partition"), ([0], None, "partition"), ([0], [1], "table")],
)
def test_overlapping_partitions(own: list[int] | None, other: list[int] | None, overlap: str) -> None:
    """One partition in common, no tracking on either side, or overlap by table, is an overlap."""
    transactions = [writer(partitions=own), rival(1, 500.0, partitions=other)]
    assert row_of(simulate(transactions, partitions=(3,), policy=CommitPolicy(overlap=overlap))) == redone(1)


def test_only_overlapping_tables_are_redone() -> None:
    """A writer of two tables redoes the one that changed."""
    statistics = simulate([writer(tables=(0, 1)), rival(1, 500.0, table=1)], partitions=(1, 1))
    end = WORKED + 2 * ATTEMPT + CAS + RETRY
    assert row_of(statistics) == redone(1, end=end, attempt=3 * ATTEMPT, lists_read=3, lists_written=3, files_written=3)


@pytest.mark.parametrize(
    ("operation", "missed", "historical", "files", "conflict"),
    [
        ("fast_append", 1, 0, 0, 0.0),
        ("fast_append", 3, 0, 0, 0.0),
        # floor(1.5 N) files read, then as many written, four at a time.
        (MERGE, 1, 0, 1, MERGED),
        (MERGE, 2, 0, 3, MERGED),
        (MERGE, 3, 0, 4, MERGED),
        (MERGE, 6, 0, 9, 3 * MERGED),
        # N historical lists, four at a time.
        (OVERWRITE, 1, 1, 0, LIST_READ),
        (OVERWRITE, 4, 4, 0, LIST_READ),
        (OVERWRITE, 5, 5, 0, 2 * LIST_READ),
    ],
)
def test_false_conflict(operation: str, missed: int, historical: int, files: int, conflict: float) -> None:
    """Read, conflict cost of the N missed commits, attempt, commit."""
    statistics = simulate([writer(operation), *rivals(missed)])
    counts = {"lists_read": 2 + historical, "files_read": files, "files_written": 2 + files}
    end = ANSWER + CATALOG_READ + conflict + ATTEMPT + CAS
    assert row_of(statistics) == redone(1, end=end, conflict=conflict, historical=historical, **counts)


@pytest.mark.parametrize(
    ("operation", "max_parallel", "conflict"),
    [
        (MERGE, 1, 4 * MERGED),
        (MERGE, 2, 2 * MERGED),
        (MERGE, 3, 2 * MERGED),
        (OVERWRITE, 1, 39.0),
        (OVERWRITE, 2, 26.0),
    ],
)
def test_batches_of_max_parallel(operation: str, max_parallel: int, conflict: float) -> None:
    """Three missed commits: four files or three lists, `max_parallel` at a time."""
    row = row_of(simulate([writer(operation), *rivals(3)], policy=CommitPolicy(max_parallel=max_parallel)))
    assert (row.end, row.conflict) == (ANSWER + CATALOG_READ + conflict + ATTEMPT + CAS, conflict)


@pytest.mark.parametrize(
    ("max_parallel", "conflict"), [(1, 105.0), (2, 30.0 + 20.0 + 40.0), (3, 30.0 + 40.0), (4, 30.0 + 40.0)]
)
def test_a_batch_costs_its_slowest(max_parallel: int, conflict: float) -> None:
    """Five historical lists of 30, 10, 20, 5 and 40, between the list reads (2 and 3) of the two attempts."""
    lists = ArtifactLatency(read=SequenceLatency(2.0, 30.0, 10.0, 20.0, 5.0, 40.0, 3.0))
    store = lake()
    storage = ProfiledStorage(store.rng, store.profile, store.failures, {**store.artifacts, "manifest_list": lists})
    policy = CommitPolicy(max_parallel=max_parallel)
    row = row_of(simulate([writer(OVERWRITE), *rivals(5)], storage=storage, policy=policy))
    assert row.conflict == conflict
    assert row.attempt == (2.0 + FILE_WRITE + LIST_WRITE) + (3.0 + FILE_WRITE + LIST_WRITE)


@pytest.mark.parametrize(("factor", "missed", "files"), [(0.5, 1, 0), (0.5, 3, 1), (0.9, 1, 0), (2.5, 3, 7)])
def test_merge_floors_after_multiplying(factor: float, missed: int, files: int) -> None:
    """floor(N x manifests_per_concurrent_commit), read and written."""
    merge = MergeAppendTransaction(0, 0.0, RUNTIME, frozenset({0}), manifests_per_concurrent_commit=factor)
    row = row_of(simulate([merge, *rivals(missed)]))
    assert (row.files_read, row.files_written) == (files, 2 + files)


@pytest.mark.parametrize(("factor", "missed", "files"), [(0.5, 1, 0), (0.5, 3, 1), (0.9, 1, 0), (2.5, 3, 7)])
def test_validation_reads_files_too_where_it_is_told_to(factor: float, missed: int, files: int) -> None:
    """N historical lists, then floor(N x validation_manifests_per_commit) files, four at a time; none is written."""
    options = {"validation_manifests_per_commit": factor}
    overwrite = ValidatedOverwriteTransaction(0, 0.0, RUNTIME, frozenset({0}), **options)
    row = row_of(simulate([overwrite, *rivals(missed)]))
    assert (row.historical, row.files_read, row.files_written) == (missed, files, 2)
    assert row.conflict == LIST_READ + -(-files // 4) * FILE_READ


VALIDATED = redone(1, end=ANSWER + RETRY + LIST_READ, conflict=LIST_READ)
"""A validated overwrite after one false conflict with up to four missed commits."""


def test_n_counts_up_to_the_read_after_the_failure() -> None:
    """A commit at 1075, after the failed answer (1071) and before the end of the read (1078), is missed too."""
    statistics = simulate([writer(OVERWRITE), rival(1, 500.0), rival(2, 1075.0)])
    assert row_of(statistics) == replace(VALIDATED, historical=2, lists_read=2 + 2)


def test_n_counts_from_the_last_read() -> None:
    """Two commits missed at first, one (1100) by the attempt answered at 1155: 2 + 1 lists, not 2 + 3."""
    statistics = simulate([writer(OVERWRITE), *rivals(2), rival(3, 1100.0)])
    end = ANSWER + 2 * (RETRY + LIST_READ)
    assert row_of(statistics) == redone(2, end=end, conflict=2 * LIST_READ, lists_read=3 + (2 + 1), historical=2 + 1)


@pytest.mark.parametrize(
    ("operation", "history", "historical", "files"),
    [
        (OVERWRITE, "catalog", 4, 0),
        (OVERWRITE, "table", 1 + 2, 0),
        (MERGE, "catalog", 0, 6),  # floor(1.5 x 4)
        (MERGE, "table", 0, 1 + 3),  # floor(1.5 x 1) + floor(1.5 x 2)
    ],
)
def test_history_counts(operation: str, history: str, historical: int, files: int) -> None:
    """Missed: one commit to table 0, two to table 1, one to table 2; the writer writes tables 0 and 1."""
    missed = [rival(1 + index, 100.0 * (1 + index), table) for index, table in enumerate((0, 1, 1, 2))]
    transactions = [writer(operation, tables=(0, 1)), *missed]
    row = row_of(simulate(transactions, partitions=(1, 1, 1), policy=CommitPolicy(history=history)))
    assert (row.historical, row.lists_read) == (historical, 4 + historical)
    assert (row.files_read, row.files_written) == (files, 4 + files)
    assert row.attempt == 4 * ATTEMPT


@pytest.mark.parametrize(("missed", "conflict"), [(1, LIST_READ), (5, 2 * LIST_READ)])
def test_real_conflict_aborts_after_the_conflict_io(missed: int, conflict: float) -> None:
    """The overwrite reads the catalog and the lists it missed, then gives up without another attempt."""
    statistics = simulate([writer(OVERWRITE), *rivals(missed)], real_conflict_probability=1.0)
    row = Row(ANSWER + CATALOG_READ + conflict, read=2 * CATALOG_READ, conflict=conflict, reason="validation_exception")
    assert row_of(statistics) == replace(row, real=1, lists_read=1 + missed, historical=missed)
    assert (statistics.aborted, statistics.validation_exceptions) == (1, 1)


@pytest.mark.parametrize(("operation", "merge_ms"), [("fast_append", 0.0), (MERGE, FILE_READ + FILE_WRITE)])
def test_appends_have_no_real_conflicts(operation: str, merge_ms: float) -> None:
    """Whatever the probability, an append retries."""
    row = row_of(simulate([writer(operation), rival(1, 500.0)], real_conflict_probability=1.0))
    assert (row.end, row.false, row.real) == (ANSWER + RETRY + merge_ms, 1, 0)


@pytest.mark.parametrize(
    ("max_retries", "reason"),
    [(0, "max_retries_exceeded"), (1, "max_retries_exceeded"), (2, "max_retries_exceeded"), (3, None)],
)
def test_retries_run_out_at_the_answer(max_retries: int, reason: str | None) -> None:
    """Answers at 1071, 1142, 1213, each after a rival, and 1284; the last failure is not followed by a read."""
    transactions = [writer(), rival(1, 500.0), rival(2, 1100.0), rival(3, 1170.0)]
    assert row_of(simulate(transactions, max_retries=max_retries)) == redone(max_retries, reason=reason)


@pytest.mark.parametrize(
    ("limit_ms", "row"), [(63.0, Row(ANSWER, reason="retry_timeout")), (64.0, redone(1)), (0.0, redone(1))]
)
def test_total_timeout(limit_ms: float, row: Row) -> None:
    """The commit phase has lasted 53 + 11 = 64 when the retry would start: longer than 63, not longer than 64."""
    assert row_of(simulate([writer(), rival(1, 500.0)], policy=CommitPolicy(total_timeout_ms=limit_ms))) == row


def test_retries_that_have_run_out_come_before_the_timeout() -> None:
    policy = CommitPolicy(total_timeout_ms=1.0)
    row = row_of(simulate([writer(), rival(1, 500.0)], max_retries=0, policy=policy))
    assert row == Row(ANSWER, reason="max_retries_exceeded")


BACKOFF = {"backoff_enabled": True, "backoff_base_ms": 100.0, "backoff_max_ms": 300.0, "backoff_jitter": 0.0}


def test_timeout_is_checked_before_the_backoff() -> None:
    """At the first failure 64 <= 70, and the sleep of 100 does not count yet; at the second it has."""
    transactions = [writer(), rival(1, 500.0), rival(2, 1200.0)]
    row = row_of(simulate(transactions, policy=CommitPolicy(total_timeout_ms=70.0), **BACKOFF))
    assert (row.reason, row.end, row.backoff, row.retries) == ("retry_timeout", ANSWER + 100.0 + RETRY, 100.0, 1)


def test_backoff_grows_to_its_maximum() -> None:
    """Sleeps of 100, 200 and min(400, 300) before the reads; answers at 1071, 1242, 1513, 1884."""
    statistics = simulate([writer(), rival(1, 500.0), rival(2, 1200.0), rival(3, 1480.0)], **BACKOFF)
    row = row_of(statistics)
    assert row.end == ANSWER + (100.0 + RETRY) + (200.0 + RETRY) + (300.0 + RETRY)
    assert (row.backoff, row.read, row.retries) == (100.0 + 200.0 + 300.0, 4 * CATALOG_READ, 3)


def test_backoff_comes_before_the_read() -> None:
    """A rival that commits during the sleep (1071 to 1171) is seen by the read, and no second failure follows."""
    statistics = simulate([writer(OVERWRITE), rival(1, 500.0), rival(2, 1150.0)], **BACKOFF)
    row = replace(VALIDATED, end=VALIDATED.end + 100.0, backoff=100.0)
    assert row_of(statistics) == replace(row, historical=2, lists_read=2 + 2)


@pytest.mark.parametrize(
    ("effect_point", "lag_ms", "second_cas_ms", "winner", "first_end", "second_end"),
    [
        # First from 107 to 147. Effects at 147 and 134: the first fails at 147, reads to 154, commits to 164.
        (1.0, 15.0, 12.0, 1, 164.0, 134.0),
        # Effects at 127 and 122 + 6 = 128: the second fails at 134, reads to 141, commits to 151.
        (0.5, 15.0, 12.0, 0, 147.0, 151.0),
        # Effects at 127 and 117 + 5 = 122: the second wins at 127; the first fails at 147.
        (0.5, 10.0, 10.0, 1, 164.0, 127.0),
        # Effects at 107 and 117: the second fails at 127, reads to 134, and ends before the winner has its answer.
        (0.0, 10.0, 10.0, 0, 147.0, 144.0),
    ],
)
def test_interleaved_commits(
    effect_point: float, lag_ms: float, second_cas_ms: float, winner: int, first_end: float, second_end: float
) -> None:
    """A commit of 40 starts at 107, one of 12 or 10 starts `lag_ms` later, the loser's retry takes 10."""
    store = lake()
    profile = replace(store.profile, cas=SequenceLatency(40.0, second_cas_ms, 10.0))
    storage = ProfiledStorage(store.rng, profile, store.failures, store.artifacts)
    catalog = CASCatalog(storage, 1, (1,), effect_point=effect_point)
    statistics = simulate([bare(0, 0.0, 100.0), bare(1, 0.0, 100.0 + lag_ms)], catalog, storage)
    first, second = row_of(statistics, 0), row_of(statistics, 1)
    assert (first.end, second.end) == (first_end, second_end)
    assert (first.retries, second.retries) == (int(winner != 0), int(winner != 1))


@pytest.mark.parametrize(
    ("commit_start_ms", "effect_point", "retries"),
    [
        (997.0, 1.0, 1),  # installed at 1008, read at 1007
        (997.0, 0.5, 0),  # installed at 1002.5, read at 1003.5
        (999.0, 0.5, 1),  # installed at 1004.5, read at 1003.5
        (999.0, 0.0, 0),  # installed at 999, read at 1000
    ],
)
def test_what_a_read_sees(commit_start_ms: float, effect_point: float, retries: int) -> None:
    """A commit of 11 starts just before a read from 1000 to 1007."""
    catalog = CASCatalog(lake(), 1, (1,), effect_point=effect_point)
    statistics = simulate([bare(0, commit_start_ms - CATALOG_READ, 0.0), bare(1, 1000.0, 50.0)], catalog)
    row = row_of(statistics, 1)
    assert (row.end, row.retries) == (1007.0 + 50.0 + CAS + retries * FREE_RETRY, retries)


@pytest.mark.parametrize(
    ("effect_point", "failure_ms", "failed_ms"),
    [(1.0, None, 11.0), (1.0, 40.0, 40.0), (1.0, 4.0, 11.0), (0.5, None, 11.0), (0.5, 8.0, 8.0), (0.5, 4.0, 5.5)],
)
def test_cas_failure_latency(effect_point: float, failure_ms: float | None, failed_ms: float) -> None:
    """A failed compare-and-swap of L = 11 completes at max(f L, L_failure), at L where failure has none."""
    storage = lake(cas_failure_ms=failure_ms)
    catalog = CASCatalog(storage, 1, (1,), effect_point=effect_point)
    statistics = simulate([writer(), rival(1, 500.0)], catalog, storage)
    assert row_of(statistics) == redone(1, end=WORKED + ATTEMPT + failed_ms + RETRY, commit=failed_ms + CAS)
    assert row_of(statistics, 1).commit == CAS


@pytest.mark.parametrize(
    ("effect_point", "failure_ms", "missed_ms"),
    [(1.0, 50.0, 50.0), (1.0, None, 5.0), (1.0, 2.0, 5.0), (0.5, 50.0, 50.0), (0.5, 2.0, 2.5)],
)
def test_append_retries_at_the_new_offset(effect_point: float, failure_ms: float | None, missed_ms: float) -> None:
    """The log has moved: a physical failure, the append at the new offset, the discovery read; no retry."""
    storage = lake(append_failure_ms=failure_ms)
    catalog = AppendCatalog(storage, 2, (1, 1), effect_point=effect_point)
    statistics = simulate([writer(), append_rival(1, 500.0, table=1)], catalog, storage, (1, 1))
    commit = missed_ms + APPEND + CATALOG_READ
    assert row_of(statistics) == Row(WORKED + ATTEMPT + commit, commit=commit, physical=1)
    assert statistics.catalog_counters == CatalogCounters(2, 1, append_logical_success=2)


def test_append_logical_conflict() -> None:
    """The record lands at the second try but the table has changed; the read after the failure is still paid."""
    storage = lake(append_failure_ms=50.0)
    statistics = simulate([writer(), append_rival(1, 500.0)], AppendCatalog(storage, 1, (1,)), storage)
    failed, done = 50.0 + APPEND + CATALOG_READ, APPEND + CATALOG_READ
    end = WORKED + ATTEMPT + failed + CATALOG_READ + ATTEMPT + done
    assert row_of(statistics) == redone(1, end=end, commit=failed + done, physical=1)
    assert statistics.catalog_counters == CatalogCounters(3, 1, append_logical_success=2, append_logical_conflict=1)


def test_append_failure_reports_the_offset_of_its_decision() -> None:
    """Decided at 1065, answered at 1110; a record that lands at 1080 makes the append of 1115 miss again."""
    storage = lake(append_failure_ms=50.0)
    transactions = [writer(), append_rival(1, 500.0, table=1), append_rival(2, 1080.0, table=1)]
    commit = 50.0 + 50.0 + APPEND + CATALOG_READ
    row = row_of(simulate(transactions, AppendCatalog(storage, 2, (1, 1)), storage, (1, 1)))
    assert row == Row(WORKED + ATTEMPT + commit, commit=commit, physical=2)


def test_physical_retries_are_limited() -> None:
    """With a limit of 0 the first failure ends the commit, without a discovery read, and the transaction reads."""
    storage = lake(append_failure_ms=50.0)
    catalog = AppendCatalog(storage, 2, (1, 1), log=AppendLog(max_physical_retries=0))
    statistics = simulate([writer(), append_rival(1, 500.0, table=1)], catalog, storage, (1, 1))
    end = WORKED + ATTEMPT + 50.0 + CATALOG_READ + (APPEND + CATALOG_READ)
    assert row_of(statistics) == replace(FREE, end=end, commit=50.0 + (APPEND + CATALOG_READ), physical=1)


def test_ties_go_to_the_lower_id() -> None:
    """Transactions 1 and 2 both begin an attempt at 378, and 2 has been waiting for that instant the longer.

    0 and 1 race from 0 with a runtime of 200: answers at 271, 1 sleeps to 371 and reads to 378. 2 reads from
    280 to 287, after 0 has committed, and works until 378. Both commits take effect at 378 + 53 + 11 = 442.
    """
    transactions = [writer(txn_id=0, runtime_ms=200.0), writer(txn_id=1, runtime_ms=200.0)]
    statistics = simulate([*transactions, writer(txn_id=2, submit_ms=280.0, runtime_ms=91.0)], **BACKOFF)
    ends = [(row_of(statistics, txn_id).end, row_of(statistics, txn_id).retries) for txn_id in range(3)]
    assert ends == [(271.0, 0), (442.0, 1), (442.0 + 100.0 + RETRY, 1)]


def test_transactions_go_before_arrivals() -> None:
    """With `effect_point` 0 a commit and an arriving reader meet the catalog at 107; the reader sees the commit."""
    catalog = CASCatalog(lake(), 1, (1,), effect_point=0.0)
    statistics = simulate([bare(0, 0.0, 100.0), bare(1, 107.0, 0.0)], catalog)
    assert row_of(statistics, 0).end == 107.0 + CAS
    assert (row_of(statistics, 1).end, row_of(statistics, 1).retries) == (107.0 + CATALOG_READ + CAS, 0)


PHASES = {7: "pending", 7.5: "executing", 1007: "executing", 1007.5: "committing", 1071: "committing", 1071.5: None}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("duration_ms", "phase"), PHASES.items())
def test_cut_transactions_are_counted_by_phase(operation: str, duration_ms: float, phase: str | None) -> None:
    """A run ends before the events at exactly `duration_ms`."""
    statistics = simulate([writer(operation)], duration_ms=duration_ms)
    assert statistics.in_flight == (Counter() if phase is None else Counter({(operation, phase): 1}))
    assert (statistics.submitted, statistics.in_flight_applied) == (1, 0)
    assert statistics.committed == statistics.final_seq == int(phase is None)


def test_all_cut_transactions_are_counted() -> None:
    """At 1100: 0 is redoing its attempt after a failure at 1071, 2 and 3 work, 4 reads."""
    appends = [writer(MERGE, 0), rival(1, 500.0), writer(txn_id=2, submit_ms=600.0)]
    others = [writer(txn_id=3, submit_ms=700.0), writer(OVERWRITE, 4, 1095.0)]
    statistics = simulate([*appends, *others], duration_ms=1100.0)
    assert statistics.in_flight == Counter(
        {(MERGE, "committing"): 1, ("fast_append", "executing"): 2, (OVERWRITE, "pending"): 1}
    )
    assert (statistics.submitted, statistics.committed) == (5, 1)


HALF, LOG = CASCatalog(lake(), 1, (1,), effect_point=0.5), AppendCatalog(lake(), 1, (1,))


@pytest.mark.parametrize(
    ("catalog", "duration_ms", "applied"),
    [(HALF, 1065.5, 0), (HALF, 1066.0, 1), (HALF, ANSWER, 1), (LOG, 1065.0, 0), (LOG, 1065.5, 1), (LOG, 1072.0, 1)],
)
def test_applied_but_not_answered(catalog: Catalog, duration_ms: float, applied: int) -> None:
    """A compare-and-swap from 1060 to 1071 that takes effect at 1065.5; an append to 1065, discovered at 1072."""
    statistics = simulate([writer()], catalog, duration_ms=duration_ms)
    assert statistics.in_flight == Counter({("fast_append", "committing"): 1})
    assert statistics.in_flight_applied == statistics.final_seq == applied
    assert statistics.in_flight_applied_tables == Counter({0: applied})


def test_nothing_is_submitted_from_the_end_on() -> None:
    """Arrivals at exactly `duration_ms` and later do not happen."""
    statistics = simulate([writer(txn_id=txn_id, submit_ms=499.0 + txn_id) for txn_id in range(3)], duration_ms=500.0)
    assert (statistics.submitted, statistics.in_flight) == (1, Counter({("fast_append", "pending"): 1}))


def test_drain_lets_everybody_end() -> None:
    """Two racers submitted at 0 end at 1071 and 1142 though the run's duration is 10; nobody comes at 10."""
    transactions = [writer(txn_id=0), writer(txn_id=1), writer(txn_id=2, submit_ms=10.0)]
    statistics = simulate(transactions, duration_ms=10.0, drain=True)
    assert [result.commit_time_ms for result in statistics.transactions] == [ANSWER, ANSWER + RETRY]
    assert (statistics.submitted, statistics.in_flight.total()) == (2, 0)


METADATA = METADATA_READ + METADATA_WRITE
REDONE = {"attempt": 2 * (METADATA + ATTEMPT), "metadata_read": 2, "metadata_written": 2}
KEPT = {"attempt": METADATA + ATTEMPT, "metadata_read": 1, "metadata_written": 1}


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (None, Row(ANSWER + METADATA, **KEPT)),
        (0, redone(1, end=ANSWER + METADATA + RETRY + METADATA, **REDONE)),
        (1, replace(FREE, end=ANSWER + METADATA + FREE_RETRY, **KEPT)),
    ],
    ids=["alone", "overlap", "cross-table"],
)
def test_metadata_not_inlined(table: int | None, row: Row) -> None:
    """Read at the start, written with the first attempt, read and written with one that redoes manifest work."""
    other = [] if table is None else [bare(1, 500.0, 0.0, table)]
    policy = CommitPolicy(table_metadata_inlined=False)
    statistics = simulate([writer(), *other], partitions=(1, 1), policy=policy)
    assert row_of(statistics) == replace(row, start=CATALOG_READ + METADATA_READ)


ML_ATTEMPT = LIST_READ + FILE_WRITE + APPEND  # 41
ML_ANSWER = WORKED + ML_ATTEMPT + CAS  # 1059
APPENDED = Row(ML_ANSWER, attempt=ML_ATTEMPT, lists_written=0, lists_appended=1)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_ml_append_alone(operation: str) -> None:
    """The tentative append replaces the write of the list."""
    assert row_of(simulate([writer(operation)], ml_append_mode=True)) == APPENDED


@pytest.mark.parametrize(
    ("operation", "missed", "historical", "conflict"),
    [("fast_append", 1, 0, 0.0), ("fast_append", 3, 0, 0.0), (OVERWRITE, 1, 1, LIST_READ), (OVERWRITE, 5, 5, 26.0)],
)
def test_ml_append_false_conflict(operation: str, missed: int, historical: int, conflict: float) -> None:
    """The retry reads the list and commits: no file, no list and no entry is written again."""
    end = ML_ANSWER + CATALOG_READ + conflict + LIST_READ + CAS
    attempt = ML_ATTEMPT + LIST_READ
    row = redone(1, end=end, attempt=attempt, conflict=conflict, lists_read=2 + historical, historical=historical)
    row = replace(row, lists_written=0, lists_appended=1, files_written=1)
    assert row_of(simulate([writer(operation), *rivals(missed)], ml_append_mode=True)) == row


def test_ml_append_cross_table_retry_is_free() -> None:
    """Without overlap not even the list is read."""
    statistics = simulate([writer(), rival(1, 500.0, table=1)], partitions=(1, 1), ml_append_mode=True)
    end = ML_ANSWER + FREE_RETRY
    assert row_of(statistics) == replace(FREE, end=end, attempt=ML_ATTEMPT, lists_written=0, lists_appended=1)


def test_ml_append_at_a_moved_offset() -> None:
    """Both read the list at 1020 and append to 1048; the second misses (50), appends again, and loses to the first."""
    storage = lake(append_failure_ms=50.0)
    statistics = simulate([writer(txn_id=0), writer(txn_id=1)], storage=storage, ml_append_mode=True)
    assert row_of(statistics, 0) == APPENDED
    row = row_of(statistics, 1)
    assert row.attempt == (LIST_READ + FILE_WRITE + 50.0 + APPEND) + LIST_READ
    assert row.end == WORKED + (LIST_READ + FILE_WRITE + 50.0 + APPEND) + CAS + CATALOG_READ + LIST_READ + CAS
    assert (row.false, row.lists_written, row.files_written) == (1, 0, 1)


def test_ml_append_failure_reports_the_end_of_its_decision() -> None:
    """Decided at 1048, answered at 1093; an entry that lands at 1078 makes the append of 1098 miss again."""
    storage = lake(append_failure_ms=50.0)
    transactions = [writer(txn_id=0), writer(txn_id=1), writer(txn_id=2, submit_ms=30.0)]
    statistics = simulate(transactions, storage=storage, ml_append_mode=True)
    row = row_of(statistics, 1)
    appended = LIST_READ + FILE_WRITE + 50.0 + 50.0 + APPEND
    assert row.attempt == appended + LIST_READ
    assert row.end == WORKED + appended + CAS + CATALOG_READ + LIST_READ + CAS
    assert statistics.manifest_list_counters.manifest_append_physical_failure == 2
