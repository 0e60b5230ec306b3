"""`endive analyze`: a directory of results, turned into figures, tables, findings and one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from endive.commands import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from endive.pipeline.experiments import Experiment
    from endive.pipeline.run_summary import SummaryRow
    from endive.report.material import Material, Provenance

SUMMARY: Final = "turn the results of sweeps into figures, tables, findings and one HTML page"
EPILOG: Final = """\
examples:
  endive analyze experiments -o report
  endive analyze experiments -o report --where experiment.label=exp4c --where storage.provider=s3
  endive analyze experiments -o report --group-by catalog.num_tables --metric retries_per_commit

REPORT gets index.html (all of it, for any browser, offline), report.md, figures/ and tables/, in place of those of an
earlier report.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="where sweeps went")
    parser.add_argument("-o", "--output", type=Path, metavar="REPORT", required=True, help="directory of the report")
    parser.add_argument(
        "--where",
        type=_condition,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only experiments with this setting (again: and this one)",
    )
    parser.add_argument("--group-by", metavar="KEY", help="the swept setting whose values are the curves")
    parser.add_argument(
        "--metric",
        action="append",
        metavar="METRIC",
        help="what heatmaps show (again: this too; default: success, throughput, P99 of commit latency)",
    )


def _condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def handle(options: argparse.Namespace) -> int:
    from endive.report.heatmaps import HEATMAP_METRICS
    from endive.report.page import write_page
    from endive.report.report import (
        PAGE_NAME,
        check_folder,
        check_metrics,
        make_sections,
        write_figures,
        write_findings,
    )

    metrics = tuple(options.metric or HEATMAP_METRICS)
    check_metrics(metrics)
    materials = load_materials(options.directory)
    sections = make_sections(materials, options.where, options.group_by, metrics)
    check_folder(options.output)
    write_figures(options.output, sections, _tell)
    write_findings(options.output, sections, options.where)
    write_page(options.output / PAGE_NAME, sections, options.where)
    for section in sections:
        for finding in section.findings:
            print(f"{section.sweep.name}: {'warning: ' if finding.is_warning else ''}{finding.text}")
    print(f"report in {options.output / PAGE_NAME}")
    return DONE


def _tell(done: int, total: int) -> None:
    if done == total or done % 20 == 0:
        print(f"{done} of {total} figures", file=sys.stderr)


def load_materials(root: Path) -> list[Material]:
    """Return all that a report of a directory needs, by name of experiments; ConfigError if no run is finished."""
    from itertools import groupby
    from operator import attrgetter

    from endive.pipeline.experiments import find_experiments

    by_name = groupby(find_experiments(root), key=attrgetter("name"))
    return [_material(name, list(experiments)) for name, experiments in by_name]


def _material(name: str, experiments: Sequence[Experiment]) -> Material:
    """Read the summaries of every run once."""
    import os
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow as pa

    from endive.pipeline.experiments import configurations, log_problem, read_summaries
    from endive.pipeline.metrics import run_metrics, summarize_experiments
    from endive.pipeline.run_summary import from_table
    from endive.report.material import Material, time_series

    def load(experiment: Experiment) -> tuple[pa.Table, Sequence[SummaryRow], list[str]]:
        problems: list[str] = []
        table = read_summaries(experiment, problems.append)
        return run_metrics(table), from_table(table.select(_FOR_SERIES)), problems

    tables, over_time = [], {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for experiment, (metrics, rows, problems) in zip(experiments, pool.map(load, experiments), strict=True):
            tables.append(metrics)
            if rows:
                over_time[experiment.hash] = time_series(rows)
            for problem in problems:
                log_problem(problem)
    runs = pa.concat_tables(tables)
    by_hash = {experiment.hash: experiment for experiment in experiments}

    def load_rows(hashes: Sequence[str]) -> Sequence[SummaryRow]:
        return [row for each in hashes for row in from_table(read_summaries(by_hash[each]))]

    return Material(
        name=name,
        configurations=configurations(experiments).to_pandas(),
        runs=runs.to_pandas(),
        summary=summarize_experiments(runs).to_pandas(),
        over_time=over_time,
        run_rows=load_rows,
        bounds_per_s=_bounds(experiments),
        provenance={experiment.hash: _provenance(experiment) for experiment in experiments},
    )


_FOR_SERIES: Final = [
    "exp_name",
    "exp_hash",
    "seed",
    "operation_type",
    "duration_ms",
    "window_start_ms",
    "window_end_ms",
    "series_submitted",
    "series_committed",
    "series_aborted",
]


def _bounds(experiments: Sequence[Experiment]) -> Mapping[str, float]:
    from endive.analysis.frames import AnalysisError
    from endive.analysis.model_bounds import commit_rate_bound_per_s
    from endive.config import build_simulation_config

    found = {}
    for experiment in experiments:
        try:
            found[experiment.hash] = commit_rate_bound_per_s(build_simulation_config(experiment.settings))
        except AnalysisError:
            continue
    return found


def _provenance(experiment: Experiment) -> Provenance:
    """Return what version.txt and the results of the first seed say; what cannot be read is left empty."""
    import contextlib

    from endive.report.material import Provenance
    from endive.results import read_metadata

    lines: list[str] = []
    engine = ""
    with contextlib.suppress(OSError, ValueError):
        lines = (experiment.folder / "version.txt").read_text(encoding="utf-8").splitlines()
    with contextlib.suppress(OSError, ValueError, KeyError):
        engine = str(read_metadata(experiment.results(experiment.seeds[0]))["engine"])
    told = dict(line.split(" ", 1) for line in lines if " " in line)
    return Provenance(
        version=told.get("endive", ""),
        model_version=told.get("model", ""),
        git=lines[0] if lines and " " not in lines[0] else "",
        engine=engine,
    )
