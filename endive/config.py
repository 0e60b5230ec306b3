"""From a TOML file to a validated simulation: the only entry point for configuration.

`python -m endive.config` prints the JSON Schema of the file.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import pydantic

from endive.catalog import AppendCatalog, AppendLog, CASCatalog, Catalog, InstantCatalog, Scope, assign_groups
from endive.config_errors import ConfigError, explain, to_toml, toml_key
from endive.config_rules import BUILT_IN_OPERATIONS, effective_stream, find_problems
from endive.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.operation_costs import FAST_APPEND, OperationCosts, merge_append_costs, validated_overwrite_costs
from endive.policy import CommitPolicy, ConflictingManifests, ManifestListLog, ObjectSizes
from endive.random_streams import new_random_state
from endive.settings import (
    AttemptCostSettings,
    CatalogType,
    CostSettings,
    MissedCommitCostSettings,
    PartitionSelectionSettings,
    ProfileName,
    SelectionSettings,
    Settings,
    SettingsTable,
    StreamFields,
)
from endive.simulation import SimulationConfig
from endive.storage import (
    ArtifactLatency,
    FailureLatencies,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    ProfiledStorage,
    ProviderProfile,
    SizeBasedLatency,
    create_provider,
)
from endive.transaction import ConflictDetector
from endive.workload import (
    MixedWorkload,
    UniformPartitionSelector,
    UniformTableSelector,
    Workload,
    WorkloadConfig,
    ZipfPartitionSelector,
    ZipfTableSelector,
)

__all__ = ["PROVIDER_PROFILES", "ConfigError", "compute_experiment_hash", "load_simulation_config"]

PROFILE_NAMES: Final[tuple[ProfileName, ...]] = get_args(ProfileName)
DEFAULT_WEIGHTS: Final = {"fast_append": 0.7, "merge_append": 0.2, "validated_overwrite": 0.1}

_NOT_HASHED: Final = {"simulation": {"seed", "output_path"}, "experiment": {"label"}}

Stream = TypeVar("Stream", bound=StreamFields)
Table = TypeVar("Table", bound=SettingsTable)


@cache
def load_provider_profiles(profile: ProfileName) -> Mapping[str, ProviderProfile]:
    """Return the providers of a profile, by name."""
    folder = resources.files("endive") / "providers" / profile
    names = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    return {name: _provider_profile(name, _profile_data(profile, name)) for name in names}


def _profile_data(profile: str, name: str) -> dict[str, Any]:
    file = resources.files("endive") / "providers" / profile / f"{name}.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    base = data.pop("base", None)
    return data if base is None else _profile_data(base, name) | data


def _provider_profile(name: str, data: Mapping[str, Any]) -> ProviderProfile:
    floor = float(data["min_latency_ms"])

    def lognormal(operation: str) -> LognormalLatency | None:
        if operation not in data:
            return None
        return LognormalLatency.from_median(data[operation]["median_ms"], data[operation]["sigma"], floor)

    read, write = data["read"], data["write"]
    return ProviderProfile(
        name=name,
        title=data["title"],
        min_latency_ms=floor,
        read=SizeBasedLatency(read["median_ms"], read.get("per_mib_ms", 0.0), read["sigma"], floor),
        write=SizeBasedLatency(write["base_ms"], write["per_mib_ms"], write["sigma"], floor),
        cas=lognormal("cas"),
        cas_failure=lognormal("cas_failure"),
        append=lognormal("append"),
        append_failure=lognormal("append_failure"),
        tail_append=lognormal("tail_append"),
        source=data["source"],
    )


PROVIDER_PROFILES: Final = load_provider_profiles("2025-06")


def load_simulation_config(config_path: str | Path, *, seed_override: int | None = None) -> SimulationConfig:
    """Return the simulation that a TOML file describes; raise ConfigError if it describes none."""
    return build_simulation_config(load_settings(config_path), seed_override=seed_override)


def load_settings(config_path: str | Path) -> Settings:
    """Return the validated settings of a TOML file; raise ConfigError with a line for each thing that is wrong."""
    path = Path(config_path)
    data = read_toml(path)
    try:
        return parse_settings(data)
    except ConfigError as error:
        raise ConfigError([f"{path}: {line}" for line in error.lines]) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise ConfigError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: is not TOML: {error}"]) from error


def parse_settings(data: Mapping[str, Any]) -> Settings:
    """Return validated settings, without what only repeats a default; raise ConfigError if they are not valid."""
    try:
        settings = Settings.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(explain(error, Settings, data)) from error
    storage = load_provider_profiles(settings.storage.profile)[settings.storage.provider]
    found = find_problems(settings, storage, _catalog_profile(settings), catalog_scope(settings))
    problems = [str(problem) for problem in found]
    if problems:
        raise ConfigError(problems)
    return _normalized(settings)


def catalog_type(settings: Settings) -> CatalogType:
    """Return the catalog type in force."""
    return settings.catalog.type or _inferred_type(settings)


def catalog_scope(settings: Settings) -> Scope:
    """Return the commit scope in force."""
    return settings.catalog.scope or _inferred_scope(settings)


def partitions_per_table(settings: Settings) -> tuple[int, ...]:
    """Return how many partitions each table has."""
    partitions = settings.catalog.partitions
    return partitions.per_table or (partitions.num_partitions,) * settings.catalog.num_tables


def _inferred_type(settings: Settings) -> CatalogType:
    is_service = settings.catalog.latency_ms is not None
    return "cas" if is_service or _catalog_profile(settings).cas is not None else "append"


def _inferred_scope(settings: Settings) -> Scope:
    return "table" if catalog_type(settings) == "append" else "catalog"


def _catalog_profile(settings: Settings) -> ProviderProfile:
    profiles = load_provider_profiles(settings.storage.profile)
    return profiles[settings.catalog.provider or settings.storage.provider]


def _normalized(given: Settings) -> Settings:
    """Leave out what says the same as leaving it out, so that equal simulations have equal settings."""
    settings = _without_unused(given)
    catalog, partitions, txn = settings.catalog, settings.catalog.partitions, settings.transaction
    streams = tuple(_plain_stream(effective_stream(settings, stream)) for stream in settings.streams)
    if streams:
        txn = txn.model_copy(update=dict.fromkeys(StreamFields.model_fields))
    per_table = partitions.per_table
    if per_table is not None and len(set(per_table)) == 1:
        partitions = partitions.model_copy(update={"num_partitions": per_table[0], "per_table": None})
    normalized_catalog = catalog.model_copy(
        update={
            "type": None if catalog.type == _inferred_type(settings) else catalog.type,
            "scope": None if catalog.scope == _inferred_scope(settings) else catalog.scope,
            "provider": None if catalog.provider == settings.storage.provider else catalog.provider,
            "latency_ms": None if catalog.type == "instant" and catalog.latency_ms == 1.0 else catalog.latency_ms,
            "partitions": partitions,
        }
    )
    return settings.model_copy(
        update={
            "catalog": normalized_catalog,
            "transaction": _plain_stream(txn),
            "streams": streams,
        }
    )


def _without_unused(settings: Settings) -> Settings:
    """Put keys that decide nothing, as others stand, back to their defaults."""
    catalog, txn = settings.catalog, settings.transaction
    catalog_unused = {
        "append": catalog_type(settings) != "append",
        "num_groups": catalog_scope(settings) != "group",
        "group_seed": catalog_scope(settings) != "group",
    }
    txn_unused = {
        "retry_backoff": not txn.retry_backoff.enabled,
        "max_restarts": txn.on_real_conflict != "restart",
        "conflicting_manifests": txn.on_real_conflict != "merge",
        "manifest_list_entry_bytes": txn.manifest_list_mode != "append",
        "manifest_list_seal_bytes": txn.manifest_list_mode != "append",
        "real_conflict_probability": txn.conflict_detector != "probabilistic",
    }
    return settings.model_copy(
        update={"catalog": _with_defaults(catalog, catalog_unused), "transaction": _with_defaults(txn, txn_unused)}
    )


def _with_defaults(table: Table, unused: Mapping[str, bool]) -> Table:
    fields = type(table).model_fields
    return table.model_copy(update={name: fields[name].default for name, is_unused in unused.items() if is_unused})


def _plain_stream(stream: Stream) -> Stream:
    """Put operation types in one order, whatever that of the file, and leave out what repeats a default."""
    updates: dict[str, Any] = {}
    for name in ("tables", "partitions"):
        selection = getattr(stream, name)
        if selection is not None and selection.selector != "zipf":
            updates[name] = _with_defaults(selection, {"alpha": True})
    if stream.operation_types is not None:
        weights = stream.operation_types
        names = [*BUILT_IN_OPERATIONS, *sorted(set(weights) - set(BUILT_IN_OPERATIONS))]
        ordered = {name: weights[name] for name in names if weights.get(name, 0.0) > 0.0}
        updates["operation_types"] = None if ordered == DEFAULT_WEIGHTS else ordered
    return stream.model_copy(update=updates)


def changed_settings(settings: Settings) -> dict[str, Any]:
    """Return, nested, the values that decide results and are not the specification's defaults."""
    changed = _changed(settings)
    for table, keys in _NOT_HASHED.items():
        for key in keys & changed.get(table, {}).keys():
            del changed[table][key]
    return {table: values for table, values in changed.items() if values}


