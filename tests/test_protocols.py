"""The commit protocols, operation by operation: what the design documents count, counted.

Seeds 001 and 002 are the documents with worked examples. Most latencies are distinct prime numbers of
milliseconds, and rivals pay no manifest I/O, so that counts and sums name the operation that is missing.
"""

from __future__ import annotations

import math
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from endive import catalog as catalogs
from endive import transaction as operations
from endive.catalog import AppendCatalog, AppendLog, CASCatalog, Catalog, CatalogCounters, InstantCatalog
from endive.config import build_simulation_config, parse_settings
from endive.manifest_list import ManifestListCounters, ManifestLists
from endive.operation_costs import ConflictCost, CostPerCommit, OperationCosts
from endive.policy import CommitPolicy, ConflictingManifests, ManifestListLog, ObjectSizes
from endive.simulation import Simulation, SimulationConfig, Statistics
from endive.storage import ArtifactLatency, FixedLatency, ProfiledStorage, SizeBasedLatency, StorageResult
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage, run_generator
from endive.transaction import WHOLE_TABLE, Transaction, TransactionResult

READ, CAS, APPEND, MISS = 7.0, 11.0, 5.0, 37.0
LIST_READ, LIST_WRITE = 13.0, 17.0
FILE_READ, FILE_WRITE = 19.0, 23.0
METADATA_READ, METADATA_WRITE = 29.0, 31.0
ATTEMPT = LIST_READ + FILE_WRITE + LIST_WRITE  # 53
WORK = 1000.0

APPENDS = operations.FastAppendTransaction
MERGES = operations.MergeAppendTransaction
OVERWRITES = operations.ValidatedOverwriteTransaction
BARE = OperationCosts("bare", first_attempt=ConflictCost(), redone_attempt=ConflictCost())


def lake(**artifacts: ArtifactLatency) -> ProfiledStorage:
    """Return a store with the latencies above."""
    latencies = {
        "catalog": ArtifactLatency(read=FixedLatency(READ)),
        "manifest_file": ArtifactLatency(FixedLatency(FILE_READ), FixedLatency(FILE_WRITE)),
        "metadata": ArtifactLatency(FixedLatency(METADATA_READ), FixedLatency(METADATA_WRITE)),
    }
    return fixed_storage(LIST_READ, LIST_WRITE, CAS, APPEND, append_failure_ms=MISS, artifacts=latencies | artifacts)


def catalog_of(kind: str, shape: tuple[int, ...], **options: Any) -> Catalog:
    return {"cas": CASCatalog, "append": AppendCatalog}[kind](lake(), len(shape), shape, **options)


def writer(
    kind: type[Transaction] = APPENDS,
    txn_id: int = 0,
    submit_ms: float = 0.0,
    tables: Iterable[int] = (0,),
    partitions: Mapping[int, Iterable[int]] | None = None,
    runtime_ms: float = WORK,
    **options: Any,
) -> Transaction:
    """Return a transaction; submitted at 0 it reads from 0 to 7, works to 1007, and starts to commit at 1060."""
    tracked = None if partitions is None else {table: frozenset(chosen) for table, chosen in partitions.items()}
    return kind(txn_id, submit_ms, runtime_ms, frozenset(tables), tracked, **options)


def bare(txn_id: int, submit_ms: float, table: int = 0, partition: int | None = None) -> Transaction:
    """Return a transaction that does no work and no manifest I/O."""
    tracked = None if partition is None else {table: (partition,)}
    return writer(APPENDS, txn_id, submit_ms, (table,), tracked, 0.0, costs=BARE)


def rival(txn_id: int, commit_ms: float, table: int = 0, partition: int | None = None) -> Transaction:
    """Return a bare transaction whose compare-and-swap takes effect at `commit_ms`."""
    return bare(txn_id, commit_ms - CAS - READ, table, partition)


def play(
    transactions: Sequence[Transaction], catalog: Catalog | None = None, shape: tuple[int, ...] = (1,), **options: Any
) -> tuple[Statistics, dict[int, TransactionResult]]:
    """Run transactions on tables of so many partitions; return the statistics, and the rows by transaction id."""
    workload = ScriptedWorkload(lambda: transactions, len(shape), shape)
    settings: dict[str, Any] = {"duration_ms": 1e6, "storage": lake(), "workload": workload, "num_tables": len(shape)}
    settings |= {"partitions_per_table": shape, "catalog": catalog or catalog_of("cas", shape)}
    statistics = Simulation(create_test_config(**(settings | options))).run()
    assert statistics.final_seq == statistics.committed
    return statistics, {row.txn_id: row for row in statistics.transactions}


def configure(toml: str, **transaction: Any) -> SimulationConfig:
    """Return the configuration that `toml` describes, with more keys of its [transaction]."""
    config = tomllib.loads(toml)
    config["transaction"] |= transaction
    return build_simulation_config(parse_settings(config))


