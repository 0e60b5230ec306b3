"""A report in a directory: figures, their numbers, findings in words, and one page with all of it."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from endive.config_errors import ConfigError
from endive.files import UnwritableOutputError, whole_file
from endive.report.axes import Axis, select, settings_frame
from endive.report.components import component_figures
from endive.report.costs import cost_figures
from endive.report.curves import curve_figures
from endive.report.effects import effect_figures
from endive.report.figure import Figure, render
from endive.report.findings import Finding, find
from endive.report.heatmaps import HEATMAP_METRICS, heatmap_figures
from endive.report.labels import METRIC_OF
from endive.report.material import Material
from endive.report.over_time import time_figures
from endive.report.saturation import saturation_figures
from endive.report.survival import survival_figures
from endive.report.sweep import Sweep, make_sweep
from endive.report.tables import to_csv, to_markdown

PAGE_NAME: Final = "index.html"
_KINDS: Final = {"figures": ("png", "svg"), "tables": ("csv", "md")}
_FEW: Final = 12
"""So many figures are drawn here; more, by processes, which take seconds to start."""


@dataclass(frozen=True, eq=False)
class Section:
    """What a report says of one sweep. `prefix` begins the names of its files."""

    sweep: Sweep
    material: Material
    prefix: str
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]


def make_sections(
    materials: Sequence[Material],
    where: Sequence[tuple[str, str]] = (),
    group_by: str | None = None,
    metrics: Sequence[str] = HEATMAP_METRICS,
) -> list[Section]:
    """Return a section for each sweep of the experiments selected; ConfigError tells what cannot be asked."""
    check_metrics(metrics)
    of = {material.name: material for material in materials}
    settings = select({name: settings_frame(material.configurations) for name, material in of.items()}, where)
    sweeps = [make_sweep(name, frame, of[name].summary, of[name].runs, group_by) for name, frame in settings.items()]
    for sweep in sweeps:
        _check_models(sweep, of[sweep.name])
    if group_by is not None:
        sweeps = _those_with(sweeps, group_by)
    return [_section(sweep, of[sweep.name], metrics, is_only=len(sweeps) == 1) for sweep in sweeps]


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise ConfigError for the first metric that does not exist."""
    for metric in metrics:
        if metric not in METRIC_OF:
            raise ConfigError([f"--metric {metric}: is no metric; there is {', '.join(METRIC_OF)}"])


def _check_models(sweep: Sweep, material: Material) -> None:
    made = [material.provenance[key] for key in sweep.settings.index if key in material.provenance]
    versions = sorted({each.model_version for each in made})
    if len(versions) > 1:
        there = " and ".join(version or "none" for version in versions)
        raise ConfigError([f"{sweep.name}: mixes results of model versions {there}, which cannot be compared"])


def _those_with(sweeps: Sequence[Sweep], group_by: str) -> list[Sweep]:
    """Return the sweeps that vary a key and something to run curves along; raise ConfigError if none does."""
    found = [sweep for sweep in sweeps if any(axis.is_of(group_by) for axis in sweep.axes)]
    if not found:
        there = ", ".join(dict.fromkeys(axis.key for sweep in sweeps for axis in sweep.axes)) or "nothing"
        raise ConfigError([f"--group-by {group_by}: is not swept here; swept: {there}"])
    wide = [sweep for sweep in found if sweep.x is not None]
    if not wide:
        raise ConfigError(
            [f"--group-by {group_by}: is all that was swept, which leaves nothing for curves to run along"]
        )
    return wide


def _section(sweep: Sweep, material: Material, metrics: Sequence[str], *, is_only: bool) -> Section:
    figures = [
        *curve_figures(sweep, material),
        *saturation_figures(sweep),
        *effect_figures(sweep),
        *component_figures(sweep),
        *heatmap_figures(sweep, metrics),
        *time_figures(sweep, material),
        *survival_figures(sweep, material),
        *cost_figures(sweep),
    ]
    prefix = "" if is_only else f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', sweep.name)}-"
    return Section(sweep, material, prefix, tuple(figures), tuple(find(sweep, material)))


