"""Records what transactions did, for the eyes (Chrome and Perfetto traces) and for queries (an event log)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from endive.transaction import COMMIT_FAILED, Transaction

_EVENT_TYPES: Final[dict[str, pa.DataType]] = {
    "txn_id": pa.int64(),
    "stream": pa.string(),
    "operation_type": pa.string(),
    "attempt": pa.int32(),
    "event": pa.string(),
    "start_ms": pa.float64(),
    "end_ms": pa.float64(),
    "operations": pa.int64(),
}
EVENT_SCHEMA: Final = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _EVENT_TYPES.items()])

_MICROSECONDS: Final = 1000.0
_COLORS: Final = {COMMIT_FAILED: "terrible", "committed": "good"}


class Event(NamedTuple):
    """One thing that a transaction did. A step has a length; what just happened has none."""

    txn_id: int
    stream: str
    operation_type: str
    attempt: int
    event: str
    start_ms: float
    end_ms: float
    operations: int


class TraceRecorder:
    """Observes the first `limit` transactions of a run."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._observed: list[Transaction] = []
        self.events: list[Event] = []

    @property
    def recorded(self) -> int:
        """How many transactions were observed."""
        return len(self._observed)

    @property
    def is_complete(self) -> bool:
        """Whether as many transactions as wanted have come to their end."""
        return self.recorded == self._limit and all(txn.has_ended for txn in self._observed)

    def admit(self, txn: Transaction) -> None:
        """Observe a transaction that has just been submitted, if the limit allows."""
        if self.recorded < self._limit:
            txn.observer = self._observe
            self._observed.append(txn)

    def lifetimes(self) -> Iterator[tuple[Transaction, float, float]]:
        """Yield each observed transaction with its submission and the end of its last step, in milliseconds."""
        for txn in self._observed:
            yield txn, txn.submit_time_ms, txn.now_ms

    def _observe(self, txn: Transaction, what: str, start_ms: float, end_ms: float, count: int) -> None:
        event = Event(txn.txn_id, txn.stream, txn.operation_type, txn.attempts, what, start_ms, end_ms, count)
        self.events.append(event)


def chrome_trace(recorder: TraceRecorder) -> dict[str, Any]:
    """Return a trace that chrome://tracing and Perfetto show: a row for each transaction, grouped by stream."""
    streams = sorted({txn.stream for txn, _, _ in recorder.lifetimes()})
    process = {stream: place + 1 for place, stream in enumerate(streams)}
    entries: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process[stream], "args": {"name": stream or "transactions"}}
        for stream in streams
    ]
    for txn, start_ms, end_ms in recorder.lifetimes():
        place = {"pid": process[txn.stream], "tid": txn.txn_id}
        title = f"{txn.txn_id} {txn.operation_type}"
        entries.append({"ph": "M", "name": "thread_name", **place, "args": {"name": title}})
        entries.append({"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": txn.txn_id}})
        about = {"outcome": txn.status.name.lower(), "tables": sorted(txn.tables_written)}
        entries.append(_slice(title, start_ms, end_ms, about) | place)
    for event in recorder.events:
        place = {"pid": process[event.stream], "tid": event.txn_id}
        arguments = {"attempt": event.attempt, "operations": event.operations}
        if event.end_ms > event.start_ms:
            entries.append(_slice(event.event, event.start_ms, event.end_ms, arguments) | place)
        else:
            entries.append(_mark(event.event, event.end_ms, arguments) | place)
    return {"displayTimeUnit": "ms", "traceEvents": entries}


def _slice(name: str, start_ms: float, end_ms: float, arguments: dict[str, Any]) -> dict[str, Any]:
    length = (end_ms - start_ms) * _MICROSECONDS
    return {"ph": "X", "name": name, "ts": start_ms * _MICROSECONDS, "dur": length, "args": arguments}


def _mark(name: str, at_ms: float, arguments: dict[str, Any]) -> dict[str, Any]:
    mark = {"ph": "i", "s": "t", "name": name, "ts": at_ms * _MICROSECONDS, "args": arguments}
    return mark | ({"cname": _COLORS[name]} if name in _COLORS else {})


def write_chrome_trace(recorder: TraceRecorder, file: BinaryIO) -> None:
    """Write the trace as JSON."""
    file.write(json.dumps(chrome_trace(recorder), separators=(",", ":")).encode())


def event_table(recorder: TraceRecorder) -> pa.Table:
    """Return the events, one row each, in the order in which they ended."""
    columns: list[Any] = list(zip(*recorder.events, strict=True)) or [()] * len(EVENT_SCHEMA)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, EVENT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def write_event_log(recorder: TraceRecorder, file: BinaryIO) -> None:
    """Write the events as Parquet."""
    pq.write_table(event_table(recorder), file, compression="zstd")
