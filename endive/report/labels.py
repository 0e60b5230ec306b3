"""What keys, values and metrics are called where people read them, with their units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from endive.config import load_provider_profiles
from endive.pipeline.schemas import COMMITTED_MEASURES, COMPONENTS, METRICS, QUANTILES

Value = float | str | None
"""Of a setting: a number, a word, or None where the setting is not in force."""

LOAD_LABEL: Final = "submissions per second"

_KEYS: Final = {
    "catalog.latency_ms": "catalog latency (ms)",
    "catalog.num_groups": "table groups",
    "catalog.num_tables": "tables",
    "catalog.partitions.num_partitions": "partitions per table",
    "catalog.provider": "store of the catalog",
    "catalog.scope": "commit scope",
    "catalog.type": "catalog type",
    "catalog.effect_point": "effect point",
    "simulation.duration_ms": "duration (ms)",
    "storage.provider": "store",
    "storage.profile": "profile",
    "storage.max_parallel": "parallel requests",
    "transaction.clients": "clients",
    "transaction.retry": "retries allowed",
    "transaction.real_conflict_probability": "probability of a real conflict",
    "transaction.retry_backoff.enabled": "backoff",
    "transaction.retry_backoff.base_ms": "first backoff (ms)",
    "transaction.retry_backoff.max_ms": "longest backoff (ms)",
    "transaction.runtime.median": "median runtime (ms)",
    "transaction.runtime.mean": "mean runtime (ms)",
    "transaction.runtime.sigma": "runtime σ",
    "transaction.manifest_list_mode": "manifest lists",
    "transaction.on_real_conflict": "on a real conflict",
    "transaction.tables.per_txn": "tables per transaction",
    "transaction.tables.selector": "choice of tables",
    "transaction.tables.alpha": "Zipf exponent of tables",
    "transaction.partitions.per_txn": "partitions per transaction",
}
FRIENDLY_KEYS: Final = tuple(_KEYS)
"""Keys with a name of their own."""

_OPERATIONS: Final = {
    "fast_append": "fast appends",
    "merge_append": "merge appends",
    "validated_overwrite": "validated overwrites",
    "all": "all operations",
}

COMPONENT_TITLES: Final = {
    "catalog_read_ms": "catalog reads",
    "per_attempt_io_ms": "manifest I/O",
    "conflict_io_ms": "conflict I/O",
    "catalog_commit_ms": "catalog commits",
    "backoff_ms": "backoff",
    "overhead_ms": "client overhead",
    "restart_ms": "work done again",
}

POINT_TITLES: Final = {
    "success 0.95": "95 % commit up to here",
    "success 0.5": "half commit up to here",
    "knee": "knee of throughput",
}
"""What people call the saturation points."""


@dataclass(frozen=True)
class Metric:
    """A figure of a run: its column, what people call it, and by what it is multiplied for them to read it."""

    name: str
    title: str
    unit: str
    factor: float = 1.0
    is_log: bool = False

    @property
    def is_share(self) -> bool:
        """Whether it is a part of a whole."""
        return self.unit == "%"

    @property
    def label(self) -> str:
        """Return the title with the unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def _time_metrics() -> list[Metric]:
    titles = {"commit_latency": "commit latency", "total_latency": "total latency", **COMPONENT_TITLES}
    return [
        Metric(
            f"{measure.removesuffix('_ms')}_{point}_ms",
            f"{titles[measure]}, {'mean' if point == 'mean' else point.upper()}",
            "s",
            factor=0.001,
            is_log=measure not in COMPONENTS,
        )
        for measure in COMMITTED_MEASURES
        for point in (*QUANTILES, "mean")
    ]


METRIC_OF: Final = {
    metric.name: metric
    for metric in (
        Metric("success_rate", "committed of finished", "%", 100.0),
        Metric("in_flight_share", "still in flight at the end", "%", 100.0),
        Metric("offered_per_s", "submitted", "1/s", is_log=True),
        Metric("throughput_per_s", "commits per second", "", is_log=True),
        Metric("retries_per_commit", "retries per commit", ""),
        Metric("attempts_per_transaction", "attempts per transaction", ""),
        Metric("historical_reads_per_commit", "historical manifest lists read per commit", ""),
        Metric("manifest_reads_per_commit", "manifest reads per commit", ""),
        Metric("manifest_writes_per_commit", "manifest writes per commit", ""),
        Metric("overhead_share", "share of commit time spent on conflicts", "%", 100.0),
        *_time_metrics(),
    )
}
assert set(METRIC_OF) == set(METRICS), "every metric of the pipeline has a name for people"


def key_label(key: str) -> str:
    """Return what a person calls a setting, with its unit."""
    if key in _KEYS:
        return _KEYS[key]
    *path, last = key.split(".")
    if "operation_types" in path:
        of = f" in {path[1]}" if path[0] == "streams" else ""
        return f"share of {operation_label(last)}{of}"
    if key.endswith("inter_arrival.scale"):
        return "mean inter-arrival time (ms)"
    words = last.replace("_", " ")
    if path and last in ("min", "max", "scale", "value", "enabled", "sigma", "median", "mean"):
        words = f"{path[-1].replace('_', ' ')}: {words}"
    if path and path[0] == "streams":
        words = f"{words} of {path[1]}"
    return f"{words.removesuffix(' ms')} (ms)" if words.endswith(" ms") else words


def operation_label(operation: str) -> str:
    """Return what a person calls an operation type, in the plural."""
    return _OPERATIONS.get(operation, operation.replace("_", " "))


def value_label(key: str, value: Value) -> str:
    """Return a value as a person reads it."""
    if isinstance(value, str):
        if key.endswith(".provider"):
            profiles = load_provider_profiles("2025-12")
            return profiles[value].title if value in profiles else value
        return value
    return number(value)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with that many significant digits, thousands apart, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
