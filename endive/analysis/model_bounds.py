"""The bounds of a configuration: its latencies, its pointers, and whether its retries always redo their work.

Every simplification errs to a shorter attempt, so to a higher bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from endive.analysis.bounds import (
    AttemptTimes,
    closed_loop_bound_per_s,
    closed_loop_success_bound,
    contended_bound_per_s,
    log_bound_per_s,
    pointer_bound_per_s,
)
from endive.analysis.frames import AnalysisError, Floats
from endive.catalog import CATALOG_KEY, LOG_KEY, AppendCatalog, CASCatalog, InstantCatalog
from endive.operation_costs import ConflictCost, OperationCosts
from endive.random_streams import new_random_state
from endive.simulation import SimulationConfig
from endive.storage import FixedLatency, LatencyDistribution, ProfiledStorage, SizeBasedLatency
from endive.workload import WorkloadConfig

BuiltInCatalog = CASCatalog | AppendCatalog | InstantCatalog

SAMPLES: Final = 2000


class _Step(NamedTuple):
    """So many operations, one after the other, of one latency with a floor, in milliseconds."""

    latency: LatencyDistribution
    floor_ms: float
    operations: int = 1


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The steps of the cheapest attempt that can follow a failed commit."""

    catalog_read: _Step
    manifest_io: tuple[_Step, ...]
    commit: _Step
    effect_point: float


@dataclass(frozen=True, slots=True)
class RateBounds:
    """What typical attempts of a configuration allow.

    `pointers_per_s`: commits that its pointers take. `clients_per_s`: commits that its clients can ask for; infinite
    where a stream is open. `success`: the share that commits of clients that never retry, about 1 / N; None for others,
    and where a failed commit takes a time of its own.
    """

    pointers_per_s: float
    clients_per_s: float
    success: float | None

    @property
    def commits_per_s(self) -> float:
        """The lower of both bounds of the commit rate."""
        return min(self.pointers_per_s, self.clients_per_s)


def rate_bounds(config: SimulationConfig) -> RateBounds:
    """Return the bounds of a configuration; raise AnalysisError for components whose latencies are not known."""
    pointers_per_s, clients_per_s = commit_rate_bound_per_s(config), clients_bound_per_s(config)
    streams = list(_streams(config))
    fails_otherwise = isinstance(config.catalog, AppendCatalog) or _fails_in_its_own_time(_known(config.catalog))
    if math.isinf(clients_per_s) or config.max_retries or len(streams) > 1 or fails_otherwise:
        return RateBounds(pointers_per_s, clients_per_s, None)
    (stream,) = streams
    success = closed_loop_success_bound(
        _first_times(config, stream),
        stream.clients,
        stream.runtime.mean_ms(),
        stream.inter_arrival.mean_ms(),
        count_pointers(config),
    )
    return RateBounds(pointers_per_s, clients_per_s, success)


def clients_bound_per_s(config: SimulationConfig) -> float:
    """Return the commits per second that the clients of closed streams can ask for; infinite if a stream is open."""
    streams = list(_streams(config))
    if not all(stream.clients for stream in streams):
        return math.inf
    return sum(
        closed_loop_bound_per_s(
            _first_times(config, stream),
            stream.clients,
            stream.runtime.mean_ms(),
            stream.inter_arrival.mean_ms(),
        )
        for stream in streams
    )


def commit_rate_bound_per_s(config: SimulationConfig) -> float:
    """Return the commits per second that typical attempts of a configuration allow, however much is offered.

    Mean latencies, floors included. Where latencies scatter, many contenders pass it: see
    `contended_rate_bound_per_s`. Raise AnalysisError for components of one's own, whose latencies are not known.
    """
    times = mean_attempt_times(config)
    bound = pointer_bound_per_s(times, count_pointers(config), always_redone=always_redone(config))
    if isinstance(config.catalog, AppendCatalog):
        return min(bound, log_bound_per_s(times.commit_ms, times.effect_point))
    return bound


def contended_rate_bound_per_s(config: SimulationConfig, contenders: int, samples: int = SAMPLES) -> float:
    """Return the commits per second that no `contenders` transactions for each pointer exceed, in the long run.

    It counts that the fastest of them wins, from a seeded sample of attempts.
    """
    attempt = _cheapest_attempt(config)
    rng = new_random_state()
    read_ms, commit_ms = (_draws_ms(step, samples, rng) for step in (attempt.catalog_read, attempt.commit))
    exposures_ms = (1.0 - attempt.effect_point) * read_ms + attempt.effect_point * commit_ms
    if always_redone(config):
        exposures_ms += sum(_draws_ms(step, samples, rng) for step in attempt.manifest_io)
    pointers = count_pointers(config)
    bound = contended_bound_per_s(exposures_ms, contenders, pointers)
    if isinstance(config.catalog, AppendCatalog):
        return min(bound, contended_bound_per_s(attempt.effect_point * commit_ms, contenders * pointers))
    return bound


