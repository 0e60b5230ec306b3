"""The event queue: a binary heap of (time, key, place), smallest first. Keys are never equal at equal times."""

from __future__ import annotations

from typing import Any

from endive.engine.jit import inlined


@inlined
def _is_before(time: float, key: int, event: Any) -> bool:
    return time < event.time or (time == event.time and key < event.key)


@inlined
def _put(event: Any, time: float, key: int, place: int) -> None:
    event.time = time
    event.key = key
    event.place = place


@inlined
def push(heap: Any, size: int, time: float, key: int, place: int) -> None:
    """Add an event to a heap of `size` events."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        above = heap[parent]
        if not _is_before(time, key, above):
            break
        _put(heap[at], above.time, above.key, above.place)
        at = parent
    _put(heap[at], time, key, place)


@inlined
def replace_top(heap: Any, size: int, time: float, key: int, place: int) -> None:
    """Put an event in the place of the first of a heap of `size` events."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            right = heap[child + 1]
            if _is_before(right.time, right.key, heap[child]):
                child += 1
        below = heap[child]
        if _is_before(time, key, below):
            break
        _put(heap[at], below.time, below.key, below.place)
        at = child
    _put(heap[at], time, key, place)


@inlined
def drop_top(heap: Any, size: int) -> None:
    """Remove the first of a heap of `size` events."""
    last = heap[size - 1]
    replace_top(heap, size - 1, last.time, last.key, last.place)
