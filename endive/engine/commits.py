"""The catalog's side of a run: snapshots, preconditions, installation, the log. Decides, and draws nothing."""

from __future__ import annotations

from typing import Any

from endive.engine import arrays
from endive.engine.jit import called, inlined, spliced
from endive.engine.layout import CatalogScope


@spliced
def partition_version(run: Any, table: int, partition: int) -> int:
    """Return the version of a partition as it stands."""
    return (
        arrays.whole_bumps(run)[table]
        + arrays.partition_versions(run)[arrays.partition_offsets(run)[table] + partition]
    )


@called
def take_start_snapshot(run: Any, slot_place: int) -> None:
    """Let a transaction see the catalog for the first time in this run of it."""
    slot = arrays.slots(run)[slot_place]
    _see_pointer(run, slot)
    for place in range(slot.touched):
        touched = arrays.touched(run)[slot_place, place]
        touched.version = touched.start_version = arrays.table_versions(run)[touched.table]
        for at in range(slot.parts):
            part = arrays.parts(run)[slot_place, place, at]
            part.version = part.start_version = partition_version(run, touched.table, part.partition)


@spliced
def _see_pointer(run: Any, slot: Any) -> None:
    slot.seq = run.seq
    slot.log_offset = run.log_at
    slot.log_sealed = run.is_log_sealed


@inlined
def take_snapshot(run: Any, slot_place: int) -> tuple[int, bool]:
    """Let a transaction see the catalog again.

    Marks the written tables that overlap, and how far each table and partition had moved. Returns how many commits were
    missed, or -1 where none overlaps, and whether a written table or partition changed since the start.
    """
    slot = arrays.slots(run)[slot_place]
    overlaps, conflicts_since_start = False, False
    for place in range(slot.touched):
        touched = arrays.touched(run)[slot_place, place]
        version = arrays.table_versions(run)[touched.table]
        touched.behind = version - touched.version
        some_behind, some_since_start = False, False
        for at in range(slot.parts):
            part = arrays.parts(run)[slot_place, place, at]
            now = partition_version(run, touched.table, part.partition)
            part.behind = now - part.version
            part.version = now
            if part.is_written:
                some_behind |= part.behind != 0
                some_since_start |= now != part.start_version
        is_free = run.overlaps_by_table or not slot.is_tracked
        touched.overlaps = touched.is_written and touched.behind != 0 and (is_free or some_behind)
        overlaps |= touched.overlaps != 0
        if touched.is_written and version != touched.start_version:
            conflicts_since_start |= not slot.is_tracked or some_since_start
        touched.version = version
    missed = run.seq - slot.seq
    _see_pointer(run, slot)
    return (missed if overlaps else -1), conflicts_since_start


@spliced
def _parts_unchanged(run: Any, slot_place: int, place: int, with_read: bool) -> bool:
    table, parts = arrays.touched(run)[slot_place, place].table, arrays.slots(run)[slot_place].parts
    for at in range(parts):
        part = arrays.parts(run)[slot_place, place, at]
        if (part.is_written or with_read) and partition_version(run, table, part.partition) != part.version:
            return False
    return True


@spliced
def _precondition_holds(run: Any, slot_place: int) -> bool:
    slot = arrays.slots(run)[slot_place]
    if run.scope == CatalogScope.CATALOG:
        return run.seq == slot.seq
    for place in range(slot.touched):
        touched = arrays.touched(run)[slot_place, place]
        if run.scope == CatalogScope.GROUP:
            if touched.is_written and arrays.group_seqs(run)[arrays.catalog_groups(run)[touched.table]] > slot.seq:
                return False
        elif (touched.is_written or run.is_serializable) and arrays.table_versions(run)[
            touched.table
        ] != touched.version:
            if run.scope == CatalogScope.TABLE or not slot.is_tracked:
                return False
            if not _parts_unchanged(run, slot_place, place, run.is_serializable != 0):
                return False
    return True


@spliced
def _install(run: Any, slot_place: int) -> None:
    slot = arrays.slots(run)[slot_place]
    run.seq += 1
    for place in range(slot.touched):
        touched = arrays.touched(run)[slot_place, place]
        if not touched.is_written:
            continue
        arrays.table_versions(run)[touched.table] += 1
        arrays.group_seqs(run)[arrays.catalog_groups(run)[touched.table]] = run.seq
        if not slot.is_tracked:
            arrays.whole_bumps(run)[touched.table] += 1
        for at in range(slot.parts):
            part = arrays.parts(run)[slot_place, place, at]
            if part.is_written:
                arrays.partition_versions(run)[arrays.partition_offsets(run)[touched.table] + part.partition] += 1


@inlined
def try_commit(run: Any, slot_place: int) -> bool:
    """Install a transaction's writes if the precondition of the scope holds; return whether it did."""
    if not _precondition_holds(run, slot_place):
        return False
    _install(run, slot_place)
    arrays.slots(run)[slot_place].is_applied = 1
    return True


@spliced
def land(run: Any, slot_place: int) -> bool:
    """Put a record at the end of the log and seal the log if that fills it; return whether it applies."""
    run.log_at += run.log_entry_bytes
    run.log_entries += 1
    run.append_physical_success += 1
    applies = try_commit(run, slot_place)
    if applies:
        run.append_logical_success += 1
    else:
        run.append_logical_conflict += 1
    is_long = run.log_at - run.checkpoint_at > run.compaction_threshold
    if is_long or (run.compaction_max_entries > 0 and run.log_entries >= run.compaction_max_entries):
        run.is_log_sealed = 1
        run.append_compactions_triggered += 1
    return applies


@spliced
def checkpoint(run: Any) -> None:
    """Unseal the log."""
    run.is_log_sealed = 0
    run.checkpoint_at = run.log_at
    run.log_entries = 0
    run.append_compactions_completed += 1
