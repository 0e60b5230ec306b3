"""Laws that hold for every random workload: scopes, isolation, the log's one winner, ML+ entries."""

from __future__ import annotations

import copy
import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endive.catalog import (
    AppendCatalog,
    AppendLog,
    CASCatalog,
    Catalog,
    CatalogSnapshot,
    InstantCatalog,
    IntentionRecord,
    Scope,
)
from endive.config import PROVIDER_PROFILES, build_simulation_config, parse_settings
from endive.random_streams import new_random_state
from endive.simulation import Simulation, Statistics
from endive.storage import ExponentialLatency, FixedLatency, ProfiledStorage, UniformLatency, create_provider
from endive.test_utils import create_test_config, fixed_storage, run_generator
from endive.transaction import Transaction
from endive.workload import Workload, WorkloadConfig
from tests.strategies import configurations, has_reads

KINDS = ["cas", "append", "instant"]
SCOPES: list[Scope] = ["catalog", "group", "table", "partition"]
SEEDS = st.integers(0, 2**32)


def run(config: dict[str, Any]) -> Statistics:
    return Simulation(build_simulation_config(parse_settings(config))).run()


# Writers that share nothing.


class Apart(Workload):
    """Closed clients that each write what nobody else does: two tables, or one partition of the only table."""

    partitioned = False

    def generate(self, client: int = 0) -> Generator[tuple[float, Transaction], None, None]:
        for delay_ms, txn in super().generate(client):
            tables = frozenset({0} if self.partitioned else {2 * client, 2 * client + 1})
            partitions = {0: frozenset({client})} if self.partitioned else None
            times = (txn.txn_id, txn.submit_time_ms, txn.runtime_ms)
            yield delay_ms, type(txn)(*times, tables, partitions, stream=txn.stream)


class ApartInOneTable(Apart):
    partitioned = True


@st.composite
def lonely(draw: st.DrawFn) -> Callable[[type[Apart], str, Scope], Statistics]:
    """Return a run of 2 to 6 such clients, for the kind of workload, of catalog and of scope that it is given."""
    clients, effect_point = draw(st.integers(2, 6)), draw(st.sampled_from([0.0, 0.5, 1.0]))
    store = create_provider(draw(st.sampled_from(["s3x", "azurex"])), new_random_state(), PROVIDER_PROFILES)
    think = draw(st.sampled_from([FixedLatency(0.0), FixedLatency(50.0), ExponentialLatency(30.0)]))
    runtime = draw(st.sampled_from([FixedLatency(0.0), FixedLatency(100.0), ExponentialLatency(200.0)]))
    log = AppendLog(compaction_max_entries=draw(st.sampled_from([0, 1, 3])))
    seed, ml_append_mode = draw(SEEDS), draw(st.booleans())

    def simulate(workload: type[Apart], kind: str, scope: Scope) -> Statistics:
        shape = (clients,) if workload.partitioned else (1,) * (2 * clients)
        size, options = len(shape), {"scope": scope, "groups": tuple(range(len(shape))), "effect_point": effect_point}
        catalog: Catalog = {
            "cas": lambda: CASCatalog(store, size, shape, **options),
            "append": lambda: AppendCatalog(store, size, shape, log=log, **options),
            "instant": lambda: InstantCatalog(size, shape, 5.0, **options),
        }[kind]()
        config = create_test_config(
            duration_ms=1000.0,
            seed=seed,
            drain=True,
            storage=store,
            catalog=catalog,
            workload=workload(WorkloadConfig(think, runtime, size, shape, clients=clients)),
            ml_append_mode=ml_append_mode,
            max_retries=1000,
        )
        return Simulation(config).run()

    return simulate


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("workload", "scope", "wider"),
    [(Apart, "table", "catalog"), (ApartInOneTable, "partition", "table"), (Apart, "partition", "group")],
)
def test_what_is_disjoint_in_its_scope_never_fails(
    kind: str, workload: type[Apart], scope: Scope, wider: Scope
) -> None:
    """Disjoint tables under `table`, disjoint partitions under `partition`; under a wider scope they do fail."""
    retries = 0

    @settings(max_examples=40)
    @given(lonely())
    def check(simulate: Callable[[type[Apart], str, Scope], Statistics]) -> None:
        nonlocal retries
        statistics = simulate(workload, kind, scope)
        assert (statistics.total_retries, statistics.aborted) == (0, 0)
        assert statistics.final_seq == statistics.committed > 0
        assert statistics.catalog_counters.append_logical_conflict == 0
        if wider != "group":  # two tables of one client are in groups of their own, and nobody else's
            retries += simulate(workload, kind, wider).total_retries

    check()
    assert retries > 0 or wider == "group"


