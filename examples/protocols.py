"""Compares commit protocols on one contended workload: python examples/protocols.py prints the table of the docs.

Every protocol sees the same transactions: the same arrivals, runtimes, operation types, tables and partitions.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import mean
from typing import Any, Final

from endive.config import build_simulation_config, parse_settings
from endive.simulation import Simulation
from endive.summary import summarize

SEEDS: Final = (1, 2, 3)
WORKLOAD: Final = """
simulation.duration_ms = 300_000
storage = { provider = "s3x", profile = "2025-12" }
catalog = { num_tables = 4, partitions.num_partitions = 8 }

[transaction]
runtime = { median = 3_000, sigma = 0.8, min = 500 }
inter_arrival.scale = 70
operation_types = { fast_append = 0.8, merge_append = 0.1, validated_overwrite = 0.1 }
partitions.per_txn = 1
"""
PROTOCOLS: Final[dict[str, str]] = {
    "swap one pointer": "",
    "swap one pointer, appended lists (ML+)": 'transaction.manifest_list_mode = "append"',
    "swap one of two pointers (groups)": 'catalog = {scope = "group", num_groups = 2}',
    "swap a pointer per table": 'catalog.scope = "table"',
    "swap a pointer per table, ML+": 'catalog.scope = "table"\ntransaction.manifest_list_mode = "append"',
    "swap a pointer per table, metadata apart": 'catalog = {scope = "table", table_metadata_inlined = false}',
    "swap per partition": 'catalog.scope = "partition"',
    "swap per partition, a list each": 'catalog.scope = "partition"\nmanifests.list_per = "partition"',
    "append to a log, checked per table": 'catalog.type = "append"',
    "append to a log, checked per table, ML+": 'catalog.type = "append"\ntransaction.manifest_list_mode = "append"',
    "append to a log, checked per partition": 'catalog = {type = "append", scope = "partition"}',
    "service of 1 ms, pointer per table": 'catalog = {type = "instant", scope = "table"}',
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the changes, table by table."""
    result = dict(base)
    for key, value in changes.items():
        result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def simulate(run: tuple[str, int]) -> dict[str, Any]:
    """Return the summary of all transactions of one protocol and seed."""
    protocol, seed = run
    data = merged(tomllib.loads(WORKLOAD), tomllib.loads(PROTOCOLS[protocol]))
    config = build_simulation_config(parse_settings(data), seed_override=seed)
    everything: dict[str, Any] = summarize(Simulation(config).run())["operations"]["all"]
    return everything


def table() -> Iterator[str]:
    """Yield the lines of a Markdown table: means over the seeds."""
    runs = list(product(PROTOCOLS, SEEDS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(runs, pool.map(simulate, runs), strict=True))
    yield "| protocol | commits/s | success | P50 | P99 | failed commits per commit | appends that missed, per commit |"
    yield "|---|---|---|---|---|---|---|"
    for protocol in PROTOCOLS:
        summaries = [found[protocol, seed] for seed in SEEDS]
        committed = mean(summary["committed"] for summary in summaries)
        cells = [
            f"{mean(summary['throughput_per_s'] for summary in summaries):.1f}",
            f"{100 * mean(summary['success_rate'] for summary in summaries):.1f} %",
            f"{mean(summary['commit_latency_ms']['p50'] for summary in summaries):,.0f} ms",
            f"{mean(summary['commit_latency_ms']['p99'] for summary in summaries):,.0f} ms",
            f"{mean(summary['retries'] for summary in summaries) / committed:.2f}",
            f"{mean(summary['append_physical_failures'] for summary in summaries) / committed:.2f}",
        ]
        yield f"| {protocol} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
