"""Substreams: derived as decision 0001 says, independent of each other, and without memory."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy import stats

from endive.random_streams import (
    Source,
    SubstreamFamily,
    family_base,
    mix,
    name_word,
    new_random_state,
    substream_words,
)

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def split_mix_64(seed: int, count: int) -> list[int]:
    """The generator of Steele, Lea and Flood (2014), written from its paper."""
    outputs = []
    state = seed
    for _ in range(count):
        state = (state + GOLDEN) & MASK
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        outputs.append(word ^ (word >> 31))
    return outputs


def sfc_64(a: int, b: int, c: int, counter: int, count: int) -> list[int]:
    """Doty-Humphrey's small fast chaotic generator, written from its description."""
    outputs = []
    for _ in range(count):
        out = (a + b + counter) & MASK
        counter = (counter + 1) & MASK
        a = b ^ (b >> 11)
        b = (c + (c << 3)) & MASK
        c = (((c << 24) | (c >> 40)) & MASK) + out & MASK
        outputs.append(out)
    return outputs


def test_the_known_first_outputs_of_split_mix_64() -> None:
    """Published test vector for seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert split_mix_64(1234567, 3) == expected
    assert [mix((1234567 + GOLDEN * step) & MASK) for step in (1, 2, 3)] == expected


def test_words_are_consecutive_outputs_of_one_generator() -> None:
    base = family_base(42, Source.RUNTIME, "ingest", 3)
    outputs = split_mix_64(base, 300)
    assert [word for index in range(100) for word in substream_words(base, index)] == outputs


def test_draws_are_those_of_sfc_64_from_the_words() -> None:
    rng = new_random_state()
    SubstreamFamily(7, Source.IO, "a", 2).seek(rng, 5)
    words = substream_words(family_base(7, Source.IO, "a", 2), 5)
    expected = [(word >> 11) * 2.0**-53 for word in sfc_64(*words, 1, 1000)]
    assert [rng.random_sample() for _ in range(1000)] == expected


def test_normals_are_those_of_the_polar_method_from_the_first_words_on() -> None:
    """Marsaglia's polar method gives two normals; the second point's comes first, the other is kept back."""
    rng, uniforms = new_random_state(), new_random_state()
    family = SubstreamFamily(3, Source.IO)
    for index in range(50):
        family.seek(rng, index)
        family.seek(uniforms, index)
        square = 2.0
        while not 0.0 < square < 1.0:
            first, second = (2.0 * uniforms.random_sample() - 1.0 for _ in range(2))
            square = first * first + second * second
        scale = np.sqrt(-2.0 * np.log(square) / square)
        assert [rng.standard_normal(), rng.standard_normal()] == pytest.approx([scale * second, scale * first])


def test_seek_forgets_a_cached_normal() -> None:
    family, rng, fresh = SubstreamFamily(1, Source.IO), new_random_state(), new_random_state()
    family.seek(rng, 0)
    rng.standard_normal()  # the polar method keeps a second normal back
    family.seek(rng, 1)
    family.seek(fresh, 1)
    assert [rng.standard_normal() for _ in range(4)] == [fresh.standard_normal() for _ in range(4)]


def test_every_part_of_the_key_matters() -> None:
    bases = {
        family_base(seed, source, stream, client)
        for seed in (0, 1, 2**63 - 1)
        for source in Source
        for stream in ("", "a", "b")
        for client in (0, 1)
    }
    assert len(bases) == 3 * len(Source) * 3 * 2


def test_names_are_hashed_alike_everywhere() -> None:
    """BLAKE2b of the empty string with an 8-byte digest, little-endian."""
    assert name_word("") == int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "little")


@pytest.mark.parametrize("source", list(Source))
def test_first_draws_across_indices_are_uniform_and_uncorrelated(source: Source) -> None:
    family, rng = SubstreamFamily(2024, source, "s"), new_random_state()
    draws = []
    for index in range(20_000):
        family.seek(rng, index)
        draws.append([rng.random_sample() for _ in range(3)])
    table = np.array(draws)
    for column in range(3):
        assert stats.kstest(table[:, column], "uniform").pvalue > 1e-4
        neighbours = np.corrcoef(table[:-1, column], table[1:, column])[0, 1]
        assert abs(neighbours) < 4 / np.sqrt(len(table))
    assert abs(np.corrcoef(table[:, 0], table[:, 1])[0, 1]) < 4 / np.sqrt(len(table))


def test_streams_of_neighbouring_seeds_are_uncorrelated() -> None:
    firsts = []
    rng = new_random_state()
    for seed in range(20_000):
        SubstreamFamily(seed, Source.ARRIVAL).seek(rng, 0)
        firsts.append(rng.random_sample())
    assert stats.kstest(firsts, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 4 / np.sqrt(len(firsts))


@pytest.mark.parametrize(
    ("source", "number"),
    [("ARRIVAL", 0), ("RUNTIME", 1), ("OPERATION", 2), ("TABLES", 3), ("PARTITIONS", 4), ("IO", 5), ("GROUPS", 6)],
)
def test_the_base_of_a_family_is_that_of_decision_0001(source: str, number: int) -> None:
    """Base = mix(seed + G), then base = mix((base xor part) + G) for source, hashed name and client."""
    name = int.from_bytes(hashlib.blake2b(b"ingest", digest_size=8).digest(), "little")
    base = split_mix_64(42, 1)[0]
    for part in (number, name, 7):
        base = split_mix_64(base ^ part, 1)[0]
    assert family_base(42, Source[source], "ingest", 7) == base
