"""Detectors: whom they ask, what they compare, what they draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from endive.catalog import CatalogSnapshot, InstantCatalog, TableMetadata
from endive.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.policy import CommitPolicy
from endive.simulation import Simulation, SimulationConfig
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage
from endive.transaction import (
    ConflictDetector,
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    ValidatedOverwriteTransaction,
)


def snapshot(*partition_versions: int) -> CatalogSnapshot:
    table = TableMetadata(0, sum(partition_versions), len(partition_versions), partition_versions)
    return CatalogSnapshot(sum(partition_versions), (table,), 0.0)


def overwrite(*partitions: int) -> Transaction:
    return ValidatedOverwriteTransaction(1, 0.0, 10.0, frozenset({0}), {0: frozenset(partitions)})


@pytest.mark.parametrize("kind", [FastAppendTransaction, MergeAppendTransaction])
def test_operations_that_cannot_conflict_are_never_asked_nor_drawn_for(kind: type[Transaction]) -> None:
    txn = kind(1, 0.0, 10.0, frozenset({0}))
    for make in (lambda rng: ProbabilisticConflictDetector(1.0, rng), PartitionOverlapConflictDetector):
        rng = np.random.RandomState(1)
        assert not make(rng).is_real_conflict(txn, snapshot(1), snapshot(0))
        assert rng.random_sample() == np.random.RandomState(1).random_sample()


class ZealousDetector(ConflictDetector):
    """Finds a conflict in everything that it is asked about."""

    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "real"), [(FastAppendTransaction, 0), (MergeAppendTransaction, 0), (ValidatedOverwriteTransaction, 1)]
)
def test_a_transaction_asks_no_detector_if_it_cannot_conflict(kind: type[Transaction], real: int) -> None:
    """Two race for a table; only an overwrite that loses is asked about."""
    workload = ScriptedWorkload(lambda: [kind(txn_id, 0.0, 10.0, frozenset({0})) for txn_id in (1, 2)])
    config = replace(create_test_config(workload=workload), conflict_detector=ZealousDetector())
    statistics = Simulation(config).run()
    assert (statistics.committed, statistics.validation_exceptions) == (2 - real, real)
    loser = next(row for row in statistics.transactions if row.txn_id == 2)
    assert (loser.false_conflicts, loser.real_conflicts) == (1 - real, real)


def test_a_bound_view_of_a_subclass_is_one_too() -> None:
    class Chance(ProbabilisticConflictDetector):
        pass

    class Overlap(PartitionOverlapConflictDetector):
        pass

    for detector in (Chance(0.5), Overlap()):
        assert type(detector.bind(np.random.RandomState(1))) is type(detector)


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_real_conflicts_come_with_their_probability(probability: float) -> None:
    detector = ProbabilisticConflictDetector(probability, np.random.RandomState(5))
    count, txn = 10_000, overwrite(0)
    real = sum(detector.is_real_conflict(txn, snapshot(1), snapshot(0)) for _ in range(count))
    assert abs(real - count * probability) <= 4 * (count * probability * (1 - probability)) ** 0.5


def test_each_detector_draws_one_number_even_where_the_answer_is_certain() -> None:
    for detector in (ProbabilisticConflictDetector(0.0), PartitionOverlapConflictDetector()):
        rng, other = np.random.RandomState(1), np.random.RandomState(1)
        detector.bind(rng).is_real_conflict(overwrite(0), snapshot(1), snapshot(0))
        other.random_sample()
        assert rng.random_sample() == other.random_sample()


@pytest.mark.parametrize(
    ("written", "now", "real"),
    [((0,), (1, 0, 0), True), ((1,), (1, 0, 0), False), ((1, 2), (0, 0, 3), True), ((0, 1), (0, 0, 0), False)],
)
def test_partition_overlap_compares_written_partitions_with_the_start(
    written: tuple[int, ...], now: tuple[int, ...], real: bool
) -> None:
    found = PartitionOverlapConflictDetector().is_real_conflict(overwrite(*written), snapshot(*now), snapshot(0, 0, 0))
    assert found == real


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_a_probability_is_a_share(probability: float) -> None:
    with pytest.raises(ValueError, match="real_conflict_probability is "):
        ProbabilisticConflictDetector(probability)


def race(detector: ConflictDetector, policy: CommitPolicy) -> SimulationConfig:
    """An overwrite of partition 0 that loses twice: to an append to partition 0, then to one to partition 1.

    Catalog 1 ms, store 10 and 20 ms. The overwrite reads at 0 and tries first at 1 + 200 + 50 = 251.
    """

    def make() -> list[Transaction]:
        return [
            ValidatedOverwriteTransaction(1, 0.0, 200.0, frozenset({0}), {0: frozenset({0})}),
            FastAppendTransaction(2, 50.0, 1.0, frozenset({0}), {0: frozenset({0})}),
            FastAppendTransaction(3, 210.0, 1.0, frozenset({0}), {0: frozenset({1})}),
        ]

    return SimulationConfig(
        duration_ms=5000.0,
        seed=1,
        storage_provider=fixed_storage(),
        catalog=InstantCatalog(1, (2,), scope="table"),
        workload=ScriptedWorkload(make, 1, (2,)),
        conflict_detector=detector,
        policy=policy,
    )


def test_the_start_is_that_of_the_transaction_and_not_the_last_read() -> None:
    """After a merged conflict in its partition, a change elsewhere in the table is still one since the start."""
    policy = CommitPolicy(on_real_conflict="merge", overlap="table")
    rows = Simulation(race(PartitionOverlapConflictDetector(), policy)).run().transactions
    row = next(row for row in rows if row.txn_id == 1)
    assert (row.total_retries, row.real_conflicts, row.false_conflicts) == (2, 2, 0)


def test_tables_are_worked_on_in_ascending_order() -> None:
    seen: list[str] = []
    storage = fixed_storage()

    class Recording(type(storage)):
        def read(self, key: str, expected_size_bytes: int) -> object:
            seen.append(key)
            return super().read(key, expected_size_bytes)

    storage.__class__ = Recording
    tables = frozenset({7, 2, 5})
    workload = ScriptedWorkload(lambda: [FastAppendTransaction(1, 0.0, 1.0, tables)], 8)
    Simulation(create_test_config(num_tables=8, storage=storage, workload=workload)).run()
    assert seen == ["manifest_list/2", "manifest_list/5", "manifest_list/7"]
