"""Transactions: the commit protocol of a writer, as a generator of delays in milliseconds.

A transaction reads a snapshot, works, then tries to commit until it succeeds or gives up. Operation types
differ in what an attempt costs and in whether their data can conflict; that is data (`OperationCosts`).
A transaction sees the catalog through `read()` and `commit()` only, and knows neither clock nor engine: it
adds up its own delays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import Any, Final

import numpy as np

from endive.catalog import Catalog, CatalogSnapshot, CommitResult, IntentionRecord
from endive.manifest_list import ListEnd, ManifestLists
from endive.operation_costs import (
    DEFAULT_ATTEMPT,
    FAST_APPEND,
    ConflictCost,
    OperationCosts,
    merge_append_costs,
    validated_overwrite_costs,
)
from endive.policy import CommitPolicy
from endive.steps import (
    APPEND_TO_LIST,
    ATTEMPT,
    BACK_OFF,
    COMMIT,
    CONFLICT,
    READ_CATALOG,
    WORK,
    WRITE_METADATA,
    Component,
    Step,
    StorageSteps,
)
from endive.storage import StorageProvider, StorageResult

MAX_RETRIES_EXCEEDED: Final = "max_retries_exceeded"
RETRY_TIMEOUT: Final = "retry_timeout"
VALIDATION_EXCEPTION: Final = "validation_exception"
ABORT_REASONS: Final = (MAX_RETRIES_EXCEEDED, RETRY_TIMEOUT, VALIDATION_EXCEPTION)

WHOLE_TABLE: Final = -1


class TransactionStatus(Enum):
    """Where a transaction stands."""

    PENDING = auto()
    EXECUTING = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction ended. Times in milliseconds; -1 where the event did not happen.

    `start_ms` is the first catalog read and the metadata reads before the work;
    total_latency_ms = start_ms + runtime_ms + commit_latency_ms, and
    catalog_read_ms + per_attempt_io_ms + conflict_io_ms + catalog_commit_ms + backoff_ms + overhead_ms +
    restart_ms = commit_latency_ms + start_ms.
    """

    status: TransactionStatus
    txn_id: int
    commit_time_ms: float
    abort_time_ms: float
    abort_reason: str | None
    total_retries: int
    commit_latency_ms: float
    total_latency_ms: float
    operation_type: str
    runtime_ms: float

    manifest_list_reads: int
    manifest_list_writes: int
    manifest_file_reads: int
    manifest_file_writes: int

    catalog_read_ms: float
    per_attempt_io_ms: float
    conflict_io_ms: float
    catalog_commit_ms: float

    submit_time_ms: float = 0.0
    stream: str = ""
    attempts: int = 1
    restarts: int = 0
    no_overlap_conflicts: int = 0
    false_conflicts: int = 0
    real_conflicts: int = 0
    backoff_ms: float = 0.0
    overhead_ms: float = 0.0
    restart_ms: float = 0.0
    start_ms: float = 0.0
    historical_ml_reads: int = 0
    manifest_list_appends: int = 0
    metadata_reads: int = 0
    metadata_writes: int = 0
    append_physical_failures: int = 0
    tables_written: tuple[int, ...] = ()


COMMIT_FAILED: Final = "commit failed"

Observer = Callable[["Transaction", str, float, float, int], None]
"""Called with a transaction, what it did, from when to when in milliseconds (the same: an event), and how many."""


@dataclass(slots=True)
class _Counts:
    """What a transaction has done so far, as the result reports it."""

    manifest_list_reads: int = 0
    manifest_list_writes: int = 0
    manifest_file_reads: int = 0
    manifest_file_writes: int = 0
    historical_ml_reads: int = 0
    manifest_list_appends: int = 0
    metadata_reads: int = 0
    metadata_writes: int = 0
    append_physical_failures: int = 0
    restarts: int = 0
    no_overlap_conflicts: int = 0
    false_conflicts: int = 0
    real_conflicts: int = 0

    def to_dict(self) -> dict[str, int]:
        return {count.name: getattr(self, count.name) for count in fields(self)}


