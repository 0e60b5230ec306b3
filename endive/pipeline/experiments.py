"""The experiments of a directory, and what the summaries of their runs tell; without Spark.

What cannot be read is told to `on_problem`, a line each, and left out. Memory is bounded by one experiment at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa

from endive.config import parse_settings, resolved_settings
from endive.config_errors import ConfigError
from endive.experiment import RESULTS_NAME
from endive.pipeline.metrics import run_metrics, summarize_experiments
from endive.pipeline.run_summary import (
    IN_FLIGHT,
    SERIES,
    SUMMARY_NAME,
    SummaryRow,
    from_table,
    read_run_summary,
)
from endive.pipeline.schemas import CONFIGURATIONS, RUN_KEYS, RUN_METRICS, RUN_SUMMARY
from endive.settings import Settings

OnProblem = Callable[[str], None]

_FOLDER: Final = re.compile(r"(?P<name>.+)-(?P<hash>[0-9a-f]{12})")
_NOT_FOR_METRICS: Final = {*SERIES, *IN_FLIGHT, "series_bin_ms", "aborted_latency", "in_flight_latency"}
_FOR_METRICS: Final = tuple(name for name in RUN_SUMMARY.names if name not in _NOT_FOR_METRICS)
_PARQUET_MAGIC: Final = b"PAR1"

log_problem: Final[OnProblem] = logging.getLogger("endive").warning


@dataclass(frozen=True)
class Experiment:
    """An experiment of a directory, and the seeds whose runs are done, rising."""

    name: str
    hash: str
    folder: Path
    settings: Settings
    seeds: tuple[int, ...]

    def results(self, seed: int) -> Path:
        """Return where the rows of a seed are."""
        return results_in(self.folder, seed)

    def summary(self, seed: int) -> Path:
        """Return where the summary of a seed is."""
        return self.folder / str(seed) / SUMMARY_NAME


def results_in(folder: Path, seed: int) -> Path:
    """Return where an experiment's folder has the rows of a seed."""
    return folder / str(seed) / RESULTS_NAME


def find_experiments(root: Path, on_problem: OnProblem = log_problem) -> list[Experiment]:
    """Return the experiments of a directory that have a finished run, by name and hash.

    Raise ConfigError if there is no such directory, or no finished run in it.
    """
    if not root.is_dir():
        raise ConfigError([f"{root}: is not a directory"])
    with os.scandir(root) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir() and _FOLDER.fullmatch(entry.name))
    found = [experiment for name in folders if (experiment := _experiment(root / name, on_problem)) is not None]
    if not found:
        raise ConfigError([f"{root}: holds no finished run; run some with: endive sweep FILE -o {root}"])
    return sorted(found, key=lambda experiment: (experiment.name, experiment.hash))


def _experiment(folder: Path, on_problem: OnProblem) -> Experiment | None:
    """Return the experiment of a folder, if it has a finished run and says what made it."""
    named = _FOLDER.fullmatch(folder.name)
    assert named is not None
    with os.scandir(folder) as entries:
        seeds = sorted(int(entry.name) for entry in entries if entry.name.isdecimal() and entry.is_dir())
    done = tuple(seed for seed in seeds if results_in(folder, seed).exists())
    if not done:
        return None
    path = folder / "cfg.toml"
    try:
        settings = parse_settings(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        on_problem(f"{path}: cannot be read: {error.strerror}; {folder.name} is left out")
    except ConfigError as error:
        on_problem(f"{path}: {error.lines[0]}; {folder.name} is left out")
    except ValueError as error:
        on_problem(f"{path}: is not TOML: {error}; {folder.name} is left out")
    else:
        return Experiment(named["name"], named["hash"], folder, settings, done)
    return None


def configurations(experiments: Iterable[Experiment]) -> pa.Table:
    """Return `schemas.CONFIGURATIONS`: every setting in force of each experiment."""
    return pa.Table.from_pylist(
        [
            {"exp_name": experiment.name, "exp_hash": experiment.hash, "key": key, "value": value}
            for experiment in experiments
            for key, value in resolved_settings(experiment.settings)
        ],
        schema=CONFIGURATIONS,
    )


def read_summaries(
    experiment: Experiment, on_problem: OnProblem = log_problem, columns: Sequence[str] = RUN_SUMMARY.names
) -> pa.Table:
    """Return columns of the summaries of an experiment's finished runs, its keys among them."""
    tables = [pa.schema(map(RUN_SUMMARY.field, columns)).empty_table()]
    for seed in experiment.seeds:
        try:
            require_whole(experiment.results(seed))
            keys = (experiment.name, experiment.hash, seed)
            tables.append(read_own_summary(experiment.summary(seed), keys, columns))
        except UnreadableError as error:
            on_problem(f"{error}; seed {seed} of {experiment.folder.name} is left out")
    return pa.concat_tables(tables)


def read_own_summary(path: Path, keys: tuple[str, str, int], columns: Sequence[str]) -> pa.Table:
    """Return columns, the keys among them, of a run's summary; raise UnreadableError if it is not that run's."""
    with explained(path):
        table = read_run_summary(path, columns)
    found = set(zip(*(table.column(key.name).to_pylist() for key in RUN_KEYS), strict=True))
    if found != {keys}:
        raise UnreadableError(path, "is not the summary of the run that it lies with")
    return table


class UnreadableError(Exception):
    """A file that should hold rows or a summary does not; in one line that names it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what goes wrong with reading a file into an UnreadableError."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or (str(error).splitlines() or ["broken"])[0]
        raise UnreadableError(path, f"cannot be read: {reason}") from error


def require_whole(path: Path) -> None:
    """Raise UnreadableError unless a Parquet file ends as one does; its content is not looked at."""
    with explained(path), path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(-min(len(_PARQUET_MAGIC), file.tell()), os.SEEK_END)
        if file.read() != _PARQUET_MAGIC:
            raise UnreadableError(path, "is not a whole Parquet file")


def load_metrics(root: Path, on_problem: OnProblem = log_problem) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the frames `schemas.RUN_METRICS`, `SUMMARY` and `CONFIGURATIONS` of a directory, from its runs' summaries.

    Raise ConfigError if there is no finished run.
    """
    experiments = find_experiments(root, on_problem)
    metrics = [RUN_METRICS.empty_table()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for table, problems in pool.map(_metrics_of, experiments):
            metrics.append(table)
            for problem in problems:
                on_problem(problem)
    runs = pa.concat_tables(metrics)
    tables = (runs, summarize_experiments(runs), configurations(experiments))
    frames = [table.to_pandas() for table in tables]
    return frames[0], frames[1], frames[2]


def _metrics_of(experiment: Experiment) -> tuple[pa.Table, list[str]]:
    problems: list[str] = []
    return run_metrics(read_summaries(experiment, problems.append, _FOR_METRICS)), problems


def load_run_summaries(root: Path, hashes: Collection[str], on_problem: OnProblem = log_problem) -> list[SummaryRow]:
    """Return what each run of some experiments did, with histograms and series, by run and operation type."""
    return [
        row
        for experiment in find_experiments(root, on_problem)
        if experiment.hash in hashes
        for row in from_table(read_summaries(experiment, on_problem))
    ]
