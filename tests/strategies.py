"""Random configurations over the whole schema, built so that every one of them is valid.

Hypothesis draws the first of several values most often: here the one that lets the most happen.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from endive.catalog import assign_groups

BUILT_IN = ("validated_overwrite", "merge_append", "fast_append")
APPEND_PROVIDERS = ("s3x", "azure", "azurex", "instant")
PROVIDERS = ("s3", "gcp", *APPEND_PROVIDERS)


def milliseconds(low: float, high: float) -> st.SearchStrategy[float]:
    """Durations; whole ones are common, so that events tie."""
    return st.one_of(
        st.integers(round(low), round(high)).map(float),
        st.floats(low, high, allow_nan=False, allow_infinity=False),
    )


@st.composite
def distributions(draw: st.DrawFn, low: float = 1.0, high: float = 400.0) -> dict[str, Any]:
    kind = draw(
        st.sampled_from(["fixed", "fixed", "exponential", "lognormal", "lognormal", "normal", "uniform", "empirical"])
    )
    scale = draw(milliseconds(low, high))
    floor = draw(st.sampled_from([0.0, 1.0, scale / 2]))
    if kind == "fixed":
        return {"distribution": kind, "value": scale}
    if kind == "exponential":
        return {"distribution": kind, "scale": scale, "min": floor}
    if kind == "lognormal":
        location = draw(st.sampled_from(["mean", "median"]))
        return {"distribution": kind, location: scale, "sigma": draw(st.sampled_from([0.0, 0.3, 1.5])), "min": floor}
    if kind == "normal":
        return {"distribution": kind, "mean": scale, "stddev": scale * draw(st.sampled_from([0.0, 0.2])), "min": floor}
    if kind == "uniform":
        return {"distribution": kind, "low": draw(st.sampled_from([0.0, scale / 2])), "high": scale * 1.5}
    values = draw(st.sampled_from([[scale / 2, scale, scale, scale * 4], [0.0, 0.0, scale * 2, scale * 6]]))
    return {"distribution": kind, "probabilities": [0, 0.5, 0.9, 1], "values": values}


@st.composite
def _selections(draw: st.DrawFn, most: int) -> dict[str, Any]:
    return {
        "per_txn": draw(st.integers(1, most)),
        "selector": draw(st.sampled_from(["uniform", "zipf"])),
        "alpha": draw(st.sampled_from([0.0, 1.0, 1.5])),
        "write_fraction": draw(st.sampled_from([0.3, 0.5, 1.0])),
    }


def _sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


@st.composite
def _streams(draw: st.DrawFn, tables_most: int, partitions_most: int, must_track: bool) -> dict[str, Any]:
    stream: dict[str, Any] = {"runtime": draw(distributions(1.0, 900.0))}
    if draw(st.booleans()):
        stream["inter_arrival"] = draw(distributions(8.0, 120.0))
    else:
        stream["clients"] = draw(st.sampled_from([6, 30, 2, 1]))
        stream["think_time"] = draw(distributions(1.0, 200.0))
    if draw(st.sampled_from([True, True, True, False])):
        kinds = st.sampled_from([*BUILT_IN, "custom"])
        weights = draw(st.dictionaries(kinds, st.sampled_from([0.0, 1.0, 2.5])))
        stream["operation_types"] = weights | {draw(kinds): 1.0}
    stream["tables"] = draw(_selections(tables_most))
    if must_track or draw(st.booleans()):
        stream["partitions"] = draw(_selections(partitions_most))
    return stream


@st.composite
def _catalogs(draw: st.DrawFn, storage_provider: str) -> dict[str, Any]:
    num_tables = draw(st.sampled_from([1, 1, 2, 3, 5, 12]))
    effect_point = draw(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0)))
    catalog: dict[str, Any] = {"num_tables": num_tables, "effect_point": effect_point}
    if draw(st.booleans()):
        catalog["partitions"] = {"num_partitions": draw(st.integers(1, 6))}
    else:
        counts = draw(st.lists(st.integers(1, 6), min_size=num_tables, max_size=num_tables))
        catalog["partitions"] = {"per_table": counts}
    kind = draw(st.sampled_from(["cas", "append", "append", "instant"]))
    catalog["type"] = kind
    place = draw(st.sampled_from(["storage", "provider", "provider", "latency"]))
    if kind == "instant" or place == "latency":
        catalog["latency_ms"] = draw(milliseconds(1.0, 60.0))
    elif place == "provider" or (kind == "append" and storage_provider not in APPEND_PROVIDERS):
        catalog["provider"] = draw(st.sampled_from(APPEND_PROVIDERS if kind == "append" else PROVIDERS))
    catalog["scope"] = draw(st.sampled_from(["catalog", "group", "table", "partition"]))
    if catalog["scope"] == "group":
        catalog["num_groups"] = draw(st.integers(1, num_tables))
        catalog["group_seed"] = draw(st.integers(0, 3))
    catalog["table_metadata_inlined"] = draw(st.booleans())
    if kind == "append":
        catalog["append"] = _without_none(
            {
                "entry_bytes": draw(st.sampled_from([1, 100])),
                "compaction_threshold_bytes": draw(st.sampled_from([150, 1000, 16_000_000])),
                "compaction_max_entries": draw(st.sampled_from([3, 1, 20, 0])),
                "max_physical_retries": draw(st.sampled_from([0, 1, 2, 100])),
                "compaction_latency": draw(_sometimes(distributions(1.0, 60.0))),
            }
        )
    return catalog


def _tables_most(catalog: dict[str, Any]) -> int:
    if catalog["scope"] != "group":
        return min(4, catalog["num_tables"])
    groups = assign_groups(catalog["num_tables"], catalog["num_groups"], catalog["group_seed"])
    return min(4, *(groups.count(group) for group in set(groups)))


@st.composite
def _costs(draw: st.DrawFn) -> dict[str, Any]:
    """What one operation type costs; each key is given or left out."""
    counts = st.fixed_dictionaries(
        {},
        optional={
            "manifest_list_reads": st.integers(0, 2),
            "manifest_list_writes": st.integers(0, 2),
            "manifest_file_reads": st.integers(0, 5),
            "manifest_file_writes": st.integers(0, 5),
        },
    )
    rates = st.sampled_from([0.0, 0.3, 1.0, 1.7])
    missed = st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("historical_ml_reads", "manifest_file_reads", "manifest_file_writes"), rates),
    )
    costs = {**draw(counts), "redone": draw(counts), "per_missed_commit": draw(missed)}
    return _without_none({**costs, "can_conflict": draw(st.sampled_from([True, True, None, False]))})


@st.composite
def _transactions(draw: st.DrawFn, storage: dict[str, Any], drains: bool) -> dict[str, Any]:
    can_append = storage["provider"] in APPEND_PROVIDERS
    fewest = draw(st.integers(0, 4))
    costs = draw(st.dictionaries(st.sampled_from(BUILT_IN), _costs(), max_size=1))
    return {
        # Of those who all retry for ever, some may never end.
        "retry": draw(st.sampled_from([4, 10, 30 if drains else 2**31 - 1, 1, 0])),
        "total_timeout_ms": draw(st.sampled_from([0.0, 0.0, 0.0, 50.0, 300.0, 2000.0])),
        "retry_backoff": {
            "enabled": draw(st.booleans()),
            "base_ms": draw(milliseconds(0.0, 50.0)),
            "multiplier": draw(st.sampled_from([1.0, 2.0, 3.5])),
            "max_ms": draw(milliseconds(0.0, 500.0)),
            "jitter": draw(st.sampled_from([0.0, 0.1, 1.0])),
            "jitter_kind": draw(st.sampled_from(["symmetric", "iceberg"])),
        },
        "real_conflict_probability": draw(st.sampled_from([0.3, 1.0, 0.0])),
        "conflict_detector": draw(st.sampled_from(["probabilistic", "partition_overlap"])),
        "on_real_conflict": draw(st.sampled_from(["restart", "merge", "abort"])),
        "max_restarts": draw(st.sampled_from([10, 1, 0])),
        "conflicting_manifests": {
            "distribution": draw(distributions(1.0, 8.0)),
            "min": fewest,
            "max": draw(st.integers(max(1, fewest), 9)),
        },
        "overlap": draw(st.sampled_from(["partition", "table"])),
        "history": draw(st.sampled_from(["catalog", "table"])),
        "manifest_list_mode": draw(st.sampled_from(["append", "rewrite"] if can_append else ["rewrite"])),
        "manifest_list_entry_bytes": draw(st.sampled_from([1, 50])),
        "manifest_list_seal_bytes": draw(st.sampled_from([0, 1, 120, 1000])),
        "manifests_per_concurrent_commit": draw(st.sampled_from([1.5, 0.5, 0.0])),
        "validation_manifests_per_commit": draw(st.sampled_from([0.4, 0.0])),
        "costs": {"custom": {"like": draw(st.sampled_from(BUILT_IN)), **draw(_costs())}, **costs},
    }


@st.composite
def configurations(draw: st.DrawFn, *, catalog_type: str | None = None) -> dict[str, Any]:
    """Return a valid configuration, as a TOML file would hold it; short, contended, and cut at any phase."""
    storage: dict[str, Any] = {
        "provider": draw(st.sampled_from(PROVIDERS)),
        "profile": draw(st.sampled_from(["2025-06", "2025-12"])),
        "max_parallel": draw(st.sampled_from([1, 2, 4, 1000])),
        "cas_failure_latency": draw(st.booleans()),
        "append_failure_latency": draw(st.booleans()),
    }
    catalog = draw(_catalogs(storage["provider"]))
    if catalog_type is not None and catalog["type"] != catalog_type:
        catalog["type"] = catalog_type
        catalog.pop("provider", None)
        catalog.pop("append", None)
        catalog["latency_ms"] = draw(milliseconds(1.0, 60.0))
    artifacts = ["metadata", "manifest_list", "manifest_file"]
    if "latency_ms" not in catalog:
        artifacts.append("catalog")
    storage["latency"] = {
        artifact: _without_none(
            {"read": draw(_sometimes(distributions(1.0, 60.0))), "write": draw(_sometimes(distributions(1.0, 60.0)))}
        )
        for artifact in artifacts
    }
    drains, list_per = draw(st.booleans()), draw(st.sampled_from(["table", "table", "partition"]))
    counts = catalog["partitions"]
    fewest = min(counts["per_table"]) if "per_table" in counts else counts["num_partitions"]
    stream = _streams(_tables_most(catalog), fewest, list_per == "partition")
    transaction = draw(_transactions(storage, drains))
    config: dict[str, Any] = {
        "simulation": {
            "duration_ms": draw(st.sampled_from([3000.0, 5000.0, 300.0])) + draw(milliseconds(0.0, 1000.0)),
            "seed": draw(st.integers(0, 2**63 - 1)),
            "drain": drains,
        },
        "storage": storage,
        "catalog": catalog,
        "transaction": transaction,
        "manifests": {
            "catalog_entry_bytes": draw(st.sampled_from([1, 100, 1_000_000])),
            "table_metadata_bytes": draw(st.sampled_from([1024, 5_000_000])),
            "manifest_list_bytes": draw(st.sampled_from([1, 10_240])),
            "manifest_file_bytes": draw(st.sampled_from([102_400, 1_000_000])),
            "entry_bytes": draw(st.sampled_from([0, 10_000, 1_000_000])),
            "list_per": list_per,
        },
    }
    if draw(st.booleans()):
        transaction.update(draw(stream))
    else:
        names = draw(st.lists(st.sampled_from(["ingest", "compaction", "fixes"]), min_size=1, unique=True))
        config["streams"] = [{"name": name, **draw(stream)} for name in names]
        for key in draw(st.sets(st.sampled_from(["runtime", "operation_types"]))):
            if key in config["streams"][0]:
                transaction[key] = config["streams"][0].pop(key)
    if draw(st.booleans()):
        _let_data_conflict(draw, config)
    if catalog["scope"] != "catalog" and any(map(has_reads, config.get("streams", [transaction]))):
        transaction["isolation"] = draw(st.sampled_from(["snapshot", "serializable", "serializable"]))
    return config


def _let_data_conflict(draw: st.DrawFn, config: dict[str, Any]) -> None:
    """Let many transactions conflict at a time, again and again, and go on after it."""
    transaction = config["transaction"]
    for stream in config.get("streams", [transaction]):
        stream["operation_types"] = draw(st.sampled_from([{"validated_overwrite": 1.0}, {"custom": 1.0}]))
        if "clients" in stream:
            stream["clients"] = 20
    transaction["retry"] = max(4, transaction["retry"])
    transaction["real_conflict_probability"] = 0.7
    transaction["on_real_conflict"] = draw(st.sampled_from(["restart", "restart", "merge"]))
    transaction["costs"]["custom"]["can_conflict"] = True


def has_reads(stream: dict[str, Any]) -> bool:
    """Whether a stream reads what it does not write."""
    selections = [stream[key] for key in ("tables", "partitions") if key in stream]
    return any(round(chosen["write_fraction"] * chosen["per_txn"]) < chosen["per_txn"] > 1 for chosen in selections)
