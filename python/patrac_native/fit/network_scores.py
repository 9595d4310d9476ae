"""Scores of the trained networks alone, without the posterior, on unseen rows or on those of their validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.likelihoods import Likelihood
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray


def networks_of(draws: Draws | DrawsMixture) -> list[Network]:
    """Return the network of each member."""
    return [member.network.net for member in draws.members]


def unseen_scores(
    draws: Draws | DrawsMixture,
    X: FloatArray,
    y: FloatArray,
    nets: Sequence[Network],
    sample_weight: FloatArray | None,
    offset: FloatArray | None,
) -> tuple[Any, FloatArray]:
    """Return the RMSE of each target and the NLPD of each row of networks that have not seen the rows.

    The parameters are those of `evaluate_regression`.
    """
    likelihood, observed = draws.likelihood, y.reshape(len(y), -1)
    outputs = [likelihood.with_offset(net.predict(X), offset) for net in nets]
    predicted = np.mean([likelihood.predicted(f) for f in outputs], axis=0)
    rmse = [math.sqrt(np.average(column, weights=sample_weight)) for column in ((predicted - observed) ** 2).T]
    nlpd = draws.network_nlpd(X, observed, offset=offset, nets=nets)
    return (rmse[0] if y.ndim == 1 else np.array(rmse)), nlpd


def validation_scores(net: Network, likelihood: Likelihood, n_targets: int) -> tuple[Any, float | None]:
    """Return the RMSE of each target and the mean NLPD of the validation rows of a network's training.

    Each is None if it is not known. Where the scale of the noise is a parameter of the likelihood, the NLPD is that of
    normal noise with the variance of the residuals; otherwise it is the loss of those rows, that of the likelihood.
    """
    history = net.history
    if history is None:
        return None, None
    mse, validation = history.validation_mse, history.settings["validation"]
    rmse = None if mse is None else (np.sqrt(mse) if n_targets > 1 else math.sqrt(float(mse[0])))
    if not isinstance(likelihood, SampledNoiseLikelihood):
        return rmse, None if validation is None else float(validation["loss"])
    return rmse, None if mse is None else sum(0.5 * (math.log(2 * math.pi * float(one)) + 1.0) for one in mse)
