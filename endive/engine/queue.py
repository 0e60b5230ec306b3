"""The event queue: a binary heap of (time, key, place), smallest first. Keys are never equal at equal times.

Indices are unsigned here and in `place`: for signed ones Numba asks at each access whether they count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from endive.engine.jit import inlined

_U64 = np.uint64
_ZERO, _ONE = _U64(0), _U64(1)


@inlined
def _is_before(time: float, key: int, event: Any) -> bool:
    return time < event.time or (time == event.time and key < event.key)


@inlined
def _put(event: Any, time: float, key: int, place: Any) -> None:
    event.time = time
    event.key = key
    event.place = place


@inlined
def push(heap: Any, size: int, time: float, key: int, place: Any) -> None:
    """Add an event to a heap of `size` events."""
    at = _U64(size)
    while at > _ZERO:
        parent = (at - _ONE) >> _ONE
        above = heap[parent]
        if not _is_before(time, key, above):
            break
        _put(heap[at], above.time, above.key, above.place)
        at = parent
    _put(heap[at], time, key, place)


@inlined
def replace_top(heap: Any, size: int, time: float, key: int, place: Any) -> None:
    """Put an event in the place of the first of a heap of `size` events."""
    end = _U64(size)
    at = _ZERO
    while True:
        child = at + at + _ONE
        if child >= end:
            break
        if child + _ONE < end:
            right = heap[child + _ONE]
            if _is_before(right.time, right.key, heap[child]):
                child += _ONE
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
