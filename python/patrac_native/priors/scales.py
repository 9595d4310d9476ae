"""Sampled scales of a prior: the variance of each layer's weights and biases under an inverse-gamma prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, as_real_array, check_positive

# A variance for all layers, or one for each layer.
ByLayer = float | Sequence[float]


@dataclass(frozen=True)
class SampledScales:
    """The law of the variances sigma2 of a prior if they are sampled with theta (Neal 1996).

    Each layer has one sigma2 for its weights and one for its biases. A priori these are independent and inverse-gamma
    with shape a and rate a c, where c is the prior's own sigma2_w or sigma2_b of the layer: the weight of 2 a
    parameters whose squares, over their fixed decay, average c. A single parameter then follows Student's t of 2 a
    degrees of freedom with the scale that c would give it.

    Parameters
    ----------
    a : float
        Shape, > 0; default 2. sigma2 has a finite prior mean, c a / (a - 1), only for a > 1; draws from the prior of a
        network with a smaller a are often wild.
    by_input : bool
        Whether the weights out of each input have a sigma2 of their own in the first layer, so that inputs without
        relevance are shrunk (automatic relevance determination); default False.
    interweave : bool
        Whether, before each draw of all scales given theta, one of them, drawn at random, moves together with its
        parameters (Yu and Meng 2011); default False. Many parameters leave their scale little room, so that where the
        data hardly bound it, as for the output weights of separable classes, it is what mixes most slowly.
        Each move takes one evaluation of the log-likelihood. The posterior is the same. Not with kernels that
        integrate output weights out; `kernel="auto"` does not then.

    Raises
    ------
    ValueError
        If a is not positive and finite.
    TypeError
        If a is not a number, or by_input or interweave not a bool.

    References
    ----------
    Neal (1996), Bayesian Learning for Neural Networks. Springer.
    Yu and Meng (2011), To center or not to center: that is not the question. JCGS 20(3), 531-570.
    """

    a: float = 2.0
    by_input: bool = False
    interweave: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", check_positive(self.a, "a of SampledScales"))
        for name in ("by_input", "interweave"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} of SampledScales must be True or False; got {value!r}.")
            object.__setattr__(self, name, bool(value))


@dataclass(frozen=True)
class ScaleGroups:
    """The groups of Bayesian parameters that share a sampled sigma2."""

    names: tuple[str, ...]  # G, such as "layer 1 weights", "layer 1 weights from input 0" or "output biases"
    group: npt.NDArray[np.int32]  # (K,), the group of each entry of theta
    centres: FloatArray  # (G,), the prior's own sigma2 of each, at which `PartialNetwork.prior_variance` stands
    a: float  # shape of the inverse-gamma priors; the rates are a * centres
    interweave: bool  # see `SampledScales`

    def draw(self, rng: np.random.Generator, draws: int) -> FloatArray:
        """Return draws of sigma2 from its prior, shape (draws, G)."""
        return self.a * self.centres / rng.gamma(self.a, size=(draws, len(self.names)))

    def factors(self, scales: npt.ArrayLike) -> FloatArray:
        """Return the factors by which sigma2 (..., G) multiply the prior variances, shape (..., K)."""
        values = as_real_array(scales, "scales")
        if values.ndim == 0 or values.shape[-1] != len(self.names):
            raise ValueError(
                f"scales must have {len(self.names)} entries on its last axis, one for each of "
                f"{', '.join(self.names)}; got shape {values.shape}."
            )
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"scales must be positive and finite; got {values[~(values > 0)][:1]}.")
        return (values / self.centres)[..., self.group]


def scale_groups(
    scales: SampledScales,
    parameters: npt.NDArray[np.void],
    weight_centres: FloatArray,
    bias_centres: FloatArray,
) -> ScaleGroups:
    """Return the groups of a network's Bayesian parameters, in the order in which theta has them first."""
    layer, column = parameters["layer"].astype(np.int64), parameters["column"].astype(np.int64)
    # One key for each group: layer, kind (weights before biases), input.
    by_input = scales.by_input & (layer == 1) & (column >= 0)
    keys = np.stack([layer, column < 0, np.where(by_input, column, -1)], axis=1)
    found, group = np.unique(keys, axis=0, return_inverse=True)
    last = len(weight_centres)
    names, centres = [], []
    for at, is_bias, column_of in found:
        where = f"layer {at}" if at < last else "output"
        names.append(
            f"{where} biases"
            if is_bias
            else f"{where} weights" + (f" from input {column_of}" if column_of >= 0 else "")
        )
        centres.append((bias_centres if is_bias else weight_centres)[at - 1])
    return ScaleGroups(tuple(names), group.reshape(-1).astype(np.int32), np.array(centres), scales.a, scales.interweave)


def check_scales(scales: Any) -> SampledScales | None:
    """Return the argument `scales` of a prior as SampledScales, or None if the scales are fixed."""
    if scales is None or isinstance(scales, SampledScales):
        return scales
    if isinstance(scales, str) and scales == "sampled":
        return SampledScales()
    if isinstance(scales, Mapping):  # from a file
        return SampledScales(**scales)
    wrong = ValueError if isinstance(scales, str) else TypeError
    raise wrong(f'scales must be None (fixed), "sampled" or SampledScales(...); got {scales!r}.')


def check_by_layer(value: Any, name: str) -> ByLayer:
    """Return a variance as a float, or one for each layer as a tuple; raise TypeError or ValueError if one is wrong."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) == 1:
        return tuple(check_positive(one, f"{name}[{index}]") for index, one in enumerate(value))
    return check_positive(value, name)


def by_layer(value: ByLayer, n_layers: int, name: str) -> FloatArray:
    """Return the variances of each layer, shape (L,); raise ValueError if another number of layers was given."""
    values = np.asarray(value, dtype=np.float64)
    if values.ndim == 1 and len(values) != n_layers:
        raise ValueError(f"{name} must be a number or have one for each of {n_layers} layers; got {len(values)}.")
    return np.broadcast_to(values, n_layers)


def in_words(value: ByLayer) -> str:
    """Return a variance, or those of each layer, as text."""
    return f"{value:.6g}" if isinstance(value, float) else "(" + ", ".join(f"{one:.6g}" for one in value) + ")"


def law_in_words(scales: SampledScales | None) -> str:
    """Return what a description of a prior adds if its scales are sampled; else nothing."""
    if scales is None:
        return ""
    inputs = ", one for the weights out of each input" if scales.by_input else ""
    return f"; these are centres, the variances of each layer are sampled (inverse-gamma, a {scales.a:.6g}{inputs})"
