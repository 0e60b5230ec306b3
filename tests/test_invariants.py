"""The invariants of the specification (v2.0, section 8), by number.

Transactions and catalogs are driven directly through their generators, against recording stand-ins that fail
on anything that the invariants forbid, or through a whole simulation.
"""

import dataclasses
import heapq
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest

from endive.catalog import (
    AppendCatalog,
    CASCatalog,
    Catalog,
    CatalogSnapshot,
    CommitResult,
    InstantCatalog,
    IntentionRecord,
)
from endive.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.simulation import Simulation, SimulationConfig, Statistics
from endive.storage import (
    ExponentialLatency,
    FailureLatencies,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    ProfiledStorage,
    ProviderProfile,
    SizeBasedLatency,
    StorageProvider,
    StorageResult,
)
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage, run_generator
from endive.transaction import (
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    TransactionResult,
    TransactionStatus,
    ValidatedOverwriteTransaction,
)
from endive.workload import Workload, WorkloadConfig

CATALOGS = ("cas", "append", "instant")
OPERATIONS: dict[str, type[Transaction]] = {
    "fast_append": FastAppendTransaction,
    "merge_append": MergeAppendTransaction,
    "validated_overwrite": ValidatedOverwriteTransaction,
}
PARTITIONS = (3, 3)

Commit = Generator[float, None, CommitResult]


def new_catalog(kind: str, storage: StorageProvider | None = None, partitions: tuple[int, ...] = PARTITIONS) -> Catalog:
    """Return a catalog of a kind, with every commit to one sequence as its precondition."""
    storage = storage or fixed_storage()
    if kind == "instant":
        return InstantCatalog(len(partitions), partitions)
    if kind == "append":
        return AppendCatalog(storage, len(partitions), partitions, scope="catalog")
    return CASCatalog(storage, len(partitions), partitions)


def state_of(catalog: Catalog) -> CatalogSnapshot:
    return run_generator(catalog.read())[1]


def versions_of(snapshot: CatalogSnapshot) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((table.version, table.partition_versions) for table in snapshot.tables)


def propose(
    catalog: Catalog,
    base: CatalogSnapshot,
    tables: Sequence[int] = (0,),
    partitions: Mapping[int, tuple[int, ...]] | None = None,
    txn_id: int = 1,
) -> Commit:
    """Return a commit of the next version of each table, prepared on a snapshot."""
    writes = {table: base.get_table(table).version + 1 for table in tables}
    intention = IntentionRecord(txn_id, base.seq, writes, partitions, base=base)
    return catalog.commit(base.seq, writes, 0.0, intention)


def install(catalog: Catalog, table: int = 0, partitions: Sequence[int] | None = None) -> None:
    """Commit to one table, as somebody else would."""
    tracked = None if partitions is None else {table: tuple(partitions)}
    _, result = run_generator(propose(catalog, state_of(catalog), [table], tracked, txn_id=999))
    assert result.success


class ForbiddenError(AssertionError):
    """Something was used that an invariant forbids."""


class RecordingCatalog(Catalog):
    """A catalog that offers `read()` and `commit()` alone; lets rivals in just before each commit.

    `rivals` lists, for each commit in turn, the tables or (table, partitions) that others commit to first.
    """

    def __init__(self, inner: Catalog, rivals: Sequence[Sequence[Any]] = (), journal: list[str] | None = None) -> None:
        self._inner = inner
        self._rivals = list(rivals)
        self.calls: list[str] = [] if journal is None else journal
        self.results: list[CommitResult] = []
        self.seq_at_commit: list[int] = []

    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        self.calls.append("read")
        return (yield from self._inner.read(timestamp_ms))

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Commit:
        self.calls.append("commit")
        self.seq_at_commit.append(self._inner.seq)
        for rival in self._rivals.pop(0) if self._rivals else ():
            install(self._inner, *(rival if isinstance(rival, tuple) else (rival,)))
        result = yield from self._inner.commit(expected_seq, writes, timestamp_ms, intention)
        self.results.append(result)
        return result

    def _refuse(self, *_: object) -> NoReturn:
        message = "a transaction may only read() and commit()"
        raise ForbiddenError(message)

    seq = property(_refuse)
    fresh = bind = report = _refuse


