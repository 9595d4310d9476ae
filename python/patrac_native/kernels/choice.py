"""The choice of a kernel: the rule behind kernel="auto", and the check that a posterior supports a given kernel."""

from __future__ import annotations

from dataclasses import replace

from patrac_native.kernels import Exact, Kernel, MGrad
from patrac_native.kernels.facts import ModelFacts

# The persistence of MGrad under kernel="auto", and in deep narrow networks; docs/tried.md has the measurements.
PERSISTENCE, DEEP_PERSISTENCE = 0.9, 0.97
# With so many layers of weights or more, and hidden layers of so many nodes or fewer, a trained network lies far from
# the bulk of its posterior, and a few stiff directions keep steps small; docs/tried.md has the measurements.
DEEP_LAYERS, NARROW_WIDTH = 4, 32
# The metric is that of the inputs from this `ModelFacts.input_spread` on; docs/tried.md has the measurements.
MIN_SPREAD = 2.0


def choose_kernel(facts: ModelFacts, device: str = "cpu", *, keep: bool = False) -> tuple[Kernel, str]:
    """Choose the fastest exact kernel that a posterior and a device support.

    It is `Exact()` if the posterior is that of Bayesian linear regression, the scales of the prior are fixed, the
    chains run on the CPU, and chains on the data would not take fewer operations (`statistics_are_dear`).

    Otherwise it is `MGrad(persistence=0.9)`, with `collapse=True` if the likelihood allows integrating out Bayesian
    output weights (`Gaussian`; on the CPU `HeteroscedasticGaussian`, those of the means, and `StudentT` with a sampled
    scale of one output), and with `metric="inputs"` if the inputs vary along one principal axis much more than along
    the others. In deep narrow networks (`is_deep_and_narrow`) whose output weights are integrated out under Gaussian
    noise that is the same for all rows, it is
    `MGrad(collapse=True, metric="curvature", persistence=0.97)` on the CPU, if there are axes of the curvature.
    """
    if facts.is_last_layer_gaussian:
        plain = MGrad(persistence=PERSISTENCE)
        if facts.samples_scales:
            return plain, "the scales of the prior are sampled, so its whitened basis, in which Exact() draws, varies"
        if device != "cpu":
            return plain, f'{device} runs chains; Exact() is there with device="cpu"'
        if facts.has_dear_statistics:
            why = f"the {facts.dim} x {facts.dim} statistics of Exact() take more operations than chains on the data"
            return plain, why
        return Exact(), "Gaussian likelihood and no Bayesian parameter below the last layer: independent draws"
    kernel, reason = _gradient_kernel(facts, may_go_to_device=device != "cpu" or keep)
    stays_on_host = device == "cpu" and not keep and facts.inputs_on_device is None
    is_same_noise = kernel.collapse and facts.likelihood.is_conjugate
    if is_deep_and_narrow(facts) and stays_on_host and is_same_noise and facts.curvature_obstacle is None:
        return replace(kernel, metric="curvature", persistence=DEEP_PERSISTENCE), (
            f"{reason}; {facts.n_layers - 1} narrow hidden layers, where a few stiff directions keep steps small: each "
            "layer along the axes of the curvature at the trained network"
        )
    spread = facts.input_spread
    if spread is None or spread < MIN_SPREAD or keep:
        return kernel, reason
    return replace(kernel, metric="inputs"), (
        f"{reason}; the first layer along the principal axes of the inputs, whose second moments differ (the largest "
        f"is {spread:.1f} times the mean)"
    )


def run_kernel(
    kernel: str | Kernel, facts: ModelFacts, device: str = "cpu", *, keep: bool = False
) -> tuple[Kernel, str]:
    """Return the kernel of a run and why: a given one after `check_kernel`, or for "auto" that of `choose_kernel`."""
    if isinstance(kernel, Kernel):
        check_kernel(kernel, facts)
        return kernel, "given"
    check_kernel_argument(kernel)
    return choose_kernel(facts, device, keep=keep)


def check_kernel_argument(kernel: object) -> None:
    """Raise TypeError unless the argument is "auto" or a kernel."""
    if isinstance(kernel, Kernel) or (isinstance(kernel, str) and kernel == "auto"):
        return
    hint = f" Call it: {kernel.__name__}()." if isinstance(kernel, type) else ""
    raise TypeError(
        f'kernel must be "auto", PCN(...), PCNL(...), MGrad(...), EllipticalSlice() or Exact(); got {kernel!r}.{hint}'
    )


