"""Configuration files: what is refused and how, what a hash covers, what is built."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from endive.catalog import AppendCatalog, AppendLog, CASCatalog, InstantCatalog, assign_groups
from endive.config import (
    build_simulation_config,
    changed_settings,
    compute_experiment_hash,
    dotted_lines,
    json_schema,
    load_provider_profiles,
    load_simulation_config,
    parse_settings,
    resolved_lines,
    warnings_of,
)
from endive.config_errors import ConfigError
from endive.conflict_detector import ProbabilisticConflictDetector
from endive.operation_costs import FAST_APPEND, merge_append_costs, validated_overwrite_costs
from endive.policy import Backoff, CommitPolicy, ConflictingManifests, ManifestListLog, ObjectSizes
from endive.simulation import Simulation
from endive.storage import (
    ArtifactLatency,
    EmpiricalLatency,
    ExponentialLatency,
    FailureLatencies,
    FixedLatency,
    LognormalLatency,
    NormalLatency,
    ProfiledStorage,
    UniformLatency,
)
from endive.test_utils import run_generator
from endive.workload import MixedWorkload, ZipfPartitionSelector, ZipfTableSelector
from tests.strategies import configurations

REPOSITORY = Path(__file__).parent.parent
MINIMAL = """
simulation.duration_ms = 1000
storage.provider = "s3x"
transaction.runtime = {mean = 100, sigma = 1.0}
transaction.inter_arrival.scale = 100.0
"""
SPECIFICATION_EXAMPLE = """
[simulation]
duration_ms = 3600000
seed = 42
output_path = "results.parquet"

[experiment]
label = "exp_baseline"

[storage]
provider = "s3x"

[catalog]
num_tables = 1

[catalog.partitions]
num_partitions = 100

[transaction]
retry = 10
runtime.mean = 180000
runtime.sigma = 1.5
inter_arrival.distribution = "exponential"
inter_arrival.scale = 100.0
real_conflict_probability = 0.0
manifest_list_mode = "rewrite"

[transaction.operation_types]
fast_append = 0.7
merge_append = 0.2
validated_overwrite = 0.1