def some(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


COUNTS = {
    "lists_read": "manifest_list_reads", "historical": "historical_ml_reads", "lists_written": "manifest_list_writes",
    "lists_appended": "manifest_list_appends", "files_read": "manifest_file_reads",
    "files_written": "manifest_file_writes", "metadata_read": "metadata_reads", "metadata_written": "metadata_writes",
}  # fmt: skip


def counts_of(row: TransactionResult) -> dict[str, int]:
    """Return the manifest and metadata operations of a row that are not zero."""
    return some({name: getattr(row, attribute) for name, attribute in COUNTS.items()})


def conflicts_of(row: TransactionResult) -> tuple[int, int, int]:
    return row.no_overlap_conflicts, row.false_conflicts, row.real_conflicts


def commit(
    catalog: Catalog, base: catalogs.CatalogSnapshot, txn_id: int, table: int
) -> Generator[float, None, catalogs.CommitResult]:
    """Propose the next version of a table."""
    writes = {table: base.tables[table].version + 1}
    return catalog.commit(base.seq, writes, 0.0, catalogs.IntentionRecord(txn_id, base.seq, writes, base=base))


# Seed 002: T1 updates table A, T2 table B; both start from version 0.

ONE_ATTEMPT = {"lists_read": 1, "lists_written": 1, "files_written": 1}
TWO = (1, 1)


def test_seed_002_non_conflicting_transactions_by_compare_and_swap() -> None:
    """1 failure, 1 retry. Seed 002 counts 1 list read and 1 list write for it; v2.0 supersedes this: 0 and 0."""
    statistics, rows = play([writer(txn_id=1), writer(txn_id=2, submit_ms=100.0, tables=(1,))], shape=TWO)
    assert (statistics.committed, statistics.total_retries) == (2, 1)
    assert (conflicts_of(rows[1]), conflicts_of(rows[2])) == ((0, 0, 0), (1, 0, 0))
    assert counts_of(rows[1]) == counts_of(rows[2]) == ONE_ATTEMPT
    assert rows[2].commit_latency_ms == ATTEMPT + CAS + READ + CAS


def test_seed_002_count_of_a_retry_that_rewrites_the_list() -> None:
    """Seed 002's 1 list read and 1 list write for the retry: A and B as parts of a table that overlaps as a whole.

    The manifest file is kept, which is the other thing that seed 002 does and v2.0 does not.
    """
    relist = OperationCosts("append", redone_attempt=ConflictCost(manifest_list_reads=1, manifest_list_writes=1))
    first = writer(txn_id=1, partitions={0: (0,)}, costs=relist)
    second = writer(txn_id=2, submit_ms=100.0, partitions={0: (1,)}, costs=relist)
    statistics, rows = play([first, second], shape=(2,), policy=CommitPolicy(overlap="table"))
    assert (statistics.committed, statistics.total_retries, conflicts_of(rows[2])) == (2, 1, (0, 1, 0))
    assert counts_of(rows[1]) == ONE_ATTEMPT
    assert counts_of(rows[2]) == {"lists_read": 1 + 1, "lists_written": 1 + 1, "files_written": 1}


def test_seed_002_non_conflicting_transactions_by_append() -> None:
    """1 physical failure, 0 logical conflicts, no conflict resolution; both commit."""
    transactions = [writer(txn_id=1), writer(txn_id=2, submit_ms=100.0, tables=(1,))]
    statistics, rows = play(transactions, catalog_of("append", TWO), TWO)
    assert (statistics.committed, statistics.total_retries) == (2, 0)
    expected = CatalogCounters(append_physical_success=2, append_physical_failure=1, append_logical_success=2)
    assert statistics.catalog_counters == expected
    assert counts_of(rows[1]) == counts_of(rows[2]) == ONE_ATTEMPT
    assert [rows[txn_id].append_physical_failures for txn_id in (1, 2)] == [0, 1]
    assert [rows[txn_id].catalog_commit_ms for txn_id in (1, 2)] == [APPEND + READ, MISS + APPEND + READ]


def test_seed_002_offsets_of_the_log() -> None:
    """T1 appends at 0: the log ends at 100; T2 at the stale 0, then at 100: it ends at 200."""
    catalog = catalog_of("append", TWO)
    base = run_generator(catalog.read())[1]
    assert base.log_offset == 0
    for table, offset, failures in ((0, 100, 0), (1, 200, 1)):
        result = run_generator(commit(catalog, base, table, table))[1]
        assert (result.success, result.physical_failures) == (True, failures)
        assert run_generator(catalog.read())[1].log_offset == offset


LOGICAL_FAILURE = {"append": CatalogCounters(3, 1, 2, 1), "cas": CatalogCounters()}
"""T1 lands; T2 misses at its stale offset, lands and is not applied, lands again after the read."""


@pytest.mark.parametrize("kind", LOGICAL_FAILURE)
@pytest.mark.parametrize(("overlap", "conflicts", "lists_read"), [("table", (0, 1, 0), 2), ("partition", (1, 0, 0), 1)])
def test_seed_002_ml_plus_with_a_false_conflict(
    kind: str, overlap: Any, conflicts: tuple[int, int, int], lists_read: int
) -> None:
    """T1 and T2 update partitions P1 and P2 of table A: 1 catalog (logical) failure, 0 list re-appends.

    Where the table overlaps as a whole, v2.0 (8.10) has T2 read the list before it retries.
    """
    transactions = [writer(txn_id=1, partitions={0: (0,)}), writer(txn_id=2, submit_ms=100.0, partitions={0: (1,)})]
    catalog, policy = catalog_of(kind, (2,), scope="table"), CommitPolicy(overlap=overlap)
    statistics, rows = play(transactions, catalog, (2,), ml_append_mode=True, policy=policy)
    assert statistics.committed == 2
    assert (conflicts_of(rows[1]), conflicts_of(rows[2])) == ((0, 0, 0), conflicts)
    assert statistics.manifest_list_counters == ManifestListCounters(manifest_append_physical_success=2)
    assert statistics.catalog_counters == LOGICAL_FAILURE[kind]
    assert counts_of(rows[1]) == {"lists_read": 1, "lists_appended": 1, "files_written": 1}
    assert counts_of(rows[2]) == {"lists_read": lists_read, "lists_appended": 1, "files_written": 1}


@pytest.mark.parametrize("kind", LOGICAL_FAILURE)
def test_seed_002_ml_plus_with_a_real_conflict(kind: str) -> None:
    """T1 and T2 update one partition: manifest files are read, merged and written, and the entry appended again.

    The overwrite reads the list that it missed, and k = 3 files; it writes 3 merged ones besides one an attempt.
    """
    transactions = [writer(txn_id=1, partitions={0: (0,)}), writer(OVERWRITES, 2, 100.0, partitions={0: (0,)})]
    policy = CommitPolicy(on_real_conflict="merge", conflicting_manifests=ConflictingManifests(FixedLatency(3.0)))
    options: dict[str, Any] = {"ml_append_mode": True, "real_conflict_probability": 1.0, "policy": policy}
    statistics, rows = play(transactions, catalog_of(kind, (2,), scope="table"), (2,), **options)
    assert (statistics.committed, conflicts_of(rows[2])) == (2, (0, 0, 1))
    expected = {"lists_read": 1 + 1 + 1, "historical": 1, "lists_appended": 1 + 1, "files_read": 3}
    assert counts_of(rows[2]) == expected | {"files_written": 1 + 3 + 1}
    assert rows[2].conflict_io_ms == LIST_READ + FILE_READ + FILE_WRITE
    assert statistics.manifest_list_counters == ManifestListCounters(3, manifest_append_orphans=1)
    assert statistics.catalog_counters == LOGICAL_FAILURE[kind]


# Seed 001: a transaction 150 s behind at 25 commits a second. Between its reads of the catalog pass 150,000 ms
# (runtime + attempt 58 + compare-and-swap 1 + read 1), then 28,200 ms (938 batches of 30 + the same 60).

FIRST_READ, SECOND_READ = math.ceil(3750 / 4) * 30.0, math.ceil(705 / 4) * 30.0
SEED_001 = """
simulation = { duration_ms = 186_000, seed = 1 }
catalog = { type = "instant", latency_ms = 1 }
storage.provider = "instant"
storage.latency.manifest_list.read = { distribution = "fixed", value = 30 }
storage.latency.manifest_list.write = { distribution = "fixed", value = 14 }
storage.latency.manifest_file.write = { distribution = "fixed", value = 14 }
transaction.costs.bare = { manifest_list_reads = 0, manifest_list_writes = 0, manifest_file_writes = 0 }

[[streams]]
name = "commits"
inter_arrival = { distribution = "fixed", value = 40 }
runtime = { distribution = "fixed", value = 0 }
operation_types.bare = 1

[[streams]]
name = "overwrite"
clients = 1
think_time = { distribution = "fixed", value = 1020 }
runtime = { distribution = "fixed", value = 149_940 }
operation_types.validated_overwrite = 1
"""


@pytest.mark.parametrize(
    ("retry", "lists", "conflict_ms"), [(1, 3750, FIRST_READ), (2, 3750 + 705, FIRST_READ + SECOND_READ)]
)
def test_seed_001_latency_breakdown(retry: int, lists: int, conflict_ms: float) -> None:
    """The first retry reads 3,750 lists in 28.1 s, the second the 705 written meanwhile, in 5.3 s."""
    assert (FIRST_READ, SECOND_READ) == (28_140.0, 5_310.0)
    rows = Simulation(configure(SEED_001, retry=retry)).run().transactions
    (row,) = [row for row in rows if row.stream == "overwrite"]
    assert (row.abort_reason, row.false_conflicts) == ("max_retries_exceeded", retry)
    assert row.historical_ml_reads == lists
    assert row.manifest_list_reads == lists + 1 + retry
    assert row.conflict_io_ms == pytest.approx(conflict_ms)


@pytest.mark.parametrize("busy", [1, 2])
def test_seed_001_total_commit_latency(busy: int) -> None:
    """Commits to the partition cease: the second retry succeeds, 33.6 s after the work. Another's cost nothing."""
    commits = [
        bare(1 + busy * index + partition, 18.0 + 10.0 * partition + 40.0 * index, 0, partition)
        for index in range(3750 + 705)
        for partition in range(busy)
    ]
    overwrite = writer(OVERWRITES, partitions={0: (0,)}, runtime_ms=149_940.0)
    catalog, policy = InstantCatalog(1, (2,), 1.0, scope="partition"), CommitPolicy(list_per="partition")
    statistics, rows = play([overwrite, *commits], catalog, (2,), storage=fixed_storage(30.0, 14.0), policy=policy)
    assert statistics.committed == 1 + busy * 4455
    assert statistics.total_retries == rows[0].total_retries == rows[0].false_conflicts == 2
    assert rows[0].historical_ml_reads == 4455
    assert rows[0].conflict_io_ms == pytest.approx(FIRST_READ + SECOND_READ)
    assert rows[0].commit_latency_ms == pytest.approx(59.0 + (28_140.0 + 60.0) + (5_310.0 + 60.0))


IN_STEP = """
simulation = { duration_ms = 6030, seed = 1 }
catalog.latency_ms = 10
storage.provider = "instant"
storage.latency.manifest_list.read = { distribution = "fixed", value = 10 }
storage.latency.manifest_list.write = { distribution = "fixed", value = 10 }
storage.latency.manifest_file.write = { distribution = "fixed", value = 20 }
transaction = { retry = 1000, operation_types.fast_append = 1, think_time = { distribution = "fixed", value = 0 } }
"""


@pytest.mark.parametrize("kind", [CASCatalog, InstantCatalog])
@pytest.mark.parametrize(("clients", "away"), [(2, 0), (5, 0), (16, 0), (5, 1), (16, 1)])
def test_one_of_equals_in_step_wins_each_round(kind: type[Catalog], clients: int, away: int) -> None:
    """A round is read 10, attempt 40, commit 10. A winner is away for the rounds in which it works."""
    rounds: dict[float, list[bool]] = defaultdict(list)

    class Noted(kind):  # type: ignore[misc,valid-type]
        def commit(self, expected_seq: int, writes: Mapping[int, int], timestamp_ms: float = 0.0, *rest: Any) -> Any:
            result = yield from super().commit(expected_seq, writes, timestamp_ms, *rest)
            rounds[timestamp_ms + result.latency_ms].append(result.success)
            return result

    runtime = {"distribution": "fixed", "value": 60 * away}
    config = configure(IN_STEP, clients=clients, runtime=runtime)
    catalog = Noted(1, (1,), 10.0) if kind is InstantCatalog else Noted(fixed_storage(10.0, cas_ms=10.0), 1, (1,))
    rows = Simulation(replace(config, catalog=catalog)).run().transactions
    assert list(rounds) == [60.0 * number for number in range(1 + away, 101)]
    for number, outcomes in enumerate(rounds.values()):
        assert outcomes.count(True) == 1
        assert len(outcomes) == (clients if number == 0 else clients - away)
    # Lower ids first: the n-th to arrive wins the n-th round, having lost those that it was there for.
    assert [row.txn_id for row in rows] == list(range(1, len(rounds) + 1))
    for row in rows:
        assert row.total_retries == min(row.txn_id, clients - (row.txn_id > clients) * away) - 1


@pytest.mark.parametrize("compaction_ms", [41.0, None])
@pytest.mark.parametrize(
    ("entry_bytes", "threshold", "max_entries", "entries_to_seal"),
    [  # 300 bytes are not more than 300; 11 entries of 100 bytes are not more than 16 MB.
        (100, 300, 0, 4), (100, 299, 0, 3), (250, 1000, 0, 5), (100, 150, 5, 2), (100, 16_000_000, 0, 160_001),
        (100, 16_000_000, 3, 3), (100, 16_000_000, 1, 1), (100, 500, 2, 2),
    ],
)  # fmt: skip
def test_compaction_comes_exactly_at_the_threshold(
    entry_bytes: int, threshold: int, max_entries: int, entries_to_seal: int, compaction_ms: float | None
) -> None:
    """Eleven commits one after the other: who follows a seal pays the compaction, by default a compare-and-swap."""
    latency = None if compaction_ms is None else FixedLatency(compaction_ms)
    log = AppendLog(entry_bytes, threshold, max_entries, compaction_latency=latency)
    commits = [bare(number, 200.0 * number) for number in range(11)]
    statistics, rows = play(commits, catalog_of("append", (1,), log=log))
    for number, row in rows.items():
        compacts = number > 0 and number % entries_to_seal == 0
        assert row.catalog_commit_ms == (compaction_ms or CAS) * compacts + APPEND + READ
    triggered, completed = 11 // entries_to_seal, 10 // entries_to_seal
    assert statistics.catalog_counters == CatalogCounters(11, 0, 11, 0, triggered, completed)


COMPACT = 41.0
LANDS = APPEND + READ


@pytest.mark.parametrize(
    ("commits_ms", "triggered", "completed"),
    [
        ([COMPACT + LANDS, COMPACT + MISS + LANDS], 2, 1),
        # The third finds the log sealed again by the second's record.
        ([COMPACT + LANDS, COMPACT + MISS + LANDS, COMPACT + MISS + MISS + COMPACT + LANDS], 2, 2),
    ],
)
def test_everyone_who_knows_of_the_seal_compacts(commits_ms: list[float], triggered: int, completed: int) -> None:
    """Two records seal the log; racers that read it sealed all compact, one of them to effect, then race to append."""
    log = AppendLog(compaction_max_entries=2, compaction_latency=FixedLatency(COMPACT))
    racers = [bare(2 + number, 500.0, table=number) for number in range(len(commits_ms))]
    catalog = catalog_of("append", (1, 1, 1), log=log)
    statistics, rows = play([bare(0, 0.0), bare(1, 100.0), *racers], catalog, (1, 1, 1))
    assert [rows[2 + number].catalog_commit_ms for number in range(len(commits_ms))] == commits_ms
    counters = statistics.catalog_counters
    assert (counters.append_compactions_triggered, counters.append_compactions_completed) == (triggered, completed)
    assert (counters.append_logical_success, counters.append_logical_conflict) == (2 + len(racers), 0)


ENTRY = LIST_READ + FILE_WRITE + APPEND
REWRITTEN = LIST_READ + FILE_WRITE + MISS + LIST_READ + LIST_WRITE + APPEND


@pytest.mark.parametrize(("seal_bytes", "entries"), [(149, 3), (150, 4), (1, 1), (0, 100)])
def test_a_full_manifest_list_is_rewritten_by_the_next_appender(seal_bytes: int, entries: int) -> None:
    """Entries of 50 bytes; an appender to a sealed list misses, reads and writes the list, and appends."""
    policy = CommitPolicy(manifest_list_log=ManifestListLog(50, seal_bytes))
    appends = [writer(txn_id=number, submit_ms=500.0 * number, runtime_ms=0.0) for number in range(9)]
    statistics, rows = play(appends, ml_append_mode=True, policy=policy)
    for number, row in rows.items():
        rewrites = number > 0 and number % entries == 0
        assert (row.manifest_list_reads, row.manifest_list_writes) == (1 + rewrites, rewrites)
        assert row.manifest_list_appends == 1
        assert row.per_attempt_io_ms == (REWRITTEN if rewrites else ENTRY)
    rewrites = 8 // entries
    assert statistics.manifest_list_counters == ManifestListCounters(9, rewrites, rewrites)


def test_of_two_who_rewrite_a_sealed_list_the_first_wins_and_both_pay() -> None:
    """The third entry seals. Two write it anew at once; the second's entry then misses the first's, and lands."""
    first = [writer(txn_id=number, submit_ms=500.0 * number, runtime_ms=0.0) for number in range(3)]
    racers = [writer(txn_id=3 + number, submit_ms=2000.0, partitions={0: (number,)}) for number in range(2)]
    catalog, policy = (
        catalog_of("cas", (2,), scope="partition"),
        CommitPolicy(manifest_list_log=ManifestListLog(50, 120)),
    )
    statistics, rows = play(first + racers, catalog, (2,), ml_append_mode=True, policy=policy)
    assert statistics.total_retries == 0
    assert [rows[number].manifest_list_writes for number in (3, 4)] == [1, 1]
    assert [rows[number].per_attempt_io_ms for number in (3, 4)] == [REWRITTEN, REWRITTEN + MISS]
    assert statistics.manifest_list_counters == ManifestListCounters(5, 2 + 1, 1)


def test_an_entry_for_a_list_that_was_rewritten_meanwhile_misses() -> None:
    """The new list is another object, though it ends at the offset at which the old one did when it was read."""
    lists, key = ManifestLists(ManifestListLog(entry_bytes=50, seal_bytes=40)), (0, WHOLE_TABLE)
    read = lists.end(key)
    assert lists.try_append(key, read)
    lists.rewrite(key, read.generation)
    assert lists.end(key).offset == read.offset
    assert not lists.try_append(key, read)
    assert lists.try_append(key, lists.end(key))


RUN = READ + WORK + ATTEMPT + CAS + READ + LIST_READ  # 1091: to the end of the validation that finds the conflict
RESTART = CommitPolicy(on_real_conflict="restart")


class LoggedStorage(ProfiledStorage):
    """A store that notes what is read and written, in which order."""

    log: list[str]

    def read(self, key: str, expected_size_bytes: int) -> Generator[float, None, StorageResult]:
        self.log.append(f"read {key}")
        return super().read(key, expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        self.log.append(f"write {key}")
        return super().write(key, size_bytes)


def test_the_order_of_all_that_a_merged_conflict_takes() -> None:
    """Two missed commits, one file each to validate, two files to merge, metadata not inlined."""
    store = lake()
    storage = LoggedStorage(store.rng, store.profile, store.failures, store.artifacts)
    storage.log = []
    policy = CommitPolicy(
        on_real_conflict="merge",
        conflicting_manifests=ConflictingManifests(FixedLatency(2.0)),
        table_metadata_inlined=False,
    )
    overwrite = writer(OVERWRITES, validation_manifests_per_commit=1.0)
    rivals = [bare(1, 100.0), bare(2, 200.0)]
    options: dict[str, Any] = {"storage": storage, "policy": policy, "real_conflict_probability": 1.0}
    play([overwrite, *rivals], **options)
    bare_commit = ["read metadata/0", "write metadata/0"]
    attempt = ["read manifest_list/0", "write manifest_file/0", "write manifest_list/0", "write metadata/0"]
    validation = ["read manifest_list/0"] * 2 + ["read manifest_file/0"] * 2
    merge = ["read manifest_file/0"] * 2 + ["write manifest_file/0"] * 2
    first = ["read metadata/0", *bare_commit, *bare_commit, *attempt]
    assert storage.log == [*first, *validation, *merge, "read metadata/0", *attempt]


@pytest.mark.parametrize("max_restarts", [0, 1, 3])
def test_restarts_add_up_and_end_with_a_validation_exception(max_restarts: int) -> None:
    """A rival commits under each run of the overwrite: it runs 1 + `max_restarts` times, each from a new snapshot."""
    runs = 1 + max_restarts
    transactions = [writer(OVERWRITES), *(rival(1 + number, 500.0 + number * RUN) for number in range(6))]
    policy = replace(RESTART, max_restarts=max_restarts)
    statistics, rows = play(transactions, real_conflict_probability=1.0, policy=policy)
    row = rows[0]
    assert (row.abort_reason, row.abort_time_ms, row.restarts) == ("validation_exception", runs * RUN, max_restarts)
    assert (row.runtime_ms, row.restart_ms, row.start_ms) == (WORK, max_restarts * WORK, READ)
    assert (row.attempts, row.total_retries, conflicts_of(row)) == (1, 0, (0, 0, runs))
    assert (row.catalog_read_ms, row.per_attempt_io_ms) == (2 * runs * READ, runs * ATTEMPT)
    assert (row.catalog_commit_ms, row.conflict_io_ms) == (runs * CAS, runs * LIST_READ)
    assert row.commit_latency_ms == runs * RUN - READ - WORK
    assert counts_of(row) == {"lists_read": 2 * runs, "historical": runs, "lists_written": runs, "files_written": runs}
    assert statistics.validation_exceptions == 1


def test_retries_start_again_after_a_restart() -> None:
    """Two failures a run with `retry` 2: free at 1071, real at 1089; so twice. The third run commits at once."""
    again = 1089.0 + READ + LIST_READ
    commits = [(start + instant, table) for start in (0.0, again) for instant, table in ((500.0, 1), (1083.0, 0))]
    rivals = [rival(1 + number, commit_ms, table) for number, (commit_ms, table) in enumerate(commits)]
    options: dict[str, Any] = {"real_conflict_probability": 1.0, "max_retries": 2, "policy": RESTART}
    row = play([writer(OVERWRITES), *rivals], shape=TWO, **options)[1][0]
    assert (row.abort_reason, row.restarts, row.attempts) == (None, 2, 1)
    assert conflicts_of(row) == (2, 0, 2)
    assert row.commit_time_ms == 2 * again + READ + WORK + ATTEMPT + CAS


def test_the_timeout_starts_again_after_a_restart() -> None:
    """Commits of 64 ms, limit 100: the second run's first failure, 1155 ms after the first work, may be retried."""
    rivals = [rival(1, 500.0), rival(2, RUN + 500.0, table=1)]
    options: dict[str, Any] = {"real_conflict_probability": 1.0, "policy": replace(RESTART, total_timeout_ms=100.0)}
    row = play([writer(OVERWRITES), *rivals], shape=TWO, **options)[1][0]
    assert (row.abort_reason, row.restarts, conflicts_of(row)) == (None, 1, (1, 0, 1))
    assert row.commit_time_ms == RUN + READ + WORK + ATTEMPT + CAS + READ + CAS


@pytest.mark.parametrize(("duration_ms", "restarts"), [(RUN - 1.0, 0), (RUN, 0), (math.nextafter(RUN, 2e3), 1)])
def test_no_restart_from_the_duration_on_with_drain(duration_ms: float, restarts: int) -> None:
    """The restart would come at 1091. The run that it begins meets nobody, and commits."""
    options: dict[str, Any] = {"duration_ms": duration_ms, "drain": True, "policy": RESTART}
    statistics, rows = play([writer(OVERWRITES), rival(1, 500.0)], real_conflict_probability=1.0, **options)
    assert (rows[0].restarts, statistics.committed) == (restarts, 1 + restarts)
    assert rows[0].abort_reason == (None if restarts else "validation_exception")


@pytest.mark.parametrize(
    ("drawn", "merged"), [(0.2, 1), (1.0, 1), (2.9, 2), (4.0, 4), (5.0, 5), (10.0, 10), (99.0, 10)]
)
def test_a_merge_reads_and_writes_so_many_files(drawn: float, merged: int) -> None:
    """The draw is rounded down, 1 to 10; four files at a time. The attempt is redone besides."""
    policy = CommitPolicy(on_real_conflict="merge", conflicting_manifests=ConflictingManifests(FixedLatency(drawn)))
    row = play([writer(OVERWRITES), rival(1, 500.0)], real_conflict_probability=1.0, policy=policy)[1][0]
    assert (row.abort_reason, conflicts_of(row)) == (None, (0, 0, 1))
    files = {"files_read": merged, "files_written": 2 + merged}
    assert counts_of(row) == {"lists_read": 2 + 1, "historical": 1, "lists_written": 2} | files
    assert row.conflict_io_ms == LIST_READ + math.ceil(merged / 4) * (FILE_READ + FILE_WRITE)
    assert row.per_attempt_io_ms == 2 * ATTEMPT


# Changed: nothing, a table of others, one only read, one written, both written.
@pytest.mark.parametrize(("changed", "redone"), [([], 0), ([3], 0), ([2], 0), ([1], 1), ([0, 1, 1, 3], 2)])
def test_table_metadata_counts(changed: list[int], redone: int) -> None:
    """Tables 0 to 2 are read and 0 and 1 written: 3 reads at the start, 2 writes; both again for each one redone."""
    rivals = [rival(1 + number, 200.0 + 100.0 * number, table) for number, table in enumerate(changed)]
    transaction = writer(tables=(0, 1), tables_read=frozenset({0, 1, 2}))
    row = play([transaction, *rivals], shape=(1,) * 4, policy=CommitPolicy(table_metadata_inlined=False))[1][0]
    assert (row.metadata_reads, row.metadata_writes) == (3 + redone, 2 + redone)
    assert (row.start_ms, row.manifest_list_reads) == (READ + 3 * METADATA_READ, 2 + redone)
    end = READ + 3 * METADATA_READ + WORK + 2 * (ATTEMPT + METADATA_WRITE) + CAS
    if changed:
        end += READ + redone * (METADATA_READ + ATTEMPT + METADATA_WRITE) + CAS
    assert row.commit_time_ms == end


def missed(*commits: tuple[int, int, int]) -> list[Transaction]:
    """Return rivals under the work of a writer, from (table, partition, how many)."""
    written = [(table, partition) for table, partition, count in commits for _ in range(count)]
    return [rival(1 + number, 50.0 + 20.0 * number, *where) for number, where in enumerate(written)]


@pytest.mark.parametrize("history", ["catalog", "table"])
@pytest.mark.parametrize(
    ("kind", "overlap", "historical", "merged", "lists_redone"),
    [
        (APPENDS, "partition", 0, 0, 2),
        (OVERWRITES, "partition", 2 + 3, 0, 2),
        (MERGES, "partition", 0, 3 + 4, 2),  # floor(1.5 x 2) + floor(1.5 x 3)
        (OVERWRITES, "table", 2 + 3, 0, 3),
    ],
)
def test_lists_per_partition(
    history: Any, kind: type[Transaction], overlap: Any, historical: int, merged: int, lists_redone: int
) -> None:
    """Partitions 0, 1 and 2 are written; missed are 2 commits to 1, 3 to 2, and 4 to 5, which is not written.

    Each list that overlaps is charged its own commits; only with overlap by table is the third list redone.
    """
    policy = CommitPolicy(list_per="partition", history=history, overlap=overlap)
    transactions = [writer(kind, partitions={0: (0, 1, 2)}), *missed((0, 1, 2), (0, 2, 3), (0, 5, 4))]
    row = play(transactions, shape=(6,), policy=policy)[1][0]
    lists, files = 3 + lists_redone, {"files_read": merged, "files_written": 1 + 1 + merged}
    expected = {"lists_read": lists + historical, "historical": historical, "lists_written": lists} | files
    assert (counts_of(row), conflicts_of(row)) == (some(expected), (0, 1, 0))
    assert row.per_attempt_io_ms == lists * (LIST_READ + LIST_WRITE) + 2 * FILE_WRITE


@pytest.mark.parametrize("version", [0, 1, 7])
def test_the_list_grows_with_the_version_of_its_table(version: int) -> None:
    """10 KiB and 2 KiB for each commit, at 3 ms + 1 ms a KiB: the first write knows version 0, the redone one N."""
    storage = lake(manifest_list=ArtifactLatency(FixedLatency(LIST_READ), SizeBasedLatency(3.0, 1024.0, 0.0)))
    transactions = [writer(), *missed((0, 0, version), (1, 0, 3)), writer(txn_id=99, submit_ms=5000.0)]
    policy = CommitPolicy(sizes=ObjectSizes(list_growth=2048))
    _, rows = play(transactions, shape=TWO, storage=storage, policy=policy)

    def attempt(known: int) -> float:
        return LIST_READ + FILE_WRITE + 3.0 + 10.0 + 2.0 * known

    assert rows[0].per_attempt_io_ms == pytest.approx(attempt(0) + (attempt(version) if version else 0.0))
    assert rows[99].per_attempt_io_ms == pytest.approx(attempt(version + 1))


@pytest.mark.parametrize(
    ("overlap", "history", "redone", "historical"),
    [
        ("partition", "catalog", 1, 6),
        ("partition", "table", 1, 3),
        ("table", "catalog", 2, 6),
        ("table", "table", 2, 5),
    ],
)
def test_history_and_overlap(overlap: Any, history: Any, redone: int, historical: int) -> None:
    """Missed: 3 commits to table 0 (1 to the partition written), 2 to other partitions of table 1, 1 to table 2.

    By table, N counts all commits to an overlapping table; table 1 overlaps only as a whole.
    """
    rivals = missed((0, 0, 1), (0, 1, 2), (1, 1, 2), (2, 0, 1))
    overwrite = writer(OVERWRITES, tables=(0, 1), partitions={0: (0,), 1: (0,)})
    row = play([overwrite, *rivals], shape=(2, 2, 2), policy=CommitPolicy(overlap=overlap, history=history))[1][0]
    assert (conflicts_of(row), row.historical_ml_reads) == ((0, 1, 0), historical)
    assert (row.manifest_list_writes, row.manifest_file_writes) == (2 + redone, 2 + redone)


@pytest.mark.parametrize("kind", ["cas", "append"])
@pytest.mark.parametrize(("max_retries", "versions"), [(0, (1, 0, 0)), (1, (2, 1, 1))])
def test_a_commit_to_several_tables_is_all_or_nothing(kind: str, max_retries: int, versions: tuple[int, ...]) -> None:
    """Table 0 changed: nothing is installed. Then all is, and only table 0 was done again."""
    transactions, shape = [writer(tables=(0, 1, 2)), rival(1, 500.0)], (1, 1, 1)
    statistics, rows = play(transactions, catalog_of(kind, shape, scope="table"), shape, max_retries=max_retries)
    assert statistics.table_versions == versions
    assert (rows[0].manifest_list_writes, rows[0].tables_written) == (3 + max_retries, (0, 1, 2))


PLAIN = {"lists_read": 2, "lists_written": 2, "files_written": 2}
TEN_BEHIND = """
simulation = { duration_ms = 10_990, seed = 3 }
catalog = { type = "instant", latency_ms = 1 }
storage.provider = "instant"
transaction = {}

[[streams]]
name = "rivals"
inter_arrival = { distribution = "fixed", value = 1000 }
runtime = { distribution = "fixed", value = 0 }
operation_types.bare = 1

[[streams]]
name = "worker"
clients = 1
think_time = { distribution = "fixed", value = 500 }
runtime = { distribution = "fixed", value = 10_000 }
operation_types.%s = 1
"""


def ten_behind(operation: str, costs: dict[str, Any], probability: float = 0.0) -> TransactionResult:
    """Return the row of an operation that misses ten commits and retries once; check that theirs stay as they are."""
    costs = {"bare": {"manifest_list_reads": 1, "manifest_list_writes": 0, "manifest_file_writes": 0}} | costs
    config = configure(TEN_BEHIND % operation, costs=costs, real_conflict_probability=probability)
    rows = Simulation(config).run().transactions
    others = [row for row in rows if row.stream == "rivals"]
    assert [counts_of(row) for row in others] == [{"lists_read": 1}] * 10
    (row,) = [row for row in rows if row.stream == "worker"]
    assert row.operation_type == operation
    return row


@pytest.mark.parametrize("operation", ["fast_append", "row_delta"])
@pytest.mark.parametrize(
    ("override", "change"),
    [
        ({}, {}),
        ({"manifest_list_reads": 3}, {"lists_read": 6}), ({"manifest_list_writes": 0}, {"lists_written": 0}),
        ({"manifest_file_reads": 2}, {"files_read": 4}), ({"manifest_file_writes": 0}, {"files_written": 0}),
        ({"redone": {"manifest_list_reads": 0}}, {"lists_read": 1}),
        ({"redone": {"manifest_list_writes": 5}}, {"lists_written": 6}),
        ({"redone": {"manifest_file_reads": 1}}, {"files_read": 1}),
        ({"redone": {"manifest_file_writes": 0}}, {"files_written": 1}),
        ({"manifest_file_writes": 2, "redone": {"manifest_file_writes": 0}}, {"files_written": 2}),
        ({"per_missed_commit": {"historical_ml_reads": 1.0}}, {"historical": 10, "lists_read": 12}),
        ({"per_missed_commit": {"historical_ml_reads": 0.19}}, {"historical": 1, "lists_read": 3}),
        ({"per_missed_commit": {"manifest_file_reads": 0.25}}, {"files_read": 2}),
        ({"per_missed_commit": {"manifest_file_writes": 0.39}}, {"files_written": 5}),
    ],
)  # fmt: skip
def test_an_override_changes_what_it_names(operation: str, override: dict[str, Any], change: dict[str, int]) -> None:
    """Of the named type alone, built in or added: counts of both attempts, of the redone one, or by missed commit."""
    row = ten_behind(operation, {operation: override, "unused": {"manifest_list_reads": 9}})
    assert (row.abort_reason, conflicts_of(row)) == (None, (0, 1, 0))
    assert counts_of(row) == some(PLAIN | change)


@pytest.mark.parametrize(
    ("like", "extra"),
    [
        ("fast_append", {}), ("merge_append", {"files_read": 15, "files_written": 2 + 15}),
        ("validated_overwrite", {"historical": 10, "lists_read": 2 + 10}),
    ],
)  # fmt: skip
def test_an_added_type_starts_from_another(like: str, extra: dict[str, int]) -> None:
    assert counts_of(ten_behind("mine", {"mine": {"like": like}})) == PLAIN | extra
    changed = ten_behind("mine", {"mine": {"like": like, "manifest_list_writes": 0}})
    assert counts_of(changed) == some(PLAIN | extra | {"lists_written": 0})


@pytest.mark.parametrize(
    ("operation", "override", "real"),
    [
        ("fast_append", {"can_conflict": True}, 1), ("validated_overwrite", {"can_conflict": False}, 0),
        ("mine", {"like": "merge_append", "can_conflict": True}, 1), ("mine", {"like": "validated_overwrite"}, 1),
        ("mine", {}, 0),
    ],
)  # fmt: skip
def test_whether_a_type_can_conflict(operation: str, override: dict[str, Any], real: int) -> None:
    row = ten_behind(operation, {operation: override}, probability=1.0)
    assert conflicts_of(row) == (0, 1 - real, real)
    assert row.abort_reason == ("validation_exception" if real else None)


class Custom(Transaction):
    """What v2.0 asks of a transaction type, with every field of its costs in use."""

    operation_type = "custom"
    behind: int | None = None

    def can_have_real_conflict(self) -> bool:
        return False

    def should_abort_on_real_conflict(self) -> bool:
        return False

    def get_per_attempt_cost(self, ml_append_mode: bool = False) -> ConflictCost:
        return ConflictCost(2, 3, 0 if ml_append_mode else 4, 5, 6, 9)

    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool = False) -> ConflictCost:
        self.behind = n_snapshots_behind
        missed = CostPerCommit(2.0, 3.0, 4.0).times(n_snapshots_behind)
        return replace(missed, manifest_list_reads=7, manifest_list_writes=8)


class CustomWithMetadata(Custom):
    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool = False) -> ConflictCost:
        return replace(super().get_conflict_cost(n_snapshots_behind), metadata_reads=5)


