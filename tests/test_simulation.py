"""The runner: determinism, order of simultaneous events, the end of a run, statistics and their file."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from endive import MODEL_VERSION, __version__
from endive.catalog import CASCatalog, InstantCatalog
from endive.config import PROVIDER_PROFILES, build_simulation_config, parse_settings
from endive.operation_costs import validated_overwrite_costs
from endive.policy import Backoff, CommitPolicy
from endive.random_streams import Source, SubstreamFamily, new_random_state
from endive.results import COLUMNS, ROWS_PER_GROUP, SCHEMA, ResultsWriter, read_metadata, to_table
from endive.simulation import Engine, Simulation, SimulationConfig
from endive.storage import ArtifactLatency, ExponentialLatency, FixedLatency, LognormalLatency, create_provider
from endive.summary import summarize
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage
from endive.transaction import FastAppendTransaction
from endive.workload import MixedWorkload, Workload, WorkloadConfig
from tests.strategies import configurations

ENGINES: tuple[Engine, ...] = ("reference", "compiled")
SPECIFIED_COLUMNS = [
    "txn_id",
    "t_submit",
    "t_runtime",
    "t_commit",
    "commit_latency",
    "total_latency",
    "n_retries",
    "status",
    "operation_type",
    "abort_reason",
    "manifest_list_reads",
    "manifest_list_writes",
    "manifest_file_reads",
    "manifest_file_writes",
    "catalog_read_ms",
    "per_attempt_io_ms",
    "conflict_io_ms",
    "catalog_commit_ms",
]


def busy(**options: Any) -> SimulationConfig:
    storage = create_provider("s3x", new_random_state(), PROVIDER_PROFILES)
    workload = Workload(WorkloadConfig(ExponentialLatency(40.0), ExponentialLatency(300.0), 2, (1, 1)))
    settings = {"duration_ms": 20_000.0, "catalog": CASCatalog(storage, 2, (1, 1)), **options}
    return create_test_config(num_tables=2, storage=storage, workload=workload, **settings)


def thinker(duration_ms: float) -> SimulationConfig:
    """Return a run of one client that does not think."""
    workload = Workload(WorkloadConfig(FixedLatency(0.0), FixedLatency(200.0), 1, (1,), clients=1))
    return create_test_config(duration_ms=duration_ms, workload=workload)


def test_running_twice_gives_the_same_and_changes_nothing() -> None:
    config = busy()
    simulation = Simulation(config)
    first, second = simulation.run(), simulation.run()
    assert first.total_retries > 0
    pd.testing.assert_frame_equal(first.to_dataframe(), second.to_dataframe())
    assert summarize(first) == summarize(second)
    assert config.catalog.seq == 0


def test_what_else_runs_in_the_process_does_not_matter() -> None:
    config = busy()
    alone = Simulation(config).run().to_dataframe()
    np.random.seed(0)  # noqa: NPY002  (the global generator is the point)
    np.random.random(17)  # noqa: NPY002
    config.storage_provider.rng.random_sample()
    Simulation(replace(config, seed=5)).run()
    pd.testing.assert_frame_equal(alone, Simulation(config).run().to_dataframe())


def test_without_a_seed_each_run_draws_one_and_reports_it() -> None:
    config = busy(seed=None)
    first, second = Simulation(config).run(), Simulation(config).run()
    assert first.seed != second.seed
    again = Simulation(replace(config, seed=first.seed)).run()
    pd.testing.assert_frame_equal(first.to_dataframe(), again.to_dataframe())


@settings(max_examples=40)
@given(configurations())
def test_any_configuration_gives_the_same_twice(config: dict[str, Any]) -> None:
    simulation = Simulation(build_simulation_config(parse_settings(config)))
    first, second = simulation.run(), simulation.run()
    assert to_table(first.transactions).equals(to_table(second.transactions))
    assert summarize(first) == summarize(second)


def test_adding_a_stream_changes_no_other_streams_transactions() -> None:
    """Disjoint tables under table scope: what ingest does cannot depend on whether compaction runs."""
    ingest = Workload(WorkloadConfig(ExponentialLatency(50.0), ExponentialLatency(80.0), 2, (1, 1), name="ingest"))
    extra = Workload(WorkloadConfig(FixedLatency(70.0), FixedLatency(10.0), 2, (1, 1), name="compaction"))

    def rows(*streams: Workload) -> pd.DataFrame:
        catalog = InstantCatalog(2, (1, 1), 1.0, scope="table")
        storage = create_provider("s3", new_random_state(), PROVIDER_PROFILES)
        workload = MixedWorkload([PinnedTable(stream, place) for place, stream in enumerate(streams)])
        config = create_test_config(
            num_tables=2, catalog=catalog, workload=workload, storage=storage, duration_ms=8000.0, drain=True
        )
        frame = Simulation(config).run().to_dataframe()
        own = frame[frame.stream == "ingest"].sort_values("t_submit")
        return own.drop(columns="txn_id").reset_index(drop=True)

    alone, beside = rows(ingest), rows(ingest, extra)
    assert len(alone) > 100
    pd.testing.assert_frame_equal(alone, beside)


def test_each_stream_and_client_draws_latencies_of_its_own() -> None:
    """Two streams of two clients arrive at once: ids 1 to 4 by stream, then client; each reads with its first draw."""
    mu, sigma, seed = 3.0, 0.5, 11
    read = {"catalog": ArtifactLatency(read=LognormalLatency(mu, sigma, 0.0))}
    storage, think, work = fixed_storage(artifacts=read), FixedLatency(1000.0), FixedLatency(10.0)
    streams = [Workload(WorkloadConfig(think, work, 1, (1,), name=name, clients=2)) for name in ("a", "b")]
    config = create_test_config(
        storage=storage, catalog=CASCatalog(storage, 1, (1,)), workload=MixedWorkload(streams), seed=seed
    )
    rows = {row.txn_id: row for row in Simulation(config).run().transactions}
    rng = new_random_state()
    for txn_id, (name, client) in enumerate(itertools.product("ab", (0, 1)), start=1):
        SubstreamFamily(seed, Source.IO, name, client).seek(rng, 0)
        assert rows[txn_id].start_ms == pytest.approx(math.exp(mu + sigma * rng.standard_normal()))


class PinnedTable(Workload):
    """A stream whose transactions all write one table."""

    def __init__(self, stream: Workload, table: int) -> None:
        super().__init__(stream.config, seed=0)
        self._table = table

    def generate(self, client: int = 0) -> Any:
        for delay, txn in super().generate(client):
            pinned = FastAppendTransaction(
                txn.txn_id, txn.submit_time_ms, txn.runtime_ms, frozenset({self._table}), stream=txn.stream
            )
            yield delay, pinned


def scripted(*transactions: tuple[int, float, float], **options: Any) -> SimulationConfig:
    """Appends given as (id, submission, runtime); catalog 10 ms, manifest work 10 + 20 + 20 ms."""

    def make() -> list[FastAppendTransaction]:
        return [FastAppendTransaction(txn, at, runtime, frozenset({0})) for txn, at, runtime in transactions]

    return create_test_config(workload=ScriptedWorkload(make), catalog=InstantCatalog(1, (1,), 10.0), **options)


def test_of_simultaneous_commits_the_lower_id_wins_however_they_got_there() -> None:
    later_but_lower = Simulation(scripted((2, 0.0, 100.0), (1, 50.0, 50.0))).run()
    winner = next(row for row in later_but_lower.transactions if row.total_retries == 0)
    assert winner.txn_id == 1


def test_simultaneous_arrivals_take_their_ids_in_the_order_of_the_streams() -> None:
    streams = [
        Workload(WorkloadConfig(FixedLatency(100.0), FixedLatency(1.0), 1, (1,), name=name)) for name in ("b", "a")
    ]
    frame = Simulation(create_test_config(workload=MixedWorkload(streams), drain=True)).run().to_dataframe()
    by_id = frame.sort_values("txn_id")
    assert by_id.stream.tolist()[:6] == ["b", "a"] * 3
    assert by_id.txn_id.tolist() == list(range(1, len(by_id) + 1))


def test_events_at_the_end_do_not_happen() -> None:
    """One append: read 10, work 100, manifest 50, commit 10: it ends at 170."""
    for duration, committed in ((170.0, 0), (math.nextafter(170.0, 200.0), 1)):
        statistics = Simulation(scripted((1, 0.0, 100.0), duration_ms=duration)).run()
        assert (statistics.committed, statistics.in_flight.total()) == (committed, 1 - committed)


def test_no_arrival_at_the_end_with_or_without_drain() -> None:
    for drain in (False, True):
        statistics = Simulation(scripted((1, 0.0, 1.0), (2, 500.0, 1.0), duration_ms=500.0, drain=drain)).run()
        assert statistics.submitted == 1


@pytest.mark.parametrize(
    ("duration", "phase"), [(5.0, "pending"), (60.0, "executing"), (130.0, "committing"), (165.0, "committing")]
)
def test_what_runs_at_the_end_is_counted_by_phase(duration: float, phase: str) -> None:
    statistics = Simulation(scripted((1, 0.0, 100.0), duration_ms=duration)).run()
    assert dict(statistics.in_flight) == {("fast_append", phase): 1}
    assert summarize(statistics)["operations"]["fast_append"]["in_flight_by_phase"][phase] == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("duration", "commit_start"),
    [(5.0, math.nan), (60.0, math.nan), (201.0, math.nan), (math.nextafter(201.0, 300.0), 201.0), (250.0, 201.0)],
)
def test_the_commit_phase_begins_after_the_work(engine: Engine, duration: float, commit_start: float) -> None:
    """One append, after a think time of 0: read 1, work 200. Its commit answers at 252."""
    (times,) = Simulation(thinker(duration)).run(engine=engine).in_flight_times.values()
    assert (len(times.submit_ms), len(times.commit_start_ms)) == (1, 1)
    assert times.submit_ms[0] == 0.0
    assert times.commit_start_ms[0] == pytest.approx(commit_start, nan_ok=True, rel=0.0, abs=0.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_restart_keeps_the_beginning_of_the_commit_phase(engine: Engine) -> None:
    """Overwrites of 252 ms, the last 51 of them the commit, every 100: one fails for another, and runs again."""
    options = {"operations": ((validated_overwrite_costs(0.0), 1.0),)}
    config = replace(
        create_test_config(duration_ms=5000.0, real_conflict_probability=1.0, workload_options=options),
        policy=CommitPolicy(on_real_conflict="restart", max_restarts=1000),
    )
    statistics = Simulation(config).run(engine=engine)
    times = statistics.in_flight_times["validated_overwrite"]
    begun = [
        (submit, start)
        for submit, start in zip(times.submit_ms, times.commit_start_ms, strict=True)
        if not math.isnan(start)
    ]
    assert begun == [(submit, submit + 201.0) for submit, _ in begun]
    assert len(begun) > statistics.in_flight["validated_overwrite", "committing"]


def test_a_commit_installed_but_not_answered_is_told_apart() -> None:
    catalog = InstantCatalog(1, (1,), 10.0, effect_point=0.5)
    for duration, applied in ((164.0, 0), (166.0, 1)):
        config = replace(scripted((1, 0.0, 100.0), duration_ms=duration), catalog=catalog)
        statistics = Simulation(config).run()
        assert (statistics.final_seq, statistics.in_flight_applied, statistics.committed) == (applied, applied, 0)
        assert statistics.in_flight_applied_tables == ({0: 1} if applied else {})


def test_drain_lets_everybody_end() -> None:
    statistics = Simulation(busy(drain=True)).run()
    assert not statistics.in_flight
    assert statistics.submitted == statistics.committed + statistics.aborted
    assert statistics.end_ms > statistics.duration_ms
    assert max(row.submit_time_ms for row in statistics.transactions) < statistics.duration_ms


def test_closed_clients_submit_again_after_thinking() -> None:
    """One client, think 30, transaction 171: it submits every 201 ms, first at 30."""
    closed = Workload(WorkloadConfig(FixedLatency(30.0), FixedLatency(100.0), 1, (1,), 1.0, 0.0, 0.0, clients=1))
    config = create_test_config(workload=closed, catalog=InstantCatalog(1, (1,), 10.0), duration_ms=1000.0)
    rows = Simulation(config).run().transactions
    assert [row.submit_time_ms for row in rows] == [30.0, 230.0, 430.0, 630.0]
    assert {row.total_latency_ms for row in rows} == {170.0}


def test_in_a_closed_loop_of_equals_one_wins_each_round() -> None:
    """Four clients in step: each round of read, work and commit has one winner, and the losers go on."""
    closed = Workload(WorkloadConfig(FixedLatency(5.0), FixedLatency(1.0), 1, (1,), 1.0, 0.0, 0.0, clients=4))
    config = create_test_config(workload=closed, storage=fixed_storage(1, 1), duration_ms=500.0, drain=True)
    rows = Simulation(replace(config, max_retries=1000)).run().transactions
    commits = sorted(row.commit_time_ms for row in rows)
    assert len(commits) > 50
    assert len(set(commits)) == len(commits)


@pytest.mark.parametrize("retry", [1, 2, 3, 12])
def test_backoff_grows_to_its_limit_and_jitter_stays_within_its_share(retry: int) -> None:
    backoff = Backoff(base_ms=10.0, multiplier=2.0, max_ms=500.0, jitter=0.2)
    expected = min(10.0 * 2.0 ** (retry - 1), 500.0)
    rng = np.random.RandomState(4)
    drawn = [backoff.sample_ms(retry, rng) for _ in range(4000)]
    assert 0.8 * expected <= min(drawn) < 0.81 * expected
    assert 1.19 * expected < max(drawn) <= 1.2 * expected
    assert np.mean(drawn) == pytest.approx(expected, rel=0.01)
    iceberg = [replace(backoff, jitter_kind="iceberg").sample_ms(retry, rng) - expected for _ in range(4000)]
    assert {extra == int(extra) for extra in iceberg} == {True}
    assert set(iceberg) == set(range(math.ceil(0.2 * expected)))


def test_backoff_of_a_thousandth_retry_is_the_limit() -> None:
    assert Backoff(10.0, 2.0, 5000.0, 0.0).delay_ms(1000) == 5000.0


def test_a_component_that_yields_a_bad_delay_is_an_error() -> None:
    for bad in (-1.0, math.nan, math.inf):
        config = create_test_config(runtime_ms=bad)
        with pytest.raises(ValueError, match="a component yielded a delay"):
            Simulation(config).run()


@pytest.mark.parametrize(
    ("field", "value"), [("duration_ms", 0.0), ("duration_ms", math.nan), ("seed", -1), ("max_retries", -1)]
)
def test_a_configuration_that_cannot_be_run_names_the_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is "):
        create_test_config(**{field: value})


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ValueError, match="'warp'"):
        Simulation(busy()).run(engine="warp")


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_rows_of_either_engine_add_up_like_lists(engine: Engine) -> None:
    statistics = Simulation(busy()).run(engine=engine)
    rows = statistics.transactions
    count, first = len(rows), rows[0]
    assert rows + rows == list(rows) * 2
    assert [first] + rows == [first, *rows]  # noqa: RUF005  # the sum is what is tested
    statistics.record_transaction(first)
    assert (len(statistics.transactions), statistics.transactions[-1]) == (count + 1, first)
    assert len(statistics.to_dataframe()) == statistics.committed + statistics.aborted == count + 1


class TestResultsFile:
    def test_columns_begin_with_the_specified_ones_in_order(self) -> None:
        assert [column.name for column in COLUMNS][: len(SPECIFIED_COLUMNS)] == SPECIFIED_COLUMNS
        frame = Simulation(busy()).run().to_dataframe()
        assert frame.columns.tolist() == SCHEMA.names

    def test_the_specified_columns_hold_what_their_names_say(self) -> None:
        """Submitted at 30: read 10, work 100, list read 10, file write 20, list write 20, swap 10."""
        row = Simulation(scripted((1, 30.0, 100.0))).run().to_dataframe().iloc[0]
        expected = {
            "txn_id": 1, "t_submit": 30.0, "t_runtime": 100.0, "t_commit": 200.0, "commit_latency": 60.0,
            "total_latency": 170.0, "n_retries": 0, "status": "committed", "operation_type": "fast_append",
            "abort_reason": None, "manifest_list_reads": 1, "manifest_list_writes": 1, "manifest_file_reads": 0,
            "manifest_file_writes": 1, "catalog_read_ms": 10.0, "per_attempt_io_ms": 50.0, "conflict_io_ms": 0.0,
            "catalog_commit_ms": 10.0,
        }  # fmt: skip
        assert {name: row[name] for name in SPECIFIED_COLUMNS} == expected

    def test_an_empty_run_has_all_columns(self) -> None:
        frame = Simulation(busy(duration_ms=0.5)).run().to_dataframe()
        assert frame.empty
        assert frame.columns.tolist() == SCHEMA.names

    def test_streamed_and_exported_files_are_the_same_bytes(self, tmp_path: Path) -> None:
        simulation = Simulation(busy())
        streamed = simulation.run(output=tmp_path / "streamed.parquet")
        kept = simulation.run()
        kept.export_parquet(tmp_path / "exported.parquet")
        assert (tmp_path / "streamed.parquet").read_bytes() == (tmp_path / "exported.parquet").read_bytes()
        assert not streamed.transactions
        assert summarize(streamed) == summarize(kept)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["exported.parquet", "streamed.parquet"]

    def test_rows_come_back_as_they_were(self, tmp_path: Path) -> None:
        statistics = Simulation(busy()).run()
        statistics.export_parquet(tmp_path / "results.parquet")
        table = pq.read_table(tmp_path / "results.parquet")
        assert table.schema.equals(SCHEMA)
        assert table.equals(to_table(statistics.transactions))
        ended = np.maximum(table["t_commit"].to_numpy(), table["t_abort"].to_numpy())
        assert (np.diff(ended) >= 0).all()

    @pytest.mark.parametrize("engine", ENGINES)
    def test_the_footer_says_how_the_rows_were_made_and_what_they_do_not_show(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        config = replace(busy(), config_hash="0123456789ab")
        statistics = Simulation(config).run(engine=engine, output=tmp_path / "results.parquet")
        footer = read_metadata(tmp_path / "results.parquet")
        assert (footer["version"], footer["model_version"]) == (__version__, MODEL_VERSION)
        assert (footer["config_hash"], footer["seed"], footer["engine"]) == ("0123456789ab", 42, engine)
        assert footer["submitted"] == footer["committed"] + footer["aborted"] + sum(footer["in_flight"].values())
        assert footer["final_seq"] == statistics.final_seq == sum(footer["table_versions"])

    def test_row_groups_are_bounded(self, tmp_path: Path) -> None:
        row = Simulation(busy()).run().transactions[0]
        with ResultsWriter(tmp_path / "results.parquet") as writer:
            for result in itertools.repeat(row, ROWS_PER_GROUP + 1):
                writer.append(result)
            writer.commit({})
        groups = pq.ParquetFile(tmp_path / "results.parquet").metadata
        assert [groups.row_group(place).num_rows for place in range(groups.num_row_groups)] == [ROWS_PER_GROUP, 1]

    def test_a_run_that_fails_leaves_no_file(self, tmp_path: Path) -> None:
        config = create_test_config(runtime_ms=math.nan)
        with pytest.raises(ValueError, match="a component yielded"):
            Simulation(config).run(output=tmp_path / "results.parquet")
        assert not list(tmp_path.iterdir())

    def test_a_replaced_file_is_whole_at_any_time(self, tmp_path: Path) -> None:
        path = tmp_path / "results.parquet"
        path.write_bytes(b"older")
        with ResultsWriter(path) as writer:
            assert path.read_bytes() == b"older"
            writer.commit({"seed": 1})
        assert read_metadata(path) == {"seed": 1}
