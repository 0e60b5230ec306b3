"""`endive sweep`: every run of a sweep file, on Spark."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from endive.commands import DONE, FAILED
from endive.commands.options import positive

if TYPE_CHECKING:
    from endive.pipeline.plan import Plan, PlannedRun
    from endive.pipeline.sweep_progress import SweepProgress

SUMMARY: Final = "run every configuration of a sweep file with every seed, on Spark"
EPILOG: Final = """\
examples:
  endive sweep sweeps/exp1.toml
  endive sweep exp1 --dry-run
  endive sweep exp1 --quick -o /tmp/quick
  endive sweep my-sweep.toml --seeds 10 --master spark://cluster:7077 -o /shared/experiments

SWEEP is a file, or the name of one that comes with Endive, such as exp1 or maintenance. Called again, a sweep does
what is not done yet, and tries again what failed.
"""

_FAILURES_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="TOML file with a table [sweep], or a name")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("experiments"),
        metavar="DIR",
        help="where results go (default: experiments)",
    )
    parser.add_argument("--seeds", type=positive, metavar="N", help="how many seeds, instead of sweep.seeds")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: as Spark is set up, else local[*])")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--quick", action="store_true", help="a tenth of each duration, and at most 2 seeds")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def handle(options: argparse.Namespace) -> int:
    from endive.files import UnwritableOutputError
    from endive.pipeline.master import check_master
    from endive.pipeline.plan import Plan, plan_text
    from endive.pipeline.sweep_file import find_sweep, load_sweep

    if options.master is not None:
        check_master(options.master)
    sweep = load_sweep(find_sweep(options.sweep), seeds=options.seeds, quick=options.quick)
    if options.output.exists() and not options.output.is_dir():
        raise UnwritableOutputError(f"{options.output}: is not a directory")
    plan = Plan(sweep, options.output)
    plan.check_experiments()
    if options.dry_run:
        print(plan_text(plan, options.master))
        return DONE
    plan.write()
    to_do = plan.left_to_do()
    if not to_do:
        print(f"all {len(plan.runs):,} runs were done already, in {plan.root}")
        return DONE
    return _perform(plan, to_do, options.master, options.quiet)


def _perform(plan: Plan, to_do: list[PlannedRun], master: str | None, quiet: bool) -> int:
    from endive.pipeline.sweep_progress import SweepProgress
    from endive.progress import MovingLine
    from endive.utils import format_duration

    print(f"endive: {len(to_do):,} of {len(plan.runs):,} runs to do; starting Spark", file=sys.stderr)
    line = None if quiet else MovingLine(sys.stderr)
    progress = SweepProgress(to_do, plan.root, len(plan.runs), line)
    started_s = time.perf_counter()
    try:
        _run_on_spark(plan, to_do, master, progress)
    except KeyboardInterrupt:
        if line is not None:
            line.clear()
        print(f"endive: {progress.waiting:,} runs are left; the same command goes on with them", file=sys.stderr)
        raise
    finally:
        if line is not None:
            line.clear()
    taken = format_duration((time.perf_counter() - started_s) * 1000.0)
    print(f"{progress.done:,} runs done in {taken}, {len(progress.failed):,} failed; results in {plan.root}")
    _tell_failures(plan, progress.failed)
    return FAILED if progress.failed else DONE


def _run_on_spark(plan: Plan, to_do: list[PlannedRun], master: str | None, progress: SweepProgress) -> None:
    from endive.pipeline.master import local_cores
    from endive.pipeline.session import IDLE_JVM, open_session, require_java
    from endive.pipeline.sweep import run_sweep, warm_engine

    require_java()
    if local_cores(master) is not None:
        warm_engine()
    with open_session(master, IDLE_JVM) as spark:
        run_sweep(spark, plan, to_do, progress)


def _tell_failures(plan: Plan, failed: list[PlannedRun]) -> None:
    """Name each run that failed, and why, on a line of its own."""
    from endive.pipeline.directory import FAILURE_NAME

    for run in failed[:_FAILURES_SHOWN]:
        path = run.folder(plan.root) / FAILURE_NAME
        failure = json.loads(path.read_text(encoding="utf-8"))
        message = (str(failure["message"]).splitlines() or [""])[0]
        print(f"endive: failed: {path.parent}: {failure['error']}: {message}", file=sys.stderr)
    if len(failed) > _FAILURES_SHOWN:
        print(f"endive: and {len(failed) - _FAILURES_SHOWN:,} more; endive status tells how many", file=sys.stderr)
