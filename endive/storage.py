"""Storage providers: what an object store's operations cost in time.

A provider models latency alone. Whether a conditional operation finds its precondition true is decided by
the owner of the object (the catalog, the manifest list), at the instant that the operation takes effect.
Nothing here knows a clock, a file or an engine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import numpy as np

MIB: Final = 1024 * 1024

Operation = Literal["read", "write"]


class UnsupportedOperationError(Exception):
    """A provider was asked for an operation that its store does not have."""


@dataclass(frozen=True, slots=True)
class StorageResult:
    """What a storage operation answers: whether it was carried out, how long it took, how much it moved."""

    success: bool
    latency_ms: float
    data_size_bytes: int


class LatencyDistribution(ABC):
    """A distribution of durations in milliseconds; the only place where one is drawn."""

    @abstractmethod
    def sample(self, rng: np.random.RandomState) -> float:
        """Draw a duration in milliseconds."""

    def sample_sized(self, rng: np.random.RandomState, size_bytes: int) -> float:
        """Draw the duration of moving `size_bytes`, in milliseconds; most distributions do not depend on it."""
        return self.sample(rng)

    def mean_ms(self) -> float:
        """Return the expected value of `sample`, floor included, in milliseconds."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its mean")

    def median_ms(self, size_bytes: int = 0) -> float:
        """Return the median of moving `size_bytes`, before the floor, in milliseconds."""
        raise NotImplementedError(f"{type(self).__name__} does not tell its median")


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _floored_lognormal_mean(mu: float, sigma: float, floor: float) -> float:
    """Return E[max(floor, exp(mu + sigma Z))]."""
    if floor <= 0.0:
        return math.exp(mu + sigma * sigma / 2.0)
    if sigma == 0.0:
        return max(floor, math.exp(mu))
    z = (math.log(floor) - mu) / sigma
    return floor * _normal_cdf(z) + math.exp(mu + sigma * sigma / 2.0) * _normal_cdf(sigma - z)


@dataclass(frozen=True, slots=True)
class FixedLatency(LatencyDistribution):
    """Always the same duration; draws nothing."""

    latency_ms: float

    def sample(self, rng: np.random.RandomState) -> float:
        return self.latency_ms

    def median_ms(self, size_bytes: int = 0) -> float:
        return self.latency_ms

    def mean_ms(self) -> float:
        return self.latency_ms


@dataclass(frozen=True, slots=True)
class LognormalLatency(LatencyDistribution):
    """Lognormal with a floor; exp(mu) is the median."""

    mu: float
    sigma: float
    min_latency_ms: float = 1.0

    @classmethod
    def from_median(cls, median_ms: float, sigma: float, min_latency_ms: float = 1.0) -> LognormalLatency:
        return cls(math.log(median_ms), sigma, min_latency_ms)

    @classmethod
    def from_mean(cls, mean_ms: float, sigma: float, min_latency_ms: float = 1.0) -> LognormalLatency:
        return cls(math.log(mean_ms) - sigma * sigma / 2.0, sigma, min_latency_ms)

    def sample(self, rng: np.random.RandomState) -> float:
        return max(self.min_latency_ms, math.exp(self.mu + self.sigma * rng.standard_normal()))

    def median_ms(self, size_bytes: int = 0) -> float:
        return math.exp(self.mu)

    def mean_ms(self) -> float:
        return _floored_lognormal_mean(self.mu, self.sigma, self.min_latency_ms)


@dataclass(frozen=True, slots=True)
class SizeBasedLatency(LatencyDistribution):
    """Lognormal about a median that grows with the object: base + rate per MiB (Durner et al., VLDB 2023)."""

    base_latency_ms: float
    latency_per_mib_ms: float
    sigma: float
    min_latency_ms: float = 1.0
    size_bytes: int = 0

    def with_size(self, size_bytes: int) -> SizeBasedLatency:
        """Return the same model for an object of `size_bytes`."""
        return replace(self, size_bytes=size_bytes)

    def median_ms(self, size_bytes: int = 0) -> float:
        return self.base_latency_ms + self.latency_per_mib_ms * (size_bytes / MIB)

    def sample_sized(self, rng: np.random.RandomState, size_bytes: int) -> float:
        mu = math.log(self.median_ms(size_bytes))
        return max(self.min_latency_ms, math.exp(mu + self.sigma * rng.standard_normal()))

    def sample(self, rng: np.random.RandomState) -> float:
        return self.sample_sized(rng, self.size_bytes)

    def mean_ms(self) -> float:
        return _floored_lognormal_mean(math.log(self.median_ms(self.size_bytes)), self.sigma, self.min_latency_ms)


