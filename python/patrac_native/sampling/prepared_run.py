"""A run of chains: its arguments checked and resolved, and its draws made of what the core returns."""

from __future__ import annotations

import math
import secrets
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import PER_DRAW, Draws
from patrac_native.engine import _core
from patrac_native.engine.device import choose_device
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.threads import thread_count
from patrac_native.model.choice import check_kernel, choose_kernel
from patrac_native.model.fit_quality import FitQuality
from patrac_native.model.kernels import PCNL, Exact, Kernel
from patrac_native.model.posterior import Posterior
from patrac_native.sampling.warmup import SETTLE_STEPS, TARGET_WINDOW, WINDOW, Phase, Warmup, default_warmup
from patrac_native.validation.checks import as_real_array, cast_checked, check_count, check_finite, check_seed

# The paper keeps adapting to these acceptance rates while sampling (Appendix B).
ALWAYS_BAND = (0.4, 0.9)
# How far chains start from the trained values, 1 being a draw from the prior.
DISPERSION = 0.5
# Of all chains together.
MOST_STEPS = 2**62


@dataclass(frozen=True)
class PreparedRun:
    """What a run is made of; see `patrac_native.sample`."""

    post: Posterior
    kernel: Kernel
    kernel_reason: str
    schedule: Warmup
    step_size: float
    device: str
    device_reason: str
    rival: str | None  # a device that may be faster, see `settle_device`
    keep_on_device: bool
    start: npt.NDArray[Any]
    seed: int
    draws: int
    thin: int
    threads: int
    init: str
    fit: FitQuality

    @property
    def steps(self) -> int:
        """Of all chains, if no phase ends early."""
        return len(self.start) * self.steps_of_chain

    @property
    def steps_of_chain(self) -> int:
        """Of each chain, if no phase ends early."""
        return self.schedule.steps + self.draws * self.thin

    @property
    def config(self) -> _core.RunConfig:
        """The run as the core takes it."""
        kernel, post = self.kernel, self.post
        return _core.RunConfig(
            kernel=kernel.name,
            collapse=kernel.collapse,
            persistence=kernel.persistence,
            variance=_core_variance(post),
            step_size=self.step_size,
            # Far above every prior variance mGrad redraws all from the prior, and a larger delta changes nothing.
            step_size_max=min(kernel.step_size_max, 1e3 * float(post.prior_variance.max()) + self.step_size),
            warmup=[_core_phase(phase) for phase in self.schedule.phases],
            sampling=_core_phase(Phase(0, ALWAYS_BAND if kernel.adapt_always else None)),
            draws=self.draws,
            thin=self.thin,
            seed=self.seed,
            threads=self.threads,
        )

    def trial(self, steps: int) -> PreparedRun:
        """About the first `steps` steps of each chain, not more, for timing: no warm-up, the run's thinning and draws.

        Where more steps are asked for than the draws take, draws are further apart.
        """
        draws = min(self.draws, max(1, steps // self.thin))
        return replace(self, schedule=Warmup(()), draws=draws, thin=steps // draws, keep_on_device=False)

    def draws_from(self, result: dict[str, Any], seconds: float) -> Draws:
        """Make the draws of the core's result; warn of what went wrong, for the caller of the caller's caller."""
        kept = int(result["draws_done"].min())
        if not result["completed"]:
            warnings.warn(
                f"interrupted: {kept} of {self.draws} draws of each chain are returned"
                + (" (the warm-up was not over)." if kept == 0 and self.schedule.phases else "."),
                stacklevel=4,
            )
        nonfinite = result["nonfinite"] + result["warmup_nonfinite"]
        if nonfinite.any():
            warnings.warn(
                f"{int(nonfinite.sum())} proposals had a log-likelihood or gradient that is not finite and were "
                f"rejected (by chain: {nonfinite.tolist()}; {int(result['warmup_nonfinite'].sum())} of them in "
                'warm-up, where a few are harmless); if there are many, scale X and y or use dtype="float64".',
                stacklevel=4,
            )
        stable = _stability(result["warmup_stable"])
        if stable is False:
            warnings.warn(
                f"the warm-up ended after {int(result['warmup_steps'].sum())} steps with step size or log-likelihood "
                "still moving, or differing between chains; give more steps, such as warmup=200_000, and look at the "
                "verdict of the summary.",
                stacklevel=4,
            )
        whole = result["theta"]
        theta = whole.part(0, len(self.start), kept) if isinstance(whole, DeviceArray) else whole[:, :kept]
        stats = {name: result[name][:, :kept] for name in PER_DRAW if name in result}
        for name in ("warmup_acceptance_rate", "warmup_step_size", "nonfinite", "warmup_nonfinite"):
            stats[name] = result[name]
        settings = {
            "kernel": self.kernel.to_dict(),
            "kernel_reason": self.kernel_reason,
            "warmup": self.schedule.to_dict(),
            "warmup_steps": int(result["warmup_steps"].sum()),
            "warmup_stable": stable,
            "seed": self.seed,
            "thin": self.thin,
            "draws_asked": self.draws,
            "init": self.init,
            "seconds": seconds,
            "completed": bool(result["completed"]),
            "device": self.device,
            "device_reason": self.device_reason,
            "fit": self.fit.to_dict(),
        }
        return Draws(theta, stats, self.post.network, self.post.likelihood, settings)


def prepare_run(
    post: Posterior,
    kernel: str | Kernel,
    *,
    chains: int,
    draws: int,
    thin: int,
    warmup: str | int | Warmup | None,
    init: str | npt.ArrayLike,
    seed: int | None,
    threads: int | None,
    device: str,
    keep_on_device: bool,
) -> PreparedRun:
    """Check and resolve the arguments of `patrac_native.sample`, with its errors."""
    if not isinstance(post, Posterior):
        raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
    kernel, reason = _resolve_kernel(kernel, warmup, post, "cpu" if device == "auto" else device)
    choice = choose_device(device, post, kernel)
    if keep_on_device:
        choice = choice.to_keep()
    if choice.device == "cpu" and choice.rival is None and post.inputs.on_device is not None:
        post.core_model  # noqa: B018 - the run needs the inputs on the host, so nothing is asked of the device
    schedule = _resolve_warmup(warmup, kernel, post)
    chains = check_count(chains, "chains")
    draws = check_count(draws, "draws")
    thin = check_count(thin, "thin")
    if chains * (schedule.steps + draws * thin) >= MOST_STEPS:
        raise ValueError(
            f"chains, warmup, draws and thin ask for {chains * (schedule.steps + draws * thin)} steps in all; "
            "ask for fewer than 2^62."
        )
    if kernel.adapts and schedule.step_size is None and not schedule.adapts:
        warnings.warn(
            f"no phase of the warm-up adapts for {WINDOW} steps ({TARGET_WINDOW} with a target) or more, so the "
            f"step size stays at its first value; "
            f"warm up longer or give one, such as {type(kernel).__name__}(0.1).",
            stacklevel=3,
        )
    seed = resolve_seed(seed)
    start = _starting_points(post, init, chains, seed)
    step_size = schedule.step_size if kernel.adapts and schedule.step_size else kernel.starting_step_size
    if step_size > kernel.step_size_max:
        raise ValueError(
            f"step_size of the warm-up must be in (0, {kernel.step_size_max:g}] for {type(kernel).__name__}; "
            f"got {step_size:g}."
        )
    if kernel.adapt_always:
        warnings.warn(
            "the step size adapts while sampling, so the chain is not exactly invariant; use it to reproduce the "
            'paper, and adapt="warmup" for inference.',
            stacklevel=3,
        )

    return PreparedRun(
        post=post,
        kernel=kernel,
        kernel_reason=reason,
        schedule=schedule,
        step_size=step_size,
        device=choice.device,
        device_reason=choice.reason,
        rival=choice.rival,
        keep_on_device=keep_on_device,
        start=start,
        seed=seed,
        draws=draws,
        thin=thin,
        threads=thread_count(threads),
        init=init if isinstance(init, str) else "given",
        fit=post.fit_quality,
    )


def _stability(judged: npt.NDArray[np.int64]) -> bool | None:
    """Whether the phases that may end early ended with stable chains; None where there was none."""
    known = judged[judged >= 0]
    return bool(known.all()) if len(known) else None


def _core_variance(post: Posterior) -> _core.SampledVariance | None:
    """Prior and start of a sampled noise variance."""
    if post.likelihood.variance_prior is None:
        return None
    shape, rate = post.likelihood.variance_prior
    return _core.SampledVariance(shape=shape, rate=rate, initial=post.starting_variance)


def _core_phase(phase: Phase) -> _core.Phase:
    """Phase of the compiled core."""
    low, high = phase.accept if phase.accept else (0.0, 1.0)
    return _core.Phase(
        steps=phase.steps,
        adapt=phase.accept is not None or phase.target is not None,
        accept_low=low,
        accept_high=high,
        accept_all=phase.accept_all,
        average=phase.average,
        target=phase.target or 0.0,
        first_look=phase.first_look or 0,
    )


def _resolve_kernel(
    kernel: str | Kernel, warmup: str | int | Warmup | None, post: Posterior, device: str
) -> tuple[Kernel, str]:
    """Return the kernel to run and why it was chosen."""
    if isinstance(kernel, Kernel):
        check_kernel(kernel, post)
        return kernel, "given"
    if isinstance(kernel, str) and kernel == "auto":
        if isinstance(warmup, Warmup) and warmup.only_for == PCNL.name:
            return PCNL(), "the warm-up is a schedule for it"
        return choose_kernel(post, device)
    hint = f" Call it: {kernel.__name__}()." if isinstance(kernel, type) else ""
    raise TypeError(
        f'kernel must be "auto", PCN(...), PCNL(...), MGrad(...), EllipticalSlice() or Exact(); got {kernel!r}.{hint}'
    )


_WARMUPS = '"auto", a number of steps, a Warmup or None'


def _resolve_warmup(warmup: str | int | Warmup | None, kernel: Kernel, post: Posterior) -> Warmup:
    """Return the schedule to run."""
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
    if isinstance(warmup, str):
        if warmup != "auto":
            raise ValueError(f"warmup must be {_WARMUPS}; got {warmup!r}.")
        if isinstance(kernel, Exact) and _core_variance(post) is not None:
            return Warmup((Phase(SETTLE_STEPS),))  # the variance starts at one point and is soon forgotten
        return default_warmup(kernel)
    if isinstance(warmup, Phase):
        raise TypeError(f"warmup must be {_WARMUPS}; got a Phase. Write Warmup((Phase(...),)).")
    return default_warmup(kernel, check_count(warmup, "warmup"))


def resolve_seed(seed: int | None) -> int:
    """Return the given seed or a new one."""
    if seed is None:
        return secrets.randbits(63)
    return check_seed(seed)


def _starting_points(post: Posterior, init: str | npt.ArrayLike, chains: int, seed: int) -> npt.NDArray[Any]:
    """Return the first states, (chains, K) of the posterior's dtype."""
    if isinstance(init, str):
        if init not in ("auto", "map", "prior"):
            raise ValueError(f'init must be "auto", "map", "prior" or an array of shape (chains, K); got {init!r}.')
        trained = np.tile(post.theta_map.astype(post.dtype), (chains, 1))
        if init == "map" or (init == "auto" and chains == 1 and not post.network.separate):
            return trained
        prior = np.concatenate(
            [
                post.network.sample_prior(1, seed=seed, chain=chain, purpose=_core.Purpose.init)
                for chain in range(chains)
            ]
        )
        if init == "prior" or post.network.separate:
            return prior
        # A move of pCN with beta = 1/2.
        trained[1:] = (math.sqrt(1 - DISPERSION**2) * trained[1:] + DISPERSION * prior[1:]).astype(post.dtype)
        return trained
    values = as_real_array(init, "init")
    if values.shape != (chains, post.dim):
        raise ValueError(f"init must have shape (chains, K) = ({chains}, {post.dim}); got {values.shape}.")
    check_finite(values, "init", "Rows count chains, columns the entries of theta.")
    return cast_checked(values, post.dtype, "init")
