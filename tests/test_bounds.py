"""Bounds of the commit rate hold in simulations, commit by commit, and are nearly reached under overload."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from endive.catalog import AppendCatalog, CASCatalog, InstantCatalog, Scope
from endive.config import build_simulation_config, parse_settings
from endive.saturation_analysis import (
    AnalysisError,
    AttemptTimes,
    always_redone,
    closed_loop_bound_per_s,
    closed_loop_success_bound,
    commit_rate_bound_per_s,
    contended_bound_per_s,
    contended_rate_bound_per_s,
    count_pointers,
    expected_minimum,
    log_bound_per_s,
    lone_client_bound_per_s,
    mean_attempt_times,
    pointer_bound_per_s,
)
from endive.simulation import Simulation, SimulationConfig, Statistics
from endive.storage import ArtifactLatency, FixedLatency, LognormalLatency, ProfiledStorage
from endive.test_utils import create_test_config, fixed_storage
from endive.workload import Workload, WorkloadConfig

READ, LIST_READ, WRITE, CAS, APPEND = 21.0, 33.0, 57.0, 45.0, 39.0
OVERLOAD_MS = 20_000.0


def storage() -> ProfiledStorage:
    catalog = ArtifactLatency(read=FixedLatency(READ))
    return fixed_storage(LIST_READ, WRITE, CAS, APPEND, artifacts={"catalog": catalog})


def times(effect_point: float = 1.0, commit_ms: float = CAS) -> AttemptTimes:
    return AttemptTimes(READ, LIST_READ + 2 * WRITE, commit_ms, effect_point)


def overloaded(
    *,
    tables: int = 1,
    scope: Scope = "catalog",
    effect_point: float = 1.0,
    log: bool = False,
    seed: int = 1,
    **options: Any,
) -> Statistics:
    """Fast appends, one each 7 ms, that give up after 10 retries."""
    kind = AppendCatalog if log else CASCatalog
    catalog = kind(storage(), tables, (1,) * tables, scope=scope, effect_point=effect_point)
    operations = {"fast_append_weight": 1.0, "merge_append_weight": 0.0, "validated_overwrite_weight": 0.0}
    config = create_test_config(
        duration_ms=OVERLOAD_MS,
        seed=seed,
        storage=storage(),
        catalog=catalog,
        num_tables=tables,
        inter_arrival_ms=7.0,
        runtime_ms=101.0,
        workload_options=operations,
        **options,
    )
    return Simulation(config).run()


def effect_gaps_ms(statistics: Statistics, after_effect_ms: float, table: int | None = None) -> np.ndarray:
    """Return the times between the instants at which successive commits took effect."""
    effects = [
        row.commit_time_ms - after_effect_ms
        for row in statistics.transactions
        if row.commit_time_ms >= 0.0 and (table is None or table in row.tables_written)
    ]
    return np.diff(np.sort(effects))


@pytest.mark.parametrize("effect_point", [0.0, 0.3, 0.5, 1.0])
def test_successive_commits_to_one_pointer_are_an_exposure_apart(effect_point: float) -> None:
    statistics = overloaded(effect_point=effect_point)
    gaps = effect_gaps_ms(statistics, (1.0 - effect_point) * CAS)
    exposed_ms = times(effect_point).exposed_ms
    assert exposed_ms == pytest.approx((1.0 - effect_point) * READ + 147.0 + effect_point * CAS)
    assert gaps.min() >= exposed_ms - 1e-6
    bound = pointer_bound_per_s(times(effect_point))
    assert 0.9 * bound < len(gaps) * 1000.0 / OVERLOAD_MS <= bound


@pytest.mark.parametrize("effect_point", [0.0, 0.5, 1.0])
def test_where_retries_may_miss_other_tables_only_the_swap_counts(effect_point: float) -> None:
    statistics = overloaded(tables=20, effect_point=effect_point)
    gaps = effect_gaps_ms(statistics, (1.0 - effect_point) * CAS)
    assert gaps.min() >= times(effect_point).swap_ms - 1e-6
    bound = pointer_bound_per_s(times(effect_point), always_redone=False)
    assert pointer_bound_per_s(times(effect_point)) < len(gaps) * 1000.0 / OVERLOAD_MS <= bound
    assert len(gaps) * 1000.0 / OVERLOAD_MS > 0.8 * bound


def test_a_pointer_for_each_table() -> None:
    statistics = overloaded(tables=3, scope="table")
    for table in range(3):
        assert effect_gaps_ms(statistics, 0.0, table).min() >= times().exposed_ms - 1e-6
    bound = pointer_bound_per_s(times(), pointers=3)
    assert 0.9 * bound < statistics.committed * 1000.0 / OVERLOAD_MS <= bound


@pytest.mark.parametrize("effect_point", [0.5, 1.0])
@pytest.mark.parametrize("tables", [1, 30])
def test_records_land_in_a_log_an_append_apart(tables: int, effect_point: float) -> None:
    statistics = overloaded(tables=tables, scope="table", effect_point=effect_point, log=True)
    after_effect_ms = (1.0 - effect_point) * APPEND + READ  # of the append, and the discovery read
    gaps = effect_gaps_ms(statistics, after_effect_ms)
    assert gaps.min() >= effect_point * APPEND - 1e-6
    landed = statistics.catalog_counters.append_physical_success
    assert landed * 1000.0 / OVERLOAD_MS <= log_bound_per_s(APPEND, effect_point)
    for table in range(tables):
        of_table = effect_gaps_ms(statistics, after_effect_ms, table)
        assert of_table.min() >= times(effect_point, APPEND).exposed_ms - 1e-6
    if tables > 1 and effect_point == 1.0:
        assert landed * 1000.0 / OVERLOAD_MS > 0.9 * log_bound_per_s(APPEND)


def test_random_protocols_keep_their_distance() -> None:
    """Random fixed latencies, effect points and loads: no gap is shorter than the exposure."""
    rng = np.random.default_rng(99)
    for _ in range(25):
        read, list_read, write, cas, effect_point = *rng.uniform(1.0, 80.0, size=4), rng.uniform()
        artifacts = {"catalog": ArtifactLatency(read=FixedLatency(read))}
        store = fixed_storage(list_read, write, cas, artifacts=artifacts)
        config = create_test_config(
            duration_ms=8_000.0,
            seed=int(rng.integers(1 << 30)),
            storage=store,
            catalog=CASCatalog(store, 1, (1,), effect_point=effect_point),
            inter_arrival_ms=rng.uniform(5.0, 300.0),
            runtime_ms=rng.uniform(0.0, 300.0),
        )
        gaps = effect_gaps_ms(Simulation(config).run(), (1.0 - effect_point) * cas)
        assert gaps.min() >= AttemptTimes(read, list_read + 2 * write, cas, effect_point).exposed_ms - 1e-6, config


def closed(clients: int, retry: int, catalog_ms: float = 10.0, think_ms: float = 0.0) -> Statistics:
    """Clients whose every step takes 10 ms, but for the catalog's."""
    fixed = {"distribution": "fixed", "value": 10}
    config: dict[str, Any] = {
        "simulation": {"duration_ms": 60_000, "seed": 1},
        "storage": {"provider": "instant", "latency": {"manifest_list": {"read": fixed, "write": fixed}}},
        "catalog": {"type": "instant", "latency_ms": catalog_ms},
        "transaction": {
            "clients": clients,
            "think_time": fixed | {"value": think_ms},
            "runtime": fixed,
            "retry": retry,
            "operation_types": {"fast_append": 1},
        },
    }
    config["storage"]["latency"]["manifest_file"] = {"write": fixed}
    return Simulation(build_simulation_config(parse_settings(config))).run()


