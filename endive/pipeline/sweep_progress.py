"""How far a sweep is, by the files of its runs, and when it will end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from endive.pipeline.directory import RunState, run_state
from endive.pipeline.plan import PlannedRun
from endive.progress import MovingLine
from endive.utils import format_duration

_HOUR_MS = 3_600_000.0


class SweepProgress:
    """Watches runs until each is done or has failed. Without a line it only counts."""

    def __init__(self, runs: Sequence[PlannedRun], root: Path, total: int, line: MovingLine | None) -> None:
        """Take the `runs` to do, of `total` in the sweep; the others are done."""
        self._root = root
        self._waiting = list(runs)
        self._earlier = total - len(runs)
        self._total = total
        self._line = line
        self._cost_s = sum(run.cost_s for run in runs)
        self._cost_ended_s = self._simulated_ms = 0.0
        self._started_s = time.monotonic()
        self.done = 0
        self.failed: list[PlannedRun] = []

    @property
    def waiting(self) -> int:
        """How many runs have neither been done nor failed."""
        return len(self._waiting)

    def look(self) -> None:
        """Count what has ended since the last look, and show it when that is due."""
        waiting = []
        for run in self._waiting:
            state = run_state(run.folder(self._root))
            if state is RunState.DONE:
                self.done += 1
                self._simulated_ms += run.duration_ms
            elif state is RunState.FAILED:
                self.failed.append(run)
            else:
                waiting.append(run)
                continue
            self._cost_ended_s += run.cost_s
        self._waiting = waiting
        if self._line is not None and self._line.is_due():
            self._line.show(self._text())

    def _text(self) -> str:
        elapsed_s = time.monotonic() - self._started_s
        left_s = None
        if self._cost_ended_s > 0.0:
            left_s = elapsed_s * (self._cost_s / self._cost_ended_s - 1.0)
        hours_per_s = self._simulated_ms / _HOUR_MS / elapsed_s
        return progress_text(self._earlier + self.done, self._total, len(self.failed), hours_per_s, left_s)


def progress_text(done: int, total: int, failed: int, hours_per_s: float, left_s: float | None) -> str:
    """Return how far a sweep is, on one line."""
    failures = f", {failed:,} failed" if failed else ""
    left = "" if left_s is None else f", {format_duration(left_s * 1000.0)} left"
    return f"{done / total:4.0%}  {done:,} of {total:,} runs{failures}, {hours_per_s:.3g} simulated hours/s{left}"
