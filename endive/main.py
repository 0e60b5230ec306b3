"""The command line. It parses, calls, prints, and turns errors into one line and an exit code.

0: done. 1: something failed while running. 2: the input was wrong. 130: interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from endive import __version__

if TYPE_CHECKING:
    from endive.settings import Settings

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130

_SEED_MAX: Final = 2**63 - 1

_EPILOG = """\
examples:
  endive run examples/mixed.toml
  endive run examples/mixed.toml --seed 7 --output results.parquet
  endive check examples/mixed.toml
  endive trace examples/mixed.toml -o trace.json
  endive providers --profile 2025-12
  endive bench --quick
"""
_RUN_EPILOG = """\
examples:
  endive run examples/mixed.toml
  endive run examples/mixed.toml --seed 7 --output seed7.parquet
  endive run examples/mixed.toml --json | jq .operations.all.success_rate
  endive run examples/mixed.toml --engine reference

The compiled engine is compiled on its first use, and kept in ENDIVE_CACHE_DIR, by default ~/.cache/endive.

Rows go to --output; else, with an experiment.label, to experiments/<label>-<hash>/<seed>/results.parquet;
else to simulation.output_path; else nowhere.
"""
_CHECK_EPILOG = """\
examples:
  endive check examples/mixed.toml
  endive check --schema > endive.schema.json
"""
_TRACE_EPILOG = """\
examples:
  endive trace examples/mixed.toml -o trace.json
  endive trace examples/maintenance.toml -o trace.json --transactions 500 --events events.parquet

Open the trace in chrome://tracing or in Perfetto. A row is a transaction, a slice something it did; failed
commits, conflicts and ends are marked.
"""
_BENCH_EPILOG = """\
examples:
  endive bench --quick
  endive bench
  endive bench benchmarks/mixed.toml --engine compiled

