"""The noise: known answers of Philox, the layout of key and counter, and normals with the same bits on every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import noise_reference
from patrac_native.engine import _core

LEVELS: list[str] = list(_core.testing.levels())
DTYPES = ("float32", "float64")


def normals(
    dtype: str, count: int, *, seed: int = 1, chain: int = 0, step: int = 0, purpose: int = 0, level: str = LEVELS[0]
) -> npt.NDArray[Any]:
    function: Callable[..., npt.NDArray[Any]] = getattr(_core, f"standard_normals{dtype[-2:]}")
    return function(
        seed=seed, chain=chain, step=step, purpose=_core.Purpose(purpose), steps=1, count=count, level=level
    )[0]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter: str, key: str, expected: str, level: str) -> None:
    """The three vectors of the Random123 distribution's kat_vectors for philox4x32 of 10 rounds."""
    c, k, e = ([int(word, 16) for word in text.split()] for text in (counter, key, expected))
    assert list(_core.testing.philox(c, k, level)) == e
    assert list(noise_reference.philox(tuple(c), tuple(k))) == e


def test_philox_agrees_with_plain_python_on_random_counters(level: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        counter, key = (tuple(int(w) for w in rng.integers(0, 2**32, size)) for size in (4, 2))
        assert tuple(_core.testing.philox(counter, key, level)) == noise_reference.philox(counter, key)


def test_keys_are_seed_and_chain_and_longer_seeds_are_hashed_into_both_words(level: str) -> None:
    for seed, chain in ((0, 0), (1, 7), (2**32 - 1, 2**32 - 1), (123456789, 3)):
        assert list(_core.testing.stream_key(seed, chain, level)) == [seed, chain]
    seeds = [2**32, 2**32 + 1, 2**63, 2**64 - 1, 2**32 * 5 + 1]
    keys = {seed: tuple(_core.testing.stream_key(seed, 0, level)) for seed in seeds}
    assert len(set(keys.values())) == len(seeds)
    for seed in seeds:
        assert keys[seed] == noise_reference.stream_key(seed, 0)
        # Both words of the hash differ from the seed's own: none is passed through.
        assert keys[seed][0] != seed & 0xFFFFFFFF
        assert len({tuple(_core.testing.stream_key(seed, chain, level)) for chain in range(1000)}) == 1000


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("seed", "chain", "step", "purpose"),
    [(1, 0, 0, 0), (1, 3, 17, 0), (2**40 + 9, 2, 2**32 + 5, 2), (7, 1, 2**63, 65535)],
)
def test_normals_are_box_muller_of_the_philox_words(
    seed: int, chain: int, step: int, purpose: int, dtype: str, level: str
) -> None:
    """Against Box-Muller in long double from the same words.

    z = sqrt(-2 log u) trig: the root halves log's relative error, 0.84 ulp, and rounds once; the trigonometric
    functions are within 1.7 ulp (csrc/shared/turn.hpp); the product rounds once. An ulp is at most eps of the value:
    (0.42 + 0.5 + 1.7 + 0.5) eps, and second order: 4 eps relative to |z|, but near a zero of the trigonometric function
    too, since its error there is relative as well.
    """
    count = 301
    expected = noise_reference.normals(seed, chain, step, purpose, count, dtype)
    got = normals(dtype, count, seed=seed, chain=chain, step=step, purpose=purpose, level=level)
    assert got.dtype == np.dtype(dtype)
    eps = float(np.finfo(dtype).eps)
    assert (np.abs(got - expected) <= 4 * eps * np.abs(expected)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_normals_have_the_same_bits_on_every_level(dtype: str) -> None:
    for seed, step, count in ((1, 0, 10_000), (2**50, 3, 4_097)):
        first = normals(dtype, count, seed=seed, step=step, level=LEVELS[0])
        for level in LEVELS[1:]:
            assert first.tobytes() == normals(dtype, count, seed=seed, step=step, level=level).tobytes()
    if len(LEVELS) == 1:
        pytest.skip(f"this processor runs one level only: {LEVELS[0]}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_fewer_normals_are_a_prefix_of_more(dtype: str, level: str) -> None:
    """Coordinate k does not depend on how many are asked for."""
    whole = normals(dtype, 200, level=level)
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 199):
        np.testing.assert_array_equal(normals(dtype, count, level=level), whole[:count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_chain_seed_step_and_purpose_each_give_another_stream(dtype: str) -> None:
    """No value of 64 coincides but by chance: 2^-24 each for float32, so none is expected."""
    base = normals(dtype, 64)
    others = [
        normals(dtype, 64, chain=1),
        normals(dtype, 64, seed=2),
        normals(dtype, 64, step=1),
        normals(dtype, 64, step=2**32),
        *(normals(dtype, 64, purpose=purpose) for purpose in (1, 2, 3)),
    ]
    for index, other in enumerate(others):
        for earlier in (base, *others[:index]):
            assert not np.isin(other, earlier).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments_and_distribution_of_the_normals(dtype: str) -> None:
    """400,000 normals over steps and chains: moments within 4 standard errors, and Kolmogorov-Smirnov at level 1e-3."""
    z = np.concatenate(
        [normals(dtype, 2_000, chain=chain, step=step).astype(np.float64) for chain in range(4) for step in range(50)]
    )
    # Variance of z^k: E z^2k - (E z^k)^2 with E z^2 = 1, E z^4 = 3, E z^6 = 15, E z^8 = 105.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - mean) <= 4 * np.sqrt(variance / len(z))
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert np.abs(z).max() > 4.0  # P(no |z| > 4 in 400,000) = exp(-25)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbouring_coordinates_steps_and_chains_are_uncorrelated(dtype: str) -> None:
    """Sample correlations of 40,000 pairs within 4 standard errors; squares too, for the radius that pairs share."""
    block = np.stack(
        [[normals(dtype, 200, chain=chain, step=step) for step in range(40)] for chain in range(6)]
    ).astype(np.float64)
    pairs = {
        "coordinate": (block[..., :-1], block[..., 1:]),
        "step": (block[:, :-1], block[:, 1:]),
        "chain": (block[:-1], block[1:]),
    }
    for a, b in pairs.values():
        for power in (1, 2):
            x, y = (part.reshape(-1) ** power for part in (a, b))
            assert abs(np.corrcoef(x, y)[0, 1]) <= 4 / np.sqrt(len(x))


def test_the_environment_chooses_the_level_and_unknown_ones_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for level in LEVELS:
        monkeypatch.setenv("PATRAC_SIMD", level)
        assert _core.default_simd_level() == level
    monkeypatch.setenv("PATRAC_SIMD", "")
    assert _core.default_simd_level() in LEVELS
    monkeypatch.setenv("PATRAC_SIMD", "avx1024")
    with pytest.raises(ValueError, match=r"PATRAC_SIMD: no instruction-set level 'avx1024'.*choose one of "):
        _core.default_simd_level()
    with pytest.raises(ValueError, match=r"level: no instruction-set level 'v9' on this machine; choose one of "):
        normals("float32", 4, level="v9")
