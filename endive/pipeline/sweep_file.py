"""A sweep file: an experiment's TOML, and in [sweep] the axes along which it is repeated.

    [sweep]
    seeds = 5
    grid = { "transaction.inter_arrival.scale" = [20, 50, 100], "catalog.num_tables" = [1, 10] }
    zip = { "storage.provider" = ["s3", "s3x"], "catalog.latency_ms" = [10, 1] }

Every combination of the axes of `grid` is made; the axes of `zip` move together, as one more. Every configuration is
validated here, before anything runs.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Final

from endive.config import compute_experiment_hash, parse_settings, read_toml
from endive.config_errors import ConfigError, Problem, to_toml, toml_key
from endive.random_streams import SEED_MAX
from endive.settings import Settings

SWEEP_KEYS: Final = ("seeds", "grid", "zip")
SEEDS_MOST: Final = 1_000_000
QUICK_SHARE: Final = 0.1
QUICK_SEEDS: Final = 2
QUICK_SUFFIX: Final = "-quick"
LINES_SHOWN: Final = 20

_NOT_SWEPT: Final = {
    "simulation.seed": "is not swept; give sweep.seeds a count or a list",
    "simulation.output_path": "decides no result, and is not swept",
    "experiment.label": "decides no result, and is not swept",
}

KeyPath = tuple[str, ...]
Point = dict[str, Any]
"""A value for each axis, by its dotted key."""


@dataclass(frozen=True, eq=False)
class Configuration:
    """One point of a sweep: the value on each axis, and the settings that they make."""

    point: Point
    settings: Settings

    @cached_property
    def hash(self) -> str:
        return compute_experiment_hash(self.settings)


@dataclass(frozen=True)
class Sweep:
    """What a sweep file asks for. Every configuration is run with every seed."""

    label: str
    axes: Mapping[str, tuple[Any, ...]]
    zipped: tuple[str, ...]
    """The axes that move together."""
    seeds: tuple[int, ...]
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class _Axis:
    path: KeyPath
    key: str
    values: Any
    """A list, once validated."""
    place: str


def shipped_sweeps() -> dict[str, Path]:
    """Return the sweep files that come with Endive, by name."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "sweeps", package.parent / "sweeps"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def find_sweep(given: Path) -> Path:
    """Return the file that `given` names: itself, or the sweep of that name that comes with Endive."""
    if given.exists() or len(given.parts) != 1 or given.suffix:
        return given
    shipped = shipped_sweeps()
    if given.name not in shipped:
        raise ConfigError([f"{given}: is neither a file nor a sweep of Endive's: {', '.join(shipped)}"])
    return shipped[given.name]


def load_sweep(path: Path, *, seeds: int | None = None, quick: bool = False) -> Sweep:
    """Return the sweep of a file; raise ConfigError, with a line for each thing that is wrong.

    `seeds`: how many, instead of what the file says. `quick`: a tenth of each duration and at most two seeds, under a
    label of its own.
    """
    content = read_toml(path)
    try:
        return parse_sweep(content, path.stem, seeds=seeds, quick=quick)
    except ConfigError as error:
        lines = [f"{path}: {line}" for line in error.lines]
        more = [f"{path}: and {len(lines) - LINES_SHOWN} more"] if len(lines) > LINES_SHOWN else []
        raise ConfigError(lines[:LINES_SHOWN] + more) from error


def parse_sweep(content: Mapping[str, Any], name: str, *, seeds: int | None = None, quick: bool = False) -> Sweep:
    """Return the sweep of a file's content; `name` is its label if it has none."""
    base = dict(content)
    table = base.pop("sweep", None)
    if not isinstance(table, dict):
        raise ConfigError([str(Problem("sweep", table, "must be a table [sweep] with seeds, grid or zip"))])
    axes, problems = _read_axes(table)
    chosen, seed_problems = _read_seeds(table.get("seeds", 1), base, seeds)
    problems += seed_problems
    if problems:
        raise ConfigError(list(map(str, problems)))
    _set_label(base, name, quick)
    configurations = _configurations(base, axes, quick)
    return Sweep(
        label=str(configurations[0].settings.experiment.label),
        axes={axis.key: tuple(axis.values) for axis in axes},
        zipped=tuple(axis.key for axis in axes if axis.place == "zip"),
        seeds=chosen[:QUICK_SEEDS] if quick else chosen,
        configurations=configurations,
    )


