"""What moves a metric: analysis of variance with effect sizes, and checks of a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from endive.analysis.frames import AnalysisError, Floats, check_columns, floats, of_operation, with_values
from endive.analysis.intervals import CONFIDENCE, check_confidence
from endive.pipeline.schemas import ALL

RESIDUAL: Final = "residual"
INTERACTION: Final = " × "


@dataclass(frozen=True, slots=True)
class Anova:
    """An analysis of variance.

    `table` has a row per term: the block, each factor, their interaction (INTERACTION joins the names) and `residual`.
    Columns: `term`, `sum_of_squares`, `df`, `f`, `p_value`, `eta_squared` (share of the total sum of squares),
    `partial_eta_squared` (share of the term's and the residual's together). What does not exist is NaN.
    """

    response: str
    table: pd.DataFrame
    rows: int
    rows_left_out: int
    notes: tuple[str, ...]


def anova(
    runs: pd.DataFrame,
    response: str,
    factors: Sequence[str],
    *,
    block: str | None = None,
    operation_type: str = ALL,
) -> Anova:
    """Return the one- or two-way analysis of variance of a metric, type II, with runs (seeds) as replicates.

    Each value of a factor is a level, numbers too. Type II: each main effect is what it explains beyond the other, the
    interaction what it explains beyond both; in a balanced design that is the classic decomposition. `block` is a
    column whose levels are taken out first, without interactions: `seed`, where experiments share random numbers. Where
    each cell has a single row, the interaction is left to the residual. Rows without a response are left out.
    """
    if not 1 <= len(factors) <= 2 or len(set(factors)) != len(factors):
        raise AnalysisError(f"factors {', '.join(factors) or 'none'}: one or two different ones are needed")
    selected = of_operation(runs, operation_type)
    columns = [*factors, *([] if block is None else [block])]
    check_columns(selected, [response, *columns])
    rows = with_values(selected, [response])
    design = _Design(rows, factors, block)
    values = floats(rows, response)
    notes = list(design.notes)
    if not len(set(values.tolist())) > 1:
        notes.append(f"{response} never changes: there is nothing to explain")
    return Anova(response, _anova_table(values, design), len(rows), len(selected) - len(rows), tuple(notes))


class _Design:
    """The linear models that are compared: each term is what it explains beyond all terms that do not contain it."""

    def __init__(self, rows: pd.DataFrame, factors: Sequence[str], block: str | None) -> None:
        self.notes: list[str] = []
        main = {name: _indicators(rows[name], name) for name in factors}
        constant = np.ones((len(rows), 1))
        blocks = [] if block is None else [_indicators(rows[block], block)]
        additive = np.hstack([constant, *blocks, *main.values()])
        crossed = self._interaction(additive, list(main.values()))
        self.full = np.hstack([additive, *crossed])
        self.steps: list[tuple[str, Floats, Floats]] = []
        """Of each term its name, and the model without and with it."""
        if block is not None:
            self.steps.append((block, np.hstack([constant, *main.values(), *crossed]), self.full))
        for name in factors:
            others = [indicators for other, indicators in main.items() if other != name]
            self.steps.append((name, np.hstack([constant, *blocks, *others]), additive))
        if crossed:
            self.steps.append((INTERACTION.join(factors), additive, self.full))
        if np.linalg.matrix_rank(self.full) == len(rows):
            raise AnalysisError(f"{', '.join(factors)}: one run for each combination; replicates (seeds) are needed")

    def _interaction(self, additive: Floats, main: list[Floats]) -> list[Floats]:
        """Return the columns of the interaction of two factors, or nothing where that would explain all there is."""
        if len(main) < 2:
            return []
        products = (main[0][:, :, None] * main[1][:, None, :]).reshape(len(additive), -1)
        if np.linalg.matrix_rank(np.hstack([additive, products])) == len(additive):
            self.notes.append("one run for each combination: the interaction is part of the residual")
            return []
        return [products]


def _indicators(column: pd.Series, name: str) -> Floats:
    """Return a column of ones and zeros for each level but the first."""
    codes, levels = pd.factorize(column, use_na_sentinel=False)
    if len(levels) < 2:
        raise AnalysisError(f"{name}: one value only ({levels[0]}), so it explains nothing")
    return np.asarray(codes[:, None] == np.arange(1, len(levels)), dtype=np.float64)


def _fit(model: Floats, values: Floats) -> tuple[float, int]:
    """Return the residual sum of squares of a least-squares fit, and the rank of its model."""
    solution, _, rank, _ = np.linalg.lstsq(model, values, rcond=None)
    residuals = values - model @ solution
    return float(residuals @ residuals), int(rank)


def _anova_table(values: Floats, design: _Design) -> pd.DataFrame:
    centred = values - values.mean()
    total = float(centred @ centred)
    negligible = 1e-12 * total
    fits = {id(model): _fit(model, centred) for _, *models in design.steps for model in (*models, design.full)}
    residual, full_rank = fits[id(design.full)]
    residual = residual if residual > negligible else 0.0
    residual_df = len(values) - full_rank
    rows = []
    for term, without, with_term in design.steps:
        (unexplained, rank_without), (left, rank) = fits[id(without)], fits[id(with_term)]
        explained = unexplained - left if unexplained - left > negligible else 0.0
        df = rank - rank_without
        f = _ratio(_ratio(explained, df), residual / residual_df)
        p_value = float(stats.f.sf(f, df, residual_df)) if df else np.nan
        shares = (_ratio(explained, total), _ratio(explained, explained + residual))
        rows.append((term, explained, df, f, p_value, *shares))
    rows.append((RESIDUAL, residual, residual_df, np.nan, np.nan, _ratio(residual, total), np.nan))
    columns = ["term", "sum_of_squares", "df", "f", "p_value", "eta_squared", "partial_eta_squared"]
    return pd.DataFrame(rows, columns=columns)


def _ratio(part: float, whole: float) -> float:
    """Return part / whole: infinite where only the whole is 0, NaN where both are."""
    if whole:
        return part / whole
    return np.inf if part > 0.0 else np.nan


@dataclass(frozen=True, slots=True)
class LineFit:
    """A straight line through logarithms, with what tells whether it should be believed.

    `breusch_pagan_p`: small where the scatter changes with x (studentized Breusch-Pagan test). `durbin_watson`, of the
    residuals by rising x: about 2 where they are independent, towards 0 where the relation bends. NaN: no residuals.
    """

    slope: float
    slope_low: float
    slope_high: float
    intercept: float
    r_squared: float
    rows: int
    breusch_pagan_p: float
    durbin_watson: float


def log_log_fit(x: ArrayLike, y: ArrayLike, confidence: float = CONFIDENCE) -> LineFit:
    """Fit log y = intercept + slope · log x by least squares; the interval of the slope is Student's t.

    Pairs without a value are left out. Raise AnalysisError for values that are not positive, or fewer than three pairs.
    """
    check_confidence(confidence)
    pairs = np.column_stack([np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)])
    pairs = pairs[~np.isnan(pairs).any(axis=1)]
    if (pairs <= 0.0).any():
        raise AnalysisError("a log-log line needs positive values")
    if len(pairs) < 3 or np.ptp(pairs[:, 0]) == 0.0:
        raise AnalysisError("a log-log line needs three or more pairs, with different x")
    log_x, log_y = np.log(pairs[np.argsort(pairs[:, 0], kind="stable")]).T
    line = stats.linregress(log_x, log_y)
    half = float(stats.t.ppf(0.5 + confidence / 2.0, len(pairs) - 2)) * line.stderr
    residuals = log_y - line.intercept - line.slope * log_x
    squares = float(residuals @ residuals)
    total = float(((log_y - log_y.mean()) ** 2).sum())
    exact = squares <= 1e-20 * max(total, 1.0)
    return LineFit(
        slope=float(line.slope),
        slope_low=float(line.slope - half),
        slope_high=float(line.slope + half),
        intercept=float(line.intercept),
        r_squared=1.0 - _ratio(squares, total) if total else np.nan,
        rows=len(pairs),
        breusch_pagan_p=np.nan if exact else _breusch_pagan_p(log_x, residuals),
        durbin_watson=np.nan if exact else float((np.diff(residuals) ** 2).sum()) / squares,
    )


def _breusch_pagan_p(x: Floats, residuals: Floats) -> float:
    """Return the p-value of Koenker's studentized form: n · R² of the squared residuals on x is χ² with one degree."""
    correlation = float(np.corrcoef(x, residuals**2)[0, 1])
    return float(stats.chi2.sf(len(x) * correlation**2, 1))
