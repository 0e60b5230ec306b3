"""The figures of a report: their numbers against hand computation, what their captions must say, and their files."""

from __future__ import annotations

import math
import struct
from array import array
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba

from endive.config import parse_settings
from endive.pipeline.schemas import QUANTILES
from endive.report.figure import STYLE, Figure, new_canvas, render, set_log_ticks
from endive.report.report import Section
from endive.report.tables import to_csv, to_markdown
from endive.settings import Settings
from endive.simulation import InFlightTimes
from tests.experiment_folders import DURATION_MS
from tests.report_folders import (
    LOAD,
    STORE,
    T_OF_TWO,
    WINDOW_S,
    Rows,
    closed_loop,
    figure_of,
    outcomes,
    row_of,
    section_of,
    settings,
    write_experiment,
    write_stores,
)

ONE_SEED = "One seed: no intervals."


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Section:
    return section_of(write_stores(tmp_path_factory.mktemp("stores")))


def interval(first: float, second: float, most: float = math.inf) -> tuple[float, float, float]:
    """The mean of two values and its 95 % interval, as far as it lies between 0 and `most`."""
    mean, half = (first + second) / 2, T_OF_TWO * abs(first - second) / 2
    return mean, max(0.0, mean - half), min(most, mean + half)


def approx(*values: float, within: float = 1e-9) -> Any:
    return pytest.approx(values, rel=within)


def told(row: dict[str, Any], metric: str) -> tuple[float, float, float]:
    return row[metric], row[f"{metric}_low"], row[f"{metric}_high"]


def drawn(figure: Figure) -> Any:
    with mpl.rc_context(STYLE):
        return figure.draw()


def test_throughput_is_what_was_answered_in_the_window(stores: Section) -> None:
    numbers = figure_of(stores, "throughput")
    assert told(row_of(numbers, **{LOAD: 10 / 1000, STORE: "s3"}), "throughput_per_s") == approx(*[18 / WINDOW_S] * 3)
    crowded = row_of(numbers, **{LOAD: 40 / 1000, STORE: "s3"})
    assert told(crowded, "throughput_per_s") == approx(*interval(24 / WINDOW_S, 36 / WINDOW_S))
    assert crowded["seeds"] == 2


def test_success_and_retries_and_attempts_against_load(stores: Section) -> None:
    crowded = row_of(figure_of(stores, "success"), **{LOAD: 0.04, STORE: "s3"})
    assert told(crowded, "success_rate") == approx(*interval(1 / 3, 1 / 2, most=1.0))
    retries = row_of(figure_of(stores, "retries"), **{LOAD: 0.04, STORE: "s3"})
    assert told(retries, "retries_per_commit") == (0.0, 0.0, 0.0)
    assert retries["attempts_per_transaction"] == 1.0


@pytest.mark.parametrize("point", QUANTILES)
def test_latency_is_that_of_the_committed(stores: Section, point: str) -> None:
    row = row_of(figure_of(stores, "latency-throughput"), **{LOAD: 0.02, STORE: "s3"})
    assert row[f"commit_latency_{point}_ms"] == pytest.approx(1050.0, rel=0.005)
    assert row["throughput_per_s"] == pytest.approx(36 / WINDOW_S)


def test_the_breakdown_is_of_mean_times(stores: Section) -> None:
    figure = figure_of(stores, "breakdown")
    row = row_of(figure, **{LOAD: 0.04, STORE: "s3x"})
    assert told(row, "per_attempt_io_mean_ms") == approx(*interval(80.0, 88.0), within=1e-6)
    assert "conflict_io_mean_ms" not in figure.numbers
    canvas = drawn(figure)
    bars = [patch.get_height() for patch in canvas.axes[0].patches]
    assert bars == approx(0.525, 1.05, 2.1, within=1e-6)
    shares = [patch.get_height() for patch in canvas.axes[1].patches]
    assert shares == approx(100.0, 100.0, 100.0)
    assert [text.get_text() for text in canvas.axes[0].texts] == ["100%", "100%", "42%"]


