"""How far the sweeps of a directory are, by its files alone: it asks no process, and can be another machine's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from endive.experiment import RESULTS_NAME
from endive.pipeline.directory import FAILURE_NAME, PLANS_FOLDER, RunState, run_folder, run_state
from endive.utils import format_duration, format_table

RECENT_S: Final = 60.0
"""What ended in the last minute tells how fast a sweep is."""

_HOUR_MS: Final = 3_600_000.0


class UnreadablePlanError(Exception):
    """A plan that is there and cannot be understood."""


@dataclass
class SweepStatus:
    """How far a sweep is. Times of the clock are seconds since the epoch; `*_left` is None if nothing ended of late."""

    label: str
    runs: int = 0
    states: Counter[RunState] = field(default_factory=Counter)
    last_activity_s: float = 0.0
    hours_per_s: float = 0.0
    left_s: float | None = None


def find_plans(root: Path) -> list[Path]:
    """Return the plans of the sweeps that a directory holds."""
    return sorted((root / PLANS_FOLDER).glob("*.json"))


def sweep_status(plan: Path, now_s: float) -> SweepStatus:
    """Return how far the sweep of a plan is; raise UnreadablePlanError if the plan cannot be read."""
    try:
        content = json.loads(plan.read_text(encoding="utf-8"))
        started_s = plan.stat().st_mtime
        return _status(plan.parent.parent, content, started_s, now_s)
    except OSError as error:
        raise UnreadablePlanError(f"{plan}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadablePlanError(
            f"{plan}: is not the plan of a sweep; the sweep's next call writes it anew"
        ) from error


def _status(root: Path, content: Any, started_s: float, now_s: float) -> SweepStatus:
    status = SweepStatus(content["label"], last_activity_s=started_s)
    window_s = min(RECENT_S, max(now_s - started_s, 1.0))
    recent_hours = recent_cost_s = left_cost_s = 0.0
    for configuration, folder in _run_folders(root, content):
        state = run_state(folder)
        status.runs += 1
        status.states[state] += 1
        ended_s = _ended_s(folder, state)
        status.last_activity_s = max(status.last_activity_s, ended_s)
        if state is not RunState.DONE:
            left_cost_s += configuration["cost_s"]
        elif ended_s >= now_s - window_s:
            recent_hours += configuration["duration_ms"] / _HOUR_MS
            recent_cost_s += configuration["cost_s"]
    status.hours_per_s = recent_hours / window_s
    if recent_cost_s:
        status.left_s = left_cost_s * window_s / recent_cost_s
    return status


def _run_folders(root: Path, content: Any) -> Iterator[tuple[Any, Path]]:
    for configuration in content["configurations"]:
        for seed in content["seeds"]:
            yield configuration, run_folder(root, content["label"], configuration["hash"], seed)


def _ended_s(folder: Path, state: RunState) -> float:
    name = {RunState.DONE: RESULTS_NAME, RunState.FAILED: FAILURE_NAME}.get(state)
    try:
        return 0.0 if name is None else (folder / name).stat().st_mtime
    except OSError:
        return 0.0


def status_table(statuses: Sequence[SweepStatus], now_s: float) -> str:
    """Return the status of sweeps as a table."""
    rows = [["sweep", "runs", *RunState, "share", "hours/s", "left", "last activity"]]
    for status in statuses:
        done = status.states[RunState.DONE]
        rows.append(
            [
                status.label,
                f"{status.runs:,}",
                *(f"{status.states[state]:,}" for state in RunState),
                f"{done / status.runs:.0%}" if status.runs else "–",
                f"{status.hours_per_s:.3g}" if status.hours_per_s else "–",
                "–" if status.left_s is None else format_duration(status.left_s * 1000.0),
                f"{format_duration(max(now_s - status.last_activity_s, 0.0) * 1000.0)} ago",
            ]
        )
    return format_table(rows)
