"""The models of the UCI study: each is fitted to a split's training rows and scored on its test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.architectures import Full
from patrac_native.draws.laplace import Laplace
from patrac_native.fit.array_fit import fit_arrays
from patrac_native.fit.fit_data import DataRows, FitArrays
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.moments import mean_and_scale
from patrac_native.fit.noise_settings import NOISE_CHOICES
from patrac_native.fit.tuning import Choice, train_networks
from patrac_native.likelihoods import Gaussian, PredictiveMixture
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import GaussianPrior
from patrac_native.studies.uci_sets import Split
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.findings import DO_NOT_USE

Scores = dict[str, float]

# Networks of the ensemble with a common noise variance; that with a variance of each row has as many.
_MEMBERS = 5
# Draws of y from which the CRPS of a mixture is computed.
_CRPS_DRAWS = 1_000
_LEAST_L2 = 1e-8


@dataclass(frozen=True)
class Rows:
    """Standardised rows of a split.

    Attributes
    ----------
    X, y, X_test, y_test : ndarray of float64
        By means and standard deviations of the training rows; constant columns are left out.
    mean, scale : float
        Of the target.
    """

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    mean: float
    scale: float

    @classmethod
    def of(cls, split: Split) -> Rows:
        """Standardise a split."""
        moments = np.array([mean_and_scale(column, None) for column in split.X.T])
        kept = moments[:, 1] > 0
        center, spread = moments[kept].T
        mean, scale = mean_and_scale(split.y, None)
        X, X_test = ((part[:, kept] - center) / spread for part in (split.X, split.X_test))
        return cls(X, (split.y - mean) / scale, X_test, (split.y_test - mean) / scale, mean, scale)

    @property
    def target_scale(self) -> float:
        """Standard deviation of the target in its own units."""
        return self.scale

    def inverse_target(self, values: npt.ArrayLike) -> FloatArray:
        """Convert standardised targets (n,) to their own units."""
        return np.asarray(values, dtype=np.float64) * self.scale + self.mean


def networks(rows: Rows, settings: ModelSettings) -> dict[str, Scores]:
    """Score a trained network, the Laplace approximation around it, and an ensemble of networks trained alike.

    Penalty and epochs are those of `patrac fit`, chosen on validation rows, whose mean squared residual is the noise
    variance. The Laplace approximation is that of all weights with the linearised network, under the prior of the
    penalty.
    """
    clock = time.perf_counter()
    sizes = [rows.X.shape[1], *settings.hidden, 1]
    likelihood = Gaussian("sampled")
    training = DataRows(rows.X, rows.y)
    nets = train_networks(sizes, training, likelihood, networks=1, settings=settings)
    one = time.perf_counter() - clock
    l2 = max(Choice.of(nets[0]).l2, _LEAST_L2)
    nets = train_networks(sizes, training, likelihood, networks=_MEMBERS, settings=settings, l2=l2)
    all_of_them = time.perf_counter() - clock
    history = nets[0].history
    assert history is not None and history.validation_mse is not None
    variance = float(np.mean(history.validation_mse))
    means = np.stack([net.predict(rows.X_test)[:, 0] for net in nets])
    clock = time.perf_counter()
    prior = GaussianPrior(variance / l2, variance / l2)
    laplace = Laplace(Posterior(nets[0], Full(), prior, Gaussian(variance), rows.X, rows.y, dtype="float64"))
    mean, covariance = laplace.predict(rows.X_test)
    of_laplace = time.perf_counter() - clock
    spread = np.sqrt(covariance[:, 0, 0] + variance)
    return {
        "network": score_mixture(rows, means[:1], np.sqrt(variance)) | {"seconds": one},
        "Laplace": score_mixture(rows, mean.T, spread[None]) | {"seconds": one + of_laplace},
        "ensemble": score_mixture(rows, means, np.sqrt(variance)) | {"seconds": all_of_them},
    }


def heteroscedastic_ensemble(rows: Rows, settings: ModelSettings) -> dict[str, Scores]:
    """Score a tuned deep ensemble whose networks have a mean and a log-variance for each row."""
    import torch

    from patrac_native.studies.deep_ensemble import fit_ensemble

    clock = time.perf_counter()
    ensemble, _ = fit_ensemble(rows.X, rows.y, seed=settings.seed)
    with torch.no_grad():
        outputs = ensemble.outputs(torch.as_tensor(rows.X_test, dtype=torch.float32)).double().numpy()
    sd = np.exp(0.5 * np.clip(outputs[..., 1], -14, 7))
    seconds = time.perf_counter() - clock
    return {RIVAL: score_mixture(rows, outputs[..., 0], sd) | {"seconds": seconds}}


def posterior(label: str, architecture: str) -> Callable[[Rows, ModelSettings], dict[str, Scores]]:
    """Return the function that scores the posterior that `patrac fit` samples for an architecture."""
    return _Posterior(label, architecture)


@dataclass(frozen=True)
class _Posterior:
    """A callable that can be pickled."""

    label: str
    architecture: str

    def __call__(self, rows: Rows, settings: ModelSettings) -> dict[str, Scores]:
        data = FitArrays(rows.X, rows.y, rows.X_test, rows.y_test, 1, rows)
        clock = time.perf_counter()
        fit = fit_arrays(data, NOISE_CHOICES, replace(settings, architecture=self.architecture), say=lambda _: None)
        scores = fit.evaluation.scores
        found = {
            "rmse": scores["rmse"],
            "nlpd": scores["nlpd_in_units"],
            "crps": scores["crps"],
            "coverage": scores["coverage"]["0.9"],
            "width": scores["interval_width"],
            "seconds": time.perf_counter() - clock,
            "do_not_use": fit.summary.verdict().grade == DO_NOT_USE,
        }
        return {self.label: {name: float(value) for name, value in found.items()}}


# What is run for a split, by the name of its piece: what takes part of its time together is one piece.
GROUPS: dict[str, Callable[[Rows, ModelSettings], dict[str, Scores]]] = {
    "networks": networks,
    "ensemble": heteroscedastic_ensemble,
    "full": posterior("Full", "full"),
    "mix": posterior("Mix(5)", "mix"),
    "auto": posterior("auto", "auto"),
}
RIVAL = "ensemble, noise of each row"
# In the order of the tables.
MODELS = ("network", "Laplace", "ensemble", RIVAL, "Full", "Mix(5)", "auto")


def score_mixture(rows: Rows, mean: FloatArray, sd: FloatArray | float) -> Scores:
    """Score an equal mixture of normal distributions, of mean (members, n) and standard deviations that broadcast."""
    noise: Any = Gaussian(1.0).noise()
    sd = np.broadcast_to(sd, mean.shape)
    mixture = PredictiveMixture(mean, replace(noise, scale=sd, variance=sd**2))
    rng = np.random.default_rng(0)
    member = rng.integers(len(mean), size=(_CRPS_DRAWS, mean.shape[1]))
    column = np.arange(mean.shape[1])
    y_draws = mean[member, column] + sd[member, column] * rng.standard_normal(member.shape)
    inner, outer = mixture.interval(0.9), mixture.interval(0.95)
    return {
        "rmse": float(np.sqrt(((mixture.mean() - rows.y_test) ** 2).mean()) * rows.scale),
        "nlpd": -float(mixture.log_density(rows.y_test).mean()) + float(np.log(rows.scale)),
        "crps": float(diagnostics.crps(y_draws[None, :, :, None], rows.y_test)) * rows.scale,
        "coverage": float(((inner[0] <= rows.y_test) & (rows.y_test <= inner[1])).mean()),
        "width": float((outer[1] - outer[0]).mean() * rows.scale),
    }


def run_group(group: str, split: Split, settings: ModelSettings) -> dict[str, Scores]:
    """Run one piece of the study: the models of a group on a split."""
    with warnings.catch_warnings():
        # Warnings about a run are about its use; this one is scored.
        warnings.simplefilter("ignore", UserWarning)
        return GROUPS[group](Rows.of(split), settings)
