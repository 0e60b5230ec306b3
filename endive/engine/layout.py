"""The memory of a compiled run: codes, records and arrays. Shared by the encoding and the kernel; data only.

The state of a transaction in flight is one record in a pool of slots, so that an event touches few cache lines.
Times are milliseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

ARRIVALS_FROM: Final = 1 << 62
CLIENTS_PER_STREAM: Final = 1 << 32


class Kind(IntEnum):
    """Families of latency distributions. SIZED: lognormal about a median that grows with the object."""

    FIXED = 0
    LOGNORMAL = 1
    SIZED = 2
    NORMAL = 3
    EXPONENTIAL = 4
    UNIFORM = 5
    EMPIRICAL = 6


class Operation(IntEnum):
    """Places of the storage operations among the latencies. Those of the streams follow."""

    CATALOG_READ = 0
    CATALOG_COMMIT = 1
    COMMIT_FAILURE = 2
    COMPACTION = 3
    COMPACTION_FAILURE = 4
    METADATA_READ = 5
    METADATA_WRITE = 6
    LIST_READ = 7
    LIST_WRITE = 8
    LIST_APPEND = 9
    LIST_APPEND_FAILURE = 10
    FILE_READ = 11
    FILE_WRITE = 12
    CONFLICTING_MANIFESTS = 13


class Time(IntEnum):
    """Places of the components that a transaction's time is added up in."""

    CATALOG_READ = 0
    PER_ATTEMPT_IO = 1
    CONFLICT_IO = 2
    CATALOG_COMMIT = 3
    BACKOFF = 4


COMPONENTS: Final = len(Time)


class CatalogScope(IntEnum):
    """What a commit's precondition covers."""

    CATALOG = 0
    GROUP = 1
    TABLE = 2
    PARTITION = 3


class OnRealConflict(IntEnum):
    """What becomes of a transaction whose data conflicts."""

    ABORT = 0
    RESTART = 1
    MERGE = 2


class Waiting(IntEnum):
    """What a transaction in flight waits for: its next meeting with shared state, or its end."""

    CATALOG_READ = 0
    COMMIT = 1
    LOG_APPEND = 2
    COMPACTION = 3
    LIST_READ = 4
    LIST_APPEND = 5
    LIST_REWRITE = 6
    END = 7


class Stage(IntEnum):
    """How far the manifest work on one table has come."""

    BEGIN = 0
    LISTS = 1
    FILES = 2
    ENTRIES = 3
    DONE = 4


class Outcome(IntEnum):
    """How a transaction ended; aborts are in the order of `ABORT_REASONS`."""

    COMMITTED = 0
    MAX_RETRIES_EXCEEDED = 1
    RETRY_TIMEOUT = 2
    VALIDATION_EXCEPTION = 3


OUTCOMES: Final = len(Outcome)


class Phase(IntEnum):
    """What a transaction in flight was doing when the run ended."""

    PENDING = 0
    EXECUTING = 1
    COMMITTING = 2


class Pause(IntEnum):
    """Why the kernel returned."""

    DONE = 0
    WORK_SPENT = 1
    ROWS_FULL = 2
    SLOTS_FULL = 3
    BAD_DELAY = 4
    BROKEN = 5


class RowTime(IntEnum):
    """Float columns of a finished row."""

    T_SUBMIT = 0
    T_RUNTIME = 1
    T_COMMIT = 2
    COMMIT_LATENCY = 3
    TOTAL_LATENCY = 4
    CATALOG_READ_MS = 5
    PER_ATTEMPT_IO_MS = 6
    CONFLICT_IO_MS = 7
    CATALOG_COMMIT_MS = 8
    T_ABORT = 9
    START_MS = 10
    BACKOFF_MS = 11
    OVERHEAD_MS = 12
    RESTART_MS = 13


