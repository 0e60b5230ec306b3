"""Where the knee is, what moves it, and how sure we are: pure functions on frames of run metrics.

Frames are RUN_METRICS of `endive.pipeline.schemas`: a row per run (experiment and seed) and operation type, here joined
with columns of swept keys where a function groups by them. Nothing here reads a file or knows Spark. What cannot be
answered raises `AnalysisError`, a ValueError of one line. What each statistic assumes: docs/background/statistics.md.

Saturation    success_load(runs, level)                   load at which success falls to a level, with an interval
              throughput_knee(runs)                       load at which the asymptotes of throughput meet
              saturation_table(runs, group_by)            both, for each group
Effects       anova(runs, response, factors)              one- and two-way, type II: F, p, η², partial η²
              log_log_fit(x, y)                           slope with interval, R², Breusch-Pagan, Durbin-Watson
Latency       kaplan_meier(time_ms, events, censored)     share that lasts longer, Greenwood intervals, quantiles
              incidence(time_ms, events, aborts, lost)    share committed by each time (Aalen-Johansen)
              align_counts(histogram, ...)                several histograms at common times
              latency_views(time_ms, committed, ...)      quantiles of the committed beside those of everyone
Warm-up       warm_up_check(series, bin_ms, start_ms)     MSER-5, with a warning where the window begins too early
              mser(series)                                how many observations to drop
Intervals     mean_interval(values)                       mean over seeds, Student's t interval
              holm(p_values)                              adjustment of many tests
"""

from endive.analysis.effects import Anova, LineFit, anova, log_log_fit
from endive.analysis.frames import AnalysisError
from endive.analysis.intervals import Interval, geometric_mean_interval, holm, mean_interval
from endive.analysis.saturation import (
    LEVELS,
    LINEAR_SHARE,
    SaturationPoint,
    falls_to,
    knee_of,
    saturation_table,
    success_load,
    throughput_knee,
)
from endive.analysis.survival import SurvivalCurve, align_counts, incidence, kaplan_meier, latency_views
from endive.analysis.warm_up import WarmUp, mser, warm_up_check

__all__ = [
    "LEVELS",
    "LINEAR_SHARE",
    "AnalysisError",
    "Anova",
    "Interval",
    "LineFit",
    "SaturationPoint",
    "SurvivalCurve",
    "WarmUp",
    "align_counts",
    "anova",
    "falls_to",
    "geometric_mean_interval",
    "holm",
    "incidence",
    "kaplan_meier",
    "knee_of",
    "latency_views",
    "log_log_fit",
    "mean_interval",
    "mser",
    "saturation_table",
    "success_load",
    "throughput_knee",
    "warm_up_check",
]
