"""What the posteriors of a study stand beside: the trained network and Laplace approximations around it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from patrac_native import diagnostics
from patrac_native.architectures import Full, Out
from patrac_native.diagnostics.regression import QuantileMethod
from patrac_native.draws.laplace import Laplace
from patrac_native.network.network import Network
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import GaussianPrior
from patrac_native.studies.experiment import Problem, score_draws


@dataclass(frozen=True)
class NetworkScores:
    """Scores of the trained network on the test rows, and its training; `nll`, `nlpd` and `rmse` as in `Record`."""

    nll: float
    nlpd: float
    rmse: float
    training_seconds: float
    epochs: int


@dataclass(frozen=True)
class Baseline:
    """The scores of a Laplace approximation on the test rows; `nll` to `coverage` as in `Record`.

    Attributes
    ----------
    label : str
        Such as "Laplace, last layer".
    seconds : float
        Of the curvature, the draws and their predictions.
    """

    label: str
    nll: float
    nlpd: float
    rmse: float
    coverage: Mapping[str, float]
    seconds: float


def score_network(problem: Problem, net: Network) -> NetworkScores:
    """Score the trained network as a forecast without uncertainty: one chain of one draw.

    If the variance of the problem is not known, it is the mean squared residual of validation rows.
    """
    f = net.predict(problem.X_test)[None, None]
    truth = problem.y_test if problem.truth_test is None else problem.truth_test
    history = net.history
    variance = problem.variance
    if variance is None:
        if history is None or history.validation_mse is None:
            raise ValueError("a problem of unknown variance needs a network that was trained with validation rows")
        variance = float(np.mean(history.validation_mse))
    return NetworkScores(
        nll=diagnostics.nll(f, problem.y_test, variance),
        nlpd=diagnostics.nlpd(f, problem.y_test, variance),
        rmse=diagnostics.rmse(f, truth),
        training_seconds=history.seconds if history else 0.0,
        epochs=len(history.loss) if history else 0,
    )


def run_laplace(
    problem: Problem, net: Network, draws: int, *, seed: int, quantiles: QuantileMethod = "weibull"
) -> list[Baseline]:
    """Score Laplace approximations around the trained network, under the prior of its penalty, N(0, 1 / l2).

    Parameters
    ----------
    problem : Problem
        Of known variance.
    net : Network
        Trained with a penalty.
    draws : int
        Number of draws.
    seed : int
        Of the draws and of the predictive noise.
    quantiles : str
        As in `SamplingSettings`.

    Returns
    -------
    list of Baseline
        Of the last layer, where network and linearised network are the same; of all weights, predicting with the
        network at each draw; and of all weights, predicting with the network that is linear around the trained one.
    """
    assert net.history is not None and problem.variance is not None
    variance = 1 / float(net.history.settings["l2"])
    found = []
    for label, architecture, linearised in (
        ("Laplace, last layer", Out(net.layer_sizes[-2]), True),
        ("Laplace, all, sampled", Full(), False),
        ("Laplace, all, linearised", Full(), True),
    ):
        started = time.perf_counter()
        prior = GaussianPrior(variance, variance)
        laplace = Laplace(Posterior(net, architecture, prior, problem.likelihood, problem.X, problem.y))
        f_test = (
            laplace.linearised(problem.X_test, draws, seed)
            if linearised
            else laplace.sample(draws, seed).predict(problem.X_test, threads=1)
        )
        y_draws = problem.likelihood.sample(f_test, np.random.default_rng(seed))
        scores = score_draws(problem, f_test, y_draws, problem.variance, quantiles)
        found.append(Baseline(label, **scores, seconds=time.perf_counter() - started))
    return found
