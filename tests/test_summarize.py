"""`endive summarize`: tables from consolidated rows, all of one call, or one line that says why not."""

from __future__ import annotations

import os
import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

from endive.config import compute_experiment_hash
from endive.main import main
from endive.pipeline import consolidated_runs, session
from endive.pipeline import summarize as summarize_module
from endive.pipeline.consolidated import rows_path, write_rows
from endive.pipeline.experiments import find_experiments
from endive.pipeline.schemas import ALL
from endive.pipeline.summarize import TABLES, _give_names
from endive.simulation import InFlightTimes
from tests.experiment_folders import DURATION_MS, STEADY_MS, settings_of, write_run
from tests.processes import are_gone, descendants, endive_process, wait_until
from tests.result_rows import aborted, committed, rows

KILLS = int(os.environ.get("ENDIVE_KILLS", "1"))
KILL_SEED = int(os.environ.get("ENDIVE_KILL_SEED") or random.SystemRandom().randrange(2**31))
MINUTE = 60_000.0
NAMES = {tables: f"exp-{compute_experiment_hash(settings_of(num_tables=tables))}" for tables in (1, 2)}
ONE, TWO = NAMES.values()
ALWAYS = sorted(f"{name}.parquet" for name in TABLES if name != "differences")


def rows_with(commits: int) -> pa.Table:
    """Four transactions at minute 10, of which so many commit after 100 ms, and one that commits at minute 2."""
    start_ms = 10 * MINUTE
    makers = [committed] * commits + [aborted] * (4 - commits)
    at_ten = [make(place, start_ms, start_ms + 100.0) for place, make in enumerate(makers)]
    return rows(committed(9, 2 * MINUTE, 3 * MINUTE), *at_ten)