[transaction.retry_backoff]
enabled = true
base_ms = 10.0
multiplier = 2.0
max_ms = 5000.0
jitter = 0.1
"""


def with_changes(*lines: str, without: str = "\0") -> dict[str, Any]:
    kept = [line for line in MINIMAL.splitlines() if not line.startswith(without)]
    return tomllib.loads("\n".join([*kept, *lines]))


def refusal(*lines: str, without: str = "\0") -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings(with_changes(*lines, without=without))
    assert len(caught.value.lines) == 1, caught.value.lines
    return caught.value.lines[0]


def test_the_specifications_example_is_read_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "cfg.toml"
    path.write_text(SPECIFICATION_EXAMPLE)
    config = load_simulation_config(path)
    assert (config.duration_ms, config.seed, config.max_retries) == (3_600_000.0, 42, 10)
    assert isinstance(config.catalog, CASCatalog)
    assert config.catalog.scope == "catalog"
    assert config.storage_provider.name == "s3x"
    workload = config.workload.config
    assert workload.runtime == LognormalLatency.from_mean(180_000.0, 1.5, 0.0)
    assert workload.inter_arrival == ExponentialLatency(100.0)
    assert [(costs.name, weight) for costs, weight in workload.weighted_operations()] == [
        ("fast_append", 0.7),
        ("merge_append", 0.2),
        ("validated_overwrite", 0.1),
    ]
    assert (config.backoff_enabled, config.backoff_base_ms, config.backoff_max_ms) == (True, 10.0, 5000.0)
    assert config.policy == CommitPolicy()
    assert [load_simulation_config(path, seed_override=seed).seed for seed in (7, 0)] == [7, 0]


# Each wrong input, and what its one line must say: the key, the value, what is allowed.
REFUSALS = [
    (["transaction.retyr = 3"], "", ["transaction.retyr", "unknown key", "did you mean retry"]),
    (["frobnicate.x = 3"], "", ["frobnicate", "unknown key", "simulation"]),
    (
        ["transaction.runtime = {mean = 1, sgima = 1}"],
        "transaction.runtime",
        ["transaction.runtime.sgima", "unknown key", "did you mean sigma"],
    ),
    (['simulation.output_path = ""'], "", ['simulation.output_path = ""', "must name a file"]),
    (["simulation.duration_ms = -1"], "simulation", ["simulation.duration_ms = -1", "more than 0"]),
    (["simulation.duration_ms = 0"], "simulation", ["simulation.duration_ms = 0", "more than 0"]),
    (["simulation.duration_ms = nan"], "simulation", ["simulation.duration_ms = nan", "finite"]),
    (["simulation.duration_ms = inf"], "simulation", ["simulation.duration_ms = inf", "finite"]),
    (['simulation.duration_ms = "long"'], "simulation", ['simulation.duration_ms = "long"', "a number"]),
    (["simulation.seed = -1"], "", ["simulation.seed = -1", "0 or more"]),
    (["simulation.seed = 99999999999999999999"], "", ["simulation.seed", "must be 9223372036854775807 or less"]),
    (["simulation.seed = 1.5"], "", ["simulation.seed = 1.5", "whole number"]),
    (["transaction.retry = true"], "", ["transaction.retry = true", "whole number"]),
    (["transaction.retry = -2"], "", ["transaction.retry = -2", "0 or more"]),
    (["simulation.drain = 1"], "", ["simulation.drain = 1", "true or false"]),
    (['storage.provider = "s4"'], "storage", ['storage.provider = "s4"', "'s3', 's3x', 'azure', 'azurex', 'gcp'"]),
    (['storage.profile = "2024-01"'], "", ["storage.profile", "2025-06", "2025-12"]),
    (["storage.max_parallel = 0"], "", ["storage.max_parallel = 0", "1 or more"]),
    (["catalog.effect_point = 1.5"], "", ["catalog.effect_point = 1.5", "1 or less"]),
    (["catalog.num_tables = 0"], "", ["catalog.num_tables = 0", "1 or more"]),
    (["catalog.latency_ms = 0"], "", ["catalog.latency_ms = 0", "more than 0"]),
    (["catalog = 3"], "", ["catalog = 3", "a table"]),
    (['experiment.label = "../x"'], "", ["experiment.label", "letters, digits"]),
    ([], "simulation", ["simulation", "missing"]),
    ([], "transaction.runtime", ["transaction.runtime", "missing"]),
    ([], "transaction.inter_arrival", ["transaction.inter_arrival", "missing"]),
    (["transaction.runtime = {sigma = 1}"], "transaction.runtime", ["transaction.runtime", "a median or a mean"]),
    (
        ["transaction.runtime = {mean = 1, median = 2, sigma = 1}"],
        "transaction.runtime",
        ["transaction.runtime.mean = 1", "transaction.runtime.median"],
    ),
    (["transaction.runtime = 5"], "transaction.runtime", ["transaction.runtime = 5", "a table"]),
    (
        ['transaction.inter_arrival = {distribution = "poisson", scale = 1}'],
        "transaction.inter_arrival",
        ['transaction.inter_arrival.distribution = "poisson"', "exponential", "lognormal", "empirical"],
    ),
    (
        ['transaction.inter_arrival = {distribution = "fixed", value = 0}'],
        "transaction.inter_arrival",
        ["transaction.inter_arrival", "value = 0", "1e-06 or more"],
    ),
    (
        ["transaction.inter_arrival.scale = 1e-300"],
        "transaction.inter_arrival",
        ["transaction.inter_arrival", "scale = 1e-300", "1e-06 or more"],
    ),
    (
        ['transaction.inter_arrival = {distribution = "lognormal", scale = 5, sigma = 1}'],
        "transaction.inter_arrival",
        ["transaction.inter_arrival.scale", "unknown key", "median"],
    ),
    (
        ['transaction.inter_arrival = {distribution = "uniform", low = 5, high = 5}'],
        "transaction.inter_arrival",
        ["transaction.inter_arrival.low = 5", "transaction.inter_arrival.high = 5"],
    ),
    (
        ['transaction.inter_arrival = {distribution = "empirical", probabilities = [0, 0.9], values = [1, 2]}'],
        "transaction.inter_arrival",
        ["transaction.inter_arrival.probabilities = [0.0, 0.9]", "rise from 0 to 1"],
    ),
    (
        ['transaction.inter_arrival = {distribution = "empirical", probabilities = [0, 1], values = [3, 2]}'],
        "transaction.inter_arrival",
        ["transaction.inter_arrival.values = [3.0, 2.0]", "not fall"],
    ),
    (
        ["transaction.operation_types = {fast_append = 0, merge_append = 0}"],
        "",
        ["transaction.operation_types", "fast_append = 0", "more than 0"],
    ),
    (
        ["transaction.operation_types.fast_append = -1"],
        "",
        ["transaction.operation_types.fast_append = -1", "0 or more"],
    ),
    (
        ["transaction.operation_types.upsert = 1"],
        "",
        ["transaction.operation_types.upsert", "fast_append, merge_append, validated_overwrite"],
    ),
    (["transaction.tables.per_txn = 2"], "", ["transaction.tables.per_txn = 2", "catalog.num_tables = 1"]),
    (["transaction.partitions.per_txn = 2"], "", ["transaction.partitions.per_txn = 2", "catalog.partitions", "1"]),
    (
        ["catalog.num_tables = 2", "catalog.partitions.per_table = [1, 2, 3]"],
        "",
        ["catalog.partitions.per_table = [1, 2, 3]", "catalog.num_tables = 2"],
    ),
    (
        ["catalog.partitions = {num_partitions = 2, per_table = [2]}"],
        "",
        ["catalog.partitions.num_partitions = 2", "catalog.partitions.per_table"],
    ),
    (["catalog.partitions.per_table = [0]"], "", ["catalog.partitions.per_table[0] = 0", "1 or more"]),
    (
        ['storage.provider = "s3"', 'catalog.type = "append"'],
        "storage",
        ['catalog.type = "append"', 'storage.provider = "s3"'],
    ),
    (
        ['catalog = {type = "append", provider = "gcp"}'],
        "",
        ['catalog.type = "append"', 'catalog.provider = "gcp"'],
    ),
    (
        ['storage.provider = "gcp"', 'transaction.manifest_list_mode = "append"'],
        "storage",
        ['transaction.manifest_list_mode = "append"', 'storage.provider = "gcp"'],
    ),
    (
        ['catalog = {provider = "s3", latency_ms = 3}'],
        "",
        ["catalog.latency_ms = 3", "catalog.provider"],
    ),
    (
        ['catalog = {type = "instant", provider = "s3"}'],
        "",
        ['catalog.provider = "s3"', 'catalog.type = "instant"'],
    ),
    (
        ["catalog.latency_ms = 3", 'storage.latency.catalog.read = {distribution = "fixed", value = 1}'],
        "",
        ["storage.latency.catalog", "catalog.latency_ms"],
    ),
    (["transaction.runtime = {median = 5, sigma = 100}"], "transaction.runtime", ["runtime.sigma = 100", "20 or less"]),
    (["catalog.num_tables = 10000000000000000000"], "", ["catalog.num_tables", "must be 1000000 or less"]),
    (
        ["catalog = {num_tables = 1000, partitions.num_partitions = 100000}"],
        "",
        ["catalog.partitions", "100,000,000", "10,000,000"],
    ),
    (
        ["transaction.clients = 1000000000000"],
        "transaction.inter_arrival",
        ["transaction.clients", "must be 1000000 or less"],
    ),
    (["manifests.manifest_list_bytes = 99999999999999999999"], "", ["manifests.manifest_list_bytes", "or less"]),
    (['transaction.operation_types = {"é" = 1}'], "", ["transaction.operation_types", "letters, digits"]),
    (["catalog = {num_groups = 2, num_tables = 4}"], "", ["catalog.num_groups = 2", 'catalog.scope = "group"']),
    (
        ['catalog = {num_groups = 5, num_tables = 4, scope = "group"}'],
        "",
        ["catalog.num_groups = 5", "catalog.num_tables = 4"],
    ),
    (
        ['catalog = {num_groups = 2, num_tables = 3, scope = "group"}', "transaction.tables.per_txn = 2"],
        "",
        ["transaction.tables.per_txn = 2", "must be at most 1", "catalog.num_groups = 2"],
    ),
    (
        [
            'transaction.isolation = "serializable"',
            "transaction.tables = {per_txn = 2, write_fraction = 0.5}",
            "catalog.num_tables = 2",
        ],
        "",
        ['transaction.isolation = "serializable"', 'catalog.scope = "catalog"'],
    ),
    (
        [
            'transaction.isolation = "serializable"',
            'catalog.scope = "table"',
            "transaction.tables.write_fraction = 0.5",
        ],
        "",
        ['transaction.isolation = "serializable"', "transaction.tables.write_fraction", "per_txn"],
    ),
    (['manifests.list_per = "partition"'], "", ['manifests.list_per = "partition"', "transaction.partitions.per_txn"]),
    (["transaction.clients = 3"], "", ["transaction.inter_arrival", "transaction.clients"]),
    (
        ["transaction.clients = 3"],
        "transaction.inter_arrival",
        ["transaction.clients = 3", "transaction.think_time"],
    ),
    (['catalog.mode = "append"'], "", ["catalog.mode", "renamed to catalog.type"]),
    (["storage.T_CAS.mean = 50"], "", ["storage.T_CAS", "renamed to storage.latency.catalog.write"]),
]


@pytest.mark.parametrize(("lines", "without", "said"), REFUSALS)
def test_a_wrong_key_or_value_is_told_in_one_line(lines: list[str], without: str, said: list[str]) -> None:
    line = refusal(*lines, without=without or "\0")
    assert "\n" not in line
    for text in said:
        assert text in line, line


def test_every_wrong_key_gets_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(with_changes("transaction.retry = -1", "catalog.num_tables = 0", "catalog.foo = 1"))
    assert [line.split(" ")[0].rstrip(":") for line in caught.value.lines] == [
        "catalog.num_tables",
        "catalog.foo",
        "transaction.retry",
    ]


def test_a_missing_file_and_bad_toml_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml: cannot be read: No such file"):
        load_simulation_config(tmp_path / "absent.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[simulation]\nduration_ms = = 3\n")
    with pytest.raises(ConfigError, match=r"bad.toml: is not TOML: .*line 2"):
        load_simulation_config(bad)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_simulation_config(tmp_path)


@pytest.mark.parametrize(
    ("provider", "catalog", "expected"),
    [
        ("s3", {}, CASCatalog),
        ("s3x", {}, CASCatalog),
        ("gcp", {"type": "instant"}, InstantCatalog),
        ("s3x", {"type": "append"}, AppendCatalog),
        ("s3", {"type": "append", "provider": "azure"}, AppendCatalog),
        ("s3", {"type": "append", "latency_ms": 5.0}, AppendCatalog),
        ("s3", {"latency_ms": 5.0}, CASCatalog),
    ],
)
def test_the_catalog_that_is_built(provider: str, catalog: dict[str, Any], expected: type) -> None:
    data = with_changes(f'storage.provider = "{provider}"', without="storage")
    built = build_simulation_config(parse_settings(data | {"catalog": catalog})).catalog
    assert type(built) is expected
    assert built.scope == ("table" if expected is AppendCatalog else "catalog")
    if "latency_ms" in catalog:
        assert {built.storage.profile.read.mean_ms(), built.storage.profile.cas.mean_ms()} == {5.0}
    elif "provider" in catalog:
        assert built.storage.name == catalog["provider"]


def test_a_catalog_service_has_no_floor() -> None:
    built = build_simulation_config(parse_settings(with_changes("catalog.latency_ms = 0.25"))).catalog
    assert run_generator(built.read())[0] == 0.25


def test_costs_can_be_overridden_and_operation_types_added() -> None:
    data = with_changes(
        "transaction.costs.fast_append.manifest_file_writes = 0",
        'transaction.costs.rewrite = {like = "validated_overwrite", redone = {manifest_file_writes = 3}}',
        "transaction.operation_types = {fast_append = 1, rewrite = 2}",
    )
    operations = build_simulation_config(parse_settings(data)).workload.config.weighted_operations()
    (append, append_weight), (rewrite, rewrite_weight) = operations
    assert (append.name, append_weight, rewrite.name, rewrite_weight) == ("fast_append", 1.0, "rewrite", 2.0)
    assert append.first_attempt.manifest_file_writes == append.redone_attempt.manifest_file_writes == 0
    assert append.first_attempt.manifest_list_writes == 1
    assert rewrite.can_conflict
    assert (rewrite.first_attempt.manifest_file_writes, rewrite.redone_attempt.manifest_file_writes) == (1, 3)
    assert rewrite.per_missed_commit.historical_ml_reads == 1.0


def test_streams_take_what_they_leave_out_from_transaction() -> None:
    data = with_changes(
        '[[streams]]\nname = "ingest"\noperation_types = {fast_append = 1}',
        '[[streams]]\nname = "compaction"\nclients = 2\nthink_time = {distribution = "fixed", value = 5}',
    )
    workload = build_simulation_config(parse_settings(data)).workload
    assert isinstance(workload, MixedWorkload)
    ingest, compaction = (stream.config for stream in workload.streams)
    assert (ingest.name, ingest.clients, ingest.inter_arrival) == ("ingest", 0, ExponentialLatency(100.0))
    assert (compaction.name, compaction.clients, compaction.inter_arrival.mean_ms()) == ("compaction", 2, 5.0)
    assert ingest.runtime == compaction.runtime


EVERY_KEY = """
simulation = { duration_ms = 1234, seed = 5, drain = true }
[storage]
provider = "s3x"
profile = "2025-12"
max_parallel = 3
cas_failure_latency = true
append_failure_latency = false
latency.manifest_list.read = { distribution = "fixed", value = 31 }
latency.metadata.write = { distribution = "uniform", low = 32, high = 33 }
[catalog]
type = "append"
provider = "azure"
scope = "group"
num_tables = 6
num_groups = 2
group_seed = 9
effect_point = 0.25
table_metadata_inlined = false
partitions.per_table = [4, 5, 6, 7, 8, 9]
append.entry_bytes = 11
append.compaction_threshold_bytes = 12
append.compaction_max_entries = 13
append.max_physical_retries = 14
append.compaction_latency = { distribution = "normal", mean = 15, stddev = 16, min = 17 }
[transaction]
retry = 18
total_timeout_ms = 19
conflict_detector = "probabilistic"
real_conflict_probability = 0.2
on_real_conflict = "merge"
conflicting_manifests = { distribution = { distribution = "exponential", scale = 21 }, min = 2, max = 22 }
overlap = "table"
history = "table"
isolation = "serializable"
manifest_list_mode = "append"
manifest_list_entry_bytes = 23
manifest_list_seal_bytes = 24
manifests_per_concurrent_commit = 2.5
validation_manifests_per_commit = 2.6
runtime = { median = 27, sigma = 0.28, min = 2 }
inter_arrival = { distribution = "empirical", probabilities = [0, 1], values = [29, 30] }
tables = { per_txn = 3, selector = "zipf", alpha = 1.1, write_fraction = 0.4 }
partitions = { per_txn = 4, selector = "zipf", alpha = 1.2, write_fraction = 0.6 }
operation_types = { fast_append = 1, merge_append = 2, validated_overwrite = 3 }
[transaction.retry_backoff]
enabled = true
base_ms = 41
multiplier = 4.2
max_ms = 4300
jitter = 0.44
jitter_kind = "iceberg"
[manifests]
catalog_entry_bytes = 51
table_metadata_bytes = 52
manifest_list_bytes = 53
manifest_file_bytes = 54
entry_bytes = 55
list_per = "partition"
"""


def test_every_key_reaches_the_simulation() -> None:
    config = build_simulation_config(parse_settings(tomllib.loads(EVERY_KEY)))
    assert (config.duration_ms, config.seed, config.drain) == (1234.0, 5, True)
    assert (config.max_retries, config.ml_append_mode) == (18, True)
    assert config.policy == CommitPolicy(
        total_timeout_ms=19.0,
        max_parallel=3,
        table_metadata_inlined=False,
        overlap="table",
        history="table",
        on_real_conflict="merge",
        isolation="serializable",
        list_per="partition",
        sizes=ObjectSizes(table_metadata=52, manifest_list=53, manifest_file=54, list_growth=55),
        manifest_list_log=ManifestListLog(entry_bytes=23, seal_bytes=24),
        conflicting_manifests=ConflictingManifests(ExponentialLatency(21.0), 2, 22),
    )
    backoff = Backoff(base_ms=41.0, multiplier=4.2, max_ms=4300.0, jitter=0.44, jitter_kind="iceberg")
    assert config.effective_policy().backoff == backoff
    assert isinstance(config.conflict_detector, ProbabilisticConflictDetector)
    assert config.conflict_detector.real_conflict_probability == 0.2


def test_every_key_of_the_stores_reaches_the_simulation() -> None:
    config = build_simulation_config(parse_settings(tomllib.loads(EVERY_KEY)))
    storage, catalog = config.storage_provider, config.catalog
    assert isinstance(storage, ProfiledStorage)
    assert (storage.name, storage.profile) == ("s3x", load_provider_profiles("2025-12")["s3x"])
    assert storage.failures == FailureLatencies(cas=True, append=False)
    assert storage.artifacts == {
        "manifest_list": ArtifactLatency(read=FixedLatency(31.0)),
        "metadata": ArtifactLatency(write=UniformLatency(32.0, 33.0)),
    }
    assert isinstance(catalog, AppendCatalog)
    assert (catalog.scope, catalog.effect_point, catalog.entry_bytes) == ("group", 0.25, 51)
    assert (catalog.storage.name, catalog.groups) == ("azure", assign_groups(6, 2, 9))
    assert catalog.log == AppendLog(11, 12, 13, 14, NormalLatency(15.0, 16.0, 17.0))
    snapshot = run_generator(catalog.read())[1]
    assert [table.num_partitions for table in snapshot.tables] == [4, 5, 6, 7, 8, 9]


def test_every_key_of_a_stream_reaches_the_simulation() -> None:
    stream = build_simulation_config(parse_settings(tomllib.loads(EVERY_KEY))).workload.config
    assert (stream.num_tables, stream.partitions_per_table) == (6, (4, 5, 6, 7, 8, 9))
    assert stream.runtime == LognormalLatency.from_median(27.0, 0.28, 2.0)
    assert stream.inter_arrival == EmpiricalLatency((0.0, 1.0), (29.0, 30.0))
    assert (stream.tables_per_txn, stream.partitions_per_txn, stream.groups) == (3, 4, assign_groups(6, 2, 9))
    assert isinstance(stream.table_selector, ZipfTableSelector)
    assert (stream.table_selector.alpha, stream.table_selector.write_fraction) == (1.1, 0.4)
    assert isinstance(stream.partition_selector, ZipfPartitionSelector)
    assert (stream.partition_selector.alpha, stream.partition_selector.write_fraction) == (1.2, 0.6)
    assert stream.weighted_operations() == (
        (FAST_APPEND, 1.0), (merge_append_costs(2.5), 2.0), (validated_overwrite_costs(2.6), 3.0)
    )  # fmt: skip


STREAMS = """
simulation.duration_ms = 3000
storage.provider = "s3x"
catalog.num_tables = 4
[transaction]
runtime = { median = 100, sigma = 1 }
inter_arrival.scale = 50
operation_types = { fast_append = 1 }
tables.per_txn = 3
[[streams]]
name = "a"
"""


def rows_of(config: dict[str, Any]) -> Any:
    return Simulation(build_simulation_config(parse_settings(config), seed_override=1)).run().to_dataframe()


def test_a_stream_that_spells_out_defaults_means_them() -> None:
    """What a stream gives wins over [transaction], even where it equals the default of the schema."""
    inherited = tomllib.loads(STREAMS)
    mixed = tomllib.loads(STREAMS)
    mixed["streams"][0]["operation_types"] = {"fast_append": 0.7, "merge_append": 0.2, "validated_overwrite": 0.1}
    single = tomllib.loads(STREAMS)
    single["streams"][0]["tables"] = {"per_txn": 1}
    assert set(rows_of(inherited).operation_type) == {"fast_append"}
    assert len(set(rows_of(mixed).operation_type)) == 3
    assert {len(tables) for tables in rows_of(inherited).tables_written} == {3}
    assert {len(tables) for tables in rows_of(single).tables_written} == {1}
    assert len({compute_experiment_hash(config) for config in (inherited, mixed, single)}) == 3


def test_a_stream_hashes_alike_whether_it_inherits_or_repeats() -> None:
    repeating = tomllib.loads(STREAMS)
    repeating["streams"][0] |= {"tables": {"per_txn": 3}, "operation_types": {"fast_append": 1}}
    moved = tomllib.loads(STREAMS)
    moved["streams"][0] |= moved.pop("transaction")
    hashes = {compute_experiment_hash(config) for config in (tomllib.loads(STREAMS), repeating, moved)}
    assert len(hashes) == 1


@settings(max_examples=40)
@given(configurations())
def test_the_kept_snapshot_gives_the_same_rows(config: dict[str, Any]) -> None:
    parsed = parse_settings(config)
    text = "\n".join(f"{key} = {value}" for key, value in dotted_lines(changed_settings(parsed)))
    assert rows_of(tomllib.loads(text)).equals(rows_of(config))


def hash_of(*lines: str, without: str = "\0") -> str:
    return compute_experiment_hash(with_changes(*lines, without=without))


def test_hash_is_twelve_digits_and_ignores_what_does_not_change_results() -> None:
    base = hash_of()
    assert len(base) == 12
    assert set(base) <= set("0123456789abcdef")
    assert base == hash_of("simulation.seed = 7", 'simulation.output_path = "x"', 'experiment.label = "y"')
    assert base == hash_of("transaction.retry = 10", 'storage.profile = "2025-06"', "catalog.num_tables = 1")
    assert base == hash_of('catalog.type = "cas"', 'catalog.scope = "catalog"', 'catalog.provider = "s3x"')
    assert base == hash_of("catalog.partitions.per_table = [1]", "transaction.tables.per_txn = 1")
    assert base == hash_of("simulation.duration_ms = 1000.0", without="simulation")
    assert base == hash_of(
        "transaction.operation_types = {validated_overwrite = 0.1, merge_append = 0.2, fast_append = 0.7}"
    )
    reordered = tomllib.loads("\n".join(reversed(MINIMAL.splitlines())))
    assert base == compute_experiment_hash(reordered)


@pytest.mark.parametrize(
    "line",
    [
        "catalog.append.entry_bytes = 7",
        "catalog.group_seed = 3",
        "transaction.retry_backoff.base_ms = 3",
        "transaction.max_restarts = 2",
        "transaction.tables.alpha = 3",
        "transaction.conflicting_manifests.max = 3",
        "transaction.manifest_list_entry_bytes = 3",
        'transaction = {conflict_detector = "probabilistic"}',
    ],
)
def test_hash_leaves_out_keys_that_decide_nothing_here(line: str) -> None:
    data = with_changes() | {}
    for table, values in tomllib.loads(line).items():
        data[table] = data.get(table, {}) | values
    assert compute_experiment_hash(data) == hash_of()


@pytest.mark.parametrize(
    "line",
    [
        "simulation.drain = true",
        "transaction.retry = 11",
        "catalog.num_tables = 2",
        'catalog.type = "append"',
        'catalog.type = "instant"',
        "transaction.real_conflict_probability = 0.1",
        "storage.max_parallel = 1",
        'storage.profile = "2025-12"',
        "transaction.operation_types = {fast_append = 1}",
        "manifests.entry_bytes = 1",
        'storage.latency.metadata.read = {distribution = "fixed", value = 1}',
    ],
)
def test_hash_covers_what_changes_results(line: str) -> None:
    assert hash_of(line) != hash_of()


def test_distributions_of_another_kind_hash_apart() -> None:
    normal = 'transaction.runtime = {distribution = "normal", mean = 100, stddev = 0}'
    fixed = 'transaction.runtime = {distribution = "fixed", value = 100}'
    assert hash_of(normal, without="transaction.runtime") != hash_of(fixed, without="transaction.runtime")


@settings(max_examples=100)
@given(configurations())
def test_the_kept_snapshot_describes_the_same_simulation(config: dict[str, Any]) -> None:
    parsed = parse_settings(config)
    text = "\n".join(f"{key} = {value}" for key, value in dotted_lines(changed_settings(parsed)))
    again = tomllib.loads(text)
    assert compute_experiment_hash(again) == compute_experiment_hash(parsed)
    assert changed_settings(parse_settings(again)) == changed_settings(parsed)


@settings(max_examples=50)
@given(configurations())
def test_resolved_settings_are_a_configuration_of_the_same_hash(config: dict[str, Any]) -> None:
    parsed = parse_settings(config)
    again = tomllib.loads("\n".join(resolved_lines(parsed)))
    again["catalog"]["partitions"].pop("num_partitions" if "per_table" in again["catalog"]["partitions"] else "", None)
    assert compute_experiment_hash(again) == compute_experiment_hash(parsed)


def test_the_shipped_schema_is_that_of_the_settings() -> None:
    shipped = json.loads((REPOSITORY / "endive" / "config.schema.json").read_text())
    assert shipped == json_schema()
    jsonschema.Draft202012Validator.check_schema(shipped)


@settings(max_examples=50)
@given(configurations())
def test_valid_configurations_satisfy_the_schema(config: dict[str, Any]) -> None:
    jsonschema.validate(config, json_schema())


def test_the_schema_knows_the_specifications_example_and_refuses_a_misspelt_key() -> None:
    example = tomllib.loads(SPECIFICATION_EXAMPLE)
    jsonschema.validate(example, json_schema())
    with pytest.raises(jsonschema.ValidationError, match="retyr"):
        jsonschema.validate(with_changes("transaction.retyr = 3"), json_schema())


def test_every_key_says_what_it_is() -> None:
    def check(node: Any, path: str) -> None:
        for name, entry in node.get("properties", {}).items():
            if name != "distribution":
                assert entry.get("description"), f"{path}.{name}"

    schema = json_schema()
    check(schema, "")
    for name, definition in schema["$defs"].items():
        check(definition, name)


def test_floors_above_medians_and_partitions_without_use_are_warned_of() -> None:
    data = with_changes('storage.provider = "s3"', "catalog.partitions.num_partitions = 8", without="storage")
    warnings = list(warnings_of(parse_settings(data)))
    assert any("manifest list" in line and "30.2 ms" in line and "43 ms" in line for line in warnings)
    assert any("transaction.partitions.per_txn" in line for line in warnings)
    assert not list(warnings_of(parse_settings(with_changes('storage.profile = "2025-12"'))))


def test_thousands_of_digits_and_brackets_are_not_toml_for_us(tmp_path: Path) -> None:
    for text in ("x = " + "9" * 5000, "x = " + "[" * 5000):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"bad.toml: is not TOML: "):
            load_simulation_config(tmp_path / "bad.toml")


def test_floors_are_warned_of_only_where_they_act() -> None:
    replaced = 'storage = {provider = "s3", latency.manifest_list.write = {distribution = "fixed", value = 50}}'
    warnings = list(warnings_of(parse_settings(with_changes(replaced, without="storage"))))
    assert not any("manifest list" in line for line in warnings)
    assert any("manifest file" in line for line in warnings)
    assert not list(warnings_of(parse_settings(with_changes('catalog.provider = "gcp"'))))
    swap = 'storage = {provider = "s3", latency.catalog.write = {distribution = "fixed", value = 5}}'
    warnings = list(warnings_of(parse_settings(with_changes(swap, without="storage"))))
    assert any("committing to the catalog has a median of 5 ms" in line for line in warnings)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_examples_are_valid(path: Path) -> None:
    assert load_simulation_config(path).config_hash
