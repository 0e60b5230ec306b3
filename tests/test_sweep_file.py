"""A sweep file makes the configurations that it says, or says what is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from endive.config import compute_experiment_hash, load_settings
from endive.config_errors import ConfigError
from endive.pipeline.sweep_file import Sweep, find_sweep, load_sweep, parse_sweep, shipped_sweeps
from endive.random_streams import SEED_MAX

EXPERIMENT = """
[simulation]
duration_ms = 20_000
[storage]
provider = "s3x"
[transaction]
runtime = { median = 300, sigma = 1.0 }
inter_arrival.scale = 50.0
"""
STREAMS = """
[simulation]
duration_ms = 20_000
[storage]
provider = "s3x"
[[streams]]
name = "ingest"
runtime = { distribution = "fixed", value = 10 }
inter_arrival.scale = 50.0
[[streams]]
name = "rewrite"
runtime = { distribution = "fixed", value = 900 }
inter_arrival.scale = 5000.0
"""
PUBLISHED = {"exp1": 10, "exp2": 80, "exp3a": 70, "exp3b": 70, "exp4a": 240, "exp4b": 240, "exp4c": 900}
LOADS = [20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000]
SCALE = "transaction.inter_arrival.scale"


def sweep_of(sweep: str, experiment: str = EXPERIMENT, **options: Any) -> Sweep:
    return parse_sweep(tomllib.loads(f"{experiment}\n{sweep}"), "name", **options)


def complaints(sweep: str, experiment: str = EXPERIMENT, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        sweep_of(sweep, experiment, **options)
    return list(raised.value.lines)


def points(sweep: Sweep) -> list[tuple[Any, ...]]:
    return [tuple(configuration.point.values()) for configuration in sweep.configurations]


def test_a_grid_is_the_product_of_its_axes() -> None:
    sweep = sweep_of(f'[sweep.grid]\n"{SCALE}" = [10, 20]\n"storage.provider" = ["s3", "s3x", "gcp"]')
    assert points(sweep) == [(scale, store) for scale in (10, 20) for store in ("s3", "s3x", "gcp")]
    settings = sweep.configurations[3].settings
    assert settings.storage.provider == "s3"
    assert settings.transaction.inter_arrival.scale == 20
    assert (sweep.label, sweep.seeds) == ("name", (1,))


def test_zipped_axes_move_together_within_each_point_of_the_grid() -> None:
    sweep = sweep_of(
        f"""
        [sweep]
        grid = {{ "{SCALE}" = [10, 20] }}
        zip = {{ "storage.provider" = ["s3", "gcp"], "transaction.retry" = [1, 2] }}
        """
    )
    assert points(sweep) == [(10, "s3", 1), (10, "gcp", 2), (20, "s3", 1), (20, "gcp", 2)]
    assert sweep.zipped == ("storage.provider", "transaction.retry")


def test_axes_may_be_written_as_tables_or_as_quoted_keys() -> None:
    quoted = sweep_of(f'[sweep.grid]\n"{SCALE}" = [10, 20]')
    nested = sweep_of(f"[sweep.grid]\n{SCALE} = [10, 20]")
    assert quoted.axes == nested.axes == {SCALE: (10, 20)}


def test_an_axis_may_make_a_table_or_replace_one() -> None:
    made = sweep_of('[sweep.grid]\n"transaction.retry_backoff.enabled" = [true]')
    assert made.configurations[0].settings.transaction.retry_backoff.enabled
    replaced = sweep_of('[sweep.grid]\n"transaction.inter_arrival" = [{ distribution = "fixed", value = 7 }]')
    assert replaced.configurations[0].settings.transaction.inter_arrival.value == 7


def test_a_stream_is_named() -> None:
    sweep = sweep_of('[sweep.grid]\n"streams.rewrite.inter_arrival.scale" = [70, 80]', STREAMS)
    scales = [[stream.inter_arrival.scale for stream in made.settings.streams] for made in sweep.configurations]
    assert scales == [[50, 70], [50, 80]]


def test_without_axes_there_is_one_configuration() -> None:
    assert points(sweep_of("[sweep]\nseeds = 2")) == [()]


def test_seeds_are_a_count_from_the_seed_of_the_file_or_a_list() -> None:
    assert sweep_of("[sweep]\nseeds = 3").seeds == (1, 2, 3)
    assert sweep_of(
        "[sweep]\nseeds = 3",
        f"simulation.seed = 7\n{EXPERIMENT.replace('[simulation]', '')}".replace(
            "duration_ms", "simulation.duration_ms"
        ),
    ).seeds == (7, 8, 9)
    assert sweep_of("[sweep]\nseeds = [9, 0, 4]").seeds == (9, 0, 4)


def test_the_count_can_be_given_instead() -> None:
    assert sweep_of("[sweep]\nseeds = 3", seeds=5).seeds == (1, 2, 3, 4, 5)
    assert sweep_of("[sweep]\nseeds = [9, 0, 4]", seeds=2).seeds == (9, 0)
    (line,) = complaints("[sweep]\nseeds = 3", seeds=1_000_001)
    assert line == "sweep.seeds = 1000001: must be a count from 1 to 1000000 or an array of seeds"
    assert complaints("[sweep]\nseeds = [9, 0, 4]", seeds=4) == ["sweep.seeds = [9, 0, 4]: must have 4 or more seeds"]


def test_quick_is_a_tenth_with_two_seeds_and_a_label_of_its_own() -> None:
    whole, quick = (sweep_of(f'[sweep]\nseeds = 5\ngrid."{SCALE}" = [10, 20]', quick=quick) for quick in (False, True))
    assert quick.seeds == (1, 2)
    assert {made.settings.simulation.duration_ms for made in quick.configurations} == {2000}
    assert quick.label == "name-quick"
    assert not {made.hash for made in whole.configurations} & {made.hash for made in quick.configurations}


def test_a_label_of_the_file_wins_over_its_name() -> None:
    assert sweep_of("[sweep]\n[experiment]\nlabel = 'other'").label == "other"
    assert complaints("[sweep]\n[experiment]\nlabel = 'a/b'")[0].startswith('experiment.label = "a/b": must be letters')


def test_a_configuration_of_a_sweep_is_that_of_the_file_with_the_values(tmp_path: Path) -> None:
    sweep = sweep_of(f'[sweep.grid]\n"{SCALE}" = [10, 20]')
    (tmp_path / "one.toml").write_text(EXPERIMENT.replace("50.0", "20"))
    assert sweep.configurations[1].hash == compute_experiment_hash(load_settings(tmp_path / "one.toml"))


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("", "sweep: must be a table [sweep] with seeds, grid or zip"),
        ("[sweep]\nsteps = 3", "sweep.steps = 3: unknown key; known here: seeds, grid, zip"),
        ("[sweep]\ngrid = 3", "sweep.grid = 3: must be a table of dotted keys, each with its values"),
        ('[sweep.grid]\n"storage.provider" = []', "sweep.grid.storage.provider = []: must have 1 or more values"),
        ('[sweep.grid]\n"storage.provider" = "s3"', 'sweep.grid.storage.provider = "s3": must be an array of values'),
        ('[sweep.grid]\n"storage" = {}', "sweep.grid.storage = {}: must be an array of values"),
        (
            '[sweep.zip]\n"storage.provider" = ["s3", "gcp"]\n"transaction.retry" = [1]',
            "sweep.zip: axes that move together need equal lengths: storage.provider has 2, transaction.retry has 1",
        ),
        (
            '[sweep.grid]\n"transaction.retry" = [1]\n[sweep.zip]\n"transaction.retry" = [2]',
            "sweep.zip.transaction.retry: sets the same as sweep.grid.transaction.retry; one axis may",
        ),
        (
            '[sweep.grid]\n"transaction.runtime" = [1]\n"transaction.runtime.median" = [2]',
            "sweep.grid.transaction.runtime.median: sets the same as sweep.grid.transaction.runtime; one axis may",
        ),
        (
            '[sweep.grid]\n"simulation.seed" = [1, 2]',
            "sweep.grid.simulation.seed = [1, 2]: is not swept; give sweep.seeds a count or a list",
        ),
        (
            '[sweep.grid]\n"experiment.label" = ["a"]',
            'sweep.grid.experiment.label = ["a"]: decides no result, and is not swept',
        ),
        ("[sweep]\nseeds = 0", "sweep.seeds = 0: must be a count from 1 to 1000000 or an array of seeds"),
        ("[sweep]\nseeds = true", "sweep.seeds = true: must be a count from 1 to 1000000 or an array of seeds"),
        ("[sweep]\nseeds = []", "sweep.seeds = []: must have 1 or more seeds"),
        ("[sweep]\nseeds = [1, 2, 1]", "sweep.seeds = [1, 2, 1]: has 1 twice; each seed may be there once"),
        ("[sweep]\nseeds = [1, -2]", f"sweep.seeds[1] = -2: must be a whole number from 0 to {SEED_MAX}"),
        (
            '[sweep.grid]\n"transaction.retry" = [1, -3, 2, -3]',
            "sweep.grid.transaction.retry = -3: must be 0 or more",
        ),
        (
            '[sweep.grid]\n"storage.provider.x" = [1]',
            "sweep.grid.storage.provider.x: there is no such key, because storage.provider is not a table",
        ),
        (
            '[sweep.grid]\n"transaction.retry" = [1, 2, 1]',
            "sweep: the same configuration twice: transaction.retry = 1; and transaction.retry = 1",
        ),
        (
            '[sweep.grid]\n"transaction.max_restarts" = [1, 2]',
            "sweep: the same configuration twice: transaction.max_restarts = 1; and transaction.max_restarts = 2",
        ),
    ],
)
def test_what_is_wrong_is_told_once_with_key_value_and_what_is_allowed(sweep: str, said: str) -> None:
    assert complaints(sweep) == [said]


def test_an_axis_that_the_schema_does_not_have_is_told_with_what_it_has() -> None:
    (line,) = complaints('[sweep.grid]\n"catalog.num_table" = [1, 2]')
    assert line.startswith("sweep.grid.catalog.num_table: unknown key; did you mean num_tables? known here: type, ")


def test_streams_that_are_wrong_are_told_by_name() -> None:
    assert complaints('[sweep.grid]\n"streams.ingest.inter_arrival.scale" = [1, -2]', STREAMS) == [
        "sweep.grid.streams.ingest.inter_arrival.scale = -2: must be more than 0"
    ]
    assert complaints('[sweep.grid]\n"streams.ingst.inter_arrival.scale" = [1]', STREAMS) == [
        'sweep.grid.streams.ingst.inter_arrival.scale: no stream is called ingst; allowed is one of "ingest", "rewrite"'
    ]
    assert complaints('[sweep.grid]\n"streams.ingest" = [1]', STREAMS) == [
        "sweep.grid.streams.ingest: names a stream, not a key of it"
    ]
    assert complaints('[sweep.grid]\n"streams.ingest.clients" = [1]') == [
        "sweep.grid.streams.ingest.clients: names a stream, and the file has no [[streams]]"
    ]


def test_what_is_wrong_with_the_experiment_itself_is_told_once() -> None:
    broken = EXPERIMENT.replace('"s3x"', '"aws"')
    (line,) = complaints(f'[sweep.grid]\n"{SCALE}" = [1, 2, 3]', broken)
    assert line.startswith('storage.provider = "aws": must be one of')


def test_seeds_that_would_run_over_are_refused() -> None:
    experiment = EXPERIMENT.replace("[simulation]", f"[simulation]\nseed = {SEED_MAX}")
    assert sweep_of("[sweep]\nseeds = 1", experiment).seeds == (SEED_MAX,)
    (line,) = complaints("[sweep]\nseeds = 2", experiment)
    assert line.startswith(f"simulation.seed = {SEED_MAX}: must be a whole number from 0")


def test_errors_name_the_file_and_do_not_fill_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"{EXPERIMENT}\n[sweep.grid]\n'transaction.retry' = {list(range(-1, -99, -1))}")
    with pytest.raises(ConfigError) as raised:
        load_sweep(path)
    lines = raised.value.lines
    assert len(lines) == 21
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert lines[-1] == f"{path}: and 78 more"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_sweep(tmp_path / "absent.toml")


def test_shipped_sweeps_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_sweep(Path("exp1")) == shipped_sweeps()["exp1"]
    (tmp_path / "exp1").touch()
    assert find_sweep(Path("exp1")) == Path("exp1")
    with pytest.raises(ConfigError, match="exp9: is neither a file nor a sweep of Endive's: exp1, exp2"):
        find_sweep(Path("exp9"))


@pytest.fixture(scope="module")
def published() -> dict[str, Sweep]:
    return {name: load_sweep(path) for name, path in shipped_sweeps().items() if name in PUBLISHED}


def test_the_published_suite_has_its_size(published: dict[str, Sweep]) -> None:
    sizes = {name: len(sweep.configurations) for name, sweep in published.items()}
    assert sizes == PUBLISHED
    assert sum(len(sweep.configurations) * len(sweep.seeds) for sweep in published.values()) == 8050


def test_the_published_suite_is_fixed_where_it_says(published: dict[str, Sweep]) -> None:
    for name, sweep in published.items():
        assert sweep.label == name
        assert sweep.seeds == (1, 2, 3, 4, 5)
        for made in sweep.configurations:
            settings, txn, catalog = made.settings, made.settings.transaction, made.settings.catalog
            assert settings.simulation.duration_ms == 3_600_000
            assert (settings.storage.profile, settings.storage.max_parallel) == ("2025-12", 4)
            assert (txn.retry, txn.real_conflict_probability) == (10, 0)
            assert (txn.runtime.median, txn.runtime.sigma, txn.runtime.min) == (180_000, 1.5, 30_000)
            assert catalog.partitions.num_partitions == 1
            assert txn.inter_arrival.distribution == "exponential"
            assert txn.inter_arrival.min == 0
            if name == "exp4c":
                assert (catalog.type, catalog.latency_ms, catalog.provider) == (None, None, None)
            else:
                assert (catalog.type, settings.storage.provider) == ("instant", "s3")


@pytest.mark.parametrize(
    ("name", "swept"),
    [
        ("exp1", {}),
        ("exp2", {"share": {1, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1, 0}}),
        ("exp3a", {"latency": {1, 5, 10, 20, 50, 80, 120}}),
        ("exp3b", {"latency": {1, 5, 10, 20, 50, 80, 120}, "share": {0.9}}),
        ("exp4a", {"latency": {1, 10, 50, 120}, "tables": {1, 2, 5, 10, 20, 50}}),
        ("exp4b", {"latency": {1, 10, 50, 120}, "tables": {1, 2, 5, 10, 20, 50}, "share": {0.9}}),
        (
            "exp4c",
            {
                "store": {"s3x", "s3", "azurex", "azure", "gcp"},
                "tables": {1, 2, 5, 10, 20, 50},
                "share": {1, 0.9, 0.5},
                "latency": {None},
            },
        ),
    ],
)
def test_the_published_suite_sweeps_what_it_says(
    published: dict[str, Sweep], name: str, swept: dict[str, set[Any]]
) -> None:
    expected = {"load": set(LOADS), "share": {1}, "latency": {1}, "tables": {1}, "store": {"s3"}} | swept
    found: dict[str, set[Any]] = {key: set() for key in expected}
    for made in published[name].configurations:
        settings = made.settings
        weights = settings.transaction.operation_types
        assert set(weights) <= {"fast_append", "validated_overwrite"}
        assert sum(weights.values()) == pytest.approx(1.0)
        latency = settings.catalog.latency_ms
        found["load"].add(settings.transaction.inter_arrival.scale)
        found["share"].add(weights.get("fast_append", 0))
        found["latency"].add(1 if latency is None and settings.catalog.type == "instant" else latency)
        found["tables"].add(settings.catalog.num_tables)
        found["store"].add(settings.storage.provider)
    assert found == expected


def test_maintenance_sweeps_the_rate_of_the_appends() -> None:
    sweep = load_sweep(shipped_sweeps()["maintenance"])
    rates = [1000 / made.settings.streams[0].inter_arrival.scale for made in sweep.configurations]
    assert rates == [10, 50, 100, 500]
    assert all(made.settings.streams[1].operation_types == {"validated_overwrite": 1} for made in sweep.configurations)
