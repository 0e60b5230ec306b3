"""The summary of a run that is known in advance: who is counted, over what time, and where time went."""

from __future__ import annotations

from endive.catalog import CASCatalog
from endive.simulation import Simulation, Statistics
from endive.summary import summarize, summary_table
from endive.test_utils import ScriptedWorkload, create_test_config, fixed_storage
from endive.transaction import FastAppendTransaction


def cut(duration_ms: float, effect_point: float = 1.0, drain: bool = False) -> Statistics:
    """Two appends: read 10, work 100, manifests 10 + 20 + 20, swap 5. The first ends at 165; the second at 665."""
    storage = fixed_storage()
    workload = ScriptedWorkload(lambda: [FastAppendTransaction(n, 500.0 * n, 100.0, frozenset({0})) for n in (0, 1)])
    catalog = CASCatalog(storage, 1, (1,), effect_point=effect_point)
    options = {"duration_ms": duration_ms, "drain": drain, "storage": storage, "catalog": catalog}
    return Simulation(create_test_config(workload=workload, **options)).run()


def test_who_is_in_flight_was_submitted_but_takes_no_part_in_success() -> None:
    summary = summarize(cut(600.0))
    found = summary["operations"]["fast_append"]
    assert (found["submitted"], found["committed"], found["in_flight"], found["success_rate"]) == (2, 1, 1, 1.0)
    assert found["in_flight_by_phase"] == {"pending": 0, "executing": 1, "committing": 0}
    assert found["throughput_per_s"] == 1.0 / 0.6


def test_throughput_is_over_the_drain_too() -> None:
    summary = summarize(cut(600.0, drain=True))
    assert summary["end_ms"] == 665.0
    assert summary["operations"]["all"]["throughput_per_s"] == 2.0 / 0.665


def test_the_sequence_number_counts_commits_that_were_not_answered() -> None:
    """With effect point 0.5 the second is installed at 662.5 and answered at 665."""
    summary = summarize(cut(664.0, effect_point=0.5))
    assert (summary["final_seq"], summary["committed"], summary["in_flight_applied"]) == (2, 1, 1)


def test_shares_of_commit_time_sum_to_all_of_it() -> None:
    """Read 10, manifests 50, swap 5: of 65."""
    lines = [line.split() for line in summary_table(summarize(cut(600.0))).splitlines()]
    shares = {tuple(line[:2]): line[2:] for line in lines if line[-1:] == ["%"]}
    assert shares["catalog", "reads"] == ["15.38", "%"]
    assert shares["manifest", "I/O"] == ["76.92", "%"]
    assert shares["catalog", "commits"] == ["7.69", "%"]
