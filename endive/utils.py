"""Small things that belong to no noun of the model."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def get_git_sha() -> str:
    """Return the commit of the checkout that this package runs from, or "unknown" outside one."""
    package = Path(__file__).resolve().parent
    command = ["git", "-C", str(package), "rev-parse", "HEAD"]
    if not (package.parent / ".git").exists():
        return "unknown"
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  (no input)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def format_duration(duration_ms: float) -> str:
    """Return a duration as a person reads it: 850 µs, 61.2 ms, 4.35 s, 12.5 min, 3.00 h."""
    for unit, unit_ms in (("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0), ("ms", 1.0)):
        if abs(duration_ms) >= unit_ms:
            return f"{_three_digits(duration_ms / unit_ms)} {unit}"
    return "0 ms" if duration_ms == 0.0 else f"{_three_digits(duration_ms * 1000.0)} µs"


def _three_digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def format_table(rows: list[list[str]]) -> str:
    """Return rows as aligned text: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