def test_convoy_overhead_and_conflict_time_by_hand(tmp_path: Path) -> None:
    """Each commit reads 4 lists of missed commits in 300 ms, waits 100 ms, works 50 ms again, and else takes 550 ms."""
    times = {"per_attempt_io_ms": 550.0, "conflict_io_ms": 300.0, "backoff_ms": 100.0, "restart_ms": 50.0}
    for scale_ms in (100_000.0, 50_000.0):
        made = outcomes(scale_ms, historical_ml_reads=4, attempts=3, n_retries=2, **times)
        write_experiment(tmp_path, settings(scale_ms), [made] * 2)
    section = section_of(tmp_path)
    convoy = row_of(figure_of(section, "convoy"), **{LOAD: 0.02})
    assert (convoy["historical_reads_per_commit"], convoy["conflict_io_mean_ms"]) == approx(4.0, 300.0)
    assert row_of(figure_of(section, "overhead"), **{LOAD: 0.02})["overhead_share"] == pytest.approx(0.45)
    retries = row_of(figure_of(section, "retries"), **{LOAD: 0.02})
    assert (retries["retries_per_commit"], retries["attempts_per_transaction"]) == approx(2.0, 3.0)
    parts = row_of(figure_of(section, "breakdown"), **{LOAD: 0.02})
    assert parts["backoff_mean_ms"] == pytest.approx(100.0)
    assert parts["restart_mean_ms"] == pytest.approx(50.0)


def test_points_of_which_fewer_than_half_commit_are_hollow(stores: Section) -> None:
    figure = figure_of(stores, "throughput")
    assert "Hollow points" in figure.caption
    markers = [line for line in drawn(figure).axes[0].lines if line.get_marker() not in ("None", "", None)]
    hollow = [line for line in markers if to_hex(line.get_markerfacecolor()) == "#ffffff" and len(line.get_xdata())]
    assert [tuple(line.get_xdata()) for line in hollow] == [(0.04,)]


def test_the_rate_over_time_is_that_of_each_bin_with_the_edges_of_the_window_shaded(stores: Section) -> None:
    """Of 24 transactions in 40 minutes one is committed in every fifth of the 120 bins of 20 seconds."""
    figure = figure_of(stores, "commit-rate")
    own = figure.numbers[(figure.numbers[LOAD] == 0.01) & (figure.numbers[STORE] == "s3x")]
    assert len(own) == 60
    assert own["time_s"].tolist() == approx(*[20.0 + 40.0 * place for place in range(60)])
    assert own["commit_rate"].sum() * 40.0 == pytest.approx(24)
    assert set(own["commit_rate"] * 40.0) == {0.0, 1.0}
    assert "Shaded: warm-up and cool-down" in figure.caption
    shaded = [patch for patch in drawn(figure).axes[0].patches if patch.get_facecolor() == to_rgba("#f1ece0")]
    assert [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in shaded] == [(0.0, 5.0), (35.0, 40.0)]


@pytest.mark.parametrize("commits", [1, 0], ids=["committed", "aborted"])
def test_in_flight_is_what_was_submitted_and_has_not_ended(tmp_path: Path, commits: int) -> None:
    """A transaction every 100 s from 50 s on that takes 200 s, however it ends: two of them, from the third on."""
    ended = [row for row in outcomes(commits=commits, latency_ms=200_000.0) if row["t_submit"] < 2_200_000.0]
    lost = InFlightTimes(array("d", [2_250_000.0, 2_350_000.0]), array("d", [2_250_000.0, 2_350_000.0]))
    write_experiment(tmp_path, settings(), [ended] * 2, fast_append=lost)
    figure = figure_of(section_of(tmp_path), "in-flight")
    in_flight = figure.numbers.set_index("time_s")["in_flight"]
    assert in_flight[20.0] == 0.0
    assert in_flight[60.0] == 1.0
    assert in_flight[300.0] == in_flight[1500.0] == in_flight[2380.0] == 2.0


