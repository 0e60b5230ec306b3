"""`endive consolidate`: the rows of every run of a directory in one table."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from endive.commands import DONE, FAILED

SUMMARY: Final = "bring the rows of every finished run into one table, on Spark"
EPILOG: Final = """\
examples:
  endive consolidate experiments
  endive consolidate /shared/experiments --master spark://cluster:7077

Writes DIR/consolidated.parquet/exp_name=.../exp_hash=.../rows.parquet, sorted by seed, submission and transaction, and
DIR/configurations.parquet. Called again, only experiments whose set of finished runs has changed are written anew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="where sweeps went")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: as Spark is set up, else local[*])")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def handle(options: argparse.Namespace) -> int:
    from endive.pipeline.consolidate import consolidate
    from endive.pipeline.session import IDLE_JVM, open_session
    from endive.progress import MovingLine
    from endive.utils import format_duration

    line = None if options.quiet else MovingLine(sys.stderr)
    problems: list[str] = []
    started_s = time.perf_counter()
    try:
        done = consolidate(options.directory, lambda: open_session(options.master, IDLE_JVM), problems.append, line)
    finally:
        if line is not None:
            line.clear()
        for problem in problems:
            print(f"endive: {problem}", file=sys.stderr)
    taken = format_duration((time.perf_counter() - started_s) * 1000.0)
    print(f"{done.written:,} of {done.experiments:,} experiments written in {taken}, the others were up to date")
    return FAILED if done.problems else DONE
