"""Traces: every delay of a recorded transaction is a slice, and what happened is marked."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from endive.config import build_simulation_config, parse_settings
from endive.main import main
from endive.simulation import Simulation
from endive.trace import EVENT_SCHEMA, Event, TraceRecorder, chrome_trace
from tests.strategies import configurations

EXAMPLE = Path(__file__).parent.parent / "examples" / "maintenance.toml"
CONFIG = """
simulation = { duration_ms = 60000, seed = 1 }
storage.provider = "s3x"
transaction = { runtime = { median = 200, sigma = 1 }, inter_arrival.scale = 60 }
"""


def record(config: dict[str, Any], limit: int) -> tuple[TraceRecorder, Any]:
    recorder = TraceRecorder(limit)
    return recorder, Simulation(build_simulation_config(parse_settings(config))).run(recorder=recorder)


@settings(max_examples=60)
@given(configurations())
def test_steps_follow_each_other_without_a_gap_and_add_up_to_the_row(config: dict[str, Any]) -> None:
    recorder, statistics = record(config, 20)
    finished = {row.txn_id: row for row in statistics.transactions}
    steps: dict[int, list[Event]] = {}
    for event in recorder.events:
        steps.setdefault(event.txn_id, []).append(event)
    for txn_id, row in finished.items():
        if txn_id not in steps:
            continue
        events = steps[txn_id]
        assert events[0].start_ms == row.submit_time_ms
        assert all(before.end_ms == after.start_ms for before, after in pairwise(events))
        assert events[-1].end_ms == max(row.commit_time_ms, row.abort_time_ms)
        assert events[-1].event == (row.abort_reason or "committed")
        marks = [event.event for event in events]
        assert marks.count("false conflict") == row.false_conflicts
        assert marks.count("real conflict") == row.real_conflicts
        assert marks.count("no overlap") == row.no_overlap_conflicts
        assert marks.count("work") == row.restarts + 1
        history = sum(event.operations for event in events if event.event == "read historical manifest lists")
        assert history == row.historical_ml_reads


@settings(max_examples=25)
@given(configurations())
def test_recording_changes_nothing(config: dict[str, Any]) -> None:
    simulation = Simulation(build_simulation_config(parse_settings(config)))
    plain, recorded = simulation.run(), simulation.run(recorder=TraceRecorder(10**9))
    assert plain.transactions == recorded.transactions


def test_the_first_transactions_are_recorded_to_their_end() -> None:
    recorder, _ = record({**tomllib.loads(CONFIG), "simulation": {"duration_ms": 10**9, "seed": 1}}, 5)
    assert recorder.is_complete
    assert {event.txn_id for event in recorder.events} == {1, 2, 3, 4, 5}


def test_a_chrome_trace_nests_slices_in_the_row_of_their_transaction() -> None:
    recorder, _ = record(tomllib.loads(CONFIG), 50)
    entries = chrome_trace(recorder)["traceEvents"]
    lives = {entry["tid"]: entry for entry in entries if entry["ph"] == "X" and "outcome" in entry["args"]}
    assert sorted(lives) == list(range(1, 51))
    failures = 0
    for entry in entries:
        if entry["ph"] == "M":
            continue
        life = lives[entry["tid"]]
        assert life["ts"] <= entry["ts"]
        assert entry["ts"] + entry.get("dur", 0.0) <= life["ts"] + life["dur"] + 1e-3
        failures += entry["ph"] == "i" and entry["name"] == "commit failed"
    assert failures == sum(event.event == "commit failed" for event in recorder.events) > 0


def test_the_command_writes_a_trace_and_an_event_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cfg.toml").write_text(CONFIG)
    arguments = ["trace", str(tmp_path / "cfg.toml"), "-o", str(tmp_path / "t.json"), "--transactions", "30"]
    assert main([*arguments, "--events", str(tmp_path / "e.parquet")]) == 0
    assert "30 transactions" in capsys.readouterr().out
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    log = pq.read_table(tmp_path / "e.parquet")
    assert log.schema.equals(EVENT_SCHEMA)
    assert set(log["txn_id"].to_pylist()) == set(range(1, 31))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cfg.toml", "e.parquet", "t.json"]


def test_a_trace_that_cannot_be_written_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cfg.toml").write_text(CONFIG)
    assert main(["trace", str(tmp_path / "cfg.toml"), "-o", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


def test_the_streams_of_the_shipped_example_are_groups_of_rows() -> None:
    recorder, _ = record(tomllib.loads(EXAMPLE.read_text()) | {"simulation": {"duration_ms": 400_000, "seed": 1}}, 4000)
    names = {
        entry["args"]["name"] for entry in chrome_trace(recorder)["traceEvents"] if entry["name"] == "process_name"
    }
    assert names == {"ingest", "maintenance"}
