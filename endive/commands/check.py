"""`endive check`: a configuration, validated and shown."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from endive.commands import DONE

SUMMARY: Final = "validate a configuration and print every setting in force"
EPILOG: Final = """\
examples:
  endive check examples/mixed.toml
  endive check --schema > endive.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", nargs="?", help="TOML file")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead")


def handle(options: argparse.Namespace) -> int:
    from endive.config import compute_experiment_hash, json_schema, load_settings, resolved_lines, warnings_of
    from endive.config_errors import ConfigError

    if options.schema:
        print(json.dumps(json_schema(), indent=2))
        return DONE
    if options.config is None:
        raise ConfigError(["check: CONFIG is missing; name a TOML file, or ask for --schema"])
    settings = load_settings(options.config)
    for line in resolved_lines(settings):
        print(line)
    print(f"\n# configuration {compute_experiment_hash(settings)}")
    for warning in warnings_of(settings):
        print(f"endive: warning: {warning}", file=sys.stderr)
    return DONE
