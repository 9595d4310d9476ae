"""The replicates of a study: trains every network, then samples all architectures of all replicates in parallel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.engine import thread_count
from patrac_native.studies.experiment import (
    ARCHITECTURES,
    Candidate,
    Outcome,
    Scores,
    derived_seed,
    run_architecture,
    run_laplace,
    score_network,
)
from patrac_native.studies.options import SamplingSettings, StudyOptions, StudySize
from patrac_native.studies.pieces import Piece, Pieces, check_scheduler, executor_of, run_pieces
from patrac_native.studies.problems import Problem
from patrac_native.studies.tables import mean_sd, plural


@dataclass(frozen=True)
class Study:
    """The results of a study."""

    first: list[Outcome]  # of all candidates for the first replicate, for figures
    first_problem: Problem
    first_network: pn.Network
    networks: list[Scores]  # of the trained network of each replicate, as are the lists below
    baselines: dict[str, list[Scores]]  # by label; empty without baselines
    records: dict[str, list[Scores]]  # by the candidate's label
    settings: SamplingSettings
    interrupted: bool  # whether Ctrl-C ended the study; only complete replicates are kept

    @property
    def replicates(self) -> int:
        """Number of complete replicates."""
        return len(self.networks)

    @property
    def models(self) -> dict[str, list[Scores]]:
        """The scores of the trained networks, the baselines and the candidates, by label."""
        return {"network": self.networks, **self.baselines, **self.records}


def run_study(
    problem_of: Callable[[int], Problem],
    options: StudyOptions,
    size: StudySize,
    *,
    identity: Mapping[str, Any],
    folder: str = "pieces",
    candidates: Sequence[Candidate] = ARCHITECTURES,
    laplace: bool = False,
) -> Study:
    """Run a study; chains of different candidates and replicates run side by side, each on one thread.

    `problem_of` returns the data of a replicate for a seed. Finished pieces are kept in `folder` of the output. The
    seed determines all scores except times, for any scheduler and number of threads.
    """
    check_scheduler(options.scheduler)
    settings, replicates, seed = options.sampling(size), options.replicates, options.seed
    pieces = Pieces(options.out / folder, identity)
    train = partial(train_network, options=options)
    workers = min(thread_count(options.threads), replicates * len(candidates))
    problems = [problem_of(derived_seed(seed, replicate, 0)) for replicate in range(replicates)]
    labels = [candidate.label() for candidate in candidates]
    with executor_of(options.scheduler, workers) as executor:
        # Networks are trained first, so that they do not slow the chains, whose times are reported; and not on threads,
        # where they would not train side by side: training holds the interpreter's lock.
        jobs = {
            f"trained-{replicate}": partial(_train_piece, problem, train, seed, replicate, settings, laplace)
            for replicate, problem in enumerate(problems)
        }
        found, _ = run_pieces(jobs, pieces, None if options.scheduler == "threads" else executor, "training")
        trained = [found[name] for name in jobs]
        networks: list[Any] = [piece.kept for piece in trained]
        scores = [piece.values["scores"] for piece in trained]
        print(
            f"Trained {plural(replicates, 'network')}: {sum(one['training_seconds'] for one in scores):.0f} s, "
            f"{mean_sd([one['epochs'] for one in scores], 0)} epochs.\n"
            f"Sampling {plural(len(candidates), 'architecture')} on {plural(replicates, 'data set')}.",
            flush=True,
        )
        jobs = {
            f"run-{replicate}-{label}": partial(
                _run_piece,
                problem,
                networks[replicate],
                candidate,
                settings,
                derived_seed(seed, replicate, 2, index),
                pieces.store_of(f"run-{replicate}-{label}", options.scheduler),
                replicate == 0,
            )
            for replicate, problem in enumerate(problems)
            for index, (label, candidate) in enumerate(zip(labels, candidates, strict=True))
        }
        found, interrupted = run_pieces(jobs, pieces, executor, "sampling")
    whole = [r for r in range(replicates) if all(f"run-{r}-{label}" in found for label in labels)]
    if 0 not in whole:
        raise KeyboardInterrupt
    if interrupted:
        warnings.warn(f"interrupted: the results of {len(whole)} of {replicates} replicates are kept.", stacklevel=2)
    baselines = [trained[r].values["baselines"] for r in whole]
    return Study(
        first=[_outcome(found[f"run-0-{label}"]) for label in labels],
        first_problem=problems[0],
        first_network=networks[0],
        networks=[scores[r] for r in whole],
        baselines={one["label"]: [of[index] for of in baselines] for index, one in enumerate(baselines[0])},
        records={label: [found[f"run-{r}-{label}"].values["scores"] for r in whole] for label in labels},
        settings=settings,
        interrupted=interrupted,
    )


def train_network(problem: Problem, seed: int, options: StudyOptions) -> pn.Network:
    """Train the network of a problem as it says or, by its options, with the paper's preset."""
    training = dict(problem.training)
    if options.paper_training:
        training |= {"preset": "paper", "max_epochs": None}
    return pn.train(
        problem.layer_sizes,
        problem.X,
        problem.y,
        likelihood=problem.likelihood,
        seed=seed,
        progress=None if options.paper_training else False,
        **training | ({"max_epochs": options.max_epochs} if options.max_epochs else {}),
    )


def _train_piece(
    problem: Problem,
    train: Callable[[Problem, int], pn.Network],
    seed: int,
    replicate: int,
    settings: SamplingSettings,
    laplace: bool,
) -> Piece:
    """Train the network of a replicate, and score it and its Laplace approximations."""
    net, baselines = train(problem, derived_seed(seed, replicate, 1)), []
    if net.history is not None and net.history.stopped == "interrupted":
        raise KeyboardInterrupt  # `train` returns its best parameters so far, which are no finished piece
    if laplace:
        of_draws = derived_seed(seed, replicate, 3)
        baselines = run_laplace(problem, net, settings.draws, seed=of_draws, quantiles=settings.quantiles)
    return Piece({"scores": score_network(problem, net), "baselines": baselines}, net)


def _run_piece(
    problem: Problem,
    net: pn.Network,
    candidate: Candidate,
    settings: SamplingSettings,
    seed: int,
    store: Path | None,
    for_figures: bool,
) -> Piece:
    """Sample one candidate of one replicate; only the draws of the first are kept, so that memory does not grow."""
    prior, own = pn.TraceClassPrior.fit(net), settings.of_model(candidate.label())
    found = run_architecture(problem, net, prior, candidate, own, seed=seed, store=store)
    if not for_figures:
        return Piece({"scores": found.scores})
    curves = {name: getattr(found, name).tolist() for name in ("autocorrelation", "pit_f", "pit_y")}
    return Piece({"scores": found.scores, "curves": curves}, found.draws)


def _outcome(piece: Piece) -> Outcome:
    """Return the outcome of a piece of the first replicate."""
    assert isinstance(piece.kept, pn.Draws)
    curves = {name: np.array(values) for name, values in piece.values["curves"].items()}
    return Outcome(piece.values["scores"], piece.kept, **curves)
