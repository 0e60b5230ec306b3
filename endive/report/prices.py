"""What a store charges for requests: one dated table a provider, and what a transaction's requests come to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import pandas as pd

from endive.report.labels import Value

_BYTES_PER_GB: Final = 1e9


@dataclass(frozen=True)
class Prices:
    """List prices of a store, in US dollars, as of a month."""

    title: str
    as_of: str
    region: str
    source: str
    read_usd_per_1000: float
    write_usd_per_1000: float
    read_usd_per_gb: float
    write_usd_per_gb: float

    def read_usd(self, size_bytes: float) -> float:
        """Return what reading an object costs."""
        return self.read_usd_per_1000 / 1000.0 + self.read_usd_per_gb * size_bytes / _BYTES_PER_GB

    def write_usd(self, size_bytes: float) -> float:
        """Return what writing an object (or swapping it, or appending to it) costs."""
        return self.write_usd_per_1000 / 1000.0 + self.write_usd_per_gb * size_bytes / _BYTES_PER_GB


@cache
def load_prices() -> Mapping[str, Prices]:
    """Return the prices of every provider that has some, by name."""
    folder = resources.files("endive") / "report" / "prices"
    found: dict[str, Prices] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = Prices(**tomllib.loads(file.read_text(encoding="utf-8")))
    return found


@dataclass(frozen=True)
class RequestPrices:
    """What each kind of request of an experiment costs, in US dollars. A catalog that is a service costs none here."""

    list_read: float
    list_write: float
    file_read: float
    file_write: float
    metadata_read: float
    metadata_write: float
    catalog_read: float
    catalog_write: float
    has_discovery: bool


def request_prices(settings: Mapping[str, Value]) -> RequestPrices | None:
    """Return the prices of an experiment's requests, from its settings; None where its store has no prices."""
    prices = load_prices()
    store = prices.get(str(settings.get("storage.provider")))
    if store is None:
        return None

    def size(key: str, default: float) -> float:
        value = settings.get(f"manifests.{key}")
        return value if isinstance(value, float) else default

    is_service = settings.get("catalog.type") == "instant" or settings.get("catalog.latency_ms") is not None
    pointer = None if is_service else prices.get(str(settings.get("catalog.provider") or settings["storage.provider"]))
    entry, listing, file, metadata = (
        size(key, default)
        for key, default in (
            ("catalog_entry_bytes", 100.0),
            ("manifest_list_bytes", 10240.0),
            ("manifest_file_bytes", 102400.0),
            ("table_metadata_bytes", 1024.0),
        )
    )
    return RequestPrices(
        list_read=store.read_usd(listing),
        list_write=store.write_usd(listing),
        file_read=store.read_usd(file),
        file_write=store.write_usd(file),
        metadata_read=store.read_usd(metadata),
        metadata_write=store.write_usd(metadata),
        catalog_read=pointer.read_usd(entry) if pointer else 0.0,
        catalog_write=pointer.write_usd(entry) if pointer else 0.0,
        has_discovery=settings.get("catalog.type") == "append",
    )


def requests_usd(counts: pd.DataFrame, prices: RequestPrices) -> Any:
    """Return what all requests of finished transactions cost, in dollars, for each row of counts.

    A transaction reads the catalog once, again for each retry, and again before it finds a real conflict. Requests of
    the catalog for runs of a transaction before its last restart, and compactions of a log, are not counted.
    """
    finished = counts["committed"] + counts["aborted"]
    commits = counts["attempts"] + counts["append_physical_failures"]
    catalog_reads = finished + counts["n_retries"] + counts["validation_exception"]
    discoveries = counts["attempts"] if prices.has_discovery else 0
    return np.asarray(
        counts["manifest_list_reads"] * prices.list_read
        + (counts["manifest_list_writes"] + counts["manifest_list_appends"]) * prices.list_write
        + counts["manifest_file_reads"] * prices.file_read
        + counts["manifest_file_writes"] * prices.file_write
        + counts["metadata_reads"] * prices.metadata_read
        + counts["metadata_writes"] * prices.metadata_write
        + (catalog_reads + discoveries) * prices.catalog_read
        + commits * prices.catalog_write,
        dtype=np.float64,
    )


def first_attempt_usd(settings: Mapping[str, Value], operation: str, prices: RequestPrices) -> float | None:
    """Return what a transaction that commits at its first attempt costs, in dollars.

    None where streams with the operation touch different numbers of tables, so that no single figure is right.
    """
    shapes = {_shape(settings, prefix) for prefix in _streams_with(settings, operation)}
    if len(shapes) != 1:
        return None
    read, written, lists = shapes.pop()

    def count(name: str, default: float) -> float:
        value = settings.get(f"transaction.costs.{operation}.{name}")
        return value if isinstance(value, float) else default

    per_table = (
        lists * count("manifest_list_reads", 1.0) * prices.list_read
        + lists * count("manifest_list_writes", 1.0) * prices.list_write
        + count("manifest_file_reads", 0.0) * prices.file_read
        + count("manifest_file_writes", 1.0) * prices.file_write
    )
    is_apart = settings.get("catalog.table_metadata_inlined") == "off"
    metadata = read * prices.metadata_read + written * prices.metadata_write if is_apart else 0.0
    reads = 2.0 if prices.has_discovery else 1.0
    return written * per_table + metadata + reads * prices.catalog_read + prices.catalog_write


def _streams_with(settings: Mapping[str, Value], operation: str) -> list[str]:
    """Return the prefix of the keys of each stream that submits an operation."""
    names = {key.split(".")[1] for key in settings if key.startswith("streams.") and settings[key] is not None}
    prefixes = [f"streams.{name}" for name in sorted(names)] or ["transaction"]
    if prefixes == ["transaction"]:
        return prefixes
    return [prefix for prefix in prefixes if settings.get(f"{prefix}.operation_types.{operation}")]


def _shape(settings: Mapping[str, Value], prefix: str) -> tuple[int, int, int]:
    """Return how many tables a transaction reads and writes, and how many lists it writes in each."""
    read, written = _selected(settings, f"{prefix}.tables")
    has_lists_of_partitions = settings.get("manifests.list_per") == "partition"
    return read, written, _selected(settings, f"{prefix}.partitions")[1] if has_lists_of_partitions else 1


def _selected(settings: Mapping[str, Value], key: str) -> tuple[int, int]:
    per_transaction, share = settings.get(f"{key}.per_txn"), settings.get(f"{key}.write_fraction")
    read = round(per_transaction) if isinstance(per_transaction, float) else 1
    return read, max(1, round(read * (share if isinstance(share, float) else 1.0)))
