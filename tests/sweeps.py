"""Small sweeps for tests, and what a directory of results holds."""

from __future__ import annotations

from pathlib import Path

from endive.config import build_simulation_config
from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import load_sweep
from endive.simulation import Simulation

SWEEP = """
[simulation]
duration_ms = {duration_ms}
[storage]
provider = "s3x"
[transaction]
retry = 5
runtime = {{ median = 300, sigma = 1.0 }}
inter_arrival.scale = 50.0
[sweep]
seeds = {seeds}
[sweep.grid]
"transaction.inter_arrival.scale" = {scales}
"""
NOT_COMPARED = ("timing.json", "version.txt")


def write_sweep(
    folder: Path, *, duration_ms: int = 20_000, seeds: int = 2, scales: tuple[float, ...] = (20, 50, 200)
) -> Path:
    """Write a sweep of tiny runs."""
    path = folder / "tiny.toml"
    path.write_text(SWEEP.format(duration_ms=duration_ms, seeds=seeds, scales=list(scales)))
    return path


def tiny_plan(folder: Path, **options: object) -> Plan:
    return Plan(load_sweep(write_sweep(folder, **options)), folder / "out")  # type: ignore[arg-type]


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file that two sweeps share, by name."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name not in NOT_COMPARED)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def results(root: Path) -> dict[str, bytes]:
    """Return the bytes of every results file, by <experiment>/<seed>."""
    found = sorted(root.glob("*/*/results.parquet"))
    return {path.parent.relative_to(root).as_posix(): path.read_bytes() for path in found}


def results_of_run(plan: Plan, folder: Path) -> dict[str, bytes]:
    """Return what `endive run` makes of each run of a plan, by <experiment>/<seed>."""
    made = {}
    for run in plan.runs:
        config = build_simulation_config(run.configuration.settings, seed_override=run.seed)
        path = folder / "one.parquet"
        Simulation(config).run(output=path, keep_transactions=False)
        made[run.folder(plan.root).relative_to(plan.root).as_posix()] = path.read_bytes()
    return made
