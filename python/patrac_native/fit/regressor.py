"""A regression with intervals: the estimator of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array

import patrac_native as pn
from patrac_native.fit.base import (
    PatracEstimator,
    Uncertainty,
    documented,
    readable,
    whole_or_not_at_all,
    with_event,
)
from patrac_native.fit.choice import may_choose
from patrac_native.fit.noise import are_counts, best_noise, dispersion_of, is_coarse, may_take_log, noise_trials
from patrac_native.fit.preprocessor import refuse_dates
from patrac_native.fit.rows import FloatArray, Rows, TargetScaling
from patrac_native.fit.settings import NUMBERS, Likelihood, Settings


@documented
class PatracRegressor(MultiOutputMixin, RegressorMixin, PatracEstimator):  # type: ignore[misc]
    """A partially Bayesian network for regression, with intervals, quantiles and samples of new targets.

    It trains networks, chooses a posterior and samples it; `patrac fit` is this estimator on a table. Parameters named
    as in `sklearn.neural_network.MLPRegressor` mean the same.

    Parameters
    ----------
    {parameters}
    likelihood : Likelihood or {"gaussian", "student-t", "heteroscedastic", "poisson", "negative-binomial", \
            "discrete-values", "censored"}
        Distribution of the targets, in the units of y: an object such as `Gaussian("sampled")`, or a name. "gaussian"
        is the same noise in all rows, "student-t" noise with outliers, "heteroscedastic" noise that depends on the
        inputs; "poisson" and "negative-binomial" are of counts, the latter of those that vary more; "discrete-values"
        has a probability for each value of the training rows, of which few differ (`DiscreteValues`); "censored" is
        "gaussian" of targets y (n, 2) of which lower and upper bounds are known, or of times y (n,) with `event` in
        `fit`. By default networks alone, trained on folds of at most 5,000 rows, tell by left-out rows whether there
        are counts ("negative-binomial", where all targets are whole and none is negative) or few values
        ("discrete-values", where at most 20 differ, each in five rows or more), outliers ("student-t", where residuals
        have its tails), and whether log y is predicted better (`log_target`). Otherwise it is "heteroscedastic" if a
        short run of it is convincing on validation rows, else the better of it and "gaussian", of which networks alone
        tell where `minutes` do not pay for such runs. It is "gaussian" where the architecture, `thin`, another device
        than the CPU or a kernel is given, and with fewer than 100 rows; noise that depends on the inputs is not tried
        where values stand far apart, such as whole numbers from 3 to 8.
    log_target : bool, optional
        Whether the likelihood is that of log y: all targets must be positive, and noise is then a factor. Predictions
        are in the units of y all the same, and `likelihood`, `noise_variance` and the fitted function are of log y. By
        default, where `likelihood` is left open, it is chosen with it if the largest target is more than twice the
        smallest; of times with `event` it is True if all are positive and no variance is given; else False.
    noise_variance : float, optional
        Of "gaussian" and "censored": the variance in the units of y squared, > 0; by default it is sampled.
    df : float, optional
        Of "student-t": degrees of freedom, from 1 to 1e8; default 4. The scale is sampled.
    dispersion : float, optional
        Of "negative-binomial", whose variance is mean + dispersion mean^2: at least 1e-8; by default it is estimated on
        rows that are left out in turn.
    exposure : str or int, optional
        Of counts: the column of X that holds the exposure, positive numbers to which the mean count is proportional,
        such as a time or a population. It is no input. It can be an argument of `fit` and `predict` instead.

    Attributes
    ----------
    {attributes}
    target_scaling_ : TargetScaling
        Mean and scale of each target.
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

    n_outputs_: int
    _numbers_per_target: int

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (50, 50),
        activation: str = "tanh",
        *,
        l2: float | None = None,
        max_iter: int | None = None,
        validation_fraction: float | None = None,
        architecture: str = "auto",
        k: int | Sequence[int] | None = None,
        prior: str = "auto",
        prior_alpha: float | None = None,
        networks: int | None = None,
        likelihood: Likelihood | str | None = None,
        log_target: bool | None = None,
        noise_variance: float | None = None,
        df: float | None = None,
        dispersion: float | None = None,
        exposure: str | int | None = None,
        minutes: float = 0.1,
        precision: float | None = None,
        chains: int | None = None,
        draws: int | None = None,
        thin: int | None = None,
        warmup: int | str | pn.Warmup | None = None,
        kernel: Any = "auto",
        device: str = "cpu",
        dtype: str = "float32",
        categorical: Sequence[str | int] = (),
        dates: Sequence[str | int] = (),
        drop: Sequence[str | int] = (),
        ids: Sequence[str | int] = (),
        impute: str | None = None,
        missing_indicator: bool = False,
        pca: int | str = "auto",
        bins: int | str = "auto",
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        store: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
    ) -> None:
        self._keep(locals())

    @whole_or_not_at_all
    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        *,
        event: npt.ArrayLike | None = None,
        exposure: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
        held_out: tuple[Any, ...] | None = None,
    ) -> Self:
        """Train, choose and sample.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
            Numbers; in a data frame also categories and dates. Missing values need `impute`.
        y : array_like, shape (n,) or (n, t)
            Targets, finite; not constant. With likelihood="censored" the bounds of each, (n, 2) or (n, t, 2), of which
            one may be infinite.
        sample_weight : array_like, shape (n,), optional
            Nonnegative weights, which count a row as that many rows in scaling, training, the choice of the penalty and
            of the posterior, and the posterior. Default ones.
        event : array_like, shape (n,), optional
            Of times y (n,): 1 or True where y is the time of the event, 0 or False where the event would have come
            later, so that the row is censored. The likelihood is then "censored", by default of log y
            (`log_target`) if all times are positive and no variance is given: log-normal survival regression.
        exposure : array_like, shape (n,), optional
            Of counts: positive numbers to which their means are proportional; by default the column `exposure` of X, or
            ones.
        groups : array_like, shape (n,), optional
            Labels of groups, such as patients, none missing, whose rows stay together wherever the fit leaves rows out:
            in the choice of penalty, noise and posterior. By default copies of a row do.
        held_out : (X, y), (X, y, event) or (X, y, exposure), optional
            Rows that are not trained on. The scores of `report_` are theirs, the verdict rests on them, and convergence
            is checked at them. By default scores and verdict are those of rows that a shorter run left out, or of
            leave-one-out predictions; these do not count in the verdict where they are too good: `architecture` fixes
            parameters, which were trained on the rows, others of their groups stay, or weights are unreliable.

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
            If the chains disagree and predictions are not good; the message has the remedy.
        UserWarning
            If predictions should not be used for another reason, or as `train` and `sample`.
        """
        settings = Settings.of(self.get_params(deep=False), type(self).__name__)
        if event is not None:
            settings, y, held_out = _of_times(settings, y, event, held_out)
        likelihoods = settings.likelihoods(dispersion=1.0)  # estimated later, if it is not given
        if getattr(likelihoods[-1], "targets", None) not in NUMBERS:
            raise TypeError(
                f"likelihood must be one of numbers, such as Gaussian('sampled'); got {likelihoods[-1]!r}. For labels "
                "use PatracClassifier."
            )
        if not (likelihoods[-1].takes_offset or (exposure is None and self.exposure is None)):
            raise ValueError(f"exposure belongs to a likelihood of counts, and the likelihood is {likelihoods[-1]!r}.")
        self._fit(X, y, sample_weight, held_out, likelihoods, settings, exposure, groups)
        return self

    def _first_targets(self, y: Any, likelihood: Likelihood) -> npt.NDArray[Any]:
        """Return the targets (n, t), or (n, t, q) of q numbers each, and set their number."""
        self._numbers_per_target = likelihood.numbers_per_target
        targets, self._y_has_columns = _numbers(y, self._numbers_per_target)
        self.n_outputs_ = targets.shape[1]
        if self._numbers_per_target > 1:  # before their scale is computed from them
            bounds = np.asarray(likelihood.check_targets(targets, len(targets), self.n_outputs_))
            for end, side in enumerate(("below", "above")):
                if np.isinf(bounds[..., end]).all(axis=0).any():
                    raise ValueError(
                        f"y has no bound {side} in any row: nothing tells how large it is. Give rows that are not "
                        "censored, of times rows with an event."
                    )
            return bounds
        return targets

    def _kind_of_noise(
        self,
        rows: Rows,
        unseen: Rows | None,
        likelihoods: Sequence[Likelihood],
        settings: Settings,
        say: Callable[[str], None],
    ) -> tuple[Sequence[Likelihood], Likelihood | None, Settings]:
        """Take the kind of noise by which networks predict left-out rows best, if there is a choice.

        It is settled that way whether there are counts or few values, or a target whose logarithm is predicted better,
        and whether noise that is the same in all rows has outliers; whether it is the same is chosen later, by pilot
        runs if the budget pays for them.
        """
        given = settings.log_target
        # Held-out targets must be possible too.
        y = rows.y if unseen is None else np.concatenate([rows.y, unseen.y])
        logs = self._tried_logs(y, likelihoods, settings)
        settings = replace(settings, log_target=bool(given))
        likelihoods = [one.for_training_targets(rows.y) for one in likelihoods]
        if not _is_open(rows.y, likelihoods, settings):
            return likelihoods, None, settings
        weights, standardize = rows.sample_weight, self.standardize
        scalings = [TargetScaling.fit(rows.y, weights, standardize=standardize, log=log) for log in logs]
        counts = replace(settings, likelihood="negative-binomial")
        of_counts = counts.likelihoods(dispersion=1.0)
        may_count = are_counts(y) and not given
        trials = noise_trials(rows, scalings, likelihoods, of_counts[0] if may_count else None, settings)
        if len(trials) < 2:
            return likelihoods, None, settings
        best = best_noise(trials, say)
        if best.kind.targets == "value":
            return [best.kind], None, settings
        if best.kind.targets == "count":
            dispersion, text = dispersion_of(best)
            say(f"  {text}")
            counts = replace(counts, dispersion=dispersion)
            return counts.likelihoods(), None, counts
        settings = replace(settings, log_target=best.of_log)
        kept = [one for one in likelihoods if one.label == best.kind.label]
        if kept:
            return likelihoods, kept[0], settings
        # Networks tell little of noise of each row where their own errors are large beside it: pilot runs may take it.
        return [*([] if is_coarse(rows.y) else likelihoods[:-1]), best.kind], best.kind, settings

    def _tried_logs(self, y: FloatArray, likelihoods: Sequence[Likelihood], settings: Settings) -> list[bool]:
        """Return whether a fit is one of log y, or both if that is to be chosen."""
        if settings.log_target is None and _is_open(y, likelihoods, settings) and may_take_log(y):
            return [False, True]
        return [bool(settings.log_target)]

    def _scaled_targets(
        self, targets: npt.NDArray[Any], weights: FloatArray | None, likelihood: Likelihood, settings: Settings
    ) -> tuple[npt.NDArray[Any], int, str]:
        """Return the standardised targets, or counts as they are, their number, and the scaling in words."""
        log = bool(settings.log_target)
        if log and likelihood.targets != "real":
            raise ValueError(f"log_target belongs to a likelihood of numbers, and the likelihood is {likelihood!r}.")
        is_standardized = self.standardize and likelihood.targets == "real"
        scaling = TargetScaling.fit(likelihood.typical(targets), weights, standardize=is_standardized, log=log)
        self.target_scaling_ = scaling
        censored = int((~likelihood.is_known(targets)).any(axis=1).sum())
        of_rows = f"; {censored} of {len(targets)} are censored" if censored else ""
        return scaling.transform(targets), self.n_outputs_, f"{scaling.describe()}{of_rows}"

    def score(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None, *, event: npt.ArrayLike | None = None
    ) -> float:
        """Return R2 of the mean or, where targets have bounds, the mean log predictive density of rows, in units of y.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        y : array_like
            Targets, of the shape that was fitted.
        sample_weight : array_like, shape (n,), optional
            Weights of the rows; default ones.
        event : array_like, shape (n,), optional
            Of times, as for `fit`.

        Returns
        -------
        float
            Larger is better.
        """
        if self._numbers_per_target == 1 and event is None:
            return float(super().score(X, y, sample_weight))
        return -float(self.evaluate(X, y, sample_weight, event=event).scores["nlpd_in_units"])

    def _observed(self, y: Any) -> npt.NDArray[Any]:
        """Return observed targets (n, t) in their units."""
        targets, _ = _numbers(y, self._numbers_per_target)
        if targets.shape[1] != self.n_outputs_:
            raise ValueError(f"y must have {self.n_outputs_} targets, as in the fit; got {targets.shape[1]}.")
        return targets

    def _scaled(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets as the network has them."""
        return self.target_scaling_.transform(targets)

    def predict(
        self, X: Any, return_std: bool = False, *, exposure: npt.ArrayLike | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean of new targets.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        return_std : bool
            Whether to return the standard deviation of new targets too, noise included; default False.
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        mean : ndarray of float64, shape (n,), or (n, t) if y had columns
        std : ndarray of the same shape
            Only if `return_std`.
        """
        found, scaling = self._distribution(X, exposure), self.target_scaling_
        if not return_std:
            return self._columns(scaling.mean_of(found))
        # Both from one evaluation of the networks.
        parts = [scaling.moments(part) for _, part in found.blocks()]
        mean, variance = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
        return self._columns(mean), self._columns(np.sqrt(variance))

    def predict_interval(
        self, X: Any, coverage: float = 0.95, *, exposure: npt.ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals of new targets, noise included.

        Their ends are quantiles of the posterior predictive distribution, without Monte Carlo error of the noise. Those
        of counts are whole numbers.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        coverage : float
            Probability of the intervals, in (0, 1); default 0.95.
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        lower, upper : ndarray of float64, shape (n,), or (n, t) if y had columns

        Raises
        ------
        ValueError
            If `coverage` is outside (0, 1).
        """
        lower, upper = self._distribution(X, exposure).interval(coverage)
        return self._in_units(lower), self._in_units(upper)

    def predict_quantiles(
        self,
        X: Any,
        quantiles: float | Sequence[float] = (0.05, 0.5, 0.95),
        *,
        exposure: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Predict quantiles of new targets, noise included.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        quantiles : float or sequence of q float
            Probabilities in (0, 1); default (0.05, 0.5, 0.95).
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        ndarray of float64, shape (n, q), or (n, t, q) if y had columns

        Raises
        ------
        TypeError, ValueError
            If `quantiles` are not numbers, there is none, or one is outside (0, 1).
        """
        wanted = np.asarray(quantiles)
        if wanted.dtype.kind not in "fiu":
            raise TypeError(f"quantiles must be numbers; got {quantiles!r}.")
        if wanted.size == 0 or not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(f"quantiles must be between 0 and 1; got {quantiles!r}. Write 0.05 for 5%.")
        found = self._distribution(X, exposure).quantiles(wanted.reshape(-1).tolist())
        return np.stack([self._in_units(one) for one in np.moveaxis(found, -1, 0)], axis=-1)

    def predict_survival_function(
        self, X: Any, times: float | Sequence[float], *, exposure: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Predict the probabilities that new targets exceed some values, such as that an event comes after some times.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        times : float or sequence of k float
            Values in the units of y, finite. Those that no target can be below, such as 0 in a fit of log y, are
            exceeded with probability 1; counts exceed a fraction if they exceed its whole part.
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        ndarray of float64, shape (n, k), or (n, t, k) if y had columns

        Raises
        ------
        ValueError
            If a value is not as described.
        """
        found, each, scaling = self._distribution(X, exposure), self._numbers_per_target, self.target_scaling_
        try:
            values = check_array(np.reshape(readable(times, "times"), (-1,)), ensure_2d=False, dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"times must be finite numbers, at least one: {error}") from None
        is_possible = values > 0 if scaling.log else np.full(values.shape, True)
        if found.likelihood.targets == "count":
            values, is_possible = np.floor(values), values >= 0
        shape = (found.n_rows, self.n_outputs_)
        later = np.ones((*shape, len(values)))
        for index in np.flatnonzero(is_possible):
            targets = np.full((*shape, *([each] if each > 1 else [])), values[index])
            later[..., index] = 1.0 - found.cdf(scaling.transform(targets))
        return self._columns(later)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        *,
        exposure: npt.ArrayLike | None = None,
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
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        ndarray of float64, shape (n, n_samples), or (n, t, n_samples) if y had columns
        """
        samples = self._samples(self._distribution(X, exposure), n_samples, random_state)
        return np.stack([self._in_units(one) for one in samples], axis=-1)

    def predict_uncertainty(self, X: Any, *, exposure: npt.ArrayLike | None = None) -> Uncertainty:
        """Split the variance of new targets into noise and what the parameters leave open.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        exposure : array_like, shape (n,), optional
            Of counts, as for `fit`.

        Returns
        -------
        Uncertainty
            Variances in the units of y squared: total, aleatoric (the mean noise variance) and epistemic (the variance
            of the function over draws), each of shape (n,), or (n, t) if y had columns.
        """
        parts = [self.target_scaling_.moments(part) for _, part in self._distribution(X, exposure).blocks()]
        aleatoric = self._columns(np.concatenate([part.noise_variance for part in parts]))
        epistemic = self._columns(np.concatenate([part.epistemic_variance for part in parts]))
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def _check_parts(self, net: pn.Network) -> None:
        """Raise ValueError, or AttributeError, unless the targets' attributes are those of a network and its draws."""
        likelihood, scaling = self.draws_.likelihood, self.target_scaling_
        targets = likelihood.n_targets(net.layer_sizes[-1])
        numbers = (self.n_outputs_, self._numbers_per_target, len(scaling.scale))
        is_flat = not self._y_has_columns and targets > 1
        if numbers != (targets, likelihood.numbers_per_target, targets) or is_flat:
            raise ValueError("its targets are not those of its network")

    def _in_units(self, values: FloatArray) -> FloatArray:
        """Convert targets of the network (n, t) to the units of y: (n,), or (n, t) if y had columns."""
        return self._columns(self.target_scaling_.inverse(values))

    def _columns(self, values: FloatArray) -> FloatArray:
        """Return values (n, t) of each target as (n,), or as they are if y had columns."""
        return values if self._y_has_columns else values[:, 0]


def _is_open(y: FloatArray, likelihoods: Sequence[Likelihood], settings: Settings) -> bool:
    """Return whether networks choose the kind of noise of targets y (n, t)."""
    return len(likelihoods) > 1 and may_choose(settings, len(y)) and y.shape[1] == 1


def _of_times(
    settings: Settings, y: Any, event: Any, held_out: tuple[Any, ...] | None
) -> tuple[Settings, FloatArray, tuple[Any, ...] | None]:
    """Return the settings of a fit to times of which some are censored, with their bounds in place of the times."""
    likelihood = settings.likelihood
    if getattr(likelihood, "label", likelihood) not in (None, pn.CensoredGaussian.label):
        raise ValueError(f"event belongs to likelihood='censored', and likelihood is {likelihood!r}; leave it out.")
    bounds = with_event(y, event)
    if held_out is not None:
        if not isinstance(held_out, tuple | list) or len(held_out) != 3:
            raise ValueError("held_out must be (X, y, event) where event is given.")
        try:
            held_out = (held_out[0], with_event(*held_out[1:]))
        except ValueError as error:
            raise ValueError(f"held_out: {error}") from None
    log, is_given = settings.log_target, settings.noise_variance is not None
    if log is None and (is_given or not getattr(likelihood, "is_sampled", True)):
        log = False  # a variance that is given is in the units of y
    if log is None:
        log = bool((bounds[:, 0] > 0).all() and (held_out is None or (held_out[1][:, 0] > 0).all()))
    return replace(settings, likelihood=likelihood or pn.CensoredGaussian.label, log_target=log), bounds, held_out


def _numbers(y: Any, each: int) -> tuple[FloatArray, bool]:
    """Return targets (n, t), or (n, t, each) if each has several numbers, and whether y had an axis for targets."""
    y = readable(y, "y")
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    refuse_dates(y, "y", "give numbers, such as days since the first")
    # Bounds of a target may be infinite; the likelihood checks them.
    options = {"allow_nd": each > 1, "ensure_all_finite": each == 1, "input_name": "y"}
    try:
        found = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, **options))
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(f"y must hold numbers: {error}; make numbers of text, such as days of dates.") from None
    axes = 1 if each == 1 else 2
    if found.ndim not in (axes, axes + 1) or (each > 1 and found.shape[-1] != each):
        several = f", {each}), or (n, t, {each})" if each > 1 else "), or (n, t)"
        of_times = "; of times (n,) give event too" if each > 1 else ""
        raise ValueError(f"y must have shape (n{several} for t targets; got {found.shape}{of_times}.")
    shape = (len(found), -1) if each == 1 else (len(found), -1, each)
    return found.reshape(shape), found.ndim > axes
