"""The consolidated rows of an experiment: one file, sorted, and what it was made of in its footer. Knows no Spark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from endive.files import whole_file
from endive.pipeline.experiments import Experiment, UnreadableError, explained, results_in
from endive.pipeline.schemas import CONSOLIDATED, EXPERIMENT_KEYS
from endive.results import SCHEMA, WRITE_OPTIONS

CONSOLIDATED_NAME: Final = "consolidated.parquet"
CONFIGURATIONS_NAME: Final = "configurations.parquet"
ROWS_PER_GROUP: Final = 131_072

_METADATA_KEY: Final = "endive.consolidated"
_LAYOUT: Final = 1
"""Rises when files must be written anew although their runs have not changed."""

_TEXTS: Final = [column.name for column in SCHEMA if pa.types.is_string(column.type)]
_PARTITIONED: Final = {key.name for key in EXPERIMENT_KEYS}
_FILE_SCHEMA: Final = pa.schema(
    column.with_type(pa.dictionary(pa.int32(), pa.string())) if column.name in _TEXTS else column
    for column in CONSOLIDATED
    if column.name not in _PARTITIONED
)
_WRITE_OPTIONS: Final[dict[str, Any]] = WRITE_OPTIONS | {
    "use_dictionary": [*WRITE_OPTIONS["use_dictionary"], "seed"],
    "store_schema": False,  # else readers in Arrow would find dictionaries where the contract says strings
}


@dataclass(frozen=True)
class Making:
    """What a consolidated file was made of: each run's seed, with size and time of change of its results file.

    `unreadable` has, by seed, what kept a run's rows out.
    """

    runs: tuple[tuple[int, int, int], ...]
    unreadable: dict[int, str] = field(default_factory=dict)
    layout: int = _LAYOUT

    def to_json(self) -> str:
        return json.dumps({"layout": self.layout, "runs": self.runs, "unreadable": list(self.unreadable.items())})

    @classmethod
    def from_json(cls, text: str | bytes) -> Making:
        content = json.loads(text)
        runs = tuple((seed, size, changed_ns) for seed, size, changed_ns in content["runs"])
        return cls(runs, dict(content["unreadable"]), content["layout"])


def rows_path(root: Path, name: str, digest: str) -> Path:
    """Return where the consolidated rows of an experiment are, or will be."""
    return root / CONSOLIDATED_NAME / f"exp_name={name}" / f"exp_hash={digest}" / "rows.parquet"


def finished_runs(folder: Path, seeds: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Return what `Making.runs` says of the runs of an experiment's folder as they are now."""
    runs = []
    for seed in sorted(seeds):
        with contextlib.suppress(FileNotFoundError):
            status = results_in(folder, seed).stat()
            runs.append((seed, status.st_size, status.st_mtime_ns))
    return tuple(runs)


def read_making(path: Path) -> Making | None:
    """Return what a consolidated file was made of; None if there is none that can be read."""
    try:
        with explained(path):
            footer = pq.read_metadata(path).metadata or {}
            return Making.from_json(footer[_METADATA_KEY.encode()])
    except (UnreadableError, KeyError):
        return None


def write_rows(path: Path, folder: Path, seeds: Sequence[int]) -> Making:
    """Write the rows of an experiment's runs, by seed, then submission; the name appears when the file is whole.

    A run whose rows cannot be read is left out. Memory is bounded by one run.
    """
    runs = finished_runs(folder, seeds)
    unreadable: dict[int, str] = {}
    with whole_file(path) as stream, pq.ParquetWriter(stream, _FILE_SCHEMA, **_WRITE_OPTIONS) as writer:
        for seed, _, _ in runs:
            try:
                rows = _sorted_rows(results_in(folder, seed), seed)
            except UnreadableError as error:
                unreadable[seed] = error.reason
            else:
                writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        making = Making(runs, unreadable)
        writer.add_key_value_metadata({_METADATA_KEY: making.to_json()})
    return making


def _sorted_rows(path: Path, seed: int) -> pa.Table:
    """Return the rows of a results file by submission, with the seed beside them."""
    with explained(path), pq.ParquetFile(path, read_dictionary=_TEXTS) as file:
        rows = file.read(use_threads=False).unify_dictionaries().combine_chunks()
    if rows.column_names != SCHEMA.names:
        raise UnreadableError(path, "its columns are not those of results")
    order = np.lexsort((rows.column("txn_id").to_numpy(), rows.column("t_submit").to_numpy()))
    seeds = pa.array(np.full(rows.num_rows, seed), type=pa.int64())
    return rows.take(order).append_column("seed", seeds).cast(_FILE_SCHEMA)


def problems_of(experiment: Experiment, making: Making) -> Iterator[str]:
    """Yield, in a line each, the runs that a consolidated file lacks."""
    for seed, reason in making.unreadable.items():
        yield f"{experiment.results(seed)}: {reason}; seed {seed} of {experiment.folder.name} is left out"