class RecordingStorage(StorageProvider):
    """A store that notes the operations it is asked for: `"read manifest_list"`."""

    def __init__(self, inner: StorageProvider | None = None, journal: list[str] | None = None) -> None:
        inner = inner or fixed_storage()
        super().__init__(inner.rng)
        self._inner = inner
        self.calls: list[str] = [] if journal is None else journal
        self.results: list[tuple[str, StorageResult]] = []

    def _recorded(
        self, name: str, operation: Callable[..., Generator[float, None, StorageResult]], key: str, *arguments: int
    ) -> Generator[float, None, StorageResult]:
        self.calls.append(f"{name} {key.partition('/')[0]}")
        result = yield from operation(key, *arguments)
        self.results.append((name, result))
        return result

    def read(self, key: str, expected_size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._recorded("read", self._inner.read, key, expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._recorded("write", self._inner.write, key, size_bytes)

    def cas(self, key: str, expected_version: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._recorded("cas", self._inner.cas, key, expected_version, size_bytes)

    def append(self, key: str, offset: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._recorded("append", self._inner.append, key, offset, size_bytes)

    def tail_append(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._recorded("tail_append", self._inner.tail_append, key, size_bytes)

    supports_cas = supports_append = supports_tail_append = True
    name = "recording"
    min_latency_ms = 0.0


def interleave(processes: Sequence[tuple[float, Commit]], watch: Callable[[], None]) -> list[CommitResult]:
    """Run generators of delays side by side, each from its start; call `watch` after every step."""
    queue = [(start, index) for index, (start, _) in enumerate(processes)]
    heapq.heapify(queue)
    results: dict[int, CommitResult] = {}
    while queue:
        now, index = heapq.heappop(queue)
        try:
            heapq.heappush(queue, (now + next(processes[index][1]), index))
        except StopIteration as stop:
            results[index] = stop.value
        watch()
    return [results[index] for index in range(len(processes))]


def execute(
    operation: str,
    catalog: Catalog,
    storage: StorageProvider | None = None,
    *,
    partitions: Sequence[int] | None = None,
    probability: float = 0.0,
    **options: Any,
) -> TransactionResult:
    """Run one transaction that writes table 0."""
    tracked = None if partitions is None else {0: frozenset(partitions)}
    txn = OPERATIONS[operation](0, 0.0, 100.0, frozenset({0}), tracked)
    detector = ProbabilisticConflictDetector(probability, np.random.RandomState(0))
    return run_generator(txn.execute(catalog, storage or fixed_storage(), detector, **options))[1]


def random_config(seed: int | None = 7, **changes: Any) -> SimulationConfig:
    """Return a contended simulation in which everything is random."""
    lognormal = LognormalLatency.from_median
    profile = ProviderProfile(
        name="random",
        title="Random latencies",
        min_latency_ms=2.0,
        read=lognormal(10.0, 0.5),
        write=SizeBasedLatency(5.0, 20.0, 0.4),
        cas=lognormal(12.0, 0.8),
        cas_failure=lognormal(15.0, 0.8),
    )
    storage = ProfiledStorage(np.random.RandomState(0), profile, FailureLatencies(cas=True))
    workload = Workload(
        WorkloadConfig(
            ExponentialLatency(60.0), lognormal(200.0, 1.0), 2, PARTITIONS, 0.4, 0.3, 0.3, partitions_per_txn=2
        )
    )
    settings: dict[str, Any] = {
        "duration_ms": 5000.0,
        "seed": seed,
        "storage_provider": storage,
        "catalog": CASCatalog(storage, 2, PARTITIONS),
        "workload": workload,
        "conflict_detector": ProbabilisticConflictDetector(0.3),
        "backoff_enabled": True,
    }
    return SimulationConfig(**(settings | changes))


# 8.1 Version monotonicity


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_01_version_monotonicity(kind: str) -> None:
    """A success advances the sequence, the tables and the partitions written by exactly 1; a failure, nothing."""
    catalog = new_catalog(kind)
    stale = state_of(catalog)
    expected = [[0, [0, 0, 0]], [0, [0, 0, 0]]]
    for number, (table, partitions) in enumerate([(0, (1,)), (1, (0, 2)), (0, (0, 1, 2)), (1, (1,))], start=1):
        run_generator(propose(catalog, state_of(catalog), [table], {table: partitions}))
        expected[table][0] += 1
        for partition in partitions:
            expected[table][1][partition] += 1
        before = state_of(catalog)
        assert (catalog.seq, before.seq) == (number, number)
        assert catalog.report().unacknowledged == {}
        assert versions_of(before) == tuple((version, tuple(tracked)) for version, tracked in expected)
        _, refused = run_generator(propose(catalog, stale, [table], {table: partitions}))
        assert not refused.success
        assert (catalog.seq, versions_of(state_of(catalog))) == (number, versions_of(before))


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_01_version_monotonicity_in_a_race(kind: str) -> None:
    """Watched at every step of interleaved commits, the sequence never falls and never skips a value."""
    catalog = new_catalog(kind)
    base = state_of(catalog)
    seen = [catalog.seq]
    first = [(start, propose(catalog, base, txn_id=int(start))) for start in (0.0, 1.0, 3.0, 4.0)]
    won = interleave(first, lambda: seen.append(catalog.seq))
    fresh = [(start, propose(catalog, state_of(catalog), [1], txn_id=10 + int(start))) for start in (0.0, 2.0)]
    won += interleave(fresh, lambda: seen.append(catalog.seq))
    assert {after - before for before, after in pairwise(seen)} == {0, 1}
    assert catalog.seq == sum(result.success for result in won) == 2


def test_8_01_version_monotonicity_over_a_run() -> None:
    """The final sequence counts the commits, the final table versions the commits that wrote them."""
    statistics = Simulation(random_config(drain=True)).run()
    written = Counter(
        table for row in statistics.transactions if row.abort_reason is None for table in row.tables_written
    )
    assert statistics.final_seq == statistics.committed > 20
    assert statistics.aborted > 0
    assert statistics.table_versions == (written[0], written[1])


# 8.2 Snapshot isolation


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_02_snapshot_isolation(kind: str) -> None:
    """A snapshot cannot be changed, by its holder or by later commits."""
    catalog = new_catalog(kind)
    snapshot = state_of(catalog)
    for target, name in [(snapshot, "seq"), (snapshot, "tables"), (snapshot.tables[0], "version")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(target, name, 5)
    assert isinstance(snapshot.tables, tuple)
    assert isinstance(snapshot.tables[0].partition_versions, tuple)
    install(catalog, 0, [1])
    assert (snapshot.seq, versions_of(snapshot)) == (0, ((0, (0, 0, 0)), (0, (0, 0, 0))))
    assert snapshot.tables[0].with_version(3).version == 3
    assert snapshot.tables[0].with_partition_version(2, 4).partition_versions == (0, 0, 4)
    assert versions_of(snapshot) == ((0, (0, 0, 0)), (0, (0, 0, 0)))
    assert state_of(catalog).get_partition_version(0, 1) == 1


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_02_snapshot_isolation_until_the_commit(kind: str) -> None:
    """A commit in progress is invisible, then all of it is visible at once."""
    catalog = new_catalog(kind)
    before = versions_of(state_of(catalog))
    commit = propose(catalog, state_of(catalog), [0, 1], {0: (0,), 1: (1, 2)})
    assert next(commit) > 0.0
    assert (catalog.seq, versions_of(state_of(catalog))) == (0, before)
    seen: list[object] = []
    interleave([(0.0, commit)], lambda: seen.append(versions_of(state_of(catalog))))
    after = ((1, (1, 0, 0)), (1, (0, 1, 1)))
    assert set(seen) <= {before, after}
    assert seen[-1] == versions_of(state_of(catalog)) == after


def test_8_02_snapshot_isolation_of_a_transaction() -> None:
    """What a transaction read before its work is what it commits against: it fails if that has changed."""
    catalog = new_catalog("cas")
    txn = FastAppendTransaction(0, 0.0, 100.0, frozenset({0}))
    lifetime = txn.execute(catalog, fixed_storage(), ProbabilisticConflictDetector(0.0))
    assert next(lifetime) == 10.0  # the read
    assert next(lifetime) == 100.0  # the work
    install(catalog)
    assert run_generator(lifetime)[1].total_retries == 1


# 8.3 Manifest list exactness


@pytest.mark.parametrize("kind", CATALOGS)
@pytest.mark.parametrize("missed", [1, 2, 3, 7])
def test_8_03_manifest_list_exactness(kind: str, missed: int) -> None:
    """N snapshots behind with an overlap: exactly N historical lists, beside the one of each attempt."""
    storage = RecordingStorage()
    catalog = RecordingCatalog(new_catalog(kind), [[0] * missed])
    result = execute("validated_overwrite", catalog, storage)
    assert result.historical_ml_reads == missed
    assert result.manifest_list_reads == storage.calls.count("read manifest_list") == 1 + missed + 1


@pytest.mark.parametrize("rival", [(1, [0]), (0, [2])], ids=["cross-table", "disjoint partitions"])
def test_8_03_manifest_list_exactness_without_overlap(rival: tuple[int, list[int]]) -> None:
    """Without an overlap no historical list is read at all."""
    storage = RecordingStorage()
    catalog = RecordingCatalog(new_catalog("cas"), [[rival] * 3])
    result = execute("validated_overwrite", catalog, storage, partitions=[0, 1])
    assert (result.historical_ml_reads, storage.calls.count("read manifest_list")) == (0, 1)
    assert result.total_retries == 1


# 8.4 Conflict type distinction


@pytest.mark.parametrize(
    ("rival", "probability", "kinds"),
    [
        pytest.param((1, [0]), 1.0, (1, 0, 0), id="other table"),
        pytest.param((0, [2]), 1.0, (1, 0, 0), id="other partition"),
        pytest.param((0, [1]), 0.0, (0, 1, 0), id="false"),
        pytest.param((0, [1]), 1.0, (0, 0, 1), id="real"),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_8_04_conflict_type_distinction(
    operation: str, rival: tuple[int, list[int]], probability: float, kinds: tuple[int, int, int]
) -> None:
    """No overlap retries the commit, a false conflict redoes the manifests, a real one aborts an overwrite alone."""
    if operation != "validated_overwrite" and kinds == (0, 0, 1):
        kinds = (0, 1, 0)
    storage = RecordingStorage()
    catalog = RecordingCatalog(new_catalog("cas"), [[rival]])
    result = execute(operation, catalog, storage, partitions=[0, 1], probability=probability)
    assert (result.no_overlap_conflicts, result.false_conflicts, result.real_conflicts) == kinds
    aborted = kinds == (0, 0, 1)
    assert result.status is (TransactionStatus.ABORTED if aborted else TransactionStatus.COMMITTED)
    assert result.abort_reason == ("validation_exception" if aborted else None)
    attempts = 2 if kinds == (0, 1, 0) else 1
    assert result.manifest_list_writes == storage.calls.count("write manifest_list") == attempts


@pytest.mark.parametrize(("rival", "real"), [((0, [1]), True), ((0, [2]), False), ((1, [1]), False)])
def test_8_04_conflict_type_distinction_by_partition(rival: tuple[int, list[int]], real: object) -> None:
    """The partition detector calls a change of a written partition real, and no other."""
    catalog = new_catalog("cas")
    start = state_of(catalog)
    install(catalog, *rival)
    txn = ValidatedOverwriteTransaction(0, 0.0, 100.0, frozenset({0}), {0: frozenset({0, 1})})
    assert PartitionOverlapConflictDetector().is_real_conflict(txn, state_of(catalog), start) is real


# 8.5 Determinism


def test_8_05_determinism() -> None:
    """The same seed gives the same table, bit for bit, whatever the global generator; another seed another one."""
    frames: list[pd.DataFrame] = []
    for global_seed in (1, 2):
        np.random.seed(global_seed)  # noqa: NPY002
        frames.append(Simulation(random_config()).run().to_dataframe())
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert len(frames[0]) > 20
    assert not frames[0].equals(Simulation(random_config(seed=8)).run().to_dataframe())


def test_8_05_determinism_of_a_second_run() -> None:
    """A run changes nothing in its configuration."""
    simulation = Simulation(random_config())
    pd.testing.assert_frame_equal(*(simulation.run().to_dataframe() for _ in range(2)), check_exact=True)


@pytest.mark.parametrize(
    "change",
    [
        {"max_retries": 1},
        {"backoff_enabled": False},
        {"conflict_detector": ProbabilisticConflictDetector(1.0)},
        {"catalog": InstantCatalog(2, PARTITIONS)},
        {"storage_provider": fixed_storage()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_8_05_determinism_of_what_a_knob_does_not_touch(change: dict[str, Any]) -> None:
    """Sweeping one knob leaves arrivals, runtimes, operations and tables as they were."""
    sources = ["txn_id", "t_submit", "t_runtime", "operation_type", "tables_written"]
    runs: list[Statistics] = [Simulation(random_config(drain=True, **knobs)).run() for knobs in ({}, change)]
    base, swept = (
        run.to_dataframe()[sources].sort_values("txn_id", ignore_index=True).astype({"tables_written": str})
        for run in runs
    )
    pd.testing.assert_frame_equal(base, swept, check_exact=True)
    assert runs[0].transactions != runs[1].transactions


# 8.6 Minimum latency


FAST = [FixedLatency(0.5), LognormalLatency.from_median(1.0, 2.0, 0.1), SizeBasedLatency(1.0, 1.0, 2.0, 0.1)]


@pytest.mark.parametrize("latency", FAST, ids=["fixed", "lognormal", "by size"])
def test_8_06_minimum_latency(latency: LatencyDistribution) -> None:
    """No operation of a provider, nor any failure, is faster than the provider's floor."""
    floor = 43.0
    profile = ProviderProfile("slow", "Slow", floor, latency, latency, latency, latency, latency, latency, latency)
    storage = ProfiledStorage(np.random.RandomState(3), profile, FailureLatencies(cas=True, append=True))
    assert storage.min_latency_ms == floor
    for _ in range(200):
        operations = [
            storage.read("manifest_list/0", 10),
            storage.write("manifest_list/0", 10),
            storage.cas("catalog/pointer", 0, 10),
            storage.append("catalog/log", 0, 10),
            storage.tail_append("catalog/log", 10),
        ]
        for elapsed_ms, result in map(run_generator, operations):
            assert elapsed_ms == result.latency_ms >= floor
        assert (storage.sample_cas_failure_ms() or 0.0) >= floor
        assert (storage.sample_append_failure_ms() or 0.0) >= floor


@pytest.mark.parametrize("latency", [FAST[1], FAST[2]], ids=["lognormal", "by size"])
def test_8_06_minimum_latency_of_a_distribution(latency: LatencyDistribution) -> None:
    """A distribution never goes below its own floor, and reaches it."""
    rng = np.random.RandomState(3)
    floored = dataclasses.replace(latency, min_latency_ms=2.0)
    assert min(floored.sample(rng) for _ in range(500)) == 2.0


def test_8_06_minimum_latency_of_a_run() -> None:
    """No commit of a run takes less than the floors (2 ms each) of its three storage and one catalog operation."""
    rows = Simulation(random_config(drain=True)).run().transactions
    assert min(row.per_attempt_io_ms for row in rows) >= 3 * 2.0
    assert min(row.catalog_commit_ms for row in rows) >= 2.0
    assert min(row.start_ms for row in rows) >= 2.0


# 8.7 Uniform catalog interface


@pytest.mark.parametrize("kind", CATALOGS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("failures", [0, 1, 3])
def test_8_07_uniform_catalog_interface(kind: str, operation: str, failures: int) -> None:
    """A transaction calls read() and commit() alone, in the same order on every catalog, and reads after a failure."""
    catalog = RecordingCatalog(new_catalog(kind), [[0]] * failures)
    result = execute(operation, catalog)
    assert catalog.calls == ["read", "commit"] * (failures + 1)
    assert [answer.success for answer in catalog.results] == [False] * failures + [True]
    assert result.total_retries == failures


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_07_uniform_catalog_interface_at_the_last_failure(kind: str) -> None:
    """A transaction that may not try again has nothing to read for."""
    catalog = RecordingCatalog(new_catalog(kind), [[0]] * 2)
    result = execute("fast_append", catalog, max_retries=1)
    assert catalog.calls == ["read", "commit", "read", "commit"]
    assert result.abort_reason == "max_retries_exceeded"


# 8.8 Commit does not return state


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_08_commit_does_not_return_state(kind: str) -> None:
    """Neither answer carries a snapshot, nor anything else of the catalog's state."""
    catalog = new_catalog(kind)
    base = state_of(catalog)
    answers = [run_generator(propose(catalog, base))[1] for _ in range(2)]
    assert [answer.success for answer in answers] == [True, False]
    for answer in answers:
        assert answer.snapshot is None
        values = [getattr(answer, field.name) for field in dataclasses.fields(answer)]
        assert all(value is None or isinstance(value, (bool, int, float)) for value in values)
        assert not any("seq" in field.name or "version" in field.name for field in dataclasses.fields(answer))


@pytest.mark.parametrize(("kind", "read_ms"), [("cas", 10.0), ("append", 10.0), ("instant", 1.0)])
def test_8_08_commit_does_not_return_state_but_a_read_does(kind: str, read_ms: float) -> None:
    """Each failure is paid with one read round-trip."""
    result = execute("fast_append", RecordingCatalog(new_catalog(kind), [[1]] * 3))
    assert result.catalog_read_ms == (1 + 3) * read_ms


# 8.9 Information asymmetry in the append protocol


def test_8_09_information_asymmetry_in_append_protocol() -> None:
    """A landed append answers alike whether its record was applied or not, and a discovery read follows each."""
    storage = RecordingStorage()
    catalog = new_catalog("append", storage)
    stale = state_of(catalog)
    _, applied = run_generator(propose(catalog, stale))
    current = state_of(catalog)
    storage.calls.clear()
    # The right offset, the wrong precondition: it lands, and is not applied.
    intention = IntentionRecord(2, stale.seq, {0: 1}, base=dataclasses.replace(stale, log_offset=current.log_offset))
    _, refused = run_generator(catalog.commit(stale.seq, {0: 1}, 0.0, intention))
    assert (applied.success, refused.success) == (True, False)
    assert (applied.physical_failures, refused.physical_failures) == (0, 0)
    assert storage.calls == ["append catalog", "read catalog"]
    landed = [result for name, result in storage.results if name == "append"]
    assert landed[0] == landed[1]
    assert {field.name for field in dataclasses.fields(StorageResult)} == {"success", "latency_ms", "data_size_bytes"}
    assert state_of(catalog).log_offset == 2 * (current.log_offset - stale.log_offset) > 0


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_8_09_information_asymmetry_reads_once_per_landed_append(failures: int) -> None:
    """Every record that lands is read back, the writer's and its rivals'; each also reads before it proposes."""
    storage = RecordingStorage()
    inner = new_catalog("append", storage)
    result = execute("fast_append", RecordingCatalog(inner, [[0]] * failures))
    counters = inner.report().counters
    assert (counters.append_logical_success, counters.append_logical_conflict) == (failures + 1, failures)
    assert counters.append_physical_success == 2 * failures + 1
    assert counters.append_physical_failure == result.append_physical_failures == failures
    reads_before = (1 + failures) + failures
    assert storage.calls.count("read catalog") == reads_before + counters.append_physical_success


@pytest.mark.parametrize("lag_ms", [0.0, 1.0, 3.9, 4.0, 4.1, 8.0, 13.9, 14.0, 14.1, 30.0])
@pytest.mark.parametrize("scope", ["catalog", "table", "partition"])
def test_8_09_information_asymmetry_of_racing_appenders(scope: str, lag_ms: float) -> None:
    """Two writers propose the same version: one is applied, and only that one is told so, whenever they meet."""
    catalog = AppendCatalog(fixed_storage(), 2, PARTITIONS, scope=scope)
    base = state_of(catalog)
    race = [(0.0, propose(catalog, base, txn_id=1)), (lag_ms, propose(catalog, base, txn_id=2))]
    answers = interleave(race, lambda: None)
    assert [answer.success for answer in answers] == [True, False]
    assert (catalog.seq, state_of(catalog).get_table(0).version) == (1, 1)
    counters = catalog.report().counters
    assert (counters.append_physical_success, counters.append_physical_failure) == (2, 1)
    assert (counters.append_logical_success, counters.append_logical_conflict) == (1, 1)


# 8.10 ML+ deferred validity


def test_8_10_ml_plus_deferred_validity() -> None:
    """A tentative entry changes nothing that others see; the commit alone makes it valid."""
    journal: list[str] = []
    inner = new_catalog("cas")
    catalog, storage = RecordingCatalog(inner, journal=journal), RecordingStorage(journal=journal)
    txn = FastAppendTransaction(0, 0.0, 100.0, frozenset({0}))
    lifetime = txn.execute(catalog, storage, ProbabilisticConflictDetector(0.0), ml_append_mode=True)
    for _ in lifetime:
        assert (inner.seq, state_of(inner).get_table(0).version) == (0, 0)
    assert journal == ["read", "read manifest_list", "write manifest_file", "append manifest_list", "commit"]
    assert (inner.seq, state_of(inner).get_table(0).version) == (1, 1)


@pytest.mark.parametrize("operation", ["fast_append", "validated_overwrite"])
def test_8_10_ml_plus_deferred_validity_reads_before_a_retry(operation: str) -> None:
    """After a false conflict: the catalog, then the list with everything committed, then the commit; no write."""
    journal: list[str] = []
    catalog = RecordingCatalog(new_catalog("cas"), [[0]], journal)
    result = execute(operation, catalog, RecordingStorage(journal=journal), ml_append_mode=True)
    retry = journal[journal.index("commit") + 1 :]
    historical = ["read manifest_list"] * result.historical_ml_reads
    assert retry == ["read", *historical, "read manifest_list", "commit"]
    assert result.status is TransactionStatus.COMMITTED


def test_8_10_ml_plus_deferred_validity_of_an_orphan() -> None:
    """The entry of an aborted transaction bumps no version and is in nobody's way."""
    transactions = [FastAppendTransaction(txn_id, 0.0, 100.0, frozenset({0})) for txn_id in range(2)]
    transactions.append(FastAppendTransaction(2, 1000.0, 100.0, frozenset({0})))
    config = create_test_config(
        workload=ScriptedWorkload(lambda: transactions), ml_append_mode=True, max_retries=0, drain=True
    )
    statistics = Simulation(config).run()
    by_id = {row.txn_id: row for row in statistics.transactions}
    assert [by_id[txn_id].abort_reason for txn_id in range(3)] == [None, "max_retries_exceeded", None]
    assert (statistics.final_seq, statistics.table_versions) == (2, (2,))
    assert statistics.manifest_list_counters.manifest_append_orphans == 1
    # Read 1, work 100; list read 10, file 20, entry 4, commit 1.
    assert by_id[2].commit_time_ms == 1000.0 + 1.0 + 100.0 + (10.0 + 20.0 + 4.0) + 1.0


# 8.11 Topology ownership


@pytest.mark.parametrize("kind", CATALOGS)
def test_8_11_topology_ownership(kind: str) -> None:
    """A catalog answers no question about its topology, and no commit changes it."""
    catalog = new_catalog(kind)
    public = [name for name in dir(catalog) if not name.startswith("_")]
    assert [name for name in public if "table" in name or "partition" in name or "topology" in name] == []
    for table in (0, 1, 1):
        install(catalog, table)
    tables = state_of(catalog).tables
    assert [(table.table_id, table.num_partitions, len(table.partition_versions)) for table in tables] == [
        (0, 3, 3),
        (1, 3, 3),
    ]


def test_8_11_topology_ownership_of_the_workload() -> None:
    """What a workload generates stays within the tables and partitions that it was given, and uses them all."""
    partitions = (2, 5, 3)
    config = WorkloadConfig(FixedLatency(1.0), FixedLatency(1.0), 3, partitions, tables_per_txn=2, partitions_per_txn=2)
    used: set[tuple[int, int]] = set()
    for _, (_, txn) in zip(range(500), Workload(config, seed=5).generate(), strict=False):
        assert len(txn.tables_written) == 2
        assert txn.partitions_written is not None
        assert set(txn.partitions_written) == set(txn.tables_written)
        for table, written in txn.partitions_written.items():
            assert len(written) == 2
            used.update((table, partition) for partition in written)
    assert used == {(table, partition) for table in range(3) for partition in range(partitions[table])}


# 8.12 Cross-table retry cost


@pytest.mark.parametrize("kind", CATALOGS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("rival", [(1, [0]), (0, [2])], ids=["cross-table", "disjoint partitions"])
@pytest.mark.parametrize("ml_append_mode", [False, True], ids=["rewrite", "append"])
def test_8_12_cross_table_retry_cost(
    kind: str, operation: str, rival: tuple[int, list[int]], ml_append_mode: object
) -> None:
    """Without overlap a retry is one catalog read and one commit: the store hears nothing of it."""
    journal: list[str] = []
    catalog = RecordingCatalog(new_catalog(kind), [[rival], [rival, rival]], journal)
    storage = RecordingStorage(journal=journal)
    result = execute(operation, catalog, storage, partitions=[0, 1], probability=1.0, ml_append_mode=ml_append_mode)
    assert journal[journal.index("commit") :] == ["commit", "read", "commit", "read", "commit"]
    assert (result.no_overlap_conflicts, result.conflict_io_ms, result.total_retries) == (2, 0.0, 2)
    assert result.per_attempt_io_ms == 10.0 + 20.0 + (4.0 if ml_append_mode else 20.0)


@pytest.mark.parametrize("rival", [(0, [1]), (0, None)], ids=["overlapping partition", "untracked"])
def test_8_12_cross_table_retry_cost_is_not_for_overlaps(rival: tuple[int, list[int] | None]) -> None:
    """An overlap does pay: list read, file write, list write, before the commit."""
    journal: list[str] = []
    catalog = RecordingCatalog(new_catalog("cas"), [[rival]], journal)
    execute("fast_append", catalog, RecordingStorage(journal=journal), partitions=[0, 1])
    attempt = ["read manifest_list", "write manifest_file", "write manifest_list", "commit"]
    assert journal == ["read", *attempt, "read", *attempt]
