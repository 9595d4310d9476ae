"""Checks of draws that were read from a file, whose numbers may have been changed or belong to another network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# Statistics that enter predictions and scores, and whether they are variances.
_USED = {"log_likelihood": False, "log_prior": False, "variance": True, "prior_scales": True}


def check_stored(
    theta: npt.NDArray[Any], stats: Mapping[str, npt.NDArray[Any]], dim: int | None, dtype: np.dtype[Any] | None
) -> None:
    """Raise ValueError unless states and statistics are finite real numbers of matching shapes.

    Parameters
    ----------
    theta : ndarray
        The states, which must have shape (chain, draw, K).
    stats : mapping of str to ndarray
    dim : int or None
        K of the network; None if there is no network.
    dtype : dtype or None
        The dtype of the states; None for any real one.
    """
    if theta.ndim != 3 or (dim is not None and theta.shape[-1] != dim):
        raise ValueError(f"its theta has shape {theta.shape}, not (chain, draw, {'K' if dim is None else dim})")
    if theta.dtype.kind != "f" or (dtype is not None and theta.dtype != dtype):
        raise ValueError(f"its theta has dtype {theta.dtype}, not {'a real one' if dtype is None else dtype}")
    if not np.isfinite(theta).all():
        raise ValueError("its theta holds NaN or infinity")
    for name, is_variance in _USED.items():
        if name not in stats:
            continue
        values = stats[name]
        if values.dtype.kind != "f" or values.shape[:2] != theta.shape[:2]:
            raise ValueError(
                f"its {name} has shape {values.shape} and dtype {values.dtype}, not one real number for each draw of "
                f"theta {theta.shape}"
            )
        if not np.isfinite(values).all() or (is_variance and not (values > 0).all()):
            raise ValueError(f"its {name} holds numbers that are not finite{' and positive' * is_variance}")
