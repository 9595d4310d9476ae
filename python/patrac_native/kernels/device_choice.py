"""The choice of a device: the one that the caller names, or by a rule the one that holds the inputs, else the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from patrac_native.engine.machine import EMULATED, MAX_DEVICE_LAYERS, device_status
from patrac_native.kernels import KERNELS, Kernel
from patrac_native.kernels.facts import ModelFacts

# The device that device="auto" considers besides the CPU.
AUTO_DEVICE = "cuda"


@dataclass(frozen=True)
class DeviceChoice:
    """The device of a run, and why it was chosen."""

    device: str  # "cpu", "cuda" or, in tests, "emulated:N"
    reason: str  # in words; "given" if the caller named it

    def __str__(self) -> str:
        return f"{self.device}: {self.reason}"


def choose_device(device: str, facts: ModelFacts, kernel: Kernel, *, keep: bool = False) -> DeviceChoice:
    """Choose the device of a run.

    "auto" is a rule: it chooses the GPU if the inputs are on it, or the draws are to stay on it, and it supports the
    kernel and the likelihood; else the CPU. The rule times nothing, so equal calls on one machine choose the same
    device.
    """
    choice = _choose(device, facts, kernel, keep)
    check_gradient(kernel, facts, choice)
    if keep and choice.device == "cpu":
        why = "" if choice.reason == "given" else f" ({choice.reason})"
        raise ValueError(
            f'keep_on_device=True needs device="cuda"; this run goes to the CPU{why}. Give a device or leave '
            "keep_on_device out."
        )
    return choice


def check_gradient(kernel: Kernel, facts: ModelFacts, choice: DeviceChoice) -> None:
    """Raise ValueError if the gradient of a kernel is coarse, and chains on the chosen device cannot have such a one.

    Of the posteriors that reach a device, the core refuses those whose first layer does not use matrix units.
    """
    if kernel.gradient == "exact":
        return
    own = kernel.label()
    if facts.sampled_variances is not None:
        raise ValueError(
            f"kernel={own} rounds the gradient, and a chain that samples the noise variance rescales the gradient that "
            "it keeps: a rounded one would depend on earlier variances, and the posterior would not be exactly "
            f'invariant. Got {facts.likelihood!r}; fix its scale or use gradient="exact".'
        )
    if choice.device == "cpu":
        why = "" if choice.reason == "given" else f" ({choice.reason})"
        raise ValueError(
            f'kernel={own} needs device="cuda"; this run goes to the CPU{why}. Give device="cuda" or use '
            'gradient="exact".'
        )


def _choose(device: str, facts: ModelFacts, kernel: Kernel, keep: bool) -> DeviceChoice:
    """Choose the device as `choose_device` does, without the check of `keep` on the CPU."""
    if device == "auto":
        inputs = facts.inputs_on_device
        if inputs is not None and inputs.is_readable_on(AUTO_DEVICE):
            why = "the inputs are there"
        elif keep and facts.device_obstacle is None:
            why = "the draws are to stay there"
        else:
            return DeviceChoice("cpu", facts.device_obstacle or "the inputs are on the host")
        status = device_status(AUTO_DEVICE)
        if not status["usable"]:
            return DeviceChoice("cpu", f"no CUDA device: {status['reason']}")
        only_on_cpu = _only_on_cpu(facts, kernel)
        return DeviceChoice("cpu", only_on_cpu[0]) if only_on_cpu else DeviceChoice(AUTO_DEVICE, why)
    if device == "cpu":
        return DeviceChoice(device, "given")
    if not isinstance(device, str) or not (device == "cuda" or device.startswith(EMULATED)):
        raise ValueError(f'device must be "auto", "cpu" or "cuda"; got {device!r}.')
    status = device_status(device)
    if not status["usable"]:
        raise RuntimeError(f'device="{device}": {status["reason"]}; use device="auto" or "cpu".')
    if facts.device_obstacle is not None:
        raise ValueError(f'device="{device}" cannot run this: {facts.device_obstacle}. Use device="cpu".')
    only_on_cpu = _only_on_cpu(facts, kernel)
    if only_on_cpu:
        raise ValueError(f'device="{device}" {only_on_cpu[1]}, or device="cpu".')
    return DeviceChoice(device, "given")


def _only_on_cpu(facts: ModelFacts, kernel: Kernel) -> tuple[str, str] | None:
    """Return why only the CPU supports a run, and what a device does with which remedy; None if a device does too."""
    own, likelihood = kernel.label(), facts.likelihood
    *first, last = [f"{known.__name__}()" for known in KERNELS.values() if known.runs_on_devices]
    obstacles = (
        (
            not kernel.runs_on_devices,
            f"{own} runs only there",
            f"runs {', '.join(first)} and {last}; got {own}. Use one of them",
        ),
        (
            kernel.metric == "curvature",
            f"{own} runs only there",
            f'runs the metrics "prior" and "inputs"; got {own}. Use one of them',
        ),
        (
            kernel.collapse and likelihood.noise_by_row,
            f"output weights under a {likelihood.label} likelihood are integrated out only there",
            f"integrates output weights out under a Gaussian likelihood alone; got {likelihood!r}. Use "
            f"{type(kernel).__name__}() without collapse=True",
        ),
        (
            facts.sampled_variances is not None and not likelihood.is_conjugate,
            f"a sampled {likelihood.scale_name} of {likelihood.label} noise runs only there",
            f"samples the variance of Gaussian noise alone; got {likelihood!r}. Fix the scale",
        ),
        (
            facts.samples_scales,
            "sampled scales of the prior run only there",
            "runs priors with fixed scales, and those of this prior are sampled. Use a prior with scales=None",
        ),
        (
            facts.n_layers > MAX_DEVICE_LAYERS,
            f"networks of more than {MAX_DEVICE_LAYERS} layers run only there",
            f"runs at most {MAX_DEVICE_LAYERS} layers; got {facts.n_layers}. Use fewer",
        ),
    )
    return next(((reason, remedy) for holds, reason, remedy in obstacles if holds), None)
