"""What a report says in words: sentences whose numbers follow by hand from literal rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endive.report.findings import Finding
from endive.report.report import Section, describe
from endive.simulation import InFlightTimes
from tests.report_folders import outcomes, section_of, settings, write_experiment, write_stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Section:
    return section_of(write_stores(tmp_path_factory.mktemp("stores")))


def said(section: Section, topic: str) -> list[str]:
    return [finding.text for finding in section.findings if finding.topic == topic]


def write_loads(root: Path, seeds: int = 2, **of_load: Callable[[float], Any]) -> Path:
    """Write a sweep of loads of 0.01, 0.02 and 0.04 a second; `of_load` gives arguments of outcomes for each."""
    for scale_ms in (100_000.0, 50_000.0, 25_000.0):
        options = {name: value(1000.0 / scale_ms) for name, value in of_load.items()}
        write_experiment(root, settings(scale_ms), [outcomes(scale_ms, **options)] * seeds)
    return root


def test_saturation_is_interpolated_between_the_swept_loads(stores: Section) -> None:
    """Seeds reach 95 % at 0.02 · 2^0.075 and 0.02 · 2^0.1, for success falls from 1 to 1/3 and to 1/2 at 0.04.

    So in the mean of logarithms at 0.02 · 2^0.0875 = 0.02125; the interval is a factor of exp(12.706 · ln 2 · 0.0125)
    = 1.116 each way. Both seeds answer at most 0.02 commits a second.
    """
    assert said(stores, "saturation") == [
        (
            "S3 Standard: success falls below 95 % at 0.0213 (0.019 to 0.0237) submissions per second, and throughput "
            "saturates at 0.02 (0.02 to 0.02) commits per second."
        ),
        "S3 Express: at least 95 % commit at every load swept, up to 0.04/s.",
    ]


def test_latency_at_the_ends_of_what_commits(stores: Section) -> None:
    """Of 500 and 550 ms, and of 1,000 and 1,100: means of 525 and 1,050; bins are exact to half a percent."""
    (text,) = said(stores, "latency")
    assert text.startswith("A commit takes 0.52")
    assert "at 0.01/s, and 1.05 s (0.4" in text
    assert text.endswith("at 0.02/s, the highest load at which at least 95 % commit, with S3 Standard.")


def test_costs_at_the_ends_and_what_is_wasted(stores: Section) -> None:
    """A first attempt is two reads and three writes: $0.0158 for a thousand on S3.

    At the highest load 2 are given up for each commit with one seed, 1 with the other: $0.0474 and $0.0316, $0.0395 in
    the mean, of which 60 % goes to what is given up.
    """
    (text,) = said(stores, "cost")
    assert text == (
        "The requests of 1,000 commits cost $0.0158 at 0.01/s and $0.0395 at 0.04/s, list prices, 60 % of it for "
        "retries and for what is given up, with S3 Standard."
    )


def test_shares_of_the_variance_of_success(stores: Section) -> None:
    """All commits in all runs but two: squares of what means of levels differ by, of those of what runs differ by."""
    runs = {(load, store): [1.0, 1.0] for load in range(3) for store in range(2)} | {(2, 0): [1 / 3, 1 / 2]}
    values = [value for own in runs.values() for value in own]
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)

    def between(place: int) -> float:
        groups: dict[int, list[float]] = {}
        for key, own in runs.items():
            groups.setdefault(key[place], []).extend(own)
        return sum(len(own) * (sum(own) / len(own) - mean) ** 2 for own in groups.values()) / total

    (text,) = said(stores, "effects")
    assert text == (
        "Of the variance of success over all runs, each setting alone explains (η²): submissions per second "
        f"{100 * between(0):.0f} %, store {100 * between(1):.0f} %."
    )


def test_a_clean_sweep_has_no_warnings(stores: Section) -> None:
    assert [finding for finding in stores.findings if finding.is_warning] == []
    assert describe(stores.sweep) == (
        "6 experiments of 2 seeds, 40 simulated minutes each, measured from minute 5 to 35. "
        "Swept: submissions per second: 0.01, 0.02, 0.04; store: S3 Standard, S3 Express."
    )


def test_where_even_the_smallest_load_is_too_much(tmp_path: Path) -> None:
    section = section_of(write_loads(tmp_path, commits=lambda _: 1, of=lambda _: 2))
    assert said(section, "saturation") == ["Fewer than 95 % commit even at the smallest load swept, 0.01/s."]


def test_one_seed_is_said_of_a_load(tmp_path: Path) -> None:
    section = section_of(write_loads(tmp_path, seeds=1, commits=lambda _: 1, of=lambda load: 2 if load > 0.03 else 1))
    (text,) = said(section, "saturation")
    assert text.startswith("Success falls below 95 % at 0.0214 (one seed: no interval) submissions per second")
    assert said(section, "data") == [
        "Every experiment has one seed: no interval over seeds there, and small differences may be chance."
    ]
    assert "(" not in said(section, "latency")[0]


def test_a_wide_gap_of_loads_in_which_saturation_lies_is_warned_of(tmp_path: Path) -> None:
    """From 0.01 to 0.04 a second is a factor of 4; the load of 0.02, which would be in between, was not swept."""
    for scale_ms, of in ((100_000.0, 1), (25_000.0, 2)):
        write_experiment(tmp_path, settings(scale_ms), [outcomes(scale_ms, 1, of)] * 2)
    (text,) = said(section_of(tmp_path), "data")
    assert text.startswith("Saturation lies between 0.01 and 0.04/s, where nothing was swept")


def test_throughput_that_still_follows_the_load(tmp_path: Path) -> None:
    """Nine of ten commit at the highest load: success has fallen, throughput has not bent."""
    section = section_of(write_loads(tmp_path, commits=lambda _: 17, of=lambda load: 18 if load > 0.03 else 17))
    (text,) = said(section, "saturation")
    assert text.endswith("; throughput still follows the load at 0.04/s.")


def test_an_operation_type_that_stops_committing_while_another_goes_on(tmp_path: Path) -> None:
    """Overwrites: all, all and a quarter commit. So half at 2/3 of the way from 0.04 to 0.08 of all kinds a second."""
    for scale_ms in (100_000.0, 50_000.0, 25_000.0):
        share = (1, 4) if scale_ms == 25_000.0 else (1, 1)
        made = outcomes(scale_ms) + outcomes(scale_ms, *share, operation_type="validated_overwrite")
        write_experiment(tmp_path, settings(scale_ms), [made] * 2)
    (text,) = said(section_of(tmp_path), "operations")
    assert text == (
        "Validated overwrites: half of them no longer commit from 0.0635 (0.0635 to 0.0635) submissions of all kinds "
        "per second on."
    )


def test_a_single_experiment_is_told_by_its_figures(tmp_path: Path) -> None:
    write_experiment(tmp_path, settings(), [outcomes(commits=1, of=2)] * 2)
    section = section_of(tmp_path)
    (text,) = said(section, "result")
    assert text.startswith("0.005 commits per second (0.005 to 0.005), 50 % of the finished committed, in 1")
    assert "Nothing varies." in describe(section.sweep)


def test_an_experiment_without_a_commit_says_so_and_nothing_else(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path, settings(), [outcomes(commits=0)] * 2)
    section = section_of(tmp_path)
    digest = folder.name.rsplit("-", 1)[1]
    assert section.findings == (
        Finding("data", f"1 experiment without a single commit ({digest}): no latency.", is_warning=True),
    )


def test_experiments_without_a_commit_are_named(tmp_path: Path) -> None:
    section = section_of(write_loads(tmp_path, commits=lambda load: int(load < 0.03)))
    assert "1 experiment without a single commit (0.04/s): no latency." in said(section, "data")


def test_missing_seeds_are_told(tmp_path: Path) -> None:
    for scale_ms, seeds in ((100_000.0, 3), (50_000.0, 2)):
        write_experiment(tmp_path, settings(scale_ms), [outcomes(scale_ms)] * seeds)
    assert said(section_of(tmp_path), "data") == ["Experiments have from 2 to 3 seeds; some are missing."]


@pytest.mark.parametrize(("lost", "is_said"), [(2, True), (0, False)])
def test_censoring_is_told_where_more_than_a_twentieth_is_in_flight(tmp_path: Path, lost: int, is_said: bool) -> None:
    times = InFlightTimes(array("d", [1e6] * lost), array("d", [1e6] * lost))
    write_experiment(tmp_path, settings(), [outcomes()] * 2, fast_append=times)
    texts = said(section_of(tmp_path), "data")
    wanted = (
        "1 experiment with more than 5 % of the submitted in flight at the end (up to 10 %), which count in neither "
        "success nor latency: both look better than they are."
    )
    assert texts == ([wanted] if is_said else [])


def test_a_window_that_begins_before_the_run_has_settled_is_told(tmp_path: Path) -> None:
    """Nothing commits for ten minutes, then one every ten seconds: the window loses its first 5 of 30 minutes."""
    late = [row for row in outcomes(10_000.0) if row["t_submit"] > 600_000.0]
    write_experiment(tmp_path, settings(10_000.0), [late] * 2)
    (text,) = said(section_of(tmp_path), "data")
    assert text.startswith("1 experiment had not settled when the window began (MSER-5), the worst off by 17 %")


def test_holes_in_a_sweep_leave_out_what_nobody_ran(tmp_path: Path) -> None:
    for scale_ms, tables in ((100_000.0, 1), (50_000.0, 1), (25_000.0, 1), (100_000.0, 5)):
        write_experiment(tmp_path, settings(scale_ms, catalog={"num_tables": tables}), [outcomes(scale_ms)] * 2)
    one, five = said(section_of(tmp_path), "saturation")
    assert one == "1 table: at least 95 % commit at every load swept, up to 0.04/s."
    assert five.startswith("5 tables: saturation cannot be told (offered_per_s: one value only")
