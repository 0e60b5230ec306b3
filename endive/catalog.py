"""The catalog: the one piece of state that every commit meets.

Transactions see it through `read()` and `commit()` alone, and only ever hold immutable snapshots. Which
commits are compatible is the catalog's *scope*; how a commit reaches the state (compare-and-swap, log
append, fixed-latency service) is its type. No clock, no engine, no files.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal, Self

import numpy as np

from endive.random_streams import Source, SubstreamFamily, new_random_state
from endive.storage import LatencyDistribution, StorageProvider, StorageResult

Scope = Literal["catalog", "group", "table", "partition"]

CATALOG_KEY: Final = "catalog/pointer"
LOG_KEY: Final = "catalog/log"


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """One table as a snapshot shows it."""

    table_id: int
    version: int
    num_partitions: int
    partition_versions: tuple[int, ...]

    def with_version(self, new_version: int) -> TableMetadata:
        return replace(self, version=new_version)

    def with_partition_version(self, partition_id: int, new_version: int) -> TableMetadata:
        versions = list(self.partition_versions)
        versions[partition_id] = new_version
        return replace(self, partition_versions=tuple(versions))


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """What a read saw, at `timestamp_ms`. Snapshots of one state share their tables."""

    seq: int
    tables: tuple[TableMetadata, ...]
    timestamp_ms: float
    log_offset: int = 0
    log_sealed: bool = False

    def get_table(self, table_id: int) -> TableMetadata:
        return self.tables[table_id]

    def get_partition_version(self, table_id: int, partition_id: int) -> int:
        return self.tables[table_id].partition_versions[partition_id]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The answer to a commit. It never carries catalog state: after a failure, read.

    `physical_failures` counts the log appends that missed the end of the log on the way.
    """

    success: bool
    latency_ms: float
    snapshot: None = None
    physical_failures: int = 0


@dataclass(frozen=True, slots=True)
class IntentionRecord:
    """What a commit wants to change, and all that its precondition needs.

    `base` is the snapshot whose versions are expected. `tables_read` and `partitions_read` are given under
    serializable isolation only; they join the precondition.
    """

    txn_id: int
    expected_seq: int
    tables_written: Mapping[int, int]
    partitions_written: Mapping[int, tuple[int, ...]] | None = None
    size_bytes: int = 100
    base: CatalogSnapshot | None = None
    tables_read: tuple[int, ...] = ()
    partitions_read: Mapping[int, tuple[int, ...]] | None = None


@dataclass(slots=True)
class CatalogCounters:
    """How the log appends of a run went."""

    append_physical_success: int = 0
    append_physical_failure: int = 0
    append_logical_success: int = 0
    append_logical_conflict: int = 0
    append_compactions_triggered: int = 0
    append_compactions_completed: int = 0

    def to_dict(self) -> dict[str, int]:
        return {counter.name: getattr(self, counter.name) for counter in fields(self)}


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """The state at the end of a run.

    `unacknowledged` maps the transactions whose commit took effect but was not answered yet to the tables
    that it wrote.
    """

    seq: int
    table_versions: tuple[int, ...] = ()
    unacknowledged: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    counters: CatalogCounters = field(default_factory=CatalogCounters)


class Catalog(ABC):
    """Optimistic concurrency control over table versions."""

    @abstractmethod
    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        """Read the catalog, starting at `timestamp_ms`; yields delays in milliseconds."""

    @abstractmethod
    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        """Try to install `writes` (table to new version), starting at `timestamp_ms`."""

    @property
    @abstractmethod
    def seq(self) -> int:
        """How many commits have been installed."""

    def fresh(self) -> Self:
        """Return a catalog like this one in its initial state, sharing nothing that changes."""
        return copy.deepcopy(self)

    def bind(self, rng: np.random.RandomState) -> Self:
        """Return a view of this catalog, on the same state, whose latencies are drawn from `rng`."""
        return self

    def report(self) -> CatalogReport:
        """Return the state as it stands."""
        return CatalogReport(self.seq)


def assign_groups(num_tables: int, num_groups: int, group_seed: int = 0) -> tuple[int, ...]:
    """Return each table's group: a seeded permutation of the tables, dealt round-robin."""
    rng = new_random_state()
    SubstreamFamily(group_seed, Source.GROUPS).seek(rng, 0)
    order = list(range(num_tables))
    for last in range(num_tables - 1, 0, -1):
        other = int(rng.random_sample() * (last + 1))
        order[last], order[other] = order[other], order[last]
    groups = [0] * num_tables
    for position, table_id in enumerate(order):
        groups[table_id] = position % num_groups
    return tuple(groups)


