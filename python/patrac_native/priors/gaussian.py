"""The independent Gaussian prior, with equal variances for all weights of a layer (docs/method.md, section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from patrac_native.priors.base import Prior
from patrac_native.priors.scales import ByLayer, SampledScales, in_words, law_in_words
from patrac_native.validation.checks import FloatArray, check_layer_sizes


@dataclass(frozen=True)
class GaussianPrior(Prior):
    """Independent normal parameters with mean zero; the weights into a layer have one variance, its biases another.

    With the defaults every parameter is standard normal, the prior of most software for Bayesian networks. With
    `fan_in=True` the weights into a layer that reads N nodes have variance sigma2_w / N, so that the variance of a
    node's input does not grow with the width below it (Neal 1996).

    Partial architectures do **not** rescale these variances. The rescaling of `TraceClassPrior` keeps the total prior
    variance, which is finite for any width there and concentrated on the nodes ranked first; here it is proportional to
    the number of parameters, and Mix(5) in a 1-50-50-1 network would multiply each variance by 2701/46. A parameter
    thus has the same prior whichever others are Bayesian.

    Parameters
    ----------
    sigma2_w : float or sequence of L floats
        Variance of the weights, or with `fan_in` its product with the number of nodes that the layer reads; > 0, one
        for all layers or one for each. Default 1.
    sigma2_b : float or sequence of L floats
        Variance of the biases, > 0; default 1.
    fan_in : bool
        Whether the variance of a weight is divided by the number of nodes that its layer reads; default False.
    scales : None, "sampled" or SampledScales
        With "sampled", short for `SampledScales()`, the variances of the weights and of the biases of each layer are
        sampled with theta, under inverse-gamma priors centred at sigma2_w and sigma2_b. The default None keeps them
        fixed.

    Raises
    ------
    ValueError
        If a variance is not positive and finite, or scales is an unknown word.
    TypeError
        If a variance is not a number, fan_in not a bool, or scales of another type.

    References
    ----------
    Neal (1996), Bayesian Learning for Neural Networks. Springer.

    Examples
    --------
    >>> GaussianPrior(sigma2_b=0.5, fan_in=True).variances([4, 2, 1])[0]
    [array([[0.25, 0.25, 0.25, 0.25],
           [0.25, 0.25, 0.25, 0.25]]), array([[0.5, 0.5]])]
    """

    sigma2_w: ByLayer = 1.0
    sigma2_b: ByLayer = 1.0
    fan_in: bool = False
    scales: str | SampledScales | None = None
    name: ClassVar[str] = "gaussian"
    is_rescaled: ClassVar[bool] = False
    ranks_nodes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.fan_in, bool | np.bool_):
            raise TypeError(f"fan_in must be True or False; got {self.fan_in!r}.")
        object.__setattr__(self, "fan_in", bool(self.fan_in))

    def variances(self, layer_sizes: Sequence[int]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the prior variances of a network's parameters; see `Prior.variances`."""
        sizes = check_layer_sizes(layer_sizes)
        of_weights, of_biases = self.centres(len(sizes) - 1)
        return (
            [
                np.full((rows, columns), sigma2 / (columns if self.fan_in else 1))
                for rows, columns, sigma2 in zip(sizes[1:], sizes[:-1], of_weights, strict=True)
            ],
            [np.full(rows, sigma2) for rows, sigma2 in zip(sizes[1:], of_biases, strict=True)],
        )

    def describe(self) -> str:
        """Return the two variances in words."""
        per_node = " / number of nodes read" if self.fan_in else ""
        return (
            f"independent Gaussian, variance of weights {in_words(self.sigma2_w)}{per_node}, of biases "
            f"{in_words(self.sigma2_b)}{law_in_words(self.sampled_scales)}"
        )
