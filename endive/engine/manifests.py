"""The manifest work of an attempt, table by table, and the appended lists (ML+) that it meets.

Work that meets no shared state passes at once. Where a list's end is learnt or changed, `prepare` stops for an event
and is called again after it.
"""

from __future__ import annotations

from typing import Any

from endive.engine import arrays
from endive.engine.jit import called, inlined, spliced
from endive.engine.latency import sample, spend, spend_batches, spend_sample
from endive.engine.layout import Operation, Stage, Time, Waiting


@spliced
def _list_place(run: Any, slot_place: int, place: int, at: int) -> int:
    """Return the place among all lists of the `at`-th part of a touched table, or of the table's own."""
    table = arrays.touched(run)[slot_place, place].table
    if run.list_per_partition:
        return arrays.partition_offsets(run)[table] + arrays.parts(run)[slot_place, place, at].partition
    return table


@spliced
def _list_bytes(run: Any, slot_place: int, place: int, at: int) -> int:
    if run.list_per_partition and at >= 0:
        return run.list_bytes + run.list_growth * arrays.parts(run)[slot_place, place, at].version
    return run.list_bytes + run.list_growth * arrays.touched(run)[slot_place, place].version


@spliced
def _has_list(run: Any, slot_place: int, place: int, at: int) -> bool:
    """Return whether this attempt works on a list."""
    slot = arrays.slots(run)[slot_place]
    if not run.list_per_partition:
        return True
    part = arrays.parts(run)[slot_place, place, at]
    if not part.is_written:
        return False
    return not slot.is_redone or run.overlaps_by_table != 0 or part.behind != 0


@spliced
def _repeat(run: Any, slot: Any, rng: Any, operation: int, component: int, count: int, size_bytes: int) -> None:
    for _ in range(count):
        spend_sample(run, slot, rng, operation, component, size_bytes)


@inlined
def work_on_files(
    run: Any, slot_place: int, component: int, list_bytes: int, history: int, file_reads: int, file_writes: int
) -> None:
    """Read historical lists, then manifest files, then write manifest files: each kind in batches."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    latencies, quantiles = arrays.latencies(run), arrays.quantiles(run)
    run.draws += history + file_reads + file_writes
    spend_batches(run, slot, rng, latencies[Operation.LIST_READ], quantiles, component, history, list_bytes)
    spend_batches(run, slot, rng, latencies[Operation.FILE_READ], quantiles, component, file_reads, 0)
    spend_batches(run, slot, rng, latencies[Operation.FILE_WRITE], quantiles, component, file_writes, 0)
    slot.manifest_list_reads += history
    slot.historical_ml_reads += history
    slot.manifest_file_reads += file_reads
    slot.manifest_file_writes += file_writes


@spliced
def begin_attempt(slot: Any, is_redone: bool, is_merged: bool, keeps_entries: bool) -> None:
    """Start the manifest work of an attempt at its first table."""
    slot.is_redone = is_redone
    slot.is_merged = is_merged
    slot.keeps_entries = keeps_entries
    slot.table = 0
    slot.stage = Stage.BEGIN


@inlined
def prepare(run: Any, slot_place: int) -> bool:
    """Go on with the manifest work of an attempt; return whether it is done, or stopped for an event."""
    slot = arrays.slots(run)[slot_place]
    while slot.table < slot.touched:
        touched = arrays.touched(run)[slot_place, slot.table]
        if touched.is_written and (not slot.is_redone or touched.overlaps):
            if slot.stage == Stage.BEGIN:
                _begin_table(run, slot_place)
            if slot.stage == Stage.LISTS and not _read_lists(run, slot_place):
                return False
            if slot.stage == Stage.FILES:
                _work_on_table(run, slot_place)
            if slot.stage == Stage.ENTRIES and not _write_lists(run, slot_place):
                return False
            _end_table(run, slot_place)
        slot.table += 1
        slot.stage = Stage.BEGIN
    return True


@spliced
def _begin_table(run: Any, slot_place: int) -> None:
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    costs = arrays.costs(run)[slot.costs]
    if slot.is_merged and run.appends_to_lists:
        _supersede_entries(run, slot_place)
    reads = costs.redone_metadata_reads if slot.is_redone else costs.first_metadata_reads
    if slot.is_redone and not run.is_inlined and not slot.keeps_entries:
        reads += 1
    _repeat(run, slot, rng, Operation.METADATA_READ, Time.PER_ATTEMPT_IO, reads, 0)
    slot.metadata_reads += reads
    writes = costs.redone_list_writes if slot.is_redone else costs.first_list_writes
    slot.entries = writes if run.appends_to_lists and not slot.keeps_entries else 0
    slot.list = 0
    slot.entry = 0
    slot.stage = Stage.LISTS


@spliced
def _supersede_entries(run: Any, slot_place: int) -> None:
    """Orphan the entries that a merge replaces, if the run still goes on at that time."""
    slot = arrays.slots(run)[slot_place]
    lists = 0
    for at in range(slot.lists):
        lists += _has_list(run, slot_place, slot.table, at)
    superseded = min(slot.tentative, lists)
    slot.tentative -= superseded
    if slot.now < run.end:
        run.manifest_append_orphans += superseded


@spliced
def _read_lists(run: Any, slot_place: int) -> bool:
    """Read the lists of a table; with entries to append, stop after each for its end."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    costs = arrays.costs(run)[slot.costs]
    reads = costs.redone_list_reads if slot.is_redone else costs.first_list_reads
    while slot.list < slot.lists:
        at = slot.list
        slot.list += 1
        if _has_list(run, slot_place, slot.table, at):
            size_bytes = _list_bytes(run, slot_place, slot.table, at)
            _repeat(run, slot, rng, Operation.LIST_READ, Time.PER_ATTEMPT_IO, reads, size_bytes)
            slot.manifest_list_reads += reads
            if slot.entries > 0:
                slot.waiting = Waiting.LIST_READ
                return False
    slot.list = 0
    slot.stage = Stage.FILES
    return True


