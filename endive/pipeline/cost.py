"""How long a run will take, roughly: what puts long runs first, and fills tasks with short ones.

Fitted to the published suite on one core: a run has a fixed cost, a transaction costs more where retries are many, and
an operation that reads its history (a validated overwrite, a merge) draws a latency for each commit that it missed.
The order of runs matters more than the seconds.
"""

from __future__ import annotations

from typing import Final

from endive.config import DEFAULT_WEIGHTS, catalog_type, load_provider_profiles, operation_costs
from endive.config_rules import effective_stream
from endive.settings import Settings, StreamFields

RUN_S: Final = 0.011
TRANSACTION_S: Final = 1e-6
SATURATED_TRANSACTION_S: Final = 2.5e-6
"""What a transaction costs on top where none commits at its first attempt."""
DRAW_S: Final = 14e-9

_COMMIT_MS: Final = 1_000.0
_EXPOSED_SHARE: Final = 0.5
_EXPOSED_SHARE_OF_RUN: Final = 0.1


def predicted_cost_s(settings: Settings) -> float:
    """Return about how many seconds of one core the compiled engine needs for a run."""
    streams = [effective_stream(settings, stream) for stream in settings.streams] or [settings.transaction]
    duration_ms = settings.simulation.duration_ms
    offered = [_offered(stream, duration_ms) for stream in streams]
    offered_per_ms = sum(offered) / duration_ms
    committed_per_ms = offered_per_ms / (1.0 + offered_per_ms / _capacity_per_ms(settings))
    saturation = 1.0 - committed_per_ms / offered_per_ms if offered_per_ms else 0.0
    cost_s = RUN_S + sum(offered) * (TRANSACTION_S + saturation * SATURATED_TRANSACTION_S)
    for stream, transactions in zip(streams, offered, strict=True):
        missed = committed_per_ms * _exposed_ms(stream, duration_ms)
        cost_s += transactions * missed * _draws_per_missed_commit(settings, stream) * DRAW_S
    return cost_s


def _offered(stream: StreamFields, duration_ms: float) -> float:
    """Return how many transactions a stream submits."""
    if stream.clients is None:
        assert stream.inter_arrival is not None
        return duration_ms / max(stream.inter_arrival.to_latency().mean_ms(), 1e-3)
    think_ms = 0.0 if stream.think_time is None else stream.think_time.to_latency().mean_ms()
    return stream.clients * duration_ms / (think_ms + _runtime_ms(stream) + _COMMIT_MS)


def _runtime_ms(stream: StreamFields) -> float:
    assert stream.runtime is not None
    return stream.runtime.to_latency().mean_ms()


def _exposed_ms(stream: StreamFields, duration_ms: float) -> float:
    """Return how long a transaction misses commits: a long tail of runtimes does not end within the run."""
    return min(_EXPOSED_SHARE * _runtime_ms(stream), _EXPOSED_SHARE_OF_RUN * duration_ms)


def _draws_per_missed_commit(settings: Settings, stream: StreamFields) -> float:
    weights = stream.operation_types or DEFAULT_WEIGHTS
    draws = 0.0
    for name, weight in weights.items():
        per_commit = operation_costs(settings, name).per_missed_commit
        rates = (per_commit.historical_ml_reads, per_commit.manifest_file_reads, per_commit.manifest_file_writes)
        draws += weight * sum(rates)
    return draws / sum(weights.values())


def _capacity_per_ms(settings: Settings) -> float:
    """Return about how many commits the catalog takes: each swaps it, and has worked on one of its tables."""
    profiles = load_provider_profiles(settings.storage.profile)
    store, pointer = (profiles[name] for name in (settings.storage.provider, _catalog_provider(settings)))
    swap = pointer.append if catalog_type(settings) == "append" else pointer.cas
    swap_ms = settings.catalog.latency_ms or (1.0 if swap is None else swap.mean_ms())
    manifest_ms = store.read.mean_ms() + 2.0 * store.write.mean_ms()
    return 1.0 / (swap_ms + manifest_ms / settings.catalog.num_tables)


def _catalog_provider(settings: Settings) -> str:
    return "instant" if catalog_type(settings) == "instant" else settings.catalog.provider or settings.storage.provider
