"""Executes prepared runs: natively on the CPU or on a device, one after the other or several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.models import join_on_device
from patrac_native.model.device_choice import DeviceChoice
from patrac_native.sampling.preparation import PreparedRun

# Takes steps done, steps in all and the acceptance rate.
Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Execution:
    """What the core returned for runs of one device.

    Attributes
    ----------
    choice : DeviceChoice
        Where they ran, and why.
    results : list of dict
        One for each run; on the CPU up to the first that was interrupted.
    """

    choice: DeviceChoice
    results: list[dict[str, Any]]


def execute(runs: Sequence[PreparedRun], report: Report | None = None) -> Execution:
    """Run all: on the CPU one after the other, on a device together in one launch.

    Runs that `device="auto"` sends to a device which then cannot hold them together go to the CPU.
    """
    choice = _common_choice(runs)
    if choice.device != "cpu":
        try:
            model = _joined_model(runs, choice.device)
        except (RuntimeError, ValueError) as error:
            if runs[0].settings.device != "auto":
                raise
            choice = DeviceChoice("cpu", f"{choice.device} does not run it: {error}")
        else:
            return Execution(choice, _run_together(runs, model, report))
    results: list[dict[str, Any]] = []
    for index, run in enumerate(runs):
        results.append(_run_on_cpu(run, _shifted(report, index, len(runs))))
        if not results[-1]["completed"]:
            break
    return Execution(choice, results)


def _common_choice(runs: Sequence[PreparedRun]) -> DeviceChoice:
    """The device of all runs: the CPU as soon as one of them goes there."""
    return next((run.choice for run in runs if run.choice.device == "cpu"), runs[0].choice)


def _shifted(report: Report | None, index: int, count: int) -> Report | None:
    """The report of run `index` of `count` like ones that run one after the other."""
    if report is None:
        return None
    return lambda done, total, rate: report(index * total + done, count * total, rate)


def _joined_model(runs: Sequence[PreparedRun], device: str) -> Any:
    """Return the model of all runs in a device's memory; ValueError where they are not alike."""
    first = runs[0]
    for index, run in enumerate(runs):
        if run.post.dtype != first.post.dtype or run.kernel != first.kernel:
            raise ValueError(
                f"posts must be of one dtype, and one kernel must serve them; posts[{index}] has {run.post.dtype.name} "
                f"and {run.kernel}, the first {first.post.dtype.name} and {first.kernel}."
            )
    if len(runs) == 1:
        return first.post.compiled.on_device(device)
    return join_on_device(device, [run.post.compiled for run in runs])


def _run_together(runs: Sequence[PreparedRun], model: Any, report: Report | None) -> list[dict[str, Any]]:
    """Run alike posteriors in one launch of a device and give each its part of the result."""
    first = runs[0]
    together = model.sample(
        first.config,
        [run.seed for run in runs],
        np.concatenate([run.start for run in runs]),
        np.stack([run.post.prior_variance for run in runs]),
        report,
        first.settings.keep_on_device,
    )
    chains = len(first.start)
    theta = together.pop("theta")
    of_all = ("warmup_steps", "warmup_stable", "completed")
    return [
        {
            name: value if name in of_all else value[index * chains : (index + 1) * chains]
            for name, value in together.items()
        }
        | {"theta": _chains_of(theta, index * chains, chains)}
        for index in range(len(runs))
    ]


def _chains_of(theta: Any, first: int, chains: int) -> npt.NDArray[Any] | DeviceArray:
    """Of (chains, draws, K) on the host or on a device."""
    if isinstance(theta, _core.DeviceTensor):
        return DeviceArray(theta.part(first, chains, theta.shape[1]))
    part: npt.NDArray[Any] = theta[first : first + chains]
    return part


def _run_on_cpu(run: PreparedRun, report: Report | None) -> dict[str, Any]:
    """Run the chains on the sufficient statistics where l is quadratic, else on the data."""
    post, config, start = run.post, run.config, run.start
    form = post.quadratic
    if form is None:
        return dict(post.compiled.host.sample(config, start, post.prior_variance, report))
    native: Any = _core.sample_quadratic32 if post.dtype == np.float32 else _core.sample_quadratic64
    common = {
        "constant": form.constant,
        "terms": post.gaussian_terms,
        "variance": post.starting_variance,
        "prior_variance": post.prior_variance,
        "config": config,
        "progress": report,
        "level": post.level,
    }
    if not run.kernel.is_rotation_invariant:
        plain = form.plain
        return dict(native(slope=plain.slope, matrix=plain.hessian, to_theta=np.empty((0, 0)), init=start, **common))
    return dict(
        native(
            slope=form.slope,
            matrix=form.curvature,
            to_theta=np.ascontiguousarray(form.to_theta),
            init=form.whitened(start),
            **common,
        )
    )
