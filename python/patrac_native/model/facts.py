"""What the choice of kernel and device, and the words about a posterior, need to know of it."""

from __future__ import annotations

from dataclasses import dataclass

from patrac_native.engine.device_inputs import InputsOnDevice
from patrac_native.model.likelihoods import Likelihood


@dataclass(frozen=True)
class ModelFacts:
    """A few facts of a posterior.

    Attributes
    ----------
    likelihood : Likelihood
        As it was given.
    architecture : str
        The architecture's label, such as "Mix(5)".
    dim, hidden_dim : int
        K and K_h, the numbers of Bayesian parameters of the whole network and below the output layer.
    n_layers : int
        Layers of weights of the sampled network.
    is_last_layer_gaussian : bool
        Whether the log-likelihood is quadratic in theta: a Gaussian likelihood and no varying node below the last
        layer.
    sampled_variance : float or None
        Where a sampled noise variance starts; None where the likelihood is fixed.
    inputs_on_device : InputsOnDevice or None
        The inputs, where they came on a device.
    """

    likelihood: Likelihood
    architecture: str
    dim: int
    hidden_dim: int
    n_layers: int
    is_last_layer_gaussian: bool
    sampled_variance: float | None
    inputs_on_device: InputsOnDevice | None
