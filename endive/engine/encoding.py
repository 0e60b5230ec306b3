"""Between the two worlds: a configuration becomes the kernel's memory, its rows become a table.

What the kernel does not know is refused with `NotCompiledError`, which names the component.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from endive.catalog import AppendCatalog, CASCatalog, InstantCatalog
from endive.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.engine.errors import NotCompiledError
from endive.engine.layout import (
    ARRAYS,
    ARRIVALS_FROM,
    CHOICE,
    CLIENTS_PER_STREAM,
    COMPONENTS,
    COSTS,
    COUNTS,
    EVENT,
    LATENCY,
    OUTCOMES,
    PART,
    RNG,
    RUN,
    SLOT,
    SOURCE,
    STREAM,
    TOUCHED,
    CatalogScope,
    Kind,
    OnRealConflict,
    Operation,
    Outcome,
    Phase,
    RowNumber,
    RowTime,
    address_field,
    length_field,
)
from endive.operation_costs import ConflictCost, OperationCosts
from endive.policy import Backoff, CommitPolicy
from endive.random_streams import Source, family_base, substream_words
from endive.results import COLUMNS, ROWS_PER_GROUP, SCHEMA
from endive.simulation import InFlightTimes, SimulationConfig
from endive.storage import (
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    ProfiledStorage,
    SizeBasedLatency,
    UniformLatency,
)
from endive.storage import (
    Operation as StorageOperation,
)
from endive.transaction import ABORT_REASONS
from endive.workload import (
    MixedWorkload,
    UniformPartitionSelector,
    UniformTableSelector,
    WeightedDraw,
    Workload,
    WorkloadConfig,
    ZipfPartitionSelector,
    ZipfTableSelector,
    written_count,
)

SLOTS_AT_FIRST: Final = 256
_NO_FLOOR: Final = -math.inf
_FAMILIES: Final = (
    FixedLatency,
    LognormalLatency,
    SizeBasedLatency,
    NormalLatency,
    ExponentialLatency,
    UniformLatency,
    EmpiricalLatency,
)
_SCOPES: Final = {scope.name.lower(): scope for scope in CatalogScope}
_ACTIONS: Final = {action.name.lower(): action for action in OnRealConflict}

BuiltInCatalog = CASCatalog | AppendCatalog | InstantCatalog


Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(slots=True)
class Machine:
    """The memory of a run, and the names behind its codes. `runs` holds one record, to which the arrays are bound."""

    runs: np.ndarray[Any, Any]
    arrays: Arrays
    operations: tuple[str, ...]
    streams: tuple[str, ...]

    def __post_init__(self) -> None:
        self._bind()

    def _bind(self) -> None:
        """Let the record know where the arrays lie."""
        for name, (dtype, dimensions) in ARRAYS.items():
            array = self.arrays[name]
            assert (array.dtype, array.ndim, array.flags.c_contiguous) == (dtype, dimensions, True), name
            self.runs[address_field(name)] = array.ctypes.data
            for axis, length in enumerate(array.shape):
                self.runs[length_field(name, axis)] = length

    @property
    def run(self) -> Any:
        return self.runs[0]

    def add_slots(self) -> None:
        """Make room for twice as many transactions in flight."""
        slots, idle = len(self.arrays["slots"]), int(self.run["free"])
        for name in ("slots", "rngs", "touched", "parts", "heap", "free"):
            self.arrays[name] = _grown(self.arrays[name], slots)
        self.arrays["free"][idle : idle + slots] = np.arange(2 * slots - 1, slots - 1, -1)
        self.run["free"] = idle + slots
        self._bind()


def _grown(array: np.ndarray[Any, Any], more: int) -> np.ndarray[Any, Any]:
    """Return an array with zeros behind what it holds, copied as bytes: NumPy copies records field by field."""
    grown = np.zeros((len(array) + more, *array.shape[1:]), dtype=array.dtype)
    grown.reshape(-1).view(np.uint8)[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return grown


def encode(config: SimulationConfig, seed: int) -> Machine:
    """Return the memory of a run of a configuration, at its start."""
    storage, catalog = _known_storage(config.storage_provider), _known_catalog(config)
    partitions = tuple(table.num_partitions for table in catalog._state.tables)
    policy = config.effective_policy()
    streams = [_known_stream(stream) for stream in config.workload.bind(seed).streams]
    for stream in streams:
        _check_topology(stream.config, partitions, policy)
    latencies, choices = _Latencies(), _Choices()
    _add_operations(latencies, config, storage, catalog, policy)
    costs, names = _encode_costs(streams)
    tables, parts = len(partitions), sum(partitions)
    encoded_streams = _Streams(streams, latencies, choices)
    sources, source_rngs = _encode_sources(streams, seed)
    tables_most, parts_most = _most(streams, "tables_per_txn"), _most(streams, "partitions_per_txn")
    arrays: Arrays = {
        "latencies": _array(LATENCY, latencies.rows),
        "quantiles": np.array(latencies.quantiles or [(0.0, 0.0)], dtype=np.float64),
        "choices": _array(CHOICE, choices.rows),
        "weights": np.array(choices.weights, dtype=np.float64),
        "sums": np.array(choices.sums, dtype=np.float64),
        "costs": _array(COSTS, costs),
        "streams": _array(STREAM, encoded_streams.rows),
        "partition_choices": _integers(encoded_streams.partition_choices),
        "workload_groups": np.array(encoded_streams.groups or [(0, 0, 0)], dtype=np.int64),
        "group_members": np.array(encoded_streams.group_members or [(0, 0)], dtype=np.int64),
        "catalog_groups": _integers(catalog.groups),
        "sources": sources,
        "source_rngs": source_rngs,
        "scratch_rng": np.zeros(1, RNG),
        "scratch": np.zeros((2, max(tables_most, parts_most)), np.int64),
        "table_versions": np.zeros(tables, np.int64),
        "whole_bumps": np.zeros(tables, np.int64),
        "partition_offsets": _integers(np.cumsum([0, *partitions[:-1]])),
        "partition_versions": np.zeros(parts, np.int64),
        "group_seqs": np.zeros(max(catalog.groups) + 1, np.int64),
        "list_ends": np.zeros((parts if policy.list_per == "partition" else tables, 3), np.int64),
        "heap": np.zeros(SLOTS_AT_FIRST + len(sources), EVENT),
        "free": np.arange(SLOTS_AT_FIRST - 1, -1, -1, dtype=np.uint64),
        "slots": np.zeros(SLOTS_AT_FIRST, SLOT),
        "rngs": np.zeros(SLOTS_AT_FIRST, RNG),
        "touched": np.zeros((SLOTS_AT_FIRST, tables_most), TOUCHED),
        "parts": np.zeros((SLOTS_AT_FIRST, tables_most, parts_most), PART),
        "row_times": np.empty((len(RowTime), ROWS_PER_GROUP), np.float64),
        "row_numbers": np.empty((len(RowNumber), ROWS_PER_GROUP), np.int64),
        "row_tables": np.empty(ROWS_PER_GROUP * tables_most, np.int32),
        "total_numbers": np.zeros((len(names), OUTCOMES + 1 + len(COUNTS)), np.int64),
        "total_times": np.zeros((len(names), COMPONENTS + 1), np.float64),
    }
    runs = _encode_run(config, catalog, policy)
    runs["free"] = SLOTS_AT_FIRST
    return Machine(runs, arrays, names, tuple(stream.name for stream in streams))


def rows_table(machine: Machine) -> pa.Table:
    """Return the finished rows in memory as a table in schema order; it shares nothing with the memory."""
    count = int(machine.run["rows"])
    numbers, times = machine.arrays["row_numbers"][:, :count], machine.arrays["row_times"][:, :count]
    outcomes = numbers[RowNumber.OUTCOME]
    special: dict[str, Any] = {
        "n_retries": _column((numbers[RowNumber.ATTEMPTS] - 1).astype(np.int32), pa.int32()),
        "status": _decoded(outcomes != Outcome.COMMITTED, ("committed", "aborted")),
        "abort_reason": _decoded(outcomes - 1, ABORT_REASONS),
        "operation_type": _decoded(numbers[RowNumber.OPERATION], machine.operations),
        "stream": _decoded(numbers[RowNumber.STREAM], machine.streams),
        "tables_written": _tables_written(machine, numbers[RowNumber.TABLES_END]),
    }
    columns = []
    for column in COLUMNS:
        if column.name in special:
            columns.append(special[column.name])
        elif column.name.upper() in RowTime.__members__:
            columns.append(_column(times[RowTime[column.name.upper()]].copy(), column.type))
        else:
            counts = numbers[RowNumber[column.name.upper()]]
            columns.append(_column(counts.astype(column.type.to_pandas_dtype(), copy=True), column.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def phases_in_flight(machine: Machine) -> Counter[tuple[str, str]]:
    """Return the transactions in flight by (operation type, phase), as of the end of the run."""
    end_ms, slots, places = float(machine.run["end"]), machine.arrays["slots"], _places_in_flight(machine)
    has_begun = slots["pending_from"][places] < end_ms
    has_started = slots["executing_from"][places] < end_ms
    commits = slots["run_commit_start"][places] < end_ms
    phases = np.where(commits | ~has_begun, Phase.COMMITTING, np.where(has_started, Phase.EXECUTING, Phase.PENDING))
    names = machine.arrays["costs"]["name"][slots["costs"][places]]
    counted = Counter(zip(names.tolist(), phases.tolist(), strict=True))
    return Counter(
        {(machine.operations[name], Phase(phase).name.lower()): count for (name, phase), count in counted.items()}
    )


def times_in_flight(machine: Machine) -> dict[str, InFlightTimes]:
    """Return the times of the transactions in flight by operation type, in the order of their ids."""
    slots, places = machine.arrays["slots"], _places_in_flight(machine)
    places = places[np.argsort(slots["txn"][places])]
    submit_ms, commit_start_ms = slots["submit"][places], slots["commit_start"][places]
    commit_start_ms[commit_start_ms >= float(machine.run["end"])] = np.nan
    operations = machine.arrays["costs"]["name"][slots["costs"][places]]
    return {
        machine.operations[code]: InFlightTimes(
            array("d", submit_ms[operations == code].tobytes()),
            array("d", commit_start_ms[operations == code].tobytes()),
        )
        for code in np.unique(operations)
    }


def tables_applied_in_flight(machine: Machine) -> list[list[int]]:
    """Return the tables written by each transaction in flight whose commit was installed but not answered."""
    slots, places = machine.arrays["slots"], _places_in_flight(machine)
    applied = []
    for place in places[slots["is_applied"][places] != 0]:
        touched = machine.arrays["touched"][place][: slots["touched"][place]]
        applied.append(touched["table"][touched["is_written"] != 0].tolist())
    return applied


def _places_in_flight(machine: Machine) -> np.ndarray[Any, np.dtype[np.int64]]:
    events = machine.arrays["heap"][: int(machine.run["pending"])]
    places: np.ndarray[Any, np.dtype[np.int64]] = events["place"][events["key"] < ARRIVALS_FROM]
    return places


def _column(values: Any, kind: pa.DataType) -> Any:
    """Return numbers as an Arrow array over the same memory.

    `pa.array` does as much, but imports pandas first: a fifth of the time of a short run.
    """
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _decoded(codes: Any, names: Sequence[str]) -> Any:
    """Return the name of each code; -1 is none."""
    places = np.where(codes < 0, len(names), codes).astype(np.int32)
    words = [name.encode() for name in names]
    ends: Any = np.cumsum([0, *map(len, words)], dtype=np.int32)
    known = pa.Array.from_buffers(pa.string(), len(words), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(words))])
    return pa.concat_arrays([known, pa.nulls(1, pa.string())]).take(_column(places, pa.int32()))


def _tables_written(machine: Machine, ends: Any) -> Any:
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    values = machine.arrays["row_tables"][: offsets[-1]].copy()
    from_arrays: Any = pa.ListArray.from_arrays
    return from_arrays(
        _column(offsets, pa.int32()), _column(values, pa.int32()), type=SCHEMA.field("tables_written").type
    )


def _array(dtype: np.dtype[np.void], rows: Sequence[Mapping[str, Any]]) -> Any:
    array = np.zeros(len(rows), dtype)
    for place, row in enumerate(rows):
        for name, value in row.items():
            array[place][name] = value
    return array


def _integers(values: Any) -> Any:
    return np.array(values if len(values) else [0], dtype=np.int64)


def _most(streams: Sequence[Workload], name: str) -> int:
    return max(getattr(stream.config, name) or 1 for stream in streams)


def _known(component: object, kinds: tuple[type, ...], what: str) -> None:
    if type(component) not in kinds:
        raise NotCompiledError(f"{what} {type(component).__name__} is not built in")


def _known_storage(storage: object) -> ProfiledStorage:
    _known(storage, (ProfiledStorage,), "storage provider")
    assert isinstance(storage, ProfiledStorage)
    return storage


def _known_catalog(config: SimulationConfig) -> BuiltInCatalog:
    catalog = config.catalog
    _known(catalog, (CASCatalog, AppendCatalog, InstantCatalog), "catalog")
    _known(
        config.conflict_detector,
        (ProbabilisticConflictDetector, PartitionOverlapConflictDetector),
        "conflict detector",
    )
    _known(config.workload, (Workload, MixedWorkload), "workload")
    assert isinstance(catalog, CASCatalog | AppendCatalog | InstantCatalog)
    if not isinstance(catalog, InstantCatalog):
        _known_storage(catalog.storage)
    return catalog


def _known_stream(stream: Workload) -> Workload:
    _known(stream, (Workload,), "stream")
    config = stream.config
    if config.table_selector is not None:
        _known(config.table_selector, (UniformTableSelector, ZipfTableSelector), "table selector")
    if config.partition_selector is not None:
        _known(config.partition_selector, (UniformPartitionSelector, ZipfPartitionSelector), "partition selector")
    return stream


def _check_topology(config: WorkloadConfig, counts: tuple[int, ...], policy: CommitPolicy) -> None:
    """Refuse what the reference finds out when it comes to it."""
    if config.partitions_per_table != counts or config.num_tables != len(counts):
        raise NotCompiledError("the workload's tables and partitions are not the catalog's")
    groups = config.groups
    fewest = config.num_tables if groups is None else min(Counter(groups).values())
    if not 1 <= config.tables_per_txn <= fewest:
        raise NotCompiledError(f"cannot select {config.tables_per_txn} of {fewest} tables")
    if config.partitions_per_txn is not None and not 1 <= config.partitions_per_txn <= min(counts):
        raise NotCompiledError(f"cannot select {config.partitions_per_txn} of {min(counts)} partitions")
    if config.partitions_per_txn is None and policy.list_per == "partition":
        raise NotCompiledError("manifest lists per partition need transactions that track partitions")


class _Latencies:
    """Collects distributions; each gets a place."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.quantiles: list[tuple[float, float]] = []

    def add(
        self, distribution: LatencyDistribution, floor: float = _NO_FLOOR, size_bytes: int = 0, *, grows: bool = False
    ) -> int:
        """Add a distribution of moving `size_bytes`, or with `grows` of a size told at each draw."""
        row = self._encode(distribution, floor, size_bytes, grows)
        self.rows.append(row)
        return len(self.rows) - 1

    def skip(self) -> None:
        """Leave a place empty, for an operation that is never asked for."""
        self.rows.append({"kind": Kind.FIXED})

    def _encode(self, distribution: LatencyDistribution, floor: float, size_bytes: int, grows: bool) -> dict[str, Any]:
        _known(distribution, _FAMILIES, "latency distribution")
        floor = max(floor, getattr(distribution, "min_latency_ms", floor))
        match distribution:
            case FixedLatency(latency_ms=fixed):
                row = self._nonnegative(Kind.FIXED, _NO_FLOOR, max(floor, fixed), center=max(floor, fixed))
            case LognormalLatency(mu=mu, sigma=sigma):
                row = self._nonnegative(Kind.LOGNORMAL, floor, 0.0, center=mu, spread=sigma)
            case SizeBasedLatency():
                row = self._sized(distribution, floor, size_bytes, grows)
            case NormalLatency(mean=mean, stddev=stddev):
                row = self._nonnegative(Kind.NORMAL, floor, floor, center=mean, spread=stddev)
            case ExponentialLatency(scale=scale):
                row = self._nonnegative(Kind.EXPONENTIAL, floor, scale, center=scale)
            case UniformLatency(low=low, high=high):
                row = self._nonnegative(Kind.UNIFORM, floor, min(low, high), center=low, spread=high - low)
            case _:
                assert isinstance(distribution, EmpiricalLatency)
                row = self._nonnegative(Kind.EMPIRICAL, floor, min(distribution.values), points=len(self.quantiles))
                self.quantiles.extend(zip(distribution.probabilities, distribution.values, strict=True))
        return row

    def _sized(self, distribution: SizeBasedLatency, floor: float, size_bytes: int, grows: bool) -> dict[str, Any]:
        base, rate, sigma = distribution.base_latency_ms, distribution.latency_per_mib_ms, distribution.sigma
        if not (base > 0.0 and rate >= 0.0):
            raise NotCompiledError("latency distribution SizeBasedLatency has a median that is not positive")
        if grows and rate > 0.0:
            return self._nonnegative(Kind.SIZED, floor, 0.0, base=base, per_mib=rate, spread=sigma)
        center = math.log(distribution.median_ms(size_bytes))
        return self._nonnegative(Kind.LOGNORMAL, floor, 0.0, center=center, spread=sigma)

    @staticmethod
    def _nonnegative(kind: Kind, floor: float, least: float, **parameters: float) -> dict[str, Any]:
        if not max(floor, least) >= 0.0:
            raise NotCompiledError(f"a latency distribution of kind {kind.name.lower()} may draw negative times")
        return {"kind": kind, "floor": floor, **parameters}


