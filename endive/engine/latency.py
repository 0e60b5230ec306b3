"""Draws durations in milliseconds, and spends them on a transaction's clock."""

from __future__ import annotations

import math
from typing import Any, Final

from endive.engine import arrays
from endive.engine.jit import called, inlined
from endive.engine.layout import Kind
from endive.engine.random import exponential, normal, polar_pair, uniform

MIB: Final = 1024.0 * 1024.0


@called
def _sample_rare(latency: Any, quantiles: Any, rng: Any, size_bytes: int) -> float:
    """Draw from any family but the two that nearly all storage latencies are of."""
    kind = latency.kind
    if kind == Kind.SIZED:
        center = math.log(latency.base + latency.per_mib * (size_bytes / MIB))
        drawn = math.exp(center + latency.spread * normal(rng))
    elif kind == Kind.NORMAL:
        drawn = latency.center + latency.spread * normal(rng)
    elif kind == Kind.EXPONENTIAL:
        drawn = latency.center * exponential(rng)
    elif kind == Kind.UNIFORM:
        drawn = latency.center + latency.spread * uniform(rng)
    else:
        drawn = _quantile(quantiles, latency.points, uniform(rng))
    return max(latency.floor, drawn)


@inlined
def _quantile(quantiles: Any, first: int, probability: float) -> float:
    upper = first + 1
    while quantiles[upper, 0] <= probability:
        upper += 1
    low, high = quantiles[upper - 1, 0], quantiles[upper, 0]
    start, end = quantiles[upper - 1, 1], quantiles[upper, 1]
    return start + (end - start) * ((probability - low) / (high - low))


@inlined
def sample(latency: Any, quantiles: Any, rng: Any, size_bytes: int) -> float:
    """Draw a duration of moving `size_bytes`."""
    if latency.kind == Kind.LOGNORMAL:
        drawn = math.exp(latency.center + latency.spread * normal(rng))
        return max(latency.floor, drawn)
    if latency.kind == Kind.FIXED:
        return latency.center
    return _sample_rare(latency, quantiles, rng, size_bytes)


@inlined
def spend(slot: Any, component: int, delay: float) -> None:
    """Let time pass for a transaction, counted as a component."""
    slot.now += delay
    slot.times[component] += delay


@inlined
def spend_sample(run: Any, slot: Any, rng: Any, operation: int, component: int, size_bytes: int) -> None:
    """Let one operation pass."""
    run.draws += 1
    spend(slot, component, sample(arrays.latencies(run)[operation], arrays.quantiles(run), rng, size_bytes))


@called
def spend_batches(
    run: Any, slot: Any, rng: Any, latency: Any, quantiles: Any, component: int, count: int, size_bytes: int
) -> None:
    """Let `count` operations pass, `max_parallel` at a time; a batch takes as long as its slowest."""
    if latency.kind == Kind.LOGNORMAL:
        _spend_lognormal_batches(run, slot, rng, latency, component, count)
        return
    while count > 0:
        in_batch = min(run.max_parallel, count)
        longest = 0.0
        for _ in range(in_batch):
            longest = max(longest, sample(latency, quantiles, rng, size_bytes))
        spend(slot, component, longest)
        count -= in_batch


@inlined
def _spend_lognormal_batches(run: Any, slot: Any, rng: Any, latency: Any, component: int, count: int) -> None:
    """Do the same for the family that nearly all are of, with everything at hand in registers.

    The slowest of a batch is that of the largest exponent, so there is one exponential for each batch.
    """
    center, spread, floor, parallel = latency.center, latency.spread, latency.floor, run.max_parallel
    a, b, c, counter, has_kept, kept = rng.a, rng.b, rng.c, rng.counter, rng.has_gauss, rng.gauss
    now, total = slot.now, slot.times[component]
    while count > 0:
        in_batch = min(parallel, count)
        largest = -math.inf
        for _ in range(in_batch):
            drawn = kept
            if not has_kept:
                drawn, kept, a, b, c, counter = polar_pair(a, b, c, counter)
            has_kept = not has_kept
            exponent = center + spread * drawn
            if exponent > largest:  # noqa: PLR1730  (max costs more: it looks for NaN)
                largest = exponent
        longest = max(floor, math.exp(largest))
        now += longest
        total += longest
        count -= in_batch
    rng.a, rng.b, rng.c, rng.counter, rng.has_gauss, rng.gauss = a, b, c, counter, has_kept, kept
    slot.now = now
    slot.times[component] = total
