"""An experiment: a problem and a posterior, a run of the sampler, and the scores of its draws and of its baselines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native import diagnostics
from patrac_native.studies.options import Quantiles, SamplingSettings
from patrac_native.studies.pieces import sample_kept
from patrac_native.studies.problems import Problem

Architecture = Any  # such as pn.Mix(5)
# The numbers of one run, of a trained network or of a baseline, as tables and summary.json have them.
Scores = dict[str, Any]

# The architectures of the paper's tables, the slowest first: if their chains run at the same time, the longest one
# should not start last.
ARCHITECTURES: tuple[Architecture, ...] = (
    pn.Full(),
    pn.Sep(2),
    pn.Sep(5),
    pn.Mix(2),
    pn.Mix(5),
    pn.Out(12),
    pn.Out(45),
)
# Probabilities outside the intervals whose coverage is reported (paper, Figure 3).
COVERAGES = (0.99, 0.95, 0.65)
# The paper's ESS is a sum of autocorrelations over lags up to 1000 steps (Appendix C).
PAPER_LAGS = 1000


@dataclass(frozen=True)
class SampledNoise:
    """An architecture whose posterior is sampled together with the noise variance."""

    architecture: Architecture

    def label(self) -> str:
        """Return such as "Mix(5), sampled noise"."""
        return f"{self.architecture.label()}, sampled noise"


Candidate = Any  # an architecture, or SampledNoise of one


@dataclass(frozen=True)
class Outcome:
    """The scores of a run, with its scored draws and the curves of its figures.

    `scores` has, beside the lengths of the run: `nll` as in the paper's Table 1 (see `diagnostics.nll`), `nlpd`, `rmse`
    of the posterior mean and `coverage` by nominal probability, against the true f or, where that is not known, y;
    `max_rhat` and `min_ess_bulk`, the worst over the grid; and `ess` by Geyer's sequence and `ess_paper` by the paper's
    sum of lags, of all chains together. `seconds` is wall time of the sampler, warm-up included.
    """

    scores: Scores
    draws: pn.Draws
    autocorrelation: npt.NDArray[Any]  # (chain, lag + 1) of f over the grid; one lag is `ess_thin` steps
    pit_f: npt.NDArray[Any]  # (n_test,), share of draws of f below each test observation
    pit_y: npt.NDArray[Any]  # the same of y with its noise

    @property
    def label(self) -> str:
        """Label of the architecture."""
        return str(self.scores["architecture"])


def posterior_of(problem: Problem, net: pn.Network, prior: Any, candidate: Candidate) -> pn.Posterior:
    """Return the posterior of a candidate, under the problem's noise or with sampled noise."""
    if isinstance(candidate, SampledNoise):
        return pn.Posterior(net, candidate.architecture, prior, pn.Gaussian("sampled"), problem.X, problem.y)
    return pn.Posterior(net, candidate, prior, problem.likelihood, problem.X, problem.y)