class _Choices:
    """Collects weighted draws; equal ones share a place."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.weights: list[float] = []
        self.sums: list[float] = []
        self._places: dict[tuple[float, ...], int] = {}

    def add(self, weights: Sequence[float]) -> int:
        draw = WeightedDraw(weights)
        place = self._places.get(draw.weights)
        if place is None:
            place = self._places[draw.weights] = len(self.rows)
            self.rows.append({"offset": len(self.weights), "count": len(draw.weights), "is_equal": int(draw.are_equal)})
            self.weights.extend(draw.weights)
            self.sums.extend(draw.sums)
        return place


def _add_operations(
    latencies: _Latencies,
    config: SimulationConfig,
    storage: ProfiledStorage,
    catalog: BuiltInCatalog,
    policy: CommitPolicy,
) -> None:
    """Add the latency of each operation, in the order of `Operation`."""
    sizes, floor = policy.sizes, storage.min_latency_ms

    def add(artifact: str, operation: StorageOperation, size_bytes: int, *, grows: bool = False) -> None:
        latencies.add(storage.latency_of(artifact, operation), floor, size_bytes, grows=grows)

    _add_catalog_operations(latencies, catalog)
    add("metadata", "read", sizes.table_metadata)
    add("metadata", "write", sizes.table_metadata)
    add("manifest_list", "read", sizes.manifest_list, grows=sizes.list_growth > 0)
    add("manifest_list", "write", sizes.manifest_list, grows=sizes.list_growth > 0)
    if config.ml_append_mode:
        append = _offered(storage, storage.profile.append, "append")
        artifact = storage.artifacts.get("manifest_list")
        given = None if artifact is None else artifact.write
        latencies.add(given or append, floor, policy.manifest_list_log.entry_bytes)
        _add_failure(latencies, storage, storage.failures.append, storage.profile.append_failure)
    else:
        latencies.skip()
        latencies.skip()
    add("manifest_file", "read", sizes.manifest_file)
    add("manifest_file", "write", sizes.manifest_file)
    latencies.add(policy.conflicting_manifests.distribution)
    assert len(latencies.rows) == len(Operation)


def _offered(storage: ProfiledStorage, model: LatencyDistribution | None, operation: str) -> LatencyDistribution:
    if model is None:
        raise NotCompiledError(f"provider {storage.name} has no {operation}")
    return model


def _add_failure(
    latencies: _Latencies, storage: ProfiledStorage, enabled: bool, model: LatencyDistribution | None
) -> None:
    if enabled and model is not None:
        size_bytes = model.size_bytes if isinstance(model, SizeBasedLatency) else 0
        latencies.add(model, storage.min_latency_ms, size_bytes)
    else:
        latencies.skip()


def _add_catalog_operations(latencies: _Latencies, catalog: BuiltInCatalog) -> None:
    if isinstance(catalog, InstantCatalog):
        latencies.add(FixedLatency(catalog.latency_ms))
        latencies.add(FixedLatency(catalog.latency_ms))
        for _ in (Operation.COMMIT_FAILURE, Operation.COMPACTION, Operation.COMPACTION_FAILURE):
            latencies.skip()
        return
    storage = catalog.storage
    assert isinstance(storage, ProfiledStorage)
    profile, floor, failures = storage.profile, storage.min_latency_ms, storage.failures
    artifact = storage.artifacts.get("catalog")
    given = None if artifact is None else artifact.write
    latencies.add(storage.latency_of("catalog", "read"), floor, catalog.entry_bytes)
    swap = given or profile.cas
    if isinstance(catalog, CASCatalog):
        _offered(storage, profile.cas, "compare-and-swap")
        assert swap is not None
        latencies.add(swap, floor, catalog.entry_bytes)
        _add_failure(latencies, storage, failures.cas, profile.cas_failure)
        latencies.skip()
        latencies.skip()
        return
    append = _offered(storage, profile.append, "append")
    latencies.add(given or append, floor, catalog.log.entry_bytes)
    _add_failure(latencies, storage, failures.append, profile.append_failure)
    if catalog.log.compaction_latency is not None:
        latencies.add(catalog.log.compaction_latency, floor)
        latencies.skip()
    else:
        _offered(storage, profile.cas, "compare-and-swap")
        assert swap is not None
        latencies.add(swap, floor, catalog.entry_bytes)
        _add_failure(latencies, storage, failures.cas, profile.cas_failure)


def _encode_costs(streams: Sequence[Workload]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the cost records, stream after stream, and the names of the operation types."""
    records: list[OperationCosts] = [costs for stream in streams for costs, _ in stream.config.weighted_operations()]
    names = tuple(dict.fromkeys(costs.name for costs in records))
    return [_cost_record(costs, names.index(costs.name)) for costs in records], names


