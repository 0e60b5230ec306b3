"""What a sweep will do: its runs, which of them are done, and what the rest will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from endive import __version__
from endive.config_errors import ConfigError, to_toml
from endive.experiment import check_experiment, snapshot_text
from endive.pipeline.cost import predicted_cost_s
from endive.pipeline.directory import RunState, plan_path, run_folder, run_state, write_json
from endive.pipeline.master import local_cores
from endive.pipeline.sweep_file import LINES_SHOWN, Configuration, Sweep
from endive.utils import format_duration

SPARK_START_S: Final = 8.0
"""From the command to the first run."""
TASK_S: Final = 1.0
"""Short runs share a task until it is this long, because a task costs Spark some 30 ms."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A configuration and a seed."""

    label: str
    configuration: Configuration
    seed: int
    cost_s: float

    @property
    def duration_ms(self) -> float:
        return self.configuration.settings.simulation.duration_ms

    def folder(self, root: Path) -> Path:
        return run_folder(root, self.label, self.configuration.hash, self.seed)


@dataclass(frozen=True)
class Plan:
    """A sweep, in the directory that keeps its results."""

    sweep: Sweep
    root: Path

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Every run, the longest first."""
        return tuple(sorted(self._all_runs(), key=lambda run: run.cost_s, reverse=True))

    def _all_runs(self) -> Iterator[PlannedRun]:
        for configuration in self.sweep.configurations:
            cost_s = predicted_cost_s(configuration.settings)
            for seed in self.sweep.seeds:
                yield PlannedRun(self.sweep.label, configuration, seed, cost_s)

    def states(self) -> dict[PlannedRun, RunState]:
        """Return how far each run has come."""
        return {run: run_state(run.folder(self.root)) for run in self.runs}

    def left_to_do(self) -> list[PlannedRun]:
        """Return the runs that are not done, the longest first."""
        return [run for run, state in self.states().items() if state is not RunState.DONE]

    def check_experiments(self) -> None:
        """Raise ConfigError if experiments that are there already are of another making."""
        lines: list[str] = []
        for configuration in self.sweep.configurations:
            try:
                check_experiment(configuration.settings, self.root)
            except ConfigError as error:
                lines.extend(error.lines)
        if lines:
            more = [f"{self.root}: and {len(lines) - LINES_SHOWN} more experiments"] if len(lines) > LINES_SHOWN else []
            raise ConfigError(lines[:LINES_SHOWN] + more)

    def write(self) -> None:
        """Keep the plan, for whoever asks how far the sweep is and what was swept."""
        write_json(plan_path(self.root, self.sweep.label), self._to_dict())

    def _to_dict(self) -> dict[str, Any]:
        costs = {run.configuration.hash: run.cost_s for run in self.runs}
        return {
            "label": self.sweep.label,
            "axes": {key: list(values) for key, values in self.sweep.axes.items()},
            "zip": list(self.sweep.zipped),
            "seeds": list(self.sweep.seeds),
            "configurations": [
                {
                    "hash": configuration.hash,
                    "point": configuration.point,
                    "duration_ms": configuration.settings.simulation.duration_ms,
                    "cost_s": round(costs[configuration.hash], 4),
                }
                for configuration in self.sweep.configurations
            ],
        }


def to_row(run: PlannedRun) -> dict[str, Any]:
    """Return all that a worker needs to know of a run."""
    return {
        "version": __version__,
        "label": run.label,
        "hash": run.configuration.hash,
        "seed": run.seed,
        "settings": snapshot_text(run.configuration.settings),
        "cost_s": run.cost_s,
    }


def plan_text(plan: Plan, master: str | None) -> str:
    """Return the plan as a person reads it."""
    states = plan.states()
    counts = Counter(states.values())
    core_s = sum(run.cost_s for run, state in states.items() if state is not RunState.DONE)
    sweep = plan.sweep
    rows = [
        *((key, _axis_text(values, key in sweep.zipped)) for key, values in sweep.axes.items()),
        ("", ""),
        ("configurations", f"{len(sweep.configurations):,}"),
        ("seeds", f"{len(sweep.seeds):,}: {_short_list(list(map(str, sweep.seeds)))}"),
        ("runs", f"{len(plan.runs):,}"),
        ("already done", f"{counts[RunState.DONE]:,}"),
        ("failed before", f"{counts[RunState.FAILED]:,}"),
        ("core time, about", format_duration(core_s * 1000.0)),
        ("wall time, about", _wall_text(core_s, master)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = "\n".join(f"{name.ljust(width)}  {text}".rstrip() for name, text in rows)
    return f"sweep {sweep.label}, results in {plan.root}\n\n{lines}"


def _axis_text(values: Sequence[Any], is_zipped: bool) -> str:
    text = f"{len(values)}: {_short_list([to_toml(value) for value in values])}"
    return f"{text} (zip)" if is_zipped else text


def _short_list(texts: list[str]) -> str:
    shown = texts if len(texts) <= 10 else [*texts[:8], "…", texts[-1]]
    return ", ".join(shown)


def _wall_text(core_s: float, master: str | None) -> str:
    cores = local_cores(master)
    if cores is None:
        return f"the core time over the cores of {master}"
    wall_s = SPARK_START_S + core_s / cores if core_s else 0.0
    return f"{format_duration(wall_s * 1000.0)} on {cores} core{'s' if cores > 1 else ''}"
