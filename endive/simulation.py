"""Runs a simulation on SimPy, and keeps its statistics. The only module that knows SimPy.

Events at equal times happen in one order: transactions before arrivals; transactions by id; arrivals by the
order of their stream, then by client (decision 0002).
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from array import array
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import simpy

from endive import MODEL_VERSION, __version__
from endive.catalog import Catalog, CatalogCounters
from endive.manifest_list import ManifestListCounters, ManifestLists
from endive.policy import Backoff, CommitPolicy, JitterKind
from endive.random_streams import SEED_MAX, Source, SubstreamFamily, new_random_state
from endive.results import ResultRows, ResultsWriter, RowSink, to_table
from endive.storage import StorageProvider
from endive.transaction import ConflictDetector, Transaction, TransactionResult
from endive.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from endive.engine.encoding import Machine

_logger = logging.getLogger("endive")

Engine = Literal["auto", "compiled", "reference"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)
Progress = Callable[[float, "Statistics"], None]


class Recorder(Protocol):
    """Watches transactions from their submission on."""

    @property
    def is_complete(self) -> bool: ...

    def admit(self, txn: Transaction) -> None: ...


EVENTS_PER_PROGRESS: Final = 8192
_ARRIVALS_FROM: Final = 1 << 62
_CLIENTS_PER_STREAM: Final = 1 << 32


@dataclass(frozen=True)
class SimulationConfig:
    """What to simulate. A run changes nothing in it: components describe, and each run makes its own state.

    `seed` None: every run draws one, and reports it. `drain`: arrivals stop at `duration_ms`, and the run goes on until
    every transaction has ended. The `backoff_*` fields decide the backoff, whatever `policy` says.
    """

    duration_ms: float
    seed: int | None

    storage_provider: StorageProvider
    catalog: Catalog
    workload: Workload
    conflict_detector: ConflictDetector

    max_retries: int = 10
    ml_append_mode: bool = False

    backoff_enabled: bool = False
    backoff_base_ms: float = 10.0
    backoff_multiplier: float = 2.0
    backoff_max_ms: float = 5000.0
    backoff_jitter: float = 0.1
    backoff_jitter_kind: JitterKind = "symmetric"

    drain: bool = False
    policy: CommitPolicy = CommitPolicy()
    config_hash: str = ""

    def __post_init__(self) -> None:
        if not 0.0 < self.duration_ms < math.inf:
            raise ValueError(f"duration_ms is {self.duration_ms}; allowed is a positive number")
        if self.seed is not None and not 0 <= self.seed <= SEED_MAX:
            raise ValueError(f"seed is {self.seed}; allowed is 0 to {SEED_MAX}")
        if self.max_retries < 0:
            raise ValueError(f"max_retries is {self.max_retries}; allowed is 0 or more")

    def effective_policy(self) -> CommitPolicy:
        """Return the policy that transactions obey, with this configuration's backoff and end of restarts."""
        backoff = Backoff(
            self.backoff_base_ms,
            self.backoff_multiplier,
            self.backoff_max_ms,
            self.backoff_jitter,
            self.backoff_jitter_kind,
        )
        return replace(
            self.policy,
            backoff=backoff if self.backoff_enabled else None,
            restarts_end_ms=self.duration_ms if self.drain else math.inf,
        )


@dataclass
class OperationTotals:
    """Sums over the finished transactions of one operation type. Times in milliseconds."""

    committed: int = 0
    aborted: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    times_ms: Counter[str] = field(default_factory=Counter)
    commit_latencies_ms: array[float] = field(default_factory=lambda: array("d"))

    def add(self, result: TransactionResult) -> None:
        self.retries += result.total_retries
        for name in SUMMED_COUNTS:
            self.counts[name] += getattr(result, name)
        for name in SUMMED_TIMES:
            self.times_ms[name] += getattr(result, name)
        if result.abort_reason is None:
            self.committed += 1
            self.commit_latencies_ms.append(result.commit_latency_ms)
        else:
            self.aborted[result.abort_reason] += 1


SUMMED_COUNTS: Final = (
    "manifest_list_reads",
    "historical_ml_reads",
    "manifest_list_writes",
    "manifest_list_appends",
    "manifest_file_reads",
    "manifest_file_writes",
    "metadata_reads",
    "metadata_writes",
    "append_physical_failures",
    "no_overlap_conflicts",
    "false_conflicts",
    "real_conflicts",
    "restarts",
)
SUMMED_TIMES: Final = (
    "catalog_read_ms",
    "per_attempt_io_ms",
    "conflict_io_ms",
    "catalog_commit_ms",
    "backoff_ms",
    "overhead_ms",
    "restart_ms",
)