@pytest.mark.parametrize("clients", [1, 2, 5, 20])
@pytest.mark.parametrize("retry", [0, 10])
def test_a_closed_loop_stays_below_both_of_its_asymptotes(clients: int, retry: int) -> None:
    attempt = AttemptTimes(10.0, 30.0, 10.0)
    per_s = closed(clients, retry).committed / 60.0
    loop, pointer = closed_loop_bound_per_s(attempt, clients, 10.0), pointer_bound_per_s(attempt)
    assert loop == pytest.approx(clients * 1000.0 / 60.0)
    assert per_s <= min(loop, pointer)
    if clients == 1:
        assert per_s == pytest.approx(loop, rel=0.01)
    elif retry:
        assert per_s > 0.6 * min(loop, pointer)


@pytest.mark.parametrize("clients", [1, 2, 5, 20])
def test_clients_that_never_retry_commit_at_most_one_in_n(clients: int) -> None:
    """Where catalog reads take no time and clients do not think, the bound is 1 / N, and writers in step reach it."""
    done = closed(clients, 0, catalog_ms=1e-3)
    bound = closed_loop_success_bound(AttemptTimes(1e-3, 30.0, 1e-3), clients, 10.0)
    assert bound == pytest.approx(1.0 / clients, rel=1e-3)
    assert done.committed / (done.committed + done.aborted) == pytest.approx(bound, rel=0.01)
    thinking = closed(clients, 0, think_ms=25.0)
    share = thinking.committed / (thinking.committed + thinking.aborted)
    assert share <= closed_loop_success_bound(AttemptTimes(10.0, 30.0, 10.0), clients, 10.0, 25.0) + 1e-3