class RowNumber(IntEnum):
    """Integer columns of a finished row. TABLES_END: where its written tables end among those of all rows."""

    TXN_ID = 0
    ATTEMPTS = 1
    MANIFEST_LIST_READS = 2
    HISTORICAL_ML_READS = 3
    MANIFEST_LIST_WRITES = 4
    MANIFEST_LIST_APPENDS = 5
    MANIFEST_FILE_READS = 6
    MANIFEST_FILE_WRITES = 7
    METADATA_READS = 8
    METADATA_WRITES = 9
    APPEND_PHYSICAL_FAILURES = 10
    NO_OVERLAP_CONFLICTS = 11
    FALSE_CONFLICTS = 12
    REAL_CONFLICTS = 13
    RESTARTS = 14
    OUTCOME = 15
    OPERATION = 16
    STREAM = 17
    TABLES_END = 18


COUNTS: Final = tuple(number.name.lower() for number in RowNumber if RowNumber.ATTEMPTS < number < RowNumber.OUTCOME)


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


def _all(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


RNG: Final = _record(a="u8", b="u8", c="u8", counter="u8", gauss="f8", has_gauss="i8")

LATENCY: Final = _record(kind="i8", points="i8", **_all("f8", "floor", "center", "spread", "base", "per_mib"))

CHOICE: Final = _record(**_all("i8", "offset", "count", "is_equal"))

_COSTS: Final = ("metadata_reads", "list_reads", "list_writes", "history", "file_reads", "file_writes")
COSTS: Final = _record(
    **_all("i8", *(f"first_{cost}" for cost in _COSTS), *(f"redone_{cost}" for cost in _COSTS)),
    **_all("f8", "missed_history", "missed_file_reads", "missed_file_writes"),
    **_all("i8", "can_conflict", "name"),
)

STREAM: Final = _record(
    **_all("i8", "clients", "operation_offset", "operation_choice", "arrival", "runtime"),
    **_all("i8", "tables_per_txn", "tables_written", "table_choice", "is_grouped", "group_tables", "group_members"),
    **_all("i8", "partitions_per_txn", "partitions_written", "partition_choices", "draws_partitions"),
)

SOURCE: Final = _record(
    **_all("u8", "runtime_base", "operation_base", "tables_base", "partitions_base", "io_base"),
    **_all("i8", "stream", "key", "submitted"),
)

TOUCHED: Final = _record(
    **_all("i8", "table", "is_written", "version", "start_version", "behind", "overlaps"),
    **_all("i8", "end_generation", "end_offset"),
)

PART: Final = _record(
    **_all("i8", "partition", "is_written", "version", "start_version", "behind", "end_generation", "end_offset")
)

EVENT: Final = _record(time="f8", key="i8", place="u8")

SLOT: Final = _record(
    **_all("f8", "now", "before", "after", "submit", "runtime"),
    times=f"({COMPONENTS},)f8",
    **_all("f8", "start", "commit_start", "run_commit_start", "pending_from", "executing_from", "backoff", "taken"),
    **_all("i8", "txn", "source", "stream", "costs", "waiting", "outcome", "is_applied"),
    **_all("i8", "attempts", "seq", "log_offset", "log_sealed", "physical_failures"),
    **_all("i8", "touched", "is_tracked", "parts", "lists", "tentative"),
    **_all("i8", "stage", "table", "list", "entry", "entries", "is_redone", "is_merged", "keeps_entries"),
    **_all("i8", *COUNTS),
)

CATALOG_COUNTERS: Final = (
    "append_physical_success",
    "append_physical_failure",
    "append_logical_success",
    "append_logical_conflict",
    "append_compactions_triggered",
    "append_compactions_completed",
)
LIST_COUNTERS: Final = (
    "manifest_append_physical_success",
    "manifest_append_physical_failure",
    "manifest_append_sealed_rewrite",
    "manifest_append_orphans",
)


class Array(NamedTuple):
    """An array of a run: what it holds, and by what it is indexed."""

    dtype: np.dtype[Any]
    dimensions: int = 1


_FLOATS: Final = np.dtype(np.float64)
_INTEGERS: Final = np.dtype(np.int64)

ARRAYS: Final = {
    "latencies": Array(LATENCY),  # by Operation, then each stream's
    "quantiles": Array(_FLOATS, 2),  # probability and value
    "choices": Array(CHOICE),
    "weights": Array(_FLOATS),
    "sums": Array(_FLOATS),  # of the weights so far
    "costs": Array(COSTS),
    "streams": Array(STREAM),
    "partition_choices": Array(_INTEGERS),  # by table
    "workload_groups": Array(
        _INTEGERS, 2
    ),  # by table: its group, its place there, the table at this place of all groups
    "group_members": Array(_INTEGERS, 2),  # by group: where it begins among those, its choice
    "catalog_groups": Array(_INTEGERS),  # by table
    "sources": Array(SOURCE),
    "source_rngs": Array(RNG),
    "scratch_rng": Array(RNG),  # one
    "scratch": Array(_INTEGERS, 2),
    "table_versions": Array(_INTEGERS),
    "whole_bumps": Array(_INTEGERS),  # by table: commits to all of its partitions
    "partition_offsets": Array(_INTEGERS),  # by table
    "partition_versions": Array(_INTEGERS),  # commits to a partition alone
    "group_seqs": Array(_INTEGERS),
    "list_ends": Array(_INTEGERS, 2),  # generation, offset, whether sealed
    "heap": Array(EVENT),
    "free": Array(np.dtype(np.uint64)),  # a stack of idle slots
    "slots": Array(SLOT),
    "rngs": Array(RNG),  # by slot
    "touched": Array(TOUCHED, 2),  # by slot and place
    "parts": Array(PART, 3),  # by slot, place of the table, and place
    "row_times": Array(_FLOATS, 2),  # by RowTime and row
    "row_numbers": Array(_INTEGERS, 2),  # by RowNumber and row
    "row_tables": Array(np.dtype(np.int32)),
    "total_numbers": Array(_INTEGERS, 2),  # by name of operation
    "total_times": Array(_FLOATS, 2),  # by name of operation
}


def address_field(name: str) -> str:
    """Return the field of RUN that holds the address of an array."""
    return f"{name}_at"


def length_field(name: str, axis: int) -> str:
    """Return the field of RUN that holds a length of an array."""
    return f"{name}_length_{axis}"


RUN: Final = _record(
    **_all("f8", "duration", "end", "effect_point", "total_timeout", "restarts_end", "probability"),
    **_all("f8", "backoff_base", "backoff_multiplier", "backoff_max", "backoff_jitter"),
    **_all("i8", "backs_off", "has_iceberg_jitter", "max_retries", "max_restarts", "on_real_conflict"),
    **_all("i8", "is_log", "scope", "is_serializable", "is_inlined", "max_parallel"),
    **_all("i8", "commit_fails_apart", "compaction_fails_apart", "list_append_fails_apart"),
    **_all("i8", "overlaps_by_table", "history_by_table", "detects_partitions", "conflicting_min", "conflicting_max"),
    **_all("i8", "appends_to_lists", "list_per_partition", "list_bytes", "list_growth", "entry_bytes", "seal_bytes"),
    **_all("i8", "log_entry_bytes", "compaction_threshold", "compaction_max_entries", "max_physical_retries"),
    **_all("i8", "seq", "log_at", "checkpoint_at", "log_entries", "is_log_sealed"),
    **_all(
        "i8", "submitted", "committed", "aborted", "retries", "events", "draws", "rows", "pending", "free", "has_begun"
    ),
    **_all("f8", "now", "last_end", "bad_delay"),
    **_all("i8", *CATALOG_COUNTERS, *LIST_COUNTERS),
    **_all("u8", *map(address_field, ARRAYS)),
    **_all("i8", *(length_field(name, axis) for name, array in ARRAYS.items() for axis in range(array.dimensions))),
)
