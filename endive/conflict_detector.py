"""Conflict detectors: whether commits that overlap in partitions also conflict in data."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np

from endive.catalog import CatalogSnapshot
from endive.random_streams import new_random_state
from endive.transaction import ConflictDetector, Transaction


class ProbabilisticConflictDetector(ConflictDetector):
    """An overlap is a real conflict with a fixed probability, for operations that can conflict."""

    def __init__(self, real_conflict_probability: float, rng: np.random.RandomState | None = None) -> None:
        if not 0.0 <= real_conflict_probability <= 1.0:
            raise ValueError(f"real_conflict_probability is {real_conflict_probability}; allowed is 0 to 1")
        self._probability = real_conflict_probability
        self._rng = new_random_state() if rng is None else rng

    @property
    def real_conflict_probability(self) -> float:
        return self._probability

    def bind(self, rng: np.random.RandomState) -> Self:
        view = copy.copy(self)
        view._rng = rng
        return view

    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        if not txn.can_have_real_conflict():
            return False
        return bool(self._rng.random_sample() < self._probability)


class PartitionOverlapConflictDetector(ConflictDetector):
    """An overlap is a real conflict if a written partition changed since the transaction started.

    Bound to a transaction's stream it draws and drops one number, so that a change of detector leaves the
    draws that follow as they were.
    """

    def __init__(self, rng: np.random.RandomState | None = None) -> None:
        self._rng = rng

    def bind(self, rng: np.random.RandomState) -> Self:
        view = copy.copy(self)
        view._rng = rng
        return view

    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        if not txn.can_have_real_conflict():
            return False
        if self._rng is not None:
            self._rng.random_sample()
        return txn.has_write_overlap(start_snapshot, current_snapshot)
