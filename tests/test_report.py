"""`endive analyze`: the files of a report, that they are the same each time, and what cannot be reported."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from endive.main import main
from endive.report.report import PAGE_NAME
from tests.report_folders import LOAD, outcomes, section_of, settings, write_experiment

FIGURES = {
    "throughput",
    "latency-throughput",
    "success",
    "retries",
    "overhead",
    "convoy",
    "saturation",
    "effects",
    "exponents",
    "breakdown",
    "operations",
    "heatmap-load-provider",
    "commit-rate",
    "in-flight",
    "survivor-bias",
    "request-cost",
}
"""All that a sweep of loads and stores with conflicts, several operation types and aborts has to show."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over loads and stores that has everything that a figure shows."""
    root = tmp_path_factory.mktemp("swept")
    fought = {"historical_ml_reads": 2, "conflict_io_ms": 50.0, "backoff_ms": 20.0, "per_attempt_io_ms": 300.0}
    for store in ("s3", "s3x"):
        for scale_ms in (400_000.0, 100_000.0, 50_000.0, 25_000.0):
            share = (1, 3) if (store, scale_ms) == ("s3", 25_000.0) else (1, 1)
            seeds = [
                outcomes(scale_ms, *share, latency_ms=factor * 2e7 / scale_ms, attempts=2, n_retries=1, **fought)
                + outcomes(scale_ms, *share, latency_ms=1e3, operation_type="validated_overwrite", **fought)
                for factor in (1.0, 1.5)
            ]
            write_experiment(root, settings(scale_ms, storage={"provider": store}), seeds)
    return root


@pytest.fixture(scope="module")
def report(swept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "of" / "it"
    assert main(["analyze", str(swept), "-o", str(folder)]) == 0
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def data_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_every_figure_there_is_has_an_image_of_each_kind_and_its_numbers_beside_it(report: Path) -> None:
    wanted = {f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    wanted |= {f"tables/{name}.{kind}" for name in FIGURES for kind in ("csv", "md")}
    assert set(contents(report)) == wanted | {"report.md", PAGE_NAME}


def test_images_are_1200_pixels_wide_and_drawings_are_xml(report: Path) -> None:
    for path in (report / "figures").glob("*.png"):
        assert struct.unpack(">I", path.read_bytes()[16:20]) == (1200,), path.name
    for path in (report / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg"), path.name


def test_tables_have_a_row_for_each_of_their_numbers(report: Path) -> None:
    for name in FIGURES:
        with (report / "tables" / f"{name}.csv").open(newline="") as stream:
            header, *rows = csv.reader(stream)
        assert len(header) == len(set(header))
        assert rows, name
        assert {len(row) for row in rows} == {len(header)}, name
        table = [line for line in (report / "tables" / f"{name}.md").read_text().splitlines() if line.startswith("|")]
        assert len(table) == len(rows) + 2, name
        assert len({line.count("|") for line in table}) == 1, name


def test_report_md_links_files_that_are_there(report: Path) -> None:
    text = (report / "report.md").read_text()
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert {name for name in contents(report) if "svg" not in name} - {"report.md", PAGE_NAME} == linked
    assert "8 experiments of 2 seeds, 40 simulated minutes each, measured from minute 5 to 35." in text


def test_the_same_data_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    for scale_ms, commits in ((100_000.0, 2), (25_000.0, 1)):
        made = outcomes(scale_ms, commits, 2) + outcomes(scale_ms, operation_type="validated_overwrite")
        write_experiment(tmp_path / "runs", settings(scale_ms), [made] * 2)
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "first")]) == 0
    command = [sys.executable, "-m", "endive.main", "analyze", str(tmp_path / "again"), "-o", str(tmp_path / "second")]
    surroundings = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run(command, check=True, capture_output=True, env=surroundings, timeout=300)
    first, second = contents(tmp_path / "first"), contents(tmp_path / "second")
    assert first.keys() == second.keys()
    assert len([name for name in first if name.endswith(("png", "svg"))]) >= 20
    assert [name for name in first if first[name] != second[name]] == []


def test_the_page_holds_all_and_needs_no_network(report: Path) -> None:
    text = (report / PAGE_NAME).read_text()
    outside = set(re.findall(r"(?:https?:)?//[a-z][\w.-]*", text)) - {"http://www.w3.org"}
    assert outside == set()
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*\s(?:src|href)=\"(?!data:)", text)


