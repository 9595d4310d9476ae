"""Executes prepared runs with the compiled core: on threads of the CPU, or all in one launch on a device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.models import CompiledModels, join_on_device
from patrac_native.kernels import Kernel
from patrac_native.kernels.device_choice import DeviceChoice, check_gradient
from patrac_native.posterior.noise import Noise
from patrac_native.posterior.sampled_density import SampledDensity
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.progress import ProgressBars, Report
from patrac_native.sampling.results import build_draws
from patrac_native.sampling.warmup import Phase

# The band of acceptance rates to which adapt="always" keeps adapting while sampling (the paper's Appendix B).
ADAPT_ALWAYS_BAND = (0.4, 0.9)


def execute(runs: Sequence[PreparedRun], bars: ProgressBars) -> tuple[DeviceChoice, list[dict[str, Any]]]:
    """Execute runs in one launch on a device, or on the CPU, as many at a time as there are threads for their chains.

    Returns the device of all runs, which is the CPU if at least one of them was assigned to it, and a result for each
    run; on the CPU the list ends with the last run that had begun when it was interrupted. With `device="auto"`, runs
    that a device cannot hold together are executed on the CPU instead, unless their draws are to stay on the device.
    """
    choice, model = next((run.choice for run in runs if run.choice.device == "cpu"), runs[0].choice), None
    if choice.device != "cpu":
        try:
            model = _joined_model(runs, choice.device)
        except (RuntimeError, ValueError) as error:
            if runs[0].settings.device != "auto" or runs[0].settings.keep_on_device:
                raise
            choice = DeviceChoice("cpu", f"{choice.device} does not run it: {error}")
            check_gradient(runs[0].kernel, runs[0].density.facts, choice)
    reports = bars.reports(together=model is not None)
    if model is not None:
        return choice, _run_together(runs, model, reports[0])
    workers = min(len(runs), max(1, runs[0].threads // len(runs[0].start)))
    results = _run_in_turn(runs, reports) if workers == 1 else _run_side_by_side(runs, workers, reports)
    return choice, results


def _joined_model(runs: Sequence[PreparedRun], device: str) -> Any:
    """Return one model of all runs in a device's memory; raise ValueError if they cannot run together."""
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
        _joint_config(runs),
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
        | {"theta": _slice_chains(theta, index * chains, chains, together["draws_done"])}
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


def _slice_chains(
    theta: Any, first: int, chains: int, draws_done: npt.NDArray[np.int64]
) -> npt.NDArray[Any] | DeviceArray:
    """Return a view of `chains` chains of theta from `first` on: whole, or on a device the draws that all have made."""
    if isinstance(theta, _core.DeviceTensor):
        return DeviceArray(theta.part(first, chains, int(draws_done[first : first + chains].min())))
    part: npt.NDArray[Any] = theta[first : first + chains]
    return part


def _run_in_turn(runs: Sequence[PreparedRun], reports: Sequence[Report | None]) -> list[dict[str, Any]]:
    """Execute runs one after the other, each on all its threads; the list ends with the first that is interrupted."""
    results: list[dict[str, Any]] = []
    for index, run in enumerate(runs):
        results.append(_run(run, reports[index]))
        if not results[-1]["completed"]:
            break
    return results


def _run_side_by_side(
    runs: Sequence[PreparedRun], workers: int, reports: Sequence[Report | None]
) -> list[dict[str, Any]]:
    """Execute runs, `workers` at a time; Ctrl-C ends those that have begun and leaves out the others."""
    threads = runs[0].threads // workers
    is_interrupted = threading.Event()

    def report_of(index: int) -> Report:
        shown = reports[index]

        def report(done: int, total: int, rate: float) -> None:
            if is_interrupted.is_set():
                raise KeyboardInterrupt
            if shown is None:
                return
            try:
                shown(done, total, rate)
            except KeyboardInterrupt:
                is_interrupted.set()
                raise

        return report

    def run_one(index: int) -> dict[str, Any] | None:
        if is_interrupted.is_set():
            return None
        return _run(replace(runs[index], threads=threads), report_of(index))

    with ThreadPoolExecutor(workers) as pool:
        # `until` gives its notes to the collectors of the caller, whose context the threads get.
        futures = [pool.submit(copy_context().run, run_one, index) for index in range(len(runs))]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:  # reaches the waiting thread only
            is_interrupted.set()
        except BaseException:
            is_interrupted.set()
            raise
    results: list[dict[str, Any]] = []
    for future in futures:
        result = future.result()
        if result is None:
            break
        results.append(result)
    return results


def run_stretch(
    run: PreparedRun, draws: int, last_step: int, states: Sequence[bytes], report: Report | None
) -> dict[str, Any]:
    """Execute a run on the CPU from the states of its chains, none at its beginning, to a step or a number of draws."""
    stretch = {"draws": draws, "last_step": last_step, "states": list(states), "check_every": 0}
    return _on_cpu(run, _joint_config([run], **stretch), report, None)


