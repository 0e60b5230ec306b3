"""What a directory of experiments holds, read from the names of its files: which runs are done, failed, under way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from endive.experiment import RESULTS_NAME
from endive.files import is_being_written, whole_file

PLANS_FOLDER: Final = "sweeps"
FAILURE_NAME: Final = "failure.json"
TIMING_NAME: Final = "timing.json"


class RunState(StrEnum):
    """How far a run has come."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    WAITING = "waiting"


def run_folder(root: Path, label: str, digest: str, seed: int) -> Path:
    """Return where a run keeps its files."""
    return root / f"{label}-{digest}" / str(seed)


def run_state(folder: Path) -> RunState:
    """Return the state of the run of a folder, which need not be there."""
    results = folder / RESULTS_NAME
    if results.is_file():
        return RunState.DONE
    if not folder.is_dir():
        return RunState.WAITING
    if is_being_written(results):
        return RunState.RUNNING
    return RunState.FAILED if (folder / FAILURE_NAME).exists() else RunState.WAITING


def count_states(folders: Iterable[Path]) -> Counter[RunState]:
    """Return how many runs are in each state."""
    return Counter(map(run_state, folders))


def plan_path(root: Path, label: str) -> Path:
    """Return where the plan of a sweep is kept."""
    return root / PLANS_FOLDER / f"{label}.json"


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with whole_file(path) as stream:
        stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
