"""`endive run`: one configuration, simulated and summarized."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from endive.commands import DONE
from endive.commands.options import choose_seed, seed, spare_configuration

if TYPE_CHECKING:
    from endive.settings import Settings

SUMMARY: Final = "simulate one configuration and summarize what happened"
EPILOG: Final = """\
examples:
  endive run examples/mixed.toml
  endive run examples/mixed.toml --seed 7 --output seed7.parquet
  endive run examples/mixed.toml --json | jq .operations.all.success_rate
  endive run examples/mixed.toml --engine reference

The compiled engine is compiled on its first use, and kept in ENDIVE_CACHE_DIR, by default ~/.cache/endive.

Rows go to --output; else, with an experiment.label, to experiments/<label>-<hash>/<seed>/results.parquet;
else to simulation.output_path; else nowhere.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="TOML file")
    parser.add_argument("--seed", type=seed, metavar="N", help="seed, instead of simulation.seed")
    parser.add_argument("--output", type=Path, metavar="PATH", help="results file (Parquet)")
    parser.add_argument(
        "--engine",
        choices=["auto", "compiled", "reference"],
        default="auto",
        help="what runs it; both give the same results (default: auto, which is compiled)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def handle(options: argparse.Namespace) -> int:
    from endive.config import build_simulation_config, load_settings
    from endive.progress import ProgressLine
    from endive.simulation import Simulation
    from endive.summary import summarize, summary_table

    settings = load_settings(options.config)
    seed = choose_seed(options.seed, settings)
    output = _choose_output(options.output, settings, seed)
    spare_configuration(options.config, output)
    simulation = Simulation(build_simulation_config(settings, seed_override=seed))
    progress = None if options.quiet else ProgressLine(sys.stderr, settings.simulation.duration_ms)
    started_s = time.perf_counter()
    try:
        statistics = simulation.run(
            engine=options.engine,
            output=output,
            progress=None if progress is None else progress.update,
            keep_transactions=False,
        )
    finally:
        if progress is not None:
            progress.clear()
    wall_s = time.perf_counter() - started_s
    summary = summarize(statistics)
    if options.json:
        print(json.dumps(summary))
        return DONE
    print(_headline(settings, summary, wall_s))
    print()
    print(summary_table(summary))
    print()
    print(f"catalog sequence number {summary['final_seq']:,}")
    print(f"rows in {output}" if output else "rows not kept: name a file with --output")
    return DONE


def _choose_output(given: Path | None, settings: Settings, seed: int) -> Path | None:
    from endive.experiment import prepare_experiment, results_path

    if given is not None:
        return given
    if settings.experiment.label is not None:
        prepare_experiment(settings)
        return results_path(settings, seed)
    return None if settings.simulation.output_path is None else Path(settings.simulation.output_path)


def _headline(settings: Settings, summary: dict[str, Any], wall_s: float) -> str:
    from endive.config import catalog_type
    from endive.utils import format_duration

    storage, catalog = settings.storage, settings.catalog
    tables = f"{catalog.num_tables} table{'s' if catalog.num_tables > 1 else ''}"
    return (
        f"{tables} on {storage.provider} ({storage.profile}), {catalog_type(settings)} catalog, "
        f"seed {summary['seed']}, configuration {summary['config_hash']}\n"
        f"{format_duration(summary['end_ms'])} simulated in {format_duration(wall_s * 1000.0)} "
        f"({summary['events'] / wall_s:,.0f} events/s, {summary['engine']} engine)"
    )
