"""Saturation points, shares of variance and exponents in a report, on frames whose answers are known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from endive.pipeline.schemas import ALL, METRICS
from endive.report.effects import effect_figures
from endive.report.figure import render
from endive.report.saturation import saturation_figures
from endive.report.sweep import Sweep, make_sweep
from endive.report.tables import to_markdown

LOAD = "transaction.inter_arrival.scale"
TABLES = "catalog.num_tables"
SCALES = (1000.0, 500.0, 250.0, 125.0)


def sweep_of(runs: dict[tuple[float, float], dict[int, dict[str, float]]]) -> Sweep:
    """A sweep over the mean inter-arrival time and the number of tables, from metrics by (scale, tables) and seed."""
    hashes = {point: f"{place:012x}" for place, point in enumerate(runs)}
    settings = pd.DataFrame(
        [[1.0, *point] for point in runs],
        index=pd.Index(list(hashes.values()), name="exp_hash"),
        columns=["simulation.duration_ms", LOAD, TABLES],
        dtype=object,
    )
    nothing: dict[str, Any] = dict.fromkeys(METRICS, float("nan"))
    rows = [
        {"exp_name": "x", "exp_hash": hashes[point], "seed": seed, "operation_type": ALL} | nothing | metrics
        for point, of_seed in runs.items()
        for seed, metrics in of_seed.items()
    ]
    frame = pd.DataFrame(rows)
    seeds = frame.groupby("exp_hash", as_index=False).agg(seeds=("seed", "nunique"))
    return make_sweep("x", settings, seeds.assign(exp_name="x", operation_type=ALL), frame)


def test_shares_of_variance_are_those_that_the_data_were_made_of() -> None:
    """The first setting adds 3 or -3, the second 1 or -1, the seed 1 or -1: of the squares 9, 1 and 1 of 11."""
    runs = {
        (scale, tables): {
            seed: {"success_rate": 0.5, "throughput_per_s": 10.0 + first + second + noise}
            for seed, noise in enumerate((1.0, -1.0, -1.0, 1.0))
        }
        for scale, first in ((1000.0, -3.0), (500.0, 3.0))
        for tables, second in ((1.0, -1.0), (5.0, 1.0))
    }
    (figure,) = effect_figures(sweep_of(runs))
    own = figure.numbers[figure.numbers["metric"] == "throughput_per_s"].set_index(["factors", "term"])
    assert own.loc[(LOAD, LOAD), "eta_squared"] == pytest.approx(9 / 11)
    assert own.loc[(TABLES, TABLES), "eta_squared"] == pytest.approx(1 / 11)
    both = f"{LOAD} × {TABLES}"
    assert own.loc[(both, both), "eta_squared"] == pytest.approx(0.0)
    assert own.loc[(both, "seed"), "eta_squared"] == pytest.approx(1 / 11)
    png, _ = render(figure)
    assert png.startswith(b"\x89PNG")


def test_exponents_are_told_below_saturation_only() -> None:
    """Latency is the square root of the load where all commit, and a thousand times that where few do."""
    runs = {
        (scale, 1.0): {
            seed: {
                "success_rate": success,
                "offered_per_s": 1000.0 / scale,
                "throughput_per_s": success * 1000.0 / scale,
                "commit_latency_p50_ms": factor * (1000.0 / scale) ** 0.5,
            }
            for seed in (1, 2)
        }
        for scale, success, factor in zip(SCALES, (1.0, 1.0, 1.0, 0.1), (1.0, 1.0, 1.0, 1e3), strict=True)
    } | {(100.0, 1.0): {1: {"success_rate": 0.05, "offered_per_s": 10.0, "throughput_per_s": 0.5}}}
    figures = {figure.name: figure for figure in effect_figures(sweep_of(runs))}
    numbers = figures["exponents"].numbers.set_index("metric")
    assert numbers.loc["commit_latency_p50_ms", "exponent"] == pytest.approx(0.5)
    assert numbers.loc["throughput_per_s", "exponent"] == pytest.approx(1.0)
    assert numbers.loc["commit_latency_p50_ms", "runs"] == 6
    assert "retries_per_commit" not in numbers.index
    assert "commit latency, P50 | 0.5 (0.5 to 0.5)" in to_markdown(figures["exponents"].numbers, sweep_of(runs).axes)


def saturating(success: tuple[float, ...]) -> Sweep:
    return sweep_of(
        {
            (scale, tables): {
                seed: {"success_rate": each, "offered_per_s": 1000.0 / scale, "throughput_per_s": each * 1000.0 / scale}
                for seed in (1, 2)
            }
            for tables in (1.0, 5.0)
            for scale, each in zip(SCALES, success, strict=True)
        }
    )


def test_saturation_points_are_interpolated_over_the_logarithm_of_the_load() -> None:
    sweep = saturating((1.0, 1.0, 0.9, 0.3))
    (figure,) = saturation_figures(sweep)
    points = figure.numbers[figure.numbers[TABLES] == 5.0].set_index("point")
    assert points.loc["success 0.95", "load"] == pytest.approx(2.0 * 2.0**0.5)
    assert points.loc["success 0.5", "load"] == pytest.approx(4.0 * 2.0 ** (2 / 3))
    assert points.loc["knee", "load"] == pytest.approx(3.6)
    assert "95 % commit up to here" in to_markdown(figure.numbers, sweep.axes)
    assert render(figure)[0].startswith(b"\x89PNG")


def test_points_outside_of_what_was_swept_are_said_to_be() -> None:
    (figure,) = saturation_figures(saturating((1.0, 1.0, 1.0, 1.0)))
    assert set(figure.numbers["censored"]) == {"above"}
    assert "outside of what was swept" in figure.caption
    assert render(figure)[0].startswith(b"\x89PNG")


def test_without_a_load_there_are_no_saturation_points() -> None:
    runs = {(1000.0, tables): {1: {"success_rate": 1.0}} for tables in (1.0, 5.0)}
    assert list(saturation_figures(sweep_of(runs))) == []


def test_one_seed_explains_no_variance() -> None:
    runs = {(scale, 1.0): {1: {"success_rate": scale / 1000.0}} for scale in SCALES}
    assert list(effect_figures(sweep_of(runs))) == []
