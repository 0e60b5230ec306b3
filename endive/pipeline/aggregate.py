"""Consolidated rows to summaries, metrics and differences, on Spark: functions from frames to frames.

Each frame has the columns of a schema of `schemas`, in its order. Quantiles are of histograms, within 0.5 %; counts and
quantiles agree exactly with the summaries that runs leave, sums of times but for rounding. Rows are summarized by the
code that summarizes a run as it goes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from endive.pipeline import metrics
from endive.pipeline.consolidated import CONFIGURATIONS_NAME, CONSOLIDATED_NAME
from endive.pipeline.experiments import Experiment
from endive.pipeline.run_summary import (
    IN_FLIGHT,
    SUMMARIZED_COLUMNS,
    Run,
    RunSummarizer,
    Window,
    merge_run_summaries,
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

Batches = Iterator[pa.RecordBatch]


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark type of a table."""
    return from_arrow_schema(schema)


def spark_path(path: Path) -> str:
    """Return how Spark is told of a path that every machine sees, whatever file system is its default."""
    return f"file://{path.resolve()}"


def read_parquet(spark: SparkSession, path: Path, schema: pa.Schema) -> DataFrame:
    """Return a table, whose columns are those of a schema."""
    literal = re.sub(r"[\\*?\[\]{}]", r"\\\g<0>", spark_path(path))
    return spark.read.schema(spark_schema(schema)).parquet(literal).select(schema.names)


def read_consolidated(spark: SparkSession, root: Path) -> DataFrame:
    """Return `schemas.CONSOLIDATED` of a directory."""
    return read_parquet(spark, root / CONSOLIDATED_NAME, CONSOLIDATED)


def read_configurations(spark: SparkSession, root: Path) -> DataFrame:
    """Return `schemas.CONFIGURATIONS` of a directory."""
    return read_parquet(spark, root / CONFIGURATIONS_NAME, CONFIGURATIONS)


def windows_frame(spark: SparkSession, experiments: Iterable[Experiment], window: Window | None = None) -> DataFrame:
    """Return `schemas.WINDOWS`: for each experiment the window given, by default its steady one."""
    records = [window_record(experiment, window) for experiment in experiments]
    return spark.createDataFrame(pa.Table.from_pylist(records, schema=WINDOWS))


def window_record(experiment: Experiment, window: Window | None) -> dict[str, Any]:
    """Return a row of `schemas.WINDOWS`."""
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
            yield run_of(stretch.slice(0, 1).select([*RUN, *_WINDOW]).to_pylist()[0]), stretch


def run_of(record: dict[str, Any]) -> Run:
    """Return the run of a record with its keys and its window."""
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
            yield from RunSummarizer(*run_of(record)).finish(in_flight_times([record])).to_batches()


def in_flight_times(records: Iterable[Mapping[str, Any]]) -> dict[str, InFlightTimes]:
    """Return what rows of a run's summary list of the transactions that never finished, by operation type."""
    return {
        record["operation_type"]: InFlightTimes(*(array("d", record[name]) for name in IN_FLIGHT))
        for record in records
        if record["operation_type"] != ALL
    }


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
