"""Small, exactly known simulations, for tests and for first steps with the library."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from endive.catalog import Catalog, InstantCatalog
from endive.conflict_detector import ProbabilisticConflictDetector
from endive.random_streams import new_random_state
from endive.simulation import SimulationConfig
from endive.storage import ArtifactLatency, FailureLatencies, FixedLatency, ProfiledStorage, ProviderProfile
from endive.transaction import Transaction
from endive.workload import Workload, WorkloadConfig

Result = TypeVar("Result")


def fixed_storage(
    read_ms: float = 10.0,
    write_ms: float = 20.0,
    cas_ms: float = 5.0,
    append_ms: float = 4.0,
    *,
    cas_failure_ms: float | None = None,
    append_failure_ms: float | None = None,
    artifacts: Mapping[str, ArtifactLatency] | None = None,
    rng: np.random.RandomState | None = None,
) -> ProfiledStorage:
    """Return a store that has every operation, each with one latency in milliseconds."""

    def fixed(latency_ms: float | None) -> FixedLatency | None:
        return None if latency_ms is None else FixedLatency(latency_ms)

    profile = ProviderProfile(
        name="fixed",
        title="Fixed latencies",
        min_latency_ms=0.0,
        read=FixedLatency(read_ms),
        write=FixedLatency(write_ms),
        cas=fixed(cas_ms),
        cas_failure=fixed(cas_failure_ms),
        append=fixed(append_ms),
        append_failure=fixed(append_failure_ms),
        tail_append=fixed(append_ms),
    )
    return ProfiledStorage(rng or new_random_state(), profile, FailureLatencies(cas=True, append=True), artifacts)


class ScriptedWorkload(Workload):
    """Submits given transactions at their own `submit_time_ms`, and then no more.

    `make_transactions` is called anew for every run, since transactions keep their progress.
    """

    def __init__(
        self,
        make_transactions: Callable[[], Sequence[Transaction]],
        num_tables: int = 1,
        partitions_per_table: tuple[int, ...] | None = None,
    ) -> None:
        never = FixedLatency(1.0)
        super().__init__(WorkloadConfig(never, never, num_tables, partitions_per_table or (1,) * num_tables), seed=0)
        self._make_transactions = make_transactions

    def generate(self, client: int = 0) -> Generator[tuple[float, Transaction], None, None]:
        now_ms = 0.0
        for txn in sorted(self._make_transactions(), key=lambda txn: txn.submit_time_ms):
            yield txn.submit_time_ms - now_ms, txn
            now_ms = txn.submit_time_ms


def create_test_config(
    *,
    duration_ms: float = 10_000.0,
    seed: int | None = 42,
    num_tables: int = 1,
    partitions_per_table: tuple[int, ...] | None = None,
    inter_arrival_ms: float = 100.0,
    runtime_ms: float = 200.0,
    storage: ProfiledStorage | None = None,
    catalog: Catalog | None = None,
    workload: Workload | None = None,
    real_conflict_probability: float = 0.0,
    workload_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> SimulationConfig:
    """Return a configuration with fixed latencies; `options` are further fields of `SimulationConfig`."""
    partitions = partitions_per_table or (1,) * num_tables
    return SimulationConfig(
        duration_ms=duration_ms,
        seed=seed,
        storage_provider=storage or fixed_storage(),
        catalog=catalog or InstantCatalog(num_tables, partitions),
        workload=workload
        or Workload(
            WorkloadConfig(
                FixedLatency(inter_arrival_ms),
                FixedLatency(runtime_ms),
                num_tables,
                partitions,
                **(workload_options or {}),
            )
        ),
        conflict_detector=ProbabilisticConflictDetector(real_conflict_probability),
        **options,
    )


def run_generator(operation: Generator[float, None, Result]) -> tuple[float, Result]:
    """Run a generator of delays on its own; return the sum of its delays in milliseconds, and its result."""
    elapsed_ms = 0.0
    while True:
        try:
            elapsed_ms += next(operation)
        except StopIteration as stop:
            return elapsed_ms, stop.value