class _CatalogState:
    """Versions, and the rules by which a commit may change them. One per run, shared by every view."""

    def __init__(self, partitions_per_table: tuple[int, ...], scope: Scope, groups: tuple[int, ...]) -> None:
        self._partitions_per_table = partitions_per_table
        self._scope = scope
        self._groups = groups
        self._group_seqs = [0] * (max(groups, default=0) + 1)
        self.seq = 0
        self.tables = tuple(
            TableMetadata(table_id, 0, partitions, (0,) * partitions)
            for table_id, partitions in enumerate(partitions_per_table)
        )
        self.unacknowledged: dict[int, tuple[int, ...]] = {}
        self.counters = CatalogCounters()
        self.log_offset = 0
        self.checkpoint_offset = 0
        self.entries_since_checkpoint = 0
        self.log_sealed = False

    def fresh(self) -> _CatalogState:
        return _CatalogState(self._partitions_per_table, self._scope, self._groups)

    def snapshot(self, timestamp_ms: float) -> CatalogSnapshot:
        return CatalogSnapshot(self.seq, self.tables, timestamp_ms, self.log_offset, self.log_sealed)

    def try_commit(self, expected_seq: int, writes: Mapping[int, int], intention: IntentionRecord | None) -> bool:
        """Install the writes if the precondition of the scope holds now; return whether it did."""
        if not self._precondition_holds(expected_seq, writes, intention):
            return False
        self._install(writes, intention)
        if intention is not None:
            self.unacknowledged[intention.txn_id] = tuple(sorted(writes))
        return True

    def acknowledge(self, intention: IntentionRecord | None) -> None:
        """Note that the client has the answer to its commit."""
        if intention is not None:
            self.unacknowledged.pop(intention.txn_id, None)

    def _precondition_holds(
        self, expected_seq: int, writes: Mapping[int, int], intention: IntentionRecord | None
    ) -> bool:
        if self._scope == "catalog":
            return self.seq == expected_seq
        if self._scope == "group":
            return all(self._group_seqs[self._groups[table_id]] <= expected_seq for table_id in writes)
        base = None if intention is None else intention.base
        if base is None:
            return all(self.tables[table_id].version == version - 1 for table_id, version in writes.items())
        assert intention is not None
        if self._scope == "table":
            return all(
                self.tables[table_id].version == base.tables[table_id].version
                for touched in (writes, intention.tables_read)
                for table_id in touched
            )
        return self._partitions_unchanged(base, writes, intention.partitions_written) and self._partitions_unchanged(
            base, intention.tables_read, intention.partitions_read
        )

    def _partitions_unchanged(
        self,
        base: CatalogSnapshot,
        touched: Mapping[int, int] | tuple[int, ...],
        partitions: Mapping[int, tuple[int, ...]] | None,
    ) -> bool:
        for table_id in touched:
            now, then = self.tables[table_id], base.tables[table_id]
            if now.version == then.version:
                continue
            touched_partitions = None if partitions is None else partitions.get(table_id)
            if touched_partitions is None:
                return False
            for partition_id in touched_partitions:
                if now.partition_versions[partition_id] != then.partition_versions[partition_id]:
                    return False
        return True

    def _install(self, writes: Mapping[int, int], intention: IntentionRecord | None) -> None:
        self.seq += 1
        tables = list(self.tables)
        partitions = None if intention is None else intention.partitions_written
        for table_id in writes:
            table = tables[table_id]
            written = None if partitions is None else partitions.get(table_id)
            if written is None:
                versions = tuple(version + 1 for version in table.partition_versions)
            else:
                changed = list(table.partition_versions)
                for partition_id in written:
                    changed[partition_id] += 1
                versions = tuple(changed)
            tables[table_id] = TableMetadata(table_id, table.version + 1, table.num_partitions, versions)
            self._group_seqs[self._groups[table_id]] = self.seq
        self.tables = tuple(tables)


