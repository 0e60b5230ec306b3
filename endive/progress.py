"""Shows how far work has come: one line that moves on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

from endive.simulation import Statistics
from endive.utils import format_duration

_TERMINAL_PERIOD_S: Final = 0.1
_PLAIN_PERIOD_S: Final = 10.0


class MovingLine:
    """A line on a stream that is written over; where nothing can be written over, a new line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._period_s = _TERMINAL_PERIOD_S if self._is_terminal else _PLAIN_PERIOD_S
        self._shown_s = time.monotonic()
        self._width = 0

    def is_due(self) -> bool:
        """Whether it is time for the next text."""
        return time.monotonic() - self._shown_s >= self._period_s

    def show(self, text: str) -> None:
        self._shown_s = time.monotonic()
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


class ProgressLine:
    """Reports simulated time, commits and events per second of a run to a stream."""

    def __init__(self, stream: TextIO, duration_ms: float) -> None:
        self._line = MovingLine(stream)
        self._duration_ms = duration_ms
        self._started_s = time.monotonic()

    def update(self, now_ms: float, statistics: Statistics) -> None:
        if not self._line.is_due():
            return
        rate = statistics.events / (time.monotonic() - self._started_s)
        share = min(1.0, now_ms / self._duration_ms)
        self._line.show(
            f"{share:4.0%}  {format_duration(now_ms)} of {format_duration(self._duration_ms)} simulated, "
            f"{statistics.committed:,} commits, {rate:,.0f} events/s"
        )

    def clear(self) -> None:
        """Remove the moving line."""
        self._line.clear()