@dataclass(eq=False)
class InFlightTimes:
    """When the transactions still running at the end began, in milliseconds, in the order of their ids.

    The commit phase begins once, however often a transaction restarts; NaN where it had not begun.
    """

    submit_ms: array[float] = field(default_factory=lambda: array("d"))
    commit_start_ms: array[float] = field(default_factory=lambda: array("d"))

    def __eq__(self, other: object) -> bool:
        """Return whether every bit is the same: NaN, which equals nothing, is the same as NaN."""
        return isinstance(other, InFlightTimes) and self._bits() == other._bits()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def _bits(self) -> tuple[bytes, bytes]:
        return self.submit_ms.tobytes(), self.commit_start_ms.tobytes()


@dataclass
class Statistics:
    """What a run found. `transactions` is empty for a run whose rows went to a file as it ran.

    `in_flight` counts the transactions still running at the end by (operation type, phase), and `in_flight_times` has
    their times by operation type; `in_flight_applied` of them had their commit installed but not answered, and wrote
    `in_flight_applied_tables`.
    """

    transactions: list[TransactionResult] | ResultRows = field(default_factory=list)

    committed: int = 0
    aborted: int = 0
    total_retries: int = 0
    validation_exceptions: int = 0
    manifest_list_reads: int = 0
    manifest_list_writes: int = 0
    manifest_file_reads: int = 0
    manifest_file_writes: int = 0

    submitted: int = 0
    in_flight: Counter[tuple[str, str]] = field(default_factory=Counter)
    in_flight_times: dict[str, InFlightTimes] = field(default_factory=dict)
    in_flight_applied: int = 0
    in_flight_applied_tables: Counter[int] = field(default_factory=Counter)
    final_seq: int = 0
    table_versions: tuple[int, ...] = ()
    catalog_counters: CatalogCounters = field(default_factory=CatalogCounters)
    manifest_list_counters: ManifestListCounters = field(default_factory=ManifestListCounters)
    operations: dict[str, OperationTotals] = field(default_factory=dict)

    seed: int = 0
    engine: str = "reference"
    config_hash: str = ""
    duration_ms: float = 0.0
    end_ms: float = 0.0
    events: int = 0

    def record_transaction(self, result: TransactionResult) -> None:
        """Count a finished transaction, and keep it."""
        self.count_transaction(result)
        if not isinstance(self.transactions, list):
            self.transactions = list(self.transactions)
        self.transactions.append(result)

    def count_transaction(self, result: TransactionResult) -> None:
        """Count a finished transaction without keeping it."""
        if result.abort_reason is None:
            self.committed += 1
        else:
            self.aborted += 1
            self.validation_exceptions += result.abort_reason == "validation_exception"
        self.total_retries += result.total_retries
        self.manifest_list_reads += result.manifest_list_reads
        self.manifest_list_writes += result.manifest_list_writes
        self.manifest_file_reads += result.manifest_file_reads
        self.manifest_file_writes += result.manifest_file_writes
        totals = self.operations.get(result.operation_type)
        if totals is None:
            totals = self.operations[result.operation_type] = OperationTotals()
        totals.add(result)

    def to_dataframe(self) -> pd.DataFrame:
        """Return the kept transactions, one row each, with the columns of a results file."""
        return to_table(self.transactions).to_pandas()

    def export_parquet(self, path: str | Path) -> None:
        """Write the kept transactions as a results file; the name appears when the file is whole."""
        with ResultsWriter(Path(path)) as writer:
            writer.write_all(self.transactions)
            writer.commit(self.provenance())

    def provenance(self) -> dict[str, Any]:
        """Return what a results file says of its run: how it was made, and what no row shows."""
        return {
            "version": __version__,
            "model_version": MODEL_VERSION,
            "engine": self.engine,
            "config_hash": self.config_hash,
            "seed": self.seed,
            "duration_ms": self.duration_ms,
            "end_ms": self.end_ms,
            "submitted": self.submitted,
            "committed": self.committed,
            "aborted": self.aborted,
            "in_flight": {f"{kind}/{phase}": count for (kind, phase), count in sorted(self.in_flight.items())},
            "in_flight_applied": self.in_flight_applied,
            "final_seq": self.final_seq,
            "table_versions": list(self.table_versions),
            "counters": {**self.catalog_counters.to_dict(), **self.manifest_list_counters.to_dict()},
        }


