"""Prepares a run: resolves its settings against a posterior."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from patrac_native.kernels import KERNELS, Kernel
from patrac_native.kernels.choice import is_deep_and_narrow, run_kernel
from patrac_native.kernels.device_choice import DeviceChoice, choose_device
from patrac_native.kernels.metric import Metric, RotationBlock
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.sampled_density import FitQuality, SampledDensity
from patrac_native.posterior.target import Target
from patrac_native.sampling.enough_draws import EnoughDraws
from patrac_native.sampling.settings import OneRunSettings, RunSettings
from patrac_native.sampling.warmup import (
    DEEP_ADAPTIVE_STEPS,
    SETTLE_STEPS,
    TARGET_WINDOW,
    WINDOW,
    Phase,
    Warmup,
)
from patrac_native.validation.checks import FloatArray, cast_checked, check_finite, check_inputs
from patrac_native.validation.memory import check_memory
from patrac_native.validation.notes import Note

# `until` is called fewer times than this, and first with at least so many draws of each chain, as a summary needs.
_CHECKS, _LEAST_CHECKED_DRAWS = 10, 4
# Weight of the draw from the prior in the starting points of init="auto": 0 gives the trained values, 1 the prior.
_DISPERSION = 0.5


@dataclass(frozen=True)
class PreparedRun:
    """A run whose settings are resolved: what is executed, and what the draws record."""

    post: Posterior | Target
    density: SampledDensity
    settings: RunSettings  # as the caller gave them
    kernel: Kernel
    kernel_reason: str  # "given" if the caller named the kernel
    schedule: Warmup
    step_size: float  # of the first step
    choice: DeviceChoice
    start: npt.NDArray[Any]  # first state of each chain (chains, K), in the posterior's dtype
    seed: int
    threads: int
    fit: FitQuality | None  # evaluated before the run, so that its failure or an interrupt cannot cost the draws
    variance_every: int | None  # steps from one draw of the sampled noise variances to the next; None without them
    notes: tuple[Note, ...]  # those that are known before the run
    moments_at: FloatArray | None  # inputs at which f is watched; None for none
    stride: int  # steps from one state to the next of those that are looked at: `thin`, or fewer where f is watched
    metric: Metric | None  # the coordinates in which chains step, and their step sizes; None for the metric "prior"

    @property
    def compiled(self) -> Any:
        """The `CompiledModels` or the `ForeignModel` that the chains run on."""
        return self.density.compiled if self.metric is None else self.metric.compiled

    @property
    def chain_start(self) -> npt.NDArray[Any]:
        """First state of each chain in the coordinates of `compiled`, (chains, K)."""
        return self.start if self.metric is None else self.metric.rotated(self.start)

    @property
    def step_factor(self) -> FloatArray | None:
        """Factor of the step size of each coordinate, shape (K,); None for ones."""
        return None if self.metric is None else self.metric.step_factor(self.kernel)

    @property
    def rotation(self) -> tuple[RotationBlock, ...]:
        """Rotation of the whitened parameters in which chains step; empty if there is none."""
        return () if self.metric is None else self.metric.rotation(self.kernel)

    @property
    def unit_steps(self) -> FloatArray:
        """Step sizes at which mGrad's step of each coordinate is that of its prior, shape (K,)."""
        return self.density.prior_variance if self.metric is None else self.metric.unit_steps(self.kernel)

    @property
    def steps(self) -> int:
        """Number of steps of all chains if no phase ends early."""
        return len(self.start) * (self.schedule.steps + self.settings.draws * self.settings.thin)

    @property
    def check_every(self) -> int:
        """Number of draws after which `until` is called again; 0 without it."""
        if self.settings.until is None:
            return 0
        return max(_LEAST_CHECKED_DRAWS, math.ceil(self.settings.draws / _CHECKS))


