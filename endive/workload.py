"""Workloads: when transactions arrive, and what each one does.

A workload owns the topology and turns it, with seeded substreams, into transactions. A stream of arrivals
is open (inter-arrival times) or closed (clients that think between transactions).
"""

from __future__ import annotations

import heapq
import itertools
import math
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from endive.operation_costs import FAST_APPEND, OperationCosts, merge_append_costs, validated_overwrite_costs
from endive.random_streams import Source, SubstreamFamily, new_random_state
from endive.storage import LatencyDistribution
from endive.transaction import (
    CostedTransaction,
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    ValidatedOverwriteTransaction,
)

Selection = tuple[frozenset[int], frozenset[int]]

_TRANSACTION_TYPES: Final[dict[str, type[CostedTransaction]]] = {
    kind.operation_type: kind for kind in (FastAppendTransaction, MergeAppendTransaction, ValidatedOverwriteTransaction)
}


def zipf_pmf(alpha: float, total: int) -> list[float]:
    """Return P(k) proportional to 1/k^alpha, for k = 1 to `total`."""
    weights = [math.pow(rank, -alpha) for rank in range(1, total + 1)]
    scale = math.fsum(weights)
    return [weight / scale for weight in weights]


def written_count(write_fraction: float, selected: int) -> int:
    """Return how many of `selected` tables or partitions are written."""
    return max(1, round(write_fraction * selected))


