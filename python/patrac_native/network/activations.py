"""The registry of activations: for each its NumPy function, its torch module and its elementary functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Activation:
    """An activation function, applied entrywise."""

    apply: Callable[[FloatArray], FloatArray]
    torch_name: str  # the name of its class in `torch.nn`
    elementary: tuple[str, ...]  # the elementary functions that the engine evaluates for a value and its derivative
    # Attributes, with their values, that a module of that class must have to be this activation: torch's defaults.
    torch_settings: Mapping[str, Any] = field(default_factory=dict)

    def torch_module(self) -> torch.nn.Module:
        """Return a torch module that applies the activation."""
        from torch import nn

        module: nn.Module = getattr(nn, self.torch_name)()
        return module

    def is_module(self, module: torch.nn.Module) -> bool:
        """Return whether a torch module is this activation; False for subclasses, which may compute something else."""
        from torch import nn

        return type(module) is getattr(nn, self.torch_name) and all(
            getattr(module, name) == value for name, value in self.torch_settings.items()
        )

    @property
    def torch_label(self) -> str:
        """The constructor call of the torch module, such as "GELU(approximate='none')"."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.torch_settings.items())
        return f"{self.torch_name}({settings})" if settings else self.torch_name


def _gelu(z: FloatArray) -> FloatArray:
    """Return z Phi(z) = z (1 + erf(z / sqrt 2)) / 2, torch's default form of GELU."""
    # SciPy's normal distribution function keeps its relative accuracy in the negative tail, where 1 + erf cancels.
    from scipy.special import ndtr

    value: FloatArray = z * ndtr(z)
    return value


def _silu(z: FloatArray) -> FloatArray:
    """Return z / (1 + e^-z); SciPy's logistic function does not overflow in the negative tail."""
    from scipy.special import expit

    value: FloatArray = z * expit(z)
    return value


def _sigmoid(z: FloatArray) -> FloatArray:
    """Return 1 / (1 + e^-z)."""
    from scipy.special import expit

    value: FloatArray = expit(z)
    return value


def _softplus(z: FloatArray) -> FloatArray:
    """Return log(1 + e^z), which torch replaces by z above 20, where the two differ by at most 2.1e-9."""
    return np.logaddexp(0.0, z)


# All activations by their names in the compiled core and in files.
ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(np.tanh, "Tanh", ("tanh",)),
    "relu": Activation(lambda z: np.maximum(z, 0.0), "ReLU", ()),
    "gelu": Activation(_gelu, "GELU", ("erf", "gauss"), {"approximate": "none"}),
    "silu": Activation(_silu, "SiLU", ("sigmoid",)),
    "sigmoid": Activation(_sigmoid, "Sigmoid", ("sigmoid",)),
    "softplus": Activation(_softplus, "Softplus", ("softplus", "sigmoid"), {"beta": 1.0, "threshold": 20.0}),
}


def check_activation(name: str) -> str:
    """Return `name` if there is an activation of that name, else raise ValueError."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}.")
    return name
