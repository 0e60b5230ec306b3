"""`endive trace`: what the first transactions of a run do, step by step."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Final

from endive.commands import DONE
from endive.commands.options import choose_seed, positive, seed, spare_configuration

SUMMARY: Final = "record what the first transactions of a run do, step by step"
EPILOG: Final = """\
examples:
  endive trace examples/mixed.toml -o trace.json
  endive trace examples/maintenance.toml -o trace.json --transactions 500 --events events.parquet

Open the trace in chrome://tracing or in Perfetto. A row is a transaction, a slice something it did; failed
commits, conflicts and ends are marked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="TOML file")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", required=True, help="Chrome trace (JSON)")
    parser.add_argument("--events", type=Path, metavar="PATH", help="the same as an event log (Parquet)")
    parser.add_argument(
        "--transactions", type=positive, default=200, metavar="N", help="how many to record (default: 200)"
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="seed, instead of simulation.seed")


def handle(options: argparse.Namespace) -> int:
    from endive.config import build_simulation_config, load_settings
    from endive.config_errors import ConfigError
    from endive.files import whole_file
    from endive.simulation import Simulation
    from endive.trace import TraceRecorder, write_chrome_trace, write_event_log

    if options.events is not None and options.events.resolve() == options.output.resolve():
        raise ConfigError([f"trace: --events {options.events} is the same file as --output; name another"])
    settings = load_settings(options.config)
    spare_configuration(options.config, options.output, options.events)
    seed = choose_seed(options.seed, settings)
    recorder = TraceRecorder(options.transactions)
    simulation = Simulation(build_simulation_config(settings, seed_override=seed))
    with contextlib.ExitStack() as outputs:
        trace = outputs.enter_context(whole_file(options.output))
        events = None if options.events is None else outputs.enter_context(whole_file(options.events))
        simulation.run(recorder=recorder, keep_transactions=False)
        write_chrome_trace(recorder, trace)
        if events is not None:
            write_event_log(recorder, events)
    written = options.output if options.events is None else f"{options.output} and {options.events}"
    print(f"{len(recorder.events):,} events of {recorder.recorded:,} transactions in {written} (seed {seed})")
    return DONE
