"""`sample`, `start`, `resume` and `sample_many`: prepare runs, execute them and return their draws."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, ParamSpec, Protocol, cast, overload

from patrac_native.draws.draws import Draws
from patrac_native.draws.run_folder import RunFolder
from patrac_native.draws.stored_states import read_checkpoint
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.files.archive import rebuilding
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.target import Target
from patrac_native.sampling.execution import execute
from patrac_native.sampling.handle import Run
from patrac_native.sampling.preparation import PreparedRun, prepare_run, resolve_seed
from patrac_native.sampling.progress import ProgressBars, Watch
from patrac_native.sampling.results import build_draws
from patrac_native.sampling.settings import ManyRunSettings, OneRunSettings, RunSettings, with_settings
from patrac_native.sampling.stored_run import (
    KeptInFolder,
    check_exact,
    check_resolved,
    create_store,
    stored_posterior,
    stored_settings,
)
from patrac_native.sampling.stretches import Kept, KeptInMemory, Outcome, run_stretches
from patrac_native.validation.checks import check_count
from patrac_native.validation.notes import Note

P = ParamSpec("P")


class _Sample(Protocol[P]):
    """The type of `sample`, whose result depends on what is sampled."""

    @overload
    def __call__(self, post: Posterior, *args: P.args, **keywords: P.kwargs) -> Draws: ...
    @overload
    def __call__(self, post: Target, *args: P.args, **keywords: P.kwargs) -> TargetDraws: ...


def _by_density(settings: Callable[P, RunSettings]) -> Callable[[Callable[..., Any]], _Sample[P]]:
    """Return a decorator that leaves `sample` as it is, but for its type."""
    return lambda run: cast(_Sample[P], run)


# The folder of a run, the number of draws in a chunk of its arrays, and their type.
Place = tuple[RunFolder, int, str]


@_by_density(OneRunSettings)
@with_settings(OneRunSettings)
def sample(post: Posterior | Target, settings: OneRunSettings) -> Generator[Note, None, Draws | TargetDraws]:
    """Run Markov chains on a posterior.

    Every step of every chain is a function of (seed, chain, step, state): the draws do not depend on `threads`, and
    `thin=10, draws=100` gives every tenth state of `thin=1, draws=1000`. Ctrl-C ends the run at the next step; the
    draws that all chains have by then are returned with a warning.

    Parameters
    ----------
    post : Posterior or Target
        The posterior to sample; a `Target` is a log-likelihood that is given as a function.
    kernel : "auto" or Kernel
        `PCN(beta)`, `PCNL(delta)`, `MGrad(delta)`, `EllipticalSlice()` or `Exact()`. The default "auto" chooses the
        fastest exact kernel for the posterior, which `post.describe()` names: `Exact()` if the posterior supports it,
        else `MGrad(persistence=0.9)`, with `collapse=True` under a Gaussian likelihood with Bayesian output weights (on
        the CPU a heteroscedastic one too) and with `metric="inputs"` if the inputs vary along one principal axis much
        more than along the others. In networks of three or more hidden layers of at most 32 nodes, under Gaussian noise
        that is the same for all rows, it is `MGrad(collapse=True, metric="curvature", persistence=0.97)` on the CPU.
    chains : int
        Number of chains, at least 1; default 4.
    draws : int
        Number of draws (kept states) of each chain, at least 1; default 1000.
    thin : int
        Number of steps from one draw to the next, at least 1; default 1.
    scales_every : int
        Number of steps from one draw of the prior's scales to the next, at least 1; default 10. Used if the prior
        samples them. A draw costs about as much as a step of a small network and, with `collapse=True`, another
        evaluation.
    warmup : "auto", int, Warmup or None
        The default "auto" is `Warmup.default(kernel)`, which ends when the chains agree (so its length, and with it
        every draw, depends on the number of chains); with `at_most=16_500` in networks of three or more
        hidden layers of at most 32 nodes with `metric="curvature"`. An int is a number of steps.
        `paper_warmup()` is the paper's schedule. None runs no warm-up and keeps the kernel's own step size.
    init : "auto", "map", "prior" or array_like of shape (chains, K)
        Starting points. "map": the trained values. "prior": draws from the prior, sampled scales at their centres. The
        default "auto" starts the first chain at the trained values and each other chain at sqrt(3/4) times these plus
        half a draw from the prior, so that the starting points are further apart than the posterior is wide; for Sep,
        whose trained values are zeros, and for a Target, which has none, it is "prior". An array gives the starting
        points themselves, finite. After `Warmup.many_chains` the chains of a superchain share a point.
    seed : int, optional
        0 <= seed < 2^64. By default a random seed is drawn; `draws.settings` records the seed in either case.
    threads : int, optional
        Number of native threads, at least 1; by default the number of processors that this process may use. (A
        container's quota of processor time is not detected: give the number there.) Each chain runs on one thread.
        With k times as many threads as chains, k threads share the rows of a step if there are enough rows for that
        to be faster.
    device : {"auto", "cpu", "cuda"}
        The device that runs the chains. The default "auto" is a rule: the GPU if the inputs are on it, or
        `keep_on_device` is set, and it supports the kernel and the likelihood; else the CPU. On "cuda" each chain is
        run by one block of GPU threads, all chains in one launch; if there are few chains, the rows of each are spread
        over the whole GPU. "cuda" supports the kernels PCN, PCNL and MGrad, and priors with fixed
        scales. `draws.settings` records "device" and "device_reason"; `patrac bench` times both devices. Their draws
        differ by rounding.
    keep_on_device : bool
        Whether theta stays in the device's memory, where other libraries take it by DLPack, such as
        `torch.from_dlpack(draws)`; the first use of `draws.theta` copies it to the host. Default False; True needs a
        device other than the CPU.
    variance_every : "auto" or int
        Number of steps, at least 1, from one draw of sampled noise variances to the next; every number leaves the
        posterior invariant. The default "auto" follows from counts of operations: the smallest number with which the
        draws take at most 15% of the operations of the steps. `draws.settings` records it.
    until : callable, optional
        Function of the draws so far, a `Draws` or `TargetDraws` of all chains, such as
        `EnoughDraws(ess=400, rhat=1.01, at=X)`. It is called after every tenth of
        `draws`, rounded up, and at least 4, while the chains wait, and the run ends once it returns True; `draws` is
        then the maximum. A seed gives the same draws on every machine, because the function is called at fixed numbers
        of draws. By default the run has all draws. Only the CPU supports it.
    progress : bool, optional
        Whether to show how far the run is. Terminals and notebooks have a bar for the chains, with their stage,
        acceptance rate and steps per second, and `sample_many` one for each posterior on the CPU, or one for more than
        eight posteriors and on a device. Elsewhere, as in the log of a job, there are lines, at most one in ten
        seconds; by default only in runs of more than that, and with True one at the end of any run.
    store : path-like, optional
        A new folder in which the run is kept while it goes on (extra `store`): its draws as Zarr arrays of the groups
        of `Draws.to_datatree`, which xarray reads, and a checkpoint about every two seconds, from which `resume` goes
        on to the same bits after a kill. The memory of the run does not grow with its draws; of those that are returned
        the statistics are in memory, and theta is read at its first use. Of a posterior, on the CPU.
    store_data : bool
        Whether the store holds the data, so that `resume` needs no posterior; default True. Otherwise it holds a hash.
    store_dtype : {"float16", "float32"}, optional
        The type of theta in the store, by default the posterior's. The chains do not change, but the draws, also those
        that are returned, are their states rounded to this type: to 3 digits in float16, which holds numbers up to
        65,504. The log-likelihoods are those of the states.
    moments_at : array_like, shape (n, d), optional
        Inputs at which mean and variance of f are kept while the run goes on, over states of which most are no draws,
        in memory that does not grow with them: `pn.diagnostics.moments(draws.stats)`. Of Categorical, those of the
        class probabilities. Draws and their statistics do not change. Of a posterior, on the CPU.
    moments_every : int
        Number of steps from one such state to the next, a divisor of `thin`; default 1, all states of the chains. Each
        costs an evaluation of f at the n inputs and, where output weights are integrated out, a draw of these.

    Returns
    -------
    Draws or, of a Target, TargetDraws
        theta has shape (chains, draws, K); fewer draws if `until` ended the run or it was interrupted.

    Raises
    ------
    Exception
        Whatever the function of a Target or `until` raises; it ends the run.
    TypeError, ValueError
        If an argument is not as described or the posterior does not support it; the message names the argument.
    FileExistsError, OSError, ImportError
        If there is something at the path of the store, it cannot be written, or zarr and xarray are not installed.
    RuntimeError
        If device="cuda" cannot be used: the package was built without CUDA, or there is no driver or no GPU.

    Warns
    -----
    UserWarning
        If the run was interrupted, the warm-up reached its maximum length before the chains agreed, proposals were
        not finite, the step size adapts while sampling, the prior of a sampled noise variance rests on the rows of
        the posterior, or the sampled noise lies far below the trained network's residuals on rows that it has not seen.

    Examples
    --------
    A run that ends once f, at 20 inputs, has 400 effective draws and an R-hat of at most 1.01:

    >>> import numpy as np
    >>> import patrac_native as pn
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.sin(X) + np.random.default_rng(0).normal(scale=0.3, size=X.shape)
    >>> net = pn.train([1, 8, 1], X, y, likelihood=pn.Gaussian(0.09), seed=0)
    >>> post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior.fit(net, alpha=1.5), pn.Gaussian(0.09), X, y)
    >>> enough = pn.EnoughDraws(ess=400, rhat=1.01, at=X[::3])
    >>> draws = pn.sample(post, draws=2000, thin=30, until=enough, seed=0)
    >>> draws.n_draws < 2000  # a few hundred; how many depends on the machine's rounding in the training
    True
    """
    run, place = yield from _prepared(post, settings)
    draws, notes = _carry_out(run, place)
    yield from notes
    return draws


@with_settings(OneRunSettings)
def start(post: Posterior | Target, settings: OneRunSettings) -> Generator[Note, None, Run]:
    """Start a run of `sample` in the background, and return a handle of it.

    The draws are those of `sample`, to the bit, however often the run is paused or looked at. Arguments are checked
    before the function returns.

    Parameters
    ----------
    post, kernel, chains, draws, thin, scales_every, warmup, init, seed, threads, device, keep_on_device,
    variance_every, until, progress, store, store_data, store_dtype, moments_at, moments_every
        As for `sample`.

    Returns
    -------
    Run
        Its `progress` says how far the run is; `pause`, `resume`, `peek`, `stop`, `cancel` and `wait` control it. At
        the end of the `with` block of a handle, or of the interpreter, the run is stopped.

    Raises
    ------
    TypeError, ValueError, FileExistsError, OSError, ImportError, RuntimeError
        As `sample`; what only the run finds out, `Run.wait` raises.

    Warns
    -----
    UserWarning
        As `sample`; what only the run finds out, `Run.wait` warns of.

    Examples
    --------
    >>> import numpy as np
    >>> import patrac_native as pn
    >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
    >>> run = pn.start(post, chains=2, draws=50, warmup=100, seed=0)
    >>> run.wait().theta.shape
    (2, 50, 7)
    >>> run.progress.phase, run.progress.draws
    ('completed', 50)
    """
    run, place = yield from _prepared(post, settings)
    return Run(run, None if place is None else place[0], lambda handle: _carry_out(run, place, handle))


def _prepared(
    post: Posterior | Target, settings: OneRunSettings
) -> Generator[Note, None, tuple[PreparedRun, Place | None]]:
    """Prepare a run and make its folder, if it has one."""
    run = prepare_run(post, settings, is_stored=settings.store is not None)
    place = None if settings.store is None else create_store(run, settings)
    try:
        yield from run.notes
    except BaseException:  # of a caller whose filter makes errors of warnings
        if place is not None:
            place[0].remove_unused()
        raise
    return run, place


def _carry_out(run: PreparedRun, place: Place | None, handle: Run | None = None) -> Outcome:
    """Execute a prepared run: in one call of the core, or in stretches if it has a folder or a handle.

    `sample` does so in the caller's thread, because Python delivers Ctrl-C to the main thread alone.
    """
    if place is None:
        if run.moments_at is None and (handle is None or not handle.is_in_stretches):
            return _run_chains([run], None if handle is None else handle.watch)[0]
        return _run_in_stretches(run, KeptInMemory(run), handle)
    folder = place[0]
    with folder.locked():
        try:
            return _run_in_stretches(run, KeptInFolder(run, *place), handle)
        except BaseException:
            folder.remove_unused()
            raise


def _run_in_stretches(run: PreparedRun, kept: Kept, handle: Run | None) -> Outcome:
    """Execute a run in stretches, between which its handle may hold or end it."""
    with ProgressBars([run], None if handle is None else handle.watch, len(run.start) * kept.at.step) as bars:
        report = bars.reports(together=False)[0]
        return run_stretches(run, kept, report, None if handle is None else handle.border_of(kept))


@overload
def resume(
    store: str | os.PathLike[str],
    draws: int,
    *,
    post: Posterior | None = ...,
    threads: int | None = ...,
    until: Callable[[Draws], bool] | None = ...,
    exact: bool = ...,
    progress: bool | None = ...,
    wait: Literal[True] = ...,
) -> Draws: ...
@overload
def resume(
    store: str | os.PathLike[str],
    draws: int,
    *,
    post: Posterior | None = ...,
    threads: int | None = ...,
    until: Callable[[Draws], bool] | None = ...,
    exact: bool = ...,
    progress: bool | None = ...,
    wait: Literal[False],
) -> Run: ...
def resume(
    store: str | os.PathLike[str],
    draws: int,
    *,
    post: Posterior | None = None,
    threads: int | None = None,
    until: Callable[[Draws], bool] | None = None,
    exact: bool = True,
    progress: bool | None = None,
    wait: bool = True,
) -> Draws | Run:
    """Go on with a run that `sample(..., store=store)` began, whether it was completed, interrupted or killed.

    The draws are the same to the bit as those of one run without a break: 500 draws, resumed to 1,000, are the 1,000
    of one run, with any number of threads.

    Parameters
    ----------
    store : path-like
        The folder of the run.
    draws : int
        Number of draws of each chain in total, those that the store has included.
    post : Posterior, optional
        The posterior of the run; required if the store holds no data (`store_data=False`).
    threads, progress
        As for `sample`.
    until : callable, optional
        As for `sample`. The store does not hold it: with the same function and the same `draws`, the run ends where it
        would have ended without a break.
    exact : bool
        Whether the run must go on to the bits of a run without a break: with the instruction-set level and the version
        of the package with which it began; default True. False goes on with what there is.
    wait : bool
        Whether to wait for the end of the run; default True. False returns at once, as `start` does.

    Returns
    -------
    Draws, or Run if `wait` is False
        After `Run.cancel` of a resumed run the store stays with the draws that were confirmed, those since the resume
        included.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    FileExistsError
        If another run writes to the folder.
    TypeError, ValueError
        If the folder holds no run or is damaged, the store has more draws, `post` is another posterior or is missing,
        or `exact` is True and level or version are others.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import patrac_native as pn
    >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
    >>> store = tempfile.mkdtemp() + "/run.zarr"
    >>> draws = pn.sample(post, chains=2, draws=50, warmup=100, seed=0, store=store)
    >>> pn.resume(store, draws=80).theta.shape
    (2, 80, 7)
    """
    if post is not None and not isinstance(post, Posterior):
        raise TypeError(f"post must be the Posterior of the run, or None; got {type(post).__name__}.")
    total, folder = check_count(draws, "draws"), RunFolder(store)
    header, arrays = folder.given()
    with ExitStack() as locked:
        locked.enter_context(folder.locked())
        its_post = stored_posterior(header, arrays, post, folder.path)
        if exact:
            check_exact(header, its_post, folder.path)
        with rebuilding(folder.path):
            place: Place = folder, max(1, header["chunk"]), header["store_dtype"]
            settings = stored_settings(header, arrays, draws=total, threads=threads, until=until, progress=progress)
        at = read_checkpoint(folder, its_post.network, its_post.likelihood)
        if at is not None and total < at.draws:
            raise ValueError(f"draws is the total of each chain; {folder.path} has {at.draws} already, got {total}.")
        run = prepare_run(its_post, settings, is_stored=True)
        if exact:
            check_resolved(header, run, folder.path)
        for note in run.notes:
            note.give(stacklevel=2)
        kept, until_the_end = KeptInFolder(run, *place), locked.pop_all()

    def carry_out(handle: Run | None) -> Outcome:
        with until_the_end:
            return _run_in_stretches(run, kept, handle)

    if not wait:
        return Run(run, folder, carry_out, resumed=kept.at)
    found, notes = carry_out(None)
    for note in notes:
        note.give(stacklevel=2)
    return cast(Draws, found)


@with_settings(ManyRunSettings)
def sample_many(posts: Sequence[Posterior], settings: ManyRunSettings) -> Generator[Note, None, list[Draws]]:
    """Run chains on several posteriors, such as the replicates of a study; a GPU runs all of them in one launch.

    On a device the posteriors must have the same network shape, architecture, likelihood, number of rows and dtype;
    their data, trained networks and priors may differ. Sampled noise variances must be as many in each, with one shape
    a of their priors. All chains are at the same step at any time, so a warm-up that may end early ends when the chains
    of every posterior agree. On the CPU each posterior is sampled as `sample` would sample it, as many at a time as
    there are threads for their chains.

    Parameters
    ----------
    posts : sequence of Posterior
        At least one.
    kernel, draws, thin, scales_every, variance_every, warmup, threads, device, keep_on_device, progress
        As in `sample`.
    until : callable, optional
        As in `sample`, of the draws of each posterior; it may be called from several threads, one at a time.
    chains : int
        Number of chains for each posterior, at least 1; default 1.
    init : "auto", "map" or "prior"
        As in `sample`.
    seed : int, optional
        Seed of the first posterior, as in `sample`; the next ones use seed + 1, seed + 2, ... modulo 2^64.

    Returns
    -------
    list of Draws
        One for each posterior; if the run is interrupted on the CPU, the list ends with the last posterior whose
        chains had begun. `settings["seconds"]` is the wall-clock time of the whole call.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; also ValueError if there is no posterior, or if a named device is given posteriors that are not
        alike, naming the first that differs.
    """
    if not isinstance(posts, Iterable):
        raise TypeError(f"posts must be a sequence of Posterior, such as [post]; got {type(posts).__name__}.")
    posts = list(posts)
    if not posts:
        raise ValueError("posts must hold at least one Posterior; got none.")
    first = resolve_seed(settings.seed)
    runs = [prepare_run(post, replace(settings, seed=(first + index) % 2**64)) for index, post in enumerate(posts)]
    for run in runs:
        yield from run.notes
    outcomes = _run_chains(runs)
    for _, notes in outcomes:
        yield from notes
    return [cast(Draws, draws) for draws, _ in outcomes]


def _run_chains(runs: Sequence[PreparedRun], watch: Watch | None = None) -> list[Outcome]:
    """Execute prepared runs, each in one call of the core, and build their draws."""
    started = time.perf_counter()
    with ProgressBars(runs, watch) as bars:
        choice, results = execute(runs, bars)
    seconds = time.perf_counter() - started
    return [build_draws(run, choice, result, seconds) for run, result in zip(runs, results, strict=False)]
