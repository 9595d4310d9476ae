"""A density as a function of torch tensors, with its gradient for autograd and for the transforms of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

from patrac_native.engine.density import Density


def _refuse() -> NoReturn:
    """Raise the error of derivatives that there are not."""
    raise RuntimeError(
        "to_torch: the log density has first derivatives only, in reverse mode; a Hessian or a derivative of the "
        "gradient needs another method, such as finite differences of the gradient."
    )


def _apply(function: Any, *arguments: Any) -> Any:
    """Call an autograd function, whose `apply` torch leaves without types."""
    return function.apply(*arguments)


class _LogDensity(torch.autograd.Function):
    """Values (...) of points (..., D), and if `with_gradient`, the gradient, which the backward pass uses."""

    @staticmethod
    def forward(points: Any, density: Density, threads: int, with_gradient: bool) -> Any:
        batch = np.ascontiguousarray(points.detach().reshape(-1, density.dim).numpy())
        if not with_gradient:
            values = density.core.value(batch, threads)
            return torch.from_numpy(values).to(points.dtype).reshape(points.shape[:-1]), points.new_empty(0)
        values, gradient = density.core.value_and_grad(batch, threads)
        return (
            torch.from_numpy(values).to(points.dtype).reshape(points.shape[:-1]),
            torch.from_numpy(gradient).reshape(points.shape),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        points, _, _, ctx.with_gradient = inputs
        _, gradient = output
        ctx.mark_non_differentiable(gradient)
        ctx.save_for_backward(points, gradient)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        assert ctx.with_gradient  # `log_density` and `vmap` ask for it wherever autograd records
        points, gradient = ctx.saved_tensors
        return cotangents[0].unsqueeze(-1) * _apply(_Once, gradient, points), None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        _refuse()

    @staticmethod
    def vmap(info: Any, in_dims: Any, points: Any, density: Density, threads: int, with_gradient: bool) -> Any:
        # Only here is it visible that a transform outside vmap records the points.
        with_gradient = with_gradient or (torch.is_grad_enabled() and points.requires_grad)
        moved = points.movedim(in_dims[0], 0)
        values, gradient = _apply(_LogDensity, moved, density, threads, with_gradient)
        return (values, gradient), (0, 0 if with_gradient else None)


class _Once(torch.autograd.Function):
    """The gradient at points, whose own derivative is refused: second derivatives would silently be zero."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Any, points: Any) -> Any:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        _refuse()

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        _refuse()


def to_torch(density: Density, threads: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a log density as a function of torch tensors."""
    dtype = torch.float32 if density.dtype == np.float32 else torch.float64

    def log_density(points: torch.Tensor) -> torch.Tensor:
        """Evaluate the log density at points (..., D); values have shape (...)."""
        if not isinstance(points, torch.Tensor):
            raise TypeError(f"points must be a torch tensor; got {type(points).__name__}.")
        if points.ndim == 0 or points.shape[-1] != density.dim:
            shape = tuple(points.shape)
            raise ValueError(f"points must have {density.dim} entries on their last axis; got shape {shape}.")
        if points.device.type != "cpu":
            raise ValueError(f'points must be on the CPU; got {points.device}: use points.to("cpu").')
        if points.is_complex():
            raise TypeError(f"points must be real; got {points.dtype}.")
        converted = points.to(dtype)
        with_gradient = torch.is_grad_enabled() and converted.requires_grad
        values: torch.Tensor = _apply(_LogDensity, converted, density, threads, with_gradient)[0]
        return values

    return log_density