class _VersionedCatalog(Catalog):
    """What the built-in catalogs share: the state, its scope, and the instant at which it is met."""

    def __init__(
        self,
        num_tables: int,
        partitions_per_table: tuple[int, ...],
        scope: Scope,
        groups: tuple[int, ...] | None,
        effect_point: float,
    ) -> None:
        if len(partitions_per_table) != num_tables:
            raise ValueError(f"{len(partitions_per_table)} partition counts for {num_tables} tables")
        if not 0.0 <= effect_point <= 1.0:
            raise ValueError(f"effect_point is {effect_point}; allowed is 0 to 1")
        self._scope = scope
        self._groups = (0,) * num_tables if groups is None else groups
        self._effect_point = effect_point
        self._state = _CatalogState(tuple(partitions_per_table), scope, self._groups)

    @property
    def seq(self) -> int:
        return self._state.seq

    @property
    def scope(self) -> Scope:
        return self._scope

    @property
    def groups(self) -> tuple[int, ...]:
        return self._groups

    @property
    def effect_point(self) -> float:
        return self._effect_point

    def _copy(self) -> Self:
        view = self.__class__.__new__(self.__class__)
        view.__dict__.update(self.__dict__)
        return view

    def fresh(self) -> Self:
        view = self._copy()
        view._state = self._state.fresh()
        return view

    def report(self) -> CatalogReport:
        state = self._state
        versions = tuple(table.version for table in state.tables)
        return CatalogReport(state.seq, versions, dict(state.unacknowledged), state.counters)

    def _read_taking(self, latency_ms: float, timestamp_ms: float) -> Generator[float, None, CatalogSnapshot]:
        before_ms = self._effect_point * latency_ms
        if before_ms:
            yield before_ms
        snapshot = self._state.snapshot(timestamp_ms + before_ms)
        if latency_ms - before_ms:
            yield latency_ms - before_ms
        return snapshot


def _total_ms(operation: Generator[float, None, StorageResult]) -> float:
    """Return how long a storage operation takes as a whole."""
    return sum(operation)


class _StoredCatalog(_VersionedCatalog):
    """A versioned catalog whose latencies are those of a storage provider."""

    def __init__(
        self,
        storage: StorageProvider,
        num_tables: int,
        partitions_per_table: tuple[int, ...],
        scope: Scope,
        groups: tuple[int, ...] | None,
        effect_point: float,
        entry_bytes: int,
    ) -> None:
        super().__init__(num_tables, partitions_per_table, scope, groups, effect_point)
        self._storage = storage
        self._entry_bytes = entry_bytes

    @property
    def storage(self) -> StorageProvider:
        return self._storage

    @property
    def entry_bytes(self) -> int:
        return self._entry_bytes

    def bind(self, rng: np.random.RandomState) -> Self:
        view = self._copy()
        view._storage = self._storage.bind(rng)
        return view

    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        latency_ms = _total_ms(self._storage.read(CATALOG_KEY, self._entry_bytes))
        return self._read_taking(latency_ms, timestamp_ms)


class CASCatalog(_StoredCatalog):
    """One compare-and-swap on the underlying storage per commit."""

    def __init__(
        self,
        storage: StorageProvider,
        num_tables: int,
        partitions_per_table: tuple[int, ...],
        *,
        scope: Scope = "catalog",
        groups: tuple[int, ...] | None = None,
        effect_point: float = 1.0,
        entry_bytes: int = 100,
    ) -> None:
        super().__init__(storage, num_tables, partitions_per_table, scope, groups, effect_point, entry_bytes)

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        latency_ms = _total_ms(self._storage.cas(CATALOG_KEY, expected_seq, self._entry_bytes))
        before_ms = self._effect_point * latency_ms
        if before_ms:
            yield before_ms
        success = self._state.try_commit(expected_seq, writes, intention)
        failure_ms = None if success else self._storage.sample_cas_failure_ms()
        after_ms = latency_ms - before_ms if failure_ms is None else max(before_ms, failure_ms) - before_ms
        if after_ms:
            yield after_ms
        self._state.acknowledge(intention)
        return CommitResult(success, before_ms + after_ms)


class InstantCatalog(_VersionedCatalog):
    """A compare-and-swap service whose every answer takes the same time."""

    def __init__(
        self,
        num_tables: int,
        partitions_per_table: tuple[int, ...],
        latency_ms: float = 1.0,
        *,
        scope: Scope = "catalog",
        groups: tuple[int, ...] | None = None,
        effect_point: float = 1.0,
    ) -> None:
        super().__init__(num_tables, partitions_per_table, scope, groups, effect_point)
        self._latency_ms = latency_ms

    @property
    def latency_ms(self) -> float:
        return self._latency_ms

    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        return self._read_taking(self._latency_ms, timestamp_ms)

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        before_ms = self._effect_point * self._latency_ms
        if before_ms:
            yield before_ms
        success = self._state.try_commit(expected_seq, writes, intention)
        after_ms = self._latency_ms - before_ms
        if after_ms:
            yield after_ms
        self._state.acknowledge(intention)
        return CommitResult(success, before_ms + after_ms)


@dataclass(frozen=True, slots=True)
class AppendLog:
    """How a catalog's log grows, seals and is compacted.

    It seals when the bytes since the checkpoint exceed `compaction_threshold_bytes`, or when the entries
    since it reach `compaction_max_entries` (0: no such limit). `compaction_latency` None: the storage's
    compare-and-swap latency.
    """

    entry_bytes: int = 100
    compaction_threshold_bytes: int = 16_000_000
    compaction_max_entries: int = 0
    max_physical_retries: int = 100
    compaction_latency: LatencyDistribution | None = None