def consolidate(root: Path) -> None:
    for each in find_experiments(root):
        write_rows(rows_path(root, each.name, each.hash), each.folder, each.seeds)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A consolidated directory: with one table 1, 2 and 4 commits of 4 by seed, with two tables 2 and 3."""
    directory = tmp_path / "experiments"
    left = {"fast_append": InFlightTimes(array("d", [10 * MINUTE]), array("d", [35 * MINUTE]))}
    for tables, commits in ((1, (1, 2, 4)), (2, (2, 3))):
        for seed, each in enumerate(commits, 1):
            write_run(directory, settings_of(num_tables=tables), seed, rows_with(each), left)
    consolidate(directory)
    return directory


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "open_session", lambda *_: pytest.fail("Spark was started"))


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    read = pq.read_table(folder / f"{name}.parquet")
    assert read.column_names == TABLES[name].names
    return read.to_pylist()


def of(records: list[dict[str, Any]], folder: str, **values: Any) -> list[dict[str, Any]]:
    """Return the records of an experiment that cover every operation type."""
    wanted = {"exp_hash": folder.rpartition("-")[2], "operation_type": ALL} | values
    return [record for record in records if wanted.items() <= record.items()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_go_from_runs_to_experiments_and_their_differences(
    shared_session: None, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = root / "summaries"
    assert main(["summarize", str(root), "--baseline", ONE, "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("5 runs of 2 experiments summarized in ")
    assert printed.out.endswith(f"; tables in {output}\n")
    assert sorted(path.name for path in output.iterdir()) == sorted([*ALWAYS, "differences.parquet"])
    runs = table(output, "run_metrics")
    assert sorted((run["seed"], run["success_rate"]) for run in of(runs, ONE)) == [(1, 0.25), (2, 0.5), (3, 1.0)]
    assert {run["in_flight_share"] for run in of(runs, ONE)} == {0.2}
    assert {run["window_start_ms"] for run in runs} == {STEADY_MS[0]}
    (one,) = of(table(output, "summary"), ONE)
    half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem([0.25, 0.5, 1.0])
    assert one["success_rate"] == pytest.approx(1.75 / 3)
    assert one["success_rate_high"] == pytest.approx(1.75 / 3 + half)
    assert one["commit_latency_p99_ms"] == pytest.approx(100.0, rel=0.005)
    (difference,) = of(table(output, "differences"), TWO, metric="success_rate")
    assert [difference[name] for name in ("seeds", "baseline", "value", "difference", "difference_low")] == [
        2, 0.375, 0.625, 0.25, 0.25
    ]  # fmt: skip
    rates = [rate for rate in table(output, "commit_rates") if rate["committed"]]
    per_bin = 1000.0 / (DURATION_MS / 120)
    assert {(rate["start_ms"], rate["commits_per_s"] / per_bin) for rate in rates if rate["seed"] == 1} == {
        (3 * MINUTE, 1.0), (10 * MINUTE, 1.0), (10 * MINUTE, 2.0)
    }  # fmt: skip

    assert main(["summarize", str(root), "--window", "0", "5", "--quiet"]) == 0
    assert sorted(path.name for path in output.iterdir()) == ALWAYS, "differences were of another call"
    (one,) = of(table(output, "summary"), ONE)
    assert [one[name] for name in ("window_start_ms", "window_end_ms", "submitted", "committed")] == [
        0.0, 5 * MINUTE, 3, 3
    ]  # fmt: skip


def garble(path: Path) -> None:
    """Spoil the start of a Parquet file, and leave its end, which says what is where."""
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 600 + content[604:])


def test_what_cannot_be_read_is_named_and_left_out(
    shared_session: None, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (4, 5):
        write_run(root, settings_of(), seed, rows_with(1))
    garble(root / ONE / "5" / "results.parquet")
    consolidate(root)
    summaries = [root / ONE / str(seed) / "summary.parquet" for seed in range(5)]
    summaries[1].write_bytes(summaries[1].read_bytes()[:-9])
    garble(summaries[2])
    summaries[4].write_bytes(summaries[3].read_bytes())
    garble(rows_path(root, "exp", TWO.rpartition("-")[2]))
    assert main(["summarize", str(root), "--quiet"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("1 runs of 2 experiments summarized in ")
    lines = sorted(printed.err.splitlines())
    assert len(lines) == 5
    rows_of_two, *of_one = lines
    assert rows_of_two.startswith(f"endive: {rows_path(root, 'exp', TWO.rpartition('-')[2])}: cannot be read: ")
    assert rows_of_two.endswith(f"; {TWO} is left out")
    said = {
        1: (summaries[1], "cannot be read: "),
        2: (summaries[2], "cannot be read: "),
        4: (summaries[4], "is not the summary of the run that it lies with; "),
        5: (root / ONE / "5" / "results.parquet", "cannot be read: "),
    }
    for line, (seed, (path, reason)) in zip(of_one, said.items(), strict=True):
        assert line.startswith(f"endive: {path}: {reason}")
        assert line.endswith(f"; seed {seed} of {ONE} is left out")
    (one,) = of(table(root / "summaries", "summary"), ONE)
    assert (one["seeds"], one["success_rate"]) == (1, 1.0)


@pytest.mark.parametrize("change", ["never", "another run", "run again"])
def test_what_is_not_consolidated_is_told_before_spark_starts(
    no_spark: None, root: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    path = rows_path(root, "exp", ONE.rpartition("-")[2])
    if change == "never":
        path.unlink()
    else:
        write_run(root, settings_of(), 3 if change == "run again" else 4, rows_with(1))
    assert main(["summarize", str(root)]) == 2
    printed = capsys.readouterr()
    said = f"is not there, or of other runs than {root / ONE}; run: endive consolidate {root}"
    assert (printed.out, printed.err) == ("", f"endive: {path}: {said}\n")
    assert not (root / "summaries").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--window", "20", "10"], "--window: 20 10; allowed is a start before the end, in minutes"),
        (["--window", "20", "20"], "--window: 20 20; allowed is a start before the end, in minutes"),
        (["--window", "20", "41"], "--window: ends at minute 41; allowed is up to 40, the end of exp-"),
        (["--baseline", "exp-0"], "--baseline exp-0: no such experiment; "),
        (["-o", "file"], "file: cannot be written: Not a directory"),
        (["-o", "file/x"], "file/x: cannot be written: Not a directory"),
        (["-o", "/proc/x"], "/proc/x: cannot be written: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    no_spark: None,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(root.parent)
    Path("file").touch()
    assert main(["summarize", "experiments", *arguments]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"endive: {said}")
    assert printed.out == ""


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf"])
def test_a_window_is_two_instants_in_minutes(
    no_spark: None, root: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["summarize", str(root), f"--window={text}", "30"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        main(["summarize", str(root), "--window", "30", text])
    assert ended.value.code == 2
    assert f"'{text}' is not a number of minutes, 0 or more" in capsys.readouterr().err.splitlines()[1]


def test_a_directory_with_nothing_to_summarize_is_an_input_error(
    no_spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory, said in ((tmp_path / "absent", "is not a directory"), (tmp_path, "holds no finished run")):
        assert main(["summarize", str(directory)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"endive: {directory}: {said}")


def write_tables(folder: Path, text: str) -> None:
    for name in TABLES:
        (folder / f"{name}.parquet").mkdir(parents=True)
        (folder / f"{name}.parquet" / "part").write_text(text)


@pytest.mark.parametrize("renames", range(2 * len(TABLES)))
def test_tables_of_two_calls_are_never_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    unfinished = tmp_path / ".unfinished"
    write_tables(tmp_path, "earlier")
    write_tables(unfinished, "new")
    left = iter(range(renames))
    rename = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        _give_names(unfinished, tmp_path)
    assert len({path.read_text() for path in tmp_path.glob("*.parquet/part")}) <= 1


@pytest.fixture
def earlier(root: Path) -> dict[str, bytes]:
    """The files of an earlier call's tables."""
    write_tables(root / "summaries", "earlier")
    return contents(root / "summaries")


