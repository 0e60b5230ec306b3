"""The interfaces of the specification (v2.0), implemented and called exactly as it writes them.

Components of somebody else have the abstract methods that it lists, with its signatures, and no more.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator

import numpy as np
import pytest

from endive.catalog import Catalog, CatalogSnapshot, CommitResult, IntentionRecord, TableMetadata
from endive.simulation import Simulation, SimulationConfig
from endive.storage import FixedLatency, LatencyDistribution, StorageProvider, StorageResult
from endive.test_utils import ScriptedWorkload, create_test_config
from endive.transaction import (
    ConflictCost,
    ConflictDetector,
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    ValidatedOverwriteTransaction,
)
from endive.workload import (
    PartitionSelector,
    TableSelector,
    UniformPartitionSelector,
    UniformTableSelector,
    Workload,
    WorkloadConfig,
    ZipfPartitionSelector,
    ZipfTableSelector,
)

Storing = Generator[float, None, StorageResult]


class OwnLatency(LatencyDistribution):
    def sample(self, rng: np.random.RandomState) -> float:
        return 50.0


class OwnStorage(StorageProvider):
    def _take(self, size_bytes: int) -> Storing:
        yield 10.0
        return StorageResult(True, 10.0, size_bytes)

    def read(self, key: str, expected_size_bytes: int) -> Storing:
        return self._take(expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Storing:
        return self._take(size_bytes)

    def cas(self, key: str, expected_version: int, size_bytes: int) -> Storing:
        return self._take(size_bytes)

    def append(self, key: str, offset: int, size_bytes: int) -> Storing:
        return self._take(size_bytes)

    def tail_append(self, key: str, size_bytes: int) -> Storing:
        return self._take(size_bytes)


class OwnCatalog(Catalog):
    """One table, and a compare-and-swap on the sequence."""

    def __init__(self) -> None:
        self._seq = 0

    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        yield 5.0
        return CatalogSnapshot(self._seq, (TableMetadata(0, self._seq, 1, (self._seq,)),), timestamp_ms)

    def commit(
        self,
        expected_seq: int,
        writes: dict[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        yield 5.0
        success = expected_seq == self._seq
        self._seq += success
        return CommitResult(success, 5.0)

    @property
    def seq(self) -> int:
        return self._seq


class OwnDetector(ConflictDetector):
    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        return False


class OwnTransaction(Transaction):
    """Reads a manifest list twice in each attempt, and nothing on top after a conflict."""

    operation_type = "own"

    def can_have_real_conflict(self) -> bool:
        return True

    def should_abort_on_real_conflict(self) -> bool:
        return True

    def get_per_attempt_cost(self, ml_append_mode: bool) -> ConflictCost:
        return ConflictCost(manifest_list_reads=2, manifest_list_writes=0 if ml_append_mode else 1)

    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool) -> ConflictCost:
        return ConflictCost()


class Indifferent(FastAppendTransaction):
    """Takes no commit of others for an overlap."""

    def has_write_overlap(self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot) -> bool:
        return False


class Suspicious(FastAppendTransaction):
    """Takes every commit of others for an overlap."""

    def has_write_overlap(self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot) -> bool:
        return True


class OwnTableSelector(TableSelector):
    def select(
        self, n_tables: int, total_tables: int, rng: np.random.RandomState
    ) -> tuple[frozenset[int], frozenset[int]]:
        return frozenset({0}), frozenset({0})


class OwnPartitionSelector(PartitionSelector):
    def select(
        self, n_partitions: int, total_partitions: int, rng: np.random.RandomState
    ) -> tuple[frozenset[int], frozenset[int]]:
        return frozenset({0}), frozenset({0})


def own_config(**options: object) -> SimulationConfig:
    workload = WorkloadConfig(
        inter_arrival=OwnLatency(),
        runtime=OwnLatency(),
        num_tables=1,
        partitions_per_table=(1,),
        table_selector=OwnTableSelector(),
        partitions_per_txn=1,
        partition_selector=OwnPartitionSelector(),
    )
    settings: dict[str, object] = {
        "duration_ms": 1000.0,
        "seed": 1,
        "storage_provider": OwnStorage(np.random.RandomState(0)),
        "catalog": OwnCatalog(),
        "workload": Workload(workload, seed=1),
        "conflict_detector": OwnDetector(),
    }
    return SimulationConfig(**(settings | options))


@pytest.mark.parametrize("ml_append_mode", [False, True])
def test_components_with_the_specified_methods_alone_make_a_simulation(ml_append_mode: bool) -> None:
    statistics = Simulation(own_config(ml_append_mode=ml_append_mode)).run(engine="reference")
    assert statistics.committed > 5
    assert statistics.final_seq == statistics.committed + statistics.in_flight_applied


@pytest.mark.parametrize("ml_append_mode", [False, True])
def test_a_transaction_with_the_specified_methods_alone_pays_its_own_costs(ml_append_mode: bool) -> None:
    workload = ScriptedWorkload(lambda: [OwnTransaction(txn_id, 0.0, 10.0, frozenset({0})) for txn_id in (1, 2)])
    first, second = Simulation(own_config(workload=workload, ml_append_mode=ml_append_mode)).run().transactions
    assert (first.total_retries, second.total_retries) == (0, 1)
    assert (first.manifest_list_reads, second.manifest_list_reads) == (2, 4)
    assert (first.manifest_list_writes, second.manifest_list_writes) == ((0, 0) if ml_append_mode else (1, 2))


@pytest.mark.parametrize(("kind", "tables", "writes"), [(Indifferent, (0, 0), 1), (Suspicious, (0, 1), 2)])
def test_has_write_overlap_has_the_last_word(
    kind: type[FastAppendTransaction], tables: tuple[int, int], writes: int
) -> None:
    """The loser of a race redoes its manifests if, and only if, its `has_write_overlap` says so."""
    workload = ScriptedWorkload(
        lambda: [kind(number, 0.0, 10.0, frozenset({table})) for number, table in enumerate(tables, start=1)]
    )
    loser = Simulation(create_test_config(num_tables=2, workload=workload)).run().transactions[1]
    assert loser.total_retries == 1
    assert loser.manifest_list_writes == writes


def test_a_provider_has_what_it_does_not_deny() -> None:
    storage = OwnStorage(rng=np.random.RandomState(0))
    assert (storage.supports_cas, storage.supports_append, storage.supports_tail_append) == (True, True, True)
    assert (storage.name, storage.min_latency_ms) == ("OwnStorage", 0.0)


@pytest.mark.parametrize("kind", [UniformTableSelector, ZipfTableSelector, OwnTableSelector])
def test_table_selectors_take_arguments_by_their_names(kind: type[TableSelector]) -> None:
    read, written = kind().select(n_tables=1, total_tables=5, rng=np.random.RandomState(1))
    assert written == read


@pytest.mark.parametrize("kind", [UniformPartitionSelector, ZipfPartitionSelector, OwnPartitionSelector])
def test_partition_selectors_take_arguments_by_their_names(kind: type[PartitionSelector]) -> None:
    read, written = kind().select(n_partitions=1, total_partitions=5, rng=np.random.RandomState(1))
    assert written == read


@pytest.mark.parametrize("kind", [FastAppendTransaction, MergeAppendTransaction, ValidatedOverwriteTransaction])
def test_transactions_take_arguments_by_place_and_by_name(kind: type[Transaction]) -> None:
    by_place = kind(1, 2.0, 3.0, frozenset({0}), {0: frozenset({1})})
    by_name = kind(
        txn_id=1,
        submit_time_ms=2.0,
        runtime_ms=3.0,
        tables_written=frozenset({0}),
        partitions_written={0: frozenset({1})},
    )
    for name in ("txn_id", "submit_time_ms", "runtime_ms", "tables_written", "partitions_written"):
        assert getattr(by_place, name) == getattr(by_name, name)
    assert by_place.get_conflict_cost(4, False) == by_name.get_conflict_cost(n_snapshots_behind=4, ml_append_mode=False)
    assert by_place.get_per_attempt_cost(True) == by_name.get_per_attempt_cost(ml_append_mode=True)
    parameters = list(inspect.signature(kind.execute).parameters)[1:6]
    assert parameters == ["catalog", "storage", "conflict_detector", "max_retries", "ml_append_mode"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_tables": 2}, "1 partition counts for 2 tables"),
        ({"merge_append_weight": -0.1}, "weight of merge_append is -0.1"),
        ({"fast_append_weight": float("nan")}, "weight of fast_append is nan"),
    ],
)
def test_a_workload_that_cannot_be_drawn_names_what_is_wrong(changes: dict[str, float], said: str) -> None:
    fields = {"inter_arrival": FixedLatency(1.0), "runtime": FixedLatency(1.0)} | {"num_tables": 1} | changes
    with pytest.raises(ValueError, match=said):
        Workload(WorkloadConfig(partitions_per_table=(1,), **fields))