def _cost_record(costs: OperationCosts, name: int) -> dict[str, Any]:
    missed = costs.per_missed_commit
    return {
        **_attempt_record("first", costs.first_attempt),
        **_attempt_record("redone", costs.redone_attempt),
        "missed_history": missed.historical_ml_reads,
        "missed_file_reads": missed.manifest_file_reads,
        "missed_file_writes": missed.manifest_file_writes,
        "can_conflict": costs.can_conflict,
        "name": name,
    }


def _attempt_record(prefix: str, cost: ConflictCost) -> dict[str, int]:
    return {
        f"{prefix}_metadata_reads": cost.metadata_reads,
        f"{prefix}_list_reads": cost.manifest_list_reads,
        f"{prefix}_list_writes": cost.manifest_list_writes,
        f"{prefix}_history": cost.historical_ml_reads,
        f"{prefix}_file_reads": cost.manifest_file_reads,
        f"{prefix}_file_writes": cost.manifest_file_writes,
    }


class _Streams:
    """Encodes the streams of a workload, with what they choose from."""

    def __init__(self, streams: Sequence[Workload], latencies: _Latencies, choices: _Choices) -> None:
        self._latencies = latencies
        self._choices = choices
        self._operations = 0
        self.partition_choices: list[int] = []
        self.groups: list[tuple[int, int, int]] = []
        self.group_members: list[tuple[int, int]] = []
        self.rows = [self._encode(stream.config) for stream in streams]

    def _encode(self, config: WorkloadConfig) -> dict[str, int]:
        operations = config.weighted_operations()
        tables = config.table_selector or UniformTableSelector()
        assert isinstance(tables, UniformTableSelector | ZipfTableSelector)
        weights = tables.weights(config.num_tables)
        row = {
            "clients": config.clients,
            "operation_offset": self._operations,
            "operation_choice": self._choices.add([weight for _, weight in operations]),
            "arrival": self._latencies.add(config.inter_arrival),
            "runtime": self._latencies.add(config.runtime),
            "tables_per_txn": config.tables_per_txn,
            "tables_written": written_count(tables.write_fraction, config.tables_per_txn),
            "table_choice": self._choices.add(weights),
            **self._encode_partitions(config),
        }
        self._operations += len(operations)
        if config.groups is not None:
            row |= self._encode_groups(config.groups, weights)
        return row

    def _encode_partitions(self, config: WorkloadConfig) -> dict[str, int]:
        count = config.partitions_per_txn
        if count is None:
            return {}
        selector = config.partition_selector or UniformPartitionSelector()
        assert isinstance(selector, UniformPartitionSelector | ZipfPartitionSelector)
        offset = len(self.partition_choices)
        totals = config.partitions_per_table
        places = {total: self._choices.add(selector.weights(total)) for total in dict.fromkeys(totals)}
        self.partition_choices.extend(places[total] for total in totals)
        return {
            "partitions_per_txn": count,
            "partitions_written": written_count(selector.write_fraction, count),
            "partition_choices": offset,
            "draws_partitions": int(max(totals) > 1),
        }

    def _encode_groups(self, groups: tuple[int, ...], weights: Sequence[float]) -> dict[str, int]:
        members: list[list[int]] = [[] for _ in range(max(groups) + 1)]
        for table, group in enumerate(groups):
            members[group].append(table)
        in_order = [table for group in members for table in group]
        row = {"is_grouped": 1, "group_tables": len(self.groups), "group_members": len(self.group_members)}
        for table, group in enumerate(groups):
            self.groups.append((group, members[group].index(table), in_order[table]))
        begin = 0
        for group_tables in members:
            choice = self._choices.add([weights[table] for table in group_tables])
            self.group_members.append((begin, choice))
            begin += len(group_tables)
        return row


