"""`sample` and `sample_many`: prepare, execute, and return the draws."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from patrac_native.draws.draws import Draws
from patrac_native.model.posterior import Posterior
from patrac_native.sampling.execution import Report, execute
from patrac_native.sampling.preparation import PreparedRun, prepare_run, resolve_seed
from patrac_native.sampling.results import draws_of
from patrac_native.sampling.settings import ManyRunSettings, RunSettings, with_settings


@with_settings(RunSettings)
def sample(post: Posterior, settings: RunSettings) -> tuple[Draws, list[str]]:
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
        Where to run. "cuda": one block of GPU threads for each chain, all chains in one launch, or the rows of few
        chains over all of the GPU; PCN, PCNL and MGrad, fixed variances. "auto" is a rule: the GPU where the inputs are
        there and it runs the kernel and the likelihood, else the CPU. `draws.settings` records "device" and
        "device_reason"; `patrac bench` times both. The two differ by rounding.
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
    results, notes = run_chains([prepare_run(post, settings)])
    return results[0], notes


@with_settings(ManyRunSettings)
def sample_many(posts: Sequence[Posterior], settings: ManyRunSettings) -> tuple[list[Draws], list[str]]:
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
    first = resolve_seed(settings.seed)
    return run_chains(
        [prepare_run(post, replace(settings, seed=(first + index) % 2**64)) for index, post in enumerate(posts)]
    )


def run_chains(runs: Sequence[PreparedRun]) -> tuple[list[Draws], list[str]]:
    """Execute prepared runs together.

    Returns
    -------
    draws : list of Draws
        One for each run, up to the first that was interrupted.
    notes : list of str
        What the user is to be told, in the order of the runs.
    """
    started = time.perf_counter()
    with _ProgressBar(sum(run.steps for run in runs), runs[0].settings.progress) as report:
        execution = execute(runs, report)
    seconds = time.perf_counter() - started
    notes = [note for run in runs for note in run.notes]
    all_draws = []
    for run, result in zip(runs, execution.results, strict=False):
        draws, remarks = draws_of(run, execution.choice, result, seconds)
        all_draws.append(draws)
        notes += remarks
    return all_draws, notes


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
