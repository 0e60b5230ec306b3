"""From the summaries of runs to metrics, experiments, and differences between them. Neither Spark nor files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from endive.pipeline.histogram import Floats
from endive.pipeline.run_summary import OperationSummary, Run, SummaryRow, from_table, merge_summaries
from endive.pipeline.schemas import (
    ALL,
    COMMITTED_MEASURES,
    COMPONENTS,
    COUNTS,
    DIFFERENCES,
    METRICS,
    QUANTILES,
    RUN_METRICS,
    SUMMARY,
)

CONFIDENCE: Final = 0.95
OVERHEADS: Final = ("conflict_io_ms", "backoff_ms", "restart_ms")

Record = dict[str, Any]


def run_metrics(summaries: pa.Table) -> pa.Table:
    """Return `schemas.RUN_METRICS` of whole experiments in `schemas.RUN_SUMMARY`, a row per run and operation type.

    Every run has a row for each operation type that any run of its experiment has: a type that was never submitted in
    one run has no throughput there.
    """
    rows = sorted(from_table(summaries), key=itemgetter(0, 1))
    records: list[Record] = []
    for _, own in groupby(rows, key=lambda row: row[0][:2]):
        records += _experiment_metrics(list(own))
    return pa.Table.from_pylist(records, schema=RUN_METRICS)


def _experiment_metrics(rows: Sequence[SummaryRow]) -> Iterator[Record]:
    operations = sorted({operation for _, operation, _ in rows} - {ALL})
    for run, own in groupby(rows, key=itemgetter(0)):
        by_operation = {operation: summary for _, operation, summary in own if operation != ALL}
        yield _run_record(run, ALL, merge_summaries(by_operation.values()))
        for operation in operations:
            yield _run_record(run, operation, by_operation.get(operation, OperationSummary()))


def _run_record(run: Run, operation: str, summary: OperationSummary) -> Record:
    return {
        "exp_name": run.exp_name,
        "exp_hash": run.exp_hash,
        "seed": run.seed,
        "operation_type": operation,
        "duration_ms": run.duration_ms,
        "window_start_ms": run.window.start_ms,
        "window_end_ms": run.window.end_ms,
        **{name: summary.counts[name] for name in COUNTS},
        **metrics_of(summary, run.window.duration_ms),
    }


def metrics_of(summary: OperationSummary, window_ms: float) -> dict[str, float | None]:
    """Return each of `schemas.METRICS` of a summary whose window lasted so long."""
    count, measured = summary.counts, summary.histograms
    committed, finished = count["committed"], count["committed"] + count["aborted"]
    overhead_ms = sum(measured[name].sum for name in OVERHEADS)
    metrics = {
        "success_rate": _ratio(committed, finished),
        "in_flight_share": _ratio(count["in_flight"], count["submitted"]),
        "offered_per_s": 1000.0 * count["submitted"] / window_ms,
        "throughput_per_s": 1000.0 * count["acknowledged"] / window_ms,
        "retries_per_commit": _ratio(count["n_retries"], committed),
        "attempts_per_transaction": _ratio(count["attempts"], finished),
        "historical_reads_per_commit": _ratio(count["historical_ml_reads"], committed),
        "manifest_reads_per_commit": _ratio(count["manifest_list_reads"] + count["manifest_file_reads"], committed),
        "manifest_writes_per_commit": _ratio(
            count["manifest_list_writes"] + count["manifest_list_appends"] + count["manifest_file_writes"], committed
        ),
        "overhead_share": _ratio(overhead_ms, sum(measured[name].sum for name in COMPONENTS)),
    }
    for measure in COMMITTED_MEASURES:
        title = measure.removesuffix("_ms")
        points = [*measured[measure].quantiles(list(QUANTILES.values())), measured[measure].mean]
        metrics |= {f"{title}_{point}_ms": value for point, value in zip((*QUANTILES, "mean"), points, strict=True)}
    return metrics


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def summarize_experiments(metrics: pa.Table) -> pa.Table:
    """Return `schemas.SUMMARY` of a table in `schemas.RUN_METRICS`: each experiment's mean over its seeds."""
    records = [
        {
            **dict(zip(("exp_name", "exp_hash", "operation_type"), key, strict=True)),
            "seeds": len(rows),
            **{name: rows[0][name] for name in ("duration_ms", "window_start_ms", "window_end_ms")},
            **{name: sum(row[name] for row in rows) for name in COUNTS},
            **_means_with_intervals(rows),
        }
        for key, rows in _experiments(metrics)
    ]
    return pa.Table.from_pylist(records, schema=SUMMARY)


