"""Executes prepared runs with the compiled core: one after the other on the CPU, or all in one launch on a device."""

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

# A progress callback: called with the steps done, the total number of steps and the acceptance rate so far.
Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Execution:
    """What the core returned for a sequence of runs.

    Attributes
    ----------
    choice : DeviceChoice
        The device of all runs, and the reason.
    results : list of dict
        One for each run. On the CPU the list ends with the first run that was interrupted.
    """

    choice: DeviceChoice
    results: list[dict[str, Any]]


def execute(runs: Sequence[PreparedRun], report: Report | None = None) -> Execution:
    """Execute runs: one after the other on the CPU, or together in one launch on a device.

    With `device="auto"`, runs that a device cannot hold together are executed on the CPU instead, unless their draws
    are to stay on the device.

    Parameters
    ----------
    runs : sequence of PreparedRun
        At least one; all with the same settings except for the seed.
    report : callable, optional
        Progress callback, see `Report`.

    Returns
    -------
    Execution

    Raises
    ------
    ValueError
        If a device that was named, or on which the draws are to stay, cannot run the posteriors together because they
        are not alike.
    RuntimeError
        If such a device fails, for example for lack of memory.
    """
    choice = _common_choice(runs)
    if choice.device != "cpu":
        try:
            model = _joined_model(runs, choice.device)
        except (RuntimeError, ValueError) as error:
            if runs[0].settings.device != "auto" or runs[0].settings.keep_on_device:
                raise
            choice = DeviceChoice("cpu", f"{choice.device} does not run it: {error}")
        else:
            return Execution(choice, _run_together(runs, model, report))
    results: list[dict[str, Any]] = []
    for index, run in enumerate(runs):
        results.append(_run_on_cpu(run, _report_of_run(report, index, len(runs))))
        if not results[-1]["completed"]:
            break
    return Execution(choice, results)


def _common_choice(runs: Sequence[PreparedRun]) -> DeviceChoice:
    """Return the device of all runs: the CPU if at least one of them was assigned to it."""
    return next((run.choice for run in runs if run.choice.device == "cpu"), runs[0].choice)


def _report_of_run(report: Report | None, index: int, count: int) -> Report | None:
    """Return the progress callback of run `index` of `count` runs of equal length, which are executed in turn."""
    if report is None:
        return None
    return lambda done, total, rate: report(index * total + done, count * total, rate)


def _joined_model(runs: Sequence[PreparedRun], device: str) -> Any:
    """Return one model of all runs in a device's memory; raise ValueError if dtype or kernel differ between them."""
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
    """Execute runs in one launch on a device; return a result for each run."""
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
    shared = ("warmup_steps", "warmup_stable", "completed")  # equal for all runs; the rest has one entry a chain
    return [
        {
            name: value if name in shared else value[index * chains : (index + 1) * chains]
            for name, value in together.items()
        }
        | {"theta": _slice_chains(theta, index * chains, chains)}
        for index in range(len(runs))
    ]


def _slice_chains(theta: Any, first: int, chains: int) -> npt.NDArray[Any] | DeviceArray:
    """Return `chains` chains of theta (chains, draws, K) from `first` on, as a view on the host or on the device."""
    if isinstance(theta, _core.DeviceTensor):
        return DeviceArray(theta.part(first, chains, theta.shape[1]))
    part: npt.NDArray[Any] = theta[first : first + chains]
    return part


def _run_on_cpu(run: PreparedRun, report: Report | None) -> dict[str, Any]:
    """Execute one run on the CPU: on sufficient statistics if the log-likelihood is quadratic, else on the data."""
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
    if not run.kernel.is_rotation_invariant or post.scale_names:  # no basis is whitened for every scale
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