# Groups are between the catalog and the table.


def assert_same(config: dict[str, Any], scope: Scope, num_groups: int) -> Statistics:
    """Check that a scope gives what so many groups give, result for result."""
    catalog = {key: value for key, value in config["catalog"].items() if key != "num_groups"}
    plain = run(config | {"catalog": catalog | {"scope": scope}})
    grouped = run(config | {"catalog": catalog | {"scope": "group", "num_groups": num_groups}})
    pd.testing.assert_frame_equal(plain.to_dataframe(), grouped.to_dataframe(), check_exact=True)
    for attribute in ("table_versions", "catalog_counters", "manifest_list_counters", "in_flight", "final_seq"):
        assert getattr(plain, attribute) == getattr(grouped, attribute)
    return plain


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["catalog", "table"])
def test_one_group_is_the_catalog_and_a_group_for_each_table_is_the_table(kind: str, scope: Scope) -> None:
    """With `catalog`, of any number of tables a transaction; with `table`, of one."""
    seen: Counter[str] = Counter()

    @settings(max_examples=40)
    @given(configurations(catalog_type=kind))
    def check(config: dict[str, Any]) -> None:
        config["simulation"]["duration_ms"] = min(config["simulation"]["duration_ms"], 1500.0)
        if scope == "catalog":
            config["transaction"]["isolation"] = "snapshot"  # `serializable` is refused there
        else:
            streams = config.get("streams", [config["transaction"]])
            for stream in streams:
                stream["tables"]["per_txn"] = 1
            if not any(map(has_reads, streams)):
                config["transaction"]["isolation"] = "snapshot"
        statistics = assert_same(config, scope, 1 if scope == "catalog" else config["catalog"]["num_tables"])
        seen.update(retries=statistics.total_retries, shared=len(statistics.table_versions) > 1)

    check()
    assert min(seen["retries"], seen["shared"]) > 0


# Serializable refuses all that snapshot isolation refuses.

TABLES, PARTS = 3, 2
GROUPS = (0, 1, 0)
subsets = st.frozensets(st.integers(0, TABLES - 1), min_size=1)
parts = st.frozensets(st.integers(0, PARTS - 1), min_size=1)


@st.composite
def proposals(draw: st.DrawFn, scope: Scope) -> dict[str, Any]:
    """Return what a transaction reads and writes, how old its snapshot is, and whether it is serializable."""
    written = draw(subsets)
    read = written | draw(subsets)
    if scope == "group":  # a transaction never leaves its group
        group = GROUPS[min(written)]
        written, read = (frozenset(table for table in some if GROUPS[table] == group) for some in (written, read))
    tracked = draw(st.booleans())
    parts_written = {table: draw(parts) for table in sorted(written)}
    parts_read = {table: draw(parts) | parts_written.get(table, frozenset()) for table in sorted(read)}
    age, strict = draw(st.sampled_from([1, 2, 3, 0])), draw(st.booleans())
    return {
        "age": age,
        "strict": strict,
        "written": parts_written if tracked else dict.fromkeys(sorted(written)),
        "read": parts_read if tracked else dict.fromkeys(sorted(read)),
    }


def unchanged(
    scope: Scope, base: CatalogSnapshot, now: CatalogSnapshot, touched: Mapping[int, Iterable[int] | None]
) -> bool:
    """Return whether what was touched is as it was, as far as the scope tells things apart."""
    if scope == "catalog":
        return base.seq == now.seq
    if scope == "group":
        groups = {GROUPS[table] for table in touched}
        touched = {table: None for table in range(TABLES) if GROUPS[table] in groups}
    for table, partitions in touched.items():
        if scope != "partition" or partitions is None:
            if base.tables[table].version != now.tables[table].version:
                return False
        elif any(
            base.get_partition_version(table, part) != now.get_partition_version(table, part) for part in partitions
        ):
            return False
    return True


