"""The arrays of a run, reached from its record.

The kernel hands one pointer from function to function: the record of the run, which knows where its arrays lie. Passing
the arrays themselves would copy hundreds of words at each call.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call"
# What generates code has no types.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from endive.engine.layout import ARRAYS, RUN, address_field, length_field

Accessor: TypeAlias = Callable[[Any], Any]

_OFFSETS: Final = {name: place[1] for name, place in (RUN.fields or {}).items()}


def _accessor(name: str) -> Accessor:
    """Return a function of the run's record that the kernel calls for an array."""
    dtype, dimensions = ARRAYS[name]
    array_type = types.Array(from_dtype(dtype), dimensions, "C")
    lengths = [length_field(name, axis) for axis in range(dimensions)]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def load(field: str) -> Any:
            place = cgutils.get_record_member(builder, arguments[0], _OFFSETS[field], ir.IntType(64))
            return builder.load(place)

        array = make_array(array_type)(context, builder)
        shape = [load(field) for field in lengths]
        itemsize = context.get_constant(types.intp, dtype.itemsize)
        strides = [itemsize]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        data = builder.inttoptr(load(address_field(name)), array.data.type)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    def accessor(context: Any, run: Any) -> Any:
        return array_type(run), generate

    compiled: Any = intrinsic(accessor)
    return compiled


latencies = _accessor("latencies")
quantiles = _accessor("quantiles")
choices = _accessor("choices")
weights = _accessor("weights")
sums = _accessor("sums")
costs = _accessor("costs")
streams = _accessor("streams")
partition_choices = _accessor("partition_choices")
workload_groups = _accessor("workload_groups")
group_members = _accessor("group_members")
catalog_groups = _accessor("catalog_groups")
sources = _accessor("sources")
source_rngs = _accessor("source_rngs")
scratch_rng = _accessor("scratch_rng")
scratch = _accessor("scratch")
table_versions = _accessor("table_versions")
whole_bumps = _accessor("whole_bumps")
partition_offsets = _accessor("partition_offsets")
partition_versions = _accessor("partition_versions")
group_seqs = _accessor("group_seqs")
list_ends = _accessor("list_ends")
heap = _accessor("heap")
free = _accessor("free")
slots = _accessor("slots")
rngs = _accessor("rngs")
touched = _accessor("touched")
parts = _accessor("parts")
row_times = _accessor("row_times")
row_numbers = _accessor("row_numbers")
row_tables = _accessor("row_tables")
total_numbers = _accessor("total_numbers")
total_times = _accessor("total_times")