def test_the_page_has_configuration_and_provenance(report: Path, swept: Path) -> None:
    (sweep,) = data_of(report / PAGE_NAME)["sweeps"]
    assert "catalog.num_tables = 1" in sweep["settings"]
    assert not any(
        line.startswith(("storage.provider", "transaction.inter_arrival.scale")) for line in sweep["settings"]
    )
    assert sorted(sweep["hashes"]) == sorted(path.name.rsplit("-", 1)[1] for path in swept.iterdir())
    assert sweep["seedSets"] == ["1, 2"]
    told = dict(sweep["provenance"])
    assert told["Experiments"] == "8"
    assert told["Runs"] == "16"
    assert {figure["name"] for figure in sweep["figures"]} == FIGURES


def test_an_older_report_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_experiment(tmp_path / "runs", settings(), [outcomes()])
    out = tmp_path / "report"
    for label in ("first", "second"):
        (out / "figures").mkdir(parents=True, exist_ok=True)
        (out / "figures" / "in-flight.png").write_text(label)
        assert main(["analyze", str(tmp_path / "runs"), "-o", str(out)]) == 0
    assert (out / "figures" / "in-flight.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr()
    assert printed.out.count(f"report in {out / PAGE_NAME}\n") == 2
    assert "Every experiment has one seed" in printed.out


def test_figures_that_only_an_older_report_had_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for scale_ms in (100_000.0, 50_000.0):
        write_experiment(tmp_path / "runs", settings(scale_ms), [outcomes(scale_ms)] * 2)
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(out)]) == 0
    (out / "figures" / "mine.png").write_bytes(b"not of a report")
    for folder in (out, fresh):
        assert main(["analyze", str(tmp_path / "runs"), "-o", str(folder), "--where", f"{LOAD}=50000"]) == 0
    assert "figures/throughput.png" not in contents(fresh)
    assert contents(out).keys() - contents(fresh).keys() == {"figures/mine.png"}


def test_intervals_end_where_what_they_are_of_does(tmp_path: Path) -> None:
    """Student's t for seeds of which a third and all commit would reach from -3.6 to 4.9."""
    write_experiment(tmp_path, settings(), [outcomes(commits=1, of=3), outcomes()])
    (row,) = section_of(tmp_path).sweep.whole.to_dict("records")
    assert (row["success_rate_low"], row["success_rate_high"]) == (0.0, 1.0)
    assert row["throughput_per_s_low"] == 0.0
    assert row["throughput_per_s_high"] > row["throughput_per_s"]


def test_sweeps_of_several_names_have_sections_and_files_of_their_own(tmp_path: Path) -> None:
    for label in ("first", "second.one"):
        write_experiment(tmp_path / "runs", settings(label=label), [outcomes()] * 2)
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert {"first-commit-rate.png", "second.one-commit-rate.png"} <= names
    assert [each["name"] for each in data_of(tmp_path / "out" / PAGE_NAME)["sweeps"]] == ["first", "second.one"]


def test_conditions_choose_experiments_and_are_told(swept: Path, tmp_path: Path) -> None:
    arguments = ["analyze", str(swept), "-o", str(tmp_path), "--where", "storage.provider=s3x"]
    assert main([*arguments, "--where", "transaction.inter_arrival.scale=100000"]) == 0
    (sweep,) = data_of(tmp_path / PAGE_NAME)["sweeps"]
    assert len(sweep["hashes"]) == 1
    assert "Only where storage.provider = s3x." in sweep["description"]
    text = (tmp_path / "report.md").read_text()
    assert "Only experiments with storage.provider = s3x, transaction.inter_arrival.scale = 100000." in text


def test_grouping_makes_the_curves(tmp_path: Path) -> None:
    for store in ("s3", "s3x"):
        for tables in (1, 2):
            for scale_ms in (100_000.0, 50_000.0):
                changed = settings(scale_ms, storage={"provider": store}, catalog={"num_tables": tables})
                write_experiment(tmp_path, changed, [outcomes(scale_ms)])
    assert section_of(tmp_path).sweep.series.key == "storage.provider"  # type: ignore[union-attr]
    grouped = section_of(tmp_path, group_by="catalog.num_tables").sweep
    assert grouped.series is not None
    assert grouped.panels is not None
    assert (grouped.series.key, grouped.panels.key) == ("catalog.num_tables", "storage.provider")
    of_loads = section_of(tmp_path, group_by=LOAD).sweep
    assert of_loads.series is not None
    assert of_loads.x is not None
    assert (of_loads.series.key, of_loads.x.key) == (LOAD, "catalog.num_tables")