def test_what_keeps_spark_from_it_is_one_line_and_leaves_the_earlier_tables(
    shared_session: None,
    root: Path,
    earlier: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fill_the_disk(*_: object) -> None:
        raise OSError(28, "No space left on device", "part")

    monkeypatch.setattr(summarize_module, "run_summaries", fill_the_disk)
    assert main(["summarize", str(root), "--quiet"]) == 1
    said = "Spark gave up: [Errno 28] No space left on device: 'part'"
    assert capsys.readouterr().err == f"endive: {said}\n"
    assert contents(root / "summaries") == earlier


def test_workers_that_read_elsewhere_are_noticed(
    shared_session: None,
    root: Path,
    earlier: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read_nothing(batches: object) -> Iterator[pa.RecordBatch]:
        yield from ()

    monkeypatch.setattr(consolidated_runs, "_summarize_files", read_nothing)
    assert main(["summarize", str(root), "--quiet"]) == 1
    path = rows_path(root, "exp", min(ONE, TWO).rpartition("-")[2])
    said = f"workers cannot read {path}: is it on storage that workers share?"
    assert capsys.readouterr().err == f"endive: {said}\n"
    assert contents(root / "summaries") == earlier


def written(output: Path) -> int:
    """Return how many tables a call under way has written; less than 0 if there is none."""
    unfinished = output / ".unfinished"
    return len(list(unfinished.glob("*/_SUCCESS"))) if unfinished.is_dir() else -1


def test_a_killed_summary_leaves_whole_tables_of_one_call_and_the_next_clears_up(
    shared_session: None, root: Path, earlier: dict[str, bytes]
) -> None:
    """The seed of the moments is printed; ENDIVE_KILL_SEED=<seed> replays them, ENDIVE_KILLS=<n> makes them more."""
    print(f"ENDIVE_KILL_SEED={KILL_SEED}")
    moments, output = random.Random(KILL_SEED), root / "summaries"
    for _ in range(KILLS):
        tables = moments.randrange(len(ALWAYS))
        process = endive_process("summarize", str(root), "--master", "local[1]", "--quiet")
        wait_until(lambda: written(output) >= tables or process.poll() is not None, f"{tables} tables")  # noqa: B023
        time.sleep(moments.uniform(0.0, 1.0))
        started = descendants(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: are_gone(started), "the end of what the command had started", 60.0)  # noqa: B023
        found = [{path.name for path in table.iterdir()} for table in output.glob("*.parquet")]
        assert all("part" in names for names in found) or all("_SUCCESS" in names for names in found), found
    assert main(["summarize", str(root), "--quiet"]) == 0
    assert sorted(path.name for path in output.iterdir()) == ALWAYS
    assert all((table / "_SUCCESS").exists() for table in output.iterdir())
