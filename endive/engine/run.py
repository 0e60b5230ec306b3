"""Drives the kernel: gives it room, takes its rows, and lets Python look up between chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from endive.engine.encoding import (
    Machine,
    phases_in_flight,
    rows_table,
    tables_applied_in_flight,
    times_in_flight,
)
from endive.engine.errors import EngineError
from endive.engine.kernel import advance
from endive.engine.layout import (
    CATALOG_COUNTERS,
    COMPONENTS,
    COUNTS,
    LIST_COUNTERS,
    OUTCOMES,
    Outcome,
    Pause,
    RowNumber,
    RowTime,
    Time,
)
from endive.simulation import OperationTotals, SimulationConfig, Statistics
from endive.transaction import ABORT_REASONS

WORK_PER_CHUNK: Final = 4_000_000


def run_machine(
    machine: Machine,
    config: SimulationConfig,
    statistics: Statistics,
    take_rows: Callable[[pa.Table], None] | None,
    progress: Callable[[float, Statistics], None] | None,
    *,
    work_per_chunk: int = WORK_PER_CHUNK,
) -> None:
    """Simulate an encoded configuration, filling in `statistics`; rows go to `take_rows` a row group at a time."""
    statistics.engine = "compiled"
    run = machine.run
    while True:
        pause = advance(machine.runs, 8 * int(run["events"]) + int(run["draws"]) + work_per_chunk)
        if pause == Pause.SLOTS_FULL:
            machine.add_slots()
        elif pause == Pause.ROWS_FULL:
            _hand_over(machine, statistics, take_rows)
        elif pause == Pause.BAD_DELAY:
            delay = float(run["bad_delay"])
            raise ValueError(f"a component yielded a delay of {delay} ms; allowed is a finite number from 0")
        elif pause == Pause.BROKEN:
            which = config.config_hash or repr(config)
            raise EngineError(f"the compiled engine broke down; configuration {which}, seed {statistics.seed}")
        _count(machine, statistics)
        if pause == Pause.DONE:
            break
        if progress is not None:
            progress(float(run["now"]), statistics)
    _hand_over(machine, statistics, take_rows)
    _report(machine, config, statistics)


def _count(machine: Machine, statistics: Statistics) -> None:
    run = machine.run
    statistics.submitted = int(run["submitted"])
    statistics.committed = int(run["committed"])
    statistics.aborted = int(run["aborted"])
    statistics.total_retries = int(run["retries"])
    statistics.events = int(run["events"])


def _hand_over(machine: Machine, statistics: Statistics, take_rows: Callable[[pa.Table], None] | None) -> None:
    """Take the rows out of the memory."""
    count = int(machine.run["rows"])
    if not count:
        return
    numbers = machine.arrays["row_numbers"][:, :count]
    outcomes, operations = numbers[RowNumber.OUTCOME], numbers[RowNumber.OPERATION]
    for code in np.unique(operations):
        latencies = machine.arrays["row_times"][RowTime.COMMIT_LATENCY, :count]
        committed = latencies[(operations == code) & (outcomes == Outcome.COMMITTED)]
        totals = statistics.operations.setdefault(machine.operations[code], OperationTotals())
        totals.commit_latencies_ms.frombytes(committed.tobytes())
    if take_rows is not None:
        take_rows(rows_table(machine))
    machine.run["rows"] = 0


def _report(machine: Machine, config: SimulationConfig, statistics: Statistics) -> None:
    run = machine.run
    for name, totals in statistics.operations.items():
        _fill_totals(totals, machine, machine.operations.index(name))
    statistics.validation_exceptions = sum(
        totals.aborted["validation_exception"] for totals in statistics.operations.values()
    )
    for name in ("manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes"):
        setattr(statistics, name, sum(totals.counts[name] for totals in statistics.operations.values()))
    statistics.in_flight = phases_in_flight(machine)
    statistics.in_flight_times = times_in_flight(machine)
    applied = tables_applied_in_flight(machine)
    statistics.in_flight_applied = len(applied)
    statistics.in_flight_applied_tables = Counter(table for tables in applied for table in tables)
    statistics.final_seq = int(run["seq"])
    statistics.table_versions = tuple(machine.arrays["table_versions"].tolist())
    for counters, names in (
        (statistics.catalog_counters, CATALOG_COUNTERS),
        (statistics.manifest_list_counters, LIST_COUNTERS),
    ):
        for name in names:
            setattr(counters, name, int(run[name]))
    statistics.end_ms = max(config.duration_ms, float(run["last_end"]))


def _fill_totals(totals: OperationTotals, machine: Machine, code: int) -> None:
    numbers, times = (machine.arrays[name][code].tolist() for name in ("total_numbers", "total_times"))
    totals.committed = numbers[Outcome.COMMITTED]
    for place, reason in enumerate(ABORT_REASONS, start=1):
        if numbers[place]:
            totals.aborted[reason] = numbers[place]
    totals.retries = numbers[OUTCOMES]
    totals.counts = Counter(dict(zip(COUNTS, numbers[OUTCOMES + 1 :], strict=True)))
    named: dict[str, Any] = dict(zip((f"{time.name.lower()}_ms" for time in Time), times, strict=False))
    totals.times_ms = Counter(named | {"overhead_ms": 0.0, "restart_ms": times[COMPONENTS]})
