"""Work on Spark in a thread of its own, so that the main one can show its progress and be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from endive.pipeline.session import reason_of

Result = TypeVar("Result")


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
