"""The program as its user meets it: output, files, exit codes, and what is left after a violent end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from endive import MODEL_VERSION
from endive.config import compute_experiment_hash, load_settings
from endive.main import build_parser, main
from endive.results import SCHEMA

CONFIG = """
[simulation]
duration_ms = 20000
seed = 1
[storage]
provider = "s3x"
[catalog]
num_tables = 2
[transaction]
runtime = { median = 300, sigma = 1.0 }
inter_arrival.scale = 50.0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a small configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cfg.toml").write_text(CONFIG)
    return tmp_path


def files(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if name != "cfg.toml")


def endive(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "endive.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def test_run_prints_a_summary_for_each_operation_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cfg.toml", "--output", "out.parquet"]) == 0
    printed = capsys.readouterr().out
    header = next(line for line in printed.splitlines() if "fast_append" in line).split()
    assert header == ["all", "fast_append", "merge_append", "validated_overwrite"]
    for row in ("submitted", "committed", "aborted", "in flight", "success rate", "throughput", "retries"):
        assert re.search(rf"^{row}", printed, re.MULTILINE), row
    for percent in (50, 95, 99):
        assert f"commit latency P{percent}" in printed
    assert "out.parquet" in printed
    assert "seed 1" in printed


def test_json_is_one_object_that_agrees_with_the_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cfg.toml", "--json", "--output", "out.parquet"]) == 0
    summary = json.loads(capsys.readouterr().out)
    frame = pq.read_table("out.parquet").to_pandas()
    committed = frame[frame.status == "committed"]
    assert summary["seed"] == 1
    assert summary["submitted"] == summary["committed"] + summary["aborted"] + summary["in_flight"]
    assert summary["final_seq"] == summary["committed"] + summary["in_flight_applied"]
    assert (summary["committed"], summary["aborted"]) == (len(committed), len(frame) - len(committed))
    for name, totals in summary["operations"].items():
        rows = frame if name == "all" else frame[frame.operation_type == name]
        done = rows[rows.status == "committed"]
        assert totals["committed"] == len(done)
        assert totals["aborted_by_reason"] == rows.abort_reason.value_counts().to_dict()
        assert totals["retries"] == rows.n_retries.sum()
        assert totals["manifest_list_reads"] == rows.manifest_list_reads.sum()
        assert totals["times_ms"]["catalog_commit_ms"] == pytest.approx(rows.catalog_commit_ms.sum())
        assert totals["success_rate"] == pytest.approx(len(done) / len(rows))
        assert totals["throughput_per_s"] == pytest.approx(len(done) / 20.0)
        for percent in (50, 95, 99):
            expected = done.commit_latency.quantile(percent / 100)
            assert totals["commit_latency_ms"][f"p{percent}"] == pytest.approx(expected)


