"""Conversion of a network from and to a torch module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.network.activations import ACTIVATIONS
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.extras import import_extra

if TYPE_CHECKING:
    import torch

_SUPPORTED = (
    "Supported: Linear layers with one kind of activation between them ("
    + ", ".join(activation.torch_label for activation in ACTIVATIONS.values())
    + "), Dropout, Identity, nested Sequential, and Flatten in front."
)


# The methods of torch's base class that make a module callable.
_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl")
# What to do with a network of other layers.
_HEAD = (
    "For a network of other layers, train a head on its features: a Network on trunk(X), where trunk is the module "
    "without its last Linear layers (docs/trunk.md)."
)


def read_module(module: torch.nn.Module) -> tuple[list[FloatArray], list[FloatArray], str]:
    """Return (weights, biases, activation) of a Linear or a Sequential; see `Network.from_torch`.

    A network of one Linear layer has no activation; "tanh" is returned for it.
    """
    import_extra("torch", "torch", "from_torch")
    from torch import nn

    if not isinstance(module, nn.Module):
        load = " Load it into its module first, module.load_state_dict(...)." if isinstance(module, Mapping) else ""
        raise TypeError(f"from_torch takes a torch.nn.Module; got {type(module).__name__}.{load}")
    if hasattr(module, "_orig_mod"):
        raise TypeError("from_torch: this module was compiled by torch.compile; give the original, module._orig_mod.")
    steps: list[tuple[str, str, nn.Module]] = []
    unsupported: list[str] = []
    leaves = list(_leaves(module, ""))
    if leaves and isinstance(leaves[-1][1], nn.Softmax | nn.LogSoftmax):
        raise ValueError(
            f"from_torch: layer {leaves[-1][0] or '0'} ({_describe(leaves[-1][1])}) is no part of a Network. Leave it "
            "out: `Categorical` applies softmax to the outputs itself."
        )
    for index, layer in leaves:
        kind = _kind(layer, first=not steps)
        if kind is None:
            unsupported.append(f"{index or '0'}: {_describe(layer)}")
        elif kind:
            steps.append((index, kind, layer))
    if unsupported:
        raise TypeError(f"from_torch cannot take these layers: {'; '.join(unsupported)}. {_SUPPORTED} {_HEAD}")

    kinds = [kind for _, kind, _ in steps]
    if "linear" not in kinds:
        raise TypeError(f"from_torch found no Linear layer in {type(module).__name__}. {_SUPPORTED} {_HEAD}")
    if kinds[-1] != "linear":
        raise ValueError(
            f"from_torch: layer {steps[-1][0]} ({_describe(steps[-1][2])}) follows the last Linear layer. Leave it "
            "out: the likelihood applies softmax or sigmoid to the outputs itself."
        )
    for position, (index, kind, layer) in enumerate(steps):
        expect_linear = position % 2 == 0
        if (kind == "linear") is not expect_linear:
            wanted = "a Linear layer" if expect_linear else "an activation"
            raise ValueError(
                f"from_torch: expected {wanted} at layer {index}, found {_describe(layer)}. Linear layers and "
                "activations must alternate, beginning and ending with Linear."
            )
    activations = list(dict.fromkeys(kind for kind in kinds if kind != "linear"))
    if len(activations) > 1:
        raise ValueError(
            f"from_torch: the layers mix activations ({', '.join(activations)}); a Network has one kind. "
            "Retrain with one."
        )
    for index, kind, layer in steps:
        if kind == "linear":
            _check_numbers(index, layer)
    linear: list[Any] = [layer for _, kind, layer in steps if kind == "linear"]
    weights = [_to_numpy(layer.weight) for layer in linear]
    biases = [np.zeros(layer.out_features) if layer.bias is None else _to_numpy(layer.bias) for layer in linear]
    return weights, biases, activations[0] if activations else "tanh"


def build_module(
    weights: Sequence[FloatArray], biases: Sequence[FloatArray], activation: str, dtype: torch.dtype | None = None
) -> torch.nn.Sequential:
    """Return a Sequential with the parameters of a network in `dtype` (default float64)."""
    import_extra("torch", "torch", "to_torch")
    import torch
    from torch import nn

    dtype = torch.float64 if dtype is None else dtype
    layers: list[nn.Module] = []
    for w, b in zip(weights, biases, strict=True):
        if layers:
            layers.append(ACTIVATIONS[activation].torch_module())
        # On the meta device the layer is not initialised, so torch's global random generator is not used.
        linear = nn.Linear(w.shape[1], w.shape[0], device="meta")
        linear.weight = nn.Parameter(torch.tensor(w, dtype=dtype))
        linear.bias = nn.Parameter(torch.tensor(b, dtype=dtype))
        layers.append(linear)
    return nn.Sequential(*layers)


def _leaves(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield (index, layer) in order; layers of a nested Sequential have indices such as "2.0"."""
    from torch import nn

    if not isinstance(module, nn.modules.lazy.LazyModuleMixin):  # these initialise themselves by a hook
        _check_unaltered(prefix or "0", module)
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        # Iteration yields a layer that is used twice both times; named_children would skip the second.
        for position, child in enumerate(module):
            yield from _leaves(child, f"{prefix}.{position}" if prefix else str(position))
    else:
        yield prefix, module