def mean_attempt_times(config: SimulationConfig) -> AttemptTimes:
    """Return the mean latencies of the cheapest attempt that can follow a failed commit, floors included."""
    attempt = _cheapest_attempt(config)
    read_ms, commit_ms = _mean_ms(attempt.catalog_read), _mean_ms(attempt.commit)
    return AttemptTimes(read_ms, sum(map(_mean_ms, attempt.manifest_io)), commit_ms, attempt.effect_point)


def _first_times(config: SimulationConfig, stream: WorkloadConfig) -> AttemptTimes:
    """Return the mean latencies of the cheapest first attempt of a stream, whether it commits or not."""
    catalog = _known(config.catalog)
    work_ms = min(
        sum(map(_mean_ms, _first_work(config, costs))) for costs, weight in stream.weighted_operations() if weight > 0.0
    )
    commit_ms = _mean_ms(_catalog_commit(catalog))
    if _fails_in_its_own_time(catalog):
        commit_ms *= catalog.effect_point
    return AttemptTimes(_mean_ms(_catalog_read(catalog)), work_ms, commit_ms, catalog.effect_point)


def _fails_in_its_own_time(catalog: BuiltInCatalog) -> bool:
    """Whether a failed commit may be answered sooner than one that succeeds."""
    if isinstance(catalog, InstantCatalog):
        return False
    failures = _profiled(catalog.storage).failures
    return failures.append if isinstance(catalog, AppendCatalog) else failures.cas


def count_pointers(config: SimulationConfig) -> int:
    """Return how many pointers there are by the catalog's scope, each of which takes one commit at a time."""
    catalog = _known(config.catalog)
    topology = config.workload.streams[0].config
    if catalog.scope == "catalog":
        return 1
    if catalog.scope == "group":
        return len(set(catalog.groups))
    if catalog.scope == "partition" and _tracks_partitions(config):
        return sum(topology.partitions_per_table)
    return topology.num_tables


def always_redone(config: SimulationConfig) -> bool:
    """Whether a commit that fails always finds its own tables changed, so that its manifests are written again."""
    catalog = _known(config.catalog)
    tracked = _tracks_partitions(config)
    if catalog.scope == "partition" and tracked:
        return config.policy.isolation == "snapshot"
    if tracked and config.policy.overlap == "partition":
        return False
    if catalog.scope in ("table", "partition"):
        return config.policy.isolation == "snapshot"
    tables = config.workload.streams[0].config.num_tables
    return tables == 1 or (catalog.scope == "group" and len(set(catalog.groups)) == tables)


def _known(catalog: Any) -> BuiltInCatalog:
    if type(catalog) not in (CASCatalog, AppendCatalog, InstantCatalog):
        raise AnalysisError(f"catalog {type(catalog).__name__}: its latencies are not known, so neither are bounds")
    found: BuiltInCatalog = catalog
    return found


def _profiled(storage: Any) -> ProfiledStorage:
    if type(storage) is not ProfiledStorage:
        raise AnalysisError(f"storage {type(storage).__name__}: its latencies are not known, so neither are bounds")
    found: ProfiledStorage = storage
    return found


def _streams(config: SimulationConfig) -> Iterator[WorkloadConfig]:
    return (stream.config for stream in config.workload.streams)


def _tracks_partitions(config: SimulationConfig) -> bool:
    return any(stream.partitions_per_txn is not None for stream in _streams(config))


def _cheapest_attempt(config: SimulationConfig) -> _Attempt:
    catalog = _known(config.catalog)
    ways = [
        way
        for stream in _streams(config)
        for costs, weight in stream.weighted_operations()
        if weight > 0.0
        for way in (_retry(config, costs), _first(config, stream, costs))
    ]
    cheapest = min(ways, key=lambda way: sum(map(_mean_ms, way)))
    return _Attempt(_catalog_read(catalog), cheapest, _catalog_commit(catalog), catalog.effect_point)