def _changed(table: SettingsTable) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if value == field.get_default(call_default_factory=True) and name != "distribution":
            continue
        plain = _changed_value(value)
        if plain != {}:
            changed[name] = plain
    return changed


def _changed_value(value: Any) -> Any:
    if isinstance(value, SettingsTable):
        return _changed(value)
    if isinstance(value, dict):
        return {name: _changed_value(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [_changed_value(entry) for entry in value]
    return value


def dotted_lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, TOML value) of nested values; together they are a TOML file."""
    for name, value in values.items():
        key = f"{prefix}{toml_key(name)}"
        if isinstance(value, Mapping) and value:
            yield from dotted_lines(value, f"{key}.")
        else:
            yield key, to_toml(value)


def compute_experiment_hash(config: Settings | Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that stand for all that decides a configuration's results, save the seed.

    `config` is validated settings, or the content of a TOML file. Only values that differ from the
    specification's defaults take part, so that a new key changes no hash.
    """
    settings = config if isinstance(config, Settings) else parse_settings(config)
    text = json.dumps(changed_settings(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def resolved_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, TOML value) of every setting in force."""
    catalog = settings.catalog.model_copy(
        update={
            "type": catalog_type(settings),
            "scope": catalog_scope(settings),
            "latency_ms": 1.0 if _takes_default_latency(settings) else settings.catalog.latency_ms,
        }
    )
    in_force = settings.model_copy(
        update={
            "catalog": catalog,
            "transaction": settings.transaction if settings.streams else _filled_stream(settings.transaction),
            "streams": tuple(_filled_stream(stream) for stream in settings.streams),
        }
    )
    for key, value in dotted_lines(in_force.model_dump(exclude_none=True)):
        if value not in ("{}", "[]"):
            yield key, value


def resolved_lines(settings: Settings) -> Iterator[str]:
    """Yield every setting in force as a line of TOML, those that are the default marked so."""
    given = dict(dotted_lines(_changed(settings)))
    for key, value in resolved_settings(settings):
        yield f"{key} = {value}" + ("" if key in given else "  # default")


def _takes_default_latency(settings: Settings) -> bool:
    return catalog_type(settings) == "instant" and settings.catalog.latency_ms is None


def _filled_stream(stream: Stream) -> Stream:
    """Write out what a stream leaves to the defaults."""
    return stream.model_copy(
        update={
            "operation_types": stream.operation_types or DEFAULT_WEIGHTS,
            "tables": stream.tables or SelectionSettings(),
            "partitions": stream.partitions or PartitionSelectionSettings(),
        }
    )


def warnings_of(settings: Settings) -> Iterator[str]:
    """Yield what is allowed, but perhaps not what was meant."""
    yield from _floor_warnings(settings)
    most = max(partitions_per_table(settings))
    streams = [effective_stream(settings, stream) for stream in settings.streams] or [settings.transaction]
    if most > 1 and any(stream.partitions is None or stream.partitions.per_txn is None for stream in streams):
        yield (
            f"catalog.partitions: tables have up to {most} partitions, but transactions track none; "
            "set transaction.partitions.per_txn"
        )


def _floor_warnings(settings: Settings) -> Iterator[str]:
    """Yield the operations whose median is below the provider's floor: most of their samples equal the floor."""
    storage, catalog, sizes = _build_storage(settings), settings.catalog, settings.manifests
    suspects: list[tuple[ProfiledStorage, str, LatencyDistribution, int]] = []
    objects = {"manifest_list": sizes.manifest_list_bytes, "manifest_file": sizes.manifest_file_bytes}
    if not catalog.table_metadata_inlined:
        objects["metadata"] = sizes.table_metadata_bytes
    for artifact, size_bytes in objects.items():
        title = f"{artifact.replace('_', ' ')} of {size_bytes} bytes"
        suspects.append((storage, f"reading a {title}", storage.latency_of(artifact, "read"), size_bytes))
        suspects.append((storage, f"writing a {title}", storage.latency_of(artifact, "write"), size_bytes))
    if catalog_type(settings) != "instant" and catalog.latency_ms is None:
        place = storage if catalog.provider is None else _build_storage(settings, catalog.provider)
        suspects.append((place, "reading the catalog", place.latency_of("catalog", "read"), sizes.catalog_entry_bytes))
        profiled = place.profile.cas if catalog_type(settings) == "cas" else place.profile.append
        replaced = place.artifacts.get("catalog", ArtifactLatency()).write
        commit = replaced or profiled
        assert commit is not None
        suspects.append((place, "committing to the catalog", commit, sizes.catalog_entry_bytes))
    for provider, what, distribution, size_bytes in suspects:
        median = distribution.median_ms(size_bytes)
        if median < provider.min_latency_ms:
            yield (
                f"provider {provider.name}: {what} has a median of {median:.3g} ms, below the floor of "
                f"{provider.min_latency_ms:g} ms; most of these take the floor"
            )


def build_simulation_config(settings: Settings, *, seed_override: int | None = None) -> SimulationConfig:
    """Return the simulation that validated settings describe."""
    txn = settings.transaction
    backoff = txn.retry_backoff
    detector: ConflictDetector = (
        PartitionOverlapConflictDetector()
        if txn.conflict_detector == "partition_overlap"
        else ProbabilisticConflictDetector(txn.real_conflict_probability)
    )
    storage = _build_storage(settings)
    return SimulationConfig(
        duration_ms=settings.simulation.duration_ms,
        seed=settings.simulation.seed if seed_override is None else seed_override,
        storage_provider=storage,
        catalog=_build_catalog(settings, storage),
        workload=_build_workload(settings),
        conflict_detector=detector,
        max_retries=txn.retry,
        ml_append_mode=txn.manifest_list_mode == "append",
        backoff_enabled=backoff.enabled,
        backoff_base_ms=backoff.base_ms,
        backoff_multiplier=backoff.multiplier,
        backoff_max_ms=backoff.max_ms,
        backoff_jitter=backoff.jitter,
        backoff_jitter_kind=backoff.jitter_kind,
        drain=settings.simulation.drain,
        policy=_build_policy(settings),
        config_hash=compute_experiment_hash(settings),
    )


def _build_policy(settings: Settings) -> CommitPolicy:
    txn, manifests, conflicting = settings.transaction, settings.manifests, settings.transaction.conflicting_manifests
    return CommitPolicy(
        total_timeout_ms=txn.total_timeout_ms,
        max_parallel=settings.storage.max_parallel,
        table_metadata_inlined=settings.catalog.table_metadata_inlined,
        overlap=txn.overlap,
        history=txn.history,
        on_real_conflict=txn.on_real_conflict,
        max_restarts=txn.max_restarts,
        isolation=txn.isolation,
        list_per=manifests.list_per,
        sizes=ObjectSizes(
            table_metadata=manifests.table_metadata_bytes,
            manifest_list=manifests.manifest_list_bytes,
            manifest_file=manifests.manifest_file_bytes,
            list_growth=manifests.entry_bytes,
        ),
        manifest_list_log=ManifestListLog(txn.manifest_list_entry_bytes, txn.manifest_list_seal_bytes),
        conflicting_manifests=ConflictingManifests(
            conflicting.distribution.to_latency(), conflicting.min, conflicting.max
        ),
    )


def _build_storage(settings: Settings, provider: str | None = None) -> ProfiledStorage:
    storage = settings.storage
    artifacts: dict[str, ArtifactLatency] = {}
    for artifact in type(storage.latency).model_fields:
        given = getattr(storage.latency, artifact)
        read, write = (None if side is None else side.to_latency() for side in (given.read, given.write))
        if read is not None or write is not None:
            artifacts[artifact] = ArtifactLatency(read, write)
    return create_provider(
        provider or storage.provider,
        new_random_state(),
        load_provider_profiles(storage.profile),
        failures=FailureLatencies(cas=storage.cas_failure_latency, append=storage.append_failure_latency),
        artifacts=artifacts,
    )


def _catalog_service(latency_ms: float) -> ProfiledStorage:
    """Return a store whose every operation takes `latency_ms`."""
    fixed = FixedLatency(latency_ms)
    profile = ProviderProfile("service", "Fixed-latency service", 0.0, read=fixed, write=fixed, cas=fixed, append=fixed)
    return ProfiledStorage(new_random_state(), profile)


def _table_groups(settings: Settings) -> tuple[int, ...] | None:
    catalog = settings.catalog
    if catalog.scope != "group":
        return None
    return assign_groups(catalog.num_tables, catalog.num_groups, catalog.group_seed)


def _build_catalog(settings: Settings, storage: ProfiledStorage) -> Catalog:
    catalog = settings.catalog
    topology = (catalog.num_tables, partitions_per_table(settings))
    scope, groups, effect_point = catalog_scope(settings), _table_groups(settings), catalog.effect_point
    kind = catalog_type(settings)
    if kind == "instant":
        latency_ms = 1.0 if catalog.latency_ms is None else catalog.latency_ms
        return InstantCatalog(*topology, latency_ms, scope=scope, groups=groups, effect_point=effect_point)
    if catalog.latency_ms is not None:
        storage = _catalog_service(catalog.latency_ms)
    elif catalog.provider is not None:
        storage = _build_storage(settings, catalog.provider)
    entry_bytes = settings.manifests.catalog_entry_bytes
    if kind == "cas":
        return CASCatalog(
            storage, *topology, scope=scope, groups=groups, effect_point=effect_point, entry_bytes=entry_bytes
        )
    append = catalog.append
    log = AppendLog(
        entry_bytes=append.entry_bytes,
        compaction_threshold_bytes=append.compaction_threshold_bytes,
        compaction_max_entries=append.compaction_max_entries,
        max_physical_retries=append.max_physical_retries,
        compaction_latency=None if append.compaction_latency is None else append.compaction_latency.to_latency(),
    )
    return AppendCatalog(
        storage, *topology, scope=scope, groups=groups, effect_point=effect_point, entry_bytes=entry_bytes, log=log
    )


def _build_workload(settings: Settings) -> Workload:
    if not settings.streams:
        return Workload(_stream_config(settings, settings.transaction, name=""), seed=0)
    return MixedWorkload(
        [
            Workload(_stream_config(settings, effective_stream(settings, stream), name=stream.name), seed=0)
            for stream in settings.streams
        ]
    )


def _stream_config(settings: Settings, stream: StreamFields, *, name: str) -> WorkloadConfig:
    arrival = stream.inter_arrival if stream.clients is None else stream.think_time
    assert arrival is not None
    assert stream.runtime is not None
    tables = stream.tables or SelectionSettings()
    partitions = stream.partitions or PartitionSelectionSettings()
    return WorkloadConfig(
        inter_arrival=arrival.to_latency(),
        runtime=stream.runtime.to_latency(),
        num_tables=settings.catalog.num_tables,
        partitions_per_table=partitions_per_table(settings),
        tables_per_txn=tables.per_txn,
        table_selector=(
            ZipfTableSelector(tables.alpha, tables.write_fraction)
            if tables.selector == "zipf"
            else UniformTableSelector(tables.write_fraction)
        ),
        partitions_per_txn=partitions.per_txn,
        partition_selector=(
            ZipfPartitionSelector(partitions.alpha, partitions.write_fraction)
            if partitions.selector == "zipf"
            else UniformPartitionSelector(partitions.write_fraction)
        ),
        operations=tuple(
            (operation_costs(settings, operation), weight)
            for operation, weight in (stream.operation_types or DEFAULT_WEIGHTS).items()
        ),
        name=name,
        clients=stream.clients or 0,
        groups=_table_groups(settings),
    )


def operation_costs(settings: Settings, name: str) -> OperationCosts:
    """Return what an operation type costs, with the overrides of [transaction.costs]."""
    txn = settings.transaction
    override = txn.costs.get(name, CostSettings())
    built_in = {
        "fast_append": FAST_APPEND,
        "merge_append": merge_append_costs(txn.manifests_per_concurrent_commit),
        "validated_overwrite": validated_overwrite_costs(txn.validation_manifests_per_commit),
    }
    base = built_in[name if name in built_in else override.like or "fast_append"]
    counts = _given(override, AttemptCostSettings)
    return replace(
        base,
        name=name,
        first_attempt=replace(base.first_attempt, **counts),
        redone_attempt=replace(base.redone_attempt, **counts | _given(override.redone, AttemptCostSettings)),
        per_missed_commit=replace(
            base.per_missed_commit, **_given(override.per_missed_commit, MissedCommitCostSettings)
        ),
        can_conflict=base.can_conflict if override.can_conflict is None else override.can_conflict,
    )


def _given(table: SettingsTable, kind: type[SettingsTable]) -> dict[str, Any]:
    """Return the fields of `kind` that a table has a value for."""
    return {name: getattr(table, name) for name in kind.model_fields if getattr(table, name) is not None}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file, for editors."""
    schema = Settings.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
