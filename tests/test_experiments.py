"""What is read of a directory of experiments: all that is whole, with a word on the rest."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest

from endive.config import compute_experiment_hash, resolved_lines
from endive.config_errors import ConfigError
from endive.pipeline.experiments import (
    configurations,
    find_experiments,
    load_metrics,
    load_run_summaries,
    read_summaries,
)
from endive.pipeline.schemas import ALL, CONFIGURATIONS, RUN_METRICS, RUN_SUMMARY, SUMMARY
from endive.simulation import InFlightTimes
from tests.experiment_folders import STEADY_MS, settings_of, write_run
from tests.result_rows import aborted, committed, rows

START_MS = STEADY_MS[0]
ROWS = rows(
    committed(1, START_MS, START_MS + 100.0),
    committed(2, START_MS, START_MS + 300.0),
    aborted(3, START_MS, START_MS + 500.0),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two experiments: one table with seeds 2 and 10, two tables with seed 2."""
    in_flight = {"fast_append": InFlightTimes(array("d", [START_MS]), array("d", [math.nan]))}
    write_run(tmp_path, settings_of(num_tables=1), 2, ROWS, in_flight)
    write_run(tmp_path, settings_of(num_tables=1), 10, ROWS.slice(0, 2))
    write_run(tmp_path, settings_of(num_tables=2), 2, rows())
    return tmp_path


def folder(root: Path, num_tables: int) -> Path:
    return root / f"exp-{compute_experiment_hash(settings_of(num_tables=num_tables))}"


def problems_of(root: Path) -> list[str]:
    problems: list[str] = []
    load_metrics(root, problems.append)
    return problems


def test_experiments_are_found_with_their_finished_runs(root: Path) -> None:
    (folder(root, 1) / "3").mkdir()
    (folder(root, 1) / "notes").mkdir()
    (root / "sweeps").mkdir()
    found = {experiment.hash: experiment for experiment in find_experiments(root)}
    assert found.keys() == {compute_experiment_hash(settings_of(num_tables=tables)) for tables in (1, 2)}
    one = found[compute_experiment_hash(settings_of(num_tables=1))]
    assert (one.name, one.folder, one.seeds) == ("exp", folder(root, 1), (2, 10))
    assert one.settings.catalog.num_tables == 1


def test_a_label_may_have_dashes(tmp_path: Path) -> None:
    write_run(tmp_path, settings_of("a-b-0123456789ab"), 1, ROWS)
    (found,) = find_experiments(tmp_path)
    assert (found.name, found.hash) == ("a-b-0123456789ab", compute_experiment_hash(settings_of()))


def test_a_directory_that_is_not_there_or_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: is not a directory"):
        find_experiments(tmp_path / "missing")
    with pytest.raises(ConfigError, match="holds no finished run"):
        find_experiments(tmp_path)
    run = write_run(tmp_path, settings_of(), 1, ROWS)
    (run / "results.parquet").unlink()
    with pytest.raises(ConfigError, match="holds no finished run"):
        find_experiments(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"), [("a =", "is not TOML"), ("a = 1", "simulation: missing"), (None, "cannot be read: No such file")]
)
def test_an_experiment_that_does_not_say_what_made_it_is_left_out(root: Path, text: str | None, told: str) -> None:
    path = folder(root, 2) / "cfg.toml"
    path.unlink()
    if text is not None:
        path.write_text(text)
    problems: list[str] = []
    assert [experiment.folder for experiment in find_experiments(root, problems.append)] == [folder(root, 1)]
    (problem,) = problems
    assert problem.startswith(f"{path}: {told}")
    assert problem.endswith(f"; {path.parent.name} is left out")