def test_an_experiment_without_any_commit_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_experiment(tmp_path / "runs", settings(), [outcomes(commits=0)] * 2)
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    assert "without a single commit" in capsys.readouterr().out
    (sweep,) = data_of(tmp_path / "out" / PAGE_NAME)["sweeps"]
    assert sweep["values"]["all"]["success_rate"][0] == [0]
    assert "commit_latency_p50_ms" not in sweep["metrics"]


def test_an_experiment_in_which_nothing_was_submitted_is_reported(tmp_path: Path) -> None:
    write_experiment(tmp_path / "runs", settings(), [[], []])
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / PAGE_NAME).exists()


def test_a_broken_summary_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_experiment(tmp_path / "runs", settings(), [outcomes()] * 3)
    (folder / "2" / "summary.parquet").write_bytes(b"not Parquet")
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if not line.endswith("figures")]
    assert len(told) == 1
    assert told[0].startswith(f"endive: {folder / '2' / 'summary.parquet'}: cannot be read")
    assert told[0].endswith(f"seed 2 of {folder.name} is left out")
    (sweep,) = data_of(tmp_path / "out" / PAGE_NAME)["sweeps"]
    assert sweep["seedSets"] == ["1, 3"]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command fails with, its input being wrong."""
    assert main(["analyze", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metric", "sucess_rate"], "--metric sucess_rate: is no metric; there is success_rate, "),
        (["--where", "storage.provider=azure"], 'matches no experiment; there is "s3", "s3x"'),
        (["--where", "storage.name=s3"], "no experiment has a setting storage.name"),
        (["--group-by", "catalog.num_tables"], "--group-by catalog.num_tables: is not swept here; swept: transaction."),
        (["--group-by", "nothing"], "--group-by nothing: is not swept here"),
    ],
)
def test_what_does_not_exist_is_one_line(
    swept: Path, tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused([str(swept), "-o", str(tmp_path / "out"), *options], capsys)
    assert not (tmp_path / "out").exists()


def test_grouping_by_all_that_was_swept_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for scale_ms in (100_000.0, 50_000.0):
        write_experiment(tmp_path, settings(scale_ms), [outcomes(scale_ms)])
    line = refused([str(tmp_path), "-o", str(tmp_path / "out"), "--group-by", LOAD], capsys)
    assert f"--group-by {LOAD}: is all that was swept" in line


def test_directories_without_results_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    out = str(tmp_path / "out")
    assert "holds no finished run" in refused([str(tmp_path / "empty"), "-o", out], capsys)
    assert "is not a directory" in refused([str(tmp_path / "nowhere"), "-o", out], capsys)
    assert not Path(out).exists()


def test_where_no_summary_can_be_read_there_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_experiment(tmp_path / "runs", settings(), [outcomes()])
    (folder / "1" / "summary.parquet").unlink()
    assert main(["analyze", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 2
    problem, end = capsys.readouterr().err.splitlines()
    assert "summary.parquet" in problem
    assert "no finished run has a summary that can be read" in end
    assert not (tmp_path / "out").exists()


def test_experiments_of_different_durations_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    write_experiment(runs, settings(), [outcomes()])
    write_experiment(runs, settings(simulation={"duration_ms": 3_600_000.0}), [outcomes()])
    line = refused([str(runs), "-o", str(tmp_path / "out")], capsys)
    assert "swept: mixes experiments of different simulation.duration_ms (2,400,000, 3,600,000)" in line
    assert "--where simulation.duration_ms=" in line
    arguments = [str(runs), "-o", str(tmp_path / "out"), "--where", "simulation.duration_ms=2400000"]
    assert main(["analyze", *arguments]) == 0


def test_results_of_different_models_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_experiment(tmp_path / "runs", settings(), [outcomes()])
    other = write_experiment(tmp_path / "runs", settings(50_000.0), [outcomes(50_000.0)])
    (other / "version.txt").write_text("unknown\nmodel 999\n")
    line = refused([str(tmp_path / "runs"), "-o", str(tmp_path / "out")], capsys)
    assert "mixes results of model versions" in line
    assert "999" in line


def test_a_report_does_not_go_where_a_file_is(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file; name a directory" in refused([str(swept), "-o", str(tmp_path / "file")], capsys)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_condition_without_a_value_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["analyze", str(tmp_path), "-o", str(tmp_path), "--where", "storage.provider"])
    assert caught.value.code == 2
    assert "'storage.provider' is not KEY=VALUE" in capsys.readouterr().err
