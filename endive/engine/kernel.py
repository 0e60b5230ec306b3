"""The compiled simulation: an event wherever a transaction meets shared state, and all else folded in between.

`advance` owns the queue and the branches; a function for each kind of event does what follows, up to the next one. It
returns to Python for more room, to hand over rows, and now and then so that Python can look up.
"""

from __future__ import annotations

import math
from typing import Any

from endive.engine import arrays
from endive.engine.arrival import draw_runtime, select
from endive.engine.commits import checkpoint, land, take_snapshot, take_start_snapshot, try_commit
from endive.engine.jit import cached, called, inlined, spliced
from endive.engine.latency import sample, spend, spend_sample
from endive.engine.layout import (
    ARRIVALS_FROM,
    COMPONENTS,
    OnRealConflict,
    Operation,
    Outcome,
    Pause,
    Time,
    Waiting,
)
from endive.engine.manifests import (
    begin_attempt,
    learn_list_end,
    meet_list,
    prepare,
    rewrite_list,
    work_on_files,
)
from endive.engine.queue import drop_top, push, replace_top
from endive.engine.random import seek, uniform
from endive.engine.rows import finish


@cached
def advance(runs: Any, stop_at: int) -> int:
    """Simulate until the end, or until there is a reason to pause; return which.

    `runs` is the one record of the run, whose arrays are bound. `stop_at` bounds the work: eight for each event and one
    for each draw since the start of the run.
    """
    run = runs[0]
    pause = Pause.DONE if run.has_begun else _begin(run)
    while pause == Pause.DONE and run.pending > 0:
        top = arrays.heap(run)[0]
        time, key, place = top.time, top.key, top.place
        if not time < run.end:
            break
        if 8 * run.events + run.draws >= stop_at:
            return Pause.WORK_SPENT
        run.now = time
        if key >= ARRIVALS_FROM:
            if run.free == 0:
                return Pause.SLOTS_FULL
            pause = _arrive(run, place, key)
        else:
            if run.rows == arrays.row_times(run).shape[1]:
                return Pause.ROWS_FULL
            pause = _go_on(run, place, key)
        run.events += 1
    return pause


@called
def _begin(run: Any) -> int:
    """Schedule the first arrival of each source."""
    run.has_begun = 1
    for place in range(arrays.sources(run).size):
        source = arrays.sources(run)[place]
        arrival = arrays.latencies(run)[arrays.streams(run)[source.stream].arrival]
        delay = sample(arrival, arrays.quantiles(run), arrays.source_rngs(run)[place], 0)
        if not delay < math.inf:
            run.bad_delay = delay
            return Pause.BAD_DELAY
        push(arrays.heap(run), run.pending, delay, source.key, place)
        run.pending += 1
    return Pause.DONE


@spliced
def _arrive(run: Any, source_place: int, key: int) -> int:
    """Submit the next transaction of a source, and schedule the one after it."""
    source = arrays.sources(run)[source_place]
    stream = arrays.streams(run)[source.stream]
    if run.now >= run.duration:
        drop_top(arrays.heap(run), run.pending)
        run.pending -= 1
        return Pause.DONE
    run.free -= 1
    slot_place = arrays.free(run)[run.free]
    _submit(run, slot_place, source_place)
    slot = arrays.slots(run)[slot_place]
    if stream.clients > 0:
        drop_top(arrays.heap(run), run.pending)
        run.pending -= 1
    else:
        delay = sample(
            arrays.latencies(run)[stream.arrival], arrays.quantiles(run), arrays.source_rngs(run)[source_place], 0
        )
        if not delay < math.inf:
            run.bad_delay = delay
            return Pause.BAD_DELAY
        replace_top(arrays.heap(run), run.pending, run.now + delay, key, source_place)
    push(arrays.heap(run), run.pending, slot.now, slot.txn, slot_place)
    run.pending += 1
    return _check(run, slot)


@spliced
def _check(run: Any, slot: Any) -> int:
    if slot.now < math.inf:
        return Pause.DONE
    run.bad_delay = slot.now
    return Pause.BAD_DELAY


