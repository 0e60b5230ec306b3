"""Consolidated rows to summaries, metrics and differences, on Spark: functions from frames to frames.

Each frame has the columns of a schema of `schemas`, in its order. Quantiles are of histograms, within 0.5 %; counts and
quantiles agree exactly with the summaries that runs leave, sums of times but for rounding. Rows are summarized by the
code that summarizes a run as it goes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from endive.config_errors import ConfigError
from endive.pipeline import metrics
from endive.pipeline.consolidated import (
    CONFIGURATIONS_NAME,
    CONSOLIDATED_NAME,
    finished_runs,
    problems_of,
    read_making,
    rows_path,
)
from endive.pipeline.experiments import Experiment, OnProblem, UnreadableError, explained, log_problem, require_whole
from endive.pipeline.run_summary import (
    IN_FLIGHT,
    SUMMARIZED_COLUMNS,
    SUMMARY_NAME,
    Run,
    RunSummarizer,
    Window,
    merge_run_summaries,
    read_run_summary,
    steady_window,
)
from endive.pipeline.schemas import (
    ALL,
    COMMIT_RATES,
    CONFIGURATIONS,
    CONSOLIDATED,
    DIFFERENCES,
    EXPERIMENT_KEYS,
    PAIRS,
    RUN_METRICS,
    RUN_SUMMARY,
    SUMMARY,
    WINDOWS,
)
from endive.simulation import InFlightTimes

EXPERIMENT: Final = [key.name for key in EXPERIMENT_KEYS]
RUN: Final = [*EXPERIMENT, "seed"]

_WINDOW: Final = [name for name in WINDOWS.names if name not in EXPERIMENT]
_FILE: Final = pa.schema(
    [
        *WINDOWS,
        pa.field("path", pa.string(), nullable=False),
        pa.field("folder", pa.string(), nullable=False),
        pa.field("seeds", pa.list_(pa.int64()), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)
_TASKS_PER_CORE: Final = 16

Batches = Iterator[pa.RecordBatch]


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark type of a table."""
    return from_arrow_schema(schema)


def read_consolidated(spark: SparkSession, root: Path) -> DataFrame:
    """Return `schemas.CONSOLIDATED` of a directory."""
    rows = spark.read.schema(spark_schema(CONSOLIDATED)).parquet(str(root / CONSOLIDATED_NAME))
    return rows.select(CONSOLIDATED.names)


def read_configurations(spark: SparkSession, root: Path) -> DataFrame:
    """Return `schemas.CONFIGURATIONS` of a directory."""
    return spark.read.schema(spark_schema(CONFIGURATIONS)).parquet(str(root / CONFIGURATIONS_NAME))


def windows_frame(spark: SparkSession, experiments: Iterable[Experiment], window: Window | None = None) -> DataFrame:
    """Return `schemas.WINDOWS`: for each experiment the window given, by default its steady one."""
    return spark.createDataFrame(
        pa.Table.from_pylist([_window_record(experiment, window) for experiment in experiments], schema=WINDOWS)
    )


def _window_record(experiment: Experiment, window: Window | None) -> dict[str, Any]:
    chosen = window or steady_window(experiment.settings)
    return {
        "exp_name": experiment.name,
        "exp_hash": experiment.hash,
        "duration_ms": experiment.settings.simulation.duration_ms,
        "window_start_ms": chosen.start_ms,
        "window_end_ms": chosen.end_ms,
    }


def summarize_rows(rows: DataFrame, windows: DataFrame) -> DataFrame:
    """Return `schemas.RUN_SUMMARY` of the finished transactions in consolidated rows.

    `merge_parts` puts together what partitions saw of a run, and what `summarize_in_flight` adds.
    """
    columns = [*RUN, *SUMMARIZED_COLUMNS, *_WINDOW]
    joined = rows.join(F.broadcast(windows), EXPERIMENT).select(columns)
    return joined.mapInArrow(_summarize_batches, spark_schema(RUN_SUMMARY))


def _summarize_batches(batches: Batches) -> Batches:
    summarizers: dict[Run, RunSummarizer] = {}
    for batch in batches:
        for run, rows in _by_run(pa.Table.from_batches([batch])):
            if run not in summarizers:
                summarizers[run] = RunSummarizer(*run)
            summarizers[run].add_rows(rows)
    for summarizer in summarizers.values():
        yield from summarizer.finish({}).to_batches()


