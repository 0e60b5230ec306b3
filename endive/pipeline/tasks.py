"""How work is cut into tasks. Knows no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")

TASKS_PER_CORE: Final = 3
"""No task is so long that a core gets fewer than these, as far as there are items."""


def to_tasks(items: Iterable[Item], size_of: Callable[[Item], float], enough: float, cores: int) -> list[list[Item]]:
    """Return items, the largest first, as tasks: one item, or as many small ones as have a size that is `enough`."""
    ordered = sorted(items, key=size_of, reverse=True)
    enough = min(enough, sum(map(size_of, ordered)) / (cores * TASKS_PER_CORE))
    tasks: list[list[Item]] = []
    filled = enough
    for item in ordered:
        if filled >= enough:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(item)
        filled += size_of(item)
    return tasks
