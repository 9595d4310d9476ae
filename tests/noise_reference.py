"""The oracle of the noise: Philox4x32-10 and the normals computed from it, in plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF
PROPOSAL, ACCEPTANCE = 0, 1


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Return the four words after the ten rounds of Salmon et al. (2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


def stream_key(seed: int, chain: int) -> tuple[int, int]:
    """Return the key (seed, chain); a seed of more than 32 bits is first hashed into both words."""
    if seed < 2**32:
        return seed, chain
    words = philox((seed & MASK, seed >> 32, 0, 0), (0x70617472, 0x61636E6E))
    return words[0], words[1] ^ chain


def words(seed: int, chain: int, step: int, purpose: int, block: int) -> tuple[int, ...]:
    """Four words of one coordinate block: counter = (block: 48, purpose: 16, step: 64)."""
    counter = (block & MASK, purpose << 16 | block >> 32, step & MASK, step >> 32)
    return philox(counter, stream_key(seed, chain))


def uniforms(
    seed: int, chain: int, step: int, purpose: int, count: int, dtype: str
) -> tuple[npt.NDArray[np.float64], ...]:
    """(u, t) of each pair of normals, exactly as numbers of float64; float32 rounds u once."""
    u, t = [], []
    for block in range(-(-count // (4 if dtype == "float32" else 2))):
        x = words(seed, chain, step, purpose, block)
        if dtype == "float32":
            for high, low in (x[:2], x[2:]):
                # 31 bits and a half, rounded to float32 when converted and again when the half is added.
                u.append(float((np.float32(high >> 1) + np.float32(0.5)) * np.float32(2.0**-31)))
                t.append((low >> 8) * 2.0**-24)
        else:
            u.append(((x[0] << 32 | x[1]) >> 12) * 2.0**-52 + 2.0**-53)
            t.append(((x[2] << 32 | x[3]) >> 12) * 2.0**-52)
    return np.array(u), np.array(t)


def acceptance_uniform(seed: int, chain: int, step: int) -> float:
    """Return the uniform number of the acceptance test."""
    x = words(seed, chain, step, ACCEPTANCE, 0)
    return ((x[0] << 32 | x[1]) >> 12) * 2.0**-52 + 2.0**-53


def normals(seed: int, chain: int, step: int, purpose: int, count: int, dtype: str) -> npt.NDArray[np.float64]:
    """Box-Muller in long double: sqrt(-2 log u) (cos, sin)(2 pi t), the pair in this order."""
    u, t = (part.astype(np.longdouble) for part in uniforms(seed, chain, step, purpose, count, dtype))
    # Quarter turns are taken off exactly, so that a sine or cosine near zero keeps its relative accuracy.
    quarter = np.round(4 * t)
    angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * (t - quarter / 4)
    sine, cosine = np.sin(angle), np.cos(angle)
    n = quarter.astype(int) % 4
    turned_cosine = np.choose(n, [cosine, -sine, -cosine, sine])
    turned_sine = np.choose(n, [sine, cosine, -sine, -cosine])
    radius = np.sqrt(-2 * np.log(u))
    pairs = np.stack([radius * turned_cosine, radius * turned_sine], axis=1)
    return pairs.reshape(-1)[:count].astype(np.float64)