def costing(metadata: int, lists: int, writes: int, historical: int, files: int, written: int) -> float:
    """Return how long it takes: lists and metadata in series, what runs in parallel four at a time."""
    parallel = math.ceil(historical / 4) * LIST_READ + math.ceil(files / 4) * FILE_READ
    parallel += math.ceil(written / 4) * FILE_WRITE
    return metadata * METADATA_READ + lists * LIST_READ + writes * LIST_WRITE + parallel


def test_every_field_of_a_per_attempt_cost_is_paid() -> None:
    """Historical lists are list reads too."""
    row = play([writer(Custom)])[1][0]
    assert (row.per_attempt_io_ms, row.conflict_io_ms) == (costing(2, 3, 4, 5, 6, 9), 0.0)
    lists = {"lists_read": 3 + 5, "historical": 5, "lists_written": 4}
    assert counts_of(row) == lists | {"files_read": 6, "files_written": 9, "metadata_read": 2}


def test_every_field_of_a_conflict_cost_is_paid() -> None:
    """Three commits were missed: 6 historical lists, 9 files read, 12 written; and the attempt is made again."""
    txn = writer(Custom)
    row = play([txn, *missed((0, 0, 3))])[1][0]
    assert txn.behind == 3
    assert (row.per_attempt_io_ms, row.conflict_io_ms) == (2 * costing(2, 3, 4, 5, 6, 9), costing(0, 7, 8, 6, 9, 12))
    lists = {"lists_read": 2 * 8 + 7 + 6, "historical": 2 * 5 + 6, "lists_written": 2 * 4 + 8}
    files = {"files_read": 2 * 6 + 9, "files_written": 2 * 9 + 12}
    assert counts_of(row) == lists | files | {"metadata_read": 2 * 2}


def test_metadata_reads_of_a_conflict_cost_are_paid() -> None:
    """Each is counted and takes its time, as per-attempt I/O: all metadata I/O is (rules.md, results.md)."""
    without, with_five = (play([writer(kind), rival(1, 500.0)])[1][0] for kind in (Custom, CustomWithMetadata))
    assert with_five.metadata_reads == without.metadata_reads + 5
    assert with_five.commit_time_ms == without.commit_time_ms + 5 * METADATA_READ
    assert with_five.per_attempt_io_ms == without.per_attempt_io_ms + 5 * METADATA_READ


def test_list_writes_of_a_custom_attempt_become_appends() -> None:
    """With ML+ its four list writes are four appends; a retry after a false conflict appends nothing."""
    row = play([writer(Custom), rival(1, 500.0)], ml_append_mode=True)[1][0]
    assert (row.manifest_list_appends, conflicts_of(row)) == (4, (0, 1, 0))
