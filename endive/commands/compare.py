"""`endive compare`: two experiments or sweeps, with a verdict for each metric."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from endive.commands import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from endive.comparison import Comparison

SUMMARY: Final = "compare two experiments or sweeps seed by seed, with a verdict for each metric"
EPILOG: Final = """\
examples:
  endive compare experiments/base-0123456789ab experiments/tuned-ba9876543210
  endive compare before/experiments after/experiments --metric success_rate --metric commit_latency_p99_ms
  endive compare before after --json --fail-on never | jq .worse

A is the baseline; B is better, worse, or there is no evidence that it differs. Exit code 1: something is worse; 2: they
cannot be compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("baseline", type=Path, metavar="A", help="directory of an experiment, or of experiments")
    parser.add_argument("other", type=Path, metavar="B", help="the same, to be compared with it")
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="what to compare; may be repeated (default: success, throughput, latency and retries)",
    )
    parser.add_argument("--operation-type", default="all", metavar="TYPE", help="of which operations (default: all)")
    parser.add_argument(
        "--fail-on", choices=["worse", "never"], default="worse", help="when to end with code 1 (default: worse)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def handle(options: argparse.Namespace) -> int:
    from endive.analysis.verdicts import HEADLINE_METRICS
    from endive.comparison import compare

    metrics = options.metric or HEADLINE_METRICS
    found = compare(options.baseline, options.other, metrics, options.operation_type)
    if options.json:
        print(json.dumps(_to_json(found, options)))
    else:
        print("\n".join(_lines(found, options)))
    return FAILED if found.is_worse and options.fail_on == "worse" else DONE


def _lines(found: Comparison, options: argparse.Namespace) -> Iterator[str]:
    yield f"A  {options.baseline}"
    yield f"B  {options.other}"
    for key, before, after in found.changed:
        yield f"   {key}: {before} -> {after}"
    if len(found.pairs) == 1:
        yield f"\nseeds {', '.join(map(str, found.pairs[0].seeds))}\n"
        yield _table(found.differences)
    else:
        yield f"\n{len(found.pairs)} pairs\n"
        yield _counts(found.differences)
        told = _differing(found.differences)
        for place, pair in enumerate(found.pairs):
            rows = told[told["pair"] == place]
            if len(rows):
                yield f"\n{pair.title} ({len(pair.seeds)} seeds)\n\n{_table(rows)}"
    yield ""
    for note in found.notes:
        yield f"note: {note}"
    yield from _explanation(found.differences)


def _differing(differences: pd.DataFrame) -> pd.DataFrame:
    from endive.analysis.verdicts import NO_EVIDENCE

    return differences[differences["verdict"] != NO_EVIDENCE]


def _explanation(differences: pd.DataFrame) -> Iterator[str]:
    """Yield how the verdicts came about, and what they do not tell."""
    tests = int(differences["p_value"].notna().sum())
    if tests:
        yield f"verdicts at 5 % over all {tests} comparisons together (Holm); each interval is 95 % on its own"
    differing = _differing(differences)["metric"]
    if differing.str.contains("latency").any() and (differing == "success_rate").any():
        yield "note: latency is of committed transactions only, and success differs: who gave up is not in it"


def _table(rows: pd.DataFrame) -> str:
    from endive.utils import format_table

    cells = [["", "A", "B", "B - A", "95 % interval", "p (Holm)", "verdict"]]
    for row in rows.to_dict("records"):
        low, high = row["difference_low"], row["difference_high"]
        interval = "–" if _absent(low) else f"{low:+.3g} to {high:+.3g}"
        figures = [*(_number(row[name], ".4g") for name in ("baseline", "value")), _number(row["difference"], "+.3g")]
        cells.append([str(row["metric"]), *figures, interval, _number(row["p_holm"], ".2g"), str(row["verdict"])])
    return format_table(cells)


def _counts(differences: pd.DataFrame) -> str:
    from endive.analysis.verdicts import BETTER, DIFFERENT, NO_EVIDENCE, WORSE
    from endive.utils import format_table

    verdicts = [BETTER, WORSE, DIFFERENT, NO_EVIDENCE]
    cells = [["", *verdicts]]
    for metric, rows in differences.groupby("metric", sort=False):
        cells.append([str(metric), *(str((rows["verdict"] == verdict).sum()) for verdict in verdicts)])
    return format_table(cells)


def _number(value: float | None, form: str) -> str:
    return "–" if _absent(value) else format(value, form)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


_FIGURES: Final = (
    "metric",
    "seeds",
    "baseline",
    "value",
    "difference",
    "difference_low",
    "difference_high",
    "relative_difference",
    "p_value",
    "p_holm",
    "verdict",
)


def _to_json(found: Comparison, options: argparse.Namespace) -> dict[str, Any]:
    def figures(place: int) -> list[dict[str, Any]]:
        rows = found.differences[found.differences["pair"] == place].to_dict("records")
        return [{name: None if _absent(row[name]) else row[name] for name in _FIGURES} for row in rows]

    return {
        "baseline": str(options.baseline),
        "other": str(options.other),
        "operation_type": options.operation_type,
        "changed": {key: {"baseline": before, "other": after} for key, before, after in found.changed},
        "worse": found.is_worse,
        "notes": list(found.notes),
        "pairs": [
            {
                "baseline": pair.baseline.folder.name,
                "other": pair.other.folder.name,
                "at": dict(pair.at),
                "seeds": list(pair.seeds),
                "metrics": figures(place),
            }
            for place, pair in enumerate(found.pairs)
        ],
    }
