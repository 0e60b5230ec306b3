"""`endive status`: how far the sweeps of a directory are."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from endive.commands import BAD_INPUT, DONE, FAILED

SUMMARY: Final = "tell how far the sweeps of a directory are"
EPILOG: Final = """\
examples:
  endive status
  endive status /shared/experiments
  watch endive status

It reads the directory only, so it may be asked from another terminal or machine. Simulated hours per second and time
left are of the last minute.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        nargs="?",
        default=Path("experiments"),
        help="where results are (default: experiments)",
    )


def handle(options: argparse.Namespace) -> int:
    from endive.pipeline.status import UnreadablePlanError, find_plans, status_table, sweep_status

    now_s = time.time()
    statuses, complaints = [], []
    for plan in find_plans(options.directory):
        try:
            statuses.append(sweep_status(plan, now_s))
        except UnreadablePlanError as error:
            complaints.append(str(error))
    if statuses:
        print(status_table(statuses, now_s))
    for complaint in complaints:
        print(f"endive: {complaint}", file=sys.stderr)
    if not statuses and not complaints:
        print(f"endive: {options.directory}: no sweep was run here; endive sweep FILE -o DIR runs one", file=sys.stderr)
        return BAD_INPUT
    return FAILED if complaints else DONE
