"""One sweep of a report: its experiments, what varies between them, and which of it a figure shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from endive.config_errors import ConfigError
from endive.pipeline.schemas import ALL
from endive.report.axes import Axis, find_axes, find_axis, level_order
from endive.report.labels import Value, number

_MAX_SERIES: Final = 8
WELL: Final = 0.95
"""The share of success from which on a system is said to carry its load."""
_DURATION: Final = "simulation.duration_ms"


@dataclass(frozen=True, eq=False)
class Sweep:
    """The experiments of one name. `summary` and `runs` have a column for each axis, named by its key."""

    name: str
    settings: pd.DataFrame
    axes: tuple[Axis, ...]
    summary: pd.DataFrame
    runs: pd.DataFrame
    group_by: str | None = None

    @property
    def x(self) -> Axis | None:
        """The axis along which curves run: the load, else the numeric one with most levels, but for `group_by`."""
        axes = [axis for axis in self.axes if not axis.is_of(self.group_by)]
        if not axes or axes[0].is_load:
            return axes[0] if axes else None
        return next((axis for axis in axes if axis.is_number), axes[0])

    @property
    def series(self) -> Axis | None:
        """The axis whose levels are the curves of a figure."""
        rest = self._rest(self.x)
        if self.group_by is not None:
            return find_axis(self.axes, self.group_by, "--group-by")
        return min(rest, key=lambda axis: (len(axis.levels) > _MAX_SERIES, axis.is_number), default=None)

    @property
    def panels(self) -> Axis | None:
        """The axis whose levels get a panel each."""
        return next(iter(self._rest(self.x, self.series)), None)

    def _rest(self, *taken: Axis | None) -> list[Axis]:
        return [axis for axis in self.axes if axis not in taken]

    def fixed(self, *shown: Axis | None) -> dict[str, Value]:
        """Return the level at which every axis is held that is not shown, by key: the reference, if there is one."""
        levels: dict[str, Value] = {}
        rows = self.whole
        for axis in self._rest(*shown):
            there = set(rows[axis.key])
            wanted = (reference_level(axis), *axis.levels)
            levels[axis.key] = next(level for level in wanted if level in there)
            rows = rows[rows[axis.key] == levels[axis.key]]
        return levels

    def at(self, levels: dict[str, Value], frame: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the rows whose axes have these levels, of the summary if of nothing else."""
        rows = self.summary if frame is None else frame
        for key, level in levels.items():
            rows = rows[rows[key] == level]
        return rows

    @property
    def whole(self) -> pd.DataFrame:
        """The summary of every experiment, all operation types together."""
        return self.summary[self.summary["operation_type"] == ALL]

    def settings_of(self, exp_hash: str) -> dict[str, Value]:
        """Return the settings of an experiment by dotted key; None for what it has not."""
        values: list[Value] = list(self.settings.loc[exp_hash].to_numpy())
        return dict(zip(self.settings.columns, values, strict=True))

    @property
    def operations(self) -> tuple[str, ...]:
        """The operation types that occur."""
        return tuple(sorted(set(self.summary["operation_type"]) - {ALL}))

    @property
    def seeds(self) -> int:
        """The fewest seeds that an experiment has."""
        return int(self.whole["seeds"].min())

    @property
    def most_seeds(self) -> int:
        """The most seeds that an experiment has."""
        return int(self.whole["seeds"].max())

    @property
    def seeds_phrase(self) -> str:
        """How many seeds experiments have: "3 seeds", "1 to 3 seeds"."""
        if self.seeds == self.most_seeds:
            return f"{self.seeds} seed{'s' if self.seeds != 1 else ''}"
        return f"{self.seeds} to {self.most_seeds} seeds"

    def interval_note(self, intervals: str) -> str:
        """Return a sentence of what the intervals of a figure are, or that there are none."""
        if self.most_seeds < 2:
            return "One seed: no intervals."
        return intervals if self.seeds > 1 else f"{intervals} One seed has none."

    @property
    def window_ms(self) -> tuple[float, float]:
        """The steady window of the experiment that has the shortest."""
        rows = self.whole
        row = rows.loc[(rows["window_end_ms"] - rows["window_start_ms"]).idxmin()]
        return float(row["window_start_ms"]), float(row["window_end_ms"])

    def phrase(self, levels: dict[str, Value]) -> str:
        """Return levels in words: "1 table, S3 Express"."""
        return ", ".join(find_axis(self.axes, key, "").phrase(level) for key, level in levels.items())


def reference_level(axis: Axis) -> Value:
    """Return the level at which an axis is held where a figure cannot show it: the lowest, of a share the highest."""
    return axis.levels[-1] if axis.label.startswith("share of ") else axis.levels[0]


def pick_levels(axis: Axis, most: int) -> list[Value]:
    """Return at most so many levels of an axis, evenly spread, its ends among them."""
    return [reference_level(axis)] if most == 1 else spread(axis.levels, most)


def spread(levels: Sequence[Value], most: int) -> list[Value]:
    """Return at most so many (two or more) of these levels, evenly spread, the first and the last among them."""
    if len(levels) <= most:
        return list(levels)
    return [levels[round(place * (len(levels) - 1) / (most - 1))] for place in range(most)]


def make_sweep(
    name: str, settings: pd.DataFrame, summary: pd.DataFrame, runs: pd.DataFrame, group_by: str | None = None
) -> Sweep:
    """Return the sweep of the experiments in `settings`; ConfigError if they cannot be compared."""
    _check_comparable(name, settings)
    axes = find_axes(settings)
    frames = [_with_axes(frame, axes, settings.index) for frame in (summary, runs)]
    return Sweep(name, settings, axes, frames[0], frames[1], group_by)


def _check_comparable(name: str, settings: pd.DataFrame) -> None:
    durations = sorted(set(settings.get(_DURATION, pd.Series(dtype=float))))
    if len(durations) > 1:
        there = ", ".join(number(duration, 9) for duration in durations)
        raise ConfigError(
            [f"{name}: mixes experiments of different {_DURATION} ({there}); choose one with --where {_DURATION}=…"]
        )


def _with_axes(frame: pd.DataFrame, axes: Sequence[Axis], hashes: pd.Index[str]) -> pd.DataFrame:
    kept = frame[frame["exp_hash"].isin(hashes)]
    columns = {axis.key: kept["exp_hash"].map(dict(axis.values)) for axis in axes}
    joined = pd.concat([kept, pd.DataFrame(columns, index=kept.index)], axis=1)
    return joined.sort_values([axis.key for axis in axes], kind="stable", key=_sortable).reset_index(drop=True)


def _sortable(column: pd.Series) -> pd.Series:
    return column.map(level_order)


def telling_levels(sweep: Sweep, most: int) -> list[Value]:
    """Return a few levels of the x axis: its ends, and those between which success falls below 95 %, if it does."""
    axis = sweep.x
    assert axis is not None
    levels = list(axis.levels)
    if len(levels) <= most:
        return levels
    rows = sweep.at(sweep.fixed(axis), sweep.whole)
    success = dict(zip(rows[axis.key], rows["success_rate"], strict=True))
    low = [place for place, level in enumerate(levels) if success.get(level, 1.0) < WELL]
    if not low or low[0] == 0:
        return pick_levels(axis, most)
    places = sorted({0, low[0] - 1, low[0], len(levels) - 1})
    return [levels[place] for place in places][:most]
