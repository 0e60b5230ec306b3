"""What the URL of a Spark master says. Knows no Spark."""

from __future__ import annotations

import re
from typing import Final

from endive.config_errors import ConfigError
from endive.utils import available_cores

_LOCAL: Final = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:, *\d+)?\])?")
_CLUSTER: Final = re.compile(r"yarn|(?:spark|k8s)://.+|local-cluster\[.+\]")


def check_master(master: str) -> None:
    """Raise ConfigError unless this is the URL of a Spark master."""
    if not _LOCAL.fullmatch(master) and not _CLUSTER.fullmatch(master):
        allowed = "local, local[N] with N from 1, local[*], spark://HOST:PORT, yarn or k8s://URL"
        raise ConfigError([f"Spark master {master!r}: is not one; allowed is {allowed}"])


def local_cores(master: str | None) -> int | None:
    """Return how many cores of this machine a master uses; None if it is not of this machine."""
    found = _LOCAL.fullmatch("local[*]" if master is None else master)
    if found is None:
        return None
    return available_cores() if found.group(1) == "*" else int(found.group(1) or 1)