def _by_run(rows: pa.Table) -> Iterator[tuple[Run, pa.Table]]:
    """Yield stretches of rows of one run, and the run."""
    codes = [rows.column(name).combine_chunks().dictionary_encode().indices.to_numpy() for name in RUN]
    changes = np.flatnonzero(np.any([np.diff(each) != 0 for each in codes], axis=0)) + 1
    for start, end in pairwise([0, *changes.tolist(), rows.num_rows]):
        if start < end:
            stretch = rows.slice(start, end - start)
            yield _run_of(stretch.slice(0, 1).select([*RUN, *_WINDOW]).to_pylist()[0]), stretch


def _run_of(record: dict[str, Any]) -> Run:
    exp_name, exp_hash, seed, duration_ms, start_ms, end_ms = (record[name] for name in (*RUN, *_WINDOW))
    return Run(exp_name, exp_hash, seed, duration_ms, Window(start_ms, end_ms))


def summarize_in_flight(summaries: DataFrame, windows: DataFrame) -> DataFrame:
    """Return `schemas.RUN_SUMMARY` of the transactions that never finished, which the summaries of runs list.

    Every run has a row, so that one without a finished transaction is not lost.
    """
    listed = summaries.select(*RUN, "operation_type", *IN_FLIGHT)
    joined = listed.join(F.broadcast(windows), EXPERIMENT)
    return joined.mapInArrow(_summarize_in_flight_batches, spark_schema(RUN_SUMMARY))


def _summarize_in_flight_batches(batches: Batches) -> Batches:
    for batch in batches:
        for record in batch.to_pylist():
            times = {record["operation_type"]: InFlightTimes(*(array("d", record[name]) for name in IN_FLIGHT))}
            yield from RunSummarizer(*_run_of(record)).finish(times).to_batches()


def merge_parts(parts: DataFrame) -> DataFrame:
    """Return `schemas.RUN_SUMMARY` with a row for each run and operation type, of rows that each tell a part."""
    return parts.groupBy(*RUN).applyInArrow(merge_run_summaries, spark_schema(RUN_SUMMARY))


def run_metrics(summaries: DataFrame) -> DataFrame:
    """Return `schemas.RUN_METRICS` of run summaries."""
    return summaries.groupBy(*EXPERIMENT).applyInArrow(metrics.run_metrics, spark_schema(RUN_METRICS))


def summarize_experiments(runs: DataFrame) -> DataFrame:
    """Return `schemas.SUMMARY` of run metrics: means over seeds, with their intervals."""
    return runs.groupBy(*EXPERIMENT).applyInArrow(metrics.summarize_experiments, spark_schema(SUMMARY))


def commit_rates(summaries: DataFrame) -> DataFrame:
    """Return `schemas.COMMIT_RATES` of run summaries."""
    series = ("series_submitted", "series_committed", "series_aborted", "series_commit_latency_ms")
    bins = summaries.select(*RUN, "operation_type", "series_bin_ms", F.posexplode(F.arrays_zip(*series)))
    committed = F.col("col.series_committed")
    columns = {
        **{name: F.col(name) for name in (*RUN, "operation_type")},
        "start_ms": F.col("pos") * F.col("series_bin_ms"),
        "submitted": F.col("col.series_submitted"),
        "committed": committed,
        "aborted": F.col("col.series_aborted"),
        "commits_per_s": committed * 1000.0 / F.col("series_bin_ms"),
        "commit_latency_mean_ms": F.when(committed > 0, F.col("col.series_commit_latency_ms") / committed),
    }
    return bins.select(*(columns[name].alias(name) for name in COMMIT_RATES.names))