def _set_label(base: dict[str, Any], name: str, quick: bool) -> None:
    experiment = base.get("experiment", {})
    if not isinstance(experiment, dict):
        return
    label = experiment.get("label", name)
    base["experiment"] = experiment | {"label": f"{label}{QUICK_SUFFIX}" if quick else label}


def _read_axes(table: Mapping[str, Any]) -> tuple[list[_Axis], list[Problem]]:
    """Return the axes of [sweep], those of `grid` first, and what is wrong with them."""
    axes: list[_Axis] = []
    problems = [
        Problem(f"sweep.{toml_key(key)}", table[key], f"unknown key; known here: {', '.join(SWEEP_KEYS)}")
        for key in table.keys() - set(SWEEP_KEYS)
    ]
    for place in ("grid", "zip"):
        given = table.get(place, {})
        if isinstance(given, dict):
            axes.extend(_flat_axes(given, place))
        else:
            problems.append(Problem(f"sweep.{place}", given, "must be a table of dotted keys, each with its values"))
    for axis in axes:
        problems.extend(_axis_problems(axis, axes))
    lengths = {axis.key: len(axis.values) for axis in axes if axis.place == "zip" and isinstance(axis.values, list)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        problems.append(Problem("sweep.zip", None, f"axes that move together need equal lengths: {told}"))
    return axes, problems


def _flat_axes(table: Mapping[str, Any], place: str, prefix: KeyPath = ()) -> Iterator[_Axis]:
    """Yield an axis for each dotted key, whether it is quoted or written as nested tables."""
    for key, value in table.items():
        path = prefix + _key_path(key)
        if isinstance(value, dict) and value:
            yield from _flat_axes(value, place, path)
        else:
            yield _Axis(path, ".".join(map(toml_key, path)), value, place)


def _key_path(key: str) -> KeyPath:
    """Return the parts of a dotted key as TOML reads it; a key that it cannot read is one part."""
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return (key,)
    parts: list[str] = []
    while isinstance(found, dict):
        (part, found), *others = found.items()
        if others:
            return (key,)
        parts.append(part)
    return tuple(parts)


def _axis_problems(axis: _Axis, axes: list[_Axis]) -> Iterator[Problem]:
    key = f"sweep.{axis.place}.{axis.key}"
    if not isinstance(axis.values, list):
        yield Problem(key, axis.values, "must be an array of values")
    elif not axis.values:
        yield Problem(key, axis.values, "must have 1 or more values")
    if axis.key in _NOT_SWEPT:
        yield Problem(key, axis.values, _NOT_SWEPT[axis.key])
    for other in axes[: axes.index(axis)]:
        shared = min(len(axis.path), len(other.path))
        if axis.path[:shared] == other.path[:shared]:
            yield Problem(key, None, f"sets the same as sweep.{other.place}.{other.key}; one axis may")


def _read_seeds(given: Any, base: Mapping[str, Any], count: int | None) -> tuple[tuple[int, ...], list[Problem]]:
    """Return the seeds of the sweep, and what is wrong with them. A count starts at simulation.seed, by default 1."""
    if isinstance(given, list):
        problems = [
            Problem(f"sweep.seeds[{place}]", seed, f"must be a whole number from 0 to {SEED_MAX}")
            for place, seed in enumerate(given)
            if not _is_whole(seed, 0, SEED_MAX)
        ]
        if not problems and len(set(given)) < len(given):
            repeated = next(seed for seed in given if given.count(seed) > 1)
            problems.append(Problem("sweep.seeds", given, f"has {repeated} twice; each seed may be there once"))
        if not given or (count is not None and count > len(given)):
            problems.append(Problem("sweep.seeds", given, f"must have {count or 1} or more seeds"))
        return tuple(given[:count]), problems
    wanted = given if count is None else count
    for asked in (given, wanted):
        if not _is_whole(asked, 1, SEEDS_MOST):
            return (), [Problem("sweep.seeds", asked, f"must be a count from 1 to {SEEDS_MOST} or an array of seeds")]
    simulation = base.get("simulation")
    first = simulation.get("seed", 1) if isinstance(simulation, dict) else 1
    if not _is_whole(first, 0, SEED_MAX - wanted + 1):
        allowed = f"must be a whole number from 0 to {SEED_MAX} less the {wanted} seeds that start here"
        return (), [Problem("simulation.seed", first, allowed)]
    return tuple(range(first, first + wanted)), []


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _configurations(base: dict[str, Any], axes: list[_Axis], quick: bool) -> tuple[Configuration, ...]:
    """Return a validated configuration for each point; raise ConfigError for all that is wrong, each thing once."""
    made: dict[str, Configuration] = {}
    lines: dict[str, None] = {}
    for values in _points(axes):
        point = {axis.key: value for axis, value in zip(axes, values, strict=True)}
        try:
            configuration = Configuration(point, _settings_at(base, axes, values, quick))
        except ConfigError as error:
            lines.update(dict.fromkeys(_named_by_axis(line, axes, base) for line in error.lines))
            continue
        same = made.setdefault(configuration.hash, configuration)
        if same is not configuration:
            lines[f"sweep: the same configuration twice: {_point_text(same.point)}; and {_point_text(point)}"] = None
    if lines:
        raise ConfigError(list(lines))
    return tuple(made.values())


def _point_text(point: Point) -> str:
    return ", ".join(f"{key} = {to_toml(value)}" for key, value in point.items())


def _points(axes: list[_Axis]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of every axis, in their order, at each point."""
    grid = [axis.values for axis in axes if axis.place == "grid"]
    zipped = [axis.values for axis in axes if axis.place == "zip"]
    together = list(zip(*zipped, strict=True)) if zipped else [()]
    for *values, moved in product(*grid, together):
        yield (*values, *moved)


def _settings_at(base: dict[str, Any], axes: list[_Axis], values: tuple[Any, ...], quick: bool) -> Settings:
    data = copy.deepcopy(base)
    for axis, value in zip(axes, values, strict=True):
        _set_at(data, axis, value)
    settings = parse_settings(data)
    if not quick:
        return settings
    simulation = settings.simulation
    shorter = simulation.model_copy(update={"duration_ms": simulation.duration_ms * QUICK_SHARE})
    return settings.model_copy(update={"simulation": shorter})


def _set_at(data: dict[str, Any], axis: _Axis, value: Any) -> None:
    """Set the key of an axis. Tables on the way are made; a stream is found by its name."""
    if axis.path[0] == "streams" and "streams" not in data:
        raise ConfigError([str(Problem(axis.key, None, "names a stream, and the file has no [[streams]]"))])
    table: Any = data
    for depth, part in enumerate(axis.path[:-1]):
        table = _named_stream(table, part, axis) if isinstance(table, list) else table.setdefault(part, {})
        if not isinstance(table, dict | list):
            key = ".".join(map(toml_key, axis.path[: depth + 1]))
            raise ConfigError([str(Problem(axis.key, None, f"there is no such key, because {key} is not a table"))])
    if isinstance(table, list):
        raise ConfigError([str(Problem(axis.key, None, "names a stream, not a key of it"))])
    table[axis.path[-1]] = copy.deepcopy(value)


def _named_stream(streams: list[Any], name: str, axis: _Axis) -> Any:
    names = _stream_names(streams)
    if name not in names:
        allowed = f"no stream is called {name}; allowed is one of {', '.join(map(to_toml, names))}"
        raise ConfigError([str(Problem(axis.key, None, allowed))])
    return streams[names.index(name)]


def _stream_names(streams: list[Any]) -> list[Any]:
    return [stream.get("name") if isinstance(stream, dict) else None for stream in streams]


def _named_by_axis(line: str, axes: list[_Axis], base: Mapping[str, Any]) -> str:
    """Say where a key that is wrong was given, if an axis gave it."""
    for axis in axes:
        for key in (axis.key, _stream_key(axis, base)):
            if line.startswith((f"{key} ", f"{key}:", f"{key}.")):
                return f"sweep.{axis.place}.{axis.key}{line.removeprefix(key)}"
    return line


def _stream_key(axis: _Axis, base: Mapping[str, Any]) -> str:
    """Return the key of an axis with the place of its stream instead of the name, as it is validated."""
    streams = base.get("streams")
    if axis.path[0] != "streams" or not isinstance(streams, list) or axis.path[1] not in _stream_names(streams):
        return axis.key
    place = _stream_names(streams).index(axis.path[1])
    return ".".join([f"streams[{place}]", *map(toml_key, axis.path[2:])])