Without CONFIG, the set that comes with Endive. Wall time includes writing the results. ns/event and ns/draw are of the
compiled kernel alone: events are where transactions meet shared state, draws are storage latencies.
"""
_PROVIDERS_EPILOG = """\
examples:
  endive providers
  endive providers --profile 2025-12
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {_SEED_MAX}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 to 999999999")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="endive",
        description="Simulate the commit protocol of Apache Iceberg over real object-store latencies.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"endive {__version__}")
    common = _Parser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            parents=[common],
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    run = add("run", "simulate one configuration and summarize what happened", _RUN_EPILOG)
    run.add_argument("config", type=Path, metavar="CONFIG", help="TOML file")
    run.add_argument("--seed", type=_seed, metavar="N", help="seed, instead of simulation.seed")
    run.add_argument("--output", type=Path, metavar="PATH", help="results file (Parquet)")
    run.add_argument(
        "--engine",
        choices=["auto", "compiled", "reference"],
        default="auto",
        help="what runs it; both give the same results (default: auto, which is compiled)",
    )
    run.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    run.add_argument("--quiet", action="store_true", help="show no progress")
    run.set_defaults(handler=_run)

    check = add("check", "validate a configuration and print every setting in force", _CHECK_EPILOG)
    check.add_argument("config", type=Path, metavar="CONFIG", nargs="?", help="TOML file")
    check.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead")
    check.set_defaults(handler=_check)

    trace = add("trace", "record what the first transactions of a run do, step by step", _TRACE_EPILOG)
    trace.add_argument("config", type=Path, metavar="CONFIG", help="TOML file")
    trace.add_argument("-o", "--output", type=Path, metavar="PATH", required=True, help="Chrome trace (JSON)")
    trace.add_argument("--events", type=Path, metavar="PATH", help="the same as an event log (Parquet)")
    trace.add_argument(
        "--transactions", type=_positive, default=200, metavar="N", help="how many to record (default: 200)"
    )
    trace.add_argument("--seed", type=_seed, metavar="N", help="seed, instead of simulation.seed")
    trace.set_defaults(handler=_trace)

    bench = add("bench", "measure both engines on the same configurations", _BENCH_EPILOG)
    bench.add_argument("configs", type=Path, metavar="CONFIG", nargs="*", help="TOML files")
    bench.add_argument("--engine", choices=["both", "compiled", "reference"], default="both", help="(default: both)")
    bench.add_argument("--quick", action="store_true", help="simulate a tenth of each duration")
    bench.add_argument("--json", action="store_true", help="print the measurements as one JSON object")
    bench.set_defaults(handler=_bench)

    providers = add("providers", "list what each storage provider can do, and how fast", _PROVIDERS_EPILOG)
    providers.add_argument("--profile", choices=["2025-06", "2025-12"], help="one profile (default: each)")
    providers.set_defaults(handler=_providers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    debug = False
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        options = build_parser().parse_args(arguments)
        debug = options.debug
        _log_to_stderr()
        options.handler(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("endive: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    return DONE


def _explain(error: Exception) -> int:
    from endive.config_errors import ConfigError
    from endive.engine import NotCompiledError
    from endive.files import UnwritableOutputError

    if isinstance(error, ConfigError):
        for line in error.lines:
            print(f"endive: {line}", file=sys.stderr)
        return BAD_INPUT
    if isinstance(error, UnwritableOutputError | NotCompiledError):
        print(f"endive: {error}", file=sys.stderr)
        return BAD_INPUT
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    print(f"endive: failed: {where}{what} (--debug shows where)", file=sys.stderr)
    return FAILED


def _log_to_stderr() -> None:
    """Let what the library has to say appear as lines of this program."""
    import logging

    logging.basicConfig(stream=sys.stderr, format="endive: %(message)s", level=logging.WARNING)


def _run(options: argparse.Namespace) -> None:
    from endive.config import build_simulation_config, load_settings
    from endive.progress import ProgressLine
    from endive.simulation import Simulation
    from endive.summary import summarize, summary_table

    settings = load_settings(options.config)
    seed = _choose_seed(options.seed, settings)
    output = _choose_output(options.output, settings, seed)
    simulation = Simulation(build_simulation_config(settings, seed_override=seed))
    progress = None if options.quiet else ProgressLine(sys.stderr, settings.simulation.duration_ms)
    started_s = time.perf_counter()
    try:
        statistics = simulation.run(
            engine=options.engine,
            output=output,
            progress=None if progress is None else progress.update,
            keep_transactions=False,
        )
    finally:
        if progress is not None:
            progress.clear()
    wall_s = time.perf_counter() - started_s
    summary = summarize(statistics)
    if options.json:
        print(json.dumps(summary))
        return
    print(_headline(settings, summary, wall_s))
    print()
    print(summary_table(summary))
    print()
    print(f"catalog sequence number {summary['final_seq']:,}")
    print(f"rows in {output}" if output else "rows not kept: name a file with --output")


def _choose_seed(given: int | None, settings: Settings) -> int:
    if given is not None:
        return given
    if settings.simulation.seed is not None:
        return settings.simulation.seed
    return secrets.randbits(31)


def _choose_output(given: Path | None, settings: Settings, seed: int) -> Path | None:
    from endive.experiment import prepare_experiment, results_path

    if given is not None:
        return given
    if settings.experiment.label is not None:
        prepare_experiment(settings)
        return results_path(settings, seed)
    return None if settings.simulation.output_path is None else Path(settings.simulation.output_path)


def _headline(settings: Settings, summary: dict[str, Any], wall_s: float) -> str:
    from endive.config import catalog_type
    from endive.utils import format_duration

    storage, catalog = settings.storage, settings.catalog
    tables = f"{catalog.num_tables} table{'s' if catalog.num_tables > 1 else ''}"
    return (
        f"{tables} on {storage.provider} ({storage.profile}), {catalog_type(settings)} catalog, "
        f"seed {summary['seed']}, configuration {summary['config_hash']}\n"
        f"{format_duration(summary['end_ms'])} simulated in {format_duration(wall_s * 1000.0)} "
        f"({summary['events'] / wall_s:,.0f} events/s, {summary['engine']} engine)"
    )


def _check(options: argparse.Namespace) -> None:
    from endive.config import compute_experiment_hash, json_schema, load_settings, resolved_lines, warnings_of
    from endive.config_errors import ConfigError

    if options.schema:
        print(json.dumps(json_schema(), indent=2))
        return
    if options.config is None:
        raise ConfigError(["check: CONFIG is missing; name a TOML file, or ask for --schema"])
    settings = load_settings(options.config)
    for line in resolved_lines(settings):
        print(line)
    print(f"\n# configuration {compute_experiment_hash(settings)}")
    for warning in warnings_of(settings):
        print(f"endive: warning: {warning}", file=sys.stderr)


def _trace(options: argparse.Namespace) -> None:
    from endive.config import build_simulation_config, load_settings
    from endive.config_errors import ConfigError
    from endive.files import whole_file
    from endive.simulation import Simulation
    from endive.trace import TraceRecorder, write_chrome_trace, write_event_log

    if options.events is not None and options.events.resolve() == options.output.resolve():
        raise ConfigError([f"trace: --events {options.events} is the same file as --output; name another"])
    settings = load_settings(options.config)
    seed = _choose_seed(options.seed, settings)
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


def _bench(options: argparse.Namespace) -> None:
    from endive.benchmark import engines_table, loads_table, measure, measure_loads, shipped_set, to_json

    configs = options.configs or shipped_set()
    engines = ("reference", "compiled") if options.engine == "both" else (options.engine,)
    share = 0.1 if options.quick else 1.0
    measurements = []
    for path in configs:
        for found in measure(path, engines, share):
            measurements.append(found)
            print(f"{found.name}, {found.engine}: {found.wall_s:.3f} s", file=sys.stderr)
    loads = [] if options.configs else list(measure_loads(shipped_set()[0], share))
    if options.json:
        print(to_json(measurements, loads))
        return
    print(engines_table(measurements))
    if loads:
        print()
        print(loads_table(loads))


def _providers(options: argparse.Namespace) -> None:
    from endive.config import PROFILE_NAMES, load_provider_profiles
    from endive.provider_table import provider_table

    names = PROFILE_NAMES if options.profile is None else (options.profile,)
    for place, name in enumerate(names):
        if place:
            print()
        print(f"profile {name} (milliseconds; median ± σ of the logarithm, never below the floor)")
        print(provider_table(load_provider_profiles(name)))


if __name__ == "__main__":
    sys.exit(main())
