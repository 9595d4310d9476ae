"""Executes prepared runs with the compiled core: on threads of the CPU, or all in one launch on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.models import CompiledModels, join_on_device
from patrac_native.kernels import Kernel
from patrac_native.kernels.device_choice import DeviceChoice
from patrac_native.sampling.cpu_execution import run_in_turn, run_side_by_side
from patrac_native.sampling.preparation import PreparedRun, joint_config
from patrac_native.sampling.progress import ProgressBars, Report


@dataclass(frozen=True)
class Execution:
    """What the core returned for a sequence of runs.

    Attributes
    ----------
    choice : DeviceChoice
        The device of all runs, and the reason.
    results : list of dict
        One for each run. On the CPU the list ends with the last run that had begun when it was interrupted.
    """

    choice: DeviceChoice
    results: list[dict[str, Any]]


def execute(runs: Sequence[PreparedRun], bars: ProgressBars) -> Execution:
    """Execute runs: on the CPU, as many at a time as there are threads for their chains, or in one launch on a device.

    With `device="auto"`, runs that a device cannot hold together are executed on the CPU instead, unless their draws
    are to stay on the device.

    Parameters
    ----------
    runs : sequence of PreparedRun
        At least one; all with the same settings except for the seed.
    bars : ProgressBars
        Gives the progress callbacks.

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
            return Execution(choice, _run_together(runs, model, bars.of_all()))
    workers = min(len(runs), max(1, runs[0].threads // len(runs[0].start)))
    return Execution(choice, run_in_turn(runs, bars) if workers == 1 else run_side_by_side(runs, workers, bars))


def _common_choice(runs: Sequence[PreparedRun]) -> DeviceChoice:
    """Return the device of all runs: the CPU if at least one of them was assigned to it."""
    return next((run.choice for run in runs if run.choice.device == "cpu"), runs[0].choice)


def _joined_model(runs: Sequence[PreparedRun], device: str) -> Any:
    """Return one model of all runs in a device's memory; raise ValueError if they cannot run together.

    Their dtypes, kernels, and numbers and shapes of sampled noise variances must be equal.
    """
    first = runs[0]
    for index, run in enumerate(runs):
        if run.density.dtype != first.density.dtype or _without_metric(run.kernel) != _without_metric(first.kernel):
            raise ValueError(
                f"posts must be of one dtype, and one kernel must serve them; posts[{index}] has "
                f"{run.density.dtype.name} and {run.kernel}, the first {first.density.dtype.name} and {first.kernel}."
            )
        if _variance_law(run) != _variance_law(first):
            raise ValueError(
                "posts must have as many sampled noise variances as each other, under priors of one shape a; "
                f"posts[{index}] has {run.density.facts.likelihood!r}, the first {first.density.facts.likelihood!r}."
            )
    models = [run.compiled for run in runs]
    networks = [model for model in models if isinstance(model, CompiledModels)]
    assert len(networks) == len(models)  # prepare_run() refuses a device for others
    return networks[0].on_device(device) if len(runs) == 1 else join_on_device(device, networks)


def _variance_law(run: PreparedRun) -> tuple[int, float] | None:
    """Return number and prior shape of the sampled noise variances; None if they are fixed."""
    noise = run.density.noise
    return None if noise is None else (len(noise.rate), noise.shape)


def _run_together(runs: Sequence[PreparedRun], model: Any, report: Report | None) -> list[dict[str, Any]]:
    """Execute runs in one launch on a device; return a result for each run."""
    first = runs[0]
    together = model.sample(
        joint_config(runs),
        [run.seed for run in runs],
        np.concatenate([run.chain_start for run in runs]),
        np.stack([run.density.prior_variance for run in runs]),
        report,
        first.settings.keep_on_device,
        _step_factors(runs),
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


def _without_metric(kernel: Kernel) -> dict[str, Any]:
    """Return name and arguments of a kernel but for its metric, which may differ between the runs of one launch."""
    return kernel.to_dict() | {"metric": "prior"}


def _step_factors(runs: Sequence[PreparedRun]) -> npt.NDArray[np.float64] | None:
    """Return the factors of the step sizes of all runs, shape (runs, K); None if all are ones."""
    factors = [run.step_factor for run in runs]
    if all(factor is None for factor in factors):
        return None
    return np.stack([np.ones(runs[0].density.dim) if factor is None else factor for factor in factors])


def _slice_chains(theta: Any, first: int, chains: int) -> npt.NDArray[Any] | DeviceArray:
    """Return `chains` chains of theta (chains, draws, K) from `first` on, as a view on the host or on the device."""
    if isinstance(theta, _core.DeviceTensor):
        return DeviceArray(theta.part(first, chains, theta.shape[1]))
    part: npt.NDArray[Any] = theta[first : first + chains]
    return part
