"""Analysis of variance and straight lines: constructed data, statsmodels, and how often a null is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.api import OLS, add_constant
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.diagnostic import het_breuschpagan
from statsmodels.stats.stattools import durbin_watson

from endive.saturation_analysis import INTERACTION, RESIDUAL, AnalysisError, anova, log_log_fit

COLUMNS = ["sum_of_squares", "df", "f", "p_value"]


def constructed() -> pd.DataFrame:
    """Two by two, two runs a cell: effects of 1 and 2, an interaction of a half, noise of 1, all of either sign."""
    rows = [
        {"a": a, "b": b, "seed": seed, "y": 10.0 + 1.0 * a + 2.0 * b + 0.5 * a * b + noise}
        for a in (-1, 1)
        for b in (-1, 1)
        for seed, noise in enumerate((-1.0, 1.0))
    ]
    return pd.DataFrame(rows)


def test_effect_sizes_of_constructed_data() -> None:
    """Sums of squares are 8 rows times the squared effects: 8, 32, 2 and 8 of noise, 50 together."""
    found = anova(constructed(), "y", ["a", "b"])
    table = found.table.set_index("term")
    assert list(table.index) == ["a", "b", INTERACTION.join("ab"), RESIDUAL]
    assert table.sum_of_squares.tolist() == pytest.approx([8.0, 32.0, 2.0, 8.0])
    assert table.df.tolist() == [1, 1, 1, 4]
    assert table.f.tolist()[:3] == pytest.approx([4.0, 16.0, 1.0])
    assert table.p_value.tolist()[:3] == pytest.approx(stats.f.sf([4.0, 16.0, 1.0], 1, 4).tolist())
    assert table.eta_squared.tolist() == pytest.approx([0.16, 0.64, 0.04, 0.16])
    assert table.partial_eta_squared.tolist()[:3] == pytest.approx([0.5, 0.8, 0.2])
    assert (found.rows, found.rows_left_out, found.notes) == (8, 0, ())


def unbalanced(seed: int, runs: int = 48) -> pd.DataFrame:
    """Three stores by four counts, each with a run at least, some with many."""
    rng = np.random.default_rng(seed)
    stores, counts = ["s3", "s3x", "gcp"], [1, 10, 20, 50]
    every = [(a, b) for a in stores for b in counts]
    more = zip(rng.choice(stores, size=runs, p=[0.6, 0.3, 0.1]), rng.choice(counts, size=runs), strict=True)
    frame = pd.DataFrame([*every, *more], columns=["a", "b"])
    frame["seed"] = rng.integers(0, 5, size=len(frame))
    frame["y"] = rng.normal(size=len(frame)) + (frame.a == "s3") * 0.7 + np.log(frame.b) * (frame.a == "gcp")
    return frame


def expected(frame: pd.DataFrame, formula: str, names: Sequence[str]) -> list[list[float]]:
    table = anova_lm(ols(formula, frame).fit(), typ=2).loc[list(names)]
    return table[["sum_sq", "df", "F", "PR(>F)"]].to_numpy().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_type_two_is_that_of_statsmodels(seed: int) -> None:
    frame = unbalanced(seed)
    for factors, block, formula, names in (
        (["a"], None, "y ~ C(a)", ["C(a)", "Residual"]),
        (["a", "b"], None, "y ~ C(a) * C(b)", ["C(a)", "C(b)", "C(a):C(b)", "Residual"]),
        (["a"], "seed", "y ~ C(seed) + C(a)", ["C(seed)", "C(a)", "Residual"]),
        (["b", "a"], "seed", "y ~ C(seed) + C(a) * C(b)", ["C(seed)", "C(b)", "C(a)", "C(a):C(b)", "Residual"]),
    ):
        found = anova(frame, "y", factors, block=block).table[COLUMNS].to_numpy()
        assert found == pytest.approx(np.array(expected(frame, formula, names)), nan_ok=True), formula


def test_one_way_is_scipys() -> None:
    frame = unbalanced(9)
    tested = stats.f_oneway(*(rows.y for _, rows in frame.groupby("a")))
    found = anova(frame, "y", ["a"]).table.iloc[0]
    assert (found.f, found.p_value) == pytest.approx((tested.statistic, tested.pvalue))


def test_a_combination_that_was_not_run_takes_degrees_of_freedom_from_the_interaction() -> None:
    frame = unbalanced(2).query("not (a == 's3x' and b == 50)")
    table = anova(frame, "y", ["a", "b"]).table
    assert table.df.tolist() == [2, 3, 5, len(frame) - 11]
    cells = frame.groupby(["a", "b"]).y
    assert table.sum_of_squares.tolist()[-1] == pytest.approx(float(((frame.y - cells.transform("mean")) ** 2).sum()))


def test_with_one_run_a_cell_the_interaction_is_noise() -> None:
    frame = constructed().query("seed == 0")
    found = anova(frame, "y", ["a", "b"])
    assert found.table.term.tolist() == ["a", "b", RESIDUAL]
    assert found.table.df.tolist() == [1, 1, 1]
    assert "the interaction is part of the residual" in found.notes[0]


def test_where_runs_share_random_numbers_blocks_take_the_seed_out() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame([{"a": a, "seed": seed} for a in range(3) for seed in range(6)])
    frame["y"] = 0.5 * frame.a + rng.normal(0.0, 5.0, size=6)[frame.seed] + rng.normal(0.0, 0.2, size=18)
    alone, blocked = (anova(frame, "y", ["a"], block=block).table.set_index("term") for block in (None, "seed"))
    assert alone.p_value["a"] > 0.5
    assert blocked.p_value["a"] < 1e-3
    assert blocked.sum_of_squares["a"] == pytest.approx(alone.sum_of_squares["a"])


def test_a_null_is_refused_as_often_as_it_should_be() -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame([{"a": a, "b": b} for a in range(3) for b in range(2) for _ in range(4)])
    tables = [anova(frame.assign(y=rng.normal(size=24)), "y", ["a", "b"]).table for _ in range(250)]
    p_values = np.array([table.p_value.to_numpy()[:3] for table in tables])
    for term in range(3):
        assert stats.kstest(p_values[:, term], "uniform").pvalue > 1e-4


def test_a_response_without_noise_or_change() -> None:
    frame = constructed().assign(exact=lambda rows: rows.a * 2.0, same=3.3)
    exact = anova(frame, "exact", ["a"]).table.iloc[0]
    assert (exact.f, exact.p_value, exact.eta_squared) == (np.inf, 0.0, pytest.approx(1.0))
    same = anova(frame, "same", ["a"])
    assert np.isnan(same.table.eta_squared[0])
    assert "never changes" in same.notes[0]


def test_runs_without_a_value_are_left_out_and_counted() -> None:
    frame = constructed()
    frame.loc[0, "y"] = np.nan
    found = anova(frame, "y", ["a", "b"])
    assert (found.rows, found.rows_left_out) == (7, 1)


@pytest.mark.parametrize(
    ("frame", "response", "factors", "said"),
    [
        (constructed(), "z", ["a"], "z: no such metric or key"),
        (constructed(), "y", ["A"], "A: no such metric or key"),
        (constructed(), "y", [], "factors none"),
        (constructed(), "y", ["a", "a"], "factors a, a"),
        (constructed().assign(a=5), "y", ["a"], r"a: one value only \(5\)"),
        (constructed().assign(y=np.nan), "y", ["a"], "y: no run has a value"),
        (constructed().query("seed == 0 and b == 1"), "y", ["a"], "replicates"),
    ],
)
def test_what_cannot_be_analysed_is_one_line(frame: pd.DataFrame, response: str, factors: list[str], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        anova(frame, response, factors)


def test_a_line_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(2)
    x = rng.permutation(np.geomspace(1.0, 100.0, 25))
    y = 3.0 * x**1.5 * np.exp(rng.normal(0.0, 0.1 * np.sqrt(x)))
    found = log_log_fit([*x, 7.0], [*y, np.nan])
    order = np.argsort(x)
    model = OLS(np.log(y[order]), add_constant(np.log(x[order]))).fit()
    assert (found.intercept, found.slope) == pytest.approx(tuple(model.params))
    assert (found.slope_low, found.slope_high) == pytest.approx(tuple(model.conf_int()[1]))
    assert found.r_squared == pytest.approx(model.rsquared)
    assert found.breusch_pagan_p == pytest.approx(het_breuschpagan(model.resid, model.model.exog)[1])
    assert found.durbin_watson == pytest.approx(durbin_watson(model.resid))
    assert found.rows == 25


def test_the_checks_of_a_line_see_what_is_wrong_with_it() -> None:
    rng = np.random.default_rng(6)
    x = np.geomspace(1.0, 100.0, 200)
    good = log_log_fit(x, x**2.0 * np.exp(rng.normal(0.0, 0.1, size=200)))
    bent = log_log_fit(x, (1.0 + x**2.0) * np.exp(rng.normal(0.0, 0.02, size=200)))
    spread = log_log_fit(x, x**2.0 * np.exp(rng.normal(size=200) * 0.05 * x))
    assert good.breusch_pagan_p > 0.01
    assert 1.5 < good.durbin_watson < 2.5
    assert bent.durbin_watson < 1.0
    assert spread.breusch_pagan_p < 0.01


def test_the_interval_of_a_slope_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(12)
    x = np.geomspace(1.0, 64.0, 7)
    fits = [log_log_fit(x, x**-0.7 * np.exp(rng.normal(0.0, 0.3, size=7))) for _ in range(1000)]
    covered = sum(fit.slope_low <= -0.7 <= fit.slope_high for fit in fits)
    assert stats.binomtest(covered, 1000, 0.95).pvalue > 1e-4


def test_an_exact_line_has_no_residuals() -> None:
    found = log_log_fit([1.0, 2.0, 4.0], [3.0, 6.0, 12.0])
    assert (found.slope, found.r_squared) == pytest.approx((1.0, 1.0))
    assert np.isnan([found.breusch_pagan_p, found.durbin_watson]).all()
    assert np.isnan(log_log_fit([1.0, 2.0, 4.0], [3.0, 3.0, 3.0]).r_squared)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ([1.0, 2.0, 3.0], [1.0, 0.0, 2.0], "positive values"),
        ([1.0, 2.0], [1.0, 2.0], "three or more"),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], "different x"),
    ],
)
def test_a_line_that_cannot_be_drawn(x: Any, y: Any, said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        log_log_fit(x, y)
