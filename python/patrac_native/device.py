"""Which device runs the chains, and why: what device="auto" means, what it must not be asked for, and its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native import _core
from patrac_native.kernels import PCN, PCNL, Kernel, MGrad, short_name

if TYPE_CHECKING:
    from patrac_native.posterior import Posterior

# A device of host threads, for tests: "emulated:4" has blocks of four.
EMULATED = "emulated:"


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


def choose_device(device: str, post: Posterior, kernel: Kernel | None) -> tuple[str, str]:
    """Return the device to run on and the reason in words.

    Parameters
    ----------
    device : str
        "auto", "cpu", "cuda" or, for tests, "emulated:N".
    post : Posterior
    kernel : Kernel, optional
        None where the choice of the kernel follows that of the device.

    Raises
    ------
    ValueError
        For a device that does not exist, or a kernel or likelihood that it does not run.
    RuntimeError
        Where the device cannot be used, with the reason.
    """
    if device == "auto":
        return "cpu", _why_not_cuda()
    if device == "cpu":
        return device, "given"
    if not isinstance(device, str) or not (device == "cuda" or device.startswith(EMULATED)):
        raise ValueError(f'device must be "auto", "cpu" or "cuda"; got {device!r}.')
    status = _core.device_status(device)
    if not status["usable"]:
        raise RuntimeError(f'device="{device}": {status["reason"]}; use device="auto" or "cpu".')
    if kernel is not None:
        check_kernel_on_device(device, kernel)
    if post.reference_likelihood is not post.likelihood:
        raise ValueError(
            f'device="{device}" runs likelihoods without a sampled variance; got {post.likelihood!r}. Fix it, as in '
            f'Gaussian({post.starting_variance:.3g}), or use device="cpu".'
        )
    return device, "given"


def check_kernel_on_device(device: str, kernel: Kernel) -> None:
    """Raise ValueError for a kernel that runs on the CPU alone."""
    if not isinstance(kernel, (PCN, PCNL, MGrad)):
        raise ValueError(
            f'device="{device}" runs PCN(), PCNL() and MGrad(); got {short_name(kernel.to_dict())}. Use one of them, '
            'or device="cpu".'
        )


def check_keeps(device: str, reason: str) -> None:
    """Raise ValueError where draws are to stay on a device and the run goes to the CPU, for `reason`."""
    if device == "cpu":
        why = "" if reason == "given" else f" ({reason})"
        raise ValueError(
            f'keep_on_device=True needs device="cuda"; this run goes to the CPU{why}. Give a device or leave '
            "keep_on_device out."
        )


def join_data_sets(device: str, posts: Sequence[Posterior]) -> Any:
    """The models of several posteriors of one type in a device's memory, for runs of all of them together."""
    build: Any = _core.DeviceModel32 if posts[0].dtype == np.float32 else _core.DeviceModel64
    return build(device, [post.data_set(device) for post in posts])


def _why_not_cuda() -> str:
    """Return why device="auto" is the CPU."""
    status = device_status()
    if status["usable"]:
        return (
            "from how many chains or rows on a CUDA device is faster has not been measured; ask for one with "
            'device="cuda"'
        )
    return f"no CUDA device: {status['reason']}"
