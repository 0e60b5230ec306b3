"""What no workload can exceed: upper bounds of the commit rate, from the latencies of one attempt.

Of two commits to one pointer that succeed one after the other, the second read the pointer after the first took
effect: otherwise its precondition would have failed. So they are apart by at least what lies between the effect of a
catalog read and that of a commit, the *exposure* of an attempt: (1 - f) · read + manifest work + f · commit, where f
is `catalog.effect_point`. Attempts may overlap in all the rest, so 1 / attempt time is no bound unless there is a
single client.

With fixed latencies these bounds always hold. With random ones, given means, they are what a typical attempt allows:
many contenders pass them by some percent, since the fastest of them wins. `contended_bound_per_s` tells by how much;
the floors of the latencies in place of the means give a bound that holds whatever is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from endive.analysis.frames import AnalysisError


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """How long the steps of an attempt take, in milliseconds.

    `manifest_io_ms` is the least manifest work between a catalog read and a commit, with what an overlap costs in
    addition; `commit_ms` the compare-and-swap, or the append to the log without its discovery read.
    """

    catalog_read_ms: float
    manifest_io_ms: float
    commit_ms: float
    effect_point: float = 1.0

    def __post_init__(self) -> None:
        times = (self.catalog_read_ms, self.manifest_io_ms, self.commit_ms)
        if not all(0.0 <= time < math.inf for time in times) or not 0.0 <= self.effect_point <= 1.0:
            raise AnalysisError(f"{self}: times must be 0 or more, the effect point from 0 to 1")

    @property
    def attempt_ms(self) -> float:
        """From the start of the catalog read to the answer of the commit."""
        return self.catalog_read_ms + self.manifest_io_ms + self.commit_ms

    @property
    def swap_ms(self) -> float:
        """From the effect of the catalog read to that of the commit, without manifest work."""
        return (1.0 - self.effect_point) * self.catalog_read_ms + self.effect_point * self.commit_ms

    @property
    def exposed_ms(self) -> float:
        """From the effect of the catalog read to that of the commit."""
        return self.swap_ms + self.manifest_io_ms


def lone_client_bound_per_s(times: AttemptTimes) -> float:
    """Return commits per second of one client that does nothing else: 1 / attempt time."""
    return _per_s(times.attempt_ms)


def pointer_bound_per_s(times: AttemptTimes, pointers: int = 1, *, always_redone: bool = True) -> float:
    """Return the most commits per second that `pointers` pointers take together: pointers / exposure.

    A pointer is what `catalog.scope` checks: the catalog, a group, a table. `always_redone` False: a retry may come
    without manifest work, since the commits that it missed were to other tables or partitions than its own; then only
    the time of the swap counts.
    """
    return pointers * _per_s(times.exposed_ms if always_redone else times.swap_ms)


def log_bound_per_s(append_ms: float, effect_point: float = 1.0) -> float:
    """Return the most records per second that land in a catalog's log: 1 / (f · append).

    Whoever lands next learned the end of the log after the last record landed, and only then began to append.
    """
    return _per_s(effect_point * append_ms)


def contended_bound_per_s(exposures_ms: ArrayLike, contenders: int, pointers: int = 1) -> float:
    """Return the most commits per second of `contenders` clients for each pointer, whose exposures are drawn.

    After each commit every contender has one exposure to try, and the fastest ends the wait: pointers / (expected least
    of `contenders` exposures). `exposures_ms` is a sample of exposures.
    """
    return pointers * _per_s(expected_minimum(exposures_ms, contenders))


def closed_loop_bound_per_s(times: AttemptTimes, clients: int, runtime_ms: float, think_ms: float = 0.0) -> float:
    """Return the most commits per second of clients that submit again only after an end: clients / cycle.

    Holds for means of random latencies too, since every transaction makes its first attempt whole.
    """
    return clients * _per_s(_cycle_ms(times, runtime_ms, think_ms))


def closed_loop_success_bound(
    times: AttemptTimes, clients: int, runtime_ms: float, think_ms: float = 0.0, pointers: int = 1
) -> float:
    """Return the largest share of transactions that commit, of clients that never retry, on fixed latencies.

    A first attempt is exposed for its work too, so a pointer takes one commit for each (exposure + runtime), while
    clients submit one for each cycle. Without think time, and with reads that are short, this is the law 1 / clients.
    """
    exposed_ms = times.exposed_ms + runtime_ms
    if exposed_ms <= 0.0:
        return 1.0
    return min(1.0, pointers * _cycle_ms(times, runtime_ms, think_ms) / (clients * exposed_ms))


def expected_minimum(sample: ArrayLike, count: int) -> float:
    """Return the expected least of `count` independent draws from the distribution of a sample."""
    values = np.sort(np.asarray(sample, dtype=np.float64))
    if not values.size or not np.isfinite(values).all() or count < 1:
        raise AnalysisError("the least of draws needs a sample of finite values, and one draw or more")
    survival = (np.arange(values.size, -1, -1) / values.size) ** count
    return float(values @ (survival[:-1] - survival[1:]))


def _cycle_ms(times: AttemptTimes, runtime_ms: float, think_ms: float) -> float:
    return think_ms + runtime_ms + times.attempt_ms


def _per_s(every_ms: float) -> float:
    return 1000.0 / every_ms if every_ms > 0.0 else math.inf
