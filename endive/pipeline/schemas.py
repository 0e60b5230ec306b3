"""The tables of the pipeline: every column, told once, as Arrow types; Spark's are derived from them.

Times are milliseconds, rates per simulated second. A run's *cohort* is the transactions submitted in its steady window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from endive.results import SCHEMA as RESULTS
from endive.transaction import ABORT_REASONS

ALL: Final = "all"
"""The operation type of rows that cover every type."""

EXPERIMENT_KEYS: Final[tuple[pa.Field[Any], ...]] = (
    pa.field("exp_name", pa.string(), nullable=False),
    pa.field("exp_hash", pa.string(), nullable=False),
)
RUN_KEYS: Final[tuple[pa.Field[Any], ...]] = (*EXPERIMENT_KEYS, pa.field("seed", pa.int64(), nullable=False))
OPERATION: Final[pa.Field[Any]] = pa.field("operation_type", pa.string(), nullable=False)

CONSOLIDATED: Final = pa.schema([*RESULTS, *RUN_KEYS])
"""The rows of every run, with the experiment that each is of."""

CONFIGURATIONS: Final = pa.schema(
    [
        pa.field("exp_name", pa.string(), nullable=False),
        pa.field("exp_hash", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)
"""Every setting in force of every experiment: a dotted key and its value as TOML."""

HISTOGRAM: Final = pa.struct(
    [
        pa.field("bins", pa.list_(pa.field("bin", pa.int32(), nullable=False)), nullable=False),
        pa.field("counts", pa.list_(pa.field("count", pa.int64(), nullable=False)), nullable=False),
        pa.field("sum", pa.float64(), nullable=False),
        pa.field("sum_of_squares", pa.float64(), nullable=False),
    ]
)
"""A log-spaced histogram (`endive.pipeline.histogram`): the bins that are not empty, rising, and their counts."""

COMPONENTS: Final = (
    "catalog_read_ms",
    "per_attempt_io_ms",
    "conflict_io_ms",
    "catalog_commit_ms",
    "backoff_ms",
    "overhead_ms",
    "restart_ms",
)
"""What commit time is made of."""

COMMITTED_MEASURES: Final = ("commit_latency", "total_latency", *COMPONENTS)
"""Measured of each committed transaction of the cohort."""
CENSORED_MEASURES: Final = ("aborted_latency", "in_flight_latency")
"""How long commits of the cohort had lasted that gave up, and those still under way at the end of the run."""

SUMMED_COUNTS: Final = (
    "attempts",
    "n_retries",
    "manifest_list_reads",
    "historical_ml_reads",
    "manifest_list_writes",
    "manifest_list_appends",
    "manifest_file_reads",
    "manifest_file_writes",
    "metadata_reads",
    "metadata_writes",
    "append_physical_failures",
    "no_overlap_conflicts",
    "false_conflicts",
    "real_conflicts",
    "restarts",
)
"""Summed over the finished transactions of the cohort, committed or aborted."""


def _fields(names: Iterable[str], column_type: pa.DataType, *, nullable: bool = False) -> list[pa.Field[Any]]:
    return [pa.field(name, column_type, nullable=nullable) for name in names]


_count = pa.int64()
_counts = pa.list_(pa.field("count", pa.int64(), nullable=False))
_sums = pa.list_(pa.field("sum", pa.float64(), nullable=False))

RUN_SUMMARY: Final = pa.schema(
    [
        *RUN_KEYS,
        OPERATION,
        pa.field("duration_ms", pa.float64(), nullable=False),
        pa.field("window_start_ms", pa.float64(), nullable=False),
        pa.field("window_end_ms", pa.float64(), nullable=False),
        pa.field("submitted", _count, nullable=False),
        pa.field("committed", _count, nullable=False),
        pa.field("aborted", _count, nullable=False),
        pa.field("in_flight", _count, nullable=False),
        *_fields(ABORT_REASONS, _count),
        pa.field("acknowledged", _count, nullable=False),
        *_fields(SUMMED_COUNTS, _count),
        *_fields((*COMMITTED_MEASURES, *CENSORED_MEASURES), HISTOGRAM),
        pa.field("series_bin_ms", pa.float64(), nullable=False),
        pa.field("series_submitted", _counts, nullable=False),
        pa.field("series_committed", _counts, nullable=False),
        pa.field("series_aborted", _counts, nullable=False),
        pa.field("series_commit_latency_ms", _sums, nullable=False),
        pa.field("in_flight_submit_ms", _sums, nullable=False),
        pa.field("in_flight_commit_start_ms", _sums, nullable=False),
    ]
)
"""One row per run and operation type; mergeable.