@dataclass(frozen=True, slots=True)
class NormalLatency(LatencyDistribution):
    """Normal with a floor."""

    mean: float
    stddev: float
    min_latency_ms: float = 0.0

    def sample(self, rng: np.random.RandomState) -> float:
        return max(self.min_latency_ms, self.mean + self.stddev * rng.standard_normal())

    def median_ms(self, size_bytes: int = 0) -> float:
        return self.mean

    def mean_ms(self) -> float:
        if self.stddev == 0.0:
            return max(self.min_latency_ms, self.mean)
        z = (self.min_latency_ms - self.mean) / self.stddev
        density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        return self.min_latency_ms * _normal_cdf(z) + self.mean * _normal_cdf(-z) + self.stddev * density


@dataclass(frozen=True, slots=True)
class ExponentialLatency(LatencyDistribution):
    """Exponential with a floor; `scale` is the mean without it."""

    scale: float
    min_latency_ms: float = 0.0

    def sample(self, rng: np.random.RandomState) -> float:
        return max(self.min_latency_ms, self.scale * rng.standard_exponential())

    def median_ms(self, size_bytes: int = 0) -> float:
        return self.scale * math.log(2.0)

    def mean_ms(self) -> float:
        return self.min_latency_ms + self.scale * math.exp(-self.min_latency_ms / self.scale)


@dataclass(frozen=True, slots=True)
class UniformLatency(LatencyDistribution):
    """Uniform on [low, high)."""

    low: float
    high: float

    def sample(self, rng: np.random.RandomState) -> float:
        return self.low + (self.high - self.low) * rng.random_sample()

    def median_ms(self, size_bytes: int = 0) -> float:
        return (self.low + self.high) / 2.0

    def mean_ms(self) -> float:
        return (self.low + self.high) / 2.0


@dataclass(frozen=True, slots=True)
class EmpiricalLatency(LatencyDistribution):
    """Measured quantiles, joined by straight lines: `values[i]` milliseconds at `probabilities[i]`.

    Probabilities rise strictly from 0 to 1; values never fall.
    """

    probabilities: tuple[float, ...]
    values: tuple[float, ...]

    def quantile_ms(self, probability: float) -> float:
        """Return the duration that a share `probability`, from 0 up to but not 1, stays below, in milliseconds."""
        upper = bisect_right(self.probabilities, probability)
        low, high = self.probabilities[upper - 1], self.probabilities[upper]
        start, end = self.values[upper - 1], self.values[upper]
        return start + (end - start) * ((probability - low) / (high - low))

    def sample(self, rng: np.random.RandomState) -> float:
        return self.quantile_ms(rng.random_sample())

    def median_ms(self, size_bytes: int = 0) -> float:
        return self.quantile_ms(0.5)

    def mean_ms(self) -> float:
        steps = zip(self.probabilities, self.probabilities[1:], self.values, self.values[1:], strict=False)
        return math.fsum((high - low) * (start + end) / 2.0 for low, high, start, end in steps)


