"""The knobs of a commit that are not a component: retries, work to redo, sizes. Frozen values, no behaviour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from endive.storage import ExponentialLatency, LatencyDistribution

JitterKind = Literal["symmetric", "iceberg"]
Overlap = Literal["partition", "table"]
History = Literal["catalog", "table"]
RealConflictAction = Literal["abort", "restart", "merge"]
Isolation = Literal["snapshot", "serializable"]
ListPer = Literal["table", "partition"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a client sleeps before a retry. Times in milliseconds."""

    base_ms: float = 10.0
    multiplier: float = 2.0
    max_ms: float = 5000.0
    jitter: float = 0.1
    jitter_kind: JitterKind = "symmetric"

    def delay_ms(self, retry: int) -> float:
        """Return the sleep before the 1-based `retry`, without jitter."""
        delay = min(self.base_ms, self.max_ms)
        for _ in range(retry - 1):
            if delay >= self.max_ms:
                break
            delay = min(delay * self.multiplier, self.max_ms)
        return delay

    def sample_ms(self, retry: int, rng: np.random.RandomState) -> float:
        """Draw the sleep before the 1-based `retry`."""
        delay = self.delay_ms(retry)
        uniform = rng.random_sample()
        if self.jitter_kind == "iceberg":
            return delay + math.floor(uniform * (self.jitter * delay))
        return delay * (1.0 + (2.0 * self.jitter * uniform - self.jitter))


@dataclass(frozen=True, slots=True)
class ObjectSizes:
    """Sizes of what a transaction reads and writes, in bytes. Manifest lists grow by `list_growth` a commit."""

    table_metadata: int = 1024
    manifest_list: int = 10 * 1024
    manifest_file: int = 100 * 1024
    list_growth: int = 0


@dataclass(frozen=True, slots=True)
class ManifestListLog:
    """Appended manifest lists (ML+): bytes an entry takes, and past how many a list is sealed (0: never)."""

    entry_bytes: int = 50
    seal_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConflictingManifests:
    """How many manifest files a merged real conflict reads and writes."""

    distribution: LatencyDistribution = ExponentialLatency(3.0)
    minimum: int = 1
    maximum: int = 10

    def sample(self, rng: np.random.RandomState) -> int:
        drawn = math.floor(min(self.distribution.sample(rng), float(self.maximum)))
        return max(self.minimum, drawn)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """Everything that a commit obeys and that v2.0's `execute()` has no parameter for.

    `total_timeout_ms` 0: no limit. `restarts_end_ms`: from when on no transaction restarts.
    """

    backoff: Backoff | None = None
    total_timeout_ms: float = 0.0
    max_parallel: int = 4
    table_metadata_inlined: bool = True
    overlap: Overlap = "partition"
    history: History = "catalog"
    on_real_conflict: RealConflictAction = "abort"
    max_restarts: int = 10
    restarts_end_ms: float = math.inf
    isolation: Isolation = "snapshot"
    list_per: ListPer = "table"
    sizes: ObjectSizes = ObjectSizes()
    manifest_list_log: ManifestListLog = ManifestListLog()
    conflicting_manifests: ConflictingManifests = ConflictingManifests()
