"""Directories for reports: experiments whose rows are literal, so that every number of a report follows by hand.

Transactions come evenly over the 40 minutes of a run, 18 of every 24 in its steady window of 1,800 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from endive.config import parse_settings
from endive.report.figure import Figure
from endive.report.loading import load_materials
from endive.report.report import Section, make_sections
from endive.settings import Settings
from tests.experiment_folders import DURATION_MS, STEADY_MS, write_run
from tests.result_rows import aborted, committed, rows

LOAD = "transaction.inter_arrival.scale"
STORE = "storage.provider"
WINDOW_S = (STEADY_MS[1] - STEADY_MS[0]) / 1000.0
ONE_ATTEMPT = {"manifest_list_reads": 1, "manifest_list_writes": 1, "manifest_file_writes": 1}
T_OF_TWO = 12.706204736
"""The 97.5 % quantile of Student's t with one degree of freedom: tan(0.475 π)."""

Rows = list[dict[str, Any]]


def settings(scale_ms: float = 100_000.0, label: str = "swept", **changes: dict[str, Any]) -> Settings:
    """Settings of an experiment to which one transaction comes every `scale_ms` in the mean."""
    data: dict[str, Any] = {
        "simulation": {"duration_ms": DURATION_MS},
        "experiment": {"label": label},
        "storage": {"provider": "s3"},
        "transaction": {"inter_arrival": {"scale": scale_ms}, "runtime": {"median": 1000.0, "sigma": 0.5}},
    }
    for table, values in changes.items():
        data[table] = data.get(table, {}) | values
    return parse_settings(data)


def closed_loop(clients: int) -> Settings:
    """Settings of clients without retries who work for ten seconds, without a pause between."""
    return settings(
        label="closed",
        transaction={
            "clients": clients,
            "inter_arrival": None,
            "retry": 0,
            "think_time": {"distribution": "fixed", "value": 0.0},
            "runtime": {"distribution": "fixed", "value": 10_000.0},
            "operation_types": {"fast_append": 1.0},
        },
    )


def outcomes(
    every_ms: float = 100_000.0, commits: int = 1, of: int = 1, latency_ms: float = 1000.0, **values: Any
) -> Rows:
    """One transaction every so often, of each `of` the first `commits` committed and the others given up."""
    made = []
    for place in range(int(DURATION_MS / every_ms)):
        submit = (place + 0.5) * every_ms
        outcome = committed if place % of < commits else aborted
        made.append(outcome(place, submit, submit + latency_ms, **ONE_ATTEMPT | values))
    return made


def write_experiment(root: Path, of: Settings, seeds: Sequence[Rows], **in_flight: Any) -> Path:
    """Write an experiment whose seeds, from 1 on, have these rows; return its folder."""
    folders = [write_run(root, of, seed, _table(made), in_flight) for seed, made in enumerate(seeds, start=1)]
    return folders[0].parent


def _table(made: Rows) -> pa.Table:
    return rows(*sorted(made, key=lambda row: max(row["t_commit"], row["t_abort"])))


def write_stores(root: Path) -> Path:
    """Write a sweep of three loads and two stores, two seeds each; return its directory.

    On s3, at the highest load, one third commits with one seed and half with the other; all else commits. Latencies of
    the second seed are a tenth longer.
    """
    shares = {("s3", 25_000.0): ((1, 3), (1, 2))}
    latencies_ms = {"s3": (500.0, 1000.0, 2000.0), "s3x": (50.0, 60.0, 80.0)}
    for store, of_load in latencies_ms.items():
        for scale_ms, latency_ms in zip((100_000.0, 50_000.0, 25_000.0), of_load, strict=True):
            own = shares.get((store, scale_ms), ((1, 1), (1, 1)))
            seeds = [
                outcomes(scale_ms, *share, latency_ms=factor * latency_ms, per_attempt_io_ms=factor * latency_ms)
                for share, factor in zip(own, (1.0, 1.1), strict=True)
            ]
            write_experiment(root, settings(scale_ms, storage={"provider": store}), seeds)
    return root


def section_of(root: Path, **options: Any) -> Section:
    """Return the only section of the report of a directory."""
    (section,) = make_sections(load_materials(root, fail), **options)
    return section


def fail(problem: str) -> None:
    raise AssertionError(problem)


def figure_of(section: Section, name: str) -> Figure:
    (figure,) = (figure for figure in section.figures if figure.name == name)
    return figure


def row_of(figure: Figure, **at: Any) -> Any:
    """Return the one row of a figure's numbers with these values, by column (a dot is written as two underscores)."""
    rows_there = figure.numbers
    for column, value in at.items():
        rows_there = rows_there[rows_there[column.replace("__", ".")] == value]
    (row,) = rows_there.to_dict("records")
    return row