class StorageProvider(ABC):
    """An object store. Each operation is a generator of delays in milliseconds that returns a `StorageResult`."""

    def __init__(self, rng: np.random.RandomState) -> None:
        self._rng = rng

    @property
    def rng(self) -> np.random.RandomState:
        """The generator that latencies are drawn from."""
        return self._rng

    def bind(self, rng: np.random.RandomState) -> Self:
        """Return a view of this provider that draws from `rng`."""
        view = self.__class__.__new__(self.__class__)
        view.__dict__.update(self.__dict__)
        view._rng = rng
        return view

    @abstractmethod
    def read(self, key: str, expected_size_bytes: int) -> Generator[float, None, StorageResult]:
        """Read an object."""

    @abstractmethod
    def write(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        """Write an object unconditionally."""

    @abstractmethod
    def cas(self, key: str, expected_version: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        """Replace an object if its version is the expected one; raise UnsupportedOperationError if not offered."""

    @abstractmethod
    def append(self, key: str, offset: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        """Append at an offset if the object ends there; raise UnsupportedOperationError if not offered."""

    @abstractmethod
    def tail_append(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        """Append wherever the object ends; raise UnsupportedOperationError if not offered."""

    @property
    def supports_cas(self) -> bool:
        """Whether the store has compare-and-swap. Like the two below true unless a provider says otherwise."""
        return True

    @property
    def supports_append(self) -> bool:
        return True

    @property
    def supports_tail_append(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def min_latency_ms(self) -> float:
        """The floor under every sample, in milliseconds."""
        return 0.0

    def sample_cas_failure_ms(self) -> float | None:
        """Draw how long a failed compare-and-swap takes, or None where failure takes as long as success."""
        return None

    def sample_append_failure_ms(self) -> float | None:
        """Draw how long a failed append takes, or None where failure takes as long as success."""
        return None


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """The measured latencies of one provider, as `providers/<profile>/<name>.toml` gives them.

    None means that the store does not have the operation, or (failures) that none was measured.
    """

    name: str
    title: str
    min_latency_ms: float
    read: LatencyDistribution
    write: LatencyDistribution
    cas: LatencyDistribution | None = None
    cas_failure: LatencyDistribution | None = None
    append: LatencyDistribution | None = None
    append_failure: LatencyDistribution | None = None
    tail_append: LatencyDistribution | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class ArtifactLatency:
    """Distributions that replace a provider's own for one artifact; None keeps the provider's."""

    read: LatencyDistribution | None = None
    write: LatencyDistribution | None = None


@dataclass(frozen=True, slots=True)
class FailureLatencies:
    """Which conditional operations take a time of their own when they fail."""

    cas: bool = False
    append: bool = True


class ProfiledStorage(StorageProvider):
    """A provider whose latencies are a profile's, except for artifacts that are given their own.

    The artifact of a key is what stands before its first slash: `manifest_list/3` is a `manifest_list`.
    """

    def __init__(
        self,
        rng: np.random.RandomState,
        profile: ProviderProfile,
        failures: FailureLatencies = FailureLatencies(),
        artifacts: Mapping[str, ArtifactLatency] | None = None,
    ) -> None:
        super().__init__(rng)
        self._profile = profile
        self._failures = failures
        self._artifacts = dict(artifacts or {})

    @property
    def profile(self) -> ProviderProfile:
        return self._profile

    @property
    def failures(self) -> FailureLatencies:
        return self._failures

    @property
    def artifacts(self) -> Mapping[str, ArtifactLatency]:
        return self._artifacts

    @property
    def name(self) -> str:
        return self._profile.name

    @property
    def min_latency_ms(self) -> float:
        return self._profile.min_latency_ms

    @property
    def supports_cas(self) -> bool:
        return self._profile.cas is not None

    @property
    def supports_append(self) -> bool:
        return self._profile.append is not None

    @property
    def supports_tail_append(self) -> bool:
        return self._profile.tail_append is not None

    def latency_of(self, artifact: str, operation: Operation) -> LatencyDistribution:
        """Return the distribution of reading or unconditionally writing a kind of object."""
        return self._model(artifact, operation, self._profile.read if operation == "read" else self._profile.write)

    def _model(self, key: str, operation: Operation, default: LatencyDistribution) -> LatencyDistribution:
        if not self._artifacts:
            return default
        artifact = self._artifacts.get(key.partition("/")[0])
        if artifact is None:
            return default
        return (artifact.read if operation == "read" else artifact.write) or default

    def _run(self, model: LatencyDistribution, size_bytes: int) -> Generator[float, None, StorageResult]:
        latency_ms = max(self._profile.min_latency_ms, model.sample_sized(self._rng, size_bytes))
        yield latency_ms
        return StorageResult(True, latency_ms, size_bytes)

    def _offered(self, model: LatencyDistribution | None, operation: str) -> LatencyDistribution:
        if model is None:
            raise UnsupportedOperationError(f"provider {self.name} has no {operation}")
        return model

    def read(self, key: str, expected_size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._run(self._model(key, "read", self._profile.read), expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        return self._run(self._model(key, "write", self._profile.write), size_bytes)

    def cas(self, key: str, expected_version: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        model = self._offered(self._profile.cas, "compare-and-swap")
        return self._run(self._model(key, "write", model), size_bytes)

    def append(self, key: str, offset: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        model = self._offered(self._profile.append, "append")
        return self._run(self._model(key, "write", model), size_bytes)

    def tail_append(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        model = self._offered(self._profile.tail_append, "tail append")
        return self._run(self._model(key, "write", model), size_bytes)

    def _sample_failure_ms(self, enabled: bool, model: LatencyDistribution | None) -> float | None:
        if not enabled or model is None:
            return None
        return max(self._profile.min_latency_ms, model.sample(self._rng))

    def sample_cas_failure_ms(self) -> float | None:
        return self._sample_failure_ms(self._failures.cas, self._profile.cas_failure)

    def sample_append_failure_ms(self) -> float | None:
        return self._sample_failure_ms(self._failures.append, self._profile.append_failure)


def create_provider(
    name: str,
    rng: np.random.RandomState,
    profiles: Mapping[str, ProviderProfile],
    *,
    failures: FailureLatencies = FailureLatencies(),
    artifacts: Mapping[str, ArtifactLatency] | None = None,
) -> ProfiledStorage:
    """Return the provider `name` of `profiles`, drawing from `rng`; raise ValueError if there is none."""
    if name not in profiles:
        raise ValueError(f"unknown provider {name!r}; known: {', '.join(sorted(profiles))}")
    return ProfiledStorage(rng, profiles[name], failures, artifacts)
