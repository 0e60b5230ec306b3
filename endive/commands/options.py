"""What several commands take: the types of their arguments, and the seed that a run gets."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from endive.files import UnwritableOutputError

if TYPE_CHECKING:
    from endive.settings import Settings

_SEED_MAX: Final = 2**63 - 1


def seed(text: str) -> int:
    """Return the seed that an argument names."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {_SEED_MAX}")
    return int(text)


def positive(text: str) -> int:
    """Return the count that an argument names."""
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 to 999999999")
    return int(text)


def choose_seed(given: int | None, settings: Settings) -> int:
    """Return the seed that was given, or that of the file, or a new one."""
    if given is not None:
        return given
    if settings.simulation.seed is not None:
        return settings.simulation.seed
    return secrets.randbits(31)


def spare_configuration(config: Path, *outputs: Path | None) -> None:
    """Raise UnwritableOutputError if an output would replace the configuration that it is made from."""
    for output in outputs:
        if output is not None and os.path.exists(output) and output.samefile(config):  # noqa: PTH110  # never raises
            raise UnwritableOutputError(f"{output}: is the configuration; name another file")
