"""Directories as sweeps leave them, with literal rows instead of simulated ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from endive.config import compute_experiment_hash, parse_settings
from endive.experiment import prepare_experiment, results_path
from endive.pipeline.run_summary import RunSummarizer, steady_window, write_run_summary
from endive.results import ResultsWriter
from endive.settings import Settings
from endive.simulation import InFlightTimes

DURATION_MS = 40 * 60_000.0
STEADY_MS = (5 * 60_000.0, 35 * 60_000.0)
"""The steady window of `settings_of`."""


def settings_of(label: str = "exp", num_tables: int = 1) -> Settings:
    return parse_settings(
        {
            "simulation": {"duration_ms": DURATION_MS},
            "experiment": {"label": label},
            "storage": {"provider": "s3"},
            "catalog": {"num_tables": num_tables},
            "transaction": {"inter_arrival": {"scale": 1000.0}, "runtime": {"median": 1000.0, "sigma": 0.5}},
        }
    )


def write_run(
    root: Path, settings: Settings, seed: int, rows: pa.Table, in_flight: dict[str, InFlightTimes] | None = None
) -> Path:
    """Write a finished run as a sweep does, the summary first; return its folder."""
    prepare_experiment(settings, root)
    path = results_path(settings, seed, root)
    label: Any = settings.experiment.label
    summarizer = RunSummarizer(
        label, compute_experiment_hash(settings), seed, settings.simulation.duration_ms, steady_window(settings)
    )
    with ResultsWriter(path, summarizer.add_rows) as writer:
        writer.write_group(rows)
        write_run_summary(path.with_name("summary.parquet"), summarizer.finish(in_flight or {}))
        writer.commit({"seed": seed})
    return path.parent
