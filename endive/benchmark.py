"""Measures both engines on a set of configurations, one after the other in this process."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from endive.config import build_simulation_config, load_settings
from endive.engine import prepare_machine
from endive.engine.run import run_machine
from endive.simulation import Simulation, SimulationConfig, Statistics
from endive.storage import ExponentialLatency
from endive.utils import format_duration, format_table
from endive.workload import Workload

MeasuredEngine = Literal["reference", "compiled"]

COMPILED_REPEATS: Final = 3
LOADS: Final = (1.0, 2.0, 5.0, 10.0)
_MEMORY_STATUS: Final = Path("/proc/self/status")
_MEMORY_RESET: Final = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an engine took for a configuration, results written to a file. Wall times in seconds.

    `kernel_s` is the compiled kernel alone, without writing; `memory_mib` is the peak of the process during the run,
    where the system tells.
    """

    name: str
    engine: str
    wall_s: float
    events: int
    draws: int = 0
    kernel_s: float = 0.0
    memory_mib: float | None = None


def shipped_set() -> list[Path]:
    """Return the configurations that come with Endive."""
    package = Path(__file__).resolve().parent
    for folder in (package / "benchmarks", package.parent / "benchmarks"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def measure(path: Path, engines: Sequence[MeasuredEngine], share: float) -> Iterator[Measurement]:
    """Yield what each engine takes for `share` of a configuration's duration; the compiled one at its best of a few."""
    settings = load_settings(path)
    whole = build_simulation_config(settings, seed_override=settings.simulation.seed or 0)
    config = replace(whole, duration_ms=whole.duration_ms * share)
    for engine in engines:
        if engine == "reference":
            yield _measure_run(path.stem, config, engine)
        else:
            best = min((_measure_run(path.stem, config, engine) for _ in range(COMPILED_REPEATS)), key=_wall_s)
            kernel_s, statistics, draws = _time_kernel(config)
            yield replace(best, kernel_s=kernel_s, events=statistics.events, draws=draws)


def measure_loads(path: Path, share: float) -> Iterator[tuple[float, Measurement]]:
    """Yield what the kernel takes as the arrivals of an open stream come 1 to 10 times as often."""
    config = build_simulation_config(load_settings(path), seed_override=1)
    workload = config.workload
    arrivals = workload.config.inter_arrival
    assert isinstance(arrivals, ExponentialLatency)
    for load in LOADS:
        stream = replace(workload.config, inter_arrival=ExponentialLatency(arrivals.scale / load))
        offered = replace(config, workload=Workload(stream), duration_ms=config.duration_ms * share)
        kernel_s, statistics, draws = _time_kernel(offered)
        yield load, Measurement(path.stem, "compiled", kernel_s, statistics.events, draws, kernel_s)


def _wall_s(measurement: Measurement) -> float:
    return measurement.wall_s


def _measure_run(name: str, config: SimulationConfig, engine: MeasuredEngine) -> Measurement:
    if engine == "compiled":
        prepare_machine(config, 0)
    with tempfile.TemporaryDirectory() as folder:
        _forget_peak()
        started_s = time.perf_counter()
        statistics = Simulation(config).run(engine=engine, output=Path(folder) / "results.parquet")
        wall_s = time.perf_counter() - started_s
    return Measurement(name, engine, wall_s, statistics.events, memory_mib=_peak_mib())


def _time_kernel(config: SimulationConfig) -> tuple[float, Statistics, int]:
    """Return the best time of the kernel alone in seconds, the statistics, and the latencies that it drew."""
    best_s = float("inf")
    for _ in range(COMPILED_REPEATS):
        machine, statistics = prepare_machine(config, config.seed or 0), Statistics()
        started_s = time.perf_counter()
        run_machine(machine, config, statistics, None, None)
        best_s = min(best_s, time.perf_counter() - started_s)
    return best_s, statistics, int(machine.run["draws"])


def _forget_peak() -> None:
    """Let the peak of the process's memory count from now on, where the system can."""
    with contextlib.suppress(OSError):
        _MEMORY_RESET.write_text("5", encoding="ascii")


def _peak_mib() -> float | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", _MEMORY_STATUS.read_text(encoding="ascii"))
    except OSError:
        return None
    return None if found is None else int(found.group(1)) / 1024


def engines_table(measurements: Sequence[Measurement]) -> str:
    """Return measurements as a table; a compiled one is compared with the reference one before it."""
    rows = [["configuration", "engine", "wall", "events/s", "ns/event", "ns/draw", "speed-up", "peak memory"]]
    reference: Measurement | None = None
    for found in measurements:
        if found.engine == "reference":
            reference = found
        is_pair = reference is not None and reference.name == found.name and found.engine == "compiled"
        rows.append(
            [
                found.name,
                found.engine,
                format_duration(found.wall_s * 1000.0),
                f"{found.events / found.wall_s:,.0f}",
                _nanoseconds(found.kernel_s, found.events),
                _nanoseconds(found.kernel_s, found.draws),
                f"{reference.wall_s / found.wall_s:,.0f} ×" if is_pair and reference is not None else "",
                "–" if found.memory_mib is None else f"{found.memory_mib:,.0f} MiB",
            ]
        )
    return format_table(rows)


def loads_table(measurements: Sequence[tuple[float, Measurement]]) -> str:
    """Return how the kernel scales with the load as a table."""
    rows = [["offered load", "kernel", "events", "ns/event", "ns/draw"]]
    for load, found in measurements:
        rows.append(
            [
                f"{load:g} ×",
                format_duration(found.kernel_s * 1000.0),
                f"{found.events:,}",
                _nanoseconds(found.kernel_s, found.events),
                _nanoseconds(found.kernel_s, found.draws),
            ]
        )
    return format_table(rows)


def to_json(measurements: Sequence[Measurement], loads: Sequence[tuple[float, Measurement]]) -> str:
    """Return measurements as one JSON object."""
    return json.dumps(
        {
            "engines": [asdict(found) for found in measurements],
            "loads": [{"load": load, **asdict(found)} for load, found in loads],
        }
    )


def _nanoseconds(seconds: float, count: int) -> str:
    return f"{seconds * 1e9 / count:,.1f}" if seconds and count else ""
