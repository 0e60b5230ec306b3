"""A sweep leaves what `endive run` would, whatever ends it and however often it is called."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from endive.main import main
from endive.pipeline import sweep as sweep_module
from endive.pipeline.directory import RunState
from endive.pipeline.errors import SweepError
from endive.pipeline.plan import Plan, to_row
from endive.pipeline.run_task import perform_run
from endive.pipeline.sweep import run_sweep
from endive.pipeline.sweep_progress import SweepProgress
from tests.processes import are_gone, descendants, endive_process, wait_until
from tests.sweeps import contents, results, results_of_run, tiny_plan, write_sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("ENDIVE_KILLS", "2"))
KILL_SEED = int(os.environ.get("ENDIVE_KILL_SEED") or random.SystemRandom().randrange(2**31))

LONGER = {"duration_ms": 120_000, "seeds": 4, "scales": (2.0, 2.1, 2.2, 2.3)}
"""Runs of some tenths of a second, so that a kill falls into one."""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return tiny_plan(tmp_path)


def perform(plan: Plan, **options: bool) -> list[RunState]:
    return [perform_run(to_row(run), plan.root, **options) for run in plan.runs]


def sweep(spark: SparkSession, plan: Plan) -> SweepProgress:
    runs = plan.left_to_do()
    progress = SweepProgress(runs, plan.root, len(plan.runs), None)
    run_sweep(spark, plan, runs, progress)
    return progress


def test_a_worker_leaves_what_endive_run_would_and_a_summary(plan: Plan, tmp_path: Path) -> None:
    assert perform(plan) == [RunState.DONE] * 6
    assert results(plan.root) == results_of_run(plan, tmp_path)
    for run in plan.runs:
        folder = run.folder(plan.root)
        assert sorted(path.name for path in folder.iterdir()) == ["results.parquet", "summary.parquet", "timing.json"]
        timing = json.loads((folder / "timing.json").read_text())
        assert timing["engine"] == "compiled"
        assert timing["process_id"] == os.getpid()


def test_the_summary_is_there_before_the_results(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan.runs[0]
    folder = run.folder(plan.root)
    seen = []
    rename = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(target.name)
        assert target.name != "results.parquet" or (folder / "summary.parquet").is_file()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    perform_run(to_row(run), plan.root)
    assert seen == ["cfg.toml", "version.txt", "summary.parquet", "results.parquet", "timing.json"]


def test_what_is_done_is_not_done_again(plan: Plan) -> None:
    perform(plan)
    before = {path: path.stat().st_mtime_ns for path in plan.root.rglob("*")}
    assert perform(plan) == [RunState.DONE] * 6
    assert {path: path.stat().st_mtime_ns for path in plan.root.rglob("*")} == before


def test_a_failure_is_kept_until_the_run_is_done(plan: Plan) -> None:
    run = plan.runs[0]
    folder = run.folder(plan.root)
    (folder / "results.parquet").mkdir(parents=True)
    assert perform_run(to_row(run), plan.root) is RunState.FAILED
    failure = json.loads((folder / "failure.json").read_text())
    assert failure.pop("host")
    assert failure == {
        "error": "UnwritableOutputError",
        "message": f"{folder / 'results.parquet'}: is a directory; name a file",
        "config_hash": run.configuration.hash,
        "seed": run.seed,
    }
    (folder / "results.parquet").rmdir()
    assert perform_run(to_row(run), plan.root) is RunState.DONE
    assert not (folder / "failure.json").exists()


def test_a_run_that_kills_every_worker_fails_at_the_last_attempt(plan: Plan) -> None:
    killer, harmless, *_ = plan.runs
    folder = killer.folder(plan.root)
    folder.mkdir(parents=True)
    (folder / ".results.parquet.there.1.unfinished").touch()
    states = [perform_run(to_row(run), plan.root, is_last_attempt=True) for run in (killer, harmless)]
    assert states == [RunState.FAILED, RunState.DONE]
    assert "each worker that tried this run died" in (folder / "failure.json").read_text()


@pytest.mark.parametrize(("key", "said"), [("version", "has endive"), ("hash", "configuration 0 is ")])
def test_a_worker_of_another_making_fails_rather_than_mixing_results(plan: Plan, key: str, said: str) -> None:
    row = to_row(plan.runs[0]) | {key: "0"}
    assert perform_run(row, plan.root) is RunState.FAILED
    assert said in next(plan.root.rglob("failure.json")).read_text()


def test_progress_counts_what_has_ended(plan: Plan) -> None:
    progress = SweepProgress(plan.runs[1:], plan.root, len(plan.runs), None)
    progress.look()
    assert (progress.done, progress.failed, progress.waiting) == (0, [], 5)
    perform_run(to_row(plan.runs[1]), plan.root)
    (plan.runs[2].folder(plan.root) / "results.parquet").mkdir(parents=True)
    perform_run(to_row(plan.runs[2]), plan.root)
    progress.look()
    assert (progress.done, progress.failed, progress.waiting) == (1, [plan.runs[2]], 3)
    text = progress._text()
    assert text.startswith(" 33%  2 of 6 runs, 1 failed, ")
    assert text.endswith(" left")


def test_two_cores_leave_what_endive_run_would(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    progress = sweep(spark, plan)
    assert (progress.done, progress.failed, progress.waiting) == (6, [], 0)
    assert results(plan.root) == results_of_run(plan, tmp_path)


def test_the_command_resumes_and_tells_what_failed(
    shared_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tiny_plan(tmp_path)
    arguments = ["sweep", str(tmp_path / "tiny.toml"), "-o", str(plan.root)]
    failing = plan.runs[3].folder(plan.root)
    (failing / "results.parquet").mkdir(parents=True)
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert "5 runs done in " in printed.out
    assert ", 1 failed; results in " in printed.out
    assert f"endive: failed: {failing}: UnwritableOutputError: " in printed.err
    (failing / "results.parquet").rmdir()
    done = {path: path.stat().st_ino for path in plan.root.rglob("results.parquet")}
    assert main(arguments) == 0
    assert "endive: 1 of 6 runs to do" in capsys.readouterr().err
    assert len(results(plan.root)) == 6
    assert {path: path.stat().st_ino for path in done} == done
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"all 6 runs were done already, in {plan.root}\n"


def test_a_worker_that_dies_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    plan = tiny_plan(tmp_path, duration_ms=600_000, seeds=1, scales=(2, 2.5))
    killed = []

    def kill_one() -> None:
        wait_until(lambda: bool(list(plan.root.rglob(".results.parquet.*"))), "a run under way")
        unfinished = next(plan.root.rglob(".results.parquet.*"))
        killed.append(int(unfinished.name.split(".")[-2]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_one)
    thread.start()
    progress = sweep(spark, plan)
    thread.join()
    assert (progress.done, progress.failed) == (2, [])
    timings = [json.loads(path.read_text()) for path in plan.root.rglob("timing.json")]
    assert killed[0] not in [timing["process_id"] for timing in timings]
    assert results(plan.root) == results_of_run(plan, tmp_path)


def test_what_no_worker_can_do_ends_the_sweep_in_one_line(
    spark: SparkSession, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(batches: object) -> Iterator[object]:
        raise OSError(28, "No space left on device", "failure.json")
        yield

    monkeypatch.setattr(sweep_module, "worker", lambda _: fill_the_disk)
    with pytest.raises(SweepError) as raised:
        sweep(spark, plan)
    assert str(raised.value) == "Spark gave up: OSError: [Errno 28] No space left on device: 'failure.json'"


def test_workers_that_write_elsewhere_are_noticed(
    spark: SparkSession, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = sweep_module.worker(plan.root.with_name("elsewhere"))
    monkeypatch.setattr(sweep_module, "worker", lambda _: elsewhere)
    with pytest.raises(SweepError, match=r"^workers report 6 runs done, but 0 are in .*/out: is it on storage that"):
        sweep(spark, plan)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, bytes]]:
    """A sweep with time to be killed in, and what it leaves when nothing disturbs it."""
    plan = tiny_plan(tmp_path_factory.mktemp("undisturbed"), **LONGER)
    plan.write()
    perform(plan)
    return plan, contents(plan.root)


class Witness(threading.Thread):
    """Looks at a directory all the time: what it finds under its name must be whole, and its summary there before."""

    def __init__(self, root: Path, expected: dict[str, bytes]) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._expected = expected
        self._is_over = False
        self.seen: dict[str, int] = {}
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._is_over:
            self.look()
            time.sleep(0.005)

    def look(self) -> None:
        for path in self._root.glob("*/*/results.parquet"):
            for found in (path, path.with_name("summary.parquet")):
                name = found.relative_to(self._root).as_posix()
                if name not in self.seen:
                    self.seen[name] = found.stat().st_ino if found.is_file() else 0
                    if not found.is_file() or found.read_bytes() != self._expected[name]:
                        self.wrong.append(name)

    def end(self) -> None:
        self._is_over = True
        self.join()
        self.look()


def start_sweep(folder: Path, root: Path, master: str) -> subprocess.Popen[str]:
    return endive_process("sweep", str(folder / "tiny.toml"), "-o", str(root), "--master", master)


def done_runs(root: Path) -> int:
    return len(list(root.glob("*/*/results.parquet")))


def test_killed_sweeps_go_on_and_leave_what_an_undisturbed_one_does(
    longer: tuple[Plan, dict[str, bytes]], tmp_path: Path
) -> None:
    """The seed of the moments is printed; ENDIVE_KILL_SEED=<seed> replays them, ENDIVE_KILLS=<n> makes them more."""
    print(f"ENDIVE_KILL_SEED={KILL_SEED}")
    (plan, undisturbed), root = longer, tmp_path / "out"
    moments = random.Random(KILL_SEED)
    write_sweep(tmp_path, **LONGER)
    witness = Witness(root, undisturbed)
    witness.start()
    for after in sorted(moments.randrange(len(plan.runs) - 3) for _ in range(KILLS)):
        process = start_sweep(tmp_path, root, "local[1]")
        wait_until(lambda: done_runs(root) >= after or process.poll() is not None, f"{after} runs done")  # noqa: B023
        time.sleep(moments.uniform(0.0, 0.5))
        started = descendants(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: are_gone(started), "the end of what the sweep had started", 60.0)  # noqa: B023
    process = start_sweep(tmp_path, root, "local[1]")
    complaint = process.communicate(timeout=300)[1]
    witness.end()
    assert process.returncode == 0, complaint
    assert not witness.wrong
    assert contents(root) == undisturbed
    kept = {name: (root / name).stat().st_ino for name in witness.seen}
    assert kept == witness.seen, "what is complete is not done again"


def test_an_interrupted_sweep_ends_at_once_and_says_how_to_go_on(tmp_path: Path) -> None:
    write_sweep(tmp_path, duration_ms=3_600_000, scales=(2, 2.1, 2.2, 2.3))
    root = tmp_path / "out"
    process = start_sweep(tmp_path, root, "local[2]")
    wait_until(lambda: bool(list(root.rglob(".results.parquet.*"))) or process.poll() is not None, "a run under way")
    started = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    interrupted_s = time.monotonic()
    _, complaint = process.communicate(timeout=120)
    assert time.monotonic() - interrupted_s < 30.0
    assert process.returncode == 130, complaint
    assert complaint.splitlines()[-2:] == [
        "endive: 8 runs are left; the same command goes on with them",
        "endive: interrupted",
    ]
    assert "Traceback" not in complaint
    wait_until(lambda: are_gone(started), "the end of what the sweep had started", 60.0)
    assert not results(root)
