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
def _step(a: Any, b: Any, c: Any, counter: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the next word of SFC64 and the state after it."""
    word = a + b + counter
    return word, b ^ (b >> _S11), c + (c << _S3), ((c << _S24) | (c >> _S40)) + word, counter + _ONE


@inlined
def _to_unit(word: Any) -> float:
    return np.int64(word >> _S11) * _TO_UNIT


@inlined
def uniform(rng: Any) -> float:
    """Draw as `random_sample` does."""
    word, rng.a, rng.b, rng.c, rng.counter = _step(rng.a, rng.b, rng.c, rng.counter)
    return _to_unit(word)


@inlined
def polar_pair(a: Any, b: Any, c: Any, counter: Any) -> tuple[float, float, Any, Any, Any, Any]:
    """Return two standard normal values, the first to be used first, and the state after them."""
    while True:
        word, a, b, c, counter = _step(a, b, c, counter)
        x = 2.0 * _to_unit(word) - 1.0
        word, a, b, c, counter = _step(a, b, c, counter)
        y = 2.0 * _to_unit(word) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            break
    scale = math.sqrt(-2.0 * math.log(square) / square)
    return scale * y, scale * x, a, b, c, counter


@called
def normal(rng: Any) -> float:
    """Draw as `standard_normal` does: the polar method, which keeps every second value back."""
    if rng.has_gauss:
        rng.has_gauss = 0
        return rng.gauss
    drawn, rng.gauss, rng.a, rng.b, rng.c, rng.counter = polar_pair(rng.a, rng.b, rng.c, rng.counter)
    rng.has_gauss = 1
    return drawn


@called
def exponential(rng: Any) -> float:
    """Draw as `standard_exponential` does."""
    return -math.log(1.0 - uniform(rng))