def write_figures(folder: Path, sections: Sequence[Section], on_done: Callable[[int, int], None]) -> None:
    """Draw every figure, and write it with its numbers. `on_done` is told how many are done, of how many."""
    entries = [(section, figure) for section in sections for figure in section.figures]
    for done, ((section, figure), images) in enumerate(zip(entries, _rendered(entries), strict=True), start=1):
        name = section.prefix + figure.name
        for image, kind in zip(images, _KINDS["figures"], strict=True):
            _write(folder / "figures" / f"{name}.{kind}", image)
        _write(folder / "tables" / f"{name}.csv", to_csv(figure.numbers).encode())
        _write(folder / "tables" / f"{name}.md", _table_page(figure, section.sweep.axes).encode())
        on_done(done, len(entries))


def _rendered(entries: Sequence[tuple[Section, Figure]]) -> Iterator[tuple[bytes, bytes]]:
    figures = [figure for _, figure in entries]
    workers = min(len(figures), os.cpu_count() or 1)
    if len(figures) <= _FEW or workers < 2:
        yield from map(render, figures)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(render, figures)


def _table_page(figure: Figure, axes: Sequence[Axis]) -> str:
    return f"# {figure.title}\n\n{figure.caption}\n\n{to_markdown(figure.numbers, axes)}"


def write_findings(folder: Path, sections: Sequence[Section], where: Sequence[tuple[str, str]]) -> None:
    """Write report.md: what was swept, what was found, and every figure with its numbers.

    Figures and tables that an earlier report.md named, and this one does not, are removed.
    """
    lines = ["# Report", ""]
    if where:
        lines += ["Only experiments with " + ", ".join(f"{key} = {value}" for key, value in where) + ".", ""]
    for section in sections:
        lines += [f"## {section.sweep.name}", "", describe(section.sweep), ""]
        for title, is_warning in (("Findings", False), ("Warnings", True)):
            said = [f"- {finding.text}" for finding in section.findings if finding.is_warning is is_warning]
            lines += [f"### {title}", "", *said, ""] if said else []
        for figure in section.figures:
            name = section.prefix + figure.name
            lines += [f"### {figure.title}", "", f"![{figure.title}](figures/{name}.png)", "", f"{figure.caption} "]
            lines += [f"Numbers: [Markdown](tables/{name}.md), [CSV](tables/{name}.csv).", ""]
    path, text = folder / "report.md", "\n".join(lines)
    earlier = _figures_in(path.read_text(encoding="utf-8")) if path.is_file() else set()
    _write(path, text.encode())
    for name in earlier - _figures_in(text):
        for place, kinds in _KINDS.items():
            for kind in kinds:
                (folder / place / f"{name}.{kind}").unlink(missing_ok=True)


def _figures_in(text: str) -> set[str]:
    """Return the names of the figures that a report.md shows."""
    return set(re.findall(r"\(figures/([A-Za-z0-9_.-]+)\.png\)", text))


def describe(sweep: Sweep) -> str:
    """Return what was swept, in a sentence or two."""
    experiments = len(sweep.whole)
    start_min, end_min = (edge / 60_000.0 for edge in sweep.window_ms)
    minutes = float(sweep.whole["duration_ms"].iloc[0]) / 60_000.0
    swept = "; ".join(f"{axis.label}: {_levels(axis)}" for axis in sweep.axes)
    return (
        f"{experiments:,} experiment{'s' if experiments != 1 else ''} of {sweep.seeds_phrase}, "
        f"{minutes:.4g} simulated minutes each, measured from minute {start_min:.4g} to {end_min:.4g}. "
        + (f"Swept: {swept}." if swept else "Nothing varies.")
    )


def _levels(axis: Axis) -> str:
    texts = [axis.text(level) for level in axis.levels]
    return ", ".join(texts) if len(texts) <= _FEW else f"{texts[0]} to {texts[-1]} ({len(texts)} levels)"


def check_folder(folder: Path) -> None:
    """Raise UnwritableOutputError where a report cannot go."""
    if folder.exists() and not folder.is_dir():
        raise UnwritableOutputError(f"{folder}: is a file; name a directory for the report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableOutputError(f"{folder}: cannot be written: {error.strerror}") from error


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as stream:
        stream.write(content)
