"""Samples of new targets, each of which is one posterior draw at all rows, with independent noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.validation.checks import FloatArray, check_count


def sampled_targets(
    draws: Draws | DrawsMixture, inputs: FloatArray, n_samples: int, random_state: Any
) -> npt.NDArray[Any]:
    """Return samples of the targets of the network, shape (n, t, n_samples); of labels, (n, 1, n_samples).

    Parameters
    ----------
    draws : Draws or DrawsMixture
    inputs : ndarray, shape (n, d)
    n_samples : int
        At least 1. The first samples, as many as there are draws, are different draws.
    random_state : int, RandomState or None
    """
    count = check_count(n_samples, "n_samples")
    rng = check_random_state(random_state)
    total = draws.n_chains * draws.n_draws
    order = np.concatenate([rng.permutation(total) for _ in range(math.ceil(count / total))])[:count]
    blocks = []
    for _, block in draws.input_blocks(inputs):
        parts = []
        # A draw that is used again has noise of its own.
        for start in range(0, count, total):
            noisy = draws.predictive(block, seed=int(rng.randint(np.iinfo(np.int32).max)))
            flat = noisy.reshape(total, noisy.shape[2], -1)
            parts.append(flat[order[start : start + total]])
        blocks.append(np.concatenate(parts))
    return np.moveaxis(np.concatenate(blocks, axis=1), 0, -1)
