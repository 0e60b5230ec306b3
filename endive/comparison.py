"""Two experiments, or the experiments of two directories, compared seed by seed. Reads directories; prints nothing.

Experiments of two directories are pairs where the settings that vary within either directory have the same values, so
equal configurations are pairs, and so are the points of one sweep made on two stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa

from endive.analysis.frames import unknown_name
from endive.analysis.verdicts import HEADLINE_METRICS, WORSE, judge
from endive.config import resolved_settings
from endive.config_errors import ConfigError
from endive.pipeline.experiments import Experiment, OnProblem, find_experiments, read_summaries
from endive.pipeline.metrics import paired_differences, run_metrics
from endive.pipeline.schemas import ALL, METRICS
from endive.utils import format_duration

LABEL: Final = "experiment.label"
_OF_A_RUN: Final = {"simulation.seed", "simulation.output_path", LABEL}
_SHOWN: Final = 4

Values = dict[str, str]


@dataclass(frozen=True, eq=False)
class Pair:
    """A baseline, what is compared with it, and the values of the swept keys at which they stand."""

    baseline: Experiment
    other: Experiment
    at: tuple[tuple[str, str], ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that both have run."""
        return tuple(sorted(set(self.baseline.seeds) & set(self.other.seeds)))

    @property
    def title(self) -> str:
        """Where they stand, or who they are."""
        return ", ".join(f"{key} = {value}" for key, value in self.at) or self.other.folder.name


@dataclass(frozen=True, eq=False)
class Comparison:
    """What differs between experiments, all pairs judged together.

    `differences` are judged rows of `schemas.DIFFERENCES`, and `pair`, the place in `pairs`. `changed` are the settings
    that differ in every pair alike: key, baseline's value, other's value.
    """

    pairs: tuple[Pair, ...]
    changed: tuple[tuple[str, str, str], ...]
    differences: pd.DataFrame
    notes: tuple[str, ...] = field(default=())

    @property
    def is_worse(self) -> bool:
        """Whether any metric of any pair is judged worse than its baseline."""
        return bool((self.differences["verdict"] == WORSE).any())


def compare(
    baseline: Path, other: Path, metrics: Sequence[str] = HEADLINE_METRICS, operation_type: str = ALL
) -> Comparison:
    """Compare two experiment directories, or two directories of experiments.

    Raise ConfigError, a line each, for what cannot be compared: no experiment, none to pair, no seed in common, another
    duration, an unknown metric.
    """
    unknown = [unknown_name("metric", name, METRICS) for name in metrics if name not in METRICS]
    if unknown:
        raise ConfigError(unknown)
    sides = (_experiments(baseline), _experiments(other))
    found, notes = _pair_up(*sides)
    if not found:
        raise ConfigError([f"{baseline} and {other}: no experiments have the same {_swept_text(sides)}"])
    pairs = [pair for pair in found if pair.seeds]
    if not pairs:
        raise ConfigError([_no_common_seed(found[0])])
    notes += [f"{pair.title}: left out, no seed in common" for pair in found if not pair.seeds]
    for pair in pairs:
        _check_durations(pair)
    differences = judge(pd.concat(_differences(pairs, metrics, operation_type, notes.append), ignore_index=True))
    return Comparison(tuple(pairs), _changed(pairs), differences, (*notes, *_notes(pairs)))


def _experiments(root: Path) -> list[Experiment]:
    """Return the experiments of a directory, or the one whose directory it is."""
    if not (root / "cfg.toml").exists():
        return find_experiments(root)
    problems: list[str] = []
    folder = root.resolve()
    own = [each for each in find_experiments(folder.parent, problems.append) if each.folder.name == folder.name]
    if not own:
        told = [problem for problem in problems if folder.name in problem]
        raise ConfigError(told or [f"{root}: holds no finished run"])
    return own


def _values(experiment: Experiment) -> Values:
    """Return every setting in force that is not of one run, and the label."""
    settings = {key: value for key, value in resolved_settings(experiment.settings) if key not in _OF_A_RUN}
    return settings | {LABEL: experiment.name}