def _encode_sources(streams: Sequence[Workload], seed: int) -> tuple[Any, Any]:
    """Return the arrivals of the run, one source for an open stream or each closed client."""
    rows, words = [], []
    for order, stream in enumerate(streams):
        for client in range(max(1, stream.clients)):
            bases = {
                f"{source.name.lower()}_base": np.uint64(family_base(seed, source, stream.name, client))
                for source in (Source.RUNTIME, Source.OPERATION, Source.TABLES, Source.PARTITIONS, Source.IO)
            }
            rows.append({**bases, "stream": order, "key": ARRIVALS_FROM + order * CLIENTS_PER_STREAM + client})
            words.append(substream_words(family_base(seed, Source.ARRIVAL, stream.name, client), 0))
    rngs = np.zeros(len(rows), RNG)
    for place, (a, b, c) in enumerate(words):
        rngs[place] = (a, b, c, 1, 0.0, 0)
    return _array(SOURCE, rows), rngs


def _encode_run(config: SimulationConfig, catalog: BuiltInCatalog, policy: CommitPolicy) -> Any:
    backoff = policy.backoff or Backoff()
    detector = config.conflict_detector
    fields: dict[str, Any] = {
        "duration": config.duration_ms,
        "end": math.inf if config.drain else config.duration_ms,
        "effect_point": catalog.effect_point,
        "total_timeout": policy.total_timeout_ms,
        "restarts_end": policy.restarts_end_ms,
        "backs_off": policy.backoff is not None,
        "backoff_base": backoff.base_ms,
        "backoff_multiplier": backoff.multiplier,
        "backoff_max": backoff.max_ms,
        "backoff_jitter": backoff.jitter,
        "has_iceberg_jitter": backoff.jitter_kind == "iceberg",
        "max_retries": config.max_retries,
        "max_restarts": policy.max_restarts,
        "on_real_conflict": _ACTIONS[policy.on_real_conflict],
        "scope": _SCOPES[catalog.scope],
        "is_serializable": policy.isolation == "serializable",
        "is_inlined": policy.table_metadata_inlined,
        "max_parallel": policy.max_parallel,
        "overlaps_by_table": policy.overlap == "table",
        "history_by_table": policy.history == "table",
        "conflicting_min": policy.conflicting_manifests.minimum,
        "conflicting_max": policy.conflicting_manifests.maximum,
        "appends_to_lists": config.ml_append_mode,
        "list_per_partition": policy.list_per == "partition",
        "list_bytes": policy.sizes.manifest_list,
        "list_growth": policy.sizes.list_growth,
        "entry_bytes": policy.manifest_list_log.entry_bytes,
        "seal_bytes": policy.manifest_list_log.seal_bytes,
    }
    if isinstance(detector, ProbabilisticConflictDetector):
        fields["probability"] = detector.real_conflict_probability
    else:
        fields["detects_partitions"] = True
    storage = config.storage_provider
    assert isinstance(storage, ProfiledStorage)
    fields["list_append_fails_apart"] = storage.failures.append and storage.profile.append_failure is not None
    if not isinstance(catalog, InstantCatalog):
        fields |= _encode_catalog(catalog)
    return _array(RUN, [fields])


def _encode_catalog(catalog: CASCatalog | AppendCatalog) -> dict[str, Any]:
    storage = catalog.storage
    assert isinstance(storage, ProfiledStorage)
    swap_fails_apart = storage.failures.cas and storage.profile.cas_failure is not None
    if isinstance(catalog, CASCatalog):
        return {"commit_fails_apart": swap_fails_apart}
    log = catalog.log
    return {
        "is_log": True,
        "commit_fails_apart": storage.failures.append and storage.profile.append_failure is not None,
        "compaction_fails_apart": swap_fails_apart and log.compaction_latency is None,
        "log_entry_bytes": log.entry_bytes,
        "compaction_threshold": log.compaction_threshold_bytes,
        "compaction_max_entries": log.compaction_max_entries,
        "max_physical_retries": log.max_physical_retries,
    }
