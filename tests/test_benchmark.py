"""`endive bench`: what is measured, and how it is shown. No test asserts a speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endive.benchmark import LOADS, Measurement, engines_table, loads_table, measure, measure_loads, shipped_set
from endive.config import load_settings
from endive.main import main

CONFIG = """
simulation = { duration_ms = 60000, seed = 1 }
storage.provider = "s3x"
transaction = { runtime = { median = 200, sigma = 1 }, inter_arrival.scale = 60 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(CONFIG)
    return path


def test_the_shipped_set_is_that_of_the_targets() -> None:
    paths = shipped_set()
    assert [path.stem for path in paths] == ["appends-busy", "appends-calm", "mixed", "overwrites"]
    for path in paths:
        storage = load_settings(path).storage
        assert (storage.provider, storage.profile, storage.max_parallel) == ("s3", "2025-12", 1)


def test_both_engines_are_measured_on_the_same_run(config: Path) -> None:
    reference, compiled = measure(config, ["reference", "compiled"], 0.5)
    assert (reference.engine, compiled.engine, compiled.name) == ("reference", "compiled", "small")
    assert reference.events > compiled.events > 0
    assert compiled.draws > 0
    assert compiled.kernel_s > 0.0
    assert min(reference.wall_s, compiled.wall_s) > 0.0
    assert reference.memory_mib is None or reference.memory_mib > 10.0


def test_an_offered_load_is_that_many_times_the_arrivals(config: Path) -> None:
    measured = list(measure_loads(config, 0.2))
    assert [load for load, _ in measured] == list(LOADS)
    events = [found.events for _, found in measured]
    assert events == sorted(events)
    assert events[-1] > 5 * events[0]


def test_the_speed_up_compares_a_configuration_with_itself() -> None:
    table = engines_table(
        [
            Measurement("a", "reference", 2.0, 1000, memory_mib=100.0),
            Measurement("a", "compiled", 0.1, 500, draws=2000, kernel_s=0.001, memory_mib=50.0),
            Measurement("b", "compiled", 1.0, 500),
        ]
    )
    header, first, second, third = table.splitlines()
    assert "speed-up" in header
    assert "×" not in first + third
    assert second.split() == ["a", "compiled", "100", "ms", "5,000", "2,000.0", "500.0", "20", "×", "50", "MiB"]
    assert third.split()[-1] == "–"


def test_loads_are_a_table() -> None:
    rows = loads_table([(1.0, Measurement("a", "compiled", 0.5, 1000, 5000, 0.5))]).splitlines()
    assert rows[1].split() == ["1", "×", "500", "ms", "1,000", "500,000.0", "100,000.0"]


def test_the_command_prints_tables_or_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(config), "--quick"]) == 0
    printed = capsys.readouterr()
    assert "speed-up" in printed.out
    assert "small, compiled:" in printed.err
    assert main(["bench", str(config), "--quick", "--engine", "compiled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [measured["engine"] for measured in found["engines"]] == ["compiled"]
    assert found["loads"] == []


def test_a_missing_configuration_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err