class ConflictDetector(ABC):
    """Decides whether a write overlap is a conflict of data."""

    @abstractmethod
    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        """Return whether what was committed since `start_snapshot` conflicts with `txn`."""

    def bind(self, rng: np.random.RandomState) -> ConflictDetector:
        """Return a view of this detector that draws from `rng`."""
        return self


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a transaction acts on while it executes."""

    catalog: Catalog
    storage: StorageProvider
    conflict_detector: ConflictDetector
    max_retries: int
    ml_append_mode: bool
    policy: CommitPolicy
    manifest_lists: ManifestLists


Delays = Generator[float, None, None]


class Transaction(ABC):
    """One writer's unit of work.

    `partitions_written` None: partitions are not tracked, and any commit to a written table overlaps.
    `tables_read` defaults to the written tables; a table read without listed partitions counts as read whole.
    `commit_start_ms` is when the work first ended and the commit phase began, from which the commit latency counts; NaN
    before.
    """

    operation_type: str

    def __init__(
        self,
        txn_id: int,
        submit_time_ms: float,
        runtime_ms: float,
        tables_written: frozenset[int],
        partitions_written: Mapping[int, frozenset[int]] | None = None,
        *,
        tables_read: frozenset[int] | None = None,
        partitions_read: Mapping[int, frozenset[int]] | None = None,
        stream: str = "",
    ) -> None:
        self.txn_id = txn_id
        self.submit_time_ms = submit_time_ms
        self.runtime_ms = runtime_ms
        self.tables_written = tables_written
        self.partitions_written = partitions_written
        self.tables_read = tables_written if tables_read is None else tables_read | tables_written
        self.partitions_read = partitions_written if partitions_read is None else partitions_read
        self.stream = stream
        self.status = TransactionStatus.PENDING
        self.now_ms = submit_time_ms
        self.attempts = 0
        self.commit_start_ms = math.nan
        self.observer: Observer | None = None
        self._written = tuple(sorted(tables_written))
        self._written_partitions = _sorted_partitions(self.partitions_written)

    @property
    def has_ended(self) -> bool:
        return self.status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)

    @abstractmethod
    def can_have_real_conflict(self) -> bool:
        """Return whether data written meanwhile can conflict with this operation's."""

    @abstractmethod
    def should_abort_on_real_conflict(self) -> bool:
        """Return whether a real conflict ends the operation, instead of being merged."""

    @abstractmethod
    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool = False) -> ConflictCost:
        """Return the I/O that `n_snapshots_behind` missed commits cost a retry whose writes overlap."""

    def get_per_attempt_cost(self, ml_append_mode: bool = False) -> ConflictCost:
        """Return the I/O of the first attempt, for each written table."""
        return _without_list_writes(DEFAULT_ATTEMPT) if ml_append_mode else DEFAULT_ATTEMPT

    def get_redone_attempt_cost(self, ml_append_mode: bool = False) -> ConflictCost:
        """Return the I/O of an attempt after a write overlap, for each overlapping table."""
        return self.get_per_attempt_cost(ml_append_mode)

    def has_write_overlap(self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot) -> bool:
        """Return whether a commit between the snapshots changed a table and partition that this one writes."""
        return bool(self.overlapping_tables(old_snapshot, new_snapshot))

    def overlapping_tables(
        self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot, whole_tables: bool = False
    ) -> tuple[int, ...]:
        """Return the written tables that changed between the snapshots, in partitions written unless `whole_tables`."""
        return tuple(
            table_id
            for table_id in self._written
            if old_snapshot.tables[table_id].version != new_snapshot.tables[table_id].version
            and (
                whole_tables
                or self._written_partitions is None
                or self._partitions_behind(table_id, old_snapshot, new_snapshot)
            )
        )

    def _tables_to_redo(
        self, around: _Surroundings, previous: CatalogSnapshot, snapshot: CatalogSnapshot
    ) -> tuple[int, ...]:
        """Return the tables whose manifests no longer stand; a subclass's `has_write_overlap` has the last word."""
        if around.policy.overlap == "table":
            return self.overlapping_tables(previous, snapshot, whole_tables=True)
        if not self.has_write_overlap(previous, snapshot):
            return ()
        return self.overlapping_tables(previous, snapshot) or self._written

    def _partitions_behind(
        self, table_id: int, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot
    ) -> dict[int, int]:
        """Return the tracked partitions of a table that changed, with the number of commits that did."""
        old, new = old_snapshot.tables[table_id].partition_versions, new_snapshot.tables[table_id].partition_versions
        written = (self._written_partitions or {}).get(table_id, ())
        return {partition: new[partition] - old[partition] for partition in written if new[partition] != old[partition]}

    def execute(
        self,
        catalog: Catalog,
        storage: StorageProvider,
        conflict_detector: ConflictDetector,
        max_retries: int = 10,
        ml_append_mode: bool = False,
        *,
        policy: CommitPolicy = CommitPolicy(),
        manifest_lists: ManifestLists | None = None,
    ) -> Generator[float, None, TransactionResult]:
        """Run to the end; yields delays in milliseconds and returns how it ended."""
        lists = ManifestLists(policy.manifest_list_log) if manifest_lists is None else manifest_lists
        around = _Surroundings(catalog, storage, conflict_detector, max_retries, ml_append_mode, policy, lists)
        self.now_ms = self.submit_time_ms
        self._times = [0.0] * len(Component)
        self._counts = _Counts()
        self._start_ms = 0.0
        self.commit_start_ms = math.nan
        self._tentative_entries = 0
        while True:
            abort_reason, restarting = yield from self._run_once(around)
            if not restarting:
                return self._result(abort_reason)
            self._counts.restarts += 1

    def _run_once(self, around: _Surroundings) -> Generator[float, None, tuple[str | None, bool]]:
        """Read, work, and commit or give up; return why it gave up, and whether to run all of it again."""
        policy = around.policy
        is_first_run = self._counts.restarts == 0
        self.status = TransactionStatus.PENDING
        start: CatalogSnapshot = yield from self._timed(READ_CATALOG, around.catalog.read(self.now_ms))
        if not policy.table_metadata_inlined:
            for table_id in sorted(self.tables_read):
                yield from self._read_metadata(around, ATTEMPT.read_metadata, table_id, 1)
        if is_first_run:
            self._start_ms = self.now_ms - self.submit_time_ms

        self.status = TransactionStatus.EXECUTING
        self._spend(WORK, self.runtime_ms)
        yield self.runtime_ms

        self.status = TransactionStatus.COMMITTING
        if is_first_run:
            self.commit_start_ms = self.now_ms
        run_commit_start_ms = self.now_ms
        self.attempts = 0
        snapshot = start
        cost = self.get_per_attempt_cost(around.ml_append_mode)
        appends = self.get_per_attempt_cost(False).manifest_list_writes if around.ml_append_mode else 0
        for table_id in self._written:
            yield from self._prepare(around, snapshot, table_id, self._lists(around, table_id), cost, appends)

        while True:
            self.attempts += 1
            if (yield from self._commit(around, snapshot)):
                return None, False
            abort_reason = self._reason_to_give_up(around, run_commit_start_ms)
            if abort_reason is None:
                yield from self._back_off(around)
                previous = snapshot
                snapshot = yield from self._timed(READ_CATALOG, around.catalog.read(self.now_ms))
                abort_reason = yield from self._resolve(around, start, previous, snapshot)
            if abort_reason is not None:
                around.manifest_lists.counters.manifest_append_orphans += self._tentative_entries
                self._tentative_entries = 0
                return abort_reason, abort_reason == VALIDATION_EXCEPTION and self._may_restart(policy)

    def _reason_to_give_up(self, around: _Surroundings, run_commit_start_ms: float) -> str | None:
        """Return why a transaction whose commit just failed may not try again, or None if it may."""
        if self.attempts > around.max_retries:
            return MAX_RETRIES_EXCEEDED
        timeout_ms = around.policy.total_timeout_ms
        if 0.0 < timeout_ms < self.now_ms - run_commit_start_ms:
            return RETRY_TIMEOUT
        return None

    def _may_restart(self, policy: CommitPolicy) -> bool:
        return (
            policy.on_real_conflict == "restart"
            and self._counts.restarts < policy.max_restarts
            and self.now_ms < policy.restarts_end_ms
        )

    def _back_off(self, around: _Surroundings) -> Delays:
        if around.policy.backoff is not None:
            sleep_ms = around.policy.backoff.sample_ms(self.attempts, around.storage.rng)
            self._spend(BACK_OFF, sleep_ms)
            yield sleep_ms

    def _resolve(
        self,
        around: _Surroundings,
        start: CatalogSnapshot,
        previous: CatalogSnapshot,
        snapshot: CatalogSnapshot,
    ) -> Generator[float, None, str | None]:
        """Catch up with what was committed between two snapshots; return why that is not possible, if it is not."""
        overlapping = self._tables_to_redo(around, previous, snapshot)
        if not overlapping:
            self._counts.no_overlap_conflicts += 1
            self._tell("no overlap", self.now_ms)
            return None
        yield from self._pay_for_missed_commits(around, previous, snapshot, overlapping)
        merged = self.can_have_real_conflict() and around.conflict_detector.is_real_conflict(self, snapshot, start)
        if merged:
            self._counts.real_conflicts += 1
            self._tell("real conflict", self.now_ms)
            if self.should_abort_on_real_conflict() and around.policy.on_real_conflict != "merge":
                return VALIDATION_EXCEPTION
            yield from self._merge_conflicting_manifests(around, snapshot, overlapping)
        else:
            self._counts.false_conflicts += 1
            self._tell("false conflict", self.now_ms)
        yield from self._redo(around, previous, snapshot, overlapping, merged)
        return None

    def _commit(self, around: _Surroundings, snapshot: CatalogSnapshot) -> Generator[float, None, bool]:
        writes = {table_id: snapshot.tables[table_id].version + 1 for table_id in self._written}
        serializable = around.policy.isolation == "serializable"
        intention = IntentionRecord(
            txn_id=self.txn_id,
            expected_seq=snapshot.seq,
            tables_written=writes,
            partitions_written=self._written_partitions,
            base=snapshot,
            tables_read=tuple(sorted(self.tables_read)) if serializable else (),
            partitions_read=_sorted_partitions(self.partitions_read) if serializable else None,
        )
        operation = around.catalog.commit(snapshot.seq, writes, self.now_ms, intention)
        result: CommitResult = yield from self._timed(COMMIT, operation)
        self._counts.append_physical_failures += result.physical_failures
        if not result.success:
            self._tell(COMMIT_FAILED, self.now_ms, self.attempts)
        return result.success

    def _pay_for_missed_commits(
        self,
        around: _Surroundings,
        previous: CatalogSnapshot,
        snapshot: CatalogSnapshot,
        overlapping: tuple[int, ...],
    ) -> Delays:
        """Pay the conflict cost, once for the catalog's commits or for each table's or partition's own."""
        policy = around.policy
        charges: list[tuple[tuple[int, int], int]]
        if policy.list_per == "partition":
            charges = [
                ((table_id, partition), commits)
                for table_id in overlapping
                for partition, commits in self._partitions_behind(table_id, previous, snapshot).items()
            ]
        elif policy.history == "table":
            charges = [
                ((table_id, WHOLE_TABLE), snapshot.tables[table_id].version - previous.tables[table_id].version)
                for table_id in overlapping
            ]
        else:
            charges = [((overlapping[0], WHOLE_TABLE), snapshot.seq - previous.seq)]
        for key, n_snapshots_behind in charges:
            cost = self.get_conflict_cost(n_snapshots_behind, around.ml_append_mode)
            yield from self._pay_conflict_cost(around, snapshot, key, cost)

    def _pay_conflict_cost(
        self, around: _Surroundings, snapshot: CatalogSnapshot, key: tuple[int, int], cost: ConflictCost
    ) -> Delays:
        list_bytes = self._list_bytes(around, snapshot, key)
        yield from self._read_metadata(around, CONFLICT.read_metadata, key[0], cost.metadata_reads)
        yield from self._read_list(around, CONFLICT.read_list, key, list_bytes, cost.manifest_list_reads)
        yield from self._work_on_manifests(around, CONFLICT, key, list_bytes, cost)
        yield from self._write_list(around, CONFLICT.write_list, key, list_bytes, cost.manifest_list_writes)

    def _merge_conflicting_manifests(
        self, around: _Surroundings, snapshot: CatalogSnapshot, overlapping: tuple[int, ...]
    ) -> Delays:
        count = around.policy.conflicting_manifests.sample(around.storage.rng)
        cost = ConflictCost(manifest_file_reads=count, manifest_file_writes=count)
        yield from self._pay_conflict_cost(around, snapshot, (overlapping[0], WHOLE_TABLE), cost)

    def _redo(
        self,
        around: _Surroundings,
        previous: CatalogSnapshot,
        snapshot: CatalogSnapshot,
        overlapping: tuple[int, ...],
        merged: bool,
    ) -> Delays:
        """Prepare the overlapping tables anew. Appended list entries stay valid unless their data was merged."""
        cost = self.get_redone_attempt_cost(around.ml_append_mode)
        appends = self.get_redone_attempt_cost(False).manifest_list_writes if around.ml_append_mode else 0
        entries_stay = around.ml_append_mode and not merged
        if entries_stay:
            cost = replace(cost, manifest_file_writes=0)
            appends = 0
        for table_id in overlapping:
            lists = self._lists(around, table_id)
            if around.policy.list_per == "partition" and around.policy.overlap == "partition":
                changed = self._partitions_behind(table_id, previous, snapshot)
                lists = [(table, partition) for table, partition in lists if partition in changed]
            if merged and around.ml_append_mode:
                superseded = min(self._tentative_entries, len(lists))
                around.manifest_lists.counters.manifest_append_orphans += superseded
                self._tentative_entries -= superseded
            if not around.policy.table_metadata_inlined and not entries_stay:
                yield from self._read_metadata(around, ATTEMPT.read_metadata, table_id, 1)
            yield from self._prepare(around, snapshot, table_id, lists, cost, appends, keeps_metadata=entries_stay)

    def _lists(self, around: _Surroundings, table_id: int) -> list[tuple[int, int]]:
        """Return the manifest lists that hold what this transaction writes to a table."""
        if around.policy.list_per == "table":
            return [(table_id, WHOLE_TABLE)]
        if self._written_partitions is None:
            raise ValueError("manifest lists per partition need transactions that track partitions")
        return [(table_id, partition) for partition in self._written_partitions.get(table_id, ())]

    def _prepare(
        self,
        around: _Surroundings,
        snapshot: CatalogSnapshot,
        table_id: int,
        lists: list[tuple[int, int]],
        cost: ConflictCost,
        appends: int,
        *,
        keeps_metadata: bool = False,
    ) -> Delays:
        """Do an attempt's work on one table: read its lists, work on manifests, write or append to its lists."""
        bytes_of = {key: self._list_bytes(around, snapshot, key) for key in lists}
        whole_table = (table_id, WHOLE_TABLE)
        yield from self._read_metadata(around, ATTEMPT.read_metadata, table_id, cost.metadata_reads)
        known_ends: dict[tuple[int, int], ListEnd] = {}
        for key in lists:
            yield from self._read_list(around, ATTEMPT.read_list, key, bytes_of[key], cost.manifest_list_reads)
            known_ends[key] = around.manifest_lists.end(key)
        history_bytes = self._list_bytes(around, snapshot, whole_table)
        yield from self._work_on_manifests(around, ATTEMPT, whole_table, history_bytes, cost)
        for key in lists:
            yield from self._write_list(around, ATTEMPT.write_list, key, bytes_of[key], cost.manifest_list_writes)
            for _ in range(appends):
                known_ends[key] = yield from self._append_entry(around, key, known_ends[key], bytes_of[key])
        if not around.policy.table_metadata_inlined and not keeps_metadata:
            write = around.storage.write(f"metadata/{table_id}", around.policy.sizes.table_metadata)
            yield from self._timed(WRITE_METADATA, write)
            self._counts.metadata_writes += 1

    def _append_entry(
        self, around: _Surroundings, key: tuple[int, int], end: ListEnd, list_bytes: int
    ) -> Generator[float, None, ListEnd]:
        """Append a tentative entry, again for as long as the list has moved or is sealed; return the end after it."""
        storage, lists = around.storage, around.manifest_lists
        entry_bytes = around.policy.manifest_list_log.entry_bytes
        while True:
            taken_ms = sum(storage.append(_list_key(key), end.offset, entry_bytes))
            self._spend(APPEND_TO_LIST, taken_ms)
            yield taken_ms
            if lists.try_append(key, end):
                self._counts.manifest_list_appends += 1
                self._tentative_entries += 1
                return ListEnd(end.generation, end.offset + entry_bytes)
            is_sealed, end = lists.is_sealed(key), lists.end(key)
            failure_ms = storage.sample_append_failure_ms()
            if failure_ms is not None and failure_ms > taken_ms:
                self._spend(APPEND_TO_LIST, failure_ms - taken_ms)
                yield failure_ms - taken_ms
            if is_sealed:
                yield from self._timed(ATTEMPT.read_list, storage.read(_list_key(key), list_bytes))
                yield from self._timed(ATTEMPT.write_list, storage.write(_list_key(key), list_bytes))
                self._counts.manifest_list_reads += 1
                self._counts.manifest_list_writes += 1
                lists.rewrite(key, end.generation)
                end = lists.end(key)

    def _list_bytes(self, around: _Surroundings, snapshot: CatalogSnapshot, key: tuple[int, int]) -> int:
        """Return the size of a manifest list, which grows with the commits to its table or partition."""
        sizes, (table_id, partition) = around.policy.sizes, key
        table = snapshot.tables[table_id]
        commits = table.version if partition == WHOLE_TABLE else table.partition_versions[partition]
        return sizes.manifest_list + sizes.list_growth * commits

    def _read_metadata(self, around: _Surroundings, step: Step, table_id: int, count: int) -> Delays:
        for _ in range(count):
            yield from self._timed(
                step, around.storage.read(f"metadata/{table_id}", around.policy.sizes.table_metadata)
            )
            self._counts.metadata_reads += 1

    def _read_list(
        self, around: _Surroundings, step: Step, key: tuple[int, int], list_bytes: int, count: int
    ) -> Delays:
        for _ in range(count):
            yield from self._timed(step, around.storage.read(_list_key(key), list_bytes))
            self._counts.manifest_list_reads += 1

    def _write_list(
        self, around: _Surroundings, step: Step, key: tuple[int, int], list_bytes: int, count: int
    ) -> Delays:
        for _ in range(count):
            yield from self._timed(step, around.storage.write(_list_key(key), list_bytes))
            self._counts.manifest_list_writes += 1

    def _work_on_manifests(
        self, around: _Surroundings, steps: StorageSteps, key: tuple[int, int], list_bytes: int, cost: ConflictCost
    ) -> Delays:
        """Read historical lists, then manifest files, then write manifest files: each kind in batches."""
        storage, counts = around.storage, self._counts
        if cost.historical_ml_reads:
            history = (storage.read(_list_key(key), list_bytes) for _ in range(cost.historical_ml_reads))
            yield from self._in_batches(around, steps.read_history, history)
            counts.manifest_list_reads += cost.historical_ml_reads
            counts.historical_ml_reads += cost.historical_ml_reads
        file_key, size_bytes = f"manifest_file/{key[0]}", around.policy.sizes.manifest_file
        if cost.manifest_file_reads:
            reads = (storage.read(file_key, size_bytes) for _ in range(cost.manifest_file_reads))
            yield from self._in_batches(around, steps.read_files, reads)
            counts.manifest_file_reads += cost.manifest_file_reads
        if cost.manifest_file_writes:
            writes = (storage.write(file_key, size_bytes) for _ in range(cost.manifest_file_writes))
            yield from self._in_batches(around, steps.write_files, writes)
            counts.manifest_file_writes += cost.manifest_file_writes

    def _in_batches(
        self, around: _Surroundings, step: Step, operations: Iterable[Generator[float, None, StorageResult]]
    ) -> Delays:
        """Run operations `max_parallel` at a time; a batch takes as long as its slowest."""
        batch: list[float] = []
        for operation in operations:
            batch.append(sum(operation))
            if len(batch) == around.policy.max_parallel:
                self._spend(step, max(batch), len(batch))
                yield max(batch)
                batch.clear()
        if batch:
            self._spend(step, max(batch), len(batch))
            yield max(batch)

    def _timed(self, step: Step, operation: Generator[float, None, Any]) -> Generator[float, None, Any]:
        """Run an operation, adding each of its delays to the clock and to its component."""
        start_ms = self.now_ms
        while True:
            try:
                delay_ms = next(operation)
            except StopIteration as stop:
                self._tell(step.title, start_ms)
                return stop.value
            self.now_ms += delay_ms
            self._times[step.component] += delay_ms
            yield delay_ms

    def _spend(self, step: Step, delay_ms: float, count: int = 1) -> None:
        start_ms = self.now_ms
        self.now_ms += delay_ms
        self._times[step.component] += delay_ms
        self._tell(step.title, start_ms, count)

    def _tell(self, what: str, start_ms: float, count: int = 1) -> None:
        if self.observer is not None:
            self.observer(self, what, start_ms, self.now_ms, count)

    def _result(self, abort_reason: str | None) -> TransactionResult:
        committed = abort_reason is None
        self.status = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED
        self._tell("committed" if abort_reason is None else abort_reason, self.now_ms)
        times = self._times
        return TransactionResult(
            status=self.status,
            txn_id=self.txn_id,
            commit_time_ms=self.now_ms if committed else -1.0,
            abort_time_ms=-1.0 if committed else self.now_ms,
            abort_reason=abort_reason,
            total_retries=self.attempts - 1,
            commit_latency_ms=self.now_ms - self.commit_start_ms,
            total_latency_ms=self.now_ms - self.submit_time_ms,
            operation_type=self.operation_type,
            runtime_ms=self.runtime_ms,
            catalog_read_ms=times[Component.CATALOG_READ],
            per_attempt_io_ms=times[Component.PER_ATTEMPT_IO],
            conflict_io_ms=times[Component.CONFLICT_IO],
            catalog_commit_ms=times[Component.CATALOG_COMMIT],
            submit_time_ms=self.submit_time_ms,
            stream=self.stream,
            attempts=self.attempts,
            backoff_ms=times[Component.BACKOFF],
            restart_ms=self._counts.restarts * self.runtime_ms,
            start_ms=self._start_ms,
            tables_written=self._written,
            **self._counts.to_dict(),
        )