def _run(run: PreparedRun, report: Report | None) -> dict[str, Any]:
    """Execute one run on the CPU."""
    clock, until = time.perf_counter(), run.settings.until

    def is_enough(result: dict[str, Any]) -> bool:
        assert until is not None
        done = int(result["draws_done"].min())
        # A copy, because `build_draws` brings theta into the order of the parameters in place, once for the whole run.
        so_far = result | {"theta": result["theta"][:, :done].copy()}
        draws, _ = build_draws(run, run.choice, so_far, time.perf_counter() - clock)
        return bool(until(draws))

    return _on_cpu(run, _joint_config([run]), report, None if until is None else is_enough)


def _on_cpu(
    run: PreparedRun,
    config: _core.RunConfig,
    report: Report | None,
    ask: Callable[[dict[str, Any]], bool] | None,
) -> dict[str, Any]:
    """Call the core: on sufficient statistics if the log-likelihood is quadratic, else on the data."""
    density, start = run.density, run.start
    form = density.quadratic if density.facts.reads_statistics(run.kernel.is_independent) else None
    if form is None:
        rotation = {"rotation": list(run.rotation)} if run.rotation else {}
        return dict(
            run.compiled.host.sample(
                config, run.chain_start, density.prior_variance, report, ask, run.step_factor, **rotation
            )
        )
    native: Any = _core.sample_quadratic32 if density.dtype == np.float32 else _core.sample_quadratic64
    common = {
        "constant": form.constant,
        "terms": form.terms,
        "variance": form.variance,
        "output": form.output,
        "prior_variance": density.prior_variance,
        "config": config,
        "progress": report,
        "is_enough": ask,
        "level": density.level,
    }
    if not run.kernel.is_rotation_invariant or density.scales is not None:  # no basis is whitened for every scale
        plain = form.plain
        return dict(native(slope=plain.slope, matrix=plain.hessian, to_theta=np.empty((0, 0)), init=start, **common))
    init = form.whitened(start)
    return dict(native(slope=form.slope, matrix=form.curvature, to_theta=form.to_theta, init=init, **common))


def _joint_config(runs: Sequence[PreparedRun], **stretch: Any) -> _core.RunConfig:
    """Return the configuration of runs in the form of the compiled core; all but seeds and variances is the first's.

    `stretch` has draws, last_step, states and check_every of a stretch of a run.
    """
    first = runs[0]
    kernel = first.kernel
    return _core.RunConfig(
        kernel=kernel.name,
        collapse=kernel.collapse,
        coarse_gradient=kernel.gradient == "coarse",
        persistence=kernel.persistence,
        variance=_core_variance([run.density.noise for run in runs], first.variance_every or 1),
        scales=_core_scales(first.density, first.settings.scales_every),
        step_size=first.step_size,
        # If delta is far above every prior variance, mGrad proposes from the prior, and a larger one changes nothing.
        step_size_max=min(kernel.step_size_max, 1e3 * float(first.unit_steps.max()) + first.step_size),
        warmup=[_core_phase(phase, _relaxation(first)) for phase in first.schedule.phases],
        sampling=_core_phase(Phase(0, ADAPT_ALWAYS_BAND if kernel.adapt_always else None), 1.0),
        thin=first.stride,
        seed=first.seed,
        threads=first.threads,
        **{"draws": first.settings.draws, "check_every": first.check_every, **stretch},
    )


def _core_variance(laws: Sequence[Noise | None], every: int) -> _core.SampledVariance | None:
    """Return priors and initial values of the sampled noise variances of each posterior; None if they are fixed."""
    sampled = [law for law in laws if law is not None]
    if not sampled:
        return None
    return _core.SampledVariance(
        shape=sampled[0].shape,
        rate=np.stack([law.rate for law in sampled]),
        initial=np.stack([law.initial for law in sampled]),
        every=every,
    )


def _core_scales(density: SampledDensity, every: int) -> _core.SampledScales | None:
    """Return the law of the prior's scales, in units of their centres; None if they are fixed."""
    groups = density.scales
    if groups is None:
        return None
    return _core.SampledScales(
        group=groups.group,
        groups=len(groups.names),
        shape=groups.a,
        rate=groups.a,
        every=every,
        interweave=groups.interweave,
    )


def _relaxation(run: PreparedRun) -> float:
    """Return the sum of step sizes over which a kernel forgets a parameter that only the prior determines."""
    # Step sizes of mGrad have the unit of the prior variance, those of rotation-invariant kernels none.
    return 1.0 if run.kernel.is_rotation_invariant else float(run.unit_steps.mean())


def _core_phase(phase: Phase, relaxation: float) -> _core.Phase:
    """Return a phase in the form of the compiled core; `relaxation` is the unit of its travel in step sizes."""
    low, high = phase.accept if phase.accept else (0.0, 1.0)
    # A squared error r^2 counts as e/(e + r^2), which is a half where it is the e that is asked for.
    target = 0.5 if phase.energy_error else phase.target or 0.0
    return _core.Phase(
        steps=phase.steps,
        adapt=phase.accept is not None or target > 0,
        accept_low=low,
        accept_high=high,
        accept_all=phase.accept_all,
        energy_error=phase.energy_error or 0.0,
        persistence=phase.persistence or 0.0,
        travel=(phase.travel or 0.0) * relaxation,
        average=phase.average,
        target=target,
        first_look=phase.first_look or 0,
        superchains=phase.superchains or 0,
    )