def test_operation_types_stand_beside_each_other(tmp_path: Path) -> None:
    for scale_ms in (100_000.0, 50_000.0):
        quick = outcomes(scale_ms, latency_ms=100.0)
        slow = outcomes(scale_ms, 1, 2, latency_ms=5000.0, operation_type="validated_overwrite")
        write_experiment(tmp_path, settings(scale_ms), [quick + slow] * 2)
    figure = figure_of(section_of(tmp_path), "operations")
    appends = row_of(figure, operation_type="fast_append", **{LOAD: 0.02})
    overwrites = row_of(figure, operation_type="validated_overwrite", **{LOAD: 0.02})
    assert (appends["success_rate"], overwrites["success_rate"]) == (1.0, 0.5)
    assert appends["commit_latency_p50_ms"] == pytest.approx(100.0, rel=0.005)
    assert overwrites["commit_latency_p99_ms"] == pytest.approx(5000.0, rel=0.005)


def test_survivor_bias_puts_the_committed_beside_everyone(tmp_path: Path) -> None:
    """Half commits in a second, half gives up after two: the median of the committed is that of nobody else."""
    for scale_ms in (100_000.0, 50_000.0):
        made = outcomes(scale_ms, 1, 2, latency_ms=1000.0)
        late = [row | {"commit_latency": 2000.0} if row["status"] == "aborted" else row for row in made]
        write_experiment(tmp_path, settings(scale_ms), [late] * 2)
    figure = figure_of(section_of(tmp_path), "survivor-bias")
    median = row_of(figure, share=0.5, **{LOAD: 0.01})
    assert (median["committed"], median["aborted"], median["in_flight"]) == (18, 18, 0)
    assert median["committed_ms"] == pytest.approx(1000.0, rel=0.01)
    assert row_of(figure, share=0.95, **{LOAD: 0.01})["answered_ms"] == pytest.approx(2000.0, rel=0.01)
    assert math.isnan(row_of(figure, share=0.95, **{LOAD: 0.01})["kaplan_meier_ms"] or math.nan)


def test_a_sweep_without_aborts_has_no_survivor_bias_to_show(tmp_path: Path) -> None:
    for scale_ms in (100_000.0, 50_000.0):
        write_experiment(tmp_path, settings(scale_ms), [outcomes(scale_ms)] * 2)
    assert "survivor-bias" not in [figure.name for figure in section_of(tmp_path).figures]


def test_what_is_in_flight_at_the_end_is_said_wherever_it_biases(tmp_path: Path) -> None:
    """Of 24 submitted in the window 6 are in flight at the end: a quarter."""
    for store in ("s3", "s3x"):
        for scale_ms in (100_000.0, 50_000.0):
            lost = InFlightTimes(array("d", [1e6] * 6), array("d", [1.1e6] * 6))
            changed = settings(scale_ms, storage={"provider": store})
            write_experiment(tmp_path, changed, [outcomes(scale_ms)] * 2, fast_append=lost)
    section = section_of(tmp_path)
    for name in ("throughput", "latency-throughput", "success", "retries", "heatmap-load-provider"):
        assert "Up to 25 % of the submitted were still in flight at the end" in figure_of(section, name).caption, name


def test_groups_without_a_commit_are_told_and_have_no_latency(tmp_path: Path) -> None:
    write_experiment(tmp_path, settings(100_000.0), [outcomes(100_000.0)] * 2)
    write_experiment(tmp_path, settings(50_000.0), [outcomes(50_000.0, 0)] * 2)
    section = section_of(tmp_path)
    figure = figure_of(section, "latency-throughput")
    assert "1 point without a commit: no latency to show." in figure.caption
    assert math.isnan(row_of(figure, **{LOAD: 0.02})["commit_latency_p50_ms"])
    assert row_of(figure, **{LOAD: 0.02})["throughput_per_s"] == 0.0
    for each in section.figures:
        assert drawn(each).axes, each.name


