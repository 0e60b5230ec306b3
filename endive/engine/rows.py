"""Writes finished transactions to the row arrays, and adds them up by operation type."""

from __future__ import annotations

from typing import Any

from endive.engine import arrays
from endive.engine.jit import called
from endive.engine.layout import COMPONENTS, OUTCOMES, Outcome, RowNumber, RowTime, Time


@called
def finish(run: Any, slot_place: int) -> None:
    """Write the row of a transaction that has just ended, and count it."""
    slot = arrays.slots(run)[slot_place]
    row, operation = run.rows, arrays.costs(run)[slot.costs].name
    is_committed = slot.outcome == Outcome.COMMITTED
    _write_times(run, slot, row, operation, is_committed)
    _write_numbers(run, slot, slot_place, row, operation)
    arrays.total_numbers(run)[operation, slot.outcome] += 1
    arrays.total_numbers(run)[operation, OUTCOMES] += slot.attempts - 1
    run.rows += 1
    run.retries += slot.attempts - 1
    run.last_end = slot.now
    if is_committed:
        run.committed += 1
    else:
        run.aborted += 1


@called
def _write_times(run: Any, slot: Any, row: int, operation: int, is_committed: bool) -> None:
    times, totals = arrays.row_times(run), arrays.total_times(run)
    times[RowTime.T_SUBMIT, row] = slot.submit
    times[RowTime.T_RUNTIME, row] = slot.runtime
    times[RowTime.T_COMMIT, row] = slot.now if is_committed else -1.0
    times[RowTime.T_ABORT, row] = -1.0 if is_committed else slot.now
    times[RowTime.COMMIT_LATENCY, row] = slot.now - slot.commit_start
    times[RowTime.TOTAL_LATENCY, row] = slot.now - slot.submit
    times[RowTime.START_MS, row] = slot.start
    times[RowTime.CATALOG_READ_MS, row] = slot.times[Time.CATALOG_READ]
    times[RowTime.PER_ATTEMPT_IO_MS, row] = slot.times[Time.PER_ATTEMPT_IO]
    times[RowTime.CONFLICT_IO_MS, row] = slot.times[Time.CONFLICT_IO]
    times[RowTime.CATALOG_COMMIT_MS, row] = slot.times[Time.CATALOG_COMMIT]
    times[RowTime.BACKOFF_MS, row] = slot.times[Time.BACKOFF]
    times[RowTime.OVERHEAD_MS, row] = 0.0
    times[RowTime.RESTART_MS, row] = slot.restarts * slot.runtime
    for component in range(COMPONENTS):
        totals[operation, component] += slot.times[component]
    totals[operation, COMPONENTS] += slot.restarts * slot.runtime


@called
def _write_numbers(run: Any, slot: Any, slot_place: int, row: int, operation: int) -> None:
    numbers = arrays.row_numbers(run)
    numbers[RowNumber.TXN_ID, row] = slot.txn
    numbers[RowNumber.ATTEMPTS, row] = slot.attempts
    numbers[RowNumber.MANIFEST_LIST_READS, row] = slot.manifest_list_reads
    numbers[RowNumber.HISTORICAL_ML_READS, row] = slot.historical_ml_reads
    numbers[RowNumber.MANIFEST_LIST_WRITES, row] = slot.manifest_list_writes
    numbers[RowNumber.MANIFEST_LIST_APPENDS, row] = slot.manifest_list_appends
    numbers[RowNumber.MANIFEST_FILE_READS, row] = slot.manifest_file_reads
    numbers[RowNumber.MANIFEST_FILE_WRITES, row] = slot.manifest_file_writes
    numbers[RowNumber.METADATA_READS, row] = slot.metadata_reads
    numbers[RowNumber.METADATA_WRITES, row] = slot.metadata_writes
    numbers[RowNumber.APPEND_PHYSICAL_FAILURES, row] = slot.append_physical_failures
    numbers[RowNumber.NO_OVERLAP_CONFLICTS, row] = slot.no_overlap_conflicts
    numbers[RowNumber.FALSE_CONFLICTS, row] = slot.false_conflicts
    numbers[RowNumber.REAL_CONFLICTS, row] = slot.real_conflicts
    numbers[RowNumber.RESTARTS, row] = slot.restarts
    numbers[RowNumber.OUTCOME, row] = slot.outcome
    numbers[RowNumber.OPERATION, row] = operation
    numbers[RowNumber.STREAM, row] = slot.stream
    for count in range(RowNumber.MANIFEST_LIST_READS, RowNumber.OUTCOME):
        arrays.total_numbers(run)[operation, OUTCOMES + 1 + count - RowNumber.MANIFEST_LIST_READS] += numbers[
            count, row
        ]
    end = numbers[RowNumber.TABLES_END, row - 1] if row > 0 else 0
    for place in range(slot.touched):
        if arrays.touched(run)[slot_place, place].is_written:
            arrays.row_tables(run)[end] = arrays.touched(run)[slot_place, place].table
            end += 1
    numbers[RowNumber.TABLES_END, row] = end