@called
def _submit(run: Any, slot_place: int, source_place: int) -> None:
    source, slot = arrays.sources(run)[source_place], arrays.slots(run)[slot_place]
    stream, index = arrays.streams(run)[source.stream], source.submitted
    source.submitted += 1
    run.submitted += 1
    slot.txn = run.submitted
    slot.source, slot.stream = source_place, source.stream
    slot.submit = slot.now = slot.pending_from = run.now
    slot.commit_start = math.inf
    for component in range(COMPONENTS):
        slot.times[component] = 0.0
    slot.is_applied = slot.tentative = slot.restarts = 0
    slot.manifest_list_reads = slot.historical_ml_reads = 0
    slot.manifest_list_writes = slot.manifest_list_appends = 0
    slot.manifest_file_reads = slot.manifest_file_writes = 0
    slot.metadata_reads = slot.metadata_writes = slot.append_physical_failures = 0
    slot.no_overlap_conflicts = slot.false_conflicts = slot.real_conflicts = 0
    slot.runtime = draw_runtime(run, stream, source, index)
    select(run, slot_place, stream, source, index)
    seek(arrays.rngs(run)[slot_place], source.io_base, index)
    _begin_run(run, slot_place)


@spliced
def _begin_run(run: Any, slot_place: int) -> None:
    slot = arrays.slots(run)[slot_place]
    slot.attempts = 0
    slot.executing_from = slot.run_commit_start = math.inf
    _start_catalog_operation(run, slot_place, Operation.CATALOG_READ, Time.CATALOG_READ, Waiting.CATALOG_READ)


@inlined
def _start_catalog_operation(run: Any, slot_place: int, operation: int, component: int, waiting: int) -> None:
    """Let time pass until an operation takes effect on the catalog."""
    slot = arrays.slots(run)[slot_place]
    run.draws += 1
    latency = sample(arrays.latencies(run)[operation], arrays.quantiles(run), arrays.rngs(run)[slot_place], 0)
    slot.before = run.effect_point * latency
    slot.after = latency - slot.before
    spend(slot, component, slot.before)
    slot.waiting = waiting


@spliced
def _wait_for_failure(run: Any, slot_place: int, fails_apart: int, operation: int) -> None:
    """Let time pass from the effect of an operation that failed to its answer."""
    slot = arrays.slots(run)[slot_place]
    if fails_apart:
        run.draws += 1
        failure = sample(arrays.latencies(run)[operation], arrays.quantiles(run), arrays.rngs(run)[slot_place], 0)
        slot.after = max(slot.before, failure) - slot.before
    spend(slot, Time.CATALOG_COMMIT, slot.after)


@spliced
def _go_on(run: Any, slot_place: int, key: int) -> int:
    """Let a transaction meet what it waits for, and put its next event into the queue."""
    slot = arrays.slots(run)[slot_place]
    if slot.waiting == Waiting.END:
        return _end(run, slot_place)
    if slot.waiting == Waiting.CATALOG_READ:
        if slot.attempts == 0:
            _see_start(run, slot_place)
        else:
            _see_again(run, slot_place)
    elif slot.waiting == Waiting.COMMIT:
        _meet_catalog(run, slot_place)
    elif slot.waiting == Waiting.LOG_APPEND:
        _meet_log(run, slot_place)
    elif slot.waiting == Waiting.COMPACTION:
        _compact(run, slot_place)
    elif slot.waiting == Waiting.LIST_READ:
        learn_list_end(run, slot_place)
        _prepare(run, slot_place)
    elif slot.waiting == Waiting.LIST_APPEND:
        if meet_list(run, slot_place):
            _prepare(run, slot_place)
    elif slot.waiting == Waiting.LIST_REWRITE:
        rewrite_list(run, slot_place)
    else:
        return Pause.BROKEN
    replace_top(arrays.heap(run), run.pending, slot.now, key, slot_place)
    return _check(run, slot)


@called
def _end(run: Any, slot_place: int) -> int:
    """Record a transaction, free its slot, and let a closed client think."""
    slot = arrays.slots(run)[slot_place]
    source = arrays.sources(run)[slot.source]
    stream = arrays.streams(run)[source.stream]
    if slot.outcome != Outcome.COMMITTED:
        run.manifest_append_orphans += slot.tentative
    finish(run, slot_place)
    arrays.free(run)[run.free] = slot_place
    run.free += 1
    if stream.clients == 0:
        drop_top(arrays.heap(run), run.pending)
        run.pending -= 1
        return Pause.DONE
    slot.now += sample(
        arrays.latencies(run)[stream.arrival], arrays.quantiles(run), arrays.source_rngs(run)[slot.source], 0
    )
    replace_top(arrays.heap(run), run.pending, slot.now, source.key, slot.source)
    return _check(run, slot)