class Simulation:
    """A configuration that can be run, any number of times."""

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config

    def run(
        self,
        *,
        engine: Engine = "auto",
        output: str | Path | None = None,
        progress: Progress | None = None,
        recorder: Recorder | None = None,
        keep_transactions: bool = True,
        on_rows: RowSink | None = None,
        before_commit: Callable[[Statistics], None] | None = None,
    ) -> Statistics:
        """Simulate, and return what was found.

        `engine`: "reference" is readable and runs anything; "compiled" gives the same results hundreds of times
        faster, for built-in components (else NotCompiledError names the one that is not); "auto" takes the compiled
        one where it can.

        With `output`, rows go to that results file as the run goes, and are not kept; nor are they without
        `keep_transactions`. `progress` is called with the simulated time in milliseconds and the statistics so far,
        every few thousand events. A `recorder` sees every transaction as it is submitted, and ends the run when
        it has seen enough. `on_rows` is handed the rows of `output` a row group at a time, and `before_commit` what was
        found, before the file gets its name.
        """
        if engine not in ENGINES:
            raise ValueError(f"engine is {engine!r}; allowed is one of {', '.join(map(repr, ENGINES))}")
        seed = secrets.randbits(63) if self.config.seed is None else self.config.seed
        statistics = Statistics(seed=seed, config_hash=self.config.config_hash, duration_ms=self.config.duration_ms)
        machine = _compiled_machine(self.config, seed, engine, recorder)
        writer = None if output is None else ResultsWriter(Path(output), on_rows)
        with contextlib.nullcontext() if writer is None else writer:
            if machine is not None:
                self._run_compiled(machine, statistics, writer, progress, keep_transactions)
            else:
                self._run_reference(statistics, writer, progress, recorder, keep_transactions)
            if before_commit is not None:
                before_commit(statistics)
            if writer is not None:
                writer.commit(statistics.provenance())
        return statistics

    def _run_compiled(
        self,
        machine: Machine,
        statistics: Statistics,
        writer: ResultsWriter | None,
        progress: Progress | None,
        keep_transactions: bool,
    ) -> None:
        from endive.engine.run import run_machine

        groups: list[pa.Table] = []
        take_rows = writer.write_group if writer is not None else groups.append if keep_transactions else None
        run_machine(machine, self.config, statistics, take_rows, progress)
        if groups:
            statistics.transactions = ResultRows(pa.concat_tables(groups))

    def _run_reference(
        self,
        statistics: Statistics,
        writer: ResultsWriter | None,
        progress: Progress | None,
        recorder: Recorder | None,
        keep_transactions: bool,
    ) -> None:
        def write(result: TransactionResult) -> None:
            statistics.count_transaction(result)
            assert writer is not None
            writer.append(result)

        if writer is not None:
            record = write
        else:
            record = statistics.record_transaction if keep_transactions else statistics.count_transaction
        _SimPyRun(self.config, statistics, record, progress, recorder).run()


def _compiled_machine(config: SimulationConfig, seed: int, engine: Engine, recorder: Recorder | None) -> Machine | None:
    """Return the run for the compiled engine, or None if the reference is to run it."""
    if engine == "reference" or (engine == "auto" and recorder is not None):
        return None
    from endive.engine import NotCompiledError, prepare_machine

    if recorder is not None:
        raise NotCompiledError("a recorder watches the reference engine only")
    try:
        return prepare_machine(config, seed)
    except NotCompiledError as error:
        if engine == "compiled":
            raise
        _logger.warning("the reference engine runs this: %s", error)
        return None


class _Delay(simpy.Event):
    """A timeout whose place among simultaneous events is its priority."""

    def __init__(self, env: simpy.Environment, delay_ms: float, priority: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority, delay_ms)  # type: ignore[arg-type]  # any integer orders


@dataclass(frozen=True, slots=True)
class _Session:
    """One I/O stream, and the views of the shared components that draw from it. Used again and again."""

    rng: np.random.RandomState
    catalog: Catalog
    storage: StorageProvider
    conflict_detector: ConflictDetector


