"""The compiled engine against the reference: equal in every bit, or refused by name."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import endive.config
from endive import results
from endive.catalog import InstantCatalog
from endive.config import build_simulation_config, load_provider_profiles, load_simulation_config, parse_settings
from endive.conflict_detector import ProbabilisticConflictDetector
from endive.engine import EngineError, NotCompiledError, encoding, prepare_machine, warming
from endive.engine.encoding import SLOTS_AT_FIRST
from endive.engine.layout import SLOT, Waiting
from endive.engine.run import run_machine
from endive.files import UnfinishedFile
from endive.results import ROWS_PER_GROUP, read_metadata, to_table
from endive.settings import ProfileName
from endive.simulation import Simulation, SimulationConfig, Statistics
from endive.storage import FixedLatency, LatencyDistribution, ProfiledStorage, ProviderProfile, SizeBasedLatency
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage
from endive.trace import TraceRecorder
from endive.workload import UniformTableSelector, Workload, WorkloadConfig
from tests.strategies import configurations

SAME_EXCEPT = {"engine", "events", "transactions"}
CONFIGURATIONS = int(os.environ.get("ENDIVE_ENGINE_EXAMPLES", "200"))  # of each strategy
EXAMPLES = Path(__file__).parent.parent / "examples"


def run_both(config: SimulationConfig) -> tuple[Statistics, Statistics]:
    return tuple(Simulation(config).run(engine=engine) for engine in ("reference", "compiled"))  # type: ignore[return-value]


def assert_equal(config: SimulationConfig) -> Statistics:
    """Run both engines; assert that every bit of the tables, and every counter, is the same."""
    reference, compiled = run_both(config)
    expected, found = to_table(reference.transactions), to_table(compiled.transactions)
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert found.equals(expected)
    for field in fields(Statistics):
        if field.name not in SAME_EXCEPT:
            assert getattr(compiled, field.name) == getattr(reference, field.name), field.name
    return compiled


def fixed(value: float) -> dict[str, Any]:
    return {"distribution": "fixed", "value": value}


@st.composite
def tied_configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Return a configuration nearly all of whose times are multiples of 10 ms, zero among them: events tie."""
    config = draw(configurations())
    tens = st.integers(0, 6).map(lambda count: fixed(10.0 * count))
    config["simulation"]["duration_ms"] = 10.0 * draw(st.integers(100, 400) | st.integers(1, 100))
    config["storage"]["provider"] = "instant"
    config["storage"]["latency"] = {
        artifact: {"read": draw(tens), "write": draw(tens)}
        for artifact in ("metadata", "manifest_list", "manifest_file")
    }
    catalog = config["catalog"]
    catalog.pop("provider", None)
    catalog["latency_ms"] = 10.0 * draw(st.integers(1, 4))
    catalog["effect_point"] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    config["transaction"]["retry_backoff"] |= {"base_ms": 10.0, "max_ms": 40.0, "multiplier": 2.0, "jitter": 0.0}
    for stream in config.get("streams", [config["transaction"]]):
        stream["runtime"] = draw(tens)
        if "clients" in stream:
            stream["think_time"] = draw(tens)
        else:
            gap = 10.0 * draw(st.integers(1, 6))
            in_pairs = {"distribution": "empirical", "probabilities": [0, 0.5, 0.501, 1], "values": [0, 0, gap, gap]}
            stream["inter_arrival"] = draw(st.sampled_from([fixed(gap), in_pairs]))
    return config