@called
def _see_start(run: Any, slot_place: int) -> None:
    """See the catalog, work, and prepare the first attempt."""
    slot, rng = arrays.slots(run)[slot_place], arrays.rngs(run)[slot_place]
    take_start_snapshot(run, slot_place)
    spend(slot, Time.CATALOG_READ, slot.after)
    if not run.is_inlined:
        for _ in range(slot.touched):
            spend_sample(run, slot, rng, Operation.METADATA_READ, Time.PER_ATTEMPT_IO, 0)
        slot.metadata_reads += slot.touched
    if slot.restarts == 0:
        slot.start = slot.now - slot.submit
    slot.executing_from = slot.now
    slot.now += slot.runtime
    slot.run_commit_start = slot.now
    if slot.restarts == 0:
        slot.commit_start = slot.now
    begin_attempt(slot, False, False, False)
    _prepare(run, slot_place)


@inlined
def _prepare(run: Any, slot_place: int) -> None:
    """Go on with the manifest work, and commit if it is done."""
    if prepare(run, slot_place):
        _begin_commit(run, slot_place)


@spliced
def _begin_commit(run: Any, slot_place: int) -> None:
    slot = arrays.slots(run)[slot_place]
    slot.attempts += 1
    slot.physical_failures = 0
    if not run.is_log:
        _start_catalog_operation(run, slot_place, Operation.CATALOG_COMMIT, Time.CATALOG_COMMIT, Waiting.COMMIT)
    else:
        _go_to_log(run, slot_place)


@spliced
def _go_to_log(run: Any, slot_place: int) -> None:
    """Append to the log, or compact it first if it is known to be sealed."""
    if arrays.slots(run)[slot_place].log_sealed:
        _start_catalog_operation(run, slot_place, Operation.COMPACTION, Time.CATALOG_COMMIT, Waiting.COMPACTION)
    else:
        _start_log_append(run, slot_place)


@spliced
def _start_log_append(run: Any, slot_place: int) -> None:
    _start_catalog_operation(run, slot_place, Operation.CATALOG_COMMIT, Time.CATALOG_COMMIT, Waiting.LOG_APPEND)


@spliced
def _wait_for_end(slot: Any, outcome: int) -> None:
    slot.outcome = outcome
    slot.waiting = Waiting.END


@inlined
def _meet_catalog(run: Any, slot_place: int) -> None:
    """Compare and swap."""
    slot = arrays.slots(run)[slot_place]
    if try_commit(run, slot_place):
        spend(slot, Time.CATALOG_COMMIT, slot.after)
        _wait_for_end(slot, Outcome.COMMITTED)
    else:
        _wait_for_failure(run, slot_place, run.commit_fails_apart, Operation.COMMIT_FAILURE)
        _fail_commit(run, slot_place)


@called
def _compact(run: Any, slot_place: int) -> None:
    """Checkpoint the log unless somebody was faster, then append."""
    slot = arrays.slots(run)[slot_place]
    slot.log_offset = run.log_at
    if run.is_log_sealed:
        checkpoint(run)
        spend(slot, Time.CATALOG_COMMIT, slot.after)
    else:
        _wait_for_failure(run, slot_place, run.compaction_fails_apart, Operation.COMPACTION_FAILURE)
    _start_log_append(run, slot_place)


@called
def _meet_log(run: Any, slot_place: int) -> None:
    """Append where the log ends, and read back what became of the record; or miss the end."""
    slot = arrays.slots(run)[slot_place]
    if slot.log_offset != run.log_at:
        run.append_physical_failure += 1
        slot.append_physical_failures += 1
        slot.physical_failures += 1
        slot.log_offset = run.log_at
        slot.log_sealed = run.is_log_sealed
        _wait_for_failure(run, slot_place, run.commit_fails_apart, Operation.COMMIT_FAILURE)
        if slot.physical_failures > run.max_physical_retries:
            _fail_commit(run, slot_place)
        else:
            _go_to_log(run, slot_place)
        return
    is_applied = land(run, slot_place)
    spend(slot, Time.CATALOG_COMMIT, slot.after)
    _start_catalog_operation(run, slot_place, Operation.CATALOG_READ, Time.CATALOG_COMMIT, Waiting.END)
    spend(slot, Time.CATALOG_COMMIT, slot.after)
    if is_applied:
        _wait_for_end(slot, Outcome.COMMITTED)
    else:
        _fail_commit(run, slot_place)


@inlined
def _fail_commit(run: Any, slot_place: int) -> None:
    """Give up, or back off and look at the catalog again."""
    slot = arrays.slots(run)[slot_place]
    if slot.attempts > run.max_retries:
        _wait_for_end(slot, Outcome.MAX_RETRIES_EXCEEDED)
    elif 0.0 < run.total_timeout < slot.now - slot.run_commit_start:
        _wait_for_end(slot, Outcome.RETRY_TIMEOUT)
    else:
        if run.backs_off:
            _back_off(run, slot_place)
        _start_catalog_operation(run, slot_place, Operation.CATALOG_READ, Time.CATALOG_READ, Waiting.CATALOG_READ)


