"""`sample`: checks the arguments, runs the chains natively and returns the draws."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from patrac_native.draws.draws import Draws
from patrac_native.model.kernels import Kernel
from patrac_native.model.posterior import Posterior
from patrac_native.sampling.device_timing import settle_device
from patrac_native.sampling.execution import Report, execute
from patrac_native.sampling.prepared_run import PreparedRun, prepare_run, resolve_seed
from patrac_native.sampling.warmup import Warmup


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
    keep_on_device: bool = False,
    progress: bool | None = None,
) -> Draws:
    """Run Markov chains on a posterior.

    Every step of every chain is a function of (seed, chain, step, state): the draws do not depend on `threads`, and
    `thin=10, draws=100` gives every tenth state of `thin=1, draws=1000`. Ctrl-C ends the run at the next step; the
    draws that all chains have by then are returned with a warning; while `device="auto"` times its first steps there
    are none, and KeyboardInterrupt is raised.

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
        Where to run. "cuda": one block of GPU threads for each chain, all chains in one launch, or the rows of few
        chains over all of the GPU; PCN, PCNL and MGrad, fixed variances. "auto" is whichever of the two is faster,
        timed on the run's own first steps; the GPU where the inputs are there; or the CPU where the run is short, needs
        it, or has no GPU beside it: `draws.settings` has "device" and "device_reason". The two differ by rounding, so
        name one for a run that is to be repeated to the bit.
    keep_on_device : bool
        Whether theta stays on the device, where `draws.device_theta` hands it to other libraries (`DeviceArray`); the
        first use of `draws.theta` copies it to the host. Not for the CPU.
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
    run = prepare_run(
        post,
        kernel,
        chains=chains,
        draws=draws,
        thin=thin,
        warmup=warmup,
        init=init,
        seed=seed,
        threads=threads,
        device=device,
        keep_on_device=keep_on_device,
    )
    [draws_of_run] = _carry_out([run], progress)
    return draws_of_run


def sample_many(
    posts: Sequence[Posterior],
    kernel: str | Kernel = "auto",
    *,
    chains: int = 1,
    draws: int = 1000,
    thin: int = 1,
    warmup: str | int | Warmup | None = "auto",
    init: str = "auto",
    seed: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    keep_on_device: bool = False,
    progress: bool | None = None,
) -> list[Draws]:
    """Run chains on several posteriors, such as the replicates of a study: on a GPU all of them in one launch.

    On a device the posteriors must be alike: the same network shape, architecture, likelihood, number of rows and
    dtype. Their data, trained networks and priors are their own. All are at the same step at any time, so a warm-up
    that ends by itself ends where the chains of each posterior agree. On the CPU they run one after the other.

    Parameters
    ----------
    posts : sequence of Posterior
        At least one.
    kernel, draws, thin, warmup, threads, device, keep_on_device, progress
        As in `sample`.
    chains : int
        On each posterior.
    init : "auto", "map" or "prior"
        As in `sample`.
    seed : int, optional
        Of the first posterior; the next ones take seed + 1, seed + 2 ... modulo 2^64.

    Returns
    -------
    list of Draws
        One for each posterior, on the CPU up to the one that an interrupt met; `settings["seconds"]` is the time of the
        whole run.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; ValueError also for posteriors that are not alike, naming the first that differs.
    """
    posts = list(posts)
    if not posts:
        raise ValueError("posts must hold at least one Posterior; got none.")
    if not isinstance(init, str):
        raise TypeError(f'init must be "auto", "map" or "prior"; got {type(init).__name__}.')
    first_seed = resolve_seed(seed)
    runs = []
    for index, post in enumerate(posts):  # in a loop of this frame, which the warnings of prepare_run() count
        run = prepare_run(
            post,
            kernel,
            chains=chains,
            draws=draws,
            thin=thin,
            warmup=warmup,
            init=init,
            seed=(first_seed + index) % 2**64,
            threads=threads,
            device=device,
            keep_on_device=keep_on_device,
        )
        runs.append(run)
    return _carry_out(runs, progress)


def _carry_out(runs: Sequence[PreparedRun], progress: bool | None) -> list[Draws]:
    """Run all on the device that serves them; their draws, up to the first that was interrupted."""
    runs, model = settle_device(runs)
    started = time.perf_counter()
    with _ProgressBar(sum(run.steps for run in runs), progress) as report:
        results = execute(runs, report, model=model)
    seconds = time.perf_counter() - started
    all_draws = []  # in a loop of this frame, which the warnings of draws_from() count
    for run, result in zip(runs, results, strict=False):
        all_draws.append(run.draws_from(result, seconds))
    return all_draws


class _ProgressBar:
    """A tqdm bar that the compiled run reports to about twenty times a second; None where no bar is wanted."""

    def __init__(self, total: int, progress: bool | None) -> None:
        self._wanted = sys.stderr.isatty() if progress is None else bool(progress)
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> Report | None:
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
