"""Draws saturation.png: at what rate one table saturates, on five stores. Run it from the repository's root."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np

from endive.config import build_simulation_config, parse_settings
from endive.simulation import Simulation
from endive.summary import summarize

mpl.use("Agg")
import matplotlib.pyplot as plt

STORES: Final = {"s3x": "S3 Express", "s3": "S3 Standard", "azurex": "Azure Premium", "azure": "Azure", "gcp": "GCP"}
LOADS_PER_S: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0)
TICKS: Final = (0.5, 1, 2, 4, 8, 16, 32, 64)
SEEDS: Final = (1, 2, 3)
COLORS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
MARKERS: Final = ("o", "s", "^", "D", "v")

Point = tuple[str, float, int]


def simulate(point: Point) -> tuple[float, float]:
    """Return throughput per second and success rate of five minutes of appends to one table."""
    store, load_per_s, seed = point
    settings = parse_settings(
        {
            "simulation": {"duration_ms": 300_000, "seed": seed},
            "storage": {"provider": store, "profile": "2025-12"},
            "transaction": {
                "runtime": {"median": 10_000, "sigma": 1.0, "min": 1_000},
                "inter_arrival": {"scale": 1000.0 / load_per_s},
                "operation_types": {"fast_append": 1.0},
            },
        }
    )
    summary = summarize(Simulation(build_simulation_config(settings)).run())["operations"]["all"]
    return summary["throughput_per_s"], summary["success_rate"]


def main() -> None:
    """Simulate every point, and draw throughput and success against the offered load."""
    points: list[Point] = list(product(STORES, LOADS_PER_S, SEEDS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(points, pool.map(simulate, points), strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), dpi=100, layout="constrained")
    left.plot(LOADS_PER_S, LOADS_PER_S, color="0.7", linestyle=":", label="all of it")
    for (store, title), color, marker in zip(STORES.items(), COLORS, MARKERS, strict=True):
        runs = np.array([[found[store, load, seed] for load in LOADS_PER_S] for seed in SEEDS])
        for axes, values in ((left, runs[..., 0]), (right, 100.0 * runs[..., 1])):
            axes.plot(LOADS_PER_S, values.mean(axis=0), color=color, marker=marker, markersize=5, label=title)
            axes.fill_between(LOADS_PER_S, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, linewidth=0)
    left.set(ylabel="commits per second", title="Throughput", yscale="log", ylim=(0.4, 70))
    right.set(ylabel="committed, % of finished", title="Success (10 retries)", ylim=(0, 103))
    for axes in (left, right):
        axes.set(xscale="log", xlim=(0.45, 70), xticks=TICKS, xticklabels=[f"{tick:g}" for tick in TICKS])
        axes.minorticks_off()
        axes.set_xlabel("appends submitted per second, one table")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
    left.set(yticks=TICKS, yticklabels=[f"{tick:g}" for tick in TICKS])
    left.minorticks_off()
    left.legend(frameon=False, fontsize=9)
    figure.savefig(Path(__file__).with_name("saturation.png"))


if __name__ == "__main__":
    main()