@pytest.mark.parametrize("made", [outcomes(commits=0), []], ids=["all given up", "nothing submitted"])
def test_a_sweep_without_any_commit_is_drawn(tmp_path: Path, made: Rows) -> None:
    for store in ("s3", "s3x"):
        for scale_ms in (100_000.0, 50_000.0):
            write_experiment(tmp_path, settings(scale_ms, storage={"provider": store}), [made] * 2)
    latency = section_of(tmp_path, metrics=("commit_latency_p99_ms",))
    assert not [figure.name for figure in latency.figures if figure.name.startswith("heatmap")]
    figures = section_of(tmp_path).figures
    assert {"heatmap-load-provider", "commit-rate", "in-flight"} <= {figure.name for figure in figures}
    for figure in figures:
        assert drawn(figure).axes, figure.name


def test_heatmaps_are_of_any_metric_over_every_pair_of_settings(tmp_path: Path) -> None:
    for place, store in enumerate(("s3", "s3x")):
        for tables in (1, 5):
            for scale_ms in (100_000.0, 50_000.0):
                changed = settings(scale_ms, storage={"provider": store}, catalog={"num_tables": tables})
                made = outcomes(scale_ms, attempts=1 + place, n_retries=place, latency_ms=1000.0 * tables)
                write_experiment(tmp_path, changed, [made] * 2)
    section = section_of(tmp_path, metrics=("attempts_per_transaction",))
    names = [figure.name for figure in section.figures if figure.name.startswith("heatmap")]
    assert sorted(names) == ["heatmap-load-num-tables", "heatmap-load-provider", "heatmap-num-tables-provider"]
    figure = figure_of(section, "heatmap-load-provider")
    assert "Held at: 1 table." in figure.caption
    cells = figure.numbers.pivot(index=STORE, columns=LOAD, values="attempts_per_transaction")
    assert cells.loc["s3"].tolist() == [1.0, 1.0]
    assert cells.loc["s3x"].tolist() == [2.0, 2.0]
    (shown, *_) = drawn(figure).axes
    assert shown.get_title() == "attempts per transaction"
    assert [text.get_text() for text in shown.texts] == ["1", "1", "2", "2"]


def test_cells_of_which_fewer_than_half_commit_are_hatched(stores: Section) -> None:
    figure = figure_of(stores, "heatmap-load-provider")
    assert "Hatched: fewer than half" in figure.caption
    for axes in drawn(figure).axes[:3]:
        hatched = [patch for patch in axes.patches if patch.get_hatch()]
        assert [(patch.get_x(), patch.get_y()) for patch in hatched] == [(1.5, -0.5)]


def test_closed_loops_have_the_bounds_of_one_in_n_clients(tmp_path: Path) -> None:
    """Work of ten seconds, and next to it little of a cycle that is not exposed to others: the share is 1 / clients."""
    for clients in (1, 2, 8):
        write_experiment(tmp_path, closed_loop(clients), [outcomes(of=clients)] * 2)
    section = section_of(tmp_path)
    figure = figure_of(section, "success")
    assert "about 1 / clients" in figure.caption
    bounds = figure.numbers.set_index("transaction.clients")["success_bound"]
    assert bounds[1.0] == 1.0
    assert bounds[2.0] == pytest.approx(4.0 * bounds[8.0])
    assert 1.0 < 8.0 * bounds[8.0] < 1.01
    dashed = [line for line in drawn(figure).axes[0].lines if line.get_linestyle() == "--"]
    assert [tuple(line.get_ydata()) for line in dashed] == [approx(*(100.0 * bounds))]
    rates = figure_of(section, "throughput").numbers.set_index("transaction.clients")["bound_per_s"]
    assert rates[2.0] == pytest.approx(2.0 * rates[1.0])


def test_figures_against_words_are_points_titled_by_what_was_swept(tmp_path: Path) -> None:
    for store in ("s3", "s3x"):
        write_experiment(tmp_path, settings(storage={"provider": store}), [outcomes(), outcomes(commits=1, of=2)])
    figure = figure_of(section_of(tmp_path), "throughput")
    assert figure.title == "Throughput against store"
    (axes,) = drawn(figure).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["S3 Standard", "S3 Express"]
    joined = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 1]
    assert joined == []


