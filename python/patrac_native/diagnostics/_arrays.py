"""Checks of shapes and values that the diagnostics and the plots share; every error message names its argument."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.validation.checks import refuse_masked

FloatArray = NDArray[np.float64]

#: Maximum size of the temporary arrays for one slice of rows or grid points: large enough that the loop over slices
#: costs nothing, small enough that the diagnostics never need memory in proportion to chains x draws x rows.
SLICE_BYTES = 32 * 1024 * 1024


def numeric(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return `value` as an array of real numbers; raise TypeError or ValueError if it is empty or not finite."""
    refuse_masked(value, name)
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float first")
    if array.size == 0:
        raise ValueError(f"{name} is empty: shape {array.shape}; it needs at least one entry on every axis")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} holds NaN or infinity, first at index {where}; remove or repair it")
    return array


def chain_draws(name: str, value: ArrayLike, *, min_draws: int) -> NDArray[Any]:
    """Return `value` of shape (chain, draw, ...); raise ValueError if a chain has fewer than `min_draws` draws."""
    array = numeric(name, value)
    if array.ndim < 2:
        raise ValueError(f"{name} must have shape (chain, draw, ...), got {array.shape}; one chain is {name}[None]")
    if array.shape[1] < min_draws:
        raise ValueError(
            f"{name} has {array.shape[1]} draws in each chain (shape {array.shape}, read as (chain, draw, ...)), "
            f"at least {min_draws} are needed; keep more draws"
        )
    return array


def function_draws(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return `value` of shape (chain, draw, n, m) in its own dtype; raise ValueError for another shape."""
    array = numeric(name, value)
    if array.ndim != 4:
        raise ValueError(
            f"{name} must have shape (chain, draw, n, m), got {array.shape}; "
            f"for one output add the last axis, {name}[..., None]"
        )
    return array


def targets(name: str, value: ArrayLike, draws_name: str, draws: NDArray[Any]) -> FloatArray:
    """Return targets of shape (n,), if m == 1, or (n, m) as float64 (n, m); n and m are those of `draws`."""
    array = numeric(name, value).astype(np.float64, copy=False)
    n, m = draws.shape[2:]
    if array.shape == (n, m) or (m == 1 and array.shape == (n,)):
        return array.reshape(n, m)
    expected = f"({n},) or ({n}, 1)" if m == 1 else f"({n}, {m})"
    raise ValueError(
        f"{name} must have shape {expected} to match {draws_name} of shape {draws.shape}, got {array.shape}"
    )


def noise_variance(value: ArrayLike, draws: NDArray[Any]) -> FloatArray:
    """Return the noise variance as a float64 array that broadcasts against `draws`; `nll` lists the shapes."""
    array = numeric("variance", value).astype(np.float64, copy=False)
    if not (array > 0).all():
        raise ValueError(f"variance must be positive, got {array.min()}")
    chain, draw, _, m = draws.shape
    if array.ndim == 0:
        return array.reshape(1, 1, 1, 1)
    if array.shape in ((1,), (m,)):
        return array.reshape(1, 1, 1, -1)
    if array.shape in ((chain, draw), (chain, draw, 1), (chain, draw, m)):
        return array.reshape(chain, draw, 1, -1)
    raise ValueError(
        f"variance must be a scalar or have shape ({m},), or ({chain}, {draw}) or ({chain}, {draw}, {m}) when it was "
        f"sampled with f of shape {draws.shape}, got {array.shape}"
    )


def class_draws(name: str, value: ArrayLike, *, logits: bool) -> NDArray[Any]:
    """Return class probabilities or logits (chain, draw, n, C); one (Bernoulli) column becomes two."""
    array = function_draws(name, value)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if logits:
        return array if array.shape[3] > 1 else np.concatenate([np.zeros_like(array), array], axis=3)
    # A softmax in the array's precision sums to one within a few units in the last place. The square root of eps is
    # far above that, and far below the error of anything that is not a probability vector.
    slack = float(np.sqrt(np.finfo(array.dtype).eps))
    low, high = float(array.min()), float(array.max())
    if low < -slack or high > 1 + slack:
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {low:g} to {high:g}; apply softmax")
    if array.shape[3] == 1:
        return np.concatenate([1 - array, array], axis=3)
    worst = float(np.abs(array.sum(axis=3) - 1).max())
    if worst > slack:
        raise ValueError(f"{name} must sum to one over its last axis, it is off by up to {worst:g}; normalise it")
    return array


def labels(value: ArrayLike, p: NDArray[Any]) -> NDArray[np.intp]:
    """Return class labels (n,) as integers in 0..C-1; n and C are those of the probabilities (chain, draw, n, C)."""
    array = numeric("y", value)
    n, n_classes = p.shape[2:]
    if array.shape == (n, 1):
        array = array[:, 0]
    if array.shape != (n,):
        raise ValueError(
            f"y must have shape ({n},), one label for each row, got {array.shape}; "
            "for several Bernoulli outputs take one at a time, p[..., [j]] and y[:, j]"
        )
    as_int = array.astype(np.intp)
    bad = (as_int != array) | (as_int < 0) | (as_int >= n_classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"y must hold whole labels in 0..{n_classes - 1}, got {array[row]} in row {row}")
    return as_int


def processors() -> int:
    """Return the number of processors that this process may use, for Fourier transforms; results do not change."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def row_slices(n: int, bytes_per_row: int) -> Iterator[slice]:
    """Yield slices that cover rows 0..n-1, of at least one row and otherwise at most SLICE_BYTES of temporaries."""
    step = max(1, SLICE_BYTES // max(1, bytes_per_row))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