def _check_unaltered(index: str, module: Any) -> None:
    """Raise TypeError if a module computes something else than its class does, by a hook or a replaced forward."""
    from torch.nn.modules import module as every

    altered = [
        what
        for what, found in (
            ("a forward hook", module._forward_hooks),
            ("a forward pre-hook", module._forward_pre_hooks),
            ("a forward hook of all modules", every._global_forward_hooks),
            ("a forward pre-hook of all modules", every._global_forward_pre_hooks),
            ("a forward method of its own", "forward" in vars(module)),
            ("a __call__ method of its own", any(_is_own(module, name) for name in _CALLS)),
        )
        if found
    ]
    if altered:
        raise TypeError(
            f"from_torch: module {index} ({type(module).__name__}) has {' and '.join(altered)}, which a Network would "
            "leave out. Remove it first (handle.remove(), del module.forward, and for hooks of torch.nn.utils "
            "remove_weight_norm, remove_spectral_norm or prune.remove)."
        )


def _is_own(module: torch.nn.Module, name: str) -> bool:
    """Return whether a method of a module is not that of torch's base class."""
    from torch import nn

    return name in vars(module) or getattr(type(module), name) is not getattr(nn.Module, name)


def _check_numbers(index: str, layer: Any) -> None:
    """Raise an error unless the parameters of a layer are real numbers, not lazy, on the meta device or complex."""
    from torch.nn.parameter import is_lazy

    what = f"from_torch: layer {index or '0'} ({type(layer).__name__})"
    for parameter, again in ((layer.weight, layer.weight), (layer.bias, layer.bias)):
        if parameter is None:
            continue
        if is_lazy(parameter):
            raise ValueError(f"{what} is not initialised yet; call the module once on a row of inputs, and train it.")
        if parameter.is_meta:
            raise ValueError(
                f"{what} is on the meta device and holds no numbers; load them first: "
                'module.to_empty(device="cpu"), then module.load_state_dict(...).'
            )
        if parameter.is_complex():
            raise TypeError(f"{what} has parameters of dtype {parameter.dtype}; a Network has real ones.")
        if not parameter.equal(again):
            raise ValueError(
                f"{what} has a parametrization that changes at every use, such as spectral_norm while it is trained; "
                "call module.eval() first."
            )


def _kind(layer: torch.nn.Module, *, first: bool) -> str | None:
    """Return "linear", an activation's name, "" for a layer without effect, or None for an unsupported one."""
    from torch import nn

    # A subclass with a forward method of its own may compute something else than its base class.
    if isinstance(layer, nn.Linear):
        return "linear" if type(layer).forward is nn.Linear.forward else None
    if isinstance(layer, nn.Flatten):
        return "" if first and layer.start_dim == 1 and layer.end_dim == -1 else None
    if type(layer) in (nn.Identity, nn.Dropout):
        return ""
    return next((name for name, activation in ACTIVATIONS.items() if activation.is_module(layer)), None)


def _describe(layer: torch.nn.Module) -> str:
    """Return the class name of a layer, with those settings that differ from the supported activation."""
    settings = [
        f"{name}={getattr(layer, name)!r}"
        for activation in ACTIVATIONS.values()
        if activation.torch_name == type(layer).__name__
        for name, value in activation.torch_settings.items()
        if getattr(layer, name) != value
    ]
    return type(layer).__name__ + (f"({', '.join(settings)})" if settings else "")


def _to_numpy(parameter: torch.Tensor) -> FloatArray:
    """Return a float64 copy of a tensor of any dtype on any device."""
    import torch

    return np.asarray(parameter.detach().to("cpu", torch.float64).numpy(), dtype=np.float64).copy()