@spliced
def learn_list_end(run: Any, slot_place: int) -> None:
    """Note where the list that was just read ends."""
    slot = arrays.slots(run)[slot_place]
    _note_end(run, slot_place, slot.list - 1, _list_place(run, slot_place, slot.table, slot.list - 1))


@spliced
def _note_end(run: Any, slot_place: int, at: int, list_place: int) -> None:
    generation, offset = arrays.list_ends(run)[list_place, 0], arrays.list_ends(run)[list_place, 1]
    if run.list_per_partition:
        part = arrays.parts(run)[slot_place, arrays.slots(run)[slot_place].table, at]
        part.end_generation, part.end_offset = generation, offset
    else:
        touched = arrays.touched(run)[slot_place, arrays.slots(run)[slot_place].table]
        touched.end_generation, touched.end_offset = generation, offset


@spliced
def _known_end(run: Any, slot_place: int, at: int) -> tuple[int, int]:
    if run.list_per_partition:
        part = arrays.parts(run)[slot_place, arrays.slots(run)[slot_place].table, at]
        return part.end_generation, part.end_offset
    touched = arrays.touched(run)[slot_place, arrays.slots(run)[slot_place].table]
    return touched.end_generation, touched.end_offset


@spliced
def _work_on_table(run: Any, slot_place: int) -> None:
    slot = arrays.slots(run)[slot_place]
    costs = arrays.costs(run)[slot.costs]
    list_bytes = _list_bytes(run, slot_place, slot.table, -1)
    if slot.is_redone:
        writes = 0 if slot.keeps_entries else costs.redone_file_writes
        counts = (costs.redone_history, costs.redone_file_reads, writes)
    else:
        counts = (costs.first_history, costs.first_file_reads, costs.first_file_writes)
    work_on_files(run, slot_place, Time.PER_ATTEMPT_IO, list_bytes, counts[0], counts[1], counts[2])
    slot.stage = Stage.ENTRIES