def prepare_run(post: Posterior | Target, settings: RunSettings, *, is_stored: bool = False) -> PreparedRun:
    """Resolve settings against a posterior: kernel, device, warm-up, step size, seed and starting points.

    The draws of a run that `is_stored` are not all in memory.
    """
    if not isinstance(post, Posterior | Target):
        raise TypeError(f"post must be a Posterior or a Target; got {type(post).__name__}.")
    density = post.sampled
    kernel, reason = _resolve_kernel(settings, density)
    choice = choose_device(settings.device, density.facts, kernel, keep=settings.keep_on_device)
    metric = density.metric_of(kernel)
    if metric is not None and settings.keep_on_device:
        raise ValueError(
            f"keep_on_device=True keeps theta as the chains have it, and {kernel} rotates it; use "
            'metric="prior", or leave keep_on_device out.'
        )
    if settings.until is not None and choice.device != "cpu":
        raise ValueError(
            f'until needs device="cpu": {choice.device} makes all draws in one launch. Give device="cpu", or leave '
            "until out."
        )
    if isinstance(settings.until, EnoughDraws):
        settings.until.check(post)
    moments_at = _resolve_moments(post, settings, choice)
    if choice.device == "cpu":
        _ = density.compiled.host  # once it is built, the quality of fit is evaluated on the host
    schedule = _resolve_warmup(settings.warmup, kernel, density)
    if schedule.superchains and (settings.chains % schedule.superchains or settings.chains <= schedule.superchains):
        raise ValueError(
            f"chains must be a multiple of the {schedule.superchains} superchains of the warm-up, at least twice as "
            f"many; got {settings.chains}."
        )
    steps = settings.chains * (schedule.steps + settings.draws * settings.thin)
    if steps >= 2**62:  # 64-bit counters must not overflow
        raise ValueError(f"chains, warmup, draws and thin ask for {steps} steps in all; ask for fewer than 2^62.")
    step_size = schedule.step_size if kernel.adapts and schedule.step_size else kernel.starting_step_size
    if step_size > kernel.step_size_max:
        raise ValueError(
            f"step_size of the warm-up must be in (0, {kernel.step_size_max:g}] for {type(kernel).__name__}; "
            f"got {step_size:g}."
        )
    variance_every = _resolve_variance_every(settings, kernel, density)
    if not (settings.keep_on_device or is_stored):  # a device compares its memory itself, a store needs little
        check_memory(
            _draws_bytes(settings, density),
            f"chains={settings.chains}, draws={settings.draws}: the draws of {density.dim} parameters",
            "Lower chains or draws; a larger thin gives the same run fewer draws.",
        )
    seed = resolve_seed(settings.seed)
    init, threads = settings.init, settings.threads  # as `RunSettings` checked them
    assert isinstance(init, str | np.ndarray) and threads is not None
    start = _starting_points(density, init, settings.chains, schedule.superchains or settings.chains, seed)
    if schedule.superchains:
        _check_superchains(start, schedule.superchains)
    return PreparedRun(
        post=post,
        density=density,
        settings=settings,
        kernel=kernel,
        kernel_reason=reason,
        schedule=schedule,
        step_size=step_size,
        choice=choice,
        start=start,
        seed=seed,
        threads=threads,
        fit=density.fit_quality,
        variance_every=variance_every,
        notes=tuple(_notes(kernel, schedule, density)),
        moments_at=moments_at,
        stride=settings.thin if moments_at is None else cast(OneRunSettings, settings).moments_every,
        metric=metric,
    )


def _resolve_moments(post: Posterior | Target, settings: RunSettings, choice: DeviceChoice) -> FloatArray | None:
    """Return the inputs at which a run watches f, checked; None for none."""
    if not isinstance(settings, OneRunSettings) or settings.moments_at is None:
        return None
    if not isinstance(post, Posterior):
        raise TypeError("moments_at watches f of a Posterior; a Target has none. Leave it out.")
    if choice.device != "cpu":
        raise ValueError(
            f'moments_at needs device="cpu": {choice.device} makes all draws in one launch. Leave one of them out.'
        )
    return check_inputs(settings.moments_at, post.network.n_inputs, "moments_at", columns=post.network.input_names)