def test_an_open_load_is_bound_by_itself(stores: Section) -> None:
    dotted = [line for line in drawn(figure_of(stores, "throughput")).axes[0].lines if line.get_linestyle() == ":"]
    assert len(dotted) == 1
    assert dotted[0].get_ydata() == pytest.approx(dotted[0].get_xdata())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Section:
    """A sweep over loads and stores with one seed."""
    root = tmp_path_factory.mktemp("alone")
    for store in ("s3", "s3x"):
        for scale_ms in (100_000.0, 50_000.0, 25_000.0):
            made = outcomes(scale_ms, 1, 2, per_attempt_io_ms=1000.0) + outcomes(
                scale_ms, operation_type="merge_append"
            )
            write_experiment(root, settings(scale_ms, storage={"provider": store}), [made])
    return section_of(root)


def test_one_seed_is_said_by_every_figure_that_would_have_intervals_over_seeds(alone: Section) -> None:
    figures = {figure.name: figure for figure in alone.figures}
    for name, figure in figures.items():
        if name not in ("survivor-bias", "exponents"):
            assert ONE_SEED in figure.caption, name
            assert "interval" not in figure.caption.replace(ONE_SEED, ""), name
        low = [column for column in figure.numbers.columns if column.endswith("_low") and column != "exponent_low"]
        assert figure.numbers[low].drop(columns="swept_low", errors="ignore").isna().all(axis=None), name
    assert {"throughput", "success", "breakdown", "operations", "saturation", "request-cost"} <= set(figures)


def test_no_figure_of_several_seeds_says_one_seed(stores: Section) -> None:
    assert not [figure.name for figure in stores.figures if "One seed" in figure.caption]


def test_seeds_that_are_missing_are_said(tmp_path: Path) -> None:
    write_experiment(tmp_path, settings(100_000.0), [outcomes(100_000.0)] * 3)
    write_experiment(tmp_path, settings(50_000.0), [outcomes(50_000.0)])
    caption = figure_of(section_of(tmp_path), "throughput").caption
    assert "over 1 to 3 seeds. One seed has none." in caption


def test_settings_that_some_experiments_have_not_are_levels_too(tmp_path: Path) -> None:
    service = {"type": "instant", "latency_ms": 5.0}
    for catalog in ({}, service, service | {"latency_ms": 50.0}):
        for scale_ms in (100_000.0, 50_000.0):
            write_experiment(tmp_path, settings(scale_ms, catalog=catalog), [outcomes(scale_ms)] * 2)
    section = section_of(tmp_path)
    assert [axis.key for axis in section.sweep.axes] == [LOAD, "catalog.latency_ms"]
    assert row_of(figure_of(section, "throughput"), catalog__latency_ms="not set", **{LOAD: 0.01})["seeds"] == 2
    for figure in section.figures:
        assert drawn(figure).axes, figure.name


def test_a_sweep_with_holes_shows_what_there_is(tmp_path: Path) -> None:
    """One table was never tried on s3, where both would be held; 5 tables on s3x at the highest load only."""
    holes = (
        (100_000.0, 1, "s3x"),
        (50_000.0, 1, "s3x"),
        (100_000.0, 5, "s3"),
        (50_000.0, 5, "s3"),
        (25_000.0, 5, "s3x"),
    )
    for scale_ms, tables, store in holes:
        changed = settings(scale_ms, storage={"provider": store}, catalog={"num_tables": tables})
        write_experiment(tmp_path, changed, [outcomes(scale_ms)] * 2)
    section = section_of(tmp_path)
    sweep = section.sweep
    assert len(sweep.axes) == 3
    assert sweep.fixed(sweep.x) == {"catalog.num_tables": 1.0, STORE: "s3x"}
    for figure in section.figures:
        assert len(figure.numbers), figure.name
        assert drawn(figure).axes, figure.name


