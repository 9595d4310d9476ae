"""The replicates of a study: trains every network, then samples all architectures of all replicates in parallel."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass

from patrac_native.engine.threads import thread_count
from patrac_native.kernels import PCNL
from patrac_native.network.network import Network
from patrac_native.plots.progress import progress_bar, shows_progress
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import Prior, TraceClassPrior
from patrac_native.sampling.sampler import sample
from patrac_native.sampling.warmup import Warmup
from patrac_native.studies.baselines import Baseline, NetworkScores, run_laplace, score_network
from patrac_native.studies.experiment import (
    ARCHITECTURES,
    Outcome,
    Problem,
    Record,
    SamplingSettings,
    derived_seed,
    run_architecture,
)
from patrac_native.studies.pieces import Pieces, Trained
from patrac_native.studies.sampled_noise import Candidate, with_noise
from patrac_native.studies.scheduling import executor_of
from patrac_native.studies.tables import mean_sd, plural

# What the workers of this machine are called, by scheduler.
_WORKERS = {"threads": "thread", "processes": "worker"}


@dataclass(frozen=True)
class Study:
    """The results of a study.

    Attributes
    ----------
    first : list of Outcome
        Outcomes of all architectures for the first replicate, with their draws, for plots.
    first_problem, first_network : Problem, Network
        Data and trained network of the first replicate.
    networks : list of NetworkScores
        Scores of the trained network of each replicate.
    baselines : dict of str to list of Baseline
        For each label, the scores of all replicates; empty without baselines.
    records : dict of str to list of Record
        For each architecture's label, the records of all replicates.
    settings : SamplingSettings
    interrupted : bool
        Whether Ctrl-C ended the study; only complete replicates are kept.
    """

    first: list[Outcome]
    first_problem: Problem
    first_network: Network
    networks: list[NetworkScores]
    baselines: dict[str, list[Baseline]]
    records: dict[str, list[Record]]
    settings: SamplingSettings
    interrupted: bool

    @property
    def replicates(self) -> int:
        """Number of complete replicates."""
        return len(self.networks)


def run_replicates(
    problem_of: Callable[[int], Problem],
    train_network: Callable[[Problem, int], Network],
    settings: SamplingSettings,
    *,
    replicates: int,
    seed: int,
    threads: int | None = None,
    architectures: Sequence[Candidate] = ARCHITECTURES,
    laplace: bool = False,
    scheduler: str = "threads",
    pieces: Pieces | None = None,
) -> Study:
    """Run a study; chains of different architectures and replicates run side by side, each on one thread.

    Parameters
    ----------
    problem_of : callable
        Returns the data of a replicate for a seed.
    train_network : callable
        Returns the trained network for a problem and a seed. Both callables are pickled unless `scheduler` is
        "threads".
    settings : SamplingSettings
        Settings with threads=1.
    replicates : int
        Number of data sets, at least 1.
    seed : int
        Seed of the study, which determines its records except for times, for any scheduler and number of threads.
    threads : int, optional
        Number of threads or processes; by default the number of processors that this process may use.
    architectures : sequence of Architecture or SampledNoise
        By default those of the paper's tables.
    laplace : bool
        Whether to score Laplace approximations too; default False.
    scheduler : {"threads", "processes", "dask://host:port"}
        Where networks are trained and chains run; default "threads".
    pieces : Pieces, optional
        Finished pieces, which are not run again, and where new ones are kept.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If `replicates` is below 1, or the scheduler is not known.
    ImportError, OSError
        If a Dask cluster cannot be used.
    RuntimeError
        If a worker process died.
    KeyboardInterrupt
        If the study was interrupted before the first replicate was complete.

    Warns
    -----
    UserWarning
        If the study was interrupted later.
    """
    if replicates < 1:
        raise ValueError(f"--replicates must be at least 1; got {replicates}.")
    threads = min(thread_count(threads), replicates * len(architectures))
    problems = [problem_of(derived_seed(seed, replicate, 0)) for replicate in range(replicates)]
    labels = [architecture.label() for architecture in architectures]
    first: dict[int, Outcome] = {}
    records: dict[tuple[int, int], Record] = {}

    def take(replicate: int, index: int, run: Outcome | Record) -> None:
        # Only the draws of the first replicate are kept, so that memory does not grow with their number.
        if isinstance(run, Outcome):
            first[index] = run
            run = run.record
        records[replicate, index] = run

    with executor_of(scheduler, threads) as executor:
        # Networks are trained first, so that they do not slow the chains, whose times are reported.
        trained = _train_all(
            executor if scheduler != "threads" else None, problems, train_network, seed, settings, laplace, pieces
        )
        print(
            f"Trained {plural(replicates, 'network')}: {sum(t.scores.training_seconds for t in trained):.0f} s, "
            f"{mean_sd([t.scores.epochs for t in trained], 0)} epochs."
        )
        left = []
        for replicate in range(replicates):
            for index, label in enumerate(labels):
                kept = pieces.load_run(replicate, label) if pieces else None
                if kept is None:
                    left.append((replicate, index))
                else:
                    take(replicate, index, kept)
        if records:
            print(f"{len(records)} of {len(records) + len(left)} runs were finished before.")
        if left:
            prior = TraceClassPrior.fit(trained[0].network)
            seconds = _estimate_seconds(problems[0], trained[0].network, prior, architectures, settings)
            seconds *= len(left) / len(architectures)
            print(
                f"Sampling {plural(len(architectures), 'architecture')} on {plural(replicates, 'data set')}: about "
                + (
                    f"{_duration(seconds / threads)} on {plural(threads, _WORKERS[scheduler])}."
                    if scheduler in _WORKERS
                    else f"{_duration(seconds)} over the number of workers."
                ),
                flush=True,
            )
        jobs: dict[Future[Outcome | Record], tuple[int, int]] = {
            executor.submit(
                _run_piece,
                problems[replicate],
                trained[replicate].network,
                architectures[index],
                settings,
                derived_seed(seed, replicate, 2, index),
                replicate == 0,
            ): (replicate, index)
            for replicate, index in left
        }
        interrupted = False
        hidden = not shows_progress(None)

        def collect(job: Future[Outcome | Record]) -> None:
            replicate, index = jobs.pop(job)
            run = job.result()
            if pieces:
                pieces.save_run(replicate, labels[index], run)
            take(replicate, index, run)

        try:
            done = as_completed(list(jobs))
            for job in progress_bar(iterable=done, total=len(jobs), desc="sampling", unit="run", disable=hidden):
                collect(job)
        except KeyboardInterrupt:
            interrupted = True
            print("\nInterrupted: waiting for the chains under way.", file=sys.stderr)
            for job in as_completed([job for job in jobs if not job.cancel()]):
                if job.exception() is None:
                    collect(job)
        except BrokenExecutor as error:
            raise RuntimeError(
                f"a worker process died (killed, or out of memory); {len(records)} runs are finished. Run the same "
                "command again to go on."
            ) from error
    whole = [r for r in range(replicates) if all((r, i) in records for i in range(len(architectures)))]
    if 0 not in whole:
        raise KeyboardInterrupt
    if interrupted:
        warnings.warn(f"interrupted: the results of {len(whole)} of {replicates} replicates are kept.", stacklevel=2)
    return Study(
        first=[first[index] for index in range(len(architectures))],
        first_problem=problems[0],
        first_network=trained[0].network,
        networks=[trained[r].scores for r in whole],
        baselines={
            one.label: [trained[r].baselines[index] for r in whole] for index, one in enumerate(trained[0].baselines)
        },
        records={label: [records[r, index] for r in whole] for index, label in enumerate(labels)},
        settings=settings,
        interrupted=interrupted,
    )


def _train_all(
    executor: Executor | None,
    problems: Sequence[Problem],
    train_network: Callable[[Problem, int], Network],
    seed: int,
    settings: SamplingSettings,
    laplace: bool,
    pieces: Pieces | None,
) -> list[Trained]:
    """Return the trained network of each replicate; without an executor one after the other.

    Threads would not train side by side: training holds the interpreter's lock.
    """
    found: dict[int, Trained] = {}
    jobs: dict[Future[Trained], int] = {}
    hidden = not shows_progress(None)

    def take(replicate: int, trained: Trained) -> None:
        if pieces:
            pieces.save_trained(replicate, trained)
        found[replicate] = trained

    with progress_bar(total=len(problems), desc="training", disable=hidden, leave=False) as bar:
        for replicate, problem in enumerate(problems):
            kept = pieces.load_trained(replicate) if pieces else None
            seeds = derived_seed(seed, replicate, 1), derived_seed(seed, replicate, 3)
            if kept is not None:
                found[replicate] = kept
            elif executor is not None:
                jobs[executor.submit(_train_piece, problem, train_network, *seeds, settings, laplace)] = replicate
                continue
            else:
                take(replicate, _train_piece(problem, train_network, *seeds, settings, laplace))
            bar.update()
        for job in as_completed(list(jobs)):
            take(jobs.pop(job), job.result())
            bar.update()
    return [found[replicate] for replicate in range(len(problems))]


def _train_piece(
    problem: Problem,
    train_network: Callable[[Problem, int], Network],
    seed: int,
    laplace_seed: int,
    settings: SamplingSettings,
    laplace: bool,
) -> Trained:
    """Train the network of a replicate, and score it and its Laplace approximations."""
    net = train_network(problem, seed)
    if net.history is not None and net.history.stopped == "interrupted":
        raise KeyboardInterrupt  # `train` returns its best parameters so far, which are no finished piece
    baselines = []
    if laplace:
        baselines = run_laplace(problem, net, settings.draws, seed=laplace_seed, quantiles=settings.quantiles)
    return Trained(net, score_network(problem, net), baselines)


def _run_piece(
    problem: Problem, net: Network, architecture: Candidate, settings: SamplingSettings, seed: int, with_draws: bool
) -> Outcome | Record:
    """Sample one architecture of one replicate."""
    outcome = run_architecture(
        problem, net, TraceClassPrior.fit(net), architecture, settings.of_model(architecture.label()), seed=seed
    )
    return outcome if with_draws else outcome.record


def _estimate_seconds(
    problem: Problem,
    net: Network,
    prior: Prior,
    candidates: Sequence[Candidate],
    settings: SamplingSettings,
) -> float:
    """Estimate the seconds that one thread takes to sample every candidate, from a few hundred timed steps."""
    warmup = settings.warmup
    extra = warmup.steps if isinstance(warmup, Warmup) else warmup if isinstance(warmup, int) else 20_000
    total = 0.0
    for candidate in candidates:
        architecture, likelihood = with_noise(candidate, problem.likelihood)
        post = Posterior(net, architecture, prior, likelihood, problem.X, problem.y)
        steps = 100
        while True:
            started = time.perf_counter()
            sample(post, PCNL(1e-4), chains=1, draws=1, thin=steps, warmup=None, seed=0, threads=1, progress=False)
            seconds = time.perf_counter() - started
            # The time of short runs is mostly that of their start, so the number of steps is increased.
            if seconds > 0.05:
                break
            steps *= 4
        own = settings.of_model(candidate.label())
        total += own.chains * (extra + own.steps) * seconds / steps
    return total


def _duration(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
