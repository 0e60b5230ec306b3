"""Summarizes the consolidated rows of a directory on Spark, for any window: a table at each step, rows to means."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
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
from endive.pipeline.consolidated_runs import File, RunKeys, consolidated_files, explain_missing, run_summaries
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
    files = consolidated_files(root, experiments, on_problem, window)
    with _unfinished_folder(output) as unfinished:
        with open_session() as spark:
            job = Job(lambda: _write_tables(spark, files, pairs, unfinished))
            job.start()
            while job.is_alive():
                job.join(_LOOK_PERIOD_S)
                if line is not None and line.is_due():
                    line.show(_progress_text(spark, unfinished))
            found = job.require_done(SummarizationError)
        explain_missing(files, found, on_problem)
        _give_names(unfinished, output)
    return Summarization(len(experiments), len(found))


@contextlib.contextmanager
def _unfinished_folder(output: Path) -> Iterator[Path]:
    """Give an empty folder in the output folder that goes away with the block; what a killed call left goes too."""
    unfinished = output / ".unfinished"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
    except OSError as error:
        raise UnwritableOutputError(f"{output}: cannot be written: {error.strerror}") from error
    try:
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _give_names(unfinished: Path, output: Path) -> None:
    """Put the tables in place of those of an earlier call: all of these go before the first of those comes."""
    earlier = unfinished / "earlier"
    earlier.mkdir()
    for name in TABLES:
        path = output / f"{name}.parquet"
        if path.exists():
            path.replace(earlier / path.name)
    for path in unfinished.glob("*.parquet"):
        path.replace(output / path.name)


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


def _write_tables(spark: SparkSession, files: Sequence[File], pairs: pa.Table | None, folder: Path) -> set[RunKeys]:
    """Write each table from the one before it; return which runs are in them."""

    def write(name: str, frame: DataFrame) -> DataFrame:
        path = folder / f"{name}.parquet"
        frame.write.option("compression", "zstd").parquet(aggregate.spark_path(path))
        return aggregate.read_parquet(spark, path, TABLES[name])

    summaries = write("run_summaries", run_summaries(spark, files))
    runs = write("run_metrics", aggregate.run_metrics(summaries))
    write("summary", aggregate.summarize_experiments(runs))
    write("commit_rates", aggregate.commit_rates(summaries))
    if pairs is not None:
        write("differences", aggregate.paired_differences(runs, spark.createDataFrame(pairs)))
    return {(row.exp_name, row.exp_hash, row.seed) for row in summaries.select(aggregate.RUN).distinct().collect()}


def _progress_text(spark: SparkSession, folder: Path) -> str:
    """Return how many tables are written, and how far the next one is."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    tables = len(list(folder.glob("*.parquet/_SUCCESS")))
    return f"{tables} tables written" + (f", {done:,} of {total:,} tasks of the next done" if total else "")