class AppendCatalog(_StoredCatalog):
    """Commits append an intention record to a log, then read it back to learn whether it was applied."""

    def __init__(
        self,
        storage: StorageProvider,
        num_tables: int,
        partitions_per_table: tuple[int, ...],
        *,
        scope: Scope = "table",
        groups: tuple[int, ...] | None = None,
        effect_point: float = 1.0,
        entry_bytes: int = 100,
        log: AppendLog = AppendLog(),
    ) -> None:
        super().__init__(storage, num_tables, partitions_per_table, scope, groups, effect_point, entry_bytes)
        self._log = log

    @property
    def log(self) -> AppendLog:
        return self._log

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        state = self._state
        base = None if intention is None else intention.base
        offset, sealed = (state.log_offset, state.log_sealed) if base is None else (base.log_offset, base.log_sealed)
        elapsed_ms = 0.0
        physical_failures = 0
        while True:
            if sealed:
                taken_ms, offset = yield from self._compact(expected_seq)
                elapsed_ms += taken_ms
            latency_ms = _total_ms(self._storage.append(LOG_KEY, offset, self._log.entry_bytes))
            before_ms = self._effect_point * latency_ms
            if before_ms:
                yield before_ms
            if offset == state.log_offset:
                assert not state.log_sealed, "who knows the end of a sealed log knows of the seal, and compacts"
                break
            state.counters.append_physical_failure += 1
            physical_failures += 1
            offset, sealed = state.log_offset, state.log_sealed
            failure_ms = self._storage.sample_append_failure_ms()
            after_ms = latency_ms - before_ms if failure_ms is None else max(before_ms, failure_ms) - before_ms
            if after_ms:
                yield after_ms
            elapsed_ms += before_ms + after_ms
            if physical_failures > self._log.max_physical_retries:
                return CommitResult(False, elapsed_ms, physical_failures=physical_failures)

        success = self._land(expected_seq, writes, intention)
        after_ms = latency_ms - before_ms
        if after_ms:
            yield after_ms
        elapsed_ms += before_ms + after_ms
        discovery_ms = _total_ms(self._storage.read(CATALOG_KEY, self._entry_bytes))
        yield from self._read_taking(discovery_ms, timestamp_ms + elapsed_ms)
        state.acknowledge(intention)
        return CommitResult(success, elapsed_ms + discovery_ms, physical_failures=physical_failures)

    def _land(self, expected_seq: int, writes: Mapping[int, int], intention: IntentionRecord | None) -> bool:
        """Put the record at the end of the log, apply it if its precondition holds, seal if the log is full."""
        state = self._state
        state.log_offset += self._log.entry_bytes
        state.entries_since_checkpoint += 1
        state.counters.append_physical_success += 1
        applied = state.try_commit(expected_seq, writes, intention)
        if applied:
            state.counters.append_logical_success += 1
        else:
            state.counters.append_logical_conflict += 1
        bytes_since_checkpoint = state.log_offset - state.checkpoint_offset
        entries_max = self._log.compaction_max_entries
        if bytes_since_checkpoint > self._log.compaction_threshold_bytes or (
            entries_max > 0 and state.entries_since_checkpoint >= entries_max
        ):
            state.log_sealed = True
            state.counters.append_compactions_triggered += 1
        return applied

    def _compact(self, expected_seq: int) -> Generator[float, None, tuple[float, int]]:
        """Pay the compaction; return its latency and the offset to append at. Only the first to arrive checkpoints."""
        if self._log.compaction_latency is None:
            latency_ms = _total_ms(self._storage.cas(CATALOG_KEY, expected_seq, self._entry_bytes))
        else:
            drawn_ms = self._log.compaction_latency.sample(self._storage.rng)
            latency_ms = max(self._storage.min_latency_ms, drawn_ms)
        before_ms = self._effect_point * latency_ms
        if before_ms:
            yield before_ms
        state = self._state
        failure_ms = None
        if not state.log_sealed:
            failure_ms = None if self._log.compaction_latency else self._storage.sample_cas_failure_ms()
        else:
            state.log_sealed = False
            state.checkpoint_offset = state.log_offset
            state.entries_since_checkpoint = 0
            state.counters.append_compactions_completed += 1
        offset = state.log_offset
        after_ms = latency_ms - before_ms if failure_ms is None else max(before_ms, failure_ms) - before_ms
        if after_ms:
            yield after_ms
        return before_ms + after_ms, offset
