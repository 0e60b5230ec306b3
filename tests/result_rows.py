"""Literal rows of results, for tests: what a test does not name is zero."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from endive.results import SCHEMA

_NOTHING: dict[Any, Any] = {pa.string(): "", pa.int64(): 0, pa.int32(): 0, pa.float64(): 0.0}


def committed(txn_id: int, t_submit: float, t_commit: float, **values: Any) -> dict[str, Any]:
    """A row that committed; its commit took `commit_latency`, by default all of the time since it was submitted."""
    return _row(
        txn_id=txn_id,
        t_submit=t_submit,
        t_commit=t_commit,
        t_abort=-1.0,
        status="committed",
        total_latency=t_commit - t_submit,
        **{"commit_latency": t_commit - t_submit} | values,
    )


def aborted(txn_id: int, t_submit: float, t_abort: float, **values: Any) -> dict[str, Any]:
    """A row that gave up, by default out of retries."""
    return _row(
        txn_id=txn_id,
        t_submit=t_submit,
        t_commit=-1.0,
        t_abort=t_abort,
        status="aborted",
        total_latency=t_abort - t_submit,
        **{"commit_latency": t_abort - t_submit, "abort_reason": "max_retries_exceeded"} | values,
    )


def rows(*records: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(records), schema=SCHEMA)


def _row(**values: Any) -> dict[str, Any]:
    nothing = {field.name: None if field.nullable else _NOTHING.get(field.type, []) for field in SCHEMA}
    assert not values.keys() - nothing.keys()
    return nothing | {"operation_type": "fast_append", "attempts": 1} | values
