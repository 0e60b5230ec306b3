"""What a report needs of a directory of experiments, read from the summaries of their runs. No Spark.

Each summary is read once. What cannot be read is told to `on_problem`, a line each, and left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa

from endive.analysis.frames import AnalysisError
from endive.analysis.model_bounds import RateBounds, rate_bounds
from endive.config import build_simulation_config
from endive.config_errors import ConfigError
from endive.pipeline.experiments import (
    Experiment,
    OnProblem,
    configurations,
    find_experiments,
    log_problem,
    read_summaries,
)
from endive.pipeline.metrics import run_metrics, summarize_experiments
from endive.pipeline.run_summary import SERIES_COUNTS, SummaryRow, from_table
from endive.report.labels import METRIC_OF
from endive.report.material import Material, Provenance, time_series
from endive.results import read_metadata

_FOR_SERIES: Final = [
    "exp_name",
    "exp_hash",
    "seed",
    "operation_type",
    "duration_ms",
    "window_start_ms",
    "window_end_ms",
    *SERIES_COUNTS,
]

_Loaded = tuple[pa.Table, Sequence[SummaryRow], list[str]]


def load_materials(root: Path, on_problem: OnProblem = log_problem) -> list[Material]:
    """Return the experiments of a directory, those of one name together.

    Raise ConfigError if no run is finished, or if the summary of none can be read.
    """
    by_name = groupby(find_experiments(root, on_problem), key=attrgetter("name"))
    found = [material for name, own in by_name if (material := _material(name, list(own), on_problem)) is not None]
    if not found:
        raise ConfigError([f"{root}: no finished run has a summary that can be read"])
    return found


def _material(name: str, experiments: Sequence[Experiment], on_problem: OnProblem) -> Material | None:
    """Return what experiments of one name did; None if no summary of them can be read."""
    loaded: dict[str, _Loaded] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for experiment, found in zip(experiments, pool.map(_load, experiments), strict=True):
            for problem in found[2]:
                on_problem(problem)
            if found[0].num_rows:
                loaded[experiment.hash] = found
    readable = {experiment.hash: experiment for experiment in experiments if experiment.hash in loaded}
    if not readable:
        return None

    def load_rows(hashes: Sequence[str]) -> Sequence[SummaryRow]:
        return [row for each in hashes for row in from_table(read_summaries(readable[each], lambda _: None))]

    runs = pa.concat_tables([metrics for metrics, _, _ in loaded.values()])
    return Material(
        name=name,
        configurations=configurations(readable.values()).to_pandas(),
        runs=runs.to_pandas(),
        summary=_within_reason(summarize_experiments(runs).to_pandas()),
        over_time={each: time_series(rows) for each, (_, rows, _) in loaded.items()},
        run_rows=load_rows,
        bounds=_bounds(readable),
        provenance={each: _provenance(experiment) for each, experiment in readable.items()},
    )


def _load(experiment: Experiment) -> _Loaded:
    problems: list[str] = []
    table = read_summaries(experiment, problems.append)
    return run_metrics(table), from_table(table.select(_FOR_SERIES)), problems


def _within_reason(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a summary whose intervals end where the metrics do: at 0, and shares at 1."""
    ends = {f"{name}_low": summary[f"{name}_low"].clip(lower=0.0) for name in METRIC_OF}
    ends |= {f"{name}_high": summary[f"{name}_high"].clip(upper=1.0) for name in METRIC_OF if METRIC_OF[name].is_share}
    return summary.assign(**ends)


def _bounds(experiments: Mapping[str, Experiment]) -> Mapping[str, RateBounds]:
    """Return the bounds of the experiments whose components are known."""
    found = {}
    for exp_hash, experiment in experiments.items():
        with contextlib.suppress(AnalysisError):
            found[exp_hash] = rate_bounds(build_simulation_config(experiment.settings))
    return found


def _provenance(experiment: Experiment) -> Provenance:
    """Return what version.txt and the results of the first seed say; what cannot be read is left empty."""
    lines: list[str] = []
    engine = ""
    with contextlib.suppress(OSError, ValueError):
        lines = (experiment.folder / "version.txt").read_text(encoding="utf-8").splitlines()
    with contextlib.suppress(OSError, ValueError, KeyError):
        engine = str(read_metadata(experiment.results(experiment.seeds[0]))["engine"])
    told = dict(line.split(" ", 1) for line in lines if " " in line)
    return Provenance(
        version=told.get("endive", ""),
        model_version=told.get("model", ""),
        git=lines[0] if lines and " " not in lines[0] else "",
        engine=engine,
    )
