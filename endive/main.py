"""The command line. It parses, calls a command, and turns errors into one line and an exit code.

0: done. 1: something failed while running. 2: the input was wrong. 130: interrupted.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from endive import __version__
from endive.commands import (
    BAD_INPUT,
    DONE,
    FAILED,
    INTERRUPTED,
    analyze,
    bench,
    check,
    compare,
    consolidate,
    providers,
    run,
    status,
    summarize,
    sweep,
    trace,
)

COMMANDS: Final = {
    "run": run,
    "sweep": sweep,
    "status": status,
    "consolidate": consolidate,
    "summarize": summarize,
    "analyze": analyze,
    "compare": compare,
    "check": check,
    "trace": trace,
    "bench": bench,
    "providers": providers,
}

_EPILOG: Final = """\
examples:
  endive run examples/mixed.toml
  endive run examples/mixed.toml --seed 7 --output results.parquet
  endive check examples/mixed.toml
  endive trace examples/mixed.toml -o trace.json
  endive sweep exp1 --dry-run
  endive analyze experiments -o report
  endive compare before/experiments after/experiments
  endive providers --profile 2025-12
  endive bench --quick
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


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
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            parents=[common],
            help=command.SUMMARY,
            description=command.SUMMARY[0].upper() + command.SUMMARY[1:] + ".",
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(handler=command.handle)
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
        code: int = options.handler(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("endive: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return DONE
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    return code


def _explain(error: Exception) -> int:
    from endive.config_errors import ConfigError
    from endive.engine import NotCompiledError
    from endive.files import UnwritableOutputError
    from endive.pipeline.errors import ConsolidationError, SparkUnavailableError, SummarizationError, SweepError

    if isinstance(error, ConfigError):
        for line in error.lines:
            print(f"endive: {line}", file=sys.stderr)
        return BAD_INPUT
    if isinstance(error, UnwritableOutputError | NotCompiledError | SparkUnavailableError):
        print(f"endive: {error}", file=sys.stderr)
        return BAD_INPUT
    if isinstance(error, SweepError | ConsolidationError | SummarizationError):
        print(f"endive: {error}", file=sys.stderr)
        return FAILED
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    print(f"endive: failed: {where}{what} (--debug shows where)", file=sys.stderr)
    return FAILED


def _log_to_stderr() -> None:
    """Let what the library has to say appear as lines of this program."""
    import logging

    logging.basicConfig(stream=sys.stderr, format="endive: %(message)s", level=logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
