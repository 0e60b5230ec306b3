"""What a report is made of: frames of the pipeline's metrics, what happened over time, and where it all came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from endive.analysis.model_bounds import RateBounds
from endive.pipeline.run_summary import SummaryRow

Floats: TypeAlias = npt.NDArray[np.float64]

RunRows: TypeAlias = Callable[[Sequence[str]], Sequence[SummaryRow]]
"""Loads what each run of experiments, named by hash, did: a row for each run and operation type."""

_OUTCOMES: Final = ("submitted", "committed", "aborted")


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """What the runs of an experiment did over time: a row for each seed, a column for each of equal bins."""

    bin_s: float
    window_s: tuple[float, float]
    submitted: Floats
    committed: Floats
    aborted: Floats

    @property
    def middles_s(self) -> Floats:
        """The middle of each bin, in seconds."""
        return np.asarray((np.arange(self.committed.shape[1]) + 0.5) * self.bin_s)

    @property
    def in_flight(self) -> Floats:
        """How many transactions had neither committed nor aborted at the end of each bin."""
        return np.asarray(np.cumsum(self.submitted - self.committed - self.aborted, axis=1))

    def coarser(self, most_bins: int) -> TimeSeries:
        """Return the same in at most so many bins (or a few more, where they do not divide)."""
        merged = max(1, self.committed.shape[1] // most_bins)
        edges = np.arange(0, self.committed.shape[1], merged)
        tables = [np.add.reduceat(table, edges, axis=1) for table in (self.submitted, self.committed, self.aborted)]
        return TimeSeries(self.bin_s * merged, self.window_s, *tables)


def time_series(rows: Sequence[SummaryRow]) -> TimeSeries:
    """Return the series of one experiment from what each of its runs did, operation types together."""
    of_seed: dict[int, dict[str, Any]] = {}
    for run, _, summary in rows:
        counts = of_seed.setdefault(run.seed, dict.fromkeys(_OUTCOMES, 0.0))
        for name in _OUTCOMES:
            counts[name] = counts[name] + summary.series[f"series_{name}"]
    run = rows[0][0]
    tables = [np.array([of_seed[seed][name] for seed in sorted(of_seed)], dtype=np.float64) for name in _OUTCOMES]
    bin_s = run.duration_ms / 1000.0 / tables[0].shape[1]
    return TimeSeries(bin_s, (run.window.start_ms / 1000.0, run.window.end_ms / 1000.0), *tables)


def bounds_by_metric(hashes: Sequence[str], bounds: Mapping[str, RateBounds]) -> dict[str, list[float | None]]:
    """Return what typical attempts of experiments allow at most, for each metric that any has such a bound of."""
    known = [bounds.get(each) for each in hashes]
    columns = {
        "throughput_per_s": [None if bound is None else bound.commits_per_s for bound in known],
        "success_rate": [None if bound is None else bound.success for bound in known],
    }
    return {metric: values for metric, values in columns.items() if any(value is not None for value in values)}


@dataclass(frozen=True)
class Provenance:
    """What made the results of an experiment. Empty texts: not known."""

    version: str = ""
    model_version: str = ""
    git: str = ""
    engine: str = ""


@dataclass(frozen=True, eq=False)
class Material:
    """All that a report needs of the experiments of one name. The mappings are by the hash of the experiment."""

    name: str
    configurations: pd.DataFrame
    runs: pd.DataFrame
    summary: pd.DataFrame
    over_time: Mapping[str, TimeSeries]
    run_rows: RunRows
    bounds: Mapping[str, RateBounds]
    provenance: Mapping[str, Provenance]
