"""Arrivals, operation types, tables and partitions are drawn as configured."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from endive.catalog import assign_groups
from endive.random_streams import Source, SubstreamFamily, new_random_state
from endive.storage import ExponentialLatency, FixedLatency, LognormalLatency
from endive.transaction import (
    FastAppendTransaction,
    MergeAppendTransaction,
    OperationCosts,
    Transaction,
    ValidatedOverwriteTransaction,
)
from endive.workload import (
    MixedWorkload,
    UniformPartitionSelector,
    UniformTableSelector,
    WeightedDraw,
    Workload,
    WorkloadConfig,
    ZipfPartitionSelector,
    ZipfTableSelector,
    written_count,
    zipf_pmf,
)

CONFIG = WorkloadConfig(ExponentialLatency(100.0), FixedLatency(50.0), num_tables=4, partitions_per_table=(8, 8, 8, 8))
COUNT = 20_000


def take(workload: Workload, count: int, client: int = 0) -> list[tuple[float, Transaction]]:
    return list(itertools.islice(workload.generate(client), count))


def assert_frequencies(observed: Counter[object], expected: dict[object, float]) -> None:
    total = observed.total()
    assert set(observed) <= set(expected)
    counts = [observed[item] for item in expected]
    assert stats.chisquare(counts, [share * total for share in expected.values()]).pvalue > 1e-4


def test_exponential_arrivals_are_a_poisson_process() -> None:
    delays = [delay for delay, _ in take(Workload(CONFIG, seed=5), COUNT)]
    assert np.mean(delays) == pytest.approx(100.0, abs=4 * 100.0 / math.sqrt(COUNT))
    assert stats.kstest(delays, "expon", args=(0, 100.0)).pvalue > 1e-4
    per_window = np.bincount((np.cumsum(delays) // 1000.0).astype(int))[:-1]
    dispersion = per_window.var(ddof=1) / per_window.mean()
    assert dispersion == pytest.approx(1.0, abs=4 * math.sqrt(2 / len(per_window)))
    assert abs(np.corrcoef(delays[:-1], delays[1:])[0, 1]) < 4 / math.sqrt(COUNT)


def test_transactions_are_numbered_and_timed_by_arrival() -> None:
    generated = take(Workload(CONFIG, seed=5), 100)
    assert [txn.txn_id for _, txn in generated] == list(range(1, 101))
    clock = 0.0
    for delay, txn in generated:
        clock += delay
        assert txn.submit_time_ms == clock


def test_operation_types_have_their_weights_whatever_the_scale() -> None:
    weights = {FastAppendTransaction: 7.0, MergeAppendTransaction: 2.0, ValidatedOverwriteTransaction: 1.0}
    config = replace(CONFIG, fast_append_weight=7.0, merge_append_weight=2.0, validated_overwrite_weight=1.0)
    observed = Counter(type(txn) for _, txn in take(Workload(config, seed=1), COUNT))
    assert_frequencies(observed, {kind: weight / 10.0 for kind, weight in weights.items()})


def test_a_weight_of_zero_is_never_drawn() -> None:
    config = replace(CONFIG, fast_append_weight=0.0, merge_append_weight=1.0, validated_overwrite_weight=0.0)
    assert {txn.operation_type for _, txn in take(Workload(config, seed=1), 2000)} == {"merge_append"}


def test_weights_that_sum_to_zero_are_refused() -> None:
    config = replace(CONFIG, fast_append_weight=0.0, merge_append_weight=0.0, validated_overwrite_weight=0.0)
    with pytest.raises(ValueError, match="sum to zero"):
        Workload(config, seed=1)


def test_zipf_pmf_is_the_specified_one() -> None:
    harmonic = sum(1 / rank**1.5 for rank in range(1, 6))
    assert zipf_pmf(1.5, 5) == pytest.approx([1 / rank**1.5 / harmonic for rank in range(1, 6)])
    assert zipf_pmf(0.0, 4) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (UniformTableSelector(), [0.2] * 5),
        (ZipfTableSelector(alpha=1.5), zipf_pmf(1.5, 5)),
        (UniformPartitionSelector(), [0.2] * 5),
        (ZipfPartitionSelector(alpha=0.8), zipf_pmf(0.8, 5)),
    ],
)
def test_single_selections_match_the_pmf(selector: object, expected: list[float]) -> None:
    rng = np.random.RandomState(3)
    observed: Counter[object] = Counter()
    for _ in range(COUNT):
        read, written = selector.select(1, 5, rng)
        assert read == written
        observed.update(read)
    assert_frequencies(observed, dict(enumerate(expected)))


def test_selection_without_replacement_renormalizes_the_rest() -> None:
    """P(a then b) = p_a * p_b / (1 - p_a), for ordered pairs."""
    shares = zipf_pmf(1.2, 4)
    draw, rng = WeightedDraw(shares), np.random.RandomState(11)
    observed = Counter(tuple(draw.sample(2, rng)) for _ in range(COUNT))
    expected = {
        (first, second): shares[first] * shares[second] / (1 - shares[first])
        for first, second in itertools.permutations(range(4), 2)
    }
    assert_frequencies(observed, expected)


@pytest.mark.parametrize("total", [1, 2, 7, 50])
def test_selecting_all_selects_each_once(total: int) -> None:
    for selector in (UniformTableSelector(), ZipfTableSelector(alpha=3.0)):
        read, written = selector.select(total, total, np.random.RandomState(total))
        assert read == written == frozenset(range(total))


@pytest.mark.parametrize("alpha", [8.0, 23.5, 60.0, 100.0])
def test_however_skewed_the_weights_each_item_is_drawn_once(alpha: float) -> None:
    rng = np.random.RandomState(7)
    for total in (5, 100, 400):
        for count in (2, 5):
            read, _ = ZipfTableSelector(alpha).select(count, total, rng)
            assert len(read) == count
            assert read <= set(range(total))


def test_tiny_weights_keep_their_proportions() -> None:
    """Once the heavy item is drawn, the others count against each other, however small they are."""
    draw, rng = WeightedDraw([1.0, 3e-30, 1e-30]), np.random.RandomState(3)
    seconds = Counter(draw.sample(2, rng)[1] for _ in range(4000))
    assert_frequencies(seconds, {1: 0.75, 2: 0.25})


class ScriptedUniform:
    """Stands in for a RandomState whose uniforms are known."""

    def __init__(self, *uniforms: float) -> None:
        self._uniforms = iter(uniforms)

    def random_sample(self) -> float:
        return next(self._uniforms)


@pytest.mark.parametrize(
    ("uniforms", "expected"),
    [
        ((0.0, 0.0, 0.0), [0, 1, 2]),
        ((0.999, 0.999, 0.999), [3, 2, 1]),
        ((0.25, 0.34, 0.5), [1, 2, 3]),  # of {0,2,3} the second third begins at 2; of {0,3} the second half is 3
        ((0.5, 0.66, 0.0), [2, 1, 0]),
    ],
)
def test_inverse_cdf_walks_the_items_that_are_left(uniforms: tuple[float, ...], expected: list[int]) -> None:
    assert WeightedDraw([1.0] * 4).sample(3, ScriptedUniform(*uniforms)) == expected


@pytest.mark.parametrize(
    ("fraction", "selected", "written"),
    [(1.0, 3, 3), (0.5, 4, 2), (0.1, 3, 1), (0.3, 5, 2), (0.3, 4, 1), (0.4, 4, 2), (0.7, 1, 1)],
)
def test_written_share(fraction: float, selected: int, written: int) -> None:
    assert written_count(fraction, selected) == written
    read, chosen = UniformTableSelector(write_fraction=fraction).select(selected, 10, np.random.RandomState(2))
    assert len(read) == selected
    assert len(chosen) == written
    assert chosen <= read


@pytest.mark.parametrize("kind", [ZipfTableSelector, ZipfPartitionSelector])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_first_drawn_are_the_ones_written(kind: type[ZipfTableSelector], grouped: bool) -> None:
    """Of two drawn one is written: a with b only read has P(a then b), which is not P(b then a)."""
    selector, rng, shares = kind(1.2, write_fraction=0.5), np.random.RandomState(12), zipf_pmf(1.2, 4)
    observed: Counter[object] = Counter()
    for _ in range(COUNT):
        read, written = selector.select_within_group(2, (0,) * 4, rng) if grouped else selector.select(2, 4, rng)
        observed[(*written, *(read - written))] += 1
    expected = {
        (first, second): shares[first] * shares[second] / (1 - shares[first])
        for first, second in itertools.permutations(range(4), 2)
    }
    assert_frequencies(observed, expected)


def test_partitions_are_chosen_within_each_table() -> None:
    config = replace(CONFIG, partitions_per_table=(2, 3, 4, 5), tables_per_txn=3, partitions_per_txn=2)
    for _, txn in take(Workload(config, seed=9), 500):
        assert set(txn.partitions_written) == set(txn.tables_written)
        for table, partitions in txn.partitions_written.items():
            assert len(partitions) == 2
            assert partitions <= set(range(config.partitions_per_table[table]))


def test_untracked_partitions_are_none() -> None:
    assert all(txn.partitions_written is None for _, txn in take(Workload(CONFIG, seed=9), 10))


def test_sweeping_one_source_leaves_the_others_as_they_were() -> None:
    base = take(Workload(CONFIG, seed=3), 300)
    variants = {
        "arrivals": replace(CONFIG, inter_arrival=LognormalLatency.from_median(9.0, 1.0)),
        "runtime": replace(CONFIG, runtime=LognormalLatency.from_median(9.0, 1.0)),
        "operation": replace(CONFIG, fast_append_weight=0.1),
        "tables": replace(CONFIG, table_selector=ZipfTableSelector(3.0), tables_per_txn=2),
        "partitions": replace(CONFIG, partitions_per_txn=3),
    }
    for varied, config in variants.items():
        other = take(Workload(config, seed=3), 300)
        same = {
            "arrivals": [delay for delay, _ in base] == [delay for delay, _ in other],
            "runtime": [txn.runtime_ms for _, txn in base] == [txn.runtime_ms for _, txn in other],
            "operation": [txn.operation_type for _, txn in base] == [txn.operation_type for _, txn in other],
            "tables": [txn.tables_written for _, txn in base] == [txn.tables_written for _, txn in other],
            "partitions": [txn.partitions_written for _, txn in base] == [txn.partitions_written for _, txn in other],
        }
        assert [source for source, equal in same.items() if not equal] == [varied]


def test_each_source_draws_from_its_own_substream() -> None:
    """What decision 0001 lists, drawn here from the named substreams without the workload."""
    config = replace(CONFIG, runtime=ExponentialLatency(9.0), partitions_per_txn=1, name="ingest")
    rng = new_random_state()

    def uniform(source: Source, index: int) -> float:
        SubstreamFamily(3, source, "ingest", 2).seek(rng, index)
        return rng.random_sample()

    for index, (_, txn) in enumerate(take(Workload(config, seed=3), 200, client=2)):
        table = int(uniform(Source.TABLES, index) * 4)
        operation = uniform(Source.OPERATION, index)
        assert txn.runtime_ms == pytest.approx(-9.0 * math.log(1.0 - uniform(Source.RUNTIME, index)))
        assert txn.operation_type == (
            "fast_append" if operation < 0.7 else "merge_append" if operation < 0.9 else "validated_overwrite"
        )
        assert txn.tables_written == {table}
        assert txn.partitions_written == {table: {int(uniform(Source.PARTITIONS, index) * 8)}}


def test_seed_and_name_and_client_each_give_other_draws() -> None:
    def arrivals(config: WorkloadConfig, seed: int, client: int = 0) -> tuple[float, ...]:
        return tuple(delay for delay, _ in take(Workload(config, seed), 5, client))

    named = replace(CONFIG, name="ingest")
    assert arrivals(CONFIG, 1) == arrivals(CONFIG, 1)
    assert len({arrivals(CONFIG, 1), arrivals(CONFIG, 2), arrivals(named, 1), arrivals(named, 1, client=1)}) == 4


def test_groups_are_a_dealt_permutation() -> None:
    for num_groups in (1, 2, 3, 7):
        groups = assign_groups(7, num_groups, group_seed=5)
        sizes = Counter(groups)
        assert set(groups) == set(range(num_groups))
        assert max(sizes.values()) - min(sizes.values()) <= 1
        assert groups == assign_groups(7, num_groups, group_seed=5)
    assert sorted(assign_groups(7, 7)) == list(range(7))
    places = assign_groups(20, 20, group_seed=5)
    for num_groups in (2, 3, 7):
        assert assign_groups(20, num_groups, group_seed=5) == tuple(place % num_groups for place in places)
    assert len({assign_groups(20, 4, group_seed=seed) for seed in range(10)}) == 10


def test_no_transaction_leaves_its_group_and_the_first_table_picks_it() -> None:
    groups = (0, 1, 0, 1, 0, 1)
    config = replace(
        CONFIG,
        num_tables=6,
        partitions_per_table=(1,) * 6,
        tables_per_txn=2,
        groups=groups,
        table_selector=ZipfTableSelector(1.0),
    )
    first_draws: Counter[object] = Counter()
    for _, txn in take(Workload(config, seed=4), COUNT):
        touched = {groups[table] for table in txn.tables_read}
        assert len(touched) == 1
        first_draws.update(touched)
    pmf = zipf_pmf(1.0, 6)
    assert_frequencies(first_draws, {0: pmf[0] + pmf[2] + pmf[4], 1: pmf[1] + pmf[3] + pmf[5]})


def test_mixed_streams_arrive_merged_and_keep_their_draws() -> None:
    fast = Workload(replace(CONFIG, name="fast", inter_arrival=FixedLatency(30.0)), seed=1)
    slow = Workload(replace(CONFIG, name="slow", inter_arrival=FixedLatency(90.0)), seed=1)
    merged = take(MixedWorkload([slow, fast]), 8)
    arrivals = list(itertools.accumulate(delay for delay, _ in merged))
    names = [txn.stream for _, txn in merged]
    assert arrivals == [30.0, 60.0, 90.0, 90.0, 120.0, 150.0, 180.0, 180.0]
    assert names == ["fast", "fast", "slow", "fast", "fast", "fast", "slow", "fast"]
    assert [txn.txn_id for _, txn in merged] == list(range(1, 9))
    alone = [txn.operation_type for _, txn in take(fast, 6)]
    assert [txn.operation_type for _, txn in merged if txn.stream == "fast"] == alone


def test_streams_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="names of their own"):
        MixedWorkload([Workload(CONFIG, seed=1), Workload(CONFIG, seed=1)])


def test_named_operation_types_carry_their_costs() -> None:
    costs = OperationCosts("rewrite_files", can_conflict=True)
    workload = Workload(replace(CONFIG, operations=((costs, 1.0),)), seed=1)
    _, txn = take(workload, 1)[0]
    assert txn.operation_type == "rewrite_files"
    assert txn.can_have_real_conflict()


def test_a_workload_without_a_seed_draws_one() -> None:
    assert take(Workload(CONFIG), 3)[0][0] != take(Workload(CONFIG), 3)[0][0]


def test_new_random_state_is_of_the_kind_substreams_need() -> None:
    assert new_random_state().get_state(legacy=False)["bit_generator"] == "SFC64"