@spliced
def _write_lists(run: Any, slot_place: int) -> bool:
    """Write the lists of a table, or append to them, stopping at each append for its outcome."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    if not run.appends_to_lists:
        costs = arrays.costs(run)[slot.costs]
        writes = costs.redone_list_writes if slot.is_redone else costs.first_list_writes
        for at in range(slot.lists):
            if _has_list(run, slot_place, slot.table, at):
                size_bytes = _list_bytes(run, slot_place, slot.table, at)
                _repeat(run, slot, rng, Operation.LIST_WRITE, Time.PER_ATTEMPT_IO, writes, size_bytes)
                slot.manifest_list_writes += writes
        return True
    while slot.entries > 0 and slot.list < slot.lists:
        if _has_list(run, slot_place, slot.table, slot.list) and slot.entry < slot.entries:
            start_append(run, slot_place)
            return False
        slot.list += 1
        slot.entry = 0
    return True


@spliced
def start_append(run: Any, slot_place: int) -> None:
    """Send an entry to the list at hand."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    run.draws += 1
    slot.taken = sample(arrays.latencies(run)[Operation.LIST_APPEND], arrays.quantiles(run), rng, 0)
    spend(slot, Time.PER_ATTEMPT_IO, slot.taken)
    slot.waiting = Waiting.LIST_APPEND


@called
def meet_list(run: Any, slot_place: int) -> bool:
    """Let an entry arrive at its list; return whether it landed. If not, the next try is on its way."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    at, list_place = slot.list, _list_place(run, slot_place, slot.table, slot.list)
    end = arrays.list_ends(run)[list_place]
    generation, offset = _known_end(run, slot_place, at)
    if not end[2] and end[0] == generation and end[1] == offset:
        end[1] += run.entry_bytes
        run.manifest_append_physical_success += 1
        if 0 < run.seal_bytes < end[1]:
            end[2] = 1
        slot.manifest_list_appends += 1
        slot.tentative += 1
        slot.entry += 1
        _note_end(run, slot_place, at, list_place)
        return True
    run.manifest_append_physical_failure += 1
    _note_end(run, slot_place, at, list_place)
    if run.list_append_fails_apart:
        failure = sample(arrays.latencies(run)[Operation.LIST_APPEND_FAILURE], arrays.quantiles(run), rng, 0)
        run.draws += 1
        if failure > slot.taken:
            spend(slot, Time.PER_ATTEMPT_IO, failure - slot.taken)
    if not end[2]:
        start_append(run, slot_place)
        return False
    size_bytes = _list_bytes(run, slot_place, slot.table, at)
    spend_sample(run, slot, rng, Operation.LIST_READ, Time.PER_ATTEMPT_IO, size_bytes)
    spend_sample(run, slot, rng, Operation.LIST_WRITE, Time.PER_ATTEMPT_IO, size_bytes)
    slot.waiting = Waiting.LIST_REWRITE
    return False


@spliced
def rewrite_list(run: Any, slot_place: int) -> None:
    """Replace a sealed list, unless somebody was faster, and send the entry again."""
    slot = arrays.slots(run)[slot_place]
    list_place = _list_place(run, slot_place, slot.table, slot.list)
    end = arrays.list_ends(run)[list_place]
    generation, _ = _known_end(run, slot_place, slot.list)
    slot.manifest_list_reads += 1
    slot.manifest_list_writes += 1
    if end[2] and end[0] == generation:
        end[0], end[1], end[2] = generation + 1, 0, 0
        run.manifest_append_sealed_rewrite += 1
    _note_end(run, slot_place, slot.list, list_place)
    start_append(run, slot_place)


@spliced
def _end_table(run: Any, slot_place: int) -> None:
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    if not run.is_inlined and not slot.keeps_entries:
        spend_sample(run, slot, rng, Operation.METADATA_WRITE, Time.PER_ATTEMPT_IO, 0)
        slot.metadata_writes += 1
