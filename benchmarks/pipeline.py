"""Measures the pipeline on many rows: sweep, consolidate, summarize; wall time, rows per second, bytes, memory.

    python benchmarks/pipeline.py                       # sweeps busy runs for 20 million rows, in a temporary folder
    python benchmarks/pipeline.py --rows 1000000
    python benchmarks/pipeline.py experiments           # the rows of a directory of sweeps, which is only read

Each step has the session to itself, which is started before them. The page cache holds what the step before has
written. Memory is the highest sum, over this process and all that it started (JVM, Python workers), of the memory that
each has to itself and its share of what it shares; sampled five times a second.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from endive.pipeline.consolidate import consolidate
from endive.pipeline.consolidated import CONSOLIDATED_NAME
from endive.pipeline.consolidated_runs import consolidated_files, run_summaries
from endive.pipeline.experiments import find_experiments
from endive.pipeline.plan import Plan
from endive.pipeline.session import open_session
from endive.pipeline.summarize import summarize
from endive.pipeline.sweep import run_sweep, warm_engine
from endive.pipeline.sweep_file import parse_sweep
from endive.pipeline.sweep_progress import SweepProgress
from endive.utils import format_duration, format_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS: Final = 3_600_000
INTER_ARRIVALS_MS: Final = (20, 25, 30, 40)
BUSY: Final = {
    "simulation": {"duration_ms": HOUR_MS},
    "storage": {"provider": "s3", "profile": "2025-12"},
    "catalog": {"type": "instant", "latency_ms": 1},
    "transaction": {
        "retry": 10,
        "runtime": {"median": 180_000, "sigma": 1.5, "min": 30_000},
        "inter_arrival": {"distribution": "exponential", "scale": 20},
        "operation_types": {"fast_append": 1},
    },
}
"""Appends of an hour: some 440,000 rows from one seed at all the loads."""
FINISHED_SHARE: Final = 0.82
"""Of what is submitted, the rest being at work still when the hour ends."""
SAMPLE_PERIOD_S: Final = 0.2


@dataclass
class Step:
    """What a step took, and how large the files are that it left."""

    name: str
    wall_s: float
    memory_mib: float
    size_bytes: int


class MemorySampler(threading.Thread):
    """Knows the most memory that this process and its descendants have had together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self.peak_mib = 0.0

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_PERIOD_S):
            self.peak_mib = max(self.peak_mib, sum(map(_memory_mib, _family())))

    def end(self) -> float:
        self._is_over.set()
        self.join()
        return self.peak_mib


def _family() -> Iterator[Path]:
    """Yield what /proc has of this process and its descendants."""
    children: dict[str, list[str]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = status.read_text().rsplit(")", 1)[1].split()[1]
            children.setdefault(parent, []).append(status.parent.name)
    unseen = [Path("/proc/self").resolve().name]
    while unseen:
        process = unseen.pop()
        unseen += children.get(process, [])
        yield Path("/proc") / process


def _memory_mib(process: Path) -> float:
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(found.group(1)) / 1024 if found else 0.0
    return 0.0


def measure(name: str, work: Callable[[], object], output: Path) -> Step:
    """Return what some work took that leaves its files in `output`."""
    print(f"{name} …", file=sys.stderr)
    sampler = MemorySampler()
    sampler.start()
    started_s = time.perf_counter()
    work()
    wall_s = time.perf_counter() - started_s
    return Step(name, wall_s, sampler.end(), _size_bytes(output))


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet") if path.is_file())


def sweep_busy_runs(spark: SparkSession, root: Path, rows: int) -> None:
    """Leave runs in a directory that have about so many rows."""
    seeds = math.ceil(rows / sum(FINISHED_SHARE * HOUR_MS / each for each in INTER_ARRIVALS_MS))
    grid = {"transaction.inter_arrival.scale": list(INTER_ARRIVALS_MS)}
    plan = Plan(parse_sweep(BUSY | {"sweep": {"seeds": seeds, "grid": grid}}, "busy"), root)
    run_sweep(spark, plan, plan.left_to_do(), SweepProgress(plan.runs, root, len(plan.runs), None))


def link_experiments(source: Path, root: Path) -> None:
    """Let a directory have the experiments of another one, but nothing else of it."""
    for experiment in find_experiments(source):
        (root / experiment.folder.name).symlink_to(experiment.folder.resolve())


def measure_steps(spark: SparkSession, root: Path, tables: Path) -> Iterator[Step]:
    """Yield what it takes to consolidate and to summarize a directory."""

    def consolidate_all() -> None:
        consolidate(root, lambda: contextlib.nullcontext(spark), print)

    def summarize_rows() -> None:
        files = consolidated_files(root, find_experiments(root), print)
        run_summaries(spark, files).write.format("noop").mode("overwrite").save()

    def write_tables() -> None:
        summarize(root, tables, lambda: contextlib.nullcontext(spark), on_problem=print)

    yield measure("consolidate", consolidate_all, root / CONSOLIDATED_NAME)
    yield measure("summarize rows", summarize_rows, tables)
    yield measure("summarize rows, again", summarize_rows, tables)
    yield measure("endive summarize, all tables", write_tables, tables)


def count_rows(root: Path) -> int:
    """Return how many consolidated rows there are."""
    files = (root / CONSOLIDATED_NAME).rglob("*.parquet")
    return sum(pq.read_metadata(path).num_rows for path in files)


def steps_table(steps: list[Step], rows: int) -> str:
    """Return what each step took for so many rows."""
    titles = ["step", "rows", "wall", "rows/s", "bytes/row", "peak memory"]
    cells = [
        [
            step.name,
            f"{rows:,}",
            format_duration(step.wall_s * 1000.0),
            f"{rows / step.wall_s:,.0f}",
            f"{step.size_bytes / rows:,.1f}" if step.size_bytes else "",
            f"{step.memory_mib:,.0f} MiB",
        ]
        for step in steps
    ]
    return format_table([titles, *cells])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", nargs="?", help="where sweeps went (default: sweep now)")
    parser.add_argument("--rows", type=int, default=20_000_000, metavar="N", help="(default: 20 million)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: as Spark is set up, else local[*])")
    options = parser.parse_args()
    warm_engine()
    steps: list[Step] = []
    with tempfile.TemporaryDirectory() as folder, open_session(options.master) as spark:
        root, tables = Path(folder) / "experiments", Path(folder) / "tables"
        root.mkdir()
        if options.directory is None:
            steps.append(measure("sweep", lambda: sweep_busy_runs(spark, root, options.rows), root))
        else:
            link_experiments(options.directory, root)
        steps += measure_steps(spark, root, tables)
        print(steps_table(steps, count_rows(root)))


if __name__ == "__main__":
    main()
