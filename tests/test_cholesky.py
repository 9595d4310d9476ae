"""The Cholesky routines of collapsed chains, level by level: rounding, structure, and what is not positive definite.

The bounds are those of Higham (2002), Accuracy and Stability of Numerical Algorithms, Theorems 8.5 and 10.3, with a few
roundings more for reciprocals. They hold entry by entry, so that one wrong entry of any block fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import problems
from patrac_native.engine import _core

FloatArray = npt.NDArray[np.float64]
LEVELS: list[str] = list(_core.testing.levels())
# Every width of the blocks of columns, alone and beside others, with every number of padding rows.
SIZES = [*range(1, 30), *range(48, 71)]


def positive_definite(size: int) -> FloatArray:
    """Return I + B B', whose rows have scales from 1e-3 to 1e3."""
    rng = problems.rng_of("cholesky", size)
    root = rng.normal(size=(size, 2 * size)) * np.geomspace(1e-3, 1e3, size)[:, None]
    return np.asarray(np.eye(size) + root @ root.T)


def results(matrix: FloatArray, level: str) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    found: tuple[Any, ...] = _core.testing.cholesky(np.ascontiguousarray(matrix), level)
    return found[0], found[1], found[2], found[3]


def gamma(roundings: int) -> float:
    product = roundings * np.finfo(float).eps / 2
    return product / (1 - product)


@pytest.mark.parametrize("size", SIZES)
def test_factor_inverse_and_product_are_within_their_rounding_bounds(size: int, level: str) -> None:
    matrix = positive_definite(size)
    # Entries below the diagonal are not read.
    log_determinant, u, w, inverse = results(np.triu(matrix) + np.tril(np.full_like(matrix, np.nan), -1), level)
    bound = gamma(size + 4)
    assert (np.abs(u.T @ u - matrix) <= 2 * bound * (np.abs(u.T) @ np.abs(u))).all()
    assert (np.abs(u.T @ w - np.eye(size)) <= 2 * bound * (np.abs(u.T) @ np.abs(w))).all()
    assert (np.abs(w.T @ w - inverse) <= 2 * bound * (np.abs(w.T) @ np.abs(w))).all()
    assert abs(log_determinant - 2 * np.log(np.diag(u)).sum()) <= bound * (1 + 2 * np.abs(np.log(np.diag(u))).sum())


@pytest.mark.parametrize("size", SIZES)
def test_zeros_are_zeros_and_the_inverse_is_symmetric_to_the_bit(size: int, level: str) -> None:
    _, _, w, inverse = results(positive_definite(size), level)
    assert np.count_nonzero(np.triu(w, 1)) == 0 and not np.signbit(np.triu(w, 1)).any()
    np.testing.assert_array_equal(inverse, inverse.T)


@pytest.mark.parametrize("row", [0, 1, 2, 3, 4, 7, 8, 11, 12])
@pytest.mark.parametrize("pivot", [-1.0, np.nan])
def test_what_is_not_positive_definite_has_no_log_determinant(row: int, pivot: float, level: str) -> None:
    matrix = positive_definite(13)
    matrix[row, row] = pivot
    assert np.isnan(results(matrix, level)[0])


def test_levels_agree_where_products_are_fused() -> None:
    """The blocks of a level have other widths, but the sums of an entry have one order."""
    fused = [level for level in LEVELS if level in {"v3", "v4"}]
    if len(fused) < 2:
        pytest.skip(f"needs levels v3 and v4; this build or processor has {', '.join(LEVELS)}")
    for size in SIZES:
        one, other = (results(positive_definite(size), level) for level in fused)
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)
