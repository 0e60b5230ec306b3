"""Work on Spark: tasks of a partition each, and a thread that leaves the main one free to show progress and stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from endive.pipeline.session import reason_of

Result = TypeVar("Result")

_AS_LOCAL_ROWS: Final = {"spark.sql.execution.arrow.localRelationThreshold": str(1 << 40)}
"""Above its default of 48 MB Spark cuts a frame by 10,000 rows, whatever the parallelism."""


def frame_of_tasks(spark: SparkSession, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    """Return a frame in which each row is a partition, in order; it must be evaluated before the next one is made."""
    for name, value in {**_AS_LOCAL_ROWS, "spark.sql.leafNodeDefaultParallelism": str(max(1, len(rows)))}.items():
        spark.conf.set(name, value)
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema))


class Job(threading.Thread, Generic[Result]):
    """Does some work; what it gave or what went wrong is known when it has ended."""

    result: Result

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001  (told by the thread that waits)
            self._error = error

    def require_done(self, failure: type[Exception]) -> Result:
        """Return what the work gave, after its end; raise `failure` with Spark's reason if it did not come to one."""
        if self._error is not None:
            raise failure(f"Spark gave up: {reason_of(self._error)}") from self._error
        return self.result
