"""A plan knows its runs, what is done of them, and about how long the rest will take."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from endive import MODEL_VERSION
from endive.config import parse_settings
from endive.config_errors import ConfigError
from endive.experiment import prepare_experiment
from endive.main import main
from endive.pipeline.cost import predicted_cost_s
from endive.pipeline.directory import RunState, run_state
from endive.pipeline.master import check_master, local_cores
from endive.pipeline.plan import TASK_S, Plan, PlannedRun
from endive.pipeline.tasks import to_tasks
from endive.settings import Settings
from tests.sweeps import contents, tiny_plan, write_sweep


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return tiny_plan(tmp_path)


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_a_run_is_a_configuration_and_a_seed_and_the_longest_come_first(plan: Plan) -> None:
    assert len({(run.configuration.hash, run.seed) for run in plan.runs}) == len(plan.runs) == 6
    scales = [run.configuration.settings.transaction.inter_arrival.scale for run in plan.runs]
    assert scales == [20, 20, 50, 50, 200, 200]


def test_the_files_of_a_run_tell_its_state(tmp_path: Path) -> None:
    folder = tmp_path / "exp-1" / "7"
    assert run_state(folder) is RunState.WAITING
    touch(folder / "summary.parquet")
    assert run_state(folder) is RunState.WAITING
    touch(folder / "failure.json")
    assert run_state(folder) is RunState.FAILED
    host = os.uname().nodename.replace(".", "-")
    unfinished = touch(folder / f".results.parquet.{host}.{os.getpid()}.unfinished")
    assert run_state(folder) is RunState.RUNNING
    unfinished.rename(folder / f".results.parquet.{host}.999999999.unfinished")
    assert run_state(folder) is RunState.FAILED, "who wrote it has gone"
    touch(folder / ".results.parquet.elsewhere.999999999.unfinished")
    assert run_state(folder) is RunState.RUNNING, "who can tell of another machine"
    touch(folder / "results.parquet")
    assert run_state(folder) is RunState.DONE


def test_what_is_done_is_not_left_to_do(plan: Plan) -> None:
    done, failed, *_ = plan.runs
    touch(done.folder(plan.root) / "results.parquet")
    touch(failed.folder(plan.root) / "failure.json")
    assert plan.left_to_do() == list(plan.runs[1:])
    assert Counter(plan.states().values()) == {RunState.DONE: 1, RunState.FAILED: 1, RunState.WAITING: 4}


def test_an_experiment_of_another_making_stops_the_sweep(plan: Plan) -> None:
    plan.check_experiments()
    settings = plan.sweep.configurations[0].settings
    prepare_experiment(settings, plan.root)
    plan.check_experiments()
    version = next(plan.root.glob("*/version.txt"))
    version.write_text("unknown\nmodel 999\n")
    with pytest.raises(ConfigError, match=f"says model 999, this is model {MODEL_VERSION}"):
        plan.check_experiments()


def tasks_of(plan: Plan, cores: int) -> list[list[PlannedRun]]:
    return to_tasks(plan.runs, lambda run: run.cost_s, TASK_S, cores)


def test_long_runs_have_a_task_each_and_short_ones_share(tmp_path: Path) -> None:
    plan = tiny_plan(tmp_path, duration_ms=3_600_000, seeds=10, scales=(2, 1000))
    long_ones = [run for run in plan.runs if run.cost_s > TASK_S]
    tasks = tasks_of(plan, 2)
    assert [run for task in tasks for run in task] == list(plan.runs)
    assert len(long_ones) == 10
    assert [len(task) for task in tasks[:10]] == [1] * 10
    assert [len(task) for task in tasks[10:]] == [10], "ten short runs are less than a second"


def test_few_short_runs_are_spread_over_the_cores(plan: Plan) -> None:
    assert len(tasks_of(plan, 2)) >= 2
    assert len(tasks_of(plan, 100)) == 6


def test_the_largest_items_come_first_and_small_ones_share_a_task() -> None:
    assert to_tasks([1.0, 5.0, 1.0, 9.0, 1.0], float, 3.0, cores=1) == [[9.0], [5.0], [1.0, 1.0, 1.0]]
    assert to_tasks([0.0, 0.0], float, 3.0, cores=1) == [[0.0], [0.0]]
    assert to_tasks([], float, 3.0, cores=1) == []


def settings(**transaction: object) -> Settings:
    return parse_settings(
        {
            "simulation": {"duration_ms": 3_600_000},
            "storage": {"provider": "s3", "profile": "2025-12"},
            "transaction": {"runtime": {"median": 180_000, "sigma": 1.5, "min": 30_000}} | transaction,
        }
    )


def test_predicted_cost_grows_with_load_and_with_history_that_is_read() -> None:
    appends = {"operation_types": {"fast_append": 1}}
    quiet, busy = (settings(inter_arrival={"scale": scale}, **appends) for scale in (1000, 20))
    validating = settings(inter_arrival={"scale": 20}, operation_types={"validated_overwrite": 1})
    costs = [predicted_cost_s(each) for each in (quiet, busy, validating)]
    assert costs == sorted(costs)
    assert costs[2] > 3 * costs[1] > 30 * costs[0] > 0


def test_closed_streams_have_a_predicted_cost_too() -> None:
    few, many = (
        settings(clients=clients, think_time={"distribution": "fixed", "value": 1000}) for clients in (1, 1000)
    )
    assert 0 < predicted_cost_s(few) < predicted_cost_s(many)


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("spark://a:7077,b:7077", None),
        ("k8s://https://a:443", None),
        ("yarn", None),
    ],
)
def test_the_cores_of_a_local_master_are_known(master: str, cores: int | None) -> None:
    check_master(master)
    assert local_cores(master) == cores


def test_every_core_is_used_by_default() -> None:
    assert local_cores(None) == local_cores("local[*]") == len(os.sched_getaffinity(0))


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tiny_plan(tmp_path)
    touch(plan.runs[0].folder(plan.root) / "results.parquet")
    touch(plan.runs[1].folder(plan.root) / "failure.json")
    before = contents(tmp_path)
    assert main(["sweep", str(tmp_path / "tiny.toml"), "-o", str(plan.root), "--dry-run"]) == 0
    assert contents(tmp_path) == before
    told = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert told["transaction.inter_arrival.scale"] == "3: 20, 50, 200"
    assert (told["configurations"], told["seeds"], told["runs"]) == ("3", "2: 1, 2", "6")
    assert (told["already done"], told["failed before"]) == ("1", "1")
    assert re.fullmatch(r"[\d.]+ m?s", told["core time, about"])
    assert re.fullmatch(r"[\d.]+ m?s on \d+ cores?", told["wall time, about"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.toml"], "absent.toml: cannot be read"),
        (["exp99"], "exp99: is neither a file nor a sweep of Endive's"),
        (["tiny.toml", "-o", "tiny.toml"], "tiny.toml: is not a directory"),
        (["tiny.toml", "-o", "/proc/x"], "/proc/x/sweeps/tiny.json: cannot be written"),
        (["tiny.toml", "--master", "spark://127.0.0.1:1"], "spark://127.0.0.1:1 cannot be reached: Connection refused"),
        (
            ["tiny.toml", "--master", "spark:7077"],
            "Spark master 'spark:7077': is not one; allowed is local, local[N] with",
        ),
        (["tiny.toml", "--master", "", "--dry-run"], "Spark master '': is not one; "),
        (["tiny.toml", "--master", "local[0]", "--dry-run"], "Spark master 'local[0]': is not one; "),
        (["tiny.toml", "--master", "local[x]"], "Spark master 'local[x]': is not one; "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path)
    assert main(["sweep", *arguments, "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if "runs to do" not in line]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("[sweep]\nstep = 2", "sweep.step = 2: unknown key; known here: seeds, grid, zip"),
        ("sweep.grid.'transaction.retry' = []", "sweep.grid.transaction.retry = []: must have 1 or more values"),
        ("sweep.grid.'transaction.retri' = [1]", "sweep.grid.transaction.retri: unknown key; did you mean retry"),
        ("sweep.grid.'transaction.retry' = [1, 1]", "sweep: the same configuration twice: transaction.retry = 1; and "),
        ("sweep.seeds = [3, 3]", "sweep.seeds = [3, 3]: has 3 twice; each seed may be there once"),
        ("sweep = 3", "sweep = 3: must be a table [sweep] with seeds, grid or zip"),
        ("sweep = ", "is not TOML: "),
    ],
)
def test_a_sweep_that_is_wrong_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sweep: str, said: str
) -> None:
    path = tmp_path / "wrong.toml"
    experiment = write_sweep(tmp_path).read_text().partition("[sweep]")[0]
    path.write_text(sweep + "\n" + experiment if sweep.startswith("sweep") else experiment + sweep)
    assert main(["sweep", str(path), "-o", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"endive: {path}: {said}")
    assert printed.out == ""
    assert not (tmp_path / "out").exists()


def test_no_java_is_told_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    write_sweep(tmp_path)
    assert main(["sweep", "tiny.toml", "--quiet"]) == 2
    assert "Spark needs Java, and there is none in JAVA_HOME" in capsys.readouterr().err


def status(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[list[str]], str]:
    code = main(["status", str(root)])
    printed = capsys.readouterr()
    return code, [re.split(r"  +", line) for line in printed.out.splitlines()], printed.err


def test_status_tells_how_far_each_sweep_is(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write()
    done, failed, running, *_ = plan.runs
    touch(done.folder(plan.root) / "results.parquet")
    touch(failed.folder(plan.root) / "failure.json")
    touch(running.folder(plan.root) / ".results.parquet.elsewhere.1.unfinished")
    code, (header, row), complaint = status(plan.root, capsys)
    assert (code, complaint) == (0, "")
    told = dict(zip(header, row, strict=True))
    counts = {name: told[name] for name in ("sweep", "runs", "done", "running", "failed", "waiting", "share")}
    assert counts == dict(zip(counts, ("tiny", "6", "1", "1", "1", "3", "17%"), strict=True))
    assert told["hours/s"] != "–"
    assert told["left"] != "–"
    assert re.fullmatch(r"[\d.]+ (ms|µs|s) ago", told["last activity"])


def test_status_has_no_rate_for_a_sweep_at_rest(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write()
    an_hour_ago_s = time.time() - 3600
    done = touch(plan.runs[0].folder(plan.root) / "results.parquet")
    for path in (done, plan.root / "sweeps" / "tiny.json"):
        os.utime(path, (an_hour_ago_s, an_hour_ago_s))
    _, (header, row), _ = status(plan.root, capsys)
    told = dict(zip(header, row, strict=True))
    assert (told["hours/s"], told["left"], told["last activity"]) == ("–", "–", "1.00 h ago")


def test_status_of_a_directory_without_sweeps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        code, rows, complaint = status(root, capsys)
        assert (code, rows) == (2, [])
        assert complaint == f"endive: {root}: no sweep was run here; endive sweep FILE -o DIR runs one\n"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"label": "x"}', json.dumps({"label": "x", "seeds": 3})])
def test_status_names_a_plan_that_it_cannot_read_and_goes_on(
    plan: Plan, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    plan.write()
    (plan.root / "sweeps" / "broken.json").write_text(content)
    code, rows, complaint = status(plan.root, capsys)
    assert code == 1
    assert [row[0] for row in rows] == ["sweep", "tiny"]
    assert complaint.count("\n") == 1
    assert "sweeps/broken.json: is not the plan of a sweep" in complaint