@spliced
def _back_off(run: Any, slot_place: int) -> None:
    slot = arrays.slots(run)[slot_place]
    if slot.attempts == 1:
        slot.backoff = min(run.backoff_base, run.backoff_max)
    elif slot.backoff < run.backoff_max:
        slot.backoff = min(slot.backoff * run.backoff_multiplier, run.backoff_max)
    drawn = uniform(arrays.rngs(run)[slot_place])
    if run.has_iceberg_jitter:
        sleep = slot.backoff + math.floor(drawn * (run.backoff_jitter * slot.backoff))
    else:
        sleep = slot.backoff * (1.0 + (2.0 * run.backoff_jitter * drawn - run.backoff_jitter))
    spend(slot, Time.BACKOFF, sleep)


@inlined
def _see_again(run: Any, slot_place: int) -> None:
    """See what was committed meanwhile, and catch up with it."""
    slot = arrays.slots(run)[slot_place]
    missed, changed_since_start = take_snapshot(run, slot_place)
    spend(slot, Time.CATALOG_READ, slot.after)
    if missed < 0:
        slot.no_overlap_conflicts += 1
        _begin_commit(run, slot_place)
        return
    _pay_for_missed_commits(run, slot_place, missed)
    is_real = False
    if arrays.costs(run)[slot.costs].can_conflict:
        drawn = uniform(arrays.rngs(run)[slot_place])
        is_real = changed_since_start if run.detects_partitions else drawn < run.probability
    if is_real:
        slot.real_conflicts += 1
        if run.on_real_conflict != OnRealConflict.MERGE:
            _fail_validation(run, slot_place)
            return
        _merge(run, slot_place)
    else:
        slot.false_conflicts += 1
    begin_attempt(slot, True, is_real, run.appends_to_lists != 0 and not is_real)
    _prepare(run, slot_place)


@spliced
def _pay_for_missed_commits(run: Any, slot_place: int, missed: int) -> None:
    """Pay the conflict cost, once for the catalog's commits or for each table's or partition's own."""
    slot = arrays.slots(run)[slot_place]
    for place in range(slot.touched):
        touched = arrays.touched(run)[slot_place, place]
        if not touched.overlaps:
            continue
        if run.list_per_partition:
            for at in range(slot.parts):
                part = arrays.parts(run)[slot_place, place, at]
                if part.is_written and part.behind != 0:
                    _charge(run, slot_place, run.list_bytes + run.list_growth * part.version, part.behind)
            continue
        list_bytes = run.list_bytes + run.list_growth * touched.version
        if not run.history_by_table:
            _charge(run, slot_place, list_bytes, missed)
            return
        _charge(run, slot_place, list_bytes, touched.behind)


@called
def _charge(run: Any, slot_place: int, list_bytes: int, missed: int) -> None:
    costs = arrays.costs(run)[arrays.slots(run)[slot_place].costs]
    work_on_files(
        run,
        slot_place,
        Time.CONFLICT_IO,
        list_bytes,
        math.floor(missed * costs.missed_history),
        math.floor(missed * costs.missed_file_reads),
        math.floor(missed * costs.missed_file_writes),
    )


@spliced
def _merge(run: Any, slot_place: int) -> None:
    """Read and write the manifest files that conflict."""
    rng = arrays.rngs(run)[slot_place]
    run.draws += 1
    drawn = sample(arrays.latencies(run)[Operation.CONFLICTING_MANIFESTS], arrays.quantiles(run), rng, 0)
    files = max(run.conflicting_min, math.floor(min(drawn, float(run.conflicting_max))))
    work_on_files(run, slot_place, Time.CONFLICT_IO, 0, 0, files, files)


@spliced
def _fail_validation(run: Any, slot_place: int) -> None:
    """Abort, or run the whole transaction again."""
    slot = arrays.slots(run)[slot_place]
    may_restart = slot.restarts < run.max_restarts and slot.now < run.restarts_end
    if run.on_real_conflict != OnRealConflict.RESTART or not may_restart:
        _wait_for_end(slot, Outcome.VALIDATION_EXCEPTION)
        return
    if slot.now < run.end:
        run.manifest_append_orphans += slot.tentative
    slot.tentative = 0
    slot.restarts += 1
    slot.pending_from = slot.now
    _begin_run(run, slot_place)
