"""A classification with calibrated probabilities: the estimator of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from patrac_native import diagnostics
from patrac_native.fit.base import PatracEstimator
from patrac_native.fit.sampled_targets import sampled_targets
from patrac_native.fit.scaling import TargetScaling
from patrac_native.fit.uncertainty import Uncertainty
from patrac_native.likelihoods import Categorical
from patrac_native.validation.checks import FloatArray, refuse_masked


class PatracClassifier(ClassifierMixin, PatracEstimator):  # type: ignore[misc]
    """A partially Bayesian network for classification, with probabilities and their uncertainty.

    It trains networks, chooses a posterior and samples it as `patrac fit --test-fraction 0` does. Parameters named as
    in `sklearn.neural_network.MLPClassifier` mean the same.

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
        Which parameters are Bayesian; default "auto": "out" with all nodes of the last hidden layer, of five networks,
        or "full", by short runs that are scored on validation rows. A given `k` means "mix".
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
        `Categorical()`, the default, or `Categorical(scale)`.
    minutes : float
        Budget of the fit on a nominal machine of two cores, > 0; default 0.1. Beyond 0.1 it includes the training. It
        determines the number of steps through the number of operations of a step and never through a clock, so that a
        seed gives the same draws everywhere. The
        chains of one network end earlier once f, at 100 training rows, has an R-hat of at most 1.01 and 400 effective
        draws.
    chains : int, optional
        Number of chains of each network's posterior, >= 1; default 4 for one network, 2 for several.
    draws : int, optional
        Number of draws of each chain, >= 4; default 500 for one network, 250 for several.
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
        Whether the columns of X are standardised; default True. Constant columns are then left out.
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
    classes_ : ndarray, shape (m,)
        The labels, sorted.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    draws_ : Draws or DrawsMixture
        The posterior draws, a mixture if there are several networks. Their inputs are those of the network:
        `est.draws_.predict(est.input_scaling_.transform(X))`.
    posterior_ : Posterior
        The posterior of the first network; `posteriors_` are those of all. Files and pickles do not hold them.
    report_ : FitReport
        What was chosen and why, the verdict on the chains with remedies, and scores; its string is a report.
    input_scaling_ : InputScaling
        Mean and scale of each column of X that is not constant.
    n_iter_ : int
        Number of training epochs of the first network.

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

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Train, choose and sample.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
            Finite numbers.
        y : array_like, shape (n,)
            Labels: numbers or text, of at least two classes.
        sample_weight : array_like, shape (n,), optional
            Nonnegative weights, which count a row as that many rows in scaling, training, the choice of the penalty and
            of the posterior, and the posterior. Default ones.

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
            If the chains disagree; the message has the remedy.
        UserWarning
            If the draws should not be used for another reason, or as `train` and `sample`.
        """
        settings = self._settings()
        likelihood = Categorical() if self.likelihood is None else self.likelihood
        if not isinstance(likelihood, Categorical):
            raise TypeError(f"likelihood must be Categorical() or Categorical(scale); got {likelihood!r}.")
        # scikit-learn would use the values behind a mask.
        refuse_masked(X, "X")
        refuse_masked(y, "y")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        inputs, labels, weights = self._weighted_rows(np.asarray(X), labels.reshape(-1).astype(np.int64), sample_weight)
        counts = np.bincount(labels, minlength=len(self.classes_))
        if (counts > 0).sum() < 2:
            only = self.classes_.tolist()[counts.argmax()]
            raise ValueError(
                f"y has one class only, {only!r}, in the rows of positive weight; give rows of at least two classes."
            )
        shown = ", ".join(f"{label} ({count})" for label, count in zip(self.classes_[:20], counts, strict=False))
        self._fit_rows(
            inputs,
            labels,
            weights=weights,
            likelihoods=[likelihood],
            n_targets=len(self.classes_),
            units=TargetScaling(np.zeros(1), np.ones(1)),
            about_y=f"y: {len(self.classes_)} classes, {shown}{', ...' * (len(self.classes_) > 20)}",
            settings=settings,
        )
        return self

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Predict the probability of each class, the mean over the posterior draws.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        ndarray of float64, shape (n, m)
            The columns are in the order of `classes_`.
        """
        inputs = self._inputs(X)
        blocks = [
            self.draws_.likelihood.probabilities(f).mean(axis=(0, 1)) for _, f in self.draws_.predict_blocks(inputs)
        ]
        mean = np.concatenate(blocks)
        normalised: FloatArray = mean / mean.sum(axis=1, keepdims=True)
        return normalised

    def predict_log_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Predict the logarithm of the probability of each class; see `predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithm: FloatArray = np.log(self.predict_proba(X))
        return logarithm

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Predict the label with the largest probability.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        ndarray, shape (n,)
        """
        labels: npt.NDArray[Any] = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[labels])

    def sample_y(
        self, X: npt.ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
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
        inputs = self._inputs(X)
        labels = sampled_targets(self.draws_, inputs, n_samples, random_state)[:, 0]
        return np.asarray(self.classes_[labels])

    def predict_uncertainty(self, X: npt.ArrayLike) -> Uncertainty:
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
        inputs = self._inputs(X)
        parts = [
            np.stack(diagnostics.entropy_decomposition(self.draws_.likelihood.probabilities(f)))
            for _, f in self.draws_.predict_blocks(inputs)
        ]
        total, aleatoric, epistemic = np.concatenate(parts, axis=1)
        return Uncertainty(total, aleatoric, epistemic)