def test_the_frames_of_a_directory(root: Path) -> None:
    runs, summary, settings = load_metrics(root)
    assert (list(runs), list(summary), list(settings)) == (RUN_METRICS.names, SUMMARY.names, CONFIGURATIONS.names)
    whole = runs[runs["operation_type"] == ALL].set_index(["exp_hash", "seed"])
    one, two = (compute_experiment_hash(settings_of(num_tables=tables)) for tables in (1, 2))
    assert whole["success_rate"][one].to_dict() == {2: pytest.approx(2 / 3), 10: 1.0}
    assert whole.loc[(one, 2), "in_flight_share"] == 0.25
    assert whole.loc[(two, 2), "throughput_per_s"] == 0.0
    means = summary[summary["operation_type"] == ALL].set_index("exp_hash")
    assert means["seeds"].to_dict() == {one: 2, two: 1}
    assert means.loc[one, "success_rate"] == pytest.approx(5 / 6)
    assert math.isnan(means.loc[two, "success_rate"])


def test_configurations_are_the_settings_in_force(root: Path) -> None:
    table = configurations(find_experiments(root))
    assert table.schema.equals(CONFIGURATIONS)
    settings = settings_of(num_tables=2)
    mine = [row for row in table.to_pylist() if row["exp_hash"] == compute_experiment_hash(settings)]
    assert {row["exp_name"] for row in mine} == {"exp"}
    lines = {line.removesuffix("  # default") for line in resolved_lines(settings)}
    assert {f"{row['key']} = {row['value']}" for row in mine} == lines - {'experiment.label = "exp"'}
    assert {row["key"]: row["value"] for row in mine}["simulation.duration_ms"] == "2400000.0"


def test_run_summaries_of_some_experiments_have_all_there_is(root: Path) -> None:
    wanted = compute_experiment_hash(settings_of(num_tables=1))
    found = load_run_summaries(root, [wanted])
    assert [(run.exp_hash, run.seed, operation) for run, operation, _ in found] == [
        (wanted, 2, "fast_append"),
        (wanted, 10, "fast_append"),
    ]
    summary = found[0][2]
    assert summary.histograms["commit_latency"].count == 2
    assert summary.series["series_committed"].sum() == 2
    assert summary.in_flight["in_flight_submit_ms"].tolist() == [START_MS]


def test_a_damaged_summary_is_named_and_its_seed_left_out(root: Path) -> None:
    path = folder(root, 1) / "2" / "summary.parquet"
    content = path.read_bytes()
    for damaged in (b"", b"PAR1", content[:1000], content[:-1], b"PAR1" + bytes(len(content) - 8) + b"PAR1"):
        path.write_bytes(damaged)
        (problem,) = problems_of(root)
        assert problem.startswith(f"{path}: cannot be read: "), damaged[:10]
        assert problem.endswith(f"; seed 2 of {folder(root, 1).name} is left out")
    path.unlink()
    (problem,) = problems_of(root)
    assert problem.startswith(f"{path}: cannot be read: ")
    runs, _, _ = load_metrics(root, lambda _: None)
    assert sorted(set(runs["seed"])) == [2, 10]
    assert len(runs[(runs["seed"] == 2) & (runs["operation_type"] == "fast_append")]) == 0


def test_the_summary_of_truncated_rows_is_not_trusted(root: Path) -> None:
    path = folder(root, 1) / "10" / "results.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    (problem,) = problems_of(root)
    assert problem == f"{path}: is not a whole Parquet file; seed 10 of {folder(root, 1).name} is left out"


def test_the_summary_of_another_run_is_not_trusted(root: Path) -> None:
    path = folder(root, 1) / "10" / "summary.parquet"
    path.write_bytes((folder(root, 1) / "2" / "summary.parquet").read_bytes())
    (problem,) = problems_of(root)
    assert problem.startswith(f"{path}: is not the summary of the run that it lies with")


def test_with_nothing_readable_the_frames_are_empty(tmp_path: Path) -> None:
    run = write_run(tmp_path, settings_of(), 1, ROWS)
    (run / "summary.parquet").write_bytes(b"")
    runs, summary, settings = load_metrics(tmp_path, lambda _: None)
    assert (len(runs), len(summary)) == (0, 0)
    assert list(summary) == SUMMARY.names
    assert len(settings) > 10
    (experiment,) = find_experiments(tmp_path)
    assert read_summaries(experiment, lambda _: None).equals(RUN_SUMMARY.empty_table())