class _SimPyRun:
    """One run: its state, its processes, and the bridge from delays to SimPy events."""

    def __init__(
        self,
        config: SimulationConfig,
        statistics: Statistics,
        record: Callable[[TransactionResult], None],
        progress: Progress | None,
        recorder: Recorder | None,
    ) -> None:
        self._config = config
        self._seed = seed = statistics.seed
        self._statistics = statistics
        self._record = record
        self._progress = progress
        self._recorder = recorder
        self._env = simpy.Environment()
        self._catalog = config.catalog.fresh()
        self._policy = config.effective_policy()
        self._manifest_lists = ManifestLists(self._policy.manifest_list_log)
        self._streams = config.workload.bind(seed).streams
        self._numbers_arrivals = len(self._streams) > 1 or any(stream.clients for stream in self._streams)
        self._idle_sessions: list[_Session] = []
        self._in_flight: dict[int, Transaction] = {}
        self._last_end_ms = 0.0

    def run(self) -> None:
        for order, stream in enumerate(self._streams):
            for client in range(max(1, stream.clients)):
                priority = _ARRIVALS_FROM + order * _CLIENTS_PER_STREAM + client
                self._env.process(self._submissions(stream, client, priority))
        self._step_to_the_end()
        self._report()

    def _step_to_the_end(self) -> None:
        env, progress, recorder = self._env, self._progress, self._recorder
        end_ms = math.inf if self._config.drain else self._config.duration_ms
        steps = 0
        while env.peek() < end_ms:
            env.step()
            steps += 1
            if steps % EVENTS_PER_PROGRESS == 0:
                if progress is not None:
                    progress(env.now, self._statistics)
                if recorder is not None and recorder.is_complete:
                    return

    def _submissions(self, stream: Workload, client: int, priority: int) -> Generator[simpy.Event, Any, None]:
        """Submit one source's transactions: each after a delay, and from a closed client after the last one ended."""
        is_closed = stream.clients > 0
        io_family = SubstreamFamily(self._seed, Source.IO, stream.name, client)
        generated = stream.generate(client) if is_closed else stream.generate()
        for index, (delay_ms, txn) in enumerate(generated):
            yield self._delay(delay_ms, priority)
            if self._env.now >= self._config.duration_ms:
                return
            session = self._idle_sessions.pop() if self._idle_sessions else self._new_session()
            io_family.seek(session.rng, index)
            process = self._env.process(self._transaction(txn, session))
            if is_closed:
                yield process

    def _new_session(self) -> _Session:
        rng = new_random_state()
        config = self._config
        return _Session(
            rng, self._catalog.bind(rng), config.storage_provider.bind(rng), config.conflict_detector.bind(rng)
        )

    def _transaction(self, txn: Transaction, session: _Session) -> Generator[simpy.Event, Any, None]:
        self._statistics.submitted += 1
        if self._numbers_arrivals:
            txn.txn_id = self._statistics.submitted
        txn.submit_time_ms = self._env.now
        self._in_flight[txn.txn_id] = txn
        if self._recorder is not None:
            self._recorder.admit(txn)
        operation = txn.execute(
            session.catalog,
            session.storage,
            session.conflict_detector,
            self._config.max_retries,
            self._config.ml_append_mode,
            policy=self._policy,
            manifest_lists=self._manifest_lists,
        )
        result = yield from self._drive_generator(operation, txn.txn_id + 1)
        del self._in_flight[txn.txn_id]
        self._idle_sessions.append(session)
        self._last_end_ms = self._env.now
        self._record(result)

    def _drive_generator(
        self, operation: Generator[float, None, TransactionResult], priority: int
    ) -> Generator[simpy.Event, Any, TransactionResult]:
        """Turn delays into events. A delay of zero is none: nobody can come between."""
        while True:
            try:
                delay_ms = next(operation)
            except StopIteration as stop:
                result: TransactionResult = stop.value
                return result
            if delay_ms != 0.0:
                yield self._delay(delay_ms, priority)

    def _delay(self, delay_ms: float, priority: int) -> _Delay:
        if not 0.0 <= delay_ms < math.inf:
            raise ValueError(f"a component yielded a delay of {delay_ms} ms; allowed is a finite number from 0")
        self._statistics.events += 1
        return _Delay(self._env, delay_ms, priority)

    def _report(self) -> None:
        statistics, report = self._statistics, self._catalog.report()
        for _, txn in sorted(self._in_flight.items()):
            statistics.in_flight[txn.operation_type, txn.status.name.lower()] += 1
            times = statistics.in_flight_times.setdefault(txn.operation_type, InFlightTimes())
            times.submit_ms.append(txn.submit_time_ms)
            times.commit_start_ms.append(txn.commit_start_ms)
            if txn.txn_id in report.unacknowledged:
                statistics.in_flight_applied += 1
                statistics.in_flight_applied_tables.update(report.unacknowledged[txn.txn_id])
        statistics.final_seq = report.seq
        statistics.table_versions = report.table_versions
        statistics.catalog_counters = report.counters
        statistics.manifest_list_counters = self._manifest_lists.counters
        statistics.end_ms = max(self._config.duration_ms, self._last_end_ms)
