"""`endive compare`: which experiments are pairs, what is said of them, and the exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from endive import __version__
from endive.comparison import compare
from endive.config import compute_experiment_hash, parse_settings
from endive.config_errors import ConfigError
from endive.experiment import snapshot_text
from endive.main import main
from endive.pipeline.directory import RunState
from endive.pipeline.experiments import load_metrics
from endive.pipeline.run_task import perform_run

SEEDS = (1, 2, 3, 4)


def simulate(root: Path, label: str = "base", seeds: Sequence[int] = SEEDS, **changes: dict[str, Any]) -> Path:
    """Run a small configuration as a sweep does; return the experiment's directory."""
    data: dict[str, Any] = {
        "simulation": {"duration_ms": 120_000},
        "storage": {"provider": "s3x"},
        "experiment": {"label": label},
        "transaction": {
            "inter_arrival": {"scale": 40.0},
            "runtime": {"median": 300.0, "sigma": 0.5},
            "retry": 3,
            "operation_types": {"fast_append": 0.8, "validated_overwrite": 0.2},
        },
    }
    for table, values in changes.items():
        data[table] = data.get(table, {}) | values
    settings = parse_settings(data)
    digest = compute_experiment_hash(settings)
    row = {"version": __version__, "label": label, "hash": digest, "settings": snapshot_text(settings), "cost_s": 1.0}
    for seed in seeds:
        assert perform_run(row | {"seed": seed}, root) is RunState.DONE
    return root / f"{label}-{digest}"