def intention_of(proposal: dict[str, Any], base: CatalogSnapshot, txn_id: int, strict: bool) -> IntentionRecord:
    def listed(touched: Mapping[int, Any]) -> dict[int, tuple[int, ...]] | None:
        return None if None in touched.values() else {table: tuple(sorted(chosen)) for table, chosen in touched.items()}

    writes = {table: base.tables[table].version + 1 for table in proposal["written"]}
    reads = (tuple(proposal["read"]), listed(proposal["read"])) if strict else ((), None)
    partitions = listed(proposal["written"])
    return IntentionRecord(
        txn_id, base.seq, writes, partitions, base=base, tables_read=reads[0], partitions_read=reads[1]
    )


def decide(catalog: Catalog, intention: IntentionRecord) -> bool:
    commit = catalog.commit(intention.expected_seq, intention.tables_written, 0.0, intention)
    return run_generator(commit)[1].success


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", SCOPES)
def test_serializable_never_commits_what_snapshot_isolation_refuses(kind: str, scope: Scope) -> None:
    """At every attempt of a random history both isolations decide on one state; one of them goes on from it."""
    decisions: Counter[tuple[bool, bool]] = Counter()

    @settings(max_examples=40)
    @given(st.lists(proposals(scope), min_size=4, max_size=10))
    def check(history: list[dict[str, Any]]) -> None:
        options: dict[str, Any] = {"scope": scope, "groups": GROUPS}
        shape = (PARTS,) * TABLES
        store = fixed_storage()
        live: Catalog = InstantCatalog(TABLES, shape, 1.0, **options)
        if kind != "instant":
            live = {"cas": CASCatalog, "append": AppendCatalog}[kind](store, TABLES, shape, **options)
        snapshots = [run_generator(live.read())[1]]
        for txn_id, proposal in enumerate(history):
            base, now = snapshots[-1 - min(proposal["age"], len(snapshots) - 1)], snapshots[-1]
            outcomes = {}
            for strict in (False, True):
                branch = copy.deepcopy(live)
                outcomes[strict] = decide(branch, intention_of(proposal, base, txn_id, strict)), branch
            lax, strict = outcomes[False][0], outcomes[True][0]
            assert lax or not strict
            assert lax == unchanged(scope, base, now, proposal["written"])
            assert strict == (lax and unchanged(scope, base, now, proposal["read"]))
            decisions[lax, strict] += 1
            live = outcomes[proposal["strict"]][1]
            snapshots.append(run_generator(live.read())[1])

    check()
    assert min(decisions[True, True], decisions[False, False]) > 0
    assert (decisions[True, False] > 0) == (scope in {"table", "partition"})


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("kind", [CASCatalog, InstantCatalog])
def test_isolation_of_every_attempt_of_a_run(kind: type[Catalog], isolation: str) -> None:
    """Against versions counted from the answers alone: writes decide, and under `serializable` reads too."""
    seen: Counter[tuple[bool, bool]] = Counter()

    @settings(max_examples=20)
    @given(seed=SEEDS, clients=st.integers(2, 10), runtime=st.sampled_from([1.0, 50.0, 200.0]))
    def check(seed: int, clients: int, runtime: float) -> None:
        versions: Counter[int] = Counter()

        class Judged(kind):  # type: ignore[misc,valid-type]
            def commit(
                self, expected_seq: int, writes: Mapping[int, int], timestamp_ms: float, intention: IntentionRecord
            ) -> Any:
                result = yield from super().commit(expected_seq, writes, timestamp_ms, intention)
                same = {table for table, known in enumerate(intention.base.tables) if known.version == versions[table]}
                assert len(intention.tables_read) == (3 if isolation == "serializable" else 0)
                lax, strict = set(writes) <= same, set(intention.tables_read) <= same
                assert result.success == (lax and strict)
                seen[lax, strict] += 1
                versions.update(writes.keys() if result.success else ())
                return result

        place = (4, (1,) * 4) if kind is InstantCatalog else (fixed_storage(5.0), 4, (1,) * 4)
        transaction = {
            "clients": clients,
            "think_time": {"distribution": "exponential", "scale": 20.0},
            "runtime": {"distribution": "exponential", "scale": runtime},
            "tables": {"per_txn": 3, "write_fraction": 0.3},
            "isolation": isolation,
        }
        config = {"simulation": {"duration_ms": 800.0, "seed": seed}, "storage": {"provider": "s3x"}}
        config |= {"catalog": {"num_tables": 4, "scope": "table"}, "transaction": transaction}
        built = build_simulation_config(parse_settings(config))
        statistics = Simulation(replace(built, catalog=Judged(*place, scope="table"))).run()
        assert statistics.table_versions == tuple(versions[table] for table in range(4))

    check()
    assert min(seen[True, True], seen[False, isolation == "snapshot"]) > 0
    assert (seen[True, False] > 0) == (isolation == "serializable")