def test_a_figure_is_1200_pixels_wide_and_its_svg_is_xml(stores: Section) -> None:
    png, svg = render(figure_of(stores, "throughput"))
    assert struct.unpack(">I", png[16:20]) == (1200,)
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.attrib["width"].removesuffix("pt")) == 8 * 72


def is_whole(figure: Figure) -> bool:
    """Whether all that a figure draws lies within its edges."""
    with mpl.rc_context(STYLE):
        canvas = figure.draw()
        canvas.draw_without_rendering()
        box, (width, height) = canvas.get_tightbbox(), canvas.get_size_inches()
    return bool(min(box.x0, box.y0) >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01)


def test_no_text_of_any_figure_is_cut_off(stores: Section, alone: Section) -> None:
    for section in (stores, alone):
        assert [figure.name for figure in section.figures if not is_whole(figure)] == []


def streams_at(ingestion_ms: float, compaction_ms: float, num_tables: int = 1) -> Settings:
    loads = {"ingestion": ingestion_ms, "compaction": compaction_ms}
    return parse_settings(
        {
            "simulation": {"duration_ms": DURATION_MS},
            "experiment": {"label": "streams"},
            "storage": {"provider": "s3"},
            "catalog": {"num_tables": num_tables},
            "transaction": {"runtime": {"median": 1000.0, "sigma": 0.5}},
            "streams": [{"name": name, "inter_arrival": {"scale": load_ms}} for name, load_ms in loads.items()],
        }
    )


def test_long_names_are_wrapped(tmp_path: Path) -> None:
    for scale_ms in (100_000.0, 50_000.0):
        made = outcomes(scale_ms) + outcomes(scale_ms, operation_type="validated_overwrite")
        write_experiment(tmp_path, streams_at(scale_ms, 1e6), [made] * 2)
    figure = figure_of(section_of(tmp_path), "operations")
    labels = [axes.get_xlabel() for axes in drawn(figure).axes]
    assert labels == ["submissions per second by\ningestion"] * 3
    assert is_whole(figure)


def test_loads_of_several_streams_are_told_apart(tmp_path: Path) -> None:
    for first_ms in (100_000.0, 50_000.0):
        for second_ms in (400_000.0, 200_000.0):
            for tables in (1, 2):
                changed = streams_at(first_ms, second_ms, tables)
                write_experiment(tmp_path, changed, [outcomes(first_ms) + outcomes(second_ms)] * 2)
    figures = section_of(tmp_path).figures
    assert len({figure.name for figure in figures}) == len(figures)
    assert "Held at: 0.0025/s by compaction" in " ".join(figure.caption for figure in figures)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 60.0, [1, 2, 5, 10, 20, 50]),
        (0.9, 2000.0, [1, 3, 10, 30, 100, 300, 1000]),
        (0.9, 2e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (0.14, 0.38, [0.15, 0.2, 0.3]),
        (1.01, 1.1, [1.01, 1.1]),
    ],
)
def test_ticks_of_logarithmic_scales_are_round_and_neither_few_nor_many(
    low: float, high: float, ticks: list[float]
) -> None:
    _, ((axes,),) = new_canvas(1, 1)
    set_log_ticks(axes, "y", low, high, pad=1.0)
    assert axes.yaxis.get_majorticklocs() == pytest.approx(np.array(ticks))


def test_numbers_are_told_for_programs_and_for_people(stores: Section) -> None:
    figure = figure_of(stores, "success")
    header, *lines = to_csv(figure.numbers).splitlines()
    assert header.startswith(f"{LOAD},{STORE},seeds,success_rate,success_rate_low,success_rate_high,throughput_per_s")
    assert "0.04,s3,2,0.416667," in "\n".join(lines)
    title, _, *rows = to_markdown(figure.numbers, stores.sweep.axes).splitlines()
    assert title.startswith(
        "| submissions per second | store | seeds | committed of finished (%) | commits per second |"
    )
    mean, low, high = (100.0 * value for value in interval(1 / 3, 1 / 2, most=1.0))
    assert f"| 0.04 | S3 Standard | 2 | {mean:.1f} ({low:.0f} to {high:.0f}) |" in "\n".join(rows)
