"""What only several configuration keys together can break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from endive.catalog import Scope, assign_groups
from endive.config_errors import REQUIRED, Problem
from endive.settings import (
    DistributionSettings,
    EmpiricalSettings,
    LatencySettings,
    LognormalSettings,
    Settings,
    SettingsTable,
    StreamFields,
    UniformSettings,
)
from endive.storage import ProviderProfile
from endive.workload import written_count

BUILT_IN_OPERATIONS: Final = ("fast_append", "merge_append", "validated_overwrite")
PARTITIONS_MOST: Final = 10_000_000
INTER_ARRIVAL_MS_LEAST: Final = 1e-6
"""Arrivals that are closer in the mean would not move the clock on."""


def find_problems(
    settings: Settings, storage: ProviderProfile, catalog: ProviderProfile, scope: Scope
) -> Iterator[Problem]:
    """Yield everything that is wrong with settings whose keys are each valid.

    `storage` and `catalog` are the providers that the tables and the catalog are on; `scope` is the one in force.
    """
    if settings.simulation.output_path == "":
        yield Problem("simulation.output_path", "", "must name a file")
    yield from _distribution_problems("", settings)
    yield from _topology_problems(settings)
    yield from _catalog_problems(settings, catalog)
    yield from _isolation_problems(settings, scope)
    yield from _storage_problems(settings, storage)
    yield from _cost_problems(settings)
    if settings.streams:
        yield from _several_streams_problems(settings)
    else:
        yield from _stream_problems("transaction", settings.transaction, settings)
    conflicting = settings.transaction.conflicting_manifests
    if conflicting.min > conflicting.max:
        yield Problem(
            "transaction.conflicting_manifests.min",
            conflicting.min,
            f"must be at most transaction.conflicting_manifests.max = {conflicting.max}",
        )


def _distribution_problems(key: str, table: SettingsTable) -> Iterator[Problem]:
    """Yield what is wrong within a distribution, wherever there is one in `table`."""
    if isinstance(table, LognormalSettings):
        if table.mean is None and table.median is None:
            yield Problem(key, _given(table), "needs a median or a mean")
        elif table.mean is not None and table.median is not None:
            yield Problem(f"{key}.mean", table.mean, f"give either this or {key}.median, not both")
    elif isinstance(table, UniformSettings) and table.low >= table.high:
        yield Problem(f"{key}.low", table.low, f"must be less than {key}.high = {table.high:g}")
    elif isinstance(table, EmpiricalSettings):
        yield from _empirical_problems(key, table)
    for name in type(table).model_fields:
        value = getattr(table, name)
        for suffix, entry in _entries(value):
            yield from _distribution_problems(f"{key}.{name}{suffix}".lstrip("."), entry)


def _entries(value: object) -> Iterator[tuple[str, SettingsTable]]:
    if isinstance(value, SettingsTable):
        yield "", value
    elif isinstance(value, dict):
        yield from ((f".{name}", entry) for name, entry in value.items() if isinstance(entry, SettingsTable))
    elif isinstance(value, tuple):
        yield from ((f"[{place}]", entry) for place, entry in enumerate(value) if isinstance(entry, SettingsTable))


def _empirical_problems(key: str, table: EmpiricalSettings) -> Iterator[Problem]:
    probabilities, values = table.probabilities, table.values
    if len(probabilities) != len(values):
        yield Problem(
            f"{key}.values", values, f"must have as many entries as {key}.probabilities: {len(probabilities)}"
        )
    if probabilities[0] != 0.0 or probabilities[-1] != 1.0 or any(low >= high for low, high in pairwise(probabilities)):
        yield Problem(f"{key}.probabilities", probabilities, "must rise from 0 to 1")
    if any(low > high for low, high in pairwise(values)):
        yield Problem(f"{key}.values", values, "must not fall")


def _topology_problems(settings: Settings) -> Iterator[Problem]:
    catalog = settings.catalog
    partitions = catalog.partitions
    total = sum(partitions.per_table or (partitions.num_partitions * catalog.num_tables,))
    if total > PARTITIONS_MOST:
        yield Problem(
            "catalog.partitions", _given(partitions), f"{total:,} in all; must be at most {PARTITIONS_MOST:,}"
        )
    if partitions.per_table is not None:
        if "num_partitions" in partitions.model_fields_set:
            yield Problem(
                "catalog.partitions.num_partitions",
                partitions.num_partitions,
                "give either this or catalog.partitions.per_table, not both",
            )
        if len(partitions.per_table) != catalog.num_tables:
            yield Problem(
                "catalog.partitions.per_table",
                partitions.per_table,
                f"must have one entry for each of catalog.num_tables = {catalog.num_tables}",
            )
    if catalog.num_groups > catalog.num_tables:
        yield Problem(
            "catalog.num_groups", catalog.num_groups, f"must be at most catalog.num_tables = {catalog.num_tables}"
        )
    if catalog.num_groups > 1 and catalog.scope != "group":
        yield Problem("catalog.num_groups", catalog.num_groups, 'needs catalog.scope = "group"')


def _catalog_problems(settings: Settings, provider: ProviderProfile) -> Iterator[Problem]:
    catalog = settings.catalog
    if catalog.provider is not None and catalog.latency_ms is not None:
        yield Problem("catalog.latency_ms", catalog.latency_ms, "give either this or catalog.provider, not both")
    replaced = settings.storage.latency.catalog
    if replaced != LatencySettings().catalog and (catalog.type == "instant" or catalog.latency_ms is not None):
        yield Problem(
            "storage.latency.catalog",
            _given(replaced),
            'has no use with catalog.type = "instant" or with catalog.latency_ms; that is the catalog\'s latency',
        )
    if catalog.type == "instant":
        if catalog.provider is not None:
            yield Problem("catalog.provider", catalog.provider, 'has no use with catalog.type = "instant"')
    elif catalog.latency_ms is None:
        key = "storage.provider" if catalog.provider is None else "catalog.provider"
        if catalog.type == "append" and provider.append is None:
            yield Problem("catalog.type", "append", f'needs a store with append; {key} = "{provider.name}" has none')


def _isolation_problems(settings: Settings, scope: Scope) -> Iterator[Problem]:
    if settings.transaction.isolation != "serializable":
        return
    if scope == "catalog":
        yield Problem(
            "transaction.isolation",
            "serializable",
            'has no effect with catalog.scope = "catalog"; use "group", "table" or "partition"',
        )
    streams = [effective_stream(settings, stream) for stream in settings.streams] or [settings.transaction]
    if not any(_reads_more_than_it_writes(stream) for stream in streams):
        yield Problem(
            "transaction.isolation",
            "serializable",
            "needs transactions that read more than they write: lower transaction.tables.write_fraction "
            "or transaction.partitions.write_fraction, with a per_txn of 2 or more",
        )


def _reads_more_than_it_writes(stream: StreamFields) -> bool:
    return any(
        selection is not None
        and selection.per_txn is not None
        and written_count(selection.write_fraction, selection.per_txn) < selection.per_txn
        for selection in (stream.tables, stream.partitions)
    )


def _storage_problems(settings: Settings, provider: ProviderProfile) -> Iterator[Problem]:
    if settings.transaction.manifest_list_mode == "append" and provider.append is None:
        yield Problem(
            "transaction.manifest_list_mode",
            "append",
            f'needs a store with append; storage.provider = "{provider.name}" has none',
        )


def _cost_problems(settings: Settings) -> Iterator[Problem]:
    for name, costs in settings.transaction.costs.items():
        if name in BUILT_IN_OPERATIONS and costs.like is not None:
            yield Problem(f"transaction.costs.{name}.like", costs.like, f"has no use: {name} is built in")


def _several_streams_problems(settings: Settings) -> Iterator[Problem]:
    names = Counter(stream.name for stream in settings.streams)
    for name, count in names.items():
        if count > 1:
            yield Problem("streams.name", name, f"must be a name of its own; {count} streams have it")
    for place, stream in enumerate(settings.streams):
        yield from _stream_problems(f"streams[{place}]", effective_stream(settings, stream), settings)


def effective_stream(settings: Settings, stream: StreamFields) -> StreamFields:
    """Return a stream with what it leaves out taken from [transaction]; its way of arriving is one thing."""
    base = settings.transaction
    arrives = stream.inter_arrival is not None or stream.clients is not None or stream.think_time is not None
    inherited = {
        name: getattr(base, name)
        for name in StreamFields.model_fields
        if getattr(stream, name) is None and not (arrives and name in ("inter_arrival", "clients", "think_time"))
    }
    return stream.model_copy(update=inherited)


def _stream_problems(key: str, stream: StreamFields, settings: Settings) -> Iterator[Problem]:
    yield from _arrival_problems(key, stream)
    if stream.runtime is None:
        yield Problem(f"{key}.runtime", None, REQUIRED)
    yield from _operation_problems(key, stream, settings)
    catalog = settings.catalog
    if stream.tables is not None:
        per_txn = stream.tables.per_txn
        if per_txn > catalog.num_tables:
            yield Problem(
                f"{key}.tables.per_txn", per_txn, f"must be at most catalog.num_tables = {catalog.num_tables}"
            )
        elif catalog.scope == "group" and catalog.num_groups <= catalog.num_tables:
            smallest = min(Counter(assign_groups(catalog.num_tables, catalog.num_groups, catalog.group_seed)).values())
            if per_txn > smallest:
                yield Problem(
                    f"{key}.tables.per_txn",
                    per_txn,
                    f"must be at most {smallest}, the tables of the smallest of catalog.num_groups = "
                    f"{catalog.num_groups} groups",
                )
    if stream.partitions is not None and stream.partitions.per_txn is not None:
        fewest = min(catalog.partitions.per_table or (catalog.partitions.num_partitions,))
        if stream.partitions.per_txn > fewest:
            yield Problem(
                f"{key}.partitions.per_txn",
                stream.partitions.per_txn,
                f"must be at most the fewest partitions of a table in catalog.partitions: {fewest}",
            )
    elif settings.manifests.list_per == "partition":
        yield Problem("manifests.list_per", "partition", f"needs {key}.partitions.per_txn")


def _arrival_problems(key: str, stream: StreamFields) -> Iterator[Problem]:
    arrival, clients, think_time = stream.inter_arrival, stream.clients, stream.think_time
    if arrival is not None and (clients is not None or think_time is not None):
        other = "clients" if clients is not None else "think_time"
        yield Problem(
            f"{key}.inter_arrival",
            _given(arrival),
            f"give either this (an open stream) or {key}.{other} (a closed one), not both",
        )
    elif arrival is not None:
        if _is_consistent(arrival) and arrival.to_latency().mean_ms() < INTER_ARRIVAL_MS_LEAST:
            allowed = f"must be {INTER_ARRIVAL_MS_LEAST:g} or more on average"
            yield Problem(f"{key}.inter_arrival", _given(arrival), allowed)
    elif clients is None and think_time is None:
        yield Problem(f"{key}.inter_arrival", None, f"{REQUIRED}, or {key}.clients and {key}.think_time")
    elif think_time is None:
        yield Problem(f"{key}.clients", clients, f"needs {key}.think_time")
    elif clients is None:
        yield Problem(f"{key}.think_time", _given(think_time), f"needs {key}.clients")


def _is_consistent(distribution: DistributionSettings) -> bool:
    return not any(_distribution_problems("", distribution))


def _given(distribution: SettingsTable) -> dict[str, object]:
    return distribution.model_dump(exclude_unset=True)


def _operation_problems(key: str, stream: StreamFields, settings: Settings) -> Iterator[Problem]:
    if stream.operation_types is None:
        return
    known: Sequence[str] = (*BUILT_IN_OPERATIONS, *settings.transaction.costs)
    for name, weight in stream.operation_types.items():
        if name not in known:
            yield Problem(
                f"{key}.operation_types.{name}",
                weight,
                f"unknown operation type; known: {', '.join(dict.fromkeys(known))}; transaction.costs.{name} adds it",
            )
    if not sum(stream.operation_types.values()) > 0.0:
        yield Problem(f"{key}.operation_types", stream.operation_types, "the weights must sum to more than 0")
