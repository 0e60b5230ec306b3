"""`endive analyze`: a directory of results, turned into figures, tables, findings and one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from endive.commands import DONE, FAILED

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
    from endive.report.loading import load_materials
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
    problems: list[str] = []
    try:
        materials = load_materials(options.directory, problems.append)
    finally:
        for problem in problems:
            print(f"endive: {problem}", file=sys.stderr)
    sections = make_sections(materials, options.where, options.group_by, metrics)
    check_folder(options.output)
    write_figures(options.output, sections, _tell)
    write_findings(options.output, sections, options.where)
    write_page(options.output / PAGE_NAME, sections, options.where)
    for section in sections:
        for finding in section.findings:
            print(f"{section.sweep.name}: {'warning: ' if finding.is_warning else ''}{finding.text}")
    print(f"report in {options.output / PAGE_NAME}")
    return FAILED if problems else DONE


def _tell(done: int, total: int) -> None:
    if done == total or done % 20 == 0:
        print(f"{done} of {total} figures", file=sys.stderr)
