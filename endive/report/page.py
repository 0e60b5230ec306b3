"""The page of a report: one HTML file that holds its data, charts and tables, and needs nothing else."""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

import pandas as pd

from endive import __version__
from endive.config_errors import to_toml
from endive.files import whole_file
from endive.pipeline.schemas import ALL, COMPONENTS
from endive.report.axes import Axis
from endive.report.findings import saturation_frame
from endive.report.labels import COMPONENT_TITLES, METRIC_OF, Value, number, operation_label
from endive.report.material import Material, bounds_by_metric
from endive.report.report import Section, describe
from endive.report.sweep import Sweep, reference_level

_SCRIPTS: Final = ("format.js", "data.js", "charts.js", "explore.js", "page.js")
_DIGITS: Final = 4
_TIME_BINS: Final = 40
_ENDS: Final = ("", "_low", "_high")
_POINTS: Final = {
    "success 0.95": "95 % commit up to (1/s)",
    "success 0.5": "half commit up to (1/s)",
    "knee": "knee (1/s)",
}


def write_page(path: Path, sections: Sequence[Section], where: Sequence[tuple[str, str]]) -> None:
    """Write the page of a report."""
    title = "Endive: " + ", ".join(section.sweep.name for section in sections)
    content = page_html(title, page_data(sections, where))
    with whole_file(path) as stream:
        stream.write(content.encode())


def page_html(title: str, data: Any) -> str:
    """Return the page that shows this data."""
    folder = resources.files("endive") / "report" / "web"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Template(text("page.html")).substitute(
        title=html.escape(title),
        style=text("page.css"),
        data=embedded.replace("<", "\\u003c"),
        script="\n".join(text(name) for name in _SCRIPTS),
    )


