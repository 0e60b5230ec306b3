"""Processes that tests start, end with violence, and see gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def endive_process(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start the program, as a shell starts it in the foreground."""
    return subprocess.Popen(
        [sys.executable, "-m", "endive.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's children ignore it
    )


def wait_until(is_true: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"waited {limit_s:g} s for {what}"
        time.sleep(0.02)


def descendants(process_id: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, unseen = [], [process_id]
    while unseen:
        own = children.get(unseen.pop(), [])
        found.extend(own)
        unseen.extend(own)
    return found


def are_gone(process_ids: Sequence[int]) -> bool:
    return not any(_is_alive(process_id) for process_id in process_ids)


def _is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill(process_ids: Sequence[int]) -> None:
    for process_id in process_ids:
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue
