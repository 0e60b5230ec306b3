"""Latencies follow their distributions, and providers offer what the specification says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, stats

from endive.config import PROVIDER_PROFILES, load_provider_profiles
from endive.random_streams import new_random_state
from endive.storage import (
    ArtifactLatency,
    EmpiricalLatency,
    ExponentialLatency,
    FailureLatencies,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    SizeBasedLatency,
    StorageProvider,
    UniformLatency,
    UnsupportedOperationError,
    create_provider,
)
from endive.test_utils import fixed_storage, run_generator

SAMPLES = 40_000
MIB = 1024 * 1024


def samples(distribution: LatencyDistribution, count: int = SAMPLES) -> np.ndarray:
    rng = np.random.RandomState(12345)
    return np.array([distribution.sample(rng) for _ in range(count)])


def lognormal(median: float, sigma: float) -> stats.rv_continuous:
    return stats.lognorm(s=sigma, scale=median)


def floored_mean(distribution: stats.rv_continuous, floor: float) -> float:
    """E[max(floor, X)] = floor + the integral of P(X > x) from the floor up."""
    tail, _ = integrate.quad(distribution.sf, floor, np.inf, limit=500)
    return floor + tail


CONTINUOUS = [
    pytest.param(LognormalLatency.from_median(61, 0.14, 43), lognormal(61, 0.14), 43, id="lognormal"),
    pytest.param(
        LognormalLatency.from_median(170, 0.91, 118), lognormal(170, 0.91), 118, id="lognormal with a biting floor"
    ),
    pytest.param(
        LognormalLatency.from_mean(100, 0.5, 0), lognormal(100 * math.exp(-0.125), 0.5), 0, id="lognormal by mean"
    ),
    pytest.param(SizeBasedLatency(30, 20, 0.3, 43, MIB), lognormal(50, 0.3), 43, id="a MiB to S3"),
    pytest.param(SizeBasedLatency(30, 20, 0.3, 1).with_size(MIB // 2), lognormal(40, 0.3), 1, id="half a MiB"),
    pytest.param(NormalLatency(50, 20, 40), stats.norm(50, 20), 40, id="normal"),
    pytest.param(ExponentialLatency(100), stats.expon(scale=100), 0, id="exponential"),
    pytest.param(ExponentialLatency(100, 30), stats.expon(scale=100), 30, id="exponential with a floor"),
    pytest.param(UniformLatency(10, 30), stats.uniform(10, 20), 0, id="uniform"),
]


@pytest.mark.parametrize(("distribution", "truth", "floor"), CONTINUOUS)
def test_samples_follow_the_distribution_above_the_floor(
    distribution: LatencyDistribution, truth: stats.rv_continuous, floor: float
) -> None:
    drawn = samples(distribution)
    assert drawn.min() >= floor
    above = drawn[drawn > floor]
    share = truth.sf(floor) if floor > 0 else 1.0
    assert abs(len(above) - share * SAMPLES) <= 4 * math.sqrt(SAMPLES * share * (1 - share)) + 1e-9

    def conditional_cdf(x: np.ndarray) -> np.ndarray:
        return (truth.cdf(x) - (1 - share)) / share

    assert stats.kstest(above, conditional_cdf).pvalue > 1e-4


@pytest.mark.parametrize(("distribution", "truth", "floor"), CONTINUOUS)
def test_mean_includes_the_floor(distribution: LatencyDistribution, truth: stats.rv_continuous, floor: float) -> None:
    expected = floored_mean(truth, floor)
    assert distribution.mean_ms() == pytest.approx(expected, rel=1e-6)
    drawn = samples(distribution)
    assert drawn.mean() == pytest.approx(expected, abs=4.5 * drawn.std() / math.sqrt(SAMPLES))


def test_fixed_latency_draws_nothing() -> None:
    rng, untouched = np.random.RandomState(1), np.random.RandomState(1)
    assert FixedLatency(7.5).sample(rng) == 7.5 == FixedLatency(7.5).mean_ms()
    assert rng.random_sample() == untouched.random_sample()


def test_empirical_latency_joins_its_quantiles_by_straight_lines() -> None:
    distribution = EmpiricalLatency((0.0, 0.5, 0.9, 1.0), (10.0, 20.0, 20.0, 100.0))
    drawn = samples(distribution)
    expected = {0.25: 15.0, 0.5: 20.0, 0.7: 20.0, 0.95: 60.0}
    for probability, value in expected.items():
        assert np.quantile(drawn, probability) == pytest.approx(value, rel=0.05)
    assert drawn.min() >= 10.0
    assert drawn.max() < 100.0
    assert distribution.mean_ms() == pytest.approx(0.5 * 15 + 0.4 * 20 + 0.1 * 60)
    assert drawn.mean() == pytest.approx(distribution.mean_ms(), abs=4.5 * drawn.std() / math.sqrt(SAMPLES))


def test_sigma_zero_is_the_median() -> None:
    assert set(samples(LognormalLatency.from_median(80.0, 0.0), 5)) == {math.exp(math.log(80.0))}
    assert LognormalLatency.from_median(80.0, 0.0, 100.0).mean_ms() == 100.0


OPERATIONS: dict[str, Callable[[StorageProvider], object]] = {
    "read": lambda provider: provider.read("manifest_list/0", 100),
    "write": lambda provider: provider.write("manifest_list/0", 100),
    "cas": lambda provider: provider.cas("catalog/pointer", 1, 100),
    "append": lambda provider: provider.append("catalog/log", 0, 100),
    "tail_append": lambda provider: provider.tail_append("catalog/log", 100),
}
OFFERED = {
    "s3": {"read", "write", "cas"},
    "s3x": {"read", "write", "cas", "append"},
    "azure": {"read", "write", "cas", "append"},
    "azurex": {"read", "write", "cas", "append"},
    "gcp": {"read", "write", "cas"},
    "instant": {"read", "write", "cas", "append", "tail_append"},
}
FLOORS = {"s3": 43, "s3x": 10, "azure": 51, "azurex": 40, "gcp": 118, "instant": 1}


@pytest.mark.parametrize("name", sorted(OFFERED))
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_providers_offer_what_the_specification_lists(name: str, operation: str) -> None:
    provider = create_provider(name, new_random_state(), PROVIDER_PROFILES)
    flags = {
        "cas": provider.supports_cas,
        "append": provider.supports_append,
        "tail_append": provider.supports_tail_append,
    }
    assert flags.get(operation, True) == (operation in OFFERED[name])
    if operation in OFFERED[name]:
        elapsed_ms, result = run_generator(OPERATIONS[operation](provider))
        assert result.success
        assert result.latency_ms == elapsed_ms >= provider.min_latency_ms == FLOORS[name]
        assert result.data_size_bytes == 100
    else:
        with pytest.raises(UnsupportedOperationError, match=name):
            OPERATIONS[operation](provider)


# (floor, read, write, cas, cas failure, append, append failure) as the specification and the model document give
# them: medians with sigma; writes as base, per MiB, sigma.
JUNE = {
    "s3": (43, (61, 0.14), (30, 20, 0.30), (61, 0.14), (65, 0.38), None, None),
    "s3x": (10, (22, 0.22), (10, 10, 0.25), (22, 0.22), (21, 0.22), (21, 0.25), (23, 0.25)),
    "azure": (51, (87, 0.28), (50, 25, 0.50), (93, 0.82), (75, 0.90), (87, 0.28), (2072, 0.68)),
    "azurex": (40, (70, 0.23), (30, 15, 0.40), (64, 0.73), (82, 0.85), (70, 0.23), (2534, 0.65)),
    "gcp": (118, (170, 0.91), (40, 17, 0.60), (170, 0.91), (4500, 1.0), None, None),
    "instant": (1, (1, 0.1), (0.5, 0.1, 0.1), (1, 0.1), None, (1, 0.1), (1, 0.1)),
}
DECEMBER = {
    "s3": (10, (27, 0.62), (60, 20, 0.29)),
    "s3x": (1, (2.5, 0.57), (6.5, 10, 0.24)),
    "azure": (20, (38, 0.66), (45, 25, 0.50)),
    "azurex": (20, (35, 0.08), (41, 15, 0.10)),
    "gcp": (80, (200, 0.30), (200, 17, 0.30)),
    "instant": (1, (1, 0.1), (0.5, 0.1, 0.1)),
}


@pytest.mark.parametrize(
    ("profile", "name", "figures"),
    [
        *(("2025-06", name, figures) for name, figures in JUNE.items()),
        *(("2025-12", name, (*figures, *JUNE[name][3:])) for name, figures in DECEMBER.items()),
    ],
)
def test_profiles_hold_the_published_figures(profile: str, name: str, figures: tuple) -> None:
    found = load_provider_profiles(profile)[name]
    floor, read, write, *conditional = figures
    assert found.min_latency_ms == floor
    assert found.read == SizeBasedLatency(read[0], 0.0, read[1], floor)
    assert found.write == SizeBasedLatency(*write, floor)
    for distribution, expected in zip(
        (found.cas, found.cas_failure, found.append, found.append_failure), conditional, strict=True
    ):
        if expected is None:
            assert distribution is None
        else:
            assert distribution == LognormalLatency.from_median(*expected, floor)


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(ValueError, match=r"'s4'.*azure, azurex, gcp, instant, s3, s3x"):
        create_provider("s4", new_random_state(), PROVIDER_PROFILES)


def test_artifact_latencies_replace_those_of_one_kind_of_object() -> None:
    artifacts = {
        "manifest_list": ArtifactLatency(read=FixedLatency(1.0)),
        "catalog": ArtifactLatency(write=FixedLatency(2.0)),
    }
    storage = fixed_storage(read_ms=10, write_ms=20, cas_ms=5, append_ms=4, artifacts=artifacts)
    assert run_generator(storage.read("manifest_list/7", 10))[0] == 1.0
    assert run_generator(storage.write("manifest_list/7", 10))[0] == 20.0
    assert run_generator(storage.read("manifest_file/7", 10))[0] == 10.0
    assert run_generator(storage.cas("catalog/pointer", 0, 10))[0] == 2.0
    assert run_generator(storage.append("catalog/log", 0, 10))[0] == 2.0
    assert run_generator(storage.read("catalog/pointer", 10))[0] == 10.0


def test_every_sample_respects_the_providers_floor() -> None:
    artifacts = {"manifest_list": ArtifactLatency(FixedLatency(0.5), FixedLatency(0.5))}
    provider = create_provider("s3", new_random_state(), PROVIDER_PROFILES, artifacts=artifacts)
    assert run_generator(provider.read("manifest_list/0", 10))[0] == 43.0


@pytest.mark.parametrize(
    ("failures", "cas_fails_apart", "append_fails_apart"),
    [(FailureLatencies(), False, True), (FailureLatencies(cas=True, append=False), True, False)],
)
def test_failure_latencies_are_drawn_only_where_wanted(
    failures: FailureLatencies, cas_fails_apart: bool, append_fails_apart: bool
) -> None:
    provider = create_provider("azure", new_random_state(), PROVIDER_PROFILES, failures=failures)
    assert (provider.sample_cas_failure_ms() is not None) == cas_fails_apart
    assert (provider.sample_append_failure_ms() is not None) == append_fails_apart


def test_a_bound_view_draws_from_its_own_generator_and_leaves_the_original_alone() -> None:
    rng = np.random.RandomState(1)
    provider = create_provider("s3x", rng, PROVIDER_PROFILES)
    view = provider.bind(np.random.RandomState(1))
    assert run_generator(view.read("manifest_list/0", 1)) == run_generator(provider.read("manifest_list/0", 1))
    assert provider.rng is rng