def _experiments(metrics: pa.Table) -> Iterator[tuple[tuple[str, str, str], list[Record]]]:
    """Yield each experiment and operation type in order, with its runs in the order of their seeds."""
    key = itemgetter("exp_name", "exp_hash", "operation_type")
    rows = sorted(metrics.to_pylist(), key=lambda row: (key(row), row["seed"]))
    for found, own in groupby(rows, key=key):
        yield found, list(own)


def _means_with_intervals(rows: Sequence[Record]) -> Record:
    columns = zip(METRICS, *(_to_list(values) for values in mean_intervals(_values(rows))), strict=True)
    return {
        name: value
        for metric, *values in columns
        for name, value in zip((metric, f"{metric}_low", f"{metric}_high"), values, strict=True)
    }


def _values(rows: Sequence[Record]) -> Floats:
    """Return a row of all metrics for each run; NaN where it has none."""
    return np.array([[row[name] for name in METRICS] for row in rows], dtype=np.float64)


def _to_list(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def mean_intervals(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean of each column without its NaNs, and the ends of its CONFIDENCE interval (Student's t).

    The mean is NaN without values, the ends with fewer than two.
    """
    counts = np.count_nonzero(~np.isnan(values), axis=0)
    means = np.nansum(values, axis=0) / np.where(counts > 0, counts, np.nan)
    variances = np.nansum(np.square(values - means), axis=0) / np.where(counts > 1, counts - 1, np.nan)
    halves = np.array([_t_quantile(count) for count in counts.tolist()]) * np.sqrt(variances / np.maximum(counts, 1))
    return means, means - halves, means + halves


@cache
def _t_quantile(count: int) -> float:
    """Return how many standard errors of a mean of `count` values reach to the end of its interval."""
    return float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2.0)) if count > 1 else np.nan


def paired_differences(baseline: pa.Table, other: pa.Table) -> pa.Table:
    """Return `schemas.DIFFERENCES` of two experiments in `schemas.RUN_METRICS`, for the operation types of both.

    Runs are paired by seed, which gives them the same random numbers: what the seed did to both falls out.
    """
    if not baseline.num_rows or not other.num_rows:
        return DIFFERENCES.empty_table()
    base_rows, other_rows = _rows_by_operation(baseline), _rows_by_operation(other)
    keys = {
        "baseline_name": baseline["exp_name"][0].as_py(),
        "baseline_hash": baseline["exp_hash"][0].as_py(),
        "exp_name": other["exp_name"][0].as_py(),
        "exp_hash": other["exp_hash"][0].as_py(),
    }
    records = [
        keys | {"operation_type": operation} | record
        for operation in sorted(base_rows.keys() & other_rows.keys())
        for record in _differences(base_rows[operation], other_rows[operation])
    ]
    return pa.Table.from_pylist(records, schema=DIFFERENCES)


def _rows_by_operation(metrics: pa.Table) -> dict[str, dict[int, Record]]:
    """Return the runs of one experiment by operation type and seed."""
    experiments = _experiments(metrics)
    by_operation = {operation: {row["seed"]: row for row in rows} for (_, _, operation), rows in experiments}
    if len(set(zip(metrics["exp_name"].to_pylist(), metrics["exp_hash"].to_pylist(), strict=True))) > 1:
        raise ValueError("these are the metrics of several experiments; allowed is one")
    return by_operation


def _differences(baseline: dict[int, Record], other: dict[int, Record]) -> Iterator[Record]:
    seeds = sorted(baseline.keys() & other.keys())
    before = _values([baseline[seed] for seed in seeds]).reshape(len(seeds), len(METRICS))
    after = _values([other[seed] for seed in seeds]).reshape(len(seeds), len(METRICS))
    is_paired = ~np.isnan(before) & ~np.isnan(after)
    before, after = np.where(is_paired, before, np.nan), np.where(is_paired, after, np.nan)
    means, lows, highs = mean_intervals(after - before)
    base_means = mean_intervals(before)[0]
    relative = means / np.where(base_means != 0.0, np.abs(base_means), np.nan)
    figures = {
        "baseline": base_means,
        "value": mean_intervals(after)[0],
        "difference": means,
        "difference_low": lows,
        "difference_high": highs,
        "relative_difference": relative,
    }
    columns = zip(METRICS, is_paired.sum(axis=0).tolist(), *map(_to_list, figures.values()), strict=True)
    for metric, paired, *values in columns:
        yield {"metric": metric, "seeds": paired, **dict(zip(figures, values, strict=True))}
