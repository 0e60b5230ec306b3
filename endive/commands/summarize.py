"""`endive summarize`: metrics of runs and experiments, from the rows of a consolidated directory."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from endive.commands import DONE, FAILED

if TYPE_CHECKING:
    from endive.pipeline.run_summary import Window

SUMMARY: Final = "summarize consolidated rows over any window, on Spark"
EPILOG: Final = """\
examples:
  endive summarize experiments
  endive summarize experiments --window 20 40 -o minutes-20-to-40
  endive summarize experiments --baseline stores-0123456789ab --master spark://cluster:7077

Needs what endive consolidate writes. Writes to OUT, as Parquet: run_summaries (counts and histograms that merge),
run_metrics (a row for each run), summary (a row for each experiment, with confidence intervals), commit_rates (over
time), and with --baseline differences (paired by seed). Each has a row for every operation type; run_metrics, summary
and differences have one for all of them too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="where sweeps went, consolidated")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="folder for the tables (default: DIR/summaries)"
    )
    parser.add_argument(
        "--window",
        type=minutes,
        nargs=2,
        metavar=("START", "END"),
        help="count what is submitted between these simulated minutes (default: the steady window of each experiment)",
    )
    parser.add_argument("--baseline", metavar="EXPERIMENT", help="compare every other experiment with this one of DIR")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: as Spark is set up, else local[*])")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def minutes(text: str) -> float:
    """Return the instant, in milliseconds, that an argument names in minutes."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of minutes, 0 or more")
    return value * 60_000.0


def handle(options: argparse.Namespace) -> int:
    from endive.pipeline.session import open_session
    from endive.pipeline.summarize import summarize
    from endive.progress import MovingLine
    from endive.utils import format_duration

    output = options.output or options.directory / "summaries"
    line = None if options.quiet else MovingLine(sys.stderr)
    problems: list[str] = []
    started_s = time.perf_counter()
    try:
        done = summarize(
            options.directory,
            output,
            lambda: open_session(options.master),
            window=_window(options.window),
            baseline=options.baseline,
            on_problem=problems.append,
            line=line,
        )
    finally:
        if line is not None:
            line.clear()
        for problem in problems:
            print(f"endive: {problem}", file=sys.stderr)
    taken = format_duration((time.perf_counter() - started_s) * 1000.0)
    print(f"{done.runs:,} runs of {done.experiments:,} experiments summarized in {taken}; tables in {output}")
    return FAILED if problems else DONE


def _window(edges_ms: list[float] | None) -> Window | None:
    from endive.config_errors import ConfigError
    from endive.pipeline.run_summary import Window

    if edges_ms is None:
        return None
    start_ms, end_ms = edges_ms
    if start_ms >= end_ms:
        raise ConfigError(
            [f"--window: {start_ms / 60_000.0:g} {end_ms / 60_000.0:g}; allowed is a start before the end, in minutes"]
        )
    return Window(start_ms, end_ms)