def _list_key(key: tuple[int, int]) -> str:
    table_id, partition = key
    return f"manifest_list/{table_id}" if partition == WHOLE_TABLE else f"manifest_list/{table_id}/{partition}"


def _without_list_writes(cost: ConflictCost) -> ConflictCost:
    return replace(cost, manifest_list_writes=0)


def _sorted_partitions(partitions: Mapping[int, frozenset[int]] | None) -> dict[int, tuple[int, ...]] | None:
    if partitions is None:
        return None
    return {table_id: tuple(sorted(chosen)) for table_id, chosen in partitions.items()}


class CostedTransaction(Transaction):
    """A transaction whose behaviour is a record of costs."""

    def __init__(self, *args: Any, costs: OperationCosts, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.costs = costs
        self.operation_type = costs.name

    def can_have_real_conflict(self) -> bool:
        return self.costs.can_conflict

    def should_abort_on_real_conflict(self) -> bool:
        return self.costs.can_conflict

    def get_per_attempt_cost(self, ml_append_mode: bool = False) -> ConflictCost:
        cost = self.costs.first_attempt
        return _without_list_writes(cost) if ml_append_mode else cost

    def get_redone_attempt_cost(self, ml_append_mode: bool = False) -> ConflictCost:
        cost = self.costs.redone_attempt
        return _without_list_writes(cost) if ml_append_mode else cost

    def get_conflict_cost(self, n_snapshots_behind: int = 0, ml_append_mode: bool = False) -> ConflictCost:
        return self.costs.per_missed_commit.times(n_snapshots_behind)


class FastAppendTransaction(CostedTransaction):
    """Adds files; never conflicts and validates nothing."""

    operation_type = FAST_APPEND.name

    def __init__(self, *args: Any, costs: OperationCosts = FAST_APPEND, **kwargs: Any) -> None:
        super().__init__(*args, costs=costs, **kwargs)


class MergeAppendTransaction(CostedTransaction):
    """Adds files and merges manifests; after an overlap merges those of the missed commits too."""

    operation_type = "merge_append"

    def __init__(
        self,
        *args: Any,
        manifests_per_concurrent_commit: float = 1.5,
        costs: OperationCosts | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, costs=costs or merge_append_costs(manifests_per_concurrent_commit), **kwargs)


class ValidatedOverwriteTransaction(CostedTransaction):
    """Replaces data; after an overlap reads the manifest list of every missed commit, and may find a conflict."""

    operation_type = "validated_overwrite"

    def __init__(
        self,
        *args: Any,
        validation_manifests_per_commit: float = 0.0,
        costs: OperationCosts | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, costs=costs or validated_overwrite_costs(validation_manifests_per_commit), **kwargs)
