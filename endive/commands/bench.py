"""`endive bench`: both engines, measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from endive.commands import DONE

SUMMARY: Final = "measure both engines on the same configurations"
EPILOG: Final = """\
examples:
  endive bench --quick
  endive bench
  endive bench benchmarks/mixed.toml --engine compiled

Without CONFIG, the set that comes with Endive. Wall time includes writing the results. ns/event and ns/draw are of the
compiled kernel alone: events are where transactions meet shared state, draws are storage latencies.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("configs", type=Path, metavar="CONFIG", nargs="*", help="TOML files")
    parser.add_argument("--engine", choices=["both", "compiled", "reference"], default="both", help="(default: both)")
    parser.add_argument("--quick", action="store_true", help="simulate a tenth of each duration")
    parser.add_argument("--json", action="store_true", help="print the measurements as one JSON object")


def handle(options: argparse.Namespace) -> int:
    from endive.benchmark import (
        MeasuredEngine,
        engines_table,
        loads_table,
        measure,
        measure_loads,
        shipped_set,
        to_json,
    )

    configs = options.configs or shipped_set()
    engines: list[MeasuredEngine] = ["reference", "compiled"] if options.engine == "both" else [options.engine]
    share = 0.1 if options.quick else 1.0
    measurements = []
    for path in configs:
        for found in measure(path, engines, share):
            measurements.append(found)
            print(f"{found.name}, {found.engine}: {found.wall_s:.3f} s", file=sys.stderr)
    loads = [] if options.configs else list(measure_loads(shipped_set()[0], share))
    if options.json:
        print(to_json(measurements, loads))
        return DONE
    print(engines_table(measurements))
    if loads:
        print()
        print(loads_table(loads))
    return DONE
