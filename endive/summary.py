"""What a run found, in numbers a person or a script can use. Pure functions on statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from endive import MODEL_VERSION, __version__
from endive.simulation import SUMMED_COUNTS, SUMMED_TIMES, OperationTotals, Statistics
from endive.utils import format_duration, format_table

ALL: Final = "all"
PERCENTILES: Final = (50, 95, 99)
PHASES: Final = ("pending", "executing", "committing")

_COUNT_TITLES: Final = {
    "manifest_list_reads": "manifest lists read",
    "historical_ml_reads": "  of past snapshots",
    "manifest_list_writes": "manifest lists written",
    "manifest_list_appends": "manifest list appends",
    "manifest_file_reads": "manifest files read",
    "manifest_file_writes": "manifest files written",
    "metadata_reads": "table metadata read",
    "metadata_writes": "table metadata written",
    "append_physical_failures": "appends that missed",
    "no_overlap_conflicts": "failed commits, no overlap",
    "false_conflicts": "failed commits, false conflict",
    "real_conflicts": "failed commits, real conflict",
    "restarts": "restarts",
}
_ALWAYS_SHOWN: Final = ("manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes")
_TIME_TITLES: Final = {
    "catalog_read_ms": "catalog reads",
    "per_attempt_io_ms": "manifest I/O",
    "conflict_io_ms": "conflict I/O",
    "catalog_commit_ms": "catalog commits",
    "backoff_ms": "backoff",
    "overhead_ms": "client overhead",
    "restart_ms": "work done again",
}


def summarize(statistics: Statistics) -> dict[str, Any]:
    """Return a run as one JSON-ready object: the run, its counters, and each operation type.

    Latencies are exact quantiles over all commits of the run, interpolated linearly, in milliseconds;
    throughput is commits per simulated second. What has no value is None.
    """
    names = sorted({*statistics.operations, *(kind for kind, _ in statistics.in_flight)})
    operations = {name: _summarize_operation(name, statistics) for name in names}
    return {
        "version": __version__,
        "model_version": MODEL_VERSION,
        "engine": statistics.engine,
        "config_hash": statistics.config_hash,
        "seed": statistics.seed,
        "duration_ms": statistics.duration_ms,
        "end_ms": statistics.end_ms,
        "events": statistics.events,
        "final_seq": statistics.final_seq,
        "table_versions": list(statistics.table_versions),
        "submitted": statistics.submitted,
        "committed": statistics.committed,
        "aborted": statistics.aborted,
        "in_flight": sum(statistics.in_flight.values()),
        "in_flight_applied": statistics.in_flight_applied,
        "counters": {**statistics.catalog_counters.to_dict(), **statistics.manifest_list_counters.to_dict()},
        "operations": {ALL: _summarize_operation(ALL, statistics), **operations},
    }


def _summarize_operation(name: str, statistics: Statistics) -> dict[str, Any]:
    parts = (
        list(statistics.operations.values()) if name == ALL else [statistics.operations.get(name, OperationTotals())]
    )
    committed = sum(part.committed for part in parts)
    aborted: dict[str, int] = {}
    for part in parts:
        for reason, count in part.aborted.items():
            aborted[reason] = aborted.get(reason, 0) + count
    in_flight = {
        phase: sum(count for (kind, at), count in statistics.in_flight.items() if at == phase and name in (ALL, kind))
        for phase in PHASES
    }
    finished = committed + sum(aborted.values())
    latencies = np.concatenate([np.asarray(part.commit_latencies_ms) for part in parts] or [np.empty(0)])
    quantiles = np.percentile(latencies, PERCENTILES).tolist() if latencies.size else [None] * len(PERCENTILES)
    times_ms = {key: float(sum(part.times_ms[key] for part in parts)) for key in SUMMED_TIMES}
    return {
        "submitted": finished + sum(in_flight.values()),
        "committed": committed,
        "aborted": sum(aborted.values()),
        "aborted_by_reason": dict(sorted(aborted.items())),
        "in_flight": sum(in_flight.values()),
        "in_flight_by_phase": in_flight,
        "success_rate": committed / finished if finished else None,
        "throughput_per_s": 1000.0 * committed / statistics.end_ms,
        "commit_latency_ms": {
            **{f"p{percent}": value for percent, value in zip(PERCENTILES, quantiles, strict=True)},
            "mean": float(latencies.mean()) if latencies.size else None,
        },
        "retries": sum(part.retries for part in parts),
        **{key: sum(part.counts[key] for part in parts) for key in SUMMED_COUNTS},
        "times_ms": times_ms,
    }


def summary_table(summary: dict[str, Any]) -> str:
    """Return a summary as aligned text: a column for all, and one for each operation type."""
    operations: dict[str, dict[str, Any]] = dict(summary["operations"])
    if len(operations) == 2:
        del operations[ALL]
    columns = list(operations.values())
    rows = [
        ["", *operations],
        *_outcome_rows(columns),
        ["success rate", *(_percent(column["success_rate"]) for column in columns)],
        ["throughput", *(f"{column['throughput_per_s']:.3g} /s" for column in columns)],
        *_latency_rows(columns),
        _count_row("retries", [column["retries"] for column in columns]),
        *_work_rows(columns),
        ["where commit time went", *("" for _ in columns)],
        *_time_rows(columns),
    ]
    return format_table(rows)


def _count_row(title: str, counts: list[int]) -> list[str]:
    return [title, *(f"{count:,}" for count in counts)]


def _outcome_rows(columns: list[dict[str, Any]]) -> Iterator[list[str]]:
    for key in ("submitted", "committed", "aborted"):
        yield _count_row(key, [column[key] for column in columns])
    for reason in sorted({reason for column in columns for reason in column["aborted_by_reason"]}):
        yield _count_row(f"  {reason}", [column["aborted_by_reason"].get(reason, 0) for column in columns])
    yield _count_row("in flight at the end", [column["in_flight"] for column in columns])
    for phase in PHASES:
        if any(column["in_flight_by_phase"][phase] for column in columns):
            yield _count_row(f"  {phase}", [column["in_flight_by_phase"][phase] for column in columns])


def _latency_rows(columns: list[dict[str, Any]]) -> Iterator[list[str]]:
    for percent in PERCENTILES:
        latencies = [column["commit_latency_ms"][f"p{percent}"] for column in columns]
        yield [f"commit latency P{percent}", *("–" if value is None else format_duration(value) for value in latencies)]


def _work_rows(columns: list[dict[str, Any]]) -> Iterator[list[str]]:
    for key, title in _COUNT_TITLES.items():
        if key in _ALWAYS_SHOWN or any(column[key] for column in columns):
            yield _count_row(title, [column[key] for column in columns])


def _time_rows(columns: list[dict[str, Any]]) -> Iterator[list[str]]:
    totals = [sum(column["times_ms"].values()) for column in columns]
    for key, title in _TIME_TITLES.items():
        if any(column["times_ms"][key] for column in columns):
            times = [column["times_ms"][key] for column in columns]
            shares = [time / total if total else None for time, total in zip(times, totals, strict=True)]
            yield [f"  {title}", *map(_percent, shares)]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100.0 * share:.2f} %"
