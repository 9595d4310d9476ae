"""`sample`: checks the arguments, runs the chains natively and returns the draws."""

from __future__ import annotations

import math
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import _core
from patrac_native.choice import check_kernel, choose_kernel
from patrac_native.device import choose_device
from patrac_native.draws import PER_DRAW, Draws
from patrac_native.kernels import PCNL, Exact, Kernel, MGrad
from patrac_native.likelihoods import Gaussian
from patrac_native.posterior import Posterior
from patrac_native.threads import thread_count
from patrac_native.validation import as_real_array, cast_checked, check_count, check_finite, check_seed
from patrac_native.warmup import SETTLE_STEPS, TARGET_WINDOW, WINDOW, Phase, Warmup, default_warmup

# The paper keeps adapting to these acceptance rates while sampling (Appendix B).
ALWAYS_BAND = (0.4, 0.9)
# How far chains start from the trained values, 1 being a draw from the prior.
DISPERSION = 0.5
# Of all chains together.
MOST_STEPS = 2**62


def sample(
    post: Posterior,
    kernel: str | Kernel = "auto",
    *,
    chains: int = 4,
    draws: int = 1000,
    thin: int = 1,
    warmup: str | int | Warmup | None = "auto",
    init: str | npt.ArrayLike = "auto",
    seed: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Draws:
    """Run Markov chains on a posterior.

    Every step of every chain is a function of (seed, chain, step, state): the draws do not depend on `threads`, and
    `thin=10, draws=100` gives every tenth state of `thin=1, draws=1000`. Ctrl-C ends the run at the next step; the
    draws that all chains have by then are returned with a warning.

    Parameters
    ----------
    post : Posterior
        What to sample.
    kernel : "auto" or Kernel
        `PCN(beta)`, `PCNL(delta)`, `MGrad(delta)`, `EllipticalSlice()` or `Exact()`; "auto" takes the fastest exact one
        for the posterior, which `post.describe()` names: `Exact()` where it serves, else `MGrad(persistence=0.9)`, with
        `collapse=True` under a Gaussian likelihood.
    chains : int
        At least 1.
    draws : int
        Kept states of each chain, at least 1.
    thin : int
        Steps for each kept state, at least 1.
    warmup : "auto", int, Warmup or None
        "auto" is `default_warmup(kernel)`, which ends by itself once the chains agree (so its length, and with it every
        draw, depends on the number of chains); a number is that many steps; `paper_warmup()` is the paper's; None runs
        none, with the kernel's own step size.
    init : "auto", "map", "prior" or array_like of shape (chains, K)
        Starting points. "auto": the trained values for the first chain and sqrt(3/4) of them plus half a draw from the
        prior for the others, so that chains start further apart than the posterior is wide; for Sep, whose trained
        values are zeros, draws from the prior. "map": the trained values. "prior": draws from the prior. Or given.
    seed : int, optional
        0 <= seed < 2^64. None draws one; either is recorded in `draws.settings`.
    threads : int, optional
        Native threads; default all processors of this process (a quota of processor time is not seen: give the number
        where there is one). Each chain takes one. With k times as many threads as chains, k share the rows of a step,
        if there are enough rows for it to pay.
    device : {"auto", "cpu", "cuda"}
        Where to run. "cuda": one block of GPU threads for each chain, all chains in one launch; PCN, PCNL and MGrad,
        fixed variances. "auto" is the CPU. `draws.settings["device_reason"]` says why.
    progress : bool, optional
        Whether to show a bar with acceptance rate and steps per second; by default only where stderr is a terminal.

    Returns
    -------
    Draws

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit, naming the argument.
    RuntimeError
        For device="cuda" where it cannot be used: built without CUDA, no driver, no device.

    Warns
    -----
    UserWarning
        If the run was interrupted, the warm-up ended at its longest with the chains still moving, proposals were not
        finite, or the step size adapts while sampling.
    """
    if not isinstance(post, Posterior):
        raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
    device, device_reason = choose_device(device, post, kernel if isinstance(kernel, Kernel) else None)
    kernel, reason = _resolve_kernel(kernel, warmup, post, device)
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
            stacklevel=2,
        )
    seed = _resolve_seed(seed)
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
            stacklevel=2,
        )

    config = _core.RunConfig(
        kernel=kernel.name,
        collapse=kernel.collapse,
        persistence=kernel.persistence,
        variance=_core_variance(post),
        step_size=step_size,
        # Far above every prior variance mGrad redraws all from the prior, and a larger delta changes nothing.
        step_size_max=min(kernel.step_size_max, 1e3 * float(post.prior_variance.max()) + step_size),
        warmup=[_core_phase(phase) for phase in schedule.phases],
        sampling=_core_phase(Phase(0, ALWAYS_BAND if kernel.adapt_always else None)),
        draws=draws,
        thin=thin,
        seed=seed,
        threads=thread_count(threads),
    )
    fit = post.fit_quality
    started = time.perf_counter()
    with _ProgressBar(chains * (schedule.steps + draws * thin), progress) as report:
        result = _run(post, kernel, device, config, start, report)
    seconds = time.perf_counter() - started

    kept = int(result["draws_done"].min())
    if not result["completed"]:
        warnings.warn(
            f"interrupted: {kept} of {draws} draws of each chain are returned"
            + (" (the warm-up was not over)." if kept == 0 and schedule.phases else "."),
            stacklevel=2,
        )
    nonfinite = result["nonfinite"] + result["warmup_nonfinite"]
    if nonfinite.any():
        warnings.warn(
            f"{int(nonfinite.sum())} proposals had a log-likelihood or gradient that is not finite and were rejected "
            f"(by chain: {nonfinite.tolist()}; {int(result['warmup_nonfinite'].sum())} of them in warm-up, where a few "
            'are harmless); if there are many, scale X and y or use dtype="float64".',
            stacklevel=2,
        )
    stable = _stability(result["warmup_stable"])
    if stable is False:
        warnings.warn(
            f"the warm-up ended after {int(result['warmup_steps'].sum())} steps with step size or log-likelihood still "
            "moving, or differing between chains; give more steps, such as warmup=200_000, and look at the verdict of "
            "the summary.",
            stacklevel=2,
        )
    theta = result["theta"][:, :kept]
    stats = {name: result[name][:, :kept] for name in PER_DRAW if name in result}
    for name in ("warmup_acceptance_rate", "warmup_step_size", "nonfinite", "warmup_nonfinite"):
        stats[name] = result[name]
    settings = {
        "kernel": kernel.to_dict(),
        "kernel_reason": reason,
        "warmup": schedule.to_dict(),
        "warmup_steps": int(result["warmup_steps"].sum()),
        "warmup_stable": stable,
        "seed": seed,
        "thin": thin,
        "draws_asked": draws,
        "init": init if isinstance(init, str) else "given",
        "seconds": seconds,
        "completed": bool(result["completed"]),
        "device": device,
        "device_reason": device_reason,
        "fit": fit.to_dict(),
    }
    return Draws(theta, stats, post.network, post.likelihood, settings)


