"""What one run tells, small and mergeable: counts, histograms and a coarse time series for each operation type.

`RunSummarizer` takes rows as they come, from a run or from a file, and knows neither Spark nor files. Counts and
histogram bins do not depend on how rows were cut up; sums of times do, by rounding (the same row groups give the same
bits).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from endive.config_rules import effective_stream
from endive.files import whole_file
from endive.pipeline import histogram
from endive.pipeline.histogram import Floats, Histogram
from endive.pipeline.schemas import (
    ALL,
    CENSORED_MEASURES,
    COMMITTED_MEASURES,
    COUNTS,
    RUN_SUMMARY,
    SUMMED_COUNTS,
)
from endive.settings import Settings

if TYPE_CHECKING:
    from endive.simulation import InFlightTimes

SERIES_BINS: Final = 120
SERIES_COUNTS: Final = ("series_submitted", "series_committed", "series_aborted")
SERIES_SUMS: Final = ("series_commit_latency_ms",)
SERIES: Final = (*SERIES_COUNTS, *SERIES_SUMS)
IN_FLIGHT: Final = ("in_flight_submit_ms", "in_flight_commit_start_ms")
MEASURES: Final = (*COMMITTED_MEASURES, *CENSORED_MEASURES)

_NUMBERS: Final = ("t_submit", "t_commit", "t_abort", *COMMITTED_MEASURES, *SUMMED_COUNTS)
SUMMARIZED_COLUMNS: Final = (*_NUMBERS, "operation_type", "abort_reason")
"""The columns of rows that a summary is made of."""

SUMMARY_NAME: Final = "summary.parquet"

WINDOW_EDGE_MS: Final = (5 * 60_000.0, 15 * 60_000.0)

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, order=True)
class Window:
    """A part of a run: from `start_ms` up to, not including, `end_ms`."""

    start_ms: float
    end_ms: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.start_ms < self.end_ms:
            raise ValueError(f"the window is {self.start_ms} to {self.end_ms} ms; allowed is from 0 to a later instant")

    @property
    def duration_ms(self) -> float:
        return self.end_ms - self.start_ms

    def holds(self, times_ms: Floats) -> Mask:
        """Return which of the instants are in it."""
        return (times_ms >= self.start_ms) & (times_ms < self.end_ms)


def steady_window(settings: Settings) -> Window:
    """Return a run without its warm-up and cool-down.

    Each is three mean runtimes (of the stream whose mean is largest, floor included), but at least 5 and at most
    15 minutes, and never more than a quarter of the duration.
    """
    duration_ms = settings.simulation.duration_ms
    streams = [effective_stream(settings, stream) for stream in settings.streams] or [settings.transaction]
    means_ms = [stream.runtime.to_latency().mean_ms() for stream in streams if stream.runtime is not None]
    shortest_ms, longest_ms = WINDOW_EDGE_MS
    edge_ms = min(max(3.0 * max(means_ms), shortest_ms), longest_ms, duration_ms / 4.0)
    return Window(edge_ms, duration_ms - edge_ms)


class Run(NamedTuple):
    """The run that a summary is of, and the part of it that makes the cohort."""

    exp_name: str
    exp_hash: str
    seed: int
    duration_ms: float
    window: Window


@dataclass
class OperationSummary:
    """What the transactions of one operation type did, in one run or several."""

    counts: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(default_factory=lambda: {name: Histogram() for name in MEASURES})
    series: dict[str, Numbers] = field(
        default_factory=lambda: {
            **{name: np.zeros(SERIES_BINS, dtype=np.int64) for name in SERIES_COUNTS},
            **{name: np.zeros(SERIES_BINS) for name in SERIES_SUMS},
        }
    )
    in_flight: dict[str, Floats] = field(default_factory=lambda: {name: np.empty(0) for name in IN_FLIGHT})

    def merge(self, other: OperationSummary) -> None:
        """Add what another summary tells."""
        self.counts.update(other.counts)
        for name, measured in other.histograms.items():
            self.histograms[name].merge(measured)
        for name, values in other.series.items():
            self.series[name] = self.series[name] + values
        for name, times_ms in other.in_flight.items():
            self.in_flight[name] = np.concatenate([self.in_flight[name], times_ms])


SummaryRow: TypeAlias = tuple[Run, str, OperationSummary]
"""A row of `schemas.RUN_SUMMARY`: the run, the operation type, and what its transactions did."""


def merge_summaries(parts: Iterable[OperationSummary]) -> OperationSummary:
    """Return a new summary of all that the parts tell."""
    whole = OperationSummary()
    for part in parts:
        whole.merge(part)
    return whole


class RunSummarizer:
    """Summarizes the rows of one run as they come."""

    def __init__(self, exp_name: str, exp_hash: str, seed: int, duration_ms: float, window: Window) -> None:
        self._run = Run(exp_name, exp_hash, seed, duration_ms, window)
        self._operations: dict[str, OperationSummary] = {}

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows that have at least the columns of `SUMMARIZED_COLUMNS`."""
        if not rows.num_rows:
            return
        numbers = {name: rows.column(name).to_numpy() for name in _NUMBERS}
        reasons, codes = _encoded(rows.column("abort_reason"))
        for operation, own in _by_operation(rows.column("operation_type")):
            summary = self._operations.setdefault(operation, OperationSummary())
            _add_series(summary, numbers, own, self._run.duration_ms)
            _add_cohort(summary, numbers, own, self._run.window)
            if reasons:
                in_window = own & self._run.window.holds(numbers["t_submit"])
                found = np.bincount(codes[_places(in_window)], minlength=len(reasons) + 1).tolist()
                summary.counts.update(dict(zip(reasons, found, strict=False)))

    def finish(self, in_flight_times: Mapping[str, InFlightTimes]) -> pa.Table:
        """Return the summary in `schemas.RUN_SUMMARY`, by operation type; it includes what never finished.

        A run in which nothing was submitted has one row, of type `schemas.ALL`, so that it counts among the seeds.
        """
        rows: list[SummaryRow] = []
        for operation in sorted({*self._operations, *in_flight_times}):
            summary = merge_summaries([self._operations.get(operation, OperationSummary())])
            if operation in in_flight_times:
                times = in_flight_times[operation]
                add_in_flight(summary, np.asarray(times.submit_ms), np.asarray(times.commit_start_ms), self._run)
            rows.append((self._run, operation, summary))
        return to_table(rows or [(self._run, ALL, OperationSummary())])


