"""Appended manifest lists (ML+): where each list ends, and whether it still takes appends."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from endive.policy import ManifestListLog


class ListEnd(NamedTuple):
    """The end of one list object; a rewrite makes a new object, hence a new generation."""

    generation: int
    offset: int


@dataclass(slots=True)
class ManifestListCounters:
    """How the tentative manifest-list appends of a run went."""

    manifest_append_physical_success: int = 0
    manifest_append_physical_failure: int = 0
    manifest_append_sealed_rewrite: int = 0
    manifest_append_orphans: int = 0

    def to_dict(self) -> dict[str, int]:
        return {counter.name: getattr(self, counter.name) for counter in fields(self)}


class ManifestLists:
    """The appended lists of one run, by (table, partition); -1 stands for a list of the whole table."""

    def __init__(self, log: ManifestListLog) -> None:
        self._log = log
        self._ends: dict[tuple[int, int], ListEnd] = {}
        self._sealed: set[tuple[int, int]] = set()
        self.counters = ManifestListCounters()

    def end(self, key: tuple[int, int]) -> ListEnd:
        return self._ends.get(key, ListEnd(0, 0))

    def is_sealed(self, key: tuple[int, int]) -> bool:
        return key in self._sealed

    def try_append(self, key: tuple[int, int], end: ListEnd) -> bool:
        """Append an entry if the list still ends at `end` and is open; seal it if that fills it."""
        if key in self._sealed or end != self.end(key):
            self.counters.manifest_append_physical_failure += 1
            return False
        offset = end.offset + self._log.entry_bytes
        self._ends[key] = ListEnd(end.generation, offset)
        self.counters.manifest_append_physical_success += 1
        if 0 < self._log.seal_bytes < offset:
            self._sealed.add(key)
        return True

    def rewrite(self, key: tuple[int, int], generation: int) -> None:
        """Replace the sealed list of `generation` by an open one; does nothing if somebody else was first."""
        end = self.end(key)
        if key in self._sealed and end.generation == generation:
            self._sealed.discard(key)
            self._ends[key] = ListEnd(generation + 1, 0)
            self.counters.manifest_append_sealed_rewrite += 1