@pytest.mark.parametrize(
    ("strategy", "slots", "rows"), [(configurations(), SLOTS_AT_FIRST, ROWS_PER_GROUP), (tied_configurations(), 1, 7)]
)
def test_both_engines_give_the_same_bits(
    strategy: st.SearchStrategy[dict[str, Any]], slots: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the whole schema, on fresh configurations each time; a failure prints the one to replay."""
    monkeypatch.setattr(encoding, "SLOTS_AT_FIRST", slots)
    monkeypatch.setattr(encoding, "ROWS_PER_GROUP", rows)
    seen = dict.fromkeys(("committed", "aborted", "total_retries", "in_flight_applied", "submitted"), 0)

    @settings(max_examples=CONFIGURATIONS, derandomize=False)
    @given(strategy)
    def check(config: dict[str, Any]) -> None:
        note(json.dumps(config))
        statistics = assert_equal(build_simulation_config(parse_settings(config)))
        for name in seen:
            seen[name] += getattr(statistics, name)

    check()
    assert all(seen.values()), seen


@settings(max_examples=CONFIGURATIONS // 4, derandomize=False)
@given(configurations(), st.floats(0.0, 100.0))
def test_reads_that_depend_on_sizes_are_the_same(given_config: dict[str, Any], per_mib_ms: float) -> None:
    """No shipped profile has any."""

    def with_sized_reads(profile: ProfileName) -> dict[str, ProviderProfile]:
        read = SizeBasedLatency(20.0, per_mib_ms, 0.3, 1.0)
        return {name: replace(provider, read=read) for name, provider in load_provider_profiles(profile).items()}

    note(json.dumps(given_config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endive.config, "load_provider_profiles", with_sized_reads)
        config = build_simulation_config(parse_settings(given_config))
    assert_equal(config)


ON_A_GRID = """
catalog = { latency_ms = 10, effect_point = 0.5, partitions.num_partitions = 3 }
[storage]
provider = "instant"
append_failure_latency = false
latency.manifest_list.read = { distribution = "fixed", value = 10 }
latency.manifest_list.write = { distribution = "fixed", value = 10 }
latency.manifest_file.read = { distribution = "fixed", value = 10 }
latency.manifest_file.write = { distribution = "fixed", value = 10 }
[transaction]
clients = 4
think_time = { distribution = "fixed", value = 10 }
runtime = { distribution = "fixed", value = 20 }
operation_types = { validated_overwrite = 1 }
partitions.per_txn = 1
overlap = "table"
manifest_list_mode = "append"
retry = 2
total_timeout_ms = 90
max_restarts = 3
real_conflict_probability = 0.5
"""


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize(
    ("detector", "action"),
    [("probabilistic", "restart"), ("partition_overlap", "restart"), ("probabilistic", "merge")],
)
@pytest.mark.parametrize("kind", ["instant", "append"])
def test_a_run_may_end_at_any_instant(kind: str, detector: str, action: str, drain: bool) -> None:
    """Everything happens at multiples of 5 ms; the end comes at each of them, whatever else happens then."""
    config = tomllib.loads(ON_A_GRID)
    config["catalog"]["type"] = kind
    config["transaction"] |= {"conflict_detector": detector, "on_real_conflict": action}
    phases: set[str] = set()
    seen: Counter[str] = Counter()
    for fives in range(1, 120):
        config["simulation"] = {"duration_ms": 5.0 * fives, "seed": fives, "drain": drain}
        statistics = assert_equal(build_simulation_config(parse_settings(config)))
        phases |= {phase for _, phase in statistics.in_flight}
        for totals in statistics.operations.values():
            seen.update(totals.aborted | totals.counts)
    assert phases == (set() if drain else {"pending", "executing", "committing"})
    assert min(seen["real_conflicts"], seen["retry_timeout"], seen["manifest_list_appends"]) > 10, seen
    assert (seen["restarts"] > 10) == (action == "restart")


@pytest.mark.parametrize("example", ["mixed", "maintenance"])
def test_examples_are_the_same_under_both(example: str) -> None:
    config = load_simulation_config(EXAMPLES / f"{example}.toml", seed_override=5)
    statistics = assert_equal(replace(config, duration_ms=300_000.0))
    assert statistics.committed > 100


def test_files_are_the_same_but_for_the_engines_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than a row group holds, and more transactions in flight than there are slots at first."""
    for module in (encoding, results):
        monkeypatch.setattr(module, "ROWS_PER_GROUP", 1000)
    config = create_test_config(duration_ms=4000.0, inter_arrival_ms=2.0, runtime_ms=1000.0, num_tables=3)
    files = {engine: tmp_path / f"{engine}.parquet" for engine in ("reference", "compiled")}
    groups: list[int] = []
    for engine, path in files.items():
        statistics = Simulation(config).run(
            engine=engine,  # type: ignore[arg-type]
            output=path,
            on_rows=lambda rows: groups.append(rows.num_rows),
        )
        assert sum(statistics.in_flight.values()) > SLOTS_AT_FIRST
    assert pq.read_metadata(files["compiled"]).num_row_groups == 2
    assert groups == [1000, statistics.committed + statistics.aborted - 1000] * 2
    assert pq.read_table(files["compiled"]).equals(pq.read_table(files["reference"]))
    metadata = {engine: read_metadata(path) for engine, path in files.items()}
    assert metadata["compiled"].pop("engine") == "compiled"
    assert metadata["reference"].pop("engine") == "reference"
    assert metadata["compiled"] == metadata["reference"]
    footers = {engine: pq.read_metadata(path).to_dict() for engine, path in files.items()}
    assert footers["compiled"]["row_groups"] == footers["reference"]["row_groups"]
    last = footers["compiled"]["row_groups"][-1]["columns"][-1]
    data_end = (last["dictionary_page_offset"] or last["data_page_offset"]) + last["total_compressed_size"]
    found, expected = (files[engine].read_bytes() for engine in ("compiled", "reference"))
    assert found[:data_end] == expected[:data_end]
    assert 0 < len(found) - data_end < 40_000, "the footer"


def test_a_compiled_run_imports_no_pandas(tmp_path: Path) -> None:
    """It would take longer than the run; `pa.array` and `pa.scalar` import it."""
    given = [
        str(EXAMPLES / "mixed.toml"),
        "--quiet",
        "--engine",
        "compiled",
        "--output",
        str(tmp_path / "rows.parquet"),
    ]
    check = f"import sys; from endive.main import main; main({['run', *given]}); print('pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "False"


def test_kept_transactions_are_the_same_objects_either_way() -> None:
    reference, compiled = run_both(create_test_config(duration_ms=3000.0, num_tables=2))
    assert list(compiled.transactions) == list(reference.transactions)
    assert compiled.transactions[1] == reference.transactions[1]
    assert compiled.transactions[-2:] == reference.transactions[-2:]
    assert compiled.to_dataframe().equals(reference.to_dataframe())


def test_exported_kept_transactions_equal_what_a_run_writes(tmp_path: Path) -> None:
    config = create_test_config(duration_ms=3000.0)
    Simulation(config).run(output=tmp_path / "written.parquet")
    Simulation(config).run().export_parquet(tmp_path / "exported.parquet")
    assert (tmp_path / "written.parquet").read_bytes() == (tmp_path / "exported.parquet").read_bytes()


class OwnLatency(LatencyDistribution):
    def sample(self, rng: np.random.RandomState) -> float:
        return 10.0


class OwnStorage(ProfiledStorage):
    pass


class OwnCatalog(InstantCatalog):
    pass


class OwnDetector(ProbabilisticConflictDetector):
    pass


class OwnSelector(UniformTableSelector):
    pass


def own_storage() -> SimulationConfig:
    storage = fixed_storage()
    return create_test_config(storage=OwnStorage(storage.rng, storage.profile))


def own_workload_part(**options: Any) -> SimulationConfig:
    defaults = {"inter_arrival": FixedLatency(100.0), "runtime": FixedLatency(10.0)}
    return create_test_config(
        workload=Workload(WorkloadConfig(**{**defaults, **options}, num_tables=1, partitions_per_table=(1,)))
    )


OWN: list[tuple[str, Callable[[], SimulationConfig]]] = [
    ("OwnStorage", own_storage),
    ("OwnCatalog", lambda: create_test_config(catalog=OwnCatalog(1, (1,)))),
    ("OwnLatency", lambda: own_workload_part(runtime=OwnLatency())),
    ("OwnSelector", lambda: own_workload_part(table_selector=OwnSelector())),
    ("ScriptedWorkload", lambda: create_test_config(workload=ScriptedWorkload(list))),
    ("OwnDetector", lambda: replace(create_test_config(), conflict_detector=OwnDetector(0.0))),
]


@pytest.mark.parametrize(("name", "make"), OWN)
def test_what_is_not_built_in_falls_back_with_a_word_or_is_refused(
    name: str, make: Callable[[], SimulationConfig], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "endive"):
        assert Simulation(make()).run().engine == "reference"
    (record,) = caplog.records
    assert name in record.getMessage()
    assert "\n" not in record.getMessage()
    with pytest.raises(NotCompiledError, match=name):
        Simulation(make()).run(engine="compiled")


def test_a_recorder_is_served_by_the_reference() -> None:
    assert Simulation(create_test_config()).run(recorder=TraceRecorder(2)).engine == "reference"
    with pytest.raises(NotCompiledError, match="recorder"):
        Simulation(create_test_config()).run(recorder=TraceRecorder(2), engine="compiled")


def test_automatic_is_compiled_and_an_unknown_engine_is_named() -> None:
    assert Simulation(create_test_config()).run().engine == "compiled"
    with pytest.raises(ValueError, match=r"'turbo'.*'auto', 'compiled', 'reference'"):
        Simulation(create_test_config()).run(engine="turbo")  # type: ignore[arg-type]


def test_draws_that_differ_from_numpys_are_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = warming._reference_draws()
    wrong = right.copy()
    wrong[500, 1] = np.nextafter(wrong[500, 1], math.inf)
    monkeypatch.setattr(warming, "_reference_draws", lambda: wrong)
    warming.warm_once.cache_clear()
    with caplog.at_level(logging.WARNING, "endive"):
        assert Simulation(create_test_config()).run().engine == "reference"
    assert "other numbers than NumPy" in caplog.text
    monkeypatch.setattr(warming, "_reference_draws", lambda: right)
    assert Simulation(create_test_config()).run().engine == "compiled"


@pytest.mark.parametrize(
    ("config_hash", "told"), [("abc123", "abc123"), ("", r"SimulationConfig\(duration_ms=10000.0")]
)
def test_an_unknown_state_is_an_error_with_configuration_and_seed(config_hash: str, told: str) -> None:
    config = replace(create_test_config(), config_hash=config_hash)
    machine = prepare_machine(config, 7)

    def break_it(now_ms: float, statistics: Statistics) -> None:
        machine.arrays["slots"]["waiting"] = max(Waiting) + 1

    with pytest.raises(EngineError, match=rf"{told}.*, seed 7"):
        run_machine(machine, config, Statistics(seed=7), None, break_it, work_per_chunk=50)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("part", ["inter_arrival", "runtime"])
def test_a_time_without_end_is_refused_by_both(engine: Any, part: str) -> None:
    with pytest.raises(ValueError, match="delay of inf ms"):
        Simulation(own_workload_part(**{part: FixedLatency(math.inf)})).run(engine=engine)


def test_chunks_make_no_difference() -> None:
    """However little work the kernel does at a time."""
    config = create_test_config(duration_ms=2000.0, num_tables=2, real_conflict_probability=0.5)
    found = []
    for work in (1, 37, 10**9):
        statistics, tables = Statistics(), []
        run_machine(prepare_machine(config, 3), config, statistics, tables.append, None, work_per_chunk=work)
        found.append((tables, statistics))
    assert all(each == found[0] for each in found)


def test_progress_rises_and_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    config = create_test_config(duration_ms=3_000_000.0, inter_arrival_ms=2.0)
    seen: list[tuple[float, int]] = []

    def look_up(now_ms: float, statistics: Statistics) -> None:
        seen.append((now_ms, statistics.events))
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Simulation(config).run(engine="compiled", output=tmp_path / "results.parquet", progress=look_up)
    assert len(seen) == 5
    assert seen == sorted(set(seen))
    assert list(tmp_path.iterdir()) == []


def test_slots_in_use_follow_the_transactions_in_flight_not_the_duration() -> None:
    """Ten times the time, ten times the rows, the same room."""
    rooms = []
    for duration_ms in (20_000.0, 200_000.0):
        config = create_test_config(duration_ms=duration_ms, inter_arrival_ms=5.0, runtime_ms=1500.0)
        machine, statistics = prepare_machine(config, 1), Statistics()
        run_machine(machine, config, statistics, None, None)
        rooms.append(len(machine.arrays["slots"]))
    assert rooms[0] == rooms[1] == 2 * SLOTS_AT_FIRST
    assert SLOT.itemsize < 1024


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up while the compiled engine runs leaves no file."""

    def fail(self: UnfinishedFile) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UnfinishedFile, "commit", fail)
    with pytest.raises(OSError, match="No space"):
        Simulation(create_test_config()).run(engine="compiled", output=tmp_path / "results.parquet")
    assert list(tmp_path.iterdir()) == []