# ML+: an entry stands until it is merged.


@st.composite
def ml_plus(draw: st.DrawFn) -> dict[str, Any]:
    """Return a contended configuration in which no list seals."""
    exponential = {"distribution": "exponential"}
    num_tables, per_txn = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    transaction = {
        "clients": draw(st.integers(3, 8)),
        "think_time": exponential | {"scale": 50.0},
        "runtime": exponential | {"scale": draw(st.sampled_from([10.0, 150.0]))},
        "retry": draw(st.sampled_from([0, 2, 100])),
        "manifest_list_mode": "append",
        "overlap": draw(st.sampled_from(["partition", "table"])),
        "history": draw(st.sampled_from(["catalog", "table"])),
        "on_real_conflict": draw(st.sampled_from(["abort", "restart", "merge"])),
        "tables": {"per_txn": draw(st.integers(1, num_tables))},
        "partitions": {"per_txn": per_txn},
        "operation_types": {"fast_append": 1.0, "merge_append": 1.0, "validated_overwrite": 1.0},
    }
    return {
        "simulation": {"duration_ms": 1000.0, "seed": draw(SEEDS), "drain": True},
        "storage": {"provider": draw(st.sampled_from(["s3x", "azurex", "instant"]))},
        "catalog": {
            "type": draw(st.sampled_from(["cas", "append"])),
            "scope": draw(st.sampled_from(["catalog", "table", "partition"])),
            "num_tables": num_tables,
            "table_metadata_inlined": draw(st.booleans()),
            "partitions": {"num_partitions": 2},
        },
        "transaction": transaction,
        "manifests": {"list_per": draw(st.sampled_from(["table", "partition"]))},
    }


@pytest.mark.parametrize("probability", [0.0, 0.6])
def test_ml_plus_appends_an_entry_once_unless_its_data_is_merged(probability: float) -> None:
    """No list is written. A false conflict writes nothing again; what a commit does not stand on is an orphan."""
    seen: Counter[str] = Counter()

    @settings(max_examples=50)
    @given(ml_plus())
    def check(config: dict[str, Any]) -> None:
        config["transaction"]["real_conflict_probability"] = probability
        statistics = run(config)
        per_table = (
            config["transaction"]["partitions"]["per_txn"] if config["manifests"]["list_per"] == "partition" else 1
        )
        orphans = 0
        for row in statistics.transactions:
            tables = len(row.tables_written)
            assert row.manifest_list_writes == 0
            if not row.real_conflicts:
                assert row.manifest_list_appends == per_table * tables
                assert row.metadata_writes == (0 if config["catalog"]["table_metadata_inlined"] else tables)
            if row.operation_type == "fast_append":
                assert row.manifest_file_writes == tables
            orphans += row.manifest_list_appends - (0 if row.abort_reason else per_table * tables)
            seen.update(false=row.false_conflicts, real=row.real_conflicts)
        counters = statistics.manifest_list_counters
        appended = sum(row.manifest_list_appends for row in statistics.transactions)
        assert (counters.manifest_append_physical_success, counters.manifest_append_sealed_rewrite) == (appended, 0)
        assert counters.manifest_append_orphans == orphans
        seen.update(missed=counters.manifest_append_physical_failure, orphans=orphans)

    check()
    assert min(seen["false"], seen["missed"], seen["orphans"]) > 0
    assert (seen["real"] > 0) == (probability > 0.0)


def crowd(seed: int, clients: int, duration_ms: float, **transaction: Any) -> Statistics:
    """Run closed clients on one table of a store with appends, for as long as it takes."""
    common = {"clients": clients, "think_time": {"distribution": "exponential", "scale": 20.0}, "retry": 1000}
    common["runtime"] = {"distribution": "fixed", "value": 10.0}
    simulation = {"duration_ms": duration_ms, "drain": True, "seed": seed}
    return run({"simulation": simulation, "storage": {"provider": "s3x"}, "transaction": common | transaction})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("entries", [1, 2, 5])
