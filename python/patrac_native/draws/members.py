"""The members of a mixture: checks that they belong together, their weights, and the draws that represent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import Draws
from patrac_native.likelihoods import Likelihood
from patrac_native.validation.checks import FloatArray, as_real_array

# Arguments of likelihoods in which members may differ: each draw keeps the noise of its own member.
_NOISE_ARGUMENTS = frozenset({"variance", "scale", "a", "b"})


def check_members(members: tuple[Draws, ...]) -> None:
    """Raise unless the members are draws that can predict the same targets."""
    if not members:
        raise ValueError("members must hold at least one Draws; got none.")
    first = members[0]
    for index, draws in enumerate(members):
        if not isinstance(draws, Draws):
            raise TypeError(f"members[{index}] must be Draws, as sample_many returns them; got {type(draws).__name__}.")
        if draws.n_draws == 0:
            raise ValueError(f"members[{index}] has no draws: its run was interrupted before the first.")
        if draws.n_draws != first.n_draws:
            raise ValueError(
                f"members must have the same number of draws for each chain; members[{index}] has {draws.n_draws}, the "
                f"first {first.n_draws}. Leave a run out that was interrupted."
            )
        shape, expected = (draws.network.n_inputs, draws.n_outputs), (first.network.n_inputs, first.n_outputs)
        if shape != expected:
            raise ValueError(
                f"members must have the same inputs and outputs; members[{index}] has {shape[0]} and {shape[1]}, the "
                f"first {expected[0]} and {expected[1]}."
            )
        if draws.network.input_names != first.network.input_names:
            raise ValueError(
                f"members must have the same inputs in the same order; members[{index}] has "
                f"{draws.network.input_names}, the first {first.network.input_names}."
            )
        if _kind(draws.likelihood) != _kind(first.likelihood):
            raise ValueError(
                f"members must have one kind of likelihood; members[{index}] has {draws.likelihood!r}, the first "
                f"{first.likelihood!r}."
            )


def _kind(likelihood: Likelihood) -> dict[str, Any]:
    """Return what members must have in common: the likelihood without the variance or scale of its noise."""
    return {name: value for name, value in likelihood.to_dict().items() if name not in _NOISE_ARGUMENTS}


def check_weights(weights: npt.ArrayLike | None, count: int) -> FloatArray:
    """Return weights of the members (count,), scaled to a sum of one, read-only."""
    values = np.ones(count) if weights is None else as_real_array(weights, "weights")
    if values.shape != (count,):
        raise ValueError(f"weights must have shape ({count},), one for each member; got {values.shape}.")
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(f"weights must be finite and nonnegative with a positive sum; got {values.tolist()}.")
    scaled: FloatArray = values / values.sum()
    scaled.flags.writeable = False
    return scaled


def apportion(weights: FloatArray, draws: Sequence[int]) -> list[npt.NDArray[np.intp]]:
    """Choose as many draws as there are, of each member in proportion to its weight (largest remainders).

    The chosen draws of a member are spread evenly over its own, and repeat if they are more.
    """
    total = sum(draws)
    # Rounded, so that weights that differ in the last bit only do not decide about a draw.
    shares = (weights * total).round(6)
    counts = np.floor(shares).astype(int)
    for member in np.argsort(counts - shares, kind="stable")[: total - counts.sum()]:
        counts[member] += 1
    return [
        ((np.arange(count) + 0.5) * own / max(count, 1)).astype(np.intp)
        for count, own in zip(counts.tolist(), draws, strict=True)
    ]
