"""What an arriving transaction does: its runtime, operation type, tables and partitions."""

from __future__ import annotations

from typing import Any

from endive.engine import arrays
from endive.engine.jit import called, spliced
from endive.engine.latency import sample
from endive.engine.random import seek, uniform


@spliced
def _nth_free(position: int, taken: Any, taken_count: int) -> int:
    for place in range(taken_count):
        if taken[place] > position:
            break
        position += 1
    return position


@spliced
def _last_with_weight(weights: Any, offset: int, count: int, taken: Any, taken_count: int) -> int:
    first_left = -1
    for item in range(count - 1, -1, -1):
        if taken_count > 0 and taken[taken_count - 1] == item:
            taken_count -= 1
            continue
        if weights[offset + item] > 0.0:
            return item
        first_left = item
    return first_left


@spliced
def _draw_first(weights: Any, sums: Any, offset: int, count: int, taken: Any, drawn: float) -> int:
    target = drawn * sums[offset + count - 1]
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if target < sums[offset + middle]:
            high = middle
        else:
            low = middle + 1
    return low if low < count else _last_with_weight(weights, offset, count, taken, 0)


@spliced
def _draw_from_rest(weights: Any, offset: int, count: int, taken: Any, taken_count: int, drawn: float) -> int:
    remaining = 0.0
    passed_taken = 0
    for item in range(count):
        if passed_taken < taken_count and taken[passed_taken] == item:
            passed_taken += 1
        else:
            remaining += weights[offset + item]
    target = drawn * remaining
    passed = 0.0
    passed_taken = 0
    for item in range(count):
        if passed_taken < taken_count and taken[passed_taken] == item:
            passed_taken += 1
            continue
        passed += weights[offset + item]
        if target < passed:
            return item
    return _last_with_weight(weights, offset, count, taken, taken_count)


@called
def choose(run: Any, choice_place: int, rng: Any, wanted: int, chosen_count: int) -> None:
    """Draw until `wanted` distinct items are in `scratch[0]`, in the order drawn; `chosen_count` are there already."""
    choice = arrays.choices(run)[choice_place]
    offset, count = choice.offset, choice.count
    chosen, taken = arrays.scratch(run)[0], arrays.scratch(run)[1]
    for place in range(chosen_count):
        taken[place] = chosen[place]
    while chosen_count < wanted:
        drawn = uniform(rng)
        if choice.is_equal:
            item = _nth_free(int(drawn * (count - chosen_count)), taken, chosen_count)
        elif chosen_count > 0:
            item = _draw_from_rest(arrays.weights(run), offset, count, taken, chosen_count, drawn)
        else:
            item = _draw_first(arrays.weights(run), arrays.sums(run), offset, count, taken, drawn)
        chosen[chosen_count] = item
        at = chosen_count
        while at > 0 and taken[at - 1] > item:
            taken[at] = taken[at - 1]
            at -= 1
        taken[at] = item
        chosen_count += 1


@spliced
def _choose_tables(run: Any, stream: Any, rng: Any) -> None:
    """Leave the tables of a transaction in `scratch[0]`, in the order drawn."""
    if not stream.is_grouped:
        choose(run, stream.table_choice, rng, stream.tables_per_txn, 0)
        return
    choose(run, stream.table_choice, rng, 1, 0)
    chosen, groups, base = arrays.scratch(run)[0], arrays.workload_groups(run), stream.group_tables
    group, position = groups[base + chosen[0], 0], groups[base + chosen[0], 1]
    chosen[0] = position
    members = arrays.group_members(run)[stream.group_members + group]
    choose(run, members[1], rng, stream.tables_per_txn, 1)
    for place in range(stream.tables_per_txn):
        chosen[place] = groups[base + members[0] + chosen[place], 2]


@called
def select(run: Any, slot_place: int, stream: Any, source: Any, index: int) -> None:
    """Give a slot the operation type, tables and partitions of transaction `index` of a source."""
    slot, rng, chosen = arrays.slots(run)[slot_place], arrays.scratch_rng(run)[0], arrays.scratch(run)[0]
    operation = 0
    if arrays.choices(run)[stream.operation_choice].count > 1:
        seek(rng, source.operation_base, index)
        choose(run, stream.operation_choice, rng, 1, 0)
        operation = chosen[0]
    slot.costs = stream.operation_offset + operation

    if arrays.table_versions(run).size > 1:
        seek(rng, source.tables_base, index)
        _choose_tables(run, stream, rng)
    else:
        chosen[0] = 0
    slot.touched = stream.tables_per_txn
    touched = arrays.touched(run)[slot_place]
    for drawn in range(stream.tables_per_txn):
        table = chosen[drawn]
        at = drawn
        while at > 0 and touched[at - 1].table > table:
            touched[at].table = touched[at - 1].table
            touched[at].is_written = touched[at - 1].is_written
            at -= 1
        touched[at].table = table
        touched[at].is_written = drawn < stream.tables_written

    slot.is_tracked = stream.partitions_per_txn > 0
    slot.parts = stream.partitions_per_txn
    slot.lists = slot.parts if run.list_per_partition else 1
    if slot.is_tracked:
        _select_partitions(run, slot_place, stream, source, index)


@spliced
def _select_partitions(run: Any, slot_place: int, stream: Any, source: Any, index: int) -> None:
    slot, rng, chosen = arrays.slots(run)[slot_place], arrays.scratch_rng(run)[0], arrays.scratch(run)[0]
    if stream.draws_partitions:
        seek(rng, source.partitions_base, index)
    for place in range(slot.touched):
        if stream.draws_partitions:
            table = arrays.touched(run)[slot_place, place].table
            choice = arrays.partition_choices(run)[stream.partition_choices + table]
            choose(run, choice, rng, stream.partitions_per_txn, 0)
        else:
            chosen[0] = 0
        parts = arrays.parts(run)[slot_place, place]
        for drawn in range(stream.partitions_per_txn):
            at = drawn
            while at > 0 and parts[at - 1].partition > chosen[drawn]:
                parts[at].partition = parts[at - 1].partition
                parts[at].is_written = parts[at - 1].is_written
                at -= 1
            parts[at].partition = chosen[drawn]
            parts[at].is_written = drawn < stream.partitions_written


@spliced
def draw_runtime(run: Any, stream: Any, source: Any, index: int) -> float:
    """Draw the runtime of transaction `index` of a source."""
    rng = arrays.scratch_rng(run)[0]
    seek(rng, source.runtime_base, index)
    return sample(arrays.latencies(run)[stream.runtime], arrays.quantiles(run), rng, 0)