class WeightedDraw:
    """Draws without replacement from 0 to n-1 with fixed weights, by inverse CDF over what is left."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights: Final = tuple(weights)
        self.sums: Final = tuple(itertools.accumulate(self.weights))
        self.are_equal: Final = len(set(self.weights)) == 1

    @property
    def total(self) -> float:
        return self.sums[-1]

    def sample(self, count: int, rng: np.random.RandomState, given: Sequence[int] = ()) -> list[int]:
        """Draw until there are `count` distinct items, those `given` included, in the order drawn."""
        chosen = list(given)
        taken = sorted(chosen)
        while len(chosen) < count:
            uniform = rng.random_sample()
            if self.are_equal:
                drawn = self._nth_free(int(uniform * (len(self.weights) - len(taken))), taken)
            elif taken:
                drawn = self._draw_from_rest(uniform, frozenset(taken))
            else:
                drawn = self._draw(uniform)
            chosen.append(drawn)
            insort(taken, drawn)
        return chosen

    @staticmethod
    def _nth_free(position: int, taken: Sequence[int]) -> int:
        """Return the item at a position among those not taken; `taken` rises."""
        for item in taken:
            if item > position:
                break
            position += 1
        return position

    def _draw(self, uniform: float) -> int:
        drawn = bisect_right(self.sums, uniform * self.total)
        return drawn if drawn < len(self.weights) else self._last_with_weight(frozenset())

    def _draw_from_rest(self, uniform: float, taken: frozenset[int]) -> int:
        """Walk the items that are left, in order; their weights are summed afresh, however small they are."""
        rest = [item for item in range(len(self.weights)) if item not in taken]
        remaining = 0.0
        for item in rest:  # `sum` rounds otherwise from Python 3.12 on
            remaining += self.weights[item]
        target = uniform * remaining
        passed = 0.0
        for item in rest:
            passed += self.weights[item]
            if target < passed:
                return item
        return self._last_with_weight(taken)

    def _last_with_weight(self, taken: frozenset[int]) -> int:
        """Return the last item left that has a weight, or just the first left: where rounding passed the end."""
        rest = [item for item in range(len(self.weights)) if item not in taken]
        return next((item for item in reversed(rest) if self.weights[item] > 0.0), rest[0])


class TableSelector(ABC):
    """Chooses the tables of a transaction."""

    @abstractmethod
    def select(self, n_tables: int, total_tables: int, rng: np.random.RandomState) -> Selection:
        """Return (tables read, tables written); the written ones are among the read."""


class PartitionSelector(ABC):
    """Chooses the partitions that a transaction touches in one table."""

    @abstractmethod
    def select(self, n_partitions: int, total_partitions: int, rng: np.random.RandomState) -> Selection:
        """Return (partitions read, partitions written); the written ones are among the read."""


class _Weighted(ABC):
    """Selection by weight; of what is selected, the first drawn are written."""

    def __init__(self, write_fraction: float = 1.0) -> None:
        self.write_fraction = write_fraction
        self._draws: dict[int, WeightedDraw] = {}
        self._grouping: tuple[int, ...] = ()
        self._members: list[list[int]] = []
        self._member_draws: list[WeightedDraw] = []

    @abstractmethod
    def weights(self, total: int) -> Sequence[float]:
        """Return the weights of `total` items."""

    def _select(self, count: int, total: int, rng: np.random.RandomState) -> Selection:
        if not 1 <= count <= total:
            raise ValueError(f"cannot select {count} of {total}")
        return self._split(self._draw(total).sample(count, rng))

    def select_within_group(self, count: int, groups: tuple[int, ...], rng: np.random.RandomState) -> Selection:
        """Select among all items first, then among the rest of that item's group; `groups` gives each item's."""
        first = self._draw(len(groups)).sample(1, rng)[0]
        self._learn_groups(groups)
        group = self._members[groups[first]]
        if count > len(group):
            raise ValueError(f"cannot select {count} of the {len(group)} in a group")
        chosen = self._member_draws[groups[first]].sample(count, rng, [group.index(first)])
        return self._split([group[position] for position in chosen])

    def _split(self, chosen: list[int]) -> Selection:
        return frozenset(chosen), frozenset(chosen[: written_count(self.write_fraction, len(chosen))])

    def _draw(self, total: int) -> WeightedDraw:
        draw = self._draws.get(total)
        if draw is None:
            draw = self._draws[total] = WeightedDraw(self.weights(total))
        return draw

    def _learn_groups(self, groups: tuple[int, ...]) -> None:
        if groups is self._grouping:
            return
        weights = self.weights(len(groups))
        self._grouping = groups
        self._members = [[] for _ in range(max(groups) + 1)]
        for item, group in enumerate(groups):
            self._members[group].append(item)
        self._member_draws = [WeightedDraw([weights[item] for item in group]) for group in self._members]


class _Uniform(_Weighted):
    def weights(self, total: int) -> Sequence[float]:
        return (1.0,) * total


class _Zipf(_Weighted):
    def __init__(self, alpha: float = 1.5, write_fraction: float = 1.0) -> None:
        super().__init__(write_fraction)
        self.alpha = alpha

    def weights(self, total: int) -> Sequence[float]:
        return zipf_pmf(self.alpha, total)


class _WeightedTables(_Weighted, TableSelector):
    def select(self, n_tables: int, total_tables: int, rng: np.random.RandomState) -> Selection:
        return self._select(n_tables, total_tables, rng)


class _WeightedPartitions(_Weighted, PartitionSelector):
    def select(self, n_partitions: int, total_partitions: int, rng: np.random.RandomState) -> Selection:
        return self._select(n_partitions, total_partitions, rng)


class UniformTableSelector(_Uniform, _WeightedTables):
    """Every table alike."""


class ZipfTableSelector(_Zipf, _WeightedTables):
    """Table k (from 1) with a probability proportional to 1/k^alpha."""


class UniformPartitionSelector(_Uniform, _WeightedPartitions):
    """Every partition alike."""


class ZipfPartitionSelector(_Zipf, _WeightedPartitions):
    """Partition k (from 1) with a probability proportional to 1/k^alpha."""


@dataclass(frozen=True)
class WorkloadConfig:
    """One stream of transactions and the topology that it writes to. Durations in milliseconds.

    `partitions_per_txn` None: partitions are not tracked. `operations` replaces the three weights by pairs
    of (costs, weight). `clients` above 0 closes the stream: each client submits, waits for the end, thinks
    for an `inter_arrival`, and submits again. `groups` gives each table's group; no transaction leaves one.
    """

    inter_arrival: LatencyDistribution
    runtime: LatencyDistribution
    num_tables: int
    partitions_per_table: tuple[int, ...]

    fast_append_weight: float = 0.7
    merge_append_weight: float = 0.2
    validated_overwrite_weight: float = 0.1

    tables_per_txn: int = 1
    table_selector: TableSelector | None = None
    partitions_per_txn: int | None = None
    partition_selector: PartitionSelector | None = None

    manifests_per_concurrent_commit: float = 1.5
    validation_manifests_per_commit: float = 0.0
    operations: tuple[tuple[OperationCosts, float], ...] | None = None
    name: str = ""
    clients: int = 0
    groups: tuple[int, ...] | None = None

    def weighted_operations(self) -> tuple[tuple[OperationCosts, float], ...]:
        """Return the operation types with their weights, as given (not normalized)."""
        if self.operations is not None:
            return self.operations
        return (
            (FAST_APPEND, self.fast_append_weight),
            (merge_append_costs(self.manifests_per_concurrent_commit), self.merge_append_weight),
            (validated_overwrite_costs(self.validation_manifests_per_commit), self.validated_overwrite_weight),
        )


class Workload:
    """A stream of transactions, drawn from substreams of `seed` (None: a seed of its own)."""

    def __init__(self, config: WorkloadConfig, seed: int | None = None) -> None:
        self.config = config
        self._seed = secrets.randbits(63) if seed is None else seed
        if len(config.partitions_per_table) != config.num_tables:
            raise ValueError(f"{len(config.partitions_per_table)} partition counts for {config.num_tables} tables")
        operations = config.weighted_operations()
        for costs, weight in operations:
            if not 0.0 <= weight < math.inf:
                raise ValueError(f"the weight of {costs.name} is {weight}; allowed is a number of 0 or more")
        self._operations = [costs for costs, _ in operations]
        self._operation_draw = WeightedDraw([weight for _, weight in operations])
        if not self._operation_draw.total > 0.0:
            raise ValueError("operation weights sum to zero; at least one must be positive")
        self._table_selector = config.table_selector or UniformTableSelector()
        self._partition_selector = config.partition_selector or UniformPartitionSelector()

    @property
    def streams(self) -> tuple[Workload, ...]:
        """The streams that arrive independently of each other: a plain workload is one."""
        return (self,)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def clients(self) -> int:
        """How many clients a closed stream has; 0 for an open one."""
        return self.config.clients

    def bind(self, seed: int) -> Self:
        """Return this workload drawn from substreams of `seed`."""
        view = self.__class__.__new__(self.__class__)
        view.__dict__.update(self.__dict__)
        view._seed = seed
        return view

    def generate(self, client: int = 0) -> Generator[tuple[float, Transaction], None, None]:
        """Yield (delay before submission in milliseconds, transaction) without end."""
        config = self.config
        arrivals = new_random_state()
        self._family(Source.ARRIVAL, client).seek(arrivals, 0)
        runtimes = self._family(Source.RUNTIME, client)
        operations = self._family(Source.OPERATION, client)
        tables = self._family(Source.TABLES, client)
        partitions = self._family(Source.PARTITIONS, client)
        rng = new_random_state()
        submit_time_ms = 0.0
        for index in itertools.count():
            delay_ms = config.inter_arrival.sample(arrivals)
            submit_time_ms += delay_ms
            runtimes.seek(rng, index)
            runtime_ms = config.runtime.sample(rng)
            operations.seek(rng, index)
            costs = self._operations[self._operation_draw.sample(1, rng)[0]]
            tables.seek(rng, index)
            tables_read, tables_written = self._select_tables(rng)
            partitions.seek(rng, index)
            partitions_read, partitions_written = self._select_partitions(rng, tables_read, tables_written)
            txn = _TRANSACTION_TYPES.get(costs.name, CostedTransaction)(
                index + 1,
                submit_time_ms,
                runtime_ms,
                tables_written,
                partitions_written,
                tables_read=tables_read,
                partitions_read=partitions_read,
                stream=config.name,
                costs=costs,
            )
            yield delay_ms, txn

    def _family(self, source: Source, client: int) -> SubstreamFamily:
        return SubstreamFamily(self._seed, source, self.config.name, client)

    def _select_tables(self, rng: np.random.RandomState) -> Selection:
        config, selector = self.config, self._table_selector
        if config.groups is None:
            return selector.select(config.tables_per_txn, config.num_tables, rng)
        if not isinstance(selector, _Weighted):
            raise TypeError(f"{type(selector).__name__} cannot select within table groups")
        return selector.select_within_group(config.tables_per_txn, config.groups, rng)

    def _select_partitions(
        self, rng: np.random.RandomState, tables_read: frozenset[int], tables_written: frozenset[int]
    ) -> tuple[dict[int, frozenset[int]] | None, dict[int, frozenset[int]] | None]:
        count = self.config.partitions_per_txn
        if count is None:
            return None, None
        read: dict[int, frozenset[int]] = {}
        written: dict[int, frozenset[int]] = {}
        for table_id in sorted(tables_read):
            total = self.config.partitions_per_table[table_id]
            read[table_id], chosen = self._partition_selector.select(count, total, rng)
            if table_id in tables_written:
                written[table_id] = chosen
        return read, written


class MixedWorkload(Workload):
    """Several named streams over one catalog."""

    def __init__(self, streams: Sequence[Workload]) -> None:
        if len({stream.name for stream in streams}) < len(streams):
            raise ValueError("streams must have names of their own")
        self._streams = tuple(streams)

    @property
    def streams(self) -> tuple[Workload, ...]:
        return self._streams

    def bind(self, seed: int) -> Self:
        return self.__class__([stream.bind(seed) for stream in self._streams])

    def generate(self, client: int = 0) -> Generator[tuple[float, Transaction], None, None]:
        """Yield the merged arrivals of open streams."""
        if any(stream.clients for stream in self._streams):
            raise ValueError("a closed stream has no arrivals of its own; run it in a simulation")
        waiting = []
        for order, stream in enumerate(self._streams):
            source = stream.generate()
            delay_ms, txn = next(source)
            waiting.append((delay_ms, order, txn, source))
        heapq.heapify(waiting)
        now_ms = 0.0
        for txn_id in itertools.count(1):
            arrival_ms, order, txn, source = waiting[0]
            delay_ms, upcoming = next(source)
            heapq.heapreplace(waiting, (arrival_ms + delay_ms, order, upcoming, source))
            txn.txn_id = txn_id
            yield arrival_ms - now_ms, txn
            now_ms = arrival_ms