def _catalog_read(catalog: BuiltInCatalog) -> _Step:
    if isinstance(catalog, InstantCatalog):
        return _Step(FixedLatency(catalog.latency_ms), 0.0)
    return _storage_step(_profiled(catalog.storage), CATALOG_KEY, "read", catalog.entry_bytes)


def _catalog_commit(catalog: BuiltInCatalog) -> _Step:
    """Return the compare-and-swap, or the append to the log without its discovery read."""
    if isinstance(catalog, InstantCatalog):
        return _Step(FixedLatency(catalog.latency_ms), 0.0)
    storage = _profiled(catalog.storage)
    if isinstance(catalog, AppendCatalog):
        return _storage_step(storage, LOG_KEY, "write", catalog.log.entry_bytes, storage.profile.append)
    return _storage_step(storage, CATALOG_KEY, "write", catalog.entry_bytes, storage.profile.cas)


def _retry(config: SimulationConfig, costs: OperationCosts) -> tuple[_Step, ...]:
    """Return the manifest work of a retry of one table that missed one commit."""
    redone, metadata = costs.redone_attempt, 0 if config.policy.table_metadata_inlined else 1
    if config.ml_append_mode:
        redone, metadata = replace(redone, manifest_list_writes=0, manifest_file_writes=0), 0
    return _work(config, costs.per_missed_commit.times(1)) + _work(config, redone, metadata)


def _first(config: SimulationConfig, stream: WorkloadConfig, costs: OperationCosts) -> tuple[_Step, ...]:
    """Return what lies between the first catalog read and the first commit: work, then manifest work."""
    return (_Step(stream.runtime, 0.0), *_first_work(config, costs))


def _first_work(config: SimulationConfig, costs: OperationCosts) -> tuple[_Step, ...]:
    """Return the manifest work of a first attempt."""
    first = replace(costs.first_attempt, manifest_list_writes=0) if config.ml_append_mode else costs.first_attempt
    return _work(config, first)


def _work(config: SimulationConfig, cost: ConflictCost, metadata: int = 0) -> tuple[_Step, ...]:
    """Return storage operations; a batch counts as one of them."""
    sizes, parallel = config.policy.sizes, config.policy.max_parallel
    storage = _profiled(config.storage_provider)

    def step(artifact: str, operation: str, count: int, size_bytes: int) -> _Step:
        return _storage_step(storage, artifact, operation, size_bytes)._replace(operations=count)

    steps = (
        step("manifest_list", "read", cost.manifest_list_reads, sizes.manifest_list),
        step("manifest_list", "read", math.ceil(cost.historical_ml_reads / parallel), sizes.manifest_list),
        step("manifest_file", "read", math.ceil(cost.manifest_file_reads / parallel), sizes.manifest_file),
        step("manifest_file", "write", math.ceil(cost.manifest_file_writes / parallel), sizes.manifest_file),
        step("manifest_list", "write", cost.manifest_list_writes, sizes.manifest_list),
        step("metadata", "read", cost.metadata_reads + metadata, sizes.table_metadata),
        step("metadata", "write", metadata, sizes.table_metadata),
    )
    return tuple(found for found in steps if found.operations)


def _storage_step(
    storage: ProfiledStorage, key: str, operation: str, size_bytes: int, default: LatencyDistribution | None = None
) -> _Step:
    """Return an operation on an artifact; `default` is its latency where the artifact has none of its own."""
    artifact = storage.artifacts.get(key.partition("/")[0])
    own = None if artifact is None else (artifact.read if operation == "read" else artifact.write)
    model = own or default or (storage.profile.read if operation == "read" else storage.profile.write)
    return _Step(model.with_size(size_bytes) if isinstance(model, SizeBasedLatency) else model, storage.min_latency_ms)


def _mean_ms(step: _Step) -> float:
    """Return the mean of all the operations of a step, or less where only that can be told of a floor."""
    model: Any = step.latency
    if hasattr(model, "min_latency_ms"):
        model = replace(model, min_latency_ms=max(step.floor_ms, model.min_latency_ms))
    return step.operations * max(step.floor_ms, float(model.mean_ms()))


def _draws_ms(step: _Step, samples: int, rng: np.random.RandomState) -> Floats:
    """Return a sample of how long all the operations of a step take."""
    drawn = np.array([step.latency.sample(rng) for _ in range(samples * step.operations)], dtype=np.float64)
    found: Floats = np.maximum(drawn, step.floor_ms).reshape(samples, step.operations).sum(axis=1)
    return found
