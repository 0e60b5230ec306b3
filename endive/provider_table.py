"""The table of what storage providers can do, and how fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from endive.storage import LatencyDistribution, LognormalLatency, ProviderProfile, SizeBasedLatency
from endive.utils import format_table

_ORDER: Final = ("s3", "s3x", "azure", "azurex", "gcp", "instant")
_HEADER: Final = [
    "provider",
    "floor",
    "read",
    "write (+ per MiB)",
    "compare-and-swap",
    "  its failure",
    "append",
    "  its failure",
    "tail append",
]


def provider_table(profiles: Mapping[str, ProviderProfile]) -> str:
    """Return a row for each provider: its floor and the latency of each operation, in milliseconds."""
    rows = [_HEADER]
    for name in _ORDER:
        profile = profiles[name]
        operations = (
            profile.read,
            profile.write,
            profile.cas,
            profile.cas_failure,
            profile.append,
            profile.append_failure,
            profile.tail_append,
        )
        rows.append([name, f"{profile.min_latency_ms:g}", *map(_latency, operations)])
    return format_table(rows)


def _latency(distribution: LatencyDistribution | None) -> str:
    if isinstance(distribution, LognormalLatency):
        return f"{math.exp(distribution.mu):g} ± {distribution.sigma:g}"
    if isinstance(distribution, SizeBasedLatency):
        rate = f" + {distribution.latency_per_mib_ms:g}" if distribution.latency_per_mib_ms else ""
        return f"{distribution.base_latency_ms:g}{rate} ± {distribution.sigma:g}"
    return "–"
