"""What a worker does for a run: simulate it where `endive run` would, or keep what went wrong. It knows no Spark."""

from __future__ import annotations

import os
import socket
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from endive import __version__
from endive.config import build_simulation_config, compute_experiment_hash, parse_settings
from endive.experiment import RESULTS_NAME, prepare_experiment
from endive.files import unfinished_files
from endive.pipeline.directory import FAILURE_NAME, TIMING_NAME, RunState, run_folder, write_json
from endive.pipeline.run_summary import SUMMARY_NAME, RunSummarizer, steady_window, write_run_summary
from endive.settings import Settings
from endive.simulation import Simulation, Statistics


class WorkerError(Exception):
    """A worker that cannot do what its driver asks."""


def perform_run(row: Mapping[str, Any], root: Path, *, is_last_attempt: bool = False) -> RunState:
    """Do a run (`plan.to_row`) unless it is done, and return its state: done, or failed for a reason that is kept.

    In the last attempt of a task, a run that an earlier attempt began and did not end is taken to be what kills
    workers, and fails without being tried.
    """
    folder = run_folder(root, row["label"], row["hash"], row["seed"])
    results = folder / RESULTS_NAME
    if not results.is_file():
        try:
            if is_last_attempt:
                _refuse_what_kills(results)
            _simulate(row, root, folder)
        except Exception as error:  # noqa: BLE001  (whatever it is, the other runs go on)
            _keep_failure(folder, row, error)
            return RunState.FAILED
    (folder / FAILURE_NAME).unlink(missing_ok=True)
    return RunState.DONE


def _refuse_what_kills(results: Path) -> None:
    if any(unfinished_files(results)):
        raise WorkerError("each worker that tried this run died; was there memory enough?")


def _simulate(row: Mapping[str, Any], root: Path, folder: Path) -> None:
    started_s = time.perf_counter()
    settings = _settings(row)
    prepare_experiment(settings, root)
    duration_ms = settings.simulation.duration_ms
    summarizer = RunSummarizer(row["label"], row["hash"], row["seed"], duration_ms, steady_window(settings))

    def write_summary(statistics: Statistics) -> None:
        write_run_summary(folder / SUMMARY_NAME, summarizer.finish(statistics.in_flight_times))

    statistics = Simulation(build_simulation_config(settings, seed_override=row["seed"])).run(
        output=folder / RESULTS_NAME,
        keep_transactions=False,
        on_rows=summarizer.add_rows,
        before_commit=write_summary,
    )
    _keep_timing(folder, row, statistics, time.perf_counter() - started_s)


def _settings(row: Mapping[str, Any]) -> Settings:
    if row["version"] != __version__:
        raise WorkerError(f"the worker on {socket.gethostname()} has endive {__version__}, not {row['version']}")
    settings = parse_settings(tomllib.loads(row["settings"]) | {"experiment": {"label": row["label"]}})
    digest = compute_experiment_hash(settings)
    if digest != row["hash"]:
        raise WorkerError(f"configuration {row['hash']} is {digest} to the worker on {socket.gethostname()}")
    return settings


def _keep_timing(folder: Path, row: Mapping[str, Any], statistics: Statistics, wall_s: float) -> None:
    write_json(
        folder / TIMING_NAME,
        {
            "wall_s": round(wall_s, 4),
            "predicted_s": round(row["cost_s"], 4),
            "engine": statistics.engine,
            "events": statistics.events,
            "rows": statistics.committed + statistics.aborted,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
        },
    )


def _keep_failure(folder: Path, row: Mapping[str, Any], error: Exception) -> None:
    write_json(
        folder / FAILURE_NAME,
        {
            "error": type(error).__name__,
            "message": str(error),
            "config_hash": row["hash"],
            "seed": row["seed"],
            "host": socket.gethostname(),
        },
    )
