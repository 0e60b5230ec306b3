"""Without contention, what a run measures has the means and spreads that its distributions promise."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from endive.config import build_simulation_config, parse_settings
from endive.simulation import Simulation
from tests.test_storage import DECEMBER, JUNE

KIB, MIB = 1024, 1024 * 1024
PROFILES = {"2025-06": JUNE, "2025-12": {name: (*figures, *JUNE[name][3:]) for name, figures in DECEMBER.items()}}


def floored_moments(median: float, sigma: float, floor: float) -> tuple[float, float]:
    """Mean and variance of max(floor, X) for a lognormal X, by integrating its tail."""
    tail = stats.lognorm(s=sigma, scale=median).sf
    mean = floor + integrate.quad(tail, floor, np.inf, limit=500)[0]
    square = floor**2 + integrate.quad(lambda x: 2 * x * tail(x), floor, np.inf, limit=500)[0]
    return mean, square - mean**2


def one_client(provider: str, profile: str, catalog_type: str, duration_ms: float) -> pd.DataFrame:
    """Run one writer that never meets another, with fast appends."""
    config = {
        "simulation": {"duration_ms": duration_ms, "seed": 11},
        "storage": {"provider": provider, "profile": profile},
        "catalog": {"type": catalog_type},
        "transaction": {
            "clients": 1,
            "think_time": {"distribution": "fixed", "value": 5},
            "runtime": {"distribution": "fixed", "value": 1},
            "operation_types": {"fast_append": 1},
        },
    }
    return Simulation(build_simulation_config(parse_settings(config))).run().to_dataframe()


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("provider", sorted(JUNE))
def test_components_of_an_uncontended_commit(provider: str, profile: str) -> None:
    floor, read, write, cas, _, append, _ = PROFILES[profile][provider]

    def put(size_bytes: int) -> tuple[float, float]:
        return floored_moments(write[0] + write[1] * size_bytes / MIB, write[2], floor)

    get = floored_moments(*read, floor)
    parts = {"catalog_read_ms": [get], "per_attempt_io_ms": [get, put(100 * KIB), put(10 * KIB)]}
    commits = {"cas": [floored_moments(*cas, floor)]}
    if append is not None:
        commits["append"] = [floored_moments(*append, floor), get]
    for catalog_type, commit in commits.items():
        cycle_ms = 6.0 + sum(mean for moments in (*parts.values(), commit) for mean, _ in moments)
        frame = one_client(provider, profile, catalog_type, 2000 * cycle_ms)
        assert len(frame) == pytest.approx(2000, rel=0.05)
        assert (frame.n_retries == 0).all()
        for column, moments in (*parts.items(), ("catalog_commit_ms", commit)):
            mean = sum(moment for moment, _ in moments)
            deviation = math.sqrt(sum(variance for _, variance in moments))
            assert frame[column].mean() == pytest.approx(mean, abs=4.5 * deviation / math.sqrt(len(frame))), column
            assert frame[column].std() == pytest.approx(deviation, rel=0.35), column


def test_open_arrivals_are_poisson_and_keep_their_rate_whatever_the_load() -> None:
    config = {
        "simulation": {"duration_ms": 400_000, "seed": 3},
        "storage": {"provider": "s3"},
        "transaction": {
            "inter_arrival": {"scale": 50},
            "runtime": {"median": 200, "sigma": 1.0},
            "retry": 2,
        },
    }
    frame = Simulation(build_simulation_config(parse_settings(config))).run().to_dataframe()
    arrivals = np.sort(frame.t_submit.to_numpy())
    settled = arrivals[arrivals < 390_000.0]
    expected = 390_000.0 / 50.0
    assert abs(len(settled) - expected) < 4 * math.sqrt(expected)
    per_second = np.bincount((settled // 1000.0).astype(int), minlength=390)
    dispersion = (len(per_second) - 1) * per_second.var(ddof=1) / per_second.mean()
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], len(per_second) - 1)
    assert low < dispersion < high
    assert frame.n_retries.mean() > 1.0


def test_runtimes_follow_their_lognormal_with_its_floor() -> None:
    config = {
        "simulation": {"duration_ms": 1_000_000, "seed": 5, "drain": True},
        "storage": {"provider": "instant"},
        "transaction": {
            "inter_arrival": {"scale": 100},
            "runtime": {"median": 1800, "sigma": 1.5, "min": 300},
            "retry": 0,
        },
    }
    frame = Simulation(build_simulation_config(parse_settings(config))).run().to_dataframe()
    mean, variance = floored_moments(1800, 1.5, 300)
    assert frame.t_runtime.min() == 300.0
    assert frame.t_runtime.mean() == pytest.approx(mean, abs=4.5 * math.sqrt(variance / len(frame)))
    above = frame.t_runtime[frame.t_runtime > 300.0]
    truth = stats.lognorm(s=1.5, scale=1800)
    assert stats.kstest(above, lambda x: (truth.cdf(x) - truth.cdf(300)) / truth.sf(300)).pvalue > 1e-4


@pytest.mark.parametrize(("writers", "expected"), [(1, 1.0), (2, 0.5), (5, 0.2)])
def test_a_pointer_serves_one_commit_per_round_of_the_closed_loop(writers: int, expected: float) -> None:
    """Equal fixed latencies: writers without retries share the pointer's rounds, so a share 1/N of them commits."""
    fixed = {"distribution": "fixed", "value": 10}
    config = {
        "simulation": {"duration_ms": 60_000, "seed": 1},
        "storage": {"provider": "instant", "latency": {"manifest_list": {"read": fixed, "write": fixed}}},
        "catalog": {"type": "instant", "latency_ms": 10},
        "transaction": {
            "clients": writers,
            "think_time": fixed,
            "runtime": fixed,
            "retry": 0,
            "operation_types": {"fast_append": 1},
        },
    }
    config["storage"]["latency"]["manifest_file"] = {"write": fixed}
    statistics = Simulation(build_simulation_config(parse_settings(config))).run()
    share = statistics.committed / (statistics.committed + statistics.aborted)
    assert share == pytest.approx(expected, abs=0.01)
