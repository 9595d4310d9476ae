"""Which devices may run the chains, and why: what device="auto" weighs, what is refused, and a device's models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.engine import _core
from patrac_native.model.kernels import PCN, PCNL, Kernel, MGrad, short_name

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior

# A device of host threads, for tests: "emulated:4" has blocks of four.
EMULATED = "emulated:"
# What device="auto" weighs against the CPU.
RIVAL = "cuda"
ON_DEVICES = (PCN, PCNL, MGrad)


def device_status(device: str = "cuda") -> dict[str, Any]:
    """Say whether a device can be used.

    Parameters
    ----------
    device : "cuda"

    Returns
    -------
    dict
        usable (bool); reason (str, empty if usable: built without CUDA, no driver, no device); name; multiprocessors;
        memory_bytes; shared_bytes (of a block of threads).
    """
    status: dict[str, Any] = _core.device_status(device)
    return status


@dataclass(frozen=True)
class DeviceChoice:
    """Where a run goes.

    Attributes
    ----------
    device, reason : str
        The device and why, in words. While there is a rival: "cpu", and why the rival is preferred, or nothing.
    rival : str, optional
        A device that does the run as well, for `settle_device` to decide.
    """

    device: str
    reason: str
    rival: str | None = None

    def to_keep(self) -> DeviceChoice:
        """Return the choice for draws that are to stay on a device; ValueError where the run goes to the CPU."""
        if self.rival is not None:
            return DeviceChoice(self.rival, "the draws are to stay there")
        if self.device == "cpu":
            why = "" if self.reason == "given" else f" ({self.reason})"
            raise ValueError(
                f'keep_on_device=True needs device="cuda"; this run goes to the CPU{why}. Give a device or leave '
                "keep_on_device out."
            )
        return self

    def __str__(self) -> str:
        if self.rival is None:
            return f"{self.device}: {self.reason}"
        if self.reason:
            return f"{self.rival}: {self.reason}"
        name = device_status(self.rival)["name"]
        return f"the faster of the CPU and {self.rival} ({name}), timed on the first steps of a run"


def choose_device(device: str, post: Posterior, kernel: Kernel) -> DeviceChoice:
    """Choose the device of a run.

    Parameters
    ----------
    device : str
        "auto", "cpu", "cuda" or, for tests, "emulated:N".
    post : Posterior
    kernel : Kernel

    Raises
    ------
    ValueError
        For a device that does not exist, or a kernel or likelihood that it does not run.
    RuntimeError
        Where the device cannot be used, with the reason.
    """
    if device == "auto":
        status = device_status(RIVAL)
        why = f"no CUDA device: {status['reason']}" if not status["usable"] else _only_on_cpu(post, kernel)
        if why:
            return DeviceChoice("cpu", why)
        there = post.inputs.on_device
        if there is not None and there.are_read_by(RIVAL):
            return DeviceChoice("cpu", "the inputs are there", RIVAL)
        return DeviceChoice("cpu", "", RIVAL)
    if device == "cpu":
        return DeviceChoice(device, "given")
    if not isinstance(device, str) or not (device == "cuda" or device.startswith(EMULATED)):
        raise ValueError(f'device must be "auto", "cpu" or "cuda"; got {device!r}.')
    status = device_status(device)
    if not status["usable"]:
        raise RuntimeError(f'device="{device}": {status["reason"]}; use device="auto" or "cpu".')
    check_kernel_on_device(device, kernel)
    if _is_variance_sampled(post):
        raise ValueError(
            f'device="{device}" runs likelihoods without a sampled variance; got {post.likelihood!r}. Fix it, as in '
            f'Gaussian({post.starting_variance:.3g}), or use device="cpu".'
        )
    return DeviceChoice(device, "given")


def _only_on_cpu(post: Posterior, kernel: Kernel) -> str | None:
    """Say what a device does not run; None where it runs all."""
    if not isinstance(kernel, ON_DEVICES):
        return f"{short_name(kernel.to_dict())} runs there alone"
    if _is_variance_sampled(post):
        return "a sampled variance runs there alone"
    if len(post.network.layer_sizes) - 1 > _core.MOST_DEVICE_LAYERS:
        return f"networks of more than {_core.MOST_DEVICE_LAYERS} layers run there alone"
    return None


def _is_variance_sampled(post: Posterior) -> bool:
    return post.reference_likelihood is not post.likelihood


def check_kernel_on_device(device: str, kernel: Kernel) -> None:
    """Raise ValueError for a kernel that runs on the CPU alone."""
    if not isinstance(kernel, ON_DEVICES):
        raise ValueError(
            f'device="{device}" runs PCN(), PCNL() and MGrad(); got {short_name(kernel.to_dict())}. Use one of them, '
            'or device="cpu".'
        )


def join_data_sets(device: str, posts: Sequence[Posterior]) -> Any:
    """The models of several posteriors of one type in a device's memory, for runs of all of them together."""
    build: Any = _core.DeviceModel32 if posts[0].dtype == np.float32 else _core.DeviceModel64
    return build(device, [post.data_set(device) for post in posts])