def test_a_lone_client_does_one_attempt_after_the_other() -> None:
    assert lone_client_bound_per_s(AttemptTimes(10.0, 30.0, 10.0)) == pytest.approx(20.0)
    assert closed_loop_bound_per_s(AttemptTimes(10.0, 30.0, 10.0), 1, 0.0) == pytest.approx(20.0)


def random_closed(clients: int, seed: int) -> SimulationConfig:
    """Clients without work between their catalog read and their attempt, on lognormal latencies."""
    slow = LognormalLatency.from_median(50.0, 0.6)
    store = fixed_storage(cas_ms=0.0, artifacts={name: ArtifactLatency(slow, slow) for name in ("manifest_list",)})
    options = {"fast_append_weight": 1.0, "merge_append_weight": 0.0, "validated_overwrite_weight": 0.0}
    never = FixedLatency(0.0)
    workload = Workload(WorkloadConfig(never, never, 1, (1,), clients=clients, **options))
    return create_test_config(
        duration_ms=200_000.0, seed=seed, storage=store, catalog=InstantCatalog(1, (1,), 5.0), workload=workload
    )


@pytest.mark.parametrize("clients", [1, 3, 10, 40])
def test_with_random_latencies_the_fastest_wins(clients: int) -> None:
    """The bound of means is passed by many contenders; that of the least of as many draws is not."""
    rng = np.random.default_rng(0)
    exposures = 20.0 + 5.0 + np.exp(np.log(50.0) + 0.6 * rng.standard_normal((100_000, 2))).sum(axis=1)
    bound = contended_bound_per_s(exposures, clients)
    config = random_closed(clients, seed=clients)
    per_s = Simulation(config).run().committed / 200.0
    assert per_s <= 1.03 * bound  # three standard errors of some thousand commits
    mean_bound = commit_rate_bound_per_s(config)
    assert mean_bound == pytest.approx(contended_bound_per_s(exposures, 1), rel=0.01)
    assert (per_s > mean_bound) == (clients > 1)


def test_the_expected_least_of_draws() -> None:
    assert expected_minimum([3.0], 9) == 3.0
    assert expected_minimum([1.0, 2.0], 2) == pytest.approx(0.75 * 1.0 + 0.25 * 2.0)
    sample = stats.expon.ppf((np.arange(20_000) + 0.5) / 20_000)
    for count in (1, 4, 50):
        assert expected_minimum(sample, count) == pytest.approx(1.0 / count, rel=0.01)
    for bad in ([], [np.nan]):
        with pytest.raises(AnalysisError, match="needs a sample"):
            expected_minimum(bad, 1)


def config(changes: dict[str, Any]) -> SimulationConfig:
    settings: dict[str, Any] = {
        "simulation": {"duration_ms": 60_000, "seed": 1},
        "storage": {"provider": "s3", "profile": "2025-12"},
        "transaction": {
            "runtime": {"median": 2000, "sigma": 0.5},
            "inter_arrival": {"scale": 20},
            "operation_types": {"fast_append": 1.0},
        },
    }
    for table, values in changes.items():
        settings[table] = settings.get(table, {}) | values
    return build_simulation_config(parse_settings(settings))


TABLES: dict[str, Any] = {"num_tables": 10}
PARTITIONS: dict[str, Any] = {"partitions": {"per_txn": 1}}


@pytest.mark.parametrize(
    ("changes", "pointers", "redone"),
    [
        ({}, 1, True),
        ({"catalog": TABLES}, 1, False),
        ({"catalog": TABLES | {"scope": "table"}}, 10, True),
        ({"catalog": TABLES | {"scope": "group", "num_groups": 5}}, 5, False),
        ({"catalog": TABLES | {"scope": "group", "num_groups": 10}}, 10, True),
        ({"catalog": TABLES | {"scope": "partition"}}, 10, True),
    ],
)
def test_what_a_pointer_is(changes: dict[str, Any], pointers: int, redone: bool) -> None:
    built = config(changes)
    assert (count_pointers(built), always_redone(built)) == (pointers, redone)


