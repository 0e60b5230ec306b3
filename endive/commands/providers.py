"""`endive providers`: what each store can do, and how fast."""

from __future__ import annotations

import argparse
from typing import Final

from endive.commands import DONE

SUMMARY: Final = "list what each storage provider can do, and how fast"
EPILOG: Final = """\
examples:
  endive providers
  endive providers --profile 2025-12
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=["2025-06", "2025-12"], help="one profile (default: each)")


def handle(options: argparse.Namespace) -> int:
    from endive.config import PROFILE_NAMES, load_provider_profiles
    from endive.provider_table import provider_table

    names = PROFILE_NAMES if options.profile is None else (options.profile,)
    for place, name in enumerate(names):
        if place:
            print()
        print(f"profile {name} (milliseconds; median ± σ of the logarithm, never below the floor)")
        print(provider_table(load_provider_profiles(name)))
    return DONE
