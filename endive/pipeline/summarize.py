"""Summarizes the consolidated rows of a directory on Spark, for any window: a table at each step, rows to means."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from endive.analysis.frames import unknown_name
from endive.config_errors import ConfigError
from endive.files import UnwritableOutputError
from endive.pipeline import aggregate
from endive.pipeline.consolidate import OpenSession
from endive.pipeline.errors import SummarizationError
from endive.pipeline.experiments import Experiment, OnProblem, find_experiments
from endive.pipeline.job import Job
from endive.pipeline.run_summary import Window
from endive.pipeline.schemas import COMMIT_RATES, DIFFERENCES, PAIRS, RUN_METRICS, RUN_SUMMARY, SUMMARY
from endive.progress import MovingLine

TABLES: Final = {
    "run_summaries": RUN_SUMMARY,
    "run_metrics": RUN_METRICS,
    "summary": SUMMARY,
    "commit_rates": COMMIT_RATES,
    "differences": DIFFERENCES,
}
MINUTE_MS: Final = 60_000.0

_LOOK_PERIOD_S: Final = 0.5


@dataclass(frozen=True)
class Summarization:
    """How much was summarized."""

    experiments: int
    runs: int


def summarize(
    root: Path,
    output: Path,
    open_session: OpenSession,
    *,
    window: Window | None = None,
    baseline: str | None = None,
    on_problem: OnProblem,
    line: MovingLine | None = None,
) -> Summarization:
    """Write the `TABLES` of a consolidated directory to `output`, for a window or for the steady one of each run.

    `differences` only with a `baseline`, the folder's name of the experiment that every other is compared with. Raise
    ConfigError if there is nothing to summarize or a question does not fit it, SummarizationError if Spark gives up.
    """
    experiments = find_experiments(root, on_problem)
    _check_window(experiments, window)
    pairs = _pairs(experiments, baseline)
    if output.exists() and not output.is_dir():
        raise UnwritableOutputError(f"{output}: is not a directory")
    output.mkdir(parents=True, exist_ok=True)
    with open_session() as spark:
        rows = aggregate.run_summaries(spark, root, experiments, window, on_problem)
        job = Job(lambda: _write_tables(spark, rows, pairs, output))
        job.start()
        while job.is_alive():
            job.join(_LOOK_PERIOD_S)
            if line is not None and line.is_due():
                line.show(_tasks_text(spark))
        runs = job.require_done(SummarizationError)
    return Summarization(len(experiments), runs)


def _check_window(experiments: Sequence[Experiment], window: Window | None) -> None:
    for experiment in experiments:
        duration_ms = experiment.settings.simulation.duration_ms
        if window is not None and window.end_ms > duration_ms:
            end, duration = window.end_ms / MINUTE_MS, duration_ms / MINUTE_MS
            name = experiment.folder.name
            raise ConfigError([f"--window: ends at minute {end:g}; allowed is up to {duration:g}, the end of {name}"])


def _pairs(experiments: Sequence[Experiment], baseline: str | None) -> pa.Table | None:
    """Return `schemas.PAIRS` of every experiment with the baseline, if one is asked for."""
    if baseline is None:
        return None
    by_name = {experiment.folder.name: experiment for experiment in experiments}
    if baseline not in by_name:
        raise ConfigError([f"--baseline {unknown_name('experiment', baseline, list(by_name))}"])
    base = by_name[baseline]
    records = [
        dict(zip(PAIRS.names, (base.name, base.hash, other.name, other.hash), strict=True))
        for other in experiments
        if other is not base
    ]
    return pa.Table.from_pylist(records, schema=PAIRS)


def _write_tables(spark: SparkSession, rows: DataFrame, pairs: pa.Table | None, output: Path) -> int:
    """Write each table from the one before it; return how many runs there are."""

    def write(name: str, frame: DataFrame) -> DataFrame:
        path = output / f"{name}.parquet"
        _write_whole(frame, path)
        return spark.read.schema(aggregate.spark_schema(TABLES[name])).parquet(str(path.resolve()))

    summaries = write("run_summaries", rows)
    runs = write("run_metrics", aggregate.run_metrics(summaries))
    write("summary", aggregate.summarize_experiments(runs))
    write("commit_rates", aggregate.commit_rates(summaries))
    shutil.rmtree(output / "differences.parquet", ignore_errors=True)
    if pairs is not None:
        write("differences", aggregate.paired_differences(runs, spark.createDataFrame(pairs)))
    return summaries.select(aggregate.RUN).distinct().count()


def _write_whole(frame: DataFrame, path: Path) -> None:
    """Write a table in as many files as Spark has parts, in a folder that has its name when it is whole."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(unfinished.resolve()))
    shutil.rmtree(path, ignore_errors=True)
    unfinished.replace(path)


def _tasks_text(spark: SparkSession) -> str:
    """Return how far the stages under way are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"{done:,} of {total:,} tasks of this step" if total else "between steps"
