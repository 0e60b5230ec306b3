"""Makes the kernel ready before it is needed, and proves that it draws what the reference draws."""

from __future__ import annotations

import logging
import math
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from endive.engine.errors import NotCompiledError
from endive.engine.jit import cached
from endive.engine.kernel import advance
from endive.engine.layout import RNG, RUN
from endive.engine.random import exponential, normal, seek, uniform
from endive.random_streams import Source, SubstreamFamily, family_base, new_random_state

_logger = logging.getLogger("endive")
_DRAWS_COMPARED: Final = 1000


@cache
def warm_once() -> None:
    """Load the kernel, or compile it and say so; raise NotCompiledError if its draws are not the reference's."""
    is_kept = any(Path(advance.stats.cache_path).glob("*.nbi"))  # type: ignore[attr-defined]
    if not is_kept:
        _logger.warning("compiling the engine; its result is kept in %s", advance.stats.cache_path)  # type: ignore[attr-defined]
    started_s = time.perf_counter()
    empty = np.zeros(1, RUN)
    empty["has_begun"] = 1
    advance(empty, 0)
    if not np.array_equal(_compiled_draws(), _reference_draws()):
        raise NotCompiledError("on this machine the compiled engine draws other numbers than NumPy")
    if not is_kept:
        _logger.warning("compiled in %.0f s", time.perf_counter() - started_s)


@cached
def _draw(rngs: Any, base: Any, drawn: Any) -> None:
    rng = rngs[0]
    seek(rng, base, 1)
    for place in range(drawn.shape[0]):
        drawn[place, 0] = uniform(rng)
        drawn[place, 1] = math.exp(1.0 + 0.5 * normal(rng))
        drawn[place, 2] = exponential(rng)


def _compiled_draws() -> Any:
    drawn = np.empty((_DRAWS_COMPARED, 3))
    _draw(np.zeros(1, RNG), np.uint64(family_base(1, Source.IO)), drawn)
    return drawn


def _reference_draws() -> Any:
    rng = new_random_state()
    SubstreamFamily(1, Source.IO).seek(rng, 1)
    return np.array(
        [
            (rng.random_sample(), math.exp(1.0 + 0.5 * rng.standard_normal()), rng.standard_exponential())
            for _ in range(_DRAWS_COMPARED)
        ]
    )
