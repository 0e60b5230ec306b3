"""Shows how far a run has come: one line that moves on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

from endive.simulation import Statistics
from endive.utils import format_duration

_TERMINAL_PERIOD_S: Final = 0.1
_PLAIN_PERIOD_S: Final = 10.0


class ProgressLine:
    """Reports simulated time, commits and events per second to a stream."""

    def __init__(self, stream: TextIO, duration_ms: float) -> None:
        self._stream = stream
        self._duration_ms = duration_ms
        self._is_terminal = stream.isatty()
        self._period_s = _TERMINAL_PERIOD_S if self._is_terminal else _PLAIN_PERIOD_S
        self._started_s = self._shown_s = time.monotonic()
        self._width = 0

    def update(self, now_ms: float, statistics: Statistics) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < self._period_s:
            return
        self._shown_s = now_s
        rate = statistics.events / (now_s - self._started_s)
        share = min(1.0, now_ms / self._duration_ms)
        text = (
            f"{share:4.0%}  {format_duration(now_ms)} of {format_duration(self._duration_ms)} simulated, "
            f"{statistics.committed:,} commits, {rate:,.0f} events/s"
        )
        if self._is_terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the moving line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