def paired_differences(runs: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return `schemas.DIFFERENCES` of run metrics, for the pairs of experiments in `schemas.PAIRS`."""
    of_pair = pairs.select(F.struct(*PAIRS.names).alias("pair"))
    sides = [
        of_pair.join(runs, [F.col(f"pair.{key}") == F.col(name) for key, name in zip(keys, EXPERIMENT, strict=True)])
        .withColumn("is_baseline", F.lit(keys != EXPERIMENT))
        for keys in (PAIRS.names[:2], EXPERIMENT)
    ]  # fmt: skip
    return sides[0].unionByName(sides[1]).groupBy("pair").applyInArrow(_differences, spark_schema(DIFFERENCES))


def _differences(rows: pa.Table) -> pa.Table:
    is_baseline = rows.column("is_baseline")
    sides = [rows.filter(mask).select(RUN_METRICS.names) for mask in (is_baseline, pc.invert(is_baseline))]
    return metrics.paired_differences(sides[0], sides[1])


def run_summaries(
    spark: SparkSession,
    root: Path,
    experiments: Sequence[Experiment],
    window: Window | None = None,
    on_problem: OnProblem = log_problem,
) -> DataFrame:
    """Return `schemas.RUN_SUMMARY` of consolidated experiments, for a window or for the steady one of each.

    A task reads the file of an experiment itself, only the columns that count: several times as fast as
    `summarize_rows`, which takes any rows. Runs whose rows or summary cannot be read are left out and named. Raise
    ConfigError where an experiment's consolidated rows are not those of its finished runs.
    """
    records = [record for each in experiments for record in _file_record(root, each, window, on_problem)]
    records.sort(key=itemgetter("size_bytes"), reverse=True)
    partitions = max(1, min(len(records), spark.sparkContext.defaultParallelism * _TASKS_PER_CORE))
    dealt = [record for place in range(partitions) for record in records[place::partitions]]
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(partitions))
    frame = spark.createDataFrame(pa.Table.from_pylist(dealt, schema=_FILE))
    return frame.mapInArrow(_summarize_files, spark_schema(RUN_SUMMARY))


def _file_record(
    root: Path, experiment: Experiment, window: Window | None, on_problem: OnProblem
) -> Iterator[dict[str, Any]]:
    path = rows_path(root, experiment.name, experiment.hash)
    making = read_making(path)
    if making is None or making.runs != finished_runs(experiment.folder, experiment.seeds):
        raise ConfigError(
            [f"{path}: is not there, or of other runs than {experiment.folder}; run: endive consolidate {root}"]
        )
    for problem in problems_of(experiment, making):
        on_problem(problem)
    seeds = []
    for seed in sorted({*experiment.seeds} - making.unreadable.keys()):
        try:
            require_whole(experiment.summary(seed))
            seeds.append(seed)
        except UnreadableError as error:
            on_problem(f"{error}; seed {seed} of {experiment.folder.name} is left out")
    yield {
        **_window_record(experiment, window),
        "path": str(path.resolve()),
        "folder": str(experiment.folder.resolve()),
        "seeds": seeds,
        "size_bytes": path.stat().st_size,
    }


def _summarize_files(batches: Batches) -> Batches:
    pa.set_cpu_count(1)
    for batch in batches:
        for record in batch.to_pylist():
            summarizers = {seed: RunSummarizer(*_run_of(record | {"seed": seed})) for seed in record["seeds"]}
            _add_file(Path(record["path"]), summarizers)
            for seed, summarizer in summarizers.items():
                path = Path(record["folder"]) / str(seed) / SUMMARY_NAME
                yield from summarizer.finish(_in_flight_times(path)).to_batches()


def _add_file(path: Path, summarizers: dict[int, RunSummarizer]) -> None:
    """Add the rows of a consolidated file, whose row groups are of one run each, to the summaries of its seeds."""
    columns = ["seed", *SUMMARIZED_COLUMNS]
    with explained(path), pq.ParquetFile(path, read_dictionary=["operation_type", "abort_reason"]) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=columns, use_threads=False)
            seed = rows.column("seed")[0].as_py()
            if seed in summarizers:
                summarizers[seed].add_rows(rows)


def _in_flight_times(path: Path) -> dict[str, InFlightTimes]:
    """Return what a run's summary lists of the transactions that never finished."""
    with explained(path):
        records = read_run_summary(path, ["operation_type", *IN_FLIGHT]).to_pylist()
    times = {
        record["operation_type"]: InFlightTimes(*(array("d", record[name]) for name in IN_FLIGHT)) for record in records
    }
    return {operation: each for operation, each in times.items() if operation != ALL}
