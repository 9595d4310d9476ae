"""A classification with calibrated probabilities: the estimator of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

import patrac_native as pn
from patrac_native.fit.base import PatracEstimator, Uncertainty, documented, readable, whole_or_not_at_all
from patrac_native.fit.preprocessor import refuse_dates
from patrac_native.fit.rows import FloatArray, TargetScaling
from patrac_native.fit.settings import Likelihood, Settings


@documented
class PatracClassifier(ClassifierMixin, PatracEstimator):  # type: ignore[misc]
    """A partially Bayesian network for classification, with probabilities and their uncertainty.

    It trains networks, chooses a posterior and samples it; `patrac fit` is this estimator on a table. Parameters named
    as in `sklearn.neural_network.MLPClassifier` mean the same.

    Parameters
    ----------
    {parameters}
    likelihood : Categorical, optional
        `Categorical()`, the default, or `Categorical(scale)`.

    Attributes
    ----------
    {attributes}
    classes_ : ndarray, shape (m,)
        The labels, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "right", "left")
    >>> clf = PatracClassifier(8, l2=0.1, thin=100, draws=50, networks=2, max_iter=200, random_state=0).fit(X, y)
    >>> clf.classes_.tolist(), clf.predict_proba(X).shape
    (['left', 'right'], (80, 2))
    """

    classes_: npt.NDArray[Any]

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
        likelihood: Likelihood | None = None,
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
        groups: npt.ArrayLike | None = None,
        held_out: tuple[Any, ...] | None = None,
    ) -> Self:
        """Train, choose and sample.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
            Numbers; in a data frame also categories and dates. Missing values need `impute`.
        y : array_like, shape (n,)
            Labels: numbers or text, of at least two classes.
        sample_weight : array_like, shape (n,), optional
            Nonnegative weights, which count a row as that many rows in scaling, training, the choice of the penalty and
            of the posterior, and the posterior. Default ones.
        groups : array_like, shape (n,), optional
            Labels of groups, such as patients, none missing, whose rows stay together wherever the fit leaves rows out:
            in the choice of penalty, noise and posterior. By default copies of a row do.
        held_out : (X, y), optional
            Rows that are not trained on, see `PatracRegressor.fit`.

        Returns
        -------
        PatracClassifier
            The estimator itself.

        Raises
        ------
        TypeError, ValueError
            If a parameter or an array is not as described, or there is one class only.
        RuntimeError
            If Ctrl-C was pressed before there were enough draws.

        Warns
        -----
        ConvergenceWarning
            If the chains disagree and predictions are not good; the message has the remedy.
        UserWarning
            If predictions should not be used for another reason, or as `train` and `sample`.
        """
        likelihood = pn.Categorical() if self.likelihood is None else self.likelihood
        if getattr(likelihood, "targets", None) != "class":
            raise TypeError(f"likelihood must be Categorical() or Categorical(scale); got {likelihood!r}.")
        settings = Settings.of(self.get_params(deep=False), type(self).__name__)
        self._fit(X, y, sample_weight, held_out, [likelihood], settings, groups=groups)
        return self

    def _first_targets(self, y: Any, likelihood: Likelihood) -> npt.NDArray[Any]:
        """Return the labels as numbers from 0, and set `classes_`."""
        self.classes_, labels = np.unique(_labels(y), return_inverse=True)
        return labels.reshape(-1).astype(np.int64)

    def _scaled_targets(
        self, targets: npt.NDArray[Any], weights: FloatArray | None, likelihood: Likelihood, settings: Settings
    ) -> tuple[npt.NDArray[Any], int, str]:
        """Return the labels as they are, the number of classes, and how many rows each has; raise for one class."""
        counts = np.bincount(targets, minlength=len(self.classes_))
        if (counts > 0).sum() < 2:
            only = self.classes_.tolist()[counts.argmax()]
            raise ValueError(
                f"y has one class only, {only!r}, in the rows of positive weight; give rows of at least two classes."
            )
        self.target_scaling_ = TargetScaling.identity()
        shown = ", ".join(f"{label} ({count})" for label, count in zip(self.classes_[:20], counts, strict=False))
        about_y = f"y: {len(self.classes_)} classes, {shown}{', ...' * (len(self.classes_) > 20)}"
        return targets, len(self.classes_), about_y

    def _check_parts(self, net: pn.Network) -> None:
        """Raise ValueError, or AttributeError, unless the targets' attributes are those of a network and its draws."""
        is_class, count = self.draws_.likelihood.targets == "class", net.layer_sizes[-1]
        in_order = np.array_equal(np.unique(self.classes_), self.classes_)
        if not (is_class and in_order and count == len(self.classes_)) or self.target_scaling_.scale.tolist() != [1.0]:
            raise ValueError("its classes are not those of its network")

    def _observed(self, y: Any) -> npt.NDArray[Any]:
        """Return observed labels as numbers from 0."""
        labels = _labels(y)
        known = np.isin(labels, self.classes_)
        if not known.all():
            row = int(np.argmin(known))
            raise ValueError(f"y has the unknown class {labels.tolist()[row]!r} in row {row} (counted from 0).")
        return np.searchsorted(self.classes_, labels).astype(np.int64)

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probability of each class, the mean over the posterior draws.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        ndarray of float64, shape (n, m)
            The columns are in the order of `classes_`.
        """
        mean = self._distribution(X).probabilities()
        return np.asarray(mean / mean.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Predict the logarithm of the probability of each class; see `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the label with the largest probability.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        ndarray, shape (n,)
        """
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> npt.NDArray[Any]:
        """Draw new labels from the posterior predictive distribution.

        A sample draws the labels of all rows under one draw of the parameters.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        n_samples : int
            Number of samples, at least 1; default 1. Up to the number of draws, each is another draw.
        random_state : int, RandomState or None
            Of the choice of draws and of the labels; default 0.

        Returns
        -------
        ndarray, shape (n, n_samples)
        """
        labels = self._samples(self._distribution(X), n_samples, random_state)
        return np.asarray(self.classes_[labels.T])

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Split the entropy of the predicted probabilities into ambiguity of the data and what parameters leave open.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        Uncertainty
            Entropies in nats, each of shape (n,): total, of the mean probabilities; aleatoric, the mean over draws of
            each draw's; epistemic, their difference, the mutual information between label and parameters.
        """
        return Uncertainty(*self._distribution(X).entropy())


def _labels(y: Any) -> npt.NDArray[Any]:
    """Return labels (n,); raise ValueError if they are none."""
    y = readable(y, "y")
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    labels = np.asarray(column_or_1d(y, warn=True))
    kinds = {type(label) for label in labels.tolist()} if labels.dtype == object else set()
    missing = pd.isna(labels).tolist() if kinds else [False] * len(labels)
    refuse_dates(
        labels[np.logical_not(missing)], "y", "labels are numbers or text: make them text, as with y.astype(str)"
    )
    if any(missing):
        raise ValueError(
            f"y is missing in row {missing.index(True)} (counted from 0), {sum(missing)} in all; remove those rows."
        )
    if str in kinds and len(kinds) > 1:
        raise ValueError(
            f"y mixes text with {', '.join(sorted(k.__name__ for k in kinds - {str}))}; make all of it text."
        )
    check_classification_targets(labels)
    return labels
