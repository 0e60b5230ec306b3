"""Random substreams as decision 0001 derives them, and the draws of `RandomState` over SFC64, compiled."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from endive.engine.jit import called, inlined

_U64 = np.uint64
_GOLDEN: Final = _U64(0x9E3779B97F4A7C15)
_PER_SUBSTREAM: Final = _U64(3)
_MIX_FIRST: Final = _U64(0xBF58476D1CE4E5B9)
_MIX_SECOND: Final = _U64(0x94D049BB133111EB)
_ONE: Final = _U64(1)
_S3, _S11, _S24, _S27, _S30, _S31, _S40 = (_U64(bits) for bits in (3, 11, 24, 27, 30, 31, 40))
_TO_UNIT: Final = 1.0 / 9007199254740992.0


@inlined
def _mix(word: Any) -> Any:
    word = (word ^ (word >> _S30)) * _MIX_FIRST
    word = (word ^ (word >> _S27)) * _MIX_SECOND
    return word ^ (word >> _S31)


@called
def seek(rng: Any, base: Any, index: int) -> None:
    """Put a generator at the start of substream `index`."""
    position = base + _GOLDEN * _PER_SUBSTREAM * _U64(index)
    rng.a = _mix(position + _GOLDEN)
    rng.b = _mix(position + _GOLDEN + _GOLDEN)
    rng.c = _mix(position + _GOLDEN + _GOLDEN + _GOLDEN)
    rng.counter = _ONE
    rng.has_gauss = 0


@inlined
def uniform(rng: Any) -> float:
    """Draw as `random_sample` does."""
    word = rng.a + rng.b + rng.counter
    rng.counter += _ONE
    rng.a = rng.b ^ (rng.b >> _S11)
    rng.b = rng.c + (rng.c << _S3)
    rng.c = ((rng.c << _S24) | (rng.c >> _S40)) + word
    return np.int64(word >> _S11) * _TO_UNIT


@called
def normal(rng: Any) -> float:
    """Draw as `standard_normal` does: the polar method, which keeps every second value back."""
    if rng.has_gauss:
        rng.has_gauss = 0
        return rng.gauss
    while True:
        x = 2.0 * uniform(rng) - 1.0
        y = 2.0 * uniform(rng) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            break
    scale = math.sqrt(-2.0 * math.log(square) / square)
    rng.gauss = scale * x
    rng.has_gauss = 1
    return scale * y


@called
def exponential(rng: Any) -> float:
    """Draw as `standard_exponential` does."""
    return -math.log(1.0 - uniform(rng))