def test_no_entry_is_lost_where_many_rewrite(entries: int, seed: int) -> None:
    """Each list takes so many entries before it is sealed, and who opens the next one appends to it."""
    sealing = {"manifest_list_mode": "append", "manifest_list_seal_bytes": entries * 50 - 1}
    statistics = crowd(seed, 12, 4000.0, operation_types={"fast_append": 1.0}, **sealing)
    rows, counters = statistics.transactions, statistics.manifest_list_counters
    assert len(rows) == statistics.committed > 60
    assert {row.manifest_list_appends for row in rows} == {1}
    assert counters.manifest_append_physical_success == len(rows)
    assert counters.manifest_append_sealed_rewrite == (len(rows) - 1) // entries
    assert statistics.manifest_list_writes > counters.manifest_append_sealed_rewrite
    assert statistics.manifest_list_reads >= len(rows) + statistics.manifest_list_writes


def test_merged_files_are_between_the_limits() -> None:
    """Every real conflict merges 2 to 4 files, by an exponential draw of mean 3."""
    drawn = {"distribution": {"distribution": "exponential", "scale": 3.0}, "min": 2, "max": 4}
    merge = {"on_real_conflict": "merge", "conflicting_manifests": drawn, "real_conflict_probability": 1.0}
    think = {"distribution": "exponential", "scale": 400.0}
    rows = crowd(5, 4, 40_000.0, think_time=think, operation_types={"validated_overwrite": 1.0}, **merge).transactions
    assert {row.manifest_file_reads for row in rows if row.real_conflicts == 1} == {2, 3, 4}
    for row in rows:
        merges = row.real_conflicts
        assert (row.false_conflicts, row.no_overlap_conflicts, row.total_retries) == (0, 0, merges)
        assert 2 * merges <= row.manifest_file_reads <= 4 * merges
        assert row.manifest_file_writes == (1 + merges) + row.manifest_file_reads
        assert row.manifest_list_writes == 1 + merges


# Racing appenders: one winner for each version.


def run_together(processes: Iterable[tuple[float, Generator[float, None, None]]]) -> None:
    """Run generators of delays, each from its own start, in the order of their events."""
    queue = [(start_ms, number, process) for number, (start_ms, process) in enumerate(processes)]
    heapq.heapify(queue)
    while queue:
        now_ms, number, process = heapq.heappop(queue)
        for delay_ms in process:
            heapq.heappush(queue, (now_ms + delay_ms, number, process))
            break


def appender(
    catalog: Catalog, txn_id: int, rng: np.random.RandomState, outcomes: list[tuple[int, bool]]
) -> Generator[float, None, None]:
    """Propose the next version of table 0, up to four times, and note what was answered."""
    for _ in range(4):
        base = yield from catalog.read()
        yield rng.uniform(0.0, 20.0)
        version = base.tables[0].version + 1
        intention = IntentionRecord(txn_id, base.seq, {0: version}, base=base)
        result = yield from catalog.commit(base.seq, {0: version}, 0.0, intention)
        outcomes.append((version, result.success))
        if result.success:
            return


def test_of_those_who_append_one_version_exactly_one_is_told_that_it_did() -> None:
    """3,000 races of 2 to 5 appenders, with seals, few physical retries and any effect point."""
    seen: Counter[str] = Counter()
    times = dict.fromkeys(("read", "write", "cas", "append", "append_failure"), UniformLatency(1.0, 20.0))
    store = fixed_storage()
    profile = replace(store.profile, **times)
    for seed in range(3000):
        rng = np.random.RandomState(seed)
        log = AppendLog(compaction_max_entries=seed % 4, max_physical_retries=(100, 1, 2)[seed % 3])
        storage = ProfiledStorage(rng, profile, store.failures)
        catalog = AppendCatalog(storage, 1, (1,), effect_point=(1.0, 0.5, 0.0)[seed // 4 % 3], log=log)
        outcomes: list[tuple[int, bool]] = []
        racers = range(2 + seed // 12 % 4)
        run_together((rng.uniform(0.0, 10.0), appender(catalog, racer, rng, outcomes)) for racer in racers)
        winners = Counter(version for version, success in outcomes if success)
        report = catalog.report()
        assert winners == dict.fromkeys(range(1, report.seq + 1), 1), f"seed {seed}"
        assert report.table_versions == (report.seq,), f"seed {seed}"
        assert report.counters.append_logical_success == report.seq, f"seed {seed}"
        proposed = Counter(version for version, _ in outcomes)
        seen["contested"] += sum(proposed[version] > 1 for version in winners)
        seen["missed"] += report.counters.append_physical_failure
        seen["compacted"] += report.counters.append_compactions_completed
    assert min(seen["contested"], seen["missed"], seen["compacted"]) > 1000