def _starting_points(
    density: SampledDensity, init: str | npt.NDArray[Any], chains: int, points: int, seed: int
) -> npt.NDArray[Any]:
    """Return the first state of each chain, (chains, K), in the dtype of the density; see `patrac_native.sample`.

    Unless `init` gives them, there are as many points, a divisor of `chains`; consecutive chains share one.
    """
    if isinstance(init, str) and points < chains:
        return np.repeat(_starting_points(density, init, points, points, seed), chains // points, axis=0)
    if isinstance(init, str):
        mode = density.theta_map
        if init == "map":
            if mode is None:
                raise ValueError(
                    'init="map" needs trained values, and a Target has none; use "prior", or give starting points of '
                    f"shape (chains, K) = ({chains}, {density.dim})."
                )
            return np.tile(mode.astype(density.dtype), (chains, 1))
        if init == "auto" and chains == 1 and density.is_trained:
            assert mode is not None
            return mode.astype(density.dtype)[None]
        prior = np.stack([density.prior_start(seed, chain) for chain in range(chains)])
        if init == "prior" or mode is None or not density.is_trained:
            return prior
        # One pCN proposal from the trained values with beta = 1/2.
        start = np.tile(mode.astype(density.dtype), (chains, 1))
        start[1:] = (math.sqrt(1 - _DISPERSION**2) * start[1:] + _DISPERSION * prior[1:]).astype(density.dtype)
        return start
    values = np.asarray(init)
    if values.shape != (chains, density.dim):
        raise ValueError(f"init must have shape (chains, K) = ({chains}, {density.dim}); got {values.shape}.")
    check_finite(values, "init", "Rows count chains, columns the entries of theta.")
    return cast_checked(values, density.dtype, "init")


def _check_superchains(start: npt.NDArray[Any], superchains: int) -> None:
    """Raise ValueError unless the chains of each superchain start at one point, and superchains at different ones.

    From other points, chains that have not moved would agree.
    """
    groups = start.reshape(superchains, -1, start.shape[1])
    if (groups != groups[:, :1]).any() or len(np.unique(groups[:, 0], axis=0)) < superchains:
        raise ValueError(
            f"init must give each of the {superchains} superchains of the warm-up a starting point of its own, equal "
            f"for its {groups.shape[1]} consecutive chains, such as np.repeat(points, {groups.shape[1]}, axis=0); use "
            'that, init="auto" or init="prior".'
        )


def _draws_bytes(settings: RunSettings, density: SampledDensity) -> int:
    """Return the bytes of the draws of a run: theta and the statistics of each draw, and the starting points."""
    noise, groups = density.noise, density.scales
    statistics = 4 + (0 if noise is None else len(noise.initial)) + (0 if groups is None else len(groups.names))
    of_draw = density.dim * density.dtype.itemsize + statistics * np.dtype(np.float64).itemsize
    return settings.chains * (settings.draws * of_draw + density.dim * density.dtype.itemsize)


def resolve_seed(seed: int | None) -> int:
    """Return the given seed, or a random one in 0..2^63 - 1 if it is None."""
    return secrets.randbits(63) if seed is None else seed


def _resolve_variance_every(settings: RunSettings, kernel: Kernel, density: SampledDensity) -> int | None:
    """Return the number of steps from one draw of the noise variances to the next; None if none is sampled."""
    noise = density.noise
    if noise is None:
        if settings.variance_every != "auto":
            raise ValueError(
                f'variance_every must be "auto" where no noise variance is sampled; got {settings.variance_every} and '
                f"{density.facts.likelihood!r}."
            )
        return None
    if isinstance(settings.variance_every, str):
        return density.variance_every(kernel)
    return settings.variance_every


def _notes(kernel: Kernel, schedule: Warmup, density: SampledDensity) -> list[Note]:
    """Return the notes on kernel, warm-up and prior that are known before the run."""
    notes = [Note("prior of noise", caution) for caution in density.cautions]
    if kernel.adapts and schedule.step_size is None and not schedule.adapts:
        text = (
            f"no phase of the warm-up adapts for {WINDOW} steps ({TARGET_WINDOW} with a target) or more, so the "
            f"step size stays at its first value; "
            f"warm up longer or give one, such as {type(kernel).__name__}(0.1)."
        )
        notes.append(Note("step size", text))
    if kernel.adapt_always:
        text = (
            "the step size adapts while sampling, so the chain is not exactly invariant; use it to reproduce the "
            'paper, and adapt="warmup" for inference.'
        )
        notes.append(Note("step size", text))
    return notes


def _resolve_kernel(settings: RunSettings, density: SampledDensity) -> tuple[Kernel, str]:
    """Return the kernel, and why it was chosen."""
    only_for = settings.warmup.only_for if isinstance(settings.warmup, Warmup) else None
    if settings.kernel == "auto" and only_for is not None:
        return KERNELS[only_for](), "the warm-up is a schedule for it"
    device = "cpu" if settings.device == "auto" else settings.device
    return run_kernel(settings.kernel, density.facts, device, keep=settings.keep_on_device)


def _resolve_warmup(warmup: Any, kernel: Kernel, density: SampledDensity) -> Warmup:
    """Return the warm-up schedule that the setting means for a kernel."""
    if warmup is None:
        if kernel.adapts:
            raise ValueError(
                f"warmup=None leaves nobody to find a step size; give one, such as {type(kernel).__name__}(0.1), or a "
                "warm-up."
            )
        return Warmup(())
    if isinstance(warmup, Warmup):
        if warmup.only_for not in (None, kernel.name):
            raise ValueError(f"warmup is a schedule for {warmup.only_for} only; got the kernel {kernel}.")
        if kernel.default_step_size is None and (warmup.adapts or any(phase.accept_all for phase in warmup.phases)):
            raise ValueError(
                f'warmup adapts a step size or takes every move, which {kernel} cannot; use warmup="auto" or a number.'
            )
        return warmup
    if warmup == "auto":
        if kernel.is_independent and density.noise is not None:
            return Warmup((Phase(SETTLE_STEPS),))  # all chains start at one variance and forget it within these steps
        is_deep = kernel.metric == "curvature" and is_deep_and_narrow(density.facts)
        return Warmup.default(kernel, at_most=DEEP_ADAPTIVE_STEPS + SETTLE_STEPS if is_deep else None)
    return Warmup.default(kernel, warmup)