def every(mean_ms: float) -> dict[str, Any]:
    return {"inter_arrival": {"scale": mean_ms}, "runtime": {"median": 300.0, "sigma": 0.5}, "retry": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fast and a slow store, each at two loads, and some that cannot be compared with them."""
    root = tmp_path_factory.mktemp("compare")
    for store in ("s3x", "s3"):
        for mean_ms in (200.0, 400.0):
            simulate(root / store, "sweep", transaction=every(mean_ms), storage={"provider": store})
    simulate(root / "s3", "sweep", transaction=every(800.0), storage={"provider": "s3"})
    return {
        "fast": simulate(root / "a"),
        "slow": simulate(root / "b", "tuned", storage={"provider": "s3"}),
        "alone": simulate(root / "c", seeds=[2], storage={"provider": "s3"}),
        "unshared": simulate(root / "d", seeds=[8, 9], storage={"provider": "s3"}),
        "longer": simulate(root / "e", seeds=[1, 2], simulation={"duration_ms": 180_000}),
        "s3x": root / "s3x",
        "s3": root / "s3",
    }


def test_a_slower_store_is_worse_and_a_faster_one_better(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(made["fast"]), str(made["slow"])]) == 1
    printed = capsys.readouterr().out
    assert 'storage.provider: "s3x" -> "s3"' in printed
    assert "seeds 1, 2, 3, 4" in printed
    assert "over all 6 comparisons together (Holm)" in printed
    assert "who gave up is not in it" in printed
    rows = {line.split()[0]: line for line in printed.splitlines() if line.endswith(("better", "worse", "evidence"))}
    assert list(rows) == [
        "success_rate",
        "throughput_per_s",
        "commit_latency_p50_ms",
        "commit_latency_p95_ms",
        "commit_latency_p99_ms",
        "retries_per_commit",
    ]
    assert all(row.endswith("worse") for row in rows.values())
    assert main(["compare", str(made["slow"]), str(made["fast"])]) == 0
    assert "worse" not in capsys.readouterr().out


def test_the_same_experiment_is_no_evidence(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(made["fast"]), str(made["fast"])]) == 0
    printed = capsys.readouterr().out
    assert printed.count("no evidence") == 6
    assert "->" not in printed


def test_json_has_the_paired_differences(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(made["fast"]), str(made["slow"]), "--metric", "success_rate", "--json"]
    assert main([*arguments, "--fail-on", "never"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["worse"] is True
    assert found["changed"]["storage.provider"] == {"baseline": '"s3x"', "other": '"s3"'}
    pair = found["pairs"][0]
    assert (pair["at"], pair["seeds"]) == ({}, list(SEEDS))
    (row,) = pair["metrics"]
    before, after = (
        load_metrics(made[name].parent)[0].query("operation_type == 'all'").sort_values("seed").success_rate.to_numpy()
        for name in ("fast", "slow")
    )
    tested = stats.ttest_rel(after, before)
    interval = tested.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(np.mean(after - before))
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((interval.low, interval.high))
    assert (row["p_value"], row["p_holm"]) == pytest.approx((tested.pvalue, tested.pvalue))
    assert (row["metric"], row["seeds"], row["verdict"]) == ("success_rate", 4, "worse")


def test_two_sweeps_are_paired_by_what_was_swept(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(made["s3x"], made["s3"])
    places = sorted(dict(pair.at)["transaction.inter_arrival.scale"] for pair in found.pairs)
    assert places == ["200.0", "400.0"]
    assert {len(pair.at) for pair in found.pairs} == {1}
    assert ("storage.provider", '"s3x"', '"s3"') in found.changed
    assert found.notes[0].startswith("1 of 3 experiments are in the other only: sweep-")
    assert len(found.differences) == 12
    assert main(["compare", str(made["s3x"]), str(made["s3"])]) == 1
    printed = capsys.readouterr().out
    assert "2 pairs" in printed
    assert "transaction.inter_arrival.scale = 200.0 (4 seeds)" in printed
    assert "over all 12 comparisons" in printed


def test_equal_configurations_of_two_directories_are_pairs(made: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(made["s3"], tmp_path / "again")
    found = compare(made["s3"], tmp_path / "again")
    assert [pair.baseline.hash for pair in found.pairs] == [pair.other.hash for pair in found.pairs]
    assert len(found.pairs) == 3
    assert set(found.differences.verdict) == {"no evidence"}
    assert (found.changed, found.notes, found.is_worse) == ((), (), False)


def test_one_seed_has_no_interval_and_says_so(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(made["fast"]), str(made["alone"])]) == 0
    printed = capsys.readouterr().out
    assert "one seed in common: no interval, and no verdict" in printed
    assert printed.count("no evidence") == 6
    assert "together (Holm)" not in printed


def test_one_operation_type_alone(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(made["fast"]), str(made["slow"]), "--json", "--operation-type", "validated_overwrite"]
    assert main([*arguments, "--metric", "historical_reads_per_commit"]) in (0, 1)
    (row,) = json.loads(capsys.readouterr().out)["pairs"][0]["metrics"]
    assert row["baseline"] > 0.0


def test_results_of_another_model_are_told(made: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / made["fast"].name
    shutil.copytree(made["fast"], other)
    (other / "version.txt").write_text("unknown\nmodel 999\n")
    assert any("different models" in note and "model 999" in note for note in compare(made["fast"], other).notes)


def test_a_broken_summary_is_told_and_its_seed_left_out(made: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / made["fast"].name
    shutil.copytree(made["fast"], other)
    (other / "3" / "summary.parquet").write_bytes(b"not Parquet")
    found = compare(made["fast"], other)
    assert set(found.differences.seeds) == {3}
    assert any("seed 3" in note and "left out" in note for note in found.notes)


@pytest.mark.parametrize(
    ("first", "second", "options", "said"),
    [
        ("fast", "unshared", [], "no seed in common (1, 2, 3, 4 and 8, 9)"),
        ("fast", "longer", [], "different durations, 2.00 min and 3.00 min"),
        ("fast", "slow", ["--metric", "sucess_rate"], "sucess_rate: no such metric; did you mean success_rate"),
        ("fast", "slow", ["--operation-type", "merge_append"], "merge_append: no such operation type in both"),
        ("fast", "nowhere", [], "nowhere: is not a directory"),
        ("fast", "empty", [], "empty: holds no finished run"),
        ("s3x", "fast", [], "no experiments have the same transaction.inter_arrival.scale"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_code_2(
    made: dict[str, Path],
    first: str,
    second: str,
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    arguments = [str(made.get(name, tmp_path / name)) for name in (first, second)]
    assert main(["compare", *arguments, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert said in printed.err


def test_runs_without_a_summary_are_one_line(made: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / made["alone"].name
    shutil.copytree(made["alone"], other)
    (other / "2" / "summary.parquet").unlink()
    with pytest.raises(ConfigError, match=r"no run has a summary that can be read: .*summary.parquet") as caught:
        compare(made["alone"], other)
    assert len(caught.value.lines) == 1