def page_data(sections: Sequence[Section], where: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return all that the page knows, ready for JSON."""
    return {
        "metrics": [
            {
                "name": metric.name,
                "label": metric.label,
                "unit": metric.unit,
                "factor": metric.factor,
                "isLog": metric.is_log,
            }
            for metric in METRIC_OF.values()
        ],
        "components": [
            {"title": COMPONENT_TITLES[name], "metric": f"{name.removesuffix('_ms')}_mean_ms"} for name in COMPONENTS
        ],
        "sweeps": [_sweep_data(section, where) for section in sections],
    }


def _sweep_data(section: Section, where: Sequence[tuple[str, str]]) -> dict[str, Any]:
    sweep, material = section.sweep, section.material
    hashes = sweep.whole["exp_hash"].tolist()
    operations = [ALL, *(sweep.operations if len(sweep.operations) > 1 else ())]
    frames = {name: _by_hash(sweep.summary, name, hashes) for name in operations}
    metrics = [name for name in METRIC_OF if sweep.whole[name].notna().any()]
    places = {id(axis): place for place, axis in enumerate(sweep.axes)}
    seeds = _seeds(sweep, hashes)
    return {
        "name": sweep.name,
        "description": describe(sweep) + "".join(f" Only where {key} = {value}." for key, value in where),
        "axes": [_axis_data(axis) for axis in sweep.axes],
        "x": None if sweep.x is None else places[id(sweep.x)],
        "series": None if sweep.series is None else places[id(sweep.series)],
        "operations": operations,
        "operationTitles": [operation_label(name) for name in operations],
        "hasIntervals": sweep.most_seeds > 1,
        "metrics": metrics,
        "hashes": hashes,
        "levels": [[axis.levels.index(axis.values[each]) for each in hashes] for axis in sweep.axes],
        "values": {
            name: {metric: _ends(frame, metric) for metric in metrics if frame[metric].notna().any()}
            for name, frame in frames.items()
        },
        "seedCounts": {name: [_whole(value) for value in frame["seeds"]] for name, frame in frames.items()},
        "seedSets": sorted(set(seeds)),
        "seedSet": [sorted(set(seeds)).index(each) for each in seeds],
        "bounds": {
            metric: [_round(value) for value in values]
            for metric, values in bounds_by_metric(hashes, material.bounds).items()
        },
        "time": _time_data(hashes, material),
        "saturation": _saturation_data(sweep),
        "findings": [{"text": finding.text, "isWarning": finding.is_warning} for finding in section.findings],
        "settings": _common_settings(sweep),
        "figures": [{"name": section.prefix + figure.name, "title": figure.title} for figure in section.figures],
        "provenance": _provenance(sweep, material, hashes),
    }


def _by_hash(summary: pd.DataFrame, operation: str, hashes: Sequence[str]) -> pd.DataFrame:
    own = summary[summary["operation_type"] == operation]
    return own.set_index("exp_hash").reindex(pd.Index(hashes))


def _ends(frame: pd.DataFrame, metric: str) -> list[list[float | None]]:
    """Return a metric's means, and the ends of its intervals where there are any."""
    columns = [[_round(value) for value in frame[metric + end]] for end in _ENDS]
    return columns if any(value is not None for value in columns[1]) else columns[:1]


def _round(value: Any) -> float | int | None:
    """Return a number with few digits, so that the page stays small; None where there is none."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _whole(value: Any) -> int | None:
    return int(value) if math.isfinite(value) else None


def _axis_data(axis: Axis) -> dict[str, Any]:
    texts = [axis.text(level) for level in axis.levels]
    return {
        "label": axis.label,
        "keys": ", ".join((axis.key, *axis.moves_with)),
        "range": ", ".join(texts),
        "values": [level if isinstance(level, float) else None for level in axis.levels],
        "texts": texts,
        "phrases": [axis.phrase(level) for level in axis.levels],
        "reference": axis.levels.index(reference_level(axis)),
        "isNumber": axis.is_number,
        "isLog": axis.is_log,
    }


def _seeds(sweep: Sweep, hashes: Sequence[str]) -> list[str]:
    """Return the seeds of each experiment, as a text."""
    runs = sweep.runs[sweep.runs["operation_type"] == ALL]
    of = runs.groupby("exp_hash")["seed"].apply(lambda seeds: ", ".join(map(str, sorted(seeds))))
    return [str(of.get(each, "")) for each in hashes]


def _time_data(hashes: Sequence[str], material: Material) -> dict[str, Any] | None:
    """Return the mean rates over time of each experiment; None where none has any."""
    series = [material.over_time.get(each) for each in hashes]
    coarse = [None if each is None else each.coarser(_TIME_BINS) for each in series]
    first = next((each for each in coarse if each is not None), None)
    if first is None:
        return None
    return {
        "binS": first.bin_s,
        "endMin": first.bin_s * first.committed.shape[1] / 60.0,
        "windowMin": [edge / 60.0 for edge in first.window_s],
        "committed": [None if each is None else _three(each.committed.mean(axis=0) / each.bin_s) for each in coarse],
        "inFlight": [None if each is None else _three(each.in_flight.mean(axis=0)) for each in coarse],
    }


def _three(values: Any) -> list[float | int]:
    numbers = [float(f"{value:.3g}") for value in values]
    return [int(value) if value.is_integer() else value for value in numbers]


def _saturation_data(sweep: Sweep) -> dict[str, Any] | None:
    """Return the saturation points as a table: of each cell its text, and what it sorts by."""
    table = saturation_frame(sweep)
    if table is None:
        return None
    series = sweep.series
    levels: tuple[Value, ...] = (None,) if series is None else series.levels
    rows = []
    for level in levels:
        own = table if series is None else table[table[series.key] == level]
        points = {row["point"]: row for row in own.to_dict("records")}
        row: list[tuple[str, Any]] = [] if series is None else [_level_cell(series, level)]
        if points:
            rows.append([*row, *(_saturation_cell(points[point]) for point in _POINTS)])
    fixed = sweep.fixed(sweep.x, series)
    held = f" Held at: {sweep.phrase(fixed)}." if fixed else ""
    return {
        "columns": [
            *([] if series is None else [{"title": series.label, "isWord": not series.is_number}]),
            *({"title": title} for title in _POINTS.values()),
        ],
        "rows": rows,
        "note": "Loads with 95 % intervals over seeds. The knee is where the asymptotes of throughput meet: the load "
        f"from which more submissions hardly give more commits.{held}",
    }


def _level_cell(axis: Axis, level: Value) -> tuple[str, Value]:
    text = axis.text(level)
    return text, level if axis.is_number else text


def _saturation_cell(point: Any) -> tuple[str, float | None]:
    load, low, high = (_round(point[name]) for name in ("load", "low", "high"))
    if load is None:
        edge = {"above": ("above ", point["swept_high"]), "below": ("below ", point["swept_low"])}.get(
            point["censored"]
        )
        return (f"{edge[0]}{number(edge[1])}", float(edge[1])) if edge else ("–", None)
    return (number(load) + (f" ({number(low)} to {number(high)})" if low is not None else ""), load)


def _common_settings(sweep: Sweep) -> list[str]:
    """Return the settings that all experiments share, as lines of TOML."""
    lines = []
    for key in sweep.settings.columns:
        values = sweep.settings[key].tolist()
        if values[0] is not None and all(value == values[0] for value in values):
            lines.append(f"{key} = {_toml(values[0])}")
    return lines


def _toml(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return {"on": "true", "off": "false"}.get(str(value)) or to_toml(value)


def _digest(sweep: Sweep) -> str:
    """Return 12 hexadecimal digits that stand for the runs that this is about."""
    names = ["exp_name", "exp_hash", "seed"]
    keys = sweep.runs[names].drop_duplicates().sort_values(names)
    return hashlib.sha256(keys.to_csv(index=False).encode()).hexdigest()[:12]


def _provenance(sweep: Sweep, material: Material, hashes: Sequence[str]) -> list[tuple[str, str]]:
    made = [material.provenance[each] for each in hashes if each in material.provenance]

    def told(name: str) -> str:
        return ", ".join(sorted({value for each in made if (value := getattr(each, name))})) or "not known"

    return [
        ("Experiments", f"{len(hashes):,}"),
        ("Runs", f"{int(sweep.whole['seeds'].sum()):,}"),
        ("Endive of the results", told("version")),
        ("Model version", told("model_version")),
        ("Git commit", told("git")),
        ("Engine", told("engine")),
        ("Endive of this report", __version__),
        ("Digest of the runs", _digest(sweep)),
    ]