`submitted` to the abort reasons, the sums and the histograms are of the cohort; `acknowledged` counts the commits
answered in the window, whenever submitted. `series_*` cover the duration of the run in equal bins (what a drain adds
after it is not in them): submissions, commits and aborts by the time they happened, and the sum of the commit latencies
of the commits in each bin. `in_flight_*` tell of each transaction that never finished (commit start NaN where its
commit had not begun), so that another window can be summarized from the rows. A run in which nothing was submitted has
one row, of type `ALL`.
"""

WINDOWS: Final = pa.schema(
    [*EXPERIMENT_KEYS, *_fields(("duration_ms", "window_start_ms", "window_end_ms"), pa.float64())]
)
"""The window in which the cohort of each experiment's runs is submitted."""

COMMIT_RATES: Final = pa.schema(
    [
        *RUN_KEYS,
        OPERATION,
        pa.field("start_ms", pa.float64(), nullable=False),
        pa.field("submitted", _count, nullable=False),
        pa.field("committed", _count, nullable=False),
        pa.field("aborted", _count, nullable=False),
        pa.field("commits_per_s", pa.float64(), nullable=False),
        pa.field("commit_latency_mean_ms", pa.float64(), nullable=True),
    ]
)
"""What happened in each bin of a run's time series; the latency is of the commits in it (None without one)."""

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

METRICS: Final = (
    "success_rate",
    "in_flight_share",
    "offered_per_s",
    "throughput_per_s",
    "retries_per_commit",
    "attempts_per_transaction",
    "historical_reads_per_commit",
    "manifest_reads_per_commit",
    "manifest_writes_per_commit",
    "overhead_share",
    *(f"{measure.removesuffix('_ms')}_{point}_ms" for measure in COMMITTED_MEASURES for point in (*QUANTILES, "mean")),
)
"""Figures of a run. None where there is nothing to tell (no commit, say).

success_rate                 committed / (committed + aborted) of the cohort
in_flight_share              in flight / submitted of the cohort
offered_per_s                submitted in the window, per second
throughput_per_s             acknowledged in the window, per second
retries_per_commit           retries of all finished transactions of the cohort / its commits
attempts_per_transaction     attempts / finished transactions of the cohort
historical_reads_per_commit  manifest lists of past snapshots read / commits
manifest_reads_per_commit    manifest lists and files read / commits
manifest_writes_per_commit   manifest lists written or appended and files written / commits
overhead_share               conflict I/O, backoff and restarts over all components of commit time
<measure>_<point>_ms         quantile or mean of a committed measure, e.g. commit_latency_p99_ms, conflict_io_mean_ms
"""

COUNTS: Final = ("submitted", "committed", "aborted", "in_flight", *ABORT_REASONS, "acknowledged", *SUMMED_COUNTS)

RUN_METRICS: Final = pa.schema(
    [
        *RUN_KEYS,
        OPERATION,
        *_fields(("duration_ms", "window_start_ms", "window_end_ms"), pa.float64()),
        *_fields(COUNTS, _count),
        *_fields(METRICS, pa.float64(), nullable=True),
    ]
)
"""One row per run and operation type, and one for `ALL`."""

SUMMARY: Final = pa.schema(
    [
        *EXPERIMENT_KEYS,
        OPERATION,
        pa.field("seeds", pa.int64(), nullable=False),
        *_fields(("duration_ms", "window_start_ms", "window_end_ms"), pa.float64()),
        *_fields(COUNTS, _count),
        *_fields((name + end for name in METRICS for end in ("", "_low", "_high")), pa.float64(), nullable=True),
    ]
)
"""One row per experiment and operation type, and one for `ALL`: counts summed over seeds, each metric's mean over the
seeds that have it, and the 95 % confidence interval of that mean (Student's t; None with fewer than two seeds)."""

DIFFERENCES: Final = pa.schema(
    [
        pa.field("baseline_name", pa.string(), nullable=False),
        pa.field("baseline_hash", pa.string(), nullable=False),
        *EXPERIMENT_KEYS,
        OPERATION,
        pa.field("metric", pa.string(), nullable=False),
        pa.field("seeds", pa.int64(), nullable=False),
        *_fields(
            ("baseline", "value", "difference", "difference_low", "difference_high", "relative_difference"),
            pa.float64(),
            nullable=True,
        ),
    ]
)
"""How an experiment differs from a baseline that shares its seeds: one row per operation type and metric.

`baseline` and `value` are means over the seeds that have the metric in both, `difference` the mean of value - baseline
seed by seed, with its 95 % confidence interval (Student's t; None with fewer than two seeds), and `relative_difference`
that difference over |baseline| (None for 0).
"""

PAIRS: Final = pa.schema(
    [
        pa.field("baseline_name", pa.string(), nullable=False),
        pa.field("baseline_hash", pa.string(), nullable=False),
        *EXPERIMENT_KEYS,
    ]
)
"""Experiments to compare, each with its baseline."""
