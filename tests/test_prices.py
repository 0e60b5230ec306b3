"""What requests cost: against the price tables by hand, and against lone clients who never retry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from endive import __version__
from endive.config import compute_experiment_hash, load_provider_profiles, parse_settings
from endive.experiment import snapshot_text
from endive.pipeline.directory import RunState
from endive.pipeline.run_task import perform_run
from endive.pipeline.schemas import SUMMED_COUNTS
from endive.report.prices import first_attempt_usd, load_prices, request_prices, requests_usd
from tests import report_folders
from tests.report_folders import figure_of, outcomes, row_of, section_of, settings, write_experiment

S3 = {"storage.provider": "s3", "catalog.type": "cas"}
EXPRESS = {"storage.provider": "s3x", "catalog.type": "cas"}
GET_USD, PUT_USD = 0.0004 / 1000, 0.005 / 1000


def counts(**values: int) -> pd.DataFrame:
    nothing = dict.fromkeys((*SUMMED_COUNTS, "committed", "aborted", "validation_exception"), 0)
    return pd.DataFrame([nothing | values])


def test_every_store_has_a_dated_price_table() -> None:
    assert set(load_prices()) == set(load_provider_profiles("2025-12")) - {"instant"}
    for prices in load_prices().values():
        assert re.fullmatch(r"20\d\d-\d\d", prices.as_of)
        assert prices.region
        assert prices.source
        assert 0.0 < prices.read_usd_per_1000 < prices.write_usd_per_1000


def test_requests_of_a_store_that_charges_by_request_only() -> None:
    """One commit after a retry and one given up after it: 4 attempts, and a catalog read before each."""
    prices = request_prices(S3)
    assert prices is not None
    (usd,) = requests_usd(
        counts(
            committed=1,
            aborted=1,
            attempts=4,
            n_retries=2,
            manifest_list_reads=6,
            manifest_list_writes=4,
            manifest_file_reads=3,
            manifest_file_writes=5,
            metadata_reads=2,
            metadata_writes=1,
        ),
        prices,
    )
    assert usd == pytest.approx((6 + 3 + 2 + 4) * GET_USD + (4 + 5 + 1 + 4) * PUT_USD)


def test_a_real_conflict_is_found_by_one_more_read_of_the_catalog() -> None:
    prices = request_prices(S3)
    assert prices is not None
    (usd,) = requests_usd(counts(aborted=1, attempts=1, validation_exception=1), prices)
    assert usd == pytest.approx(2 * GET_USD + PUT_USD)


def test_a_store_that_charges_by_size_too() -> None:
    """S3 Express: 0.03 and 1.13 dollars a million requests, 0.0006 and 0.0032 dollars a gigabyte read and written."""
    prices = request_prices(EXPRESS | {"manifests.manifest_file_bytes": 8e6})
    assert prices is not None
    assert prices.list_read == pytest.approx(0.03e-6 + 0.0006 * 10_240e-9)
    assert prices.file_write == pytest.approx(1.13e-6 + 0.0032 * 8e-3)
    assert prices.file_read == pytest.approx(0.03e-6 + 0.0006 * 8e-3)
    assert prices.metadata_write == pytest.approx(1.13e-6 + 0.0032 * 1024e-9)
    assert prices.catalog_write == pytest.approx(1.13e-6 + 0.0032 * 100e-9)


def test_the_catalog_costs_what_its_own_store_charges_and_nothing_as_a_service() -> None:
    apart = request_prices(EXPRESS | {"catalog.provider": "s3"})
    assert apart is not None
    assert (apart.catalog_read, apart.catalog_write) == (pytest.approx(GET_USD), pytest.approx(PUT_USD))
    for service in ({"catalog.type": "instant"}, {"catalog.latency_ms": 5.0}):
        prices = request_prices(S3 | service)
        assert prices is not None
        assert (prices.catalog_read, prices.catalog_write) == (0.0, 0.0)


def test_a_store_without_prices_has_no_costs() -> None:
    assert request_prices({"storage.provider": "instant"}) is None


def test_first_attempts_of_streams_of_different_width_have_no_single_price() -> None:
    prices = request_prices(S3)
    assert prices is not None
    streams = {
        f"streams.{name}.{key}": value
        for name, tables in (("a", 1.0), ("b", 3.0))
        for key, value in {"operation_types.fast_append": 1.0, "tables.per_txn": tables}.items()
    }
    assert first_attempt_usd(S3 | streams, "fast_append", prices) is None
    streams["streams.b.operation_types.fast_append"] = 0.0
    assert first_attempt_usd(S3 | streams, "fast_append", prices) == pytest.approx(2 * GET_USD + 3 * PUT_USD)


def test_a_thousand_commits_by_hand_with_retries_and_what_was_given_up_apart(tmp_path: Path) -> None:
    """Of every three one commits after a retry, two give up after one: 3 first attempts and 3 retries for a commit."""
    retried = {"attempts": 2, "n_retries": 1} | dict.fromkeys(report_folders.ONE_ATTEMPT, 2)
    write_experiment(tmp_path, settings(50_000.0), [outcomes(50_000.0, 1, 3, **retried)] * 2)
    write_experiment(tmp_path, settings(100_000.0), [outcomes(100_000.0)] * 2)
    figure = figure_of(section_of(tmp_path), "request-cost")
    attempt = 1000 * (2 * GET_USD + 3 * PUT_USD)
    lone, contended = (row_of(figure, **{report_folders.LOAD: load}) for load in (10.0 / 1000, 20.0 / 1000))
    assert (lone["total_usd"], lone["first_attempts_usd"]) == (pytest.approx(attempt), pytest.approx(attempt))
    assert (lone["given_up_usd"], lone["retries_usd"]) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert contended["total_usd"] == pytest.approx(6 * attempt)
    assert contended["first_attempts_usd"] == pytest.approx(attempt)
    assert contended["given_up_usd"] == pytest.approx(2 * attempt)
    assert contended["retries_usd"] == pytest.approx(3 * attempt)
    assert "Amazon S3 Standard, US East (N. Virginia), 2025-12" in figure.caption


def test_where_nothing_commits_there_is_no_cost_of_a_commit(tmp_path: Path) -> None:
    write_experiment(tmp_path, settings(100_000.0), [outcomes(100_000.0)] * 2)
    write_experiment(tmp_path, settings(50_000.0), [outcomes(50_000.0, 0)] * 2)
    figure = figure_of(section_of(tmp_path), "request-cost")
    assert pd.isna(row_of(figure, **{report_folders.LOAD: 0.02})["total_usd"])
    assert "No bar: no commit." in figure.caption


LONE = {
    "simulation": {"duration_ms": 120_000},
    "experiment": {"label": "lone"},
    "storage": {"provider": "s3x"},
    "transaction": {
        "clients": 1,
        "think_time": {"distribution": "fixed", "value": 0.0},
        "runtime": {"distribution": "fixed", "value": 200.0},
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"catalog": {"type": "append"}},
        {"catalog": {"type": "instant", "latency_ms": 5.0}},
        {"catalog": {"provider": "s3"}},
        {"catalog": {"num_tables": 4, "table_metadata_inlined": False}, "transaction": {"tables": {"per_txn": 3}}},
        {
            "catalog": {"num_tables": 4, "table_metadata_inlined": False},
            "transaction": {"tables": {"per_txn": 4, "write_fraction": 0.5}},
        },
        {
            "catalog": {"partitions": {"num_partitions": 8}},
            "transaction": {"partitions": {"per_txn": 3}},
            "manifests": {"list_per": "partition"},
        },
        {"transaction": {"manifest_list_mode": "append"}},
        {"transaction": {"operation_types": {"validated_overwrite": 0.5, "merge_append": 0.5}}},
        {"transaction": {"costs": {"fast_append": {"manifest_file_reads": 2, "manifest_file_writes": 3}}}},
    ],
    ids=["plain", "log", "service", "apart", "wide", "reads", "partitions", "lists", "others", "costs"],
)
def test_a_lone_client_pays_for_first_attempts_and_nothing_else(changes: dict[str, Any], tmp_path: Path) -> None:
    data: dict[str, Any] = {name: dict(table) for name, table in LONE.items()}
    for name, table in changes.items():
        data[name] = data.get(name, {}) | table
    resolved = parse_settings(data)
    digest = compute_experiment_hash(resolved)
    row = {"version": __version__, "label": "lone", "hash": digest, "settings": snapshot_text(resolved), "cost_s": 1.0}
    assert perform_run(row | {"seed": 1}, tmp_path) is RunState.DONE
    sweep = section_of(tmp_path).sweep
    own = sweep.settings_of(digest)
    prices = request_prices(own)
    assert prices is not None
    for _, operation in sweep.runs[sweep.runs["operation_type"] != "all"].iterrows():
        assert operation["committed"] == operation["attempts"] > 10
        first = first_attempt_usd(own, operation["operation_type"], prices)
        assert first is not None
        (total,) = requests_usd(operation.to_frame().T, prices)
        assert total == pytest.approx(operation["committed"] * first)
