"""Whether a difference is for the better: intervals of paired differences, judged by what each metric is good for."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy import stats

from endive.analysis.frames import AnalysisError, Floats, check_columns, floats, unknown_name
from endive.analysis.intervals import CONFIDENCE, holm
from endive.pipeline.schemas import METRICS

HEADLINE_METRICS: Final = (
    "success_rate",
    "throughput_per_s",
    "commit_latency_p50_ms",
    "commit_latency_p95_ms",
    "commit_latency_p99_ms",
    "retries_per_commit",
)
"""What is compared unless metrics are named. Every metric more makes each verdict harder to reach."""

BETTER: Final = "better"
WORSE: Final = "worse"
DIFFERENT: Final = "different"
NO_EVIDENCE: Final = "no evidence"

Direction = Literal["higher", "lower"]

_HIGHER_IS_BETTER: Final = ("success_rate", "throughput_per_s")
_NEITHER_IS_BETTER: Final = ("offered_per_s",)
_ROUNDING: Final = 1e-9
"""Differences smaller than this share of what is compared are of rounding."""


def good_direction(metric: str) -> Direction | None:
    """Return which way a metric of METRICS is good; None if neither, since it describes what was asked."""
    if metric not in METRICS:
        raise AnalysisError(unknown_name("metric", metric, METRICS))
    if metric in _NEITHER_IS_BETTER:
        return None
    return "higher" if metric in _HIGHER_IS_BETTER else "lower"


def judge(differences: pd.DataFrame, alpha: float = 1.0 - CONFIDENCE) -> pd.DataFrame:
    """Return paired differences with `p_value`, `p_holm` and `verdict`.

    `differences` has the columns of `schemas.DIFFERENCES`. The p-value is that of the paired t-test. `p_holm` is
    adjusted for all rows that are given, so give what is judged together, and no more. The verdict is `better` or
    `worse` (the value, than the baseline) where `p_holm` is at most `alpha`, `different` where neither way is good,
    else `no evidence`: also with fewer than two seeds.
    """
    check_columns(differences, ["metric", "seeds", "difference", "difference_low", "difference_high"])
    judged = differences.copy()
    judged["p_value"] = _paired_p_values(differences)
    judged["p_holm"] = holm(judged["p_value"].tolist())
    rows = zip(judged["metric"], floats(judged, "difference"), judged["p_holm"], strict=True)
    judged["verdict"] = [
        _verdict(good_direction(metric), difference) if p_value <= alpha else NO_EVIDENCE
        for metric, difference, p_value in rows
    ]
    return judged


def _paired_p_values(differences: pd.DataFrame) -> Floats:
    """Return the p-value of each row, from its interval; NaN with fewer than two seeds."""
    seeds, mean = floats(differences, "seeds"), floats(differences, "difference")
    compared = np.fmax(np.abs(floats(differences, "baseline")), np.abs(floats(differences, "value")))
    half = (floats(differences, "difference_high") - floats(differences, "difference_low")) / 2.0
    freedom = np.maximum(seeds - 1.0, 1.0)
    standard_error = half / stats.t.ppf(0.5 + CONFIDENCE / 2.0, freedom)
    is_zero = np.abs(mean) <= _ROUNDING * compared
    never_varies = standard_error <= _ROUNDING * compared
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2.0 * stats.t.sf(np.abs(mean) / standard_error, freedom)
    p_values = np.where(never_varies, np.where(is_zero, 1.0, 0.0), p_values)
    return np.where((seeds >= 2.0) & ~np.isnan(half), p_values, np.nan)


def _verdict(good: Direction | None, difference: float) -> str:
    if good is None:
        return DIFFERENT
    return BETTER if (difference > 0.0) == (good == "higher") else WORSE