def test_a_run_without_a_commit_has_no_latency_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cfg.toml").write_text(CONFIG.replace("20000", "5"))
    assert main(["run", "cfg.toml", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)["operations"]["all"]
    assert everything["success_rate"] is None
    assert everything["commit_latency_ms"] == {"p50": None, "p95": None, "p99": None, "mean": None}
    assert main(["run", "cfg.toml"]) == 0
    assert re.search(r"success rate +–", capsys.readouterr().out)


def test_the_seed_option_wins_over_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cfg.toml", "--json", "--seed", "9"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 9


def test_without_any_seed_one_is_drawn_and_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cfg.toml").write_text(CONFIG.replace("seed = 1", ""))
    seeds = []
    for _ in range(2):
        assert main(["run", "cfg.toml", "--json"]) == 0
        seeds.append(json.loads(capsys.readouterr().out)["seed"])
    assert seeds[0] != seeds[1]


def test_same_seed_same_bytes_in_other_processes_with_other_surroundings(folder: Path) -> None:
    for name, surroundings in (("a", {"PYTHONHASHSEED": "1"}), ("b", {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "1"})):
        cores = {0} if name == "b" else os.sched_getaffinity(0)
        done = endive(
            "run",
            "cfg.toml",
            "--output",
            f"{name}.parquet",
            env={**os.environ, **surroundings},
            preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
        )
        assert done.returncode == 0, done.stderr
    assert (folder / "a.parquet").read_bytes() == (folder / "b.parquet").read_bytes()


def test_a_labelled_experiment_has_a_directory_of_its_own(folder: Path) -> None:
    (folder / "cfg.toml").write_text(CONFIG + '[experiment]\nlabel = "base"\n')
    for seed in (1, 2):
        assert main(["run", "cfg.toml", "--seed", str(seed), "--quiet"]) == 0
    digest = compute_experiment_hash(load_settings("cfg.toml"))
    root = f"experiments/base-{digest}"
    assert files(folder) == [
        f"{root}/1/results.parquet",
        f"{root}/2/results.parquet",
        f"{root}/cfg.toml",
        f"{root}/version.txt",
    ]
    assert compute_experiment_hash(load_settings(f"{root}/cfg.toml")) == digest
    version = (folder / root / "version.txt").read_text().splitlines()
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", version[0])
    assert version[-1] == f"model {MODEL_VERSION}"


def test_an_experiment_of_another_model_is_not_mixed_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cfg.toml").write_text(CONFIG + '[experiment]\nlabel = "base"\n')
    assert main(["run", "cfg.toml", "--quiet"]) == 0
    version = next(folder.glob("experiments/*/version.txt"))
    version.write_text("unknown\nendive 9\nmodel 999\n")
    assert main(["run", "cfg.toml", "--seed", "2", "--quiet"]) == 2
    assert "model 999" in capsys.readouterr().err
    assert not list(folder.glob("experiments/*/2"))
    version.write_text(f"unknown\nmodel {MODEL_VERSION}\n")
    snapshot = version.with_name("cfg.toml")
    snapshot.write_text(snapshot.read_text().replace("20000", "30000"))
    assert main(["run", "cfg.toml", "--seed", "2", "--quiet"]) == 2
    assert "another configuration" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cfg.toml", "version.txt"])
def test_what_an_experiment_was_made_of_must_be_readable(folder: Path, name: str) -> None:
    (folder / "cfg.toml").write_text(CONFIG + '[experiment]\nlabel = "shared"\n')
    assert main(["run", "cfg.toml", "--seed", "1", "--quiet"]) == 0
    (kept,) = folder.rglob(f"experiments/*/{name}")
    kept.write_bytes(b"\xff\xfe")
    done = endive("run", "cfg.toml", "--seed", "2", "--quiet")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{name}: is not UTF-8 text" in done.stderr
    kept.unlink()
    kept.mkdir()
    done = endive("run", "cfg.toml", "--seed", "2", "--quiet")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{name}: cannot be read: Is a directory" in done.stderr


def test_the_output_path_of_the_file_is_used(folder: Path) -> None:
    (folder / "cfg.toml").write_text(CONFIG.replace("seed = 1", 'seed = 1\noutput_path = "results.parquet"'))
    assert main(["run", "cfg.toml", "--quiet"]) == 0
    assert files(folder) == ["results.parquet"]
    assert main(["run", "cfg.toml", "--quiet", "--output", "deep/er/other.parquet"]) == 0
    assert files(folder) == ["deep/er/other.parquet", "results.parquet"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "absent.toml"], "absent.toml: cannot be read"),
        (["run", "cfg.toml", "--output", "."], ".: is a directory"),
        (["run", "cfg.toml", "--output", "cfg.toml/out.parquet"], "cfg.toml is not a directory"),
        (["run", "cfg.toml", "--output", "/proc/out.parquet"], "/proc/out.parquet: cannot be written"),
        (["run", "cfg.toml", "--output", "x" * 300], "File name too long"),
        (["run", "cfg.toml", "--output", "./cfg.toml"], "cfg.toml: is the configuration"),
        (["trace", "cfg.toml", "-o", "cfg.toml"], "cfg.toml: is the configuration"),
        (["trace", "cfg.toml", "-o", "x", "--events", "cfg.toml"], "cfg.toml: is the configuration"),
        (["run", "cfg.toml", "--seed", "-1"], "'-1' is not a whole number from 0"),
        (["run", "cfg.toml", "--seed", "1e3"], "'1e3' is not a whole number from 0"),
        (["run", "cfg.toml", "--seed", "9" * 5000], "is not a whole number from 0"),
        (["trace", "cfg.toml", "-o", "x", "--events", "./x"], "is the same file"),
        (["trace", "cfg.toml", "-o", "x", "--transactions", "0"], "'0' is not a whole number from 1"),
        (["run", "cfg.toml", "--engine", "warp"], "invalid choice: 'warp'"),
        (["run", "cfg.toml", "--frobnicate"], "--frobnicate"),
        (["run"], "CONFIG"),
        (["check"], "CONFIG is missing"),
        (["providers", "--profile", "2020-01"], "invalid choice: '2020-01'"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "COMMAND"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder: Path, arguments: list[str], said: str) -> None:
    done = endive(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert files(folder) == []


def test_a_pipe_is_not_replaced_by_a_file(folder: Path) -> None:
    os.mkfifo("pipe")
    done = endive("run", "cfg.toml", "--output", "pipe")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pipe: is not a regular file" in done.stderr


def test_a_link_is_written_through(folder: Path) -> None:
    (folder / "link.parquet").symlink_to("target.parquet")
    assert main(["run", "cfg.toml", "--quiet", "--output", "link.parquet"]) == 0
    assert (folder / "link.parquet").is_symlink()
    assert pq.read_table("target.parquet").num_rows > 0


def test_odd_file_names_are_names(folder: Path) -> None:
    for name in ("**x", "[1].parquet", "a b"):
        assert main(["run", "cfg.toml", "--quiet", "--output", name]) == 0
    assert files(folder) == ["**x", "[1].parquet", "a b"]


def test_a_terminal_without_unicode_gets_the_table_all_the_same(folder: Path) -> None:
    done = endive("providers", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_output_is_no_failure(folder: Path) -> None:
    command = f"{sys.executable} -m endive.main run cfg.toml --quiet --output out.parquet >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert pq.read_table("out.parquet").num_rows > 0


def test_a_wrong_configuration_leaves_no_file(folder: Path) -> None:
    (folder / "cfg.toml").write_text(CONFIG + "retry = -3\n" + '[experiment]\nlabel = "x"\n')
    done = endive("run", "cfg.toml", "--output", "out.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "endive: cfg.toml: transaction.retry = -3: must be 0 or more\n"
    assert files(folder) == []


def test_debug_shows_the_traceback(folder: Path) -> None:
    assert "Traceback" in endive("run", "absent.toml", "--debug").stderr


LONG = CONFIG.replace("20000", "36000000")


def start_long_run(folder: Path) -> subprocess.Popen[str]:
    """Start a run of minutes, and wait until it is writing."""
    (folder / "cfg.toml").write_text(LONG + '[experiment]\nlabel = "long"\n')
    command = [sys.executable, "-m", "endive.main", "run", "cfg.toml"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's children ignore it
    )
    deadline = time.monotonic() + 60.0
    while not list(folder.rglob(".results.parquet.*.unfinished")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    return process


def test_a_killed_run_leaves_nothing_that_looks_complete(folder: Path) -> None:
    process = start_long_run(folder)
    process.kill()
    process.communicate(timeout=60)
    assert not list(folder.rglob("results.parquet"))
    left = [name for name in files(folder) if not name.endswith((".unfinished", "cfg.toml", "version.txt"))]
    assert left == []


def test_the_next_run_removes_what_a_killed_one_left(folder: Path) -> None:
    process = start_long_run(folder)
    process.kill()
    process.communicate(timeout=60)
    left = next(folder.rglob("*.unfinished"))
    target = left.with_name("results.parquet")
    (folder / "cfg.toml").write_text(CONFIG)
    assert main(["run", "cfg.toml", "--quiet", "--output", str(target)]) == 0
    assert not list(folder.rglob("*.unfinished"))


def test_an_interrupted_run_says_so_and_leaves_no_file(folder: Path) -> None:
    process = start_long_run(folder)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaint.splitlines()[-1] == "endive: interrupted"
    assert "Traceback" not in complaint
    assert not list(folder.rglob("*.parquet*"))


def test_a_full_disk_fails_in_one_line_and_leaves_no_file(folder: Path) -> None:
    """A limit on the file's size stands in for a disk that fills up."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = endive("run", "cfg.toml", "--output", "out.parquet", preexec_fn=limit)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "out.parquet" in done.stderr
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert files(folder) == []


def test_progress_is_plain_lines_away_from_a_terminal(folder: Path) -> None:
    done = endive("run", "cfg.toml")
    assert "\r" not in done.stderr


def test_check_prints_settings_that_can_be_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "cfg.toml"]) == 0
    printed = capsys.readouterr()
    assert 'catalog.type = "cas"  # default' in printed.out
    assert "transaction.inter_arrival.scale = 50.0\n" in printed.out
    (folder / "again.toml").write_text(printed.out)
    assert compute_experiment_hash(load_settings("again.toml")) in printed.out


def test_check_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["storage"]


def test_providers_lists_each_with_its_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "--profile", "2025-06"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert list(rows) == ["s3", "s3x", "azure", "azurex", "gcp", "instant"]
    assert "30 + 20 ± 0.3" in rows["s3"]
    assert "2534 ± 0.65" in rows["azurex"]
    assert rows["gcp"].split()[-3:] == ["–", "–", "–"]


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    commands = next(action for action in build_parser()._actions if action.dest == "command").choices
    assert {"run", "check", "providers"} <= set(commands)
    for name in commands:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert re.search(rf"examples:\n  endive {name}", capsys.readouterr().out), name


def test_results_of_the_program_have_the_schema(folder: Path) -> None:
    assert main(["run", "cfg.toml", "--quiet", "--output", "out.parquet"]) == 0
    assert pq.read_schema("out.parquet").remove_metadata().equals(SCHEMA)
