"""The results file: one row per finished transaction, in the order they ended.

The schema of a row is written down once, here. A file gets its name only when it is complete, so a results
file that exists is whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, overload

import pyarrow as pa
import pyarrow.parquet as pq

from endive.files import UnfinishedFile
from endive.transaction import TransactionResult, TransactionStatus

ROWS_PER_GROUP: Final = 65_536
METADATA_KEY: Final = "endive"


class Column(NamedTuple):
    """A column of the results, and the attribute of `TransactionResult` that fills it."""

    name: str
    attribute: str
    type: pa.DataType
    nullable: bool = False


COLUMNS: Final = (
    Column("txn_id", "txn_id", pa.int64()),
    Column("t_submit", "submit_time_ms", pa.float64()),
    Column("t_runtime", "runtime_ms", pa.float64()),
    Column("t_commit", "commit_time_ms", pa.float64()),
    Column("commit_latency", "commit_latency_ms", pa.float64()),
    Column("total_latency", "total_latency_ms", pa.float64()),
    Column("n_retries", "total_retries", pa.int32()),
    Column("status", "status", pa.string()),
    Column("operation_type", "operation_type", pa.string()),
    Column("abort_reason", "abort_reason", pa.string(), nullable=True),
    Column("manifest_list_reads", "manifest_list_reads", pa.int64()),
    Column("manifest_list_writes", "manifest_list_writes", pa.int64()),
    Column("manifest_file_reads", "manifest_file_reads", pa.int64()),
    Column("manifest_file_writes", "manifest_file_writes", pa.int64()),
    Column("catalog_read_ms", "catalog_read_ms", pa.float64()),
    Column("per_attempt_io_ms", "per_attempt_io_ms", pa.float64()),
    Column("conflict_io_ms", "conflict_io_ms", pa.float64()),
    Column("catalog_commit_ms", "catalog_commit_ms", pa.float64()),
    Column("stream", "stream", pa.string()),
    Column("t_abort", "abort_time_ms", pa.float64()),
    Column("attempts", "attempts", pa.int32()),
    Column("restarts", "restarts", pa.int32()),
    Column("no_overlap_conflicts", "no_overlap_conflicts", pa.int32()),
    Column("false_conflicts", "false_conflicts", pa.int32()),
    Column("real_conflicts", "real_conflicts", pa.int32()),
    Column("start_ms", "start_ms", pa.float64()),
    Column("backoff_ms", "backoff_ms", pa.float64()),
    Column("overhead_ms", "overhead_ms", pa.float64()),
    Column("restart_ms", "restart_ms", pa.float64()),
    Column("historical_ml_reads", "historical_ml_reads", pa.int64()),
    Column("manifest_list_appends", "manifest_list_appends", pa.int64()),
    Column("metadata_reads", "metadata_reads", pa.int64()),
    Column("metadata_writes", "metadata_writes", pa.int64()),
    Column("append_physical_failures", "append_physical_failures", pa.int64()),
    Column("tables_written", "tables_written", pa.list_(pa.field("table", pa.int32(), nullable=False))),
)

SCHEMA: Final = pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in COLUMNS])

# Measured against the defaults: half the time to write, a quarter of the bytes less. Times hardly repeat, so their
# bytes are split by place instead of looked up; what repeats is looked up.
_TIMES: Final = [field.name for field in SCHEMA if pa.types.is_floating(field.type)]
WRITE_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [
        "tables_written.list.element",
        *(field.name for field in SCHEMA if field.name not in (*_TIMES, "txn_id", "tables_written")),
    ],
    "column_encoding": dict.fromkeys(_TIMES, "BYTE_STREAM_SPLIT") | {"txn_id": "DELTA_BINARY_PACKED"},
}

ROW_ATTRIBUTES: Final = tuple(column.attribute for column in COLUMNS)
_attributes = attrgetter(*ROW_ATTRIBUTES)
_STATUS_POSITION: Final = SCHEMA.get_field_index("status")


class ResultRows(Sequence[TransactionResult]):
    """Results kept as a table in schema order; a row becomes a `TransactionResult` when it is looked at."""

    def __init__(self, table: pa.Table) -> None:
        self.table: Final = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResultRows):
            return bool(self.table.equals(other.table))
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    @overload
    def __getitem__(self, index: int) -> TransactionResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[TransactionResult]: ...

    def __getitem__(self, index: int | slice) -> TransactionResult | list[TransactionResult]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return list(ResultRows(self.table.take(list(places))))
        return next(iter(ResultRows(self.table.slice(places, 1))))

    def __add__(self, other: Iterable[TransactionResult]) -> list[TransactionResult]:
        return [*self, *other]

    def __radd__(self, other: Iterable[TransactionResult]) -> list[TransactionResult]:
        return [*other, *self]

    def __iter__(self) -> Iterator[TransactionResult]:
        for batch in self.table.to_batches():
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                values = dict(zip(ROW_ATTRIBUTES, row, strict=True))
                values["status"] = TransactionStatus[values["status"].upper()]
                values["tables_written"] = tuple(values["tables_written"])
                yield TransactionResult(**values)


def to_table(results: Sequence[TransactionResult]) -> pa.Table:
    """Return results as an Arrow table in schema order."""
    if isinstance(results, ResultRows):
        return results.table
    columns: list[Any] = list(zip(*map(_attributes, results), strict=True)) or [()] * len(COLUMNS)
    columns[_STATUS_POSITION] = [status.name.lower() for status in columns[_STATUS_POSITION]]
    arrays = [pa.array(values, type=column.type) for values, column in zip(columns, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


RowSink = Callable[[pa.Table], None]


class ResultsWriter:
    """Writes results to `path` a row group at a time; the file appears under its name on `commit()`.

    `on_rows` is handed each row group as it is written.
    """

    def __init__(self, path: Path, on_rows: RowSink | None = None) -> None:
        self._on_rows = on_rows
        self._buffer: list[TransactionResult] = []
        self._file = UnfinishedFile(path)
        self._writer = pq.ParquetWriter(self._file.stream, SCHEMA, **WRITE_OPTIONS)

    def append(self, result: TransactionResult) -> None:
        self._buffer.append(result)
        if len(self._buffer) == ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        self.write_group(to_table(self._buffer))
        self._buffer.clear()

    def write_all(self, results: Sequence[TransactionResult]) -> None:
        """Write results, in row groups of `ROWS_PER_GROUP`."""
        rows = to_table(results)
        for start in range(0, rows.num_rows, ROWS_PER_GROUP):
            self.write_group(rows.slice(start, ROWS_PER_GROUP))

    def write_group(self, rows: pa.Table) -> None:
        """Write up to `ROWS_PER_GROUP` rows as a row group of their own."""
        self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        if self._on_rows is not None:
            self._on_rows(rows)

    def commit(self, metadata: Mapping[str, Any]) -> None:
        """Write what is left and the metadata, then give the file its name."""
        if self._buffer:
            self._flush()
        self._writer.add_key_value_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True)})
        self._writer.close()
        self._file.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was written, unless it was committed."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._writer.is_open = False
        self._file.discard(error)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a results file says of the run that it holds."""
    footer = pq.read_metadata(path).metadata or {}
    metadata: dict[str, Any] = json.loads(footer[METADATA_KEY.encode()])
    return metadata