def add_in_flight(summary: OperationSummary, submit_ms: Floats, commit_start_ms: Floats, run: Run) -> None:
    """Add transactions that had not finished when the run ended; NaN: the commit had not begun."""
    in_window = run.window.holds(submit_ms)
    count = int(np.count_nonzero(in_window))
    summary.counts.update({"submitted": count, "in_flight": count})
    lasted_ms = run.duration_ms - commit_start_ms[in_window]
    summary.histograms["in_flight_latency"].add(lasted_ms[~np.isnan(lasted_ms)])
    summary.series["series_submitted"] += _series_counts(submit_ms, run.duration_ms)
    for name, times_ms in zip(IN_FLIGHT, (submit_ms, commit_start_ms), strict=True):
        summary.in_flight[name] = np.concatenate([summary.in_flight[name], times_ms])


def _by_operation(column: pa.ChunkedArray[Any]) -> Iterator[tuple[str, Mask]]:
    """Yield each operation type of a column, and which rows are its own."""
    operations, codes = _encoded(column)
    for code, operation in enumerate(operations):
        own = codes == code
        if own.any():
            yield operation, own


def _encoded(column: pa.ChunkedArray[Any]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the texts of a column, and for each row the place of its own, past the last one where it has none."""
    texts = column.unify_dictionaries().combine_chunks()
    encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    found: list[Any] = encoded.dictionary.to_pylist()
    return found, encoded.indices.fill_null(len(found)).to_numpy()


def _add_series(summary: OperationSummary, numbers: Mapping[str, Numbers], own: Mask, duration_ms: float) -> None:
    committed = _places(own & (numbers["t_commit"] >= 0.0))
    aborted = _places(own & (numbers["t_abort"] >= 0.0))
    commits_ms = numbers["t_commit"][committed]
    latencies_ms = numbers["commit_latency"][committed]
    summary.series["series_submitted"] += _series_counts(numbers["t_submit"][_places(own)], duration_ms)
    summary.series["series_committed"] += _series_counts(commits_ms, duration_ms)
    summary.series["series_aborted"] += _series_counts(numbers["t_abort"][aborted], duration_ms)
    bins = _series_bins(commits_ms, duration_ms)
    sums_ms = np.bincount(bins, weights=latencies_ms, minlength=SERIES_BINS + 1)[:SERIES_BINS]
    summary.series["series_commit_latency_ms"] += sums_ms


def _add_cohort(summary: OperationSummary, numbers: Mapping[str, Numbers], own: Mask, window: Window) -> None:
    in_window = own & window.holds(numbers["t_submit"])
    is_committed = numbers["t_commit"] >= 0.0
    finished, committed = _places(in_window), _places(in_window & is_committed)
    for name in COMMITTED_MEASURES:
        summary.histograms[name].add(numbers[name][committed])
    summary.histograms["aborted_latency"].add(numbers["commit_latency"][_places(in_window & ~is_committed)])
    total, commits = (int(np.count_nonzero(mask)) for mask in (in_window, in_window & is_committed))
    summary.counts.update(
        {
            "submitted": total,
            "committed": commits,
            "aborted": total - commits,
            "acknowledged": int(np.count_nonzero(own & window.holds(numbers["t_commit"]))),
            **{name: int(numbers[name][finished].sum(dtype=np.int64)) for name in SUMMED_COUNTS},
        }
    )


def _places(mask: Mask) -> slice | npt.NDArray[np.intp]:
    """Return what selects the rows of a mask; without copying if that is all of them."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _series_bins(times_ms: Floats, duration_ms: float) -> npt.NDArray[np.int64]:
    """Return the bin of each instant; SERIES_BINS for what came after the duration, in a drain."""
    bins = np.minimum(times_ms * (SERIES_BINS / duration_ms), SERIES_BINS - 1).astype(np.int64)
    bins[times_ms >= duration_ms] = SERIES_BINS
    return bins


def _series_counts(times_ms: Floats, duration_ms: float) -> npt.NDArray[np.int64]:
    return np.bincount(_series_bins(times_ms, duration_ms), minlength=SERIES_BINS + 1)[:SERIES_BINS]


def to_table(rows: Sequence[SummaryRow]) -> pa.Table:
    """Return rows as a table in `schemas.RUN_SUMMARY`."""
    runs = [run for run, _, _ in rows]
    summaries = [summary for _, _, summary in rows]
    columns: dict[str, Any] = {
        "exp_name": [run.exp_name for run in runs],
        "exp_hash": [run.exp_hash for run in runs],
        "seed": [run.seed for run in runs],
        "operation_type": [operation for _, operation, _ in rows],
        "duration_ms": [run.duration_ms for run in runs],
        "window_start_ms": [run.window.start_ms for run in runs],
        "window_end_ms": [run.window.end_ms for run in runs],
        "series_bin_ms": [run.duration_ms / SERIES_BINS for run in runs],
        **{name: [summary.counts[name] for summary in summaries] for name in COUNTS},
        **{name: histogram.to_arrow([summary.histograms[name] for summary in summaries]) for name in MEASURES},
        **{name: _list_column(name, [summary.series[name] for summary in summaries]) for name in SERIES},
        **{name: _list_column(name, [summary.in_flight[name] for summary in summaries]) for name in IN_FLIGHT},
    }
    arrays = [pa.array(columns[column.name], type=column.type) for column in RUN_SUMMARY]
    return pa.Table.from_arrays(arrays, schema=RUN_SUMMARY)


def _list_column(name: str, rows: Sequence[Numbers]) -> pa.Array[Any]:
    ends = pa.array(np.cumsum([0, *(row.size for row in rows)]), type=pa.int32())
    values = pa.array(np.concatenate([np.empty(0), *rows]))
    column_type: Any = RUN_SUMMARY.field(name).type
    return pa.ListArray.from_arrays(ends, values.cast(column_type.value_type), type=column_type)


def from_table(table: pa.Table) -> list[SummaryRow]:
    """Return the rows of a table in `schemas.RUN_SUMMARY`; what it has no column for is left empty."""
    runs = _runs_of(table)
    operations: list[Any] = table.column("operation_type").to_pylist()
    summaries = [OperationSummary() for _ in runs]
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if name in COUNTS:
            counts: list[Any] = column.to_pylist()
            for summary, count in zip(summaries, counts, strict=True):
                summary.counts[name] = count
        elif name in MEASURES:
            for summary, measured in zip(summaries, histogram.from_arrow(column), strict=True):
                summary.histograms[name] = measured
        elif name in SERIES or name in IN_FLIGHT:
            for summary, values in zip(summaries, histogram.lists_of(column), strict=True):
                (summary.series if name in SERIES else summary.in_flight)[name] = values
    return list(zip(runs, operations, summaries, strict=True))


def _runs_of(table: pa.Table) -> list[Run]:
    names = ("exp_name", "exp_hash", "seed", "duration_ms", "window_start_ms", "window_end_ms")
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    return [
        Run(exp_name, exp_hash, seed, duration_ms, Window(start_ms, end_ms))
        for exp_name, exp_hash, seed, duration_ms, start_ms, end_ms in zip(*columns, strict=True)
    ]


def merge_run_summaries(table: pa.Table) -> pa.Table:
    """Return one row for each run and operation type of a table in `schemas.RUN_SUMMARY`, in that order.

    Rows of a run in which nothing was submitted fall away beside others of that run.
    """
    merged: list[SummaryRow] = []
    for run, own in groupby(sorted(from_table(table), key=itemgetter(0, 1)), key=itemgetter(0)):
        by_operation: dict[str, list[OperationSummary]] = {}
        for _, operation, summary in own:
            by_operation.setdefault(operation, []).append(summary)
        if len(by_operation) > 1:
            by_operation.pop(ALL, None)
        merged += [(run, operation, merge_summaries(parts)) for operation, parts in by_operation.items()]
    return to_table(merged)


def write_run_summary(path: Path, table: pa.Table) -> None:
    """Write a table in `schemas.RUN_SUMMARY`; the name appears when the file is whole."""
    with whole_file(path) as stream:
        pq.write_table(table, stream, compression="zstd", use_dictionary=False, write_statistics=False)


def read_run_summary(path: Path, columns: Sequence[str] = RUN_SUMMARY.names) -> pa.Table:
    """Return columns of a run's summary; raise OSError, ValueError or pa.ArrowException if it does not hold them."""
    with pq.ParquetFile(path) as file:
        table = file.read(columns=list(columns), use_threads=False).select(list(columns))
    schema = pa.schema(map(RUN_SUMMARY.field, columns))
    return table.replace_schema_metadata() if table.schema.equals(schema) else table.cast(schema)
