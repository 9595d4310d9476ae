"""The replicates of a study: trains every network, then samples all architectures of all replicates in parallel."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from patrac_native.engine.threads import thread_count
from patrac_native.model.architectures import Architecture
from patrac_native.model.priors import TraceClassPrior
from patrac_native.network.network import Network
from patrac_native.studies.experiment import (
    ARCHITECTURES,
    NetworkScores,
    Outcome,
    Problem,
    Record,
    SamplingSettings,
    derived_seed,
    estimate_seconds,
    run_architecture,
    score_network,
)
from patrac_native.studies.tables import mean_sd, plural


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
    architectures: Sequence[Architecture] = ARCHITECTURES,
) -> Study:
    """Run a study; chains of different architectures and replicates run in parallel, each on one thread.

    Parameters
    ----------
    problem_of : callable
        Returns the data of a replicate for a seed.
    train_network : callable
        Returns the trained network for a problem and a seed.
    settings : SamplingSettings
        Settings with threads=1.
    replicates : int
        Number of data sets, at least 1.
    seed : int
        Seed of the study, which determines its records except for times, for any number of threads.
    threads : int, optional
        Number of runs at the same time; by default the number of processors that this process may use.
    architectures : sequence of Architecture
        By default those of the paper's tables.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If `replicates` is below 1.
    KeyboardInterrupt
        If the study was interrupted before the first replicate was complete.

    Warns
    -----
    UserWarning
        If the study was interrupted later.
    """
    if replicates < 1:
        raise ValueError(f"--replicates must be at least 1; got {replicates}.")
    from tqdm import tqdm

    threads = min(thread_count(threads), replicates * len(architectures))
    # Networks are trained one at a time, because training holds the interpreter's lock and torch's number of threads is
    # a setting of the whole process. They are trained first, so that they do not slow the chains, whose times are
    # reported.
    problems, networks, priors = [], [], []
    for replicate in tqdm(range(replicates), desc="training", disable=not _show(), leave=False):
        problem = problem_of(derived_seed(seed, replicate, 0))
        net = train_network(problem, derived_seed(seed, replicate, 1))
        problems.append(problem)
        networks.append(net)
        priors.append(TraceClassPrior.fit(net))
    scores = [score_network(problem, net) for problem, net in zip(problems, networks, strict=True)]
    print(
        f"Trained {plural(replicates, 'network')}: {sum(s.training_seconds for s in scores):.0f} s, "
        f"{mean_sd([s.epochs for s in scores], 0)} epochs."
    )
    seconds = estimate_seconds(problems[0], networks[0], priors[0], architectures, settings) * replicates
    print(
        f"Sampling {plural(len(architectures), 'architecture')} on {plural(replicates, 'data set')}: about "
        f"{_duration(seconds / threads)} on {plural(threads, 'thread')}.",
        flush=True,
    )

    first: dict[int, Outcome] = {}
    records: dict[tuple[int, int], Record] = {}
    interrupted = False
    pool = ThreadPoolExecutor(max_workers=threads)
    jobs: dict[Future[Outcome], tuple[int, int]] = {}
    for replicate in range(replicates):
        for index, architecture in enumerate(architectures):
            job = pool.submit(
                run_architecture,
                problems[replicate],
                networks[replicate],
                priors[replicate],
                architecture,
                settings,
                seed=derived_seed(seed, replicate, 2, index),
            )
            jobs[job] = (replicate, index)
    try:
        for job in tqdm(as_completed(list(jobs)), total=len(jobs), desc="sampling", unit="run", disable=not _show()):
            outcome = job.result()
            replicate, index = jobs.pop(job)
            records[replicate, index] = outcome.record
            # Only the draws of the first replicate are kept, so that memory does not grow with their number.
            if replicate == 0:
                first[index] = outcome
    except KeyboardInterrupt:
        interrupted = True
        print("\nInterrupted: waiting for the chains under way.", file=sys.stderr)
    finally:
        # After an error too, runs that have not started are cancelled.
        pool.shutdown(wait=True, cancel_futures=True)
    whole = [r for r in range(replicates) if all((r, i) in records for i in range(len(architectures)))]
    if 0 not in whole:
        raise KeyboardInterrupt
    if interrupted:
        warnings.warn(f"interrupted: the results of {len(whole)} of {replicates} replicates are kept.", stacklevel=2)
    return Study(
        first=[first[index] for index in range(len(architectures))],
        first_problem=problems[0],
        first_network=networks[0],
        networks=[scores[r] for r in whole],
        records={
            architecture.label(): [records[r, index] for r in whole] for index, architecture in enumerate(architectures)
        },
        settings=settings,
        interrupted=interrupted,
    )


def _show() -> bool:
    """Return whether to show progress bars."""
    return sys.stderr.isatty()


def _duration(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
