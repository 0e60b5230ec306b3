"""What a report finds to have been swept: axes of literal settings, what they are called, and what is selected."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from endive.config_errors import ConfigError
from endive.report.axes import Axis, find_axes, find_axis, select, settings_frame

SCALE = "transaction.inter_arrival.scale"


def configurations(*experiments: dict[str, str]) -> pd.DataFrame:
    """The configurations of experiments named 0, 1 and so on, from settings as TOML, besides one that all have."""
    return pd.DataFrame(
        [
            {"exp_name": "x", "exp_hash": str(place), "key": key, "value": value}
            for place, own in enumerate(experiments)
            for key, value in ({"simulation.drain": "false"} | own).items()
        ]
    )


def axes_of(*experiments: dict[str, str]) -> tuple[Axis, ...]:
    return find_axes(settings_frame(configurations(*experiments)))


def test_the_load_comes_first_as_submissions_per_second_and_rises() -> None:
    load, tables = axes_of(
        *(
            {"catalog.num_tables": tables, SCALE: scale, "storage.provider": '"s3"'}
            for tables in ("1", "2", "5")
            for scale in ("20.0", "3000.0")
        )
    )
    assert (load.key, load.label, load.is_load) == (SCALE, "submissions per second", True)
    assert load.levels == (0.333333, 50.0)
    assert [load.values[place] for place in "012345"] == [50.0, 0.333333] * 3
    assert [load.phrase(level) for level in load.levels] == ["0.333/s", "50/s"]
    assert (tables.key, tables.levels, tables.is_load) == ("catalog.num_tables", (1.0, 2.0, 5.0), False)


def test_what_does_not_vary_is_no_axis() -> None:
    assert axes_of({"catalog.num_tables": "1"}, {"catalog.num_tables": "1"}) == ()


def test_settings_that_move_together_are_one_axis_named_by_the_friendliest() -> None:
    (axis,) = axes_of(
        {"transaction.retry_backoff.jitter": "0.0", "storage.provider": '"s3"'},
        {"transaction.retry_backoff.jitter": "0.5", "storage.provider": '"gcp"'},
    )
    assert axis.key == "storage.provider"
    assert axis.moves_with == ("transaction.retry_backoff.jitter",)
    assert [axis.text(level) for level in axis.levels] == ["GCP", "S3 Standard"]


def test_a_setting_that_another_decides_is_no_axis() -> None:
    axes = axes_of(
        *(
            {"catalog.num_tables": tables, "catalog.num_groups": groups}
            for tables, groups in (("1", "1"), ("2", "1"), ("4", "2"))
        )
    )
    assert [axis.key for axis in axes] == ["catalog.num_tables"]


def test_crossed_settings_are_two_axes_those_with_more_levels_first() -> None:
    axes = axes_of(
        *(
            {"catalog.scope": f'"{scope}"', "catalog.num_tables": tables}
            for scope in ("catalog", "table")
            for tables in ("1", "2", "5")
        )
    )
    assert [axis.key for axis in axes] == ["catalog.num_tables", "catalog.scope"]


def test_the_label_the_seed_and_the_output_are_no_axes() -> None:
    assert (
        axes_of(
            {"simulation.seed": "1", "simulation.output_path": '"a"', "experiment.label": '"a"'},
            {"simulation.seed": "2", "simulation.output_path": '"b"', "experiment.label": '"b"'},
        )
        == ()
    )


def streams(ingest_ms: float) -> str:
    first = f'{{name = "ingest", inter_arrival = {{scale = {ingest_ms}}}}}'
    return f'[{first}, {{name = "maintenance", inter_arrival = {{value = 300000.0}}}}]'


def test_streams_are_told_by_name_and_their_load_is_a_load() -> None:
    frame = settings_frame(configurations({"streams": streams(100.0)}, {"streams": streams(10.0)}))
    assert frame["streams.maintenance.inter_arrival.value"].tolist() == [300_000.0, 300_000.0]
    (axis,) = find_axes(frame)
    assert axis.key == "streams.ingest.inter_arrival.scale"
    assert (axis.label, axis.levels) == ("submissions per second by ingest", (10.0, 100.0))


def test_a_share_that_is_not_given_is_zero_and_another_setting_not_set() -> None:
    frame = settings_frame(
        configurations(
            {"transaction.operation_types.fast_append": "1.0"},
            {
                "transaction.operation_types.validated_overwrite": "1.0",
                "transaction.operation_types.fast_append": "0.0",
                "catalog.latency_ms": "5.0",
            },
        )
    )
    assert frame["transaction.operation_types.validated_overwrite"].tolist() == [0.0, 1.0]
    assert frame["catalog.latency_ms"].tolist() == [None, 5.0]


def test_an_axis_says_where_its_setting_is_not_set() -> None:
    (axis,) = axes_of({}, {"catalog.latency_ms": "5.0"}, {"catalog.latency_ms": "50.0"})
    assert [axis.phrase(level) for level in axis.levels] == [
        "catalog latency 5 ms",
        "catalog latency 50 ms",
        "catalog latency not set",
    ]
    assert not axis.is_number


@pytest.mark.parametrize(
    ("key", "values", "phrases"),
    [
        ("catalog.num_tables", ("1", "5"), ["1 table", "5 tables"]),
        ("transaction.clients", ("1", "16"), ["1 client", "16 clients"]),
        ("catalog.latency_ms", ("1.0", "1200.0"), ["catalog latency 1 ms", "catalog latency 1,200 ms"]),
        ("storage.provider", ('"s3x"', '"s3"'), ["S3 Standard", "S3 Express"]),
        ("catalog.scope", ('"catalog"', '"table"'), ["commit scope catalog", "commit scope table"]),
        ("transaction.retry_backoff.enabled", ("true", "false"), ["backoff off", "backoff on"]),
        ("transaction.retry", ("0", "10"), ["retries allowed 0", "retries allowed 10"]),
        (
            "transaction.operation_types.fast_append",
            ("0", "0.9"),
            ["share of fast appends 0", "share of fast appends 0.9"],
        ),
    ],
)
def test_levels_have_names_that_say_what_they_are_of(key: str, values: tuple[str, ...], phrases: list[str]) -> None:
    (axis,) = axes_of(*({key: value} for value in values))
    assert [axis.phrase(level) for level in axis.levels] == phrases


@pytest.mark.parametrize(
    ("values", "is_log"),
    [(("1", "5", "10"), True), (("1", "5", "9"), False), (("1", "1000"), False), (("0", "5", "50"), False)],
)
def test_levels_over_a_decade_or_more_stand_on_a_logarithmic_scale(values: tuple[str, ...], is_log: bool) -> None:
    (axis,) = axes_of(*({"catalog.num_tables": value} for value in values))
    assert axis.is_log is is_log


def frames() -> dict[str, pd.DataFrame]:
    own = [{"storage.provider": f'"{store}"', "catalog.num_tables": "1"} for store in ("s3", "gcp")]
    other = [{"catalog.num_tables": str(tables), "simulation.drain": "true"} for tables in range(20)]
    return {"own": settings_frame(configurations(*own)), "other": settings_frame(configurations(*other))}


def kept(where: list[tuple[str, str]]) -> dict[str, list[str]]:
    return {name: frame.index.tolist() for name, frame in select(frames(), where).items()}


def test_conditions_select_experiments_and_leave_out_sweeps_without_one() -> None:
    assert kept([("storage.provider", "gcp")]) == {"own": ["1"]}
    assert kept([("storage.provider", '"gcp"')]) == {"own": ["1"]}
    assert kept([("catalog.num_tables", "1")]) == {"own": ["0", "1"], "other": ["1"]}
    assert kept([("catalog.num_tables", "1.0"), ("storage.provider", "s3")]) == {"own": ["0"]}
    assert kept([("simulation.drain", "true"), ("catalog.num_tables", "7")]) == {"other": ["7"]}
    assert kept([("experiment.label", "x"), ("catalog.num_tables", "7")]) == {"other": ["7"]}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ([("catalog.tables", "1")], "--where catalog.tables=1: no experiment has a setting catalog.tables"),
        (
            [("storage.provider", "azure")],
            '--where storage.provider=azure: matches no experiment; there is "gcp", "s3"',
        ),
        ([("catalog.num_tables", "99")], "and 8 more"),
        ([("storage.provider", "s3"), ("catalog.num_tables", "2")], "catalog.num_tables=2: matches no experiment"),
    ],
)
def test_conditions_that_nothing_meets_name_key_value_and_what_there_is(where: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        select(frames(), where)
    (line,) = caught.value.lines
    assert said in line


def test_an_axis_is_found_by_any_of_its_keys() -> None:
    axes = axes_of(
        {"transaction.retry_backoff.jitter": "0.0", "storage.provider": '"s3"'},
        {"transaction.retry_backoff.jitter": "0.5", "storage.provider": '"gcp"'},
    )
    assert find_axis(axes, "transaction.retry_backoff.jitter", "--group-by") is axes[0]
    with pytest.raises(ConfigError, match=r"^--group-by catalog.scope: is not swept here; swept: storage.provider$"):
        find_axis(axes, "catalog.scope", "--group-by")
    with pytest.raises(ConfigError, match="swept: nothing varies"):
        find_axis((), "catalog.scope", "--group-by")
