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
Bounds        rate_bounds(config)                         all that a figure shows of them, from the mean latencies
              commit_rate_bound_per_s(config)             what typical attempts allow at the pointers
              clients_bound_per_s(config)                 what the clients of closed streams can ask for
              contended_rate_bound_per_s(config, n)       what n contenders for each pointer never exceed
              pointer_bound_per_s(times, pointers)        1 / exposure of an attempt, for each pointer
              contended_bound_per_s(sample, contenders)   the same for random latencies, where the fastest wins
              lone_client_bound_per_s(times)              1 / attempt time
              closed_loop_bound_per_s(times, clients)     clients / cycle
              closed_loop_success_bound(times, clients)   1 / clients, for clients that do not retry
              log_bound_per_s(append_ms, f)               records that land in a catalog's log
Differences   judge(differences)                          verdicts on DIFFERENCES of `endive.pipeline.schemas`
              good_direction(metric)                      which way a metric is good
Intervals     mean_interval(values)                       mean over seeds, Student's t interval
              holm(p_values)                              adjustment of many tests

Differences paired by seed are made by `endive.pipeline.metrics.paired_differences`.
"""

from endive.analysis.bounds import (
    AttemptTimes,
    closed_loop_bound_per_s,
    closed_loop_success_bound,
    contended_bound_per_s,
    expected_minimum,
    log_bound_per_s,
    lone_client_bound_per_s,
    pointer_bound_per_s,
)
from endive.analysis.effects import INTERACTION, RESIDUAL, Anova, LineFit, anova, log_log_fit
from endive.analysis.frames import AnalysisError
from endive.analysis.intervals import Interval, geometric_mean_interval, holm, mean_interval
from endive.analysis.model_bounds import (
    RateBounds,
    always_redone,
    clients_bound_per_s,
    commit_rate_bound_per_s,
    contended_rate_bound_per_s,
    count_pointers,
    mean_attempt_times,
    rate_bounds,
)
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
from endive.analysis.verdicts import HEADLINE_METRICS, good_direction, judge
from endive.analysis.warm_up import WarmUp, mser, warm_up_check

__all__ = [
    "HEADLINE_METRICS",
    "INTERACTION",
    "LEVELS",
    "LINEAR_SHARE",
    "RESIDUAL",
    "AnalysisError",
    "Anova",
    "AttemptTimes",
    "Interval",
    "LineFit",
    "RateBounds",
    "SaturationPoint",
    "SurvivalCurve",
    "WarmUp",
    "align_counts",
    "always_redone",
    "anova",
    "clients_bound_per_s",
    "closed_loop_bound_per_s",
    "closed_loop_success_bound",
    "commit_rate_bound_per_s",
    "contended_bound_per_s",
    "contended_rate_bound_per_s",
    "count_pointers",
    "expected_minimum",
    "falls_to",
    "geometric_mean_interval",
    "good_direction",
    "holm",
    "incidence",
    "judge",
    "kaplan_meier",
    "knee_of",
    "latency_views",
    "log_bound_per_s",
    "log_log_fit",
    "lone_client_bound_per_s",
    "mean_attempt_times",
    "mean_interval",
    "mser",
    "pointer_bound_per_s",
    "rate_bounds",
    "saturation_table",
    "success_load",
    "throughput_knee",
    "warm_up_check",
]
