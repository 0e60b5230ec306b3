"""Runs what a plan has left to do, on Spark: a row is a task, a task is one run or several short ones.

The files in the directory say what is done; what Spark returns only tells whether workers wrote where this process
reads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from endive.engine import NotCompiledError, warm
from endive.pipeline.directory import FAILURE_NAME, RunState
from endive.pipeline.errors import SweepError
from endive.pipeline.job import Job, frame_of_tasks
from endive.pipeline.plan import TASK_S, Plan, PlannedRun, to_row
from endive.pipeline.run_task import perform_run
from endive.pipeline.session import TASK_ATTEMPTS
from endive.pipeline.sweep_progress import SweepProgress
from endive.pipeline.tasks import to_tasks

_RUN: Final = pa.struct(
    [
        pa.field("version", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("hash", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
        pa.field("cost_s", pa.float64(), nullable=False),
    ]
)
_TASK: Final = pa.schema([pa.field("runs", pa.list_(pa.field("run", _RUN, nullable=False)), nullable=False)])
_OUTCOME: Final = pa.schema([pa.field("done", pa.int64(), nullable=False)])
_OUTCOME_DDL: Final = "done bigint"

_LOOK_PERIOD_S: Final = 0.5
_LOOKING_SHARE: Final = 0.05

Worker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_sweep(spark: SparkSession, plan: Plan, runs: Sequence[PlannedRun], progress: SweepProgress) -> None:
    """Do runs of a plan, the longest first; raise SweepError if Spark gives up before each was tried.

    Runs that fail leave their reason in the directory. An interrupt ends the tasks under way.
    """
    for run in runs:
        (run.folder(plan.root) / FAILURE_NAME).unlink(missing_ok=True)
    tasks = to_tasks(runs, lambda run: run.cost_s, TASK_S, spark.sparkContext.defaultParallelism)
    job = Job(lambda: _perform(spark, tasks, plan.root))
    job.start()
    while job.is_alive():
        started_s = time.monotonic()
        progress.look()
        job.join(max(_LOOK_PERIOD_S, (time.monotonic() - started_s) / _LOOKING_SHARE))
    progress.look()
    done = job.require_done(SweepError)
    if done > progress.done:
        raise SweepError(
            f"workers report {done:,} runs done, but {progress.done:,} are in {plan.root}: is it on storage that "
            "workers share?"
        )


def warm_engine() -> None:
    """Compile the engine, or find it compiled, before workers of this machine each do."""
    with contextlib.suppress(NotCompiledError):
        warm()


def _perform(spark: SparkSession, tasks: Sequence[Sequence[PlannedRun]], root: Path) -> int:
    """Do tasks in order; return how many runs workers say are done."""
    frame = frame_of_tasks(spark, [{"runs": [to_row(run) for run in task]} for task in tasks], _TASK)
    return sum(row.done for row in frame.mapInArrow(worker(root), _OUTCOME_DDL).collect())


def worker(root: Path) -> Worker:
    """Return what Spark calls with the tasks of a partition."""
    folder = str(root.resolve())

    def perform_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        context = TaskContext.get()
        is_last = context is not None and context.attemptNumber() >= TASK_ATTEMPTS - 1
        for batch in batches:
            rows = [row for task in batch.to_pylist() for row in task["runs"]]
            states = [perform_run(row, Path(folder), is_last_attempt=is_last) for row in rows]
            yield pa.RecordBatch.from_pydict({"done": [states.count(RunState.DONE)]}, schema=_OUTCOME)

    return perform_tasks
