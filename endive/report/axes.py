"""What a sweep varies: the settings that differ between its experiments, as axes that a figure can use."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from endive.config import dotted_lines
from endive.config_errors import ConfigError, to_toml
from endive.report.labels import FRIENDLY_KEYS, LOAD_LABEL, Value, key_label, number, value_label

_LABEL: Final = "experiment.label"
_NOT_AXES: Final = {"simulation.seed", "simulation.output_path", _LABEL}
_LOAD: Final = re.compile(r"(.*\.)?inter_arrival\.(scale|value|mean)")
_UNIT: Final = re.compile(r" \((\w+)\)$")
_SHOWN_CHOICES: Final = 12
_NOT_SET: Final = "not set"


@dataclass(frozen=True, eq=False)
class Axis:
    """A setting that varies. `values` has one for each experiment, by hash; `levels` are the distinct ones, rising.

    Of an axis of load the values are submissions per second, not the setting's milliseconds. A word stands for a
    setting that an experiment has not.
    """

    key: str
    label: str
    values: Mapping[str, Value]
    levels: tuple[Value, ...]
    is_load: bool = False
    moves_with: tuple[str, ...] = ()

    def is_of(self, key: str | None) -> bool:
        """Whether a setting varies along this axis."""
        return key in (self.key, *self.moves_with)

    @property
    def is_number(self) -> bool:
        """Whether every level is a number."""
        return all(isinstance(level, float) for level in self.levels)

    @property
    def is_log(self) -> bool:
        """Whether the levels are spread such that equal factors should look equal."""
        if not self.is_number or len(self.levels) < 3:
            return False
        numbers = [level for level in self.levels if isinstance(level, float)]
        return numbers[0] > 0 and numbers[-1] / numbers[0] >= 10.0

    def text(self, value: Value) -> str:
        """Return a value as a person reads it."""
        return number(value) if self.is_load and isinstance(value, float) else value_label(self.key, value)

    def phrase(self, value: Value) -> str:
        """Return a value with what it is of: "5 tables", "catalog latency 10 ms", "backoff on", "S3 Express"."""
        text = self.text(value)
        if self.is_load:
            return f"{text}/s{self.label.removeprefix(LOAD_LABEL)}"
        if isinstance(value, str) and value != _NOT_SET and self.key.endswith(".provider"):
            return text
        if isinstance(value, float) and (match := _UNIT.search(self.label)):
            return f"{self.label[: match.start()]} {text} {match[1]}"
        if isinstance(value, str):
            return f"{_UNIT.sub('', self.label)} {text}"
        if self.label in ("tables", "clients", "table groups"):
            return f"{text} {self.label if value != 1.0 else self.label[:-1]}"
        return f"{self.label} {text}"


def settings_frame(configurations: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each experiment of a sweep (index: exp_hash) and a column for each dotted key.

    Streams are told by their names (streams.<name>.…). A weight that an experiment does not give is 0; any other
    setting that it has not is None.
    """
    distinct = {text: _plain(text) for text in configurations["value"].unique()}
    rows: dict[str, dict[str, Value]] = {}
    names = ["exp_name", "exp_hash", "key", "value"]
    for exp_name, exp_hash, key, text in configurations[names].itertuples(index=False):
        row = rows.setdefault(exp_hash, {_LABEL: exp_name})
        if key == "streams":
            row.update(_stream_settings(distinct[text]))
        else:
            row[key] = _value(distinct[text], text)
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    filled = [[row.get(key, 0.0 if ".operation_types." in key else None) for key in columns] for row in rows.values()]
    return pd.DataFrame(filled, index=pd.Index(list(rows), name="exp_hash"), columns=list(columns), dtype=object)


