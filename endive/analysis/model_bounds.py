"""The bounds of a configuration: its mean latencies, its pointers, and whether its retries always redo their work.

Every simplification errs to a shorter attempt, so to a higher bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from endive.analysis.bounds import AttemptTimes, log_bound_per_s, pointer_bound_per_s
from endive.analysis.frames import AnalysisError
from endive.catalog import CATALOG_KEY, LOG_KEY, AppendCatalog, CASCatalog, InstantCatalog
from endive.operation_costs import ConflictCost, OperationCosts
from endive.simulation import SimulationConfig
from endive.storage import LatencyDistribution, ProfiledStorage, SizeBasedLatency
from endive.workload import WorkloadConfig

BuiltInCatalog = CASCatalog | AppendCatalog | InstantCatalog


def commit_rate_bound_per_s(config: SimulationConfig) -> float:
    """Return the commits per second that typical attempts of a configuration allow, however much is offered.

    Mean latencies, floors included; with random latencies many contenders pass it by some percent. Raise AnalysisError
    for components of one's own, whose latencies are not known.
    """
    times = mean_attempt_times(config)
    bound = pointer_bound_per_s(times, count_pointers(config), always_redone=always_redone(config))
    if isinstance(config.catalog, AppendCatalog):
        return min(bound, log_bound_per_s(times.commit_ms, times.effect_point))
    return bound


def mean_attempt_times(config: SimulationConfig) -> AttemptTimes:
    """Return the mean latencies of the cheapest attempt that can follow a failed commit, floors included."""
    catalog, storage = _known(config.catalog), config.storage_provider
    if not isinstance(storage, ProfiledStorage):
        raise AnalysisError(f"storage {type(storage).__name__}: its latencies are not known, so neither are bounds")
    manifest_io_ms = min(
        min(_retry_ms(config, storage, costs), _first_ms(config, storage, stream, costs))
        for stream in _streams(config)
        for costs, weight in stream.weighted_operations()
        if weight > 0.0
    )
    return AttemptTimes(*_catalog_ms(catalog, manifest_io_ms), effect_point=catalog.effect_point)


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


def _streams(config: SimulationConfig) -> Iterator[WorkloadConfig]:
    return (stream.config for stream in config.workload.streams)


def _tracks_partitions(config: SimulationConfig) -> bool:
    return any(stream.partitions_per_txn is not None for stream in _streams(config))


def _catalog_ms(catalog: BuiltInCatalog, manifest_io_ms: float) -> tuple[float, float, float]:
    """Return the means of the catalog read, the manifest work and the commit."""
    if isinstance(catalog, InstantCatalog):
        return catalog.latency_ms, manifest_io_ms, catalog.latency_ms
    storage = catalog.storage
    if not isinstance(storage, ProfiledStorage):
        raise AnalysisError(f"storage {type(storage).__name__}: its latencies are not known, so neither are bounds")
    profile = storage.profile
    read_ms = _mean_ms(storage, CATALOG_KEY, "read", profile.read, catalog.entry_bytes)
    is_log = isinstance(catalog, AppendCatalog)
    commit, key = (profile.append, LOG_KEY) if is_log else (profile.cas, CATALOG_KEY)
    size_bytes = catalog.log.entry_bytes if isinstance(catalog, AppendCatalog) else catalog.entry_bytes
    return read_ms, manifest_io_ms, _mean_ms(storage, key, "write", commit, size_bytes)


def _retry_ms(config: SimulationConfig, storage: ProfiledStorage, costs: OperationCosts) -> float:
    """Return the mean manifest work of a retry of one table that missed one commit."""
    redone, metadata = costs.redone_attempt, 0 if config.policy.table_metadata_inlined else 1
    if config.ml_append_mode:
        redone, metadata = replace(redone, manifest_list_writes=0, manifest_file_writes=0), 0
    missed_ms = _work_ms(config, storage, costs.per_missed_commit.times(1))
    return missed_ms + _work_ms(config, storage, redone, metadata)


def _first_ms(
    config: SimulationConfig, storage: ProfiledStorage, stream: WorkloadConfig, costs: OperationCosts
) -> float:
    """Return the mean time from the first catalog read to the first commit: work, then manifest work."""
    first = replace(costs.first_attempt, manifest_list_writes=0) if config.ml_append_mode else costs.first_attempt
    return stream.runtime.mean_ms() + _work_ms(config, storage, first)


def _work_ms(config: SimulationConfig, storage: ProfiledStorage, cost: ConflictCost, metadata: int = 0) -> float:
    """Return the mean time of storage operations; a batch counts as one of its operations."""
    sizes, profile, parallel = config.policy.sizes, storage.profile, config.policy.max_parallel

    def total(artifact: str, operation: str, count: int, size_bytes: int) -> float:
        model = profile.read if operation == "read" else profile.write
        return count * _mean_ms(storage, f"{artifact}/0", operation, model, size_bytes) if count else 0.0

    return (
        total("manifest_list", "read", cost.manifest_list_reads, sizes.manifest_list)
        + total("manifest_list", "read", math.ceil(cost.historical_ml_reads / parallel), sizes.manifest_list)
        + total("manifest_file", "read", math.ceil(cost.manifest_file_reads / parallel), sizes.manifest_file)
        + total("manifest_file", "write", math.ceil(cost.manifest_file_writes / parallel), sizes.manifest_file)
        + total("manifest_list", "write", cost.manifest_list_writes, sizes.manifest_list)
        + total("metadata", "read", cost.metadata_reads + metadata, sizes.table_metadata)
        + total("metadata", "write", metadata, sizes.table_metadata)
    )


def _mean_ms(
    storage: ProfiledStorage, key: str, operation: str, default: LatencyDistribution | None, size_bytes: int
) -> float:
    """Return the mean of an operation under the provider's floor, or less where only that can be told."""
    artifact = storage.artifacts.get(key.partition("/")[0])
    own = None if artifact is None else (artifact.read if operation == "read" else artifact.write)
    model: Any = own or default
    assert model is not None, "a built-in catalog is made on a store that has its operations"
    floor = storage.min_latency_ms
    if isinstance(model, SizeBasedLatency):
        model = model.with_size(size_bytes)
    if hasattr(model, "min_latency_ms"):
        return float(replace(model, min_latency_ms=max(floor, model.min_latency_ms)).mean_ms())
    return max(floor, float(model.mean_ms()))