def _swept_keys(sides: Iterable[Sequence[Experiment]]) -> list[str]:
    """Return the keys whose values vary within a side, in order."""
    swept: dict[str, None] = {}
    for experiments in sides:
        values = [_values(experiment) for experiment in experiments]
        keys = dict.fromkeys(key for each in values for key in each)
        swept |= dict.fromkeys(key for key in keys if len({each.get(key) for each in values}) > 1)
    return list(swept)


def _pair_up(baseline: Sequence[Experiment], other: Sequence[Experiment]) -> tuple[list[Pair], list[str]]:
    """Return the pairs, and notes on experiments without a counterpart."""
    keys = _swept_keys((baseline, other))

    def by_place(experiments: Sequence[Experiment]) -> dict[tuple[str, ...], Experiment]:
        return {tuple(_values(each).get(key, "") for key in keys): each for each in experiments}

    before, after = by_place(baseline), by_place(other)
    pairs = [
        Pair(experiment, after[place], tuple(zip(keys, place, strict=True)))
        for place, experiment in before.items()
        if place in after
    ]
    notes = []
    for name, own, their in (("the baseline", before, after), ("the other", after, before)):
        alone = [experiment.folder.name for place, experiment in own.items() if place not in their]
        if alone:
            notes.append(f"{len(alone)} of {len(own)} experiments are in {name} only: {_shortened(alone)}")
    return pairs, notes


def _shortened(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])


def _swept_text(sides: Iterable[Sequence[Experiment]]) -> str:
    return " and ".join(_swept_keys(sides)) or "settings"


def _no_common_seed(pair: Pair) -> str:
    before, after = (", ".join(map(str, each.seeds)) for each in (pair.baseline, pair.other))
    return f"{pair.baseline.folder} and {pair.other.folder}: no seed in common ({before} and {after})"


def _check_durations(pair: Pair) -> None:
    before, after = (each.settings.simulation.duration_ms for each in (pair.baseline, pair.other))
    if before != after:
        texts = f"{format_duration(before)} and {format_duration(after)}"
        raise ConfigError([f"{pair.baseline.folder} and {pair.other.folder}: different durations, {texts}"])


def _differences(
    pairs: Sequence[Pair], metrics: Sequence[str], operation_type: str, on_problem: OnProblem
) -> Iterator[pd.DataFrame]:
    """Yield the differences of each pair, in the order of the metrics."""
    for place, pair in enumerate(pairs):
        tables = [_metrics(each, on_problem) for each in (pair.baseline, pair.other)]
        found = paired_differences(*tables).to_pandas()
        of_type = found[found["operation_type"] == operation_type]
        if of_type.empty:
            known = sorted(set(found["operation_type"]))
            raise ConfigError([f"{pair.title}: {unknown_name('operation type in both', operation_type, known)}"])
        yield of_type.set_index("metric").loc[list(dict.fromkeys(metrics))].reset_index().assign(pair=place)


def _metrics(experiment: Experiment, on_problem: OnProblem) -> pa.Table:
    problems: list[str] = []
    table = run_metrics(read_summaries(experiment, problems.append))
    if not table.num_rows:
        raise ConfigError([f"{experiment.folder}: no run has a summary that can be read: {problems[0]}"])
    for problem in problems:
        on_problem(problem)
    return table


def _changed(pairs: Sequence[Pair]) -> tuple[tuple[str, str, str], ...]:
    changes = []
    for pair in pairs:
        before, after = _values(pair.baseline), _values(pair.other)
        keys = dict.fromkeys((*before, *after))
        both = [(key, before.get(key, "not set"), after.get(key, "not set")) for key in keys]
        changes.append([change for change in both if change[1] != change[2]])
    return tuple(change for change in changes[0] if all(change in others for others in changes))


def _notes(pairs: Sequence[Pair]) -> Iterator[str]:
    few = [pair for pair in pairs if len(pair.seeds) < 2]
    if few:
        yield "one seed in common: no interval, and no verdict" + (f" in {len(few)} pairs" if len(pairs) > 1 else "")
    models = {_model(each) for pair in pairs for each in (pair.baseline, pair.other)}
    if len(models) > 1:
        yield f"results of different models are compared: {', '.join(sorted(models))}"


def _model(experiment: Experiment) -> str:
    path = experiment.folder / "version.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("model ")), "model unknown")
