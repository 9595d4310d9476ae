"""Which kernel serves a posterior, and why: what kernel="auto" means and what a kernel must not be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patrac_native.model.kernels import Exact, Kernel, MGrad, short_name
from patrac_native.model.last_layer import is_last_layer_gaussian

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior

# Measured: docs/tried.md.
PERSISTENCE = 0.9


def choose_kernel(post: Posterior, device: str = "cpu") -> tuple[Kernel, str]:
    """Return the fastest exact kernel for a posterior that the device runs, and the reason in words.

    `Exact()` where the posterior is that of Bayesian linear regression; else `MGrad(persistence=0.9)`, with
    `collapse=True` where a Gaussian likelihood lets Bayesian output weights be integrated out.
    """
    if is_last_layer_gaussian(post):
        if device != "cpu":
            return MGrad(persistence=PERSISTENCE), f'{device} runs chains; Exact() is there with device="cpu"'
        return Exact(), "Gaussian likelihood and no Bayesian parameter below the last layer: independent draws"
    if not post.likelihood.is_quadratic:
        return MGrad(
            persistence=PERSISTENCE
        ), f"a {post.likelihood.name} likelihood: gradient steps that know the prior"
    if post.hidden_dim == post.dim:
        return MGrad(
            persistence=PERSISTENCE
        ), "no Bayesian output weight to integrate out: gradient steps that know the prior"
    return (
        MGrad(collapse=True, persistence=PERSISTENCE),
        f"Gaussian likelihood: gradient steps that keep their direction on {post.hidden_dim} parameters, the "
        f"{post.dim - post.hidden_dim} of the output layer integrated out",
    )


def check_kernel(kernel: Kernel, post: Posterior) -> None:
    """Raise ValueError where the posterior does not allow the kernel, saying what to use."""
    own = short_name(kernel.to_dict())
    if isinstance(kernel, Exact) and not is_last_layer_gaussian(post):
        found = (
            f"the likelihood is {post.likelihood!r}"
            if not post.likelihood.is_quadratic
            else f"{post.architecture.label()} has Bayesian parameters below the last layer"
        )
        raise ValueError(
            f"kernel={own} needs a Gaussian likelihood and no Bayesian parameter below the last layer, but {found}; "
            f"use {short_name(choose_kernel(post)[0].to_dict())}."
        )
    if not kernel.collapse:
        return
    if not post.likelihood.is_quadratic:
        raise ValueError(
            f"kernel={own} needs a Gaussian likelihood, whose output weights can be integrated out; got "
            f"{post.likelihood!r}. Use {type(kernel).__name__}()."
        )
    if post.hidden_dim == 0:
        raise ValueError(
            f"kernel={own} needs Bayesian parameters below the output layer, and {post.architecture.label()} has none; "
            "use Exact(), which draws the output weights independently."
        )
    if post.hidden_dim == post.dim:
        raise ValueError(
            f"kernel={own} needs Bayesian parameters in the output layer, and {post.architecture.label()} has none; "
            f"use {type(kernel).__name__}()."
        )
