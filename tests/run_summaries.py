"""What tests ask of run summaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from endive.pipeline.run_summary import IN_FLIGHT, MEASURES
from endive.pipeline.schemas import RUN_SUMMARY


def assert_same_summaries(one: pa.Table, other: pa.Table) -> None:
    """Equal, but for the rounding of sums of times."""
    assert one.num_rows == other.num_rows
    for name in RUN_SUMMARY.names:
        mine, yours = one.column(name).combine_chunks(), other.column(name).combine_chunks()
        if name in MEASURES:
            for part in ("bins", "counts"):
                assert pc.struct_field(mine, part).equals(pc.struct_field(yours, part)), name
            for part in ("sum", "sum_of_squares"):
                np.testing.assert_allclose(pc.struct_field(mine, part), pc.struct_field(yours, part), rtol=1e-12)
        elif name == "series_commit_latency_ms":
            np.testing.assert_allclose(mine.flatten(), yours.flatten(), rtol=1e-12)
        elif name in IN_FLIGHT:
            np.testing.assert_array_equal(mine.offsets, yours.offsets)
            np.testing.assert_array_equal(mine.flatten(), yours.flatten())
        else:
            assert mine.equals(yours), name
