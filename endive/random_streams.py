"""Named random substreams: every draw of a run belongs to one of them.

A substream is identified by (seed, source, stream name, client, index), never by when it is used, so the
draws of one transaction do not depend on how transactions interleave. The derivation is decision 0001;
the compiled engine must repeat it word for word.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Final

import numpy as np

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_WORDS_PER_SUBSTREAM: Final = 3

SEED_MAX: Final = (1 << 63) - 1


class Source(IntEnum):
    """What a substream is drawn for. The numbers are part of the derivation."""

    ARRIVAL = 0
    RUNTIME = 1
    OPERATION = 2
    TABLES = 3
    PARTITIONS = 4
    IO = 5
    GROUPS = 6


def mix(word: int) -> int:
    """Return the SplitMix64 output function of a 64-bit word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def name_word(stream: str) -> int:
    """Return the 64-bit word that stands for a workload stream's name."""
    return int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "little")


def family_base(seed: int, source: Source, stream: str = "", client: int = 0) -> int:
    """Return the base of the substreams that differ in their index alone."""
    base = mix((seed + _GOLDEN) & _MASK)
    for part in (int(source), name_word(stream), client):
        base = mix(((base ^ part) + _GOLDEN) & _MASK)
    return base


def substream_words(base: int, index: int) -> tuple[int, int, int]:
    """Return the three SFC64 state words of substream `index`: SplitMix64 outputs 3i+1 to 3i+3 from `base`."""
    position = base + _GOLDEN * _WORDS_PER_SUBSTREAM * index
    return (
        mix((position + _GOLDEN) & _MASK),
        mix((position + 2 * _GOLDEN) & _MASK),
        mix((position + 3 * _GOLDEN) & _MASK),
    )


class SubstreamFamily:
    """The substreams of one (seed, source, stream, client), by index."""

    __slots__ = ("_base", "_state", "_words")

    def __init__(self, seed: int, source: Source, stream: str = "", client: int = 0) -> None:
        self._base = family_base(seed, source, stream, client)
        self._words = np.empty(4, dtype=np.uint64)
        self._state = {
            "bit_generator": "SFC64",
            "state": {"state": self._words},
            "has_uint32": 0,
            "uinteger": 0,
            "has_gauss": 0,
            "gauss": 0.0,
        }

    def seek(self, rng: np.random.RandomState, index: int) -> None:
        """Put `rng` at the start of substream `index`, without any cached normal."""
        self._words[0], self._words[1], self._words[2] = substream_words(self._base, index)
        self._words[3] = 1
        rng.set_state(self._state)


def new_random_state() -> np.random.RandomState:
    """Return a generator of the kind that substreams are drawn from; `seek` gives it its place."""
    return np.random.RandomState(np.random.SFC64(0))