def test_tracked_partitions_are_pointers_or_spare_work() -> None:
    catalog = {"num_tables": 2, "partitions": {"num_partitions": 8}}
    for scope, pointers, redone in (("catalog", 1, False), ("table", 2, False), ("partition", 16, True)):
        built = config({"catalog": catalog | {"scope": scope}, "transaction": PARTITIONS})
        assert (count_pointers(built), always_redone(built)) == (pointers, redone)


def test_the_ceilings_of_the_guide() -> None:
    """The table of docs/guides/saturation.md, whose means are integrals of the profile's tails."""
    assert commit_rate_bound_per_s(config({})) == pytest.approx(1000.0 / 221.8, rel=1e-3)
    assert commit_rate_bound_per_s(config({"catalog": TABLES})) == pytest.approx(1000.0 / 61.6, rel=1e-3)
    assert commit_rate_bound_per_s(config({"catalog": TABLES | {"scope": "table"}})) == pytest.approx(45.0, rel=2e-3)


@pytest.mark.parametrize("store", ["s3", "azure", "gcp"])
@pytest.mark.parametrize("scope", ["catalog", "table"])
def test_the_ceiling_of_many_contenders_is_kept_where_that_of_means_is_not(store: str, scope: str) -> None:
    catalog = TABLES | {"scope": scope, "num_tables": 1 if scope == "catalog" else 3}
    built = config({"storage": {"provider": store, "profile": "2025-12"}, "catalog": catalog})
    rows = Simulation(built).run().to_dataframe()
    begun, ended = rows.t_submit + rows.t_runtime, np.maximum(rows.t_commit, rows.t_abort)
    changes = np.concatenate([np.ones(len(rows)), -np.ones(len(rows))])
    contenders = int(changes[np.argsort(np.concatenate([begun, ended]), kind="stable")].cumsum().max())
    per_s = (rows.status == "committed").sum() / 60.0
    assert commit_rate_bound_per_s(built) < per_s or scope == "table"
    assert 0.5 * contended_rate_bound_per_s(built, contenders) < per_s <= contended_rate_bound_per_s(built, contenders)
    assert contended_rate_bound_per_s(built, 1, 20_000) == pytest.approx(commit_rate_bound_per_s(built), rel=0.03)


def test_means_are_those_of_what_the_stores_draw() -> None:
    built = config({"storage": {"provider": "s3", "profile": "2025-06"}, "manifests": {"manifest_list_bytes": 1 << 20}})
    store = built.storage_provider.bind(np.random.RandomState(1))
    drawn = [
        sum(store.read("manifest_list/0", 1 << 20)) + sum(store.write("manifest_file/0", 100 << 10))
        + sum(store.write("manifest_list/0", 1 << 20))
        for _ in range(20_000)
    ]  # fmt: skip
    error = np.std(drawn) / math.sqrt(len(drawn))
    assert mean_attempt_times(built).manifest_io_ms == pytest.approx(np.mean(drawn), abs=4 * error)


def test_costs_of_operations_and_modes_are_counted() -> None:
    plain = mean_attempt_times(config({})).manifest_io_ms
    history = mean_attempt_times(config({"transaction": {"operation_types": {"validated_overwrite": 1.0}}}))
    metadata = mean_attempt_times(config({"catalog": {"table_metadata_inlined": False}}))
    mixed = {"operation_types": {"validated_overwrite": 1.0, "fast_append": 0.1}}
    assert history.manifest_io_ms > plain
    assert metadata.manifest_io_ms > plain
    assert mean_attempt_times(config({"transaction": mixed})).manifest_io_ms == plain
    appended = {"storage": {"provider": "s3x"}, "transaction": {"manifest_list_mode": "append"}}
    read_only = mean_attempt_times(config(appended))
    assert read_only.manifest_io_ms == pytest.approx(read_only.catalog_read_ms)


def test_bad_latencies_and_unknown_components_are_one_line() -> None:
    with pytest.raises(AnalysisError, match="times must be 0 or more"):
        AttemptTimes(1.0, -1.0, 1.0)
    with pytest.raises(AnalysisError, match="the effect point from 0 to 1"):
        AttemptTimes(1.0, 1.0, 1.0, 2.0)

    class OwnCatalog(InstantCatalog):
        pass

    with pytest.raises(AnalysisError, match="catalog OwnCatalog: its latencies are not known"):
        commit_rate_bound_per_s(create_test_config(catalog=OwnCatalog(1, (1,))))
