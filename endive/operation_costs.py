"""What operation types cost, in storage operations: data that every engine reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ConflictCost:
    """How many storage operations something takes."""

    metadata_reads: int = 0
    manifest_list_reads: int = 0
    manifest_list_writes: int = 0
    historical_ml_reads: int = 0
    manifest_file_reads: int = 0
    manifest_file_writes: int = 0


@dataclass(frozen=True, slots=True)
class CostPerCommit:
    """Storage operations for each commit that a transaction missed; floored after multiplying."""

    historical_ml_reads: float = 0.0
    manifest_file_reads: float = 0.0
    manifest_file_writes: float = 0.0

    def times(self, n_snapshots_behind: int) -> ConflictCost:
        return ConflictCost(
            historical_ml_reads=math.floor(n_snapshots_behind * self.historical_ml_reads),
            manifest_file_reads=math.floor(n_snapshots_behind * self.manifest_file_reads),
            manifest_file_writes=math.floor(n_snapshots_behind * self.manifest_file_writes),
        )


DEFAULT_ATTEMPT: Final = ConflictCost(manifest_list_reads=1, manifest_file_writes=1, manifest_list_writes=1)


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """What one type of operation pays: for its first attempt, for a redone one, and for what it missed."""

    name: str
    first_attempt: ConflictCost = DEFAULT_ATTEMPT
    redone_attempt: ConflictCost = DEFAULT_ATTEMPT
    per_missed_commit: CostPerCommit = CostPerCommit()
    can_conflict: bool = False


FAST_APPEND: Final = OperationCosts("fast_append")


def merge_append_costs(manifests_per_concurrent_commit: float = 1.5) -> OperationCosts:
    """Return the costs of an append that merges manifests anew after a conflict."""
    rate = manifests_per_concurrent_commit
    merged = CostPerCommit(manifest_file_reads=rate, manifest_file_writes=rate)
    return OperationCosts("merge_append", per_missed_commit=merged)


def validated_overwrite_costs(validation_manifests_per_commit: float = 0.0) -> OperationCosts:
    """Return the costs of an overwrite that validates against every commit it missed."""
    validated = CostPerCommit(historical_ml_reads=1.0, manifest_file_reads=validation_manifests_per_commit)
    return OperationCosts("validated_overwrite", per_missed_commit=validated, can_conflict=True)