def is_deep_and_narrow(facts: ModelFacts) -> bool:
    """Return whether a network has three or more hidden layers, none of more than 32 nodes."""
    return facts.n_layers >= DEEP_LAYERS and facts.max_hidden_width <= NARROW_WIDTH


def _gradient_kernel(facts: ModelFacts, *, may_go_to_device: bool) -> tuple[MGrad, str]:
    """Return the kernel for posteriors with Bayesian parameters below the last layer, but for its metric, and why."""
    by_row = facts.likelihood.noise_by_row
    on_device = by_row and (may_go_to_device or facts.inputs_on_device is not None)
    plain = MGrad(persistence=PERSISTENCE)
    if not facts.integrates_outputs or on_device or facts.hidden_dim == 0:
        return plain, f"a {facts.likelihood.label} likelihood: gradient steps that know the prior"
    if facts.hidden_dim == facts.dim:
        return plain, "no Bayesian output weight to integrate out: gradient steps that know the prior"
    if facts.interweaves:
        why = "scales of the prior move together with all their parameters, so no output weight is integrated out"
        return plain, why
    noise = "Gaussian likelihood" if facts.likelihood.is_conjugate else "heteroscedastic Gaussian likelihood"
    if facts.sampled_variances is not None and not facts.likelihood.is_conjugate:
        noise = f"{facts.likelihood.label} likelihood, normal given a precision of each row"
    return (
        replace(plain, collapse=True),
        f"{noise}: gradient steps that keep their direction on "
        f"{facts.hidden_dim} parameters, the {facts.dim - facts.hidden_dim} of the "
        f"{'means in the output layer' if by_row else 'output layer'} integrated out",
    )


def check_kernel(kernel: Kernel, facts: ModelFacts) -> None:
    """Raise ValueError if the posterior does not support the kernel; the message names one that it supports."""
    own = kernel.label()
    if kernel.is_independent and not facts.is_last_layer_gaussian:
        found = (
            f"the likelihood is {facts.likelihood!r}"
            if not facts.likelihood.is_quadratic
            else f"{facts.architecture} has Bayesian parameters below the last layer"
        )
        raise ValueError(
            f"kernel={own} needs a Gaussian likelihood and no Bayesian parameter below the last layer, but {found}; "
            f"use {choose_kernel(facts)[0].label()}."
        )
    if kernel.is_independent and facts.samples_scales:
        raise ValueError(
            f"kernel={own} draws in the basis of one prior covariance, and the scales of this prior are sampled; use "
            f"{choose_kernel(facts)[0].label()}, or a prior with scales=None."
        )
    if kernel.metric == "inputs" and facts.rotation_obstacle is not None:
        raise ValueError(
            f"kernel={own} rotates the first layer's weights, and in this posterior {facts.rotation_obstacle}; use "
            'metric="prior".'
        )
    if kernel.metric == "curvature":
        obstacle = facts.curvature_obstacle
        if facts.is_last_layer_gaussian:
            obstacle = "the likelihood is quadratic, which Exact() or O(K^2) steps use"
        if obstacle is not None:
            raise ValueError(
                f'kernel={own} rotates each layer\'s weights, and in this posterior {obstacle}; use metric="prior".'
            )
    if not kernel.collapse:
        return
    if facts.interweaves:
        raise ValueError(
            f"kernel={own} integrates output weights out, with which SampledScales(interweave=True) moves their scale; "
            f"use {type(kernel).__name__}(), or interweave=False."
        )
    if not facts.integrates_outputs:
        raise ValueError(
            f"kernel={own} needs a Gaussian likelihood, HeteroscedasticGaussian() or, for one output, "
            f'StudentT(df, "sampled"), whose output weights can be integrated out; got {facts.likelihood!r}. Use '
            f"{type(kernel).__name__}()."
        )
    by_row = facts.likelihood.noise_by_row
    if facts.hidden_dim == 0:
        raise ValueError(
            f"kernel={own} needs Bayesian parameters "
            f"{'beside the output weights of the means' if by_row else 'below the output layer'}, and "
            f"{facts.architecture} has none; "
            + (
                f"use {choose_kernel(facts)[0].label()}."
                if facts.samples_scales or by_row
                else "use Exact(), which draws the output weights independently."
            )
        )
    if facts.hidden_dim == facts.dim:
        raise ValueError(
            f"kernel={own} needs Bayesian "
            f"{'output weights of the means' if by_row else 'parameters in the output layer'}, and "
            f"{facts.architecture} has none; use {type(kernel).__name__}()."
        )
