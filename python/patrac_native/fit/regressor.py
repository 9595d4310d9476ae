"""A regression with intervals: the estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from patrac_native.fit.base import PatracEstimator
from patrac_native.fit.noise_settings import NOISE_CHOICES
from patrac_native.fit.sampled_targets import sampled_targets
from patrac_native.fit.scaling import TargetScaling
from patrac_native.fit.uncertainty import Uncertainty
from patrac_native.likelihoods import Likelihood, RealLikelihood, TargetMixture
from patrac_native.validation.checks import FloatArray, check_probabilities, check_probability, refuse_masked


class PatracRegressor(MultiOutputMixin, RegressorMixin, PatracEstimator):  # type: ignore[misc]
    """A partially Bayesian network for regression, with intervals, quantiles and samples of new targets.

    It trains networks, chooses a posterior and samples it as `patrac fit --test-fraction 0` does. Parameters named as
    in `sklearn.neural_network.MLPRegressor` mean the same.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int
        Widths of the hidden layers, at least one; default (50, 50).
    activation : {"tanh", "relu", "logistic", "gelu", "silu", "sigmoid", "softplus"}
        Default "tanh"; "logistic" is scikit-learn's name of "sigmoid".
    l2 : float, optional
        Penalty of the training, >= 0, as for `train`; by default chosen on validation rows. It is not the `alpha` of
        scikit-learn's MLP, which is a penalty for each row.
    max_iter : int, optional
        Maximum number of training epochs, >= 1; the default depends on the number of rows.
    validation_fraction : float, optional
        Share of the rows by which penalty and number of epochs are chosen, in [0, 1): with fewer than 1,000 rows each
        part of the rows in turn. Default 0.2. With 0 there is no validation: `l2` is 1 unless it is given, and
        training ends when its own loss stops falling.
    architecture : {"auto", "full", "mix", "out", "sep"}
        Which parameters are Bayesian; default "auto": for a small set of rows "full" with heteroscedastic noise, or
        the best of it, of "full" under either prior and of "mix", by short runs that are scored on validation rows,
        else the largest "mix" for which the budget pays. A given `k` means "mix".
    k : int or sequence of int, optional
        Number of Bayesian nodes of each hidden layer; by default 5 for "mix" and "sep", 45 for "out", and at most the
        width.
    prior : {"auto", "gaussian", "trace-class"}
        "gaussian": independent normal parameters, whose variances in each layer are sampled; "trace-class": the
        paper's prior, fitted to the network. Default "auto": chosen with the architecture.
    prior_alpha : float, optional
        Rate of decay of the trace-class prior, > 1; by default fitted to the network's weights.
    networks : int, optional
        Number of networks, >= 1, which are trained alike from other random weights and whose posteriors predict as an
        equally weighted mixture; the default depends on the architecture.
    likelihood : Likelihood, optional
        Of the targets, in the units of y: `Gaussian`, `StudentT` or `HeteroscedasticGaussian`, or of counts `Poisson`
        or `NegativeBinomial`. By default `HeteroscedasticGaussian()` if a short run of it is convincing on
        validation rows, else the better of it and `Gaussian("sampled")`. It is the latter where the architecture,
        `thin`, another device than the CPU or a kernel is given, with fewer than 100 rows, and where the budget is too
        short for networks of both kinds.
    minutes : float
        Budget of the fit on a nominal machine of two cores, > 0; default 0.1. Beyond 0.1 it includes the training. It
        determines the number of steps through the number of operations of a step and never through a clock, so that a
        seed gives the same draws everywhere. The
        chains of one network end earlier once f, at 100 training rows, has an R-hat of at most 1.01 and 400 effective
        draws.
    chains : int, optional
        Number of chains of each network's posterior, >= 1; default 4 for one network, 2 for several. With neither
        `chains` nor `draws`, 8 chains of 250 draws where the noise of one network's posterior has its own variance in
        each row, if `minutes` would pay, before any training, for 15,000 steps of each.
    draws : int, optional
        Number of draws of each chain, >= 4; default 500 for one network, 250 for several, or see `chains`.
    thin : int, optional
        Number of steps for each draw, >= 1, in place of `minutes`.
    warmup : int, "paper" or Warmup, optional
        Number of warm-up steps; by default it ends once the chains agree, after a quarter of the steps that `minutes`
        pays for at the latest. With `thin` it is half the number of steps after it, from 4,000 to 20,000.
    kernel : "auto" or Kernel
        As for `sample`; default "auto".
    device : {"cpu", "cuda", "auto"}
        As for `sample`; default "cpu".
    dtype : {"float32", "float64"}
        The dtype of the chains; default "float32".
    standardize : bool
        Whether the columns of X and the targets are standardised, the latter unless they are counts; default True.
        Constant columns are then left out.
    random_state : int, RandomState or None
        Seed of splits, training and chains. An integer gives the draws of `patrac fit --seed`, on any number of
        threads; None, the default, draws a seed from NumPy's global generator.
    n_jobs : int, optional
        Number of native threads of training and chains; -1 means all processors. By default all processors, and one
        within a worker of joblib, such as those of GridSearchCV(n_jobs=2).
    verbose : bool
        Whether to print what is done and to show progress bars on a terminal; default False.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    draws_ : Draws or DrawsMixture
        The posterior draws, a mixture if there are several networks. Their inputs and targets are those of the network:
        `est.draws_.predict(est.input_scaling_.transform(X))`.
    posterior_ : Posterior
        The posterior of the first network; `posteriors_` are those of all. Files and pickles do not hold them.
    report_ : FitReport
        What was chosen and why, the verdict on the chains with remedies, and scores; its string is a report.
    input_scaling_ : InputScaling
        Mean and scale of each column of X that is not constant.
    target_scaling_ : TargetScaling
        Mean and scale of each target.
    n_iter_ : int
        Number of training epochs of the first network.
    n_outputs_ : int
        Number t of targets.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 60)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> reg = PatracRegressor(8, architecture="full", thin=100, draws=50, max_iter=300, random_state=0).fit(X, y)
    >>> mean, std = reg.predict(X, return_std=True)
    >>> lower, upper = reg.predict_interval(X, coverage=0.9)
    >>> mean.shape, bool((lower < upper).all())
    ((60,), True)
    """

    target_scaling_: TargetScaling
    n_outputs_: int

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Train, choose and sample.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
            Finite numbers.
        y : array_like, shape (n,) or (n, t)
            Targets, finite; not constant.
        sample_weight : array_like, shape (n,), optional
            Nonnegative weights, which count a row as that many rows in scaling, training, the choice of the penalty and
            of the posterior, and the posterior. Default ones.

        Returns
        -------
        PatracRegressor
            The estimator itself.

        Raises
        ------
        TypeError, ValueError
            If a parameter or an array is not as described, or there are too few rows to estimate the noise.
        RuntimeError
            If Ctrl-C was pressed before there were enough draws.

        Warns
        -----
        ConvergenceWarning
            If the chains disagree; the message has the remedy.
        UserWarning
            If the draws should not be used for another reason, or as `train` and `sample`.
        """
        settings = self._settings()
        # scikit-learn would use the values behind a mask.
        refuse_masked(X, "X")
        refuse_masked(y, "y")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        targets = np.asarray(y, dtype=np.float64)
        self._y_has_columns = targets.ndim == 2
        inputs, targets, weights = self._weighted_rows(np.asarray(X), targets.reshape(len(targets), -1), sample_weight)
        likelihoods = NOISE_CHOICES if self.likelihood is None else [self.likelihood]
        _check_kind(likelihoods[-1])
        self.n_outputs_ = targets.shape[1]
        standardize = bool(self.standardize) and isinstance(likelihoods[-1], RealLikelihood)
        self.target_scaling_ = TargetScaling.fit(targets, weights, standardize=standardize)
        self._fit_rows(
            inputs,
            self.target_scaling_.transform(targets),
            weights=weights,
            likelihoods=likelihoods,
            n_targets=self.n_outputs_,
            units=self.target_scaling_,
            about_y=self.target_scaling_.describe(),
            settings=settings,
        )
        return self

    def predict(self, X: npt.ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean of new targets.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        return_std : bool
            Whether to return the standard deviation of new targets too, noise included; default False.

        Returns
        -------
        mean : ndarray of float64, shape (n,), or (n, t) if y had columns
        std : ndarray of the same shape
            Only if `return_std`.
        """
        if not return_std:
            mean = self._each(X, lambda mixture: mixture.mean())
            return self.target_scaling_.inverse_target(mean)
        both = self._each(X, lambda mixture: np.stack([mixture.mean(), mixture.sd()], axis=-1))
        return self.target_scaling_.inverse_target(both[..., 0]), both[..., 1] * self.target_scaling_.target_scale

    def predict_interval(self, X: npt.ArrayLike, coverage: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals of new targets, noise included.

        Their ends are quantiles of the posterior predictive distribution, without Monte Carlo error of the noise.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        coverage : float
            Probability of the intervals, in (0, 1); default 0.95.

        Returns
        -------
        lower, upper : ndarray of float64, shape (n,), or (n, t) if y had columns

        Raises
        ------
        ValueError
            If `coverage` is outside (0, 1).
        """
        check_probability(coverage, "coverage")
        ends = self._each(X, lambda mixture: np.stack(mixture.interval(coverage), axis=-1))
        return self.target_scaling_.inverse_target(ends[..., 0]), self.target_scaling_.inverse_target(ends[..., 1])

    def predict_quantiles(self, X: npt.ArrayLike, quantiles: float | Sequence[float] = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of new targets, noise included.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        quantiles : float or sequence of q float
            Probabilities in (0, 1); default (0.05, 0.5, 0.95).

        Returns
        -------
        ndarray of float64, shape (n, q), or (n, t, q) if y had columns

        Raises
        ------
        TypeError, ValueError
            If `quantiles` are not numbers, there is none, or one is outside (0, 1).
        """
        wanted = check_probabilities(quantiles, "quantiles")
        found = self._each(X, lambda mixture: np.stack([mixture.quantile(one) for one in wanted], axis=-1))
        return np.stack([self.target_scaling_.inverse_target(one) for one in np.moveaxis(found, -1, 0)], axis=-1)

    def sample_y(
        self, X: npt.ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> FloatArray:
        """Draw new targets from the posterior predictive distribution.

        A sample is one function of the posterior at all rows, with independent noise.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        n_samples : int
            Number of samples, at least 1; default 1. Up to the number of draws, each is another draw.
        random_state : int, RandomState or None
            Of the choice of draws and of the noise; default 0.

        Returns
        -------
        ndarray of float64, shape (n, n_samples), or (n, t, n_samples) if y had columns
        """
        inputs = self._inputs(X)
        samples = sampled_targets(self.draws_, inputs, n_samples, random_state)
        values = samples if self._y_has_columns else samples[:, 0]
        return np.stack([self.target_scaling_.inverse_target(one) for one in np.moveaxis(values, -1, 0)], axis=-1)

    def predict_uncertainty(self, X: npt.ArrayLike) -> Uncertainty:
        """Split the variance of new targets into noise and what the parameters leave open.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        Uncertainty
            Variances in the units of y squared: total, aleatoric (the mean noise variance) and epistemic (the variance
            of the function over draws), each of shape (n,), or (n, t) if y had columns.
        """
        parts = self._each(X, lambda mixture: np.stack([mixture.sd() ** 2, mixture.sd_f() ** 2], axis=-1))
        total, epistemic = (parts[..., index] * self.target_scaling_.target_scale**2 for index in (0, 1))
        return Uncertainty(total, total - epistemic, epistemic)

    def _each(self, X: npt.ArrayLike, value_of: Callable[[TargetMixture], FloatArray]) -> FloatArray:
        """Return a value (n, ...) of each row's predictive distribution, or (n, t, ...) if y had columns.

        It is that of the network's targets, which are standardised.
        """
        inputs = self._inputs(X)
        by_target = []
        for target in range(self.n_outputs_):
            blocks: Iterator[tuple[slice, TargetMixture]]
            blocks = self.draws_.predictive_mixtures(inputs, target)
            by_target.append(np.concatenate([value_of(mixture) for _, mixture in blocks]))
        return np.stack(by_target, axis=1) if self._y_has_columns else by_target[0]


def _check_kind(likelihood: Any) -> None:
    """Raise TypeError unless a likelihood is one of numbers."""
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood must be a Likelihood, such as Gaussian('sampled'); got {likelihood!r}.")
    if likelihood.targets not in ("real", "count"):
        raise TypeError(f"likelihood must be one of numbers; got {likelihood!r}. For labels use PatracClassifier.")