def _run(
    post: Posterior,
    kernel: Kernel,
    device: str,
    config: _core.RunConfig,
    start: npt.NDArray[Any],
    report: Callable[[int, int, float], None] | None,
) -> dict[str, Any]:
    """Run the chains: on the CPU on the sufficient statistics where l is quadratic, else on the data."""
    if device != "cpu":
        return dict(post.device_model(device).sample(config, start, post.prior_variance, report))
    form = post.quadratic
    if form is None:
        result: dict[str, Any] = post.core_model.sample(config, start, post.prior_variance, report)
        return result
    run: Any = _core.sample_quadratic32 if post.dtype == np.float32 else _core.sample_quadratic64
    common = {
        "constant": form.constant,
        "terms": post.gaussian_terms,
        "variance": post.starting_variance,
        "prior_variance": post.prior_variance,
        "config": config,
        "progress": report,
        "level": post.level,
    }
    if isinstance(kernel, MGrad):  # a rotation would change it
        plain = form.plain
        return dict(run(slope=plain.slope, matrix=plain.hessian, to_theta=np.empty((0, 0)), init=start, **common))
    return dict(
        run(
            slope=form.slope,
            matrix=form.curvature,
            to_theta=np.ascontiguousarray(form.to_theta),
            init=form.whitened(start),
            **common,
        )
    )


def _stability(judged: npt.NDArray[np.int64]) -> bool | None:
    """Whether the phases that may end early ended with stable chains; None where there was none."""
    known = judged[judged >= 0]
    return bool(known.all()) if len(known) else None


def _core_variance(post: Posterior) -> _core.SampledVariance | None:
    """Prior and start of a sampled noise variance."""
    likelihood = post.likelihood
    if not (isinstance(likelihood, Gaussian) and likelihood.is_sampled):
        return None
    assert likelihood.a is not None and likelihood.b is not None
    return _core.SampledVariance(shape=likelihood.a, rate=likelihood.b, initial=post.starting_variance)


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


def _resolve_seed(seed: int | None) -> int:
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


class _ProgressBar:
    """A tqdm bar that the compiled run reports to about twenty times a second; None where no bar is wanted."""

    def __init__(self, total: int, progress: bool | None) -> None:
        self._wanted = sys.stderr.isatty() if progress is None else bool(progress)
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> Callable[[int, int, float], None] | None:
        if not self._wanted:
            return None
        from tqdm.auto import tqdm

        self._bar = tqdm(total=self._total, unit="step", unit_scale=True, desc="sampling", mininterval=0.2)
        return self._report

    def _report(self, steps_done: int, steps_total: int, acceptance_rate: float) -> None:
        self._bar.total = steps_total  # falls when the warm-up ends early
        self._bar.set_postfix(acceptance=f"{acceptance_rate:.2f}", refresh=False)
        self._bar.update(steps_done - self._bar.n)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._bar is not None:
            self._bar.close()