def _plain(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _value(plain: Any, text: str) -> Value:
    if isinstance(plain, bool):
        return "on" if plain else "off"
    if isinstance(plain, int | float):
        return float(plain)
    return plain if isinstance(plain, str) else text


def _stream_settings(streams: Any) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for place, stream in enumerate(streams):
        name = stream.get("name", str(place))
        for key, text in dotted_lines(stream, f"streams.{name}."):
            found[key] = _value(_plain(text), text)
    return found


def find_axes(settings: pd.DataFrame) -> tuple[Axis, ...]:
    """Return what varies between experiments, the load first, then those with more levels.

    Settings that decide each other are one axis, named by the one that says most to a person; a setting that another
    decides alone is no axis of its own.
    """
    varying = [key for key in settings.columns if key not in _NOT_AXES and settings[key].nunique(dropna=False) > 1]
    codes = {key: tuple(pd.factorize(settings[key], use_na_sentinel=False)[0].tolist()) for key in varying}
    groups: dict[tuple[int, ...], list[str]] = {}
    for key in varying:
        groups.setdefault(codes[key], []).append(key)
    free = [partition for partition in groups if not any(_decides(other, partition) for other in groups)]
    axes = [_axis(settings, sorted(groups[partition], key=_friendliness)) for partition in free]
    return tuple(sorted(axes, key=lambda axis: (not axis.is_load, -len(axis.levels), axis.key)))


def _decides(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether experiments alike in the first setting are alike in the second, and not the other way round."""
    pairs = len(set(zip(first, second, strict=True)))
    return first != second and pairs == len(set(first)) > len(set(second))


def _friendliness(key: str) -> tuple[bool, int, int, str]:
    rank = FRIENDLY_KEYS.index(key) if key in FRIENDLY_KEYS else len(FRIENDLY_KEYS)
    return not (_LOAD.fullmatch(key) or key.endswith(".fast_append")), rank, len(key), key


def _axis(settings: pd.DataFrame, keys: Sequence[str]) -> Axis:
    key = keys[0]
    column = settings[key]
    is_load = _LOAD.fullmatch(key) is not None and all(isinstance(value, float) and value > 0 for value in column)
    values: dict[str, Value] = {
        str(exp_hash): float(f"{1000.0 / value:.6g}") if is_load else _NOT_SET if value is None else value
        for exp_hash, value in column.items()
    }
    stream = f" by {key.split('.')[1]}" if is_load and key.startswith("streams.") else ""
    return Axis(
        key=key,
        label=f"{LOAD_LABEL}{stream}" if is_load else key_label(key),
        values=values,
        levels=tuple(sorted(set(values.values()), key=level_order)),
        is_load=is_load,
        moves_with=tuple(keys[1:]),
    )


def level_order(value: Value) -> tuple[int, float, str]:
    """Return what levels sort by: nothing, then numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, value, "") if isinstance(value, float) else (2, 0.0, value)


def select(frames: Mapping[str, pd.DataFrame], where: Sequence[tuple[str, str]]) -> dict[str, pd.DataFrame]:
    """Return, of the settings of several sweeps, the experiments that have each of the values.

    Sweeps without one are left out. ConfigError names the key and the value that no experiment has, and what there is.
    """
    kept = dict(frames)
    for key, wanted in where:
        there = [frame[key].tolist() for frame in kept.values() if key in frame.columns]
        if not there:
            raise ConfigError([f"--where {key}={wanted}: no experiment has a setting {key}"])
        value = _value(_plain(wanted), wanted)
        found = {
            name: frame[[entry == value for entry in frame[key]]]
            for name, frame in kept.items()
            if key in frame.columns and value in frame[key].tolist()
        }
        if not found:
            levels = sorted({entry for entries in there for entry in entries}, key=level_order)
            shown = ", ".join("none" if entry is None else to_toml(entry) for entry in levels[:_SHOWN_CHOICES])
            more = f" and {len(levels) - _SHOWN_CHOICES} more" if len(levels) > _SHOWN_CHOICES else ""
            raise ConfigError([f"--where {key}={wanted}: matches no experiment; there is {shown}{more}"])
        kept = found
    return kept


def find_axis(axes: Sequence[Axis], key: str, option: str) -> Axis:
    """Return the axis that a key names; ConfigError says which there are."""
    for axis in axes:
        if axis.is_of(key):
            return axis
    there = ", ".join(axis.key for axis in axes) or "nothing varies"
    raise ConfigError([f"{option} {key}: is not swept here; swept: {there}"])
