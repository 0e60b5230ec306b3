"""Summaries of the runs in consolidated files: a task reads the files of some experiments, only the columns that count.

Several times as fast as `aggregate.summarize_rows`, which takes any rows, and the same figures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from endive.config_errors import ConfigError
from endive.pipeline.aggregate import RUN, Batches, in_flight_times, run_of, spark_schema, window_record
from endive.pipeline.consolidated import finished_runs, problems_of, read_making, rows_path
from endive.pipeline.errors import SummarizationError
from endive.pipeline.experiments import Experiment, OnProblem, UnreadableError, explained, read_own_summary
from endive.pipeline.job import frame_of_tasks
from endive.pipeline.run_summary import IN_FLIGHT, SUMMARIZED_COLUMNS, SUMMARY_NAME, RunSummarizer, Window
from endive.pipeline.schemas import RUN_SUMMARY, WINDOWS
from endive.pipeline.tasks import to_tasks
from endive.simulation import InFlightTimes

RunKeys = tuple[str, str, int]
File = dict[str, Any]
"""A consolidated file: its experiment and window (`schemas.WINDOWS`), where it and its runs are, and their seeds."""

_FILE: Final = pa.struct(
    [
        *WINDOWS,
        pa.field("path", pa.string(), nullable=False),
        pa.field("folder", pa.string(), nullable=False),
        pa.field("seeds", pa.list_(pa.int64()), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)
_TASK: Final = pa.schema([pa.field("files", pa.list_(_FILE), nullable=False)])
_TASK_BYTES: Final = 16 << 20


def consolidated_files(
    root: Path, experiments: Iterable[Experiment], on_problem: OnProblem, window: Window | None = None
) -> list[File]:
    """Return the consolidated files of experiments, for a window or for the steady one of each.

    Runs whose rows could not be consolidated are named. Raise ConfigError where an experiment's consolidated rows are
    not those of its finished runs.
    """
    return [_file(root, each, on_problem, window) for each in experiments]


def _file(root: Path, experiment: Experiment, on_problem: OnProblem, window: Window | None) -> File:
    path = rows_path(root, experiment.name, experiment.hash)
    making = read_making(path)
    if making is None or making.runs != finished_runs(experiment.folder, experiment.seeds):
        raise ConfigError(
            [f"{path}: is not there, or of other runs than {experiment.folder}; run: endive consolidate {root}"]
        )
    for problem in problems_of(experiment, making):
        on_problem(problem)
    return {
        **window_record(experiment, window),
        "path": str(path.resolve()),
        "folder": str(experiment.folder.resolve()),
        "seeds": [seed for seed in experiment.seeds if seed not in making.unreadable],
        "size_bytes": path.stat().st_size,
    }


def run_summaries(spark: SparkSession, files: Sequence[File]) -> DataFrame:
    """Return `schemas.RUN_SUMMARY` of the runs of consolidated files; it must be evaluated before another is made.

    A run whose rows or summary cannot be read has no row: `explain_missing` tells why.
    """
    tasks = to_tasks(files, lambda file: file["size_bytes"], _TASK_BYTES, spark.sparkContext.defaultParallelism)
    frame = frame_of_tasks(spark, [{"files": task} for task in tasks], _TASK)
    return frame.mapInArrow(_summarize_files, spark_schema(RUN_SUMMARY))


def explain_missing(files: Iterable[File], found: Collection[RunKeys], on_problem: OnProblem) -> None:
    """Name the runs of files that are not among those found, and why they cannot be read.

    Raise SummarizationError if they can be read here.
    """
    for file in files:
        seeds = [seed for seed in file["seeds"] if (file["exp_name"], file["exp_hash"], seed) not in found]
        for _ in _summaries(file | {"seeds": seeds}, on_problem):
            raise SummarizationError(f"workers cannot read {file['path']}: is it on storage that workers share?")


def _summarize_files(batches: Batches) -> Batches:
    pa.set_cpu_count(1)
    for batch in batches:
        for file in (file for task in batch.to_pylist() for file in task["files"]):
            for table in _summaries(file, lambda _: None):
                yield from table.to_batches()


def _summaries(file: File, on_problem: OnProblem) -> Iterator[pa.Table]:
    """Yield the summary of each run of a file; what cannot be read is left out, and told."""
    summarizers = {seed: RunSummarizer(*run_of(file | {"seed": seed})) for seed in file["seeds"]}
    name = Path(file["folder"]).name
    try:
        _add_rows(Path(file["path"]), summarizers)
    except UnreadableError as error:
        on_problem(f"{error}; {name} is left out")
        return
    for seed, summarizer in summarizers.items():
        try:
            times = _in_flight_times(file, seed)
        except UnreadableError as error:
            on_problem(f"{error}; seed {seed} of {name} is left out")
        else:
            yield summarizer.finish(times)


def _add_rows(path: Path, summarizers: dict[int, RunSummarizer]) -> None:
    """Add the rows of a consolidated file, whose row groups are of one run each, to the summaries of its seeds."""
    columns = ["seed", *SUMMARIZED_COLUMNS]
    if not summarizers:
        return
    with explained(path), pq.ParquetFile(path, read_dictionary=["operation_type", "abort_reason"]) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=columns, use_threads=False)
            summarizer = summarizers.get(rows.column("seed")[0].as_py()) if rows.num_rows else None
            if summarizer is not None:
                summarizer.add_rows(rows)


def _in_flight_times(file: File, seed: int) -> dict[str, InFlightTimes]:
    path = Path(file["folder"]) / str(seed) / SUMMARY_NAME
    keys = (file["exp_name"], file["exp_hash"], seed)
    return in_flight_times(read_own_summary(path, keys, [*RUN, "operation_type", *IN_FLIGHT]).to_pylist())
