"""Consolidates a directory on Spark: a task writes the files of one experiment, or of several small ones.

What is on disk says what is done: a file tells in its footer which runs it was made of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from endive.files import whole_file
from endive.pipeline.consolidated import (
    CONFIGURATIONS_NAME,
    Making,
    finished_runs,
    problems_of,
    read_making,
    rows_path,
    write_rows,
)
from endive.pipeline.errors import ConsolidationError
from endive.pipeline.experiments import Experiment, OnProblem, configurations, find_experiments
from endive.pipeline.job import Job, frame_of_tasks
from endive.pipeline.tasks import to_tasks
from endive.progress import MovingLine
from endive.utils import format_duration

OpenSession = Callable[[], AbstractContextManager[SparkSession]]

_EXPERIMENT: Final = pa.struct(
    [
        pa.field("folder", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("seeds", pa.list_(pa.int64()), nullable=False),
    ]
)
_TASK: Final = pa.schema([pa.field("experiments", pa.list_(_EXPERIMENT), nullable=False)])
_OUTCOME: Final = pa.schema([pa.field("written", pa.int64(), nullable=False)])
_OUTCOME_DDL: Final = "written bigint"

TASK_BYTES: Final = 16 << 20
"""Small experiments share a task until it has this much to read: half a second, beside which its start is little."""
_LOOK_PERIOD_S: Final = 0.5


@dataclass(frozen=True)
class Consolidation:
    """What was done: experiments in the directory, those written now, and the runs that could not be read."""

    experiments: int
    written: int
    problems: int


@dataclass(frozen=True)
class _Stale:
    """An experiment whose consolidated file is missing, or of other runs."""

    experiment: Experiment
    target: Path
    size_bytes: int
    before: int | None

    def is_written(self) -> bool:
        """Whether there is a file that was not there before."""
        return _changed_ns(self.target) not in (None, self.before)


def consolidate(
    root: Path, open_session: OpenSession, on_problem: OnProblem, line: MovingLine | None = None
) -> Consolidation:
    """Bring the consolidated rows and configurations of a directory up to date; Spark starts only if rows must be.

    Runs that cannot be read are left out, and named by each call until they can be. Raise ConfigError if there is no
    finished run, ConsolidationError if an experiment could not be written.
    """
    problems = 0

    def count_problem(problem: str) -> None:
        nonlocal problems
        problems += 1
        on_problem(problem)

    experiments = find_experiments(root, count_problem)
    stale = list(_stale(root, experiments))
    if stale:
        with open_session() as spark:
            _run_job(spark, stale, line)
    with whole_file(root / CONFIGURATIONS_NAME) as stream:
        pq.write_table(configurations(experiments), stream, compression="zstd")
    for experiment in experiments:
        for problem in problems_of(experiment, _making(root, experiment)):
            count_problem(problem)
    return Consolidation(len(experiments), len(stale), problems)


def _stale(root: Path, experiments: Sequence[Experiment]) -> Iterator[_Stale]:
    for experiment in experiments:
        target = rows_path(root, experiment.name, experiment.hash)
        runs = finished_runs(experiment.folder, experiment.seeds)
        made_of = read_making(target)
        if made_of is None or (made_of.runs, made_of.layout) != (runs, Making(runs).layout):
            yield _Stale(experiment, target, sum(size for _, size, _ in runs), _changed_ns(target))


def _changed_ns(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _making(root: Path, experiment: Experiment) -> Making:
    path = rows_path(root, experiment.name, experiment.hash)
    making = read_making(path)
    if making is None:
        raise ConsolidationError(f"{path}: was not written here: is {root} on storage that workers share?")
    return making


def _run_job(spark: SparkSession, stale: Sequence[_Stale], line: MovingLine | None) -> None:
    """Write each stale experiment, showing how many are; raise ConsolidationError if Spark gives up."""
    job = Job(lambda: _write(spark, stale))
    job.start()
    started_s = time.monotonic()
    total_bytes = sum(each.size_bytes for each in stale)
    while job.is_alive():
        job.join(_LOOK_PERIOD_S)
        if line is not None and line.is_due():
            written = [each for each in stale if each.is_written()]
            share = sum(each.size_bytes for each in written) / max(total_bytes, 1)
            left_s = (time.monotonic() - started_s) * (1.0 / share - 1.0) if share else None
            left = "" if left_s is None else f", {format_duration(left_s * 1000.0)} left"
            line.show(f"{share:4.0%}  {len(written):,} of {len(stale):,} experiments consolidated{left}")
    job.require_done(ConsolidationError)


def _write(spark: SparkSession, stale: Sequence[_Stale]) -> None:
    tasks = to_tasks(stale, lambda each: each.size_bytes, TASK_BYTES, spark.sparkContext.defaultParallelism)
    frame = frame_of_tasks(spark, [{"experiments": [_to_row(each) for each in task]} for task in tasks], _TASK)
    frame.mapInArrow(_write_experiments, _OUTCOME_DDL).collect()


def _to_row(each: _Stale) -> dict[str, Any]:
    return {
        "folder": str(each.experiment.folder.resolve()),
        "target": str(each.target.resolve()),
        "seeds": list(each.experiment.seeds),
    }


def _write_experiments(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the experiments of tasks; Spark calls this on workers."""
    pa.set_cpu_count(1)
    for batch in batches:
        rows = [row for task in batch.to_pylist() for row in task["experiments"]]
        for row in rows:
            write_rows(Path(row["target"]), Path(row["folder"]), row["seeds"])
        yield pa.RecordBatch.from_pydict({"written": [len(rows)]}, schema=_OUTCOME)
