"""The base class of the priors: independent normal parameters with mean zero (docs/method.md, section 2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from patrac_native.priors.scales import ByLayer, SampledScales, by_layer, check_by_layer, check_scales
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.complete import Complete


class Prior(Complete, abstract=True):
    """Base class of the priors, frozen dataclasses; defining one without its attributes or methods raises TypeError.

    Attributes
    ----------
    sigma2_w, sigma2_b : float or sequence of L floats
        Variance scales of the weights and biases, of all layers or of each.
    scales : None, "sampled" or SampledScales
        Whether, and how, the variances are sampled with theta.
    name : str
        Name of the prior in files.
    is_rescaled : bool
        Whether partial architectures multiply the prior variances by phi / phi_partial, so that the Bayesian parameters
        have the total prior variance of the full network.
    ranks_nodes : bool
        Whether nodes of a layer have different variances, by their rank in the trained network; by default True.
    """

    name: ClassVar[str]
    is_rescaled: ClassVar[bool]
    ranks_nodes: ClassVar[bool] = True
    sigma2_w: ByLayer
    sigma2_b: ByLayer
    scales: str | SampledScales | None

    def __post_init__(self) -> None:
        for name in ("sigma2_w", "sigma2_b"):
            object.__setattr__(self, name, check_by_layer(getattr(self, name), name))
        object.__setattr__(self, "scales", check_scales(self.scales))

    @property
    def sampled_scales(self) -> SampledScales | None:
        """The law of the variances sigma2 of each layer; None if they are fixed."""
        return check_scales(self.scales)

    def centres(self, n_layers: int) -> tuple[FloatArray, FloatArray]:
        """Return sigma2 of the weights and of the biases of each layer, shapes (L,): fixed, or the centres of its law.

        Raises
        ------
        ValueError
            If the prior has one value for each layer of another number of layers.
        """
        return by_layer(self.sigma2_w, n_layers, "sigma2_w"), by_layer(self.sigma2_b, n_layers, "sigma2_b")

    @abstractmethod
    def variances(self, layer_sizes: Sequence[int]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the prior variances of a network's parameters, nodes in ranked order, before any rescaling.

        If the scales are sampled, these are the variances at their centres.

        Parameters
        ----------
        layer_sizes : sequence of int
            Widths (N_0, ..., N_L).

        Returns
        -------
        weight_variances : list of L arrays, shapes (N_{l+1}, N_l)
        bias_variances : list of L arrays, shapes (N_{l+1},)

        Raises
        ------
        TypeError, ValueError
            If `layer_sizes` is not a sequence of at least two positive integers, or the prior has one variance for each
            layer of another number of layers.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the prior in a few words, for `Posterior.describe`."""

    def total_variance(self, layer_sizes: Sequence[int]) -> float:
        """Return phi, the sum of the prior variances of all parameters of a network of these widths."""
        weights, biases = self.variances(layer_sizes)
        return float(sum(v.sum() for v in (*weights, *biases)))

    def rescaling_factor(
        self,
        full_layer_sizes: Sequence[int],
        sampled_layer_sizes: Sequence[int],
        weight_masks: Sequence[npt.NDArray[np.bool_]],
        bias_masks: Sequence[npt.NDArray[np.bool_]],
    ) -> float:
        """Return the factor of a partial architecture's prior variances: phi / phi_partial, or 1 if not `is_rescaled`.

        phi is the total prior variance of the trained network, phi_partial that of the Bayesian parameters, by their
        masks in ranked order; the widths of the sampled network are others for Sep only. For masks of the trained
        network the factor is at least 1, and exactly 1 if all its parameters are Bayesian. Raises ValueError if the
        masks do not have the sampled network's shapes or are False everywhere.
        """
        weights, biases = self.variances(sampled_layer_sizes)
        variances, masks = (*weights, *biases), (*weight_masks, *bias_masks)
        if [mask.shape for mask in masks] != [variance.shape for variance in variances]:
            raise ValueError(
                f"weight_masks and bias_masks must have the shapes of a network {list(sampled_layer_sizes)}; "
                f"got {[mask.shape for mask in masks]}."
            )
        # where() keeps the order of summation, so that masks that are True everywhere give exactly 1.
        partial = float(sum(np.where(mask, v, 0.0).sum() for v, mask in zip(variances, masks, strict=True)))
        if partial == 0.0:
            raise ValueError("weight_masks and bias_masks mark no parameter; at least one must be Bayesian.")
        return self.total_variance(full_layer_sizes) / partial if self.is_rescaled else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return name and arguments as JSON-able values, from which `prior_from_dict` rebuilds the prior."""
        return {"name": self.name, **asdict(cast("Any", self))}