def run_architecture(
    problem: Problem,
    net: pn.Network,
    prior: Any,
    candidate: Candidate,
    settings: SamplingSettings,
    *,
    seed: int,
    store: Path | None = None,
) -> Outcome:
    """Sample one posterior and score it on the test rows; raise KeyboardInterrupt if the run was interrupted.

    A run in a store goes on from there.
    """
    post = posterior_of(problem, net, prior, candidate)
    ess_thin = settings.ess_thin(post.dim, post.network.dtype.itemsize)
    kept = sample_kept(
        store,
        post,
        kernel=settings.kernel,
        chains=settings.chains,
        draws=settings.steps // ess_thin,
        thin=ess_thin,
        warmup=settings.warmup,
        seed=seed,
        threads=settings.threads,
        progress=settings.progress,
    )
    if not kept.settings["completed"]:
        # The scores of an incomplete run could not be told from those of a complete one.
        raise KeyboardInterrupt
    f_grid = kept.predict(problem.grid, threads=settings.threads)
    # Sums over more lags than a tenth of the chain are mostly noise, which matters only for runs far shorter than the
    # paper's.
    lags = max(1, min(PAPER_LAGS // ess_thin, kept.n_draws // 10))
    ess = diagnostics.ess_geyer(f_grid)
    ess_paper = diagnostics.ess_paper(f_grid, max_lag=lags)

    every = settings.thin // ess_thin
    draws = kept[:, every - 1 :: every]
    f_test = draws.predict(problem.X_test, threads=settings.threads)
    likelihood, rng = post.likelihood, np.random.default_rng(seed)
    if likelihood.is_sampled:
        variance = draws.stats["variance"]
        y_draws = likelihood.sample_at(f_test, rng, variance)
    else:
        variance = likelihood.variance_vector(1)
        y_draws = likelihood.sample(f_test, rng)
    worst = diagnostics.convergence(draws.predict(problem.grid, threads=settings.threads)).worst()
    seconds = float(kept.settings["seconds"])
    scores = {
        "architecture": candidate.label(),
        "dim": post.dim,
        "chains": settings.chains,
        "draws": settings.draws,
        "thin": settings.thin,
        "ess_thin": ess_thin,
        "steps": settings.steps,
        "warmup_steps": kept.settings["warmup_steps"],
        "kernel": post.plan(settings.kernel).kernel.label(),
        **score_draws(problem, f_test, y_draws, variance, settings.quantiles),
        "coverage_of": "y" if problem.truth_test is None else "f",
        "max_rhat": worst["max_rhat"],
        "min_ess_bulk": worst["min_ess_bulk"],
        "ess": ess,
        "ess_paper": ess_paper,
        "ess_per_second": ess / seconds,
        "ess_paper_per_second": ess_paper / seconds,
        "acceptance_rate": float(kept.stats["acceptance_rate"].mean()),
        "step_size": float(kept.stats["step_size"].mean()),
        "steps_per_second": settings.chains * (kept.settings["warmup_steps"] + settings.steps) / seconds,
        "seconds": seconds,
    }
    return Outcome(
        scores,
        draws,
        diagnostics.autocorrelation(f_grid, max_lag=min(4 * lags, kept.n_draws - 2)),
        pit_f=diagnostics.pit(f_test, problem.y_test),
        pit_y=diagnostics.pit(y_draws, problem.y_test),
    )


def score_draws(
    problem: Problem, f_test: Any, y_draws: Any, variance: npt.ArrayLike, quantiles: Quantiles = "weibull"
) -> Scores:
    """Score draws of f at the test rows, and of y with its noise, whose variance is one or one for each draw."""
    covering = y_draws if problem.truth_test is None else f_test
    covered = diagnostics.coverage(covering, problem.scored_truth, coverage=COVERAGES, method=quantiles)
    return {
        "nll": diagnostics.nll(f_test, problem.y_test, variance),
        "nlpd": diagnostics.nlpd(f_test, problem.y_test, variance),
        "rmse": diagnostics.rmse(f_test, problem.scored_truth),
        "coverage": {f"{level:g}": float(share) for level, share in zip(COVERAGES, covered, strict=True)},
    }


def score_network(problem: Problem, net: pn.Network) -> Scores:
    """Score the trained network as a forecast without uncertainty: one chain of one draw.

    If the variance of the problem is not known, it is the mean squared residual of validation rows.
    """
    f, history, variance = net.predict(problem.X_test)[None, None], net.history, problem.variance
    if variance is None:
        if history is None or history.validation_mse is None:
            raise ValueError("a problem of unknown variance needs a network that was trained with validation rows")
        variance = float(np.mean(history.validation_mse))
    return {
        "nll": diagnostics.nll(f, problem.y_test, variance),
        "nlpd": diagnostics.nlpd(f, problem.y_test, variance),
        "rmse": diagnostics.rmse(f, problem.scored_truth),
        "training_seconds": history.seconds if history else 0.0,
        "epochs": len(history.loss) if history else 0,
    }


def run_laplace(
    problem: Problem, net: pn.Network, draws: int, *, seed: int, quantiles: Quantiles = "weibull"
) -> list[Scores]:
    """Score Laplace approximations around the trained network, under the prior of its penalty, N(0, 1 / l2).

    They are that of the last layer, where network and linearised network are the same; of all weights, predicting with
    the network at each draw; and of all weights, predicting with the network that is linear around the trained one.
    """
    assert net.history is not None and problem.variance is not None
    variance = 1 / float(net.history.settings["l2"])
    prior, found = pn.GaussianPrior(variance, variance), []
    for label, architecture, linearised in (
        ("Laplace, last layer", pn.Out(net.layer_sizes[-2]), True),
        ("Laplace, all, sampled", pn.Full(), False),
        ("Laplace, all, linearised", pn.Full(), True),
    ):
        started = time.perf_counter()
        laplace = pn.Laplace(posterior_of(problem, net, prior, architecture))
        if linearised:
            f_test = laplace.linearised(problem.X_test, draws, seed)
        else:
            f_test = laplace.sample(draws, seed).predict(problem.X_test, threads=1)
        y_draws = problem.likelihood.sample(f_test, np.random.default_rng(seed))
        scores = score_draws(problem, f_test, y_draws, problem.variance, quantiles)
        found.append({"label": label, **scores, "seconds": time.perf_counter() - started})
    return found


def derived_seed(seed: int, *path: int) -> int:
    """Return a seed in 0..2^63-1 for the part of a study at `path`, so that parts have different random streams."""
    # The path is a spawn key, because the entropies [0] and [0, 0] would give the same seed.
    state = np.random.SeedSequence(seed, spawn_key=path).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
