"""What the estimators have in common: parameters, the fit of checked rows, files and pickles."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.array_fit import fit_arrays
from patrac_native.fit.estimator_report import FitReport
from patrac_native.fit.estimator_settings import EstimatorSettings, settings_of
from patrac_native.fit.files import fitted_from_arrays, fitted_to_arrays
from patrac_native.fit.fit_data import FitArrays, TargetUnits
from patrac_native.fit.scaling import InputScaling
from patrac_native.fit.tuning import Choice
from patrac_native.kernels import Kernel
from patrac_native.likelihoods import Likelihood
from patrac_native.network.files import load_arrays, save_arrays
from patrac_native.posterior.posterior import Posterior
from patrac_native.sampling.warmup import Warmup
from patrac_native.validation.checks import FloatArray, refuse_masked

# What files of estimators hold, in words.
_KIND = "an estimator"


class PatracEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators; see `PatracRegressor` and `PatracClassifier`."""

    draws_: Draws | DrawsMixture
    posteriors_: list[Posterior]
    report_: FitReport
    input_scaling_: InputScaling
    n_iter_: int

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
        chains: int | None = None,
        draws: int | None = None,
        thin: int | None = None,
        warmup: int | str | Warmup | None = None,
        kernel: str | Kernel = "auto",
        device: str = "cpu",
        dtype: str = "float32",
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.l2 = l2
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.architecture = architecture
        self.k = k
        self.prior = prior
        self.prior_alpha = prior_alpha
        self.networks = networks
        self.likelihood = likelihood
        self.minutes = minutes
        self.chains = chains
        self.draws = draws
        self.thin = thin
        self.warmup = warmup
        self.kernel = kernel
        self.device = device
        self.dtype = dtype
        self.standardize = standardize
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def posterior_(self) -> Posterior:
        """The posterior of the first network, whose inputs and targets are standardised.

        Pickles and files do not hold it, because it holds the training rows.
        """
        check_is_fitted(self)
        if not hasattr(self, "posteriors_"):
            raise AttributeError(
                f"posterior_ is not part of the files and pickles of {type(self).__name__}, because it holds the "
                "training rows: fit again to have it."
            )
        return self.posteriors_[0]

    def _settings(self) -> EstimatorSettings:
        """Return the checked settings of a fit; raise TypeError or ValueError if a parameter is not as described."""
        if not isinstance(self.standardize, bool | np.bool_):
            raise TypeError(f"standardize must be True or False; got {self.standardize!r}.")
        return settings_of(self.get_params(deep=False))

    def _weighted_rows(
        self, X: FloatArray, y: npt.NDArray[Any], sample_weight: npt.ArrayLike | None
    ) -> tuple[FloatArray, npt.NDArray[Any], FloatArray | None]:
        """Return the rows of positive weight and their weights (n,), None if all weights are one.

        Raises
        ------
        ValueError
            If the weights are invalid, or all are zero.
        """
        if sample_weight is None:
            return X, y, None
        refuse_masked(sample_weight, "sample_weight")
        weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if not weights.any():
            raise ValueError("sample_weight is zero for every row; give at least one row a positive weight.")
        if (weights == 1).all():
            return X, y, None
        used = np.flatnonzero(weights)
        return X[used], y[used], weights[used]

    def _feature_names(self) -> list[str]:
        """Return the names of the columns of X, which are their numbers if X had none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"column {index}" for index in range(self.n_features_in_)] if names is None else [str(n) for n in names]

    def _fit_rows(
        self,
        X: FloatArray,
        y: Any,
        *,
        weights: FloatArray | None,
        likelihoods: Sequence[Likelihood],
        n_targets: int,
        units: TargetUnits,
        about_y: str,
        settings: EstimatorSettings,
    ) -> None:
        """Fit rows whose targets are standardised, set the attributes of a fitted estimator, and warn.

        The rows are those that `_weighted_rows` returns; the likelihoods are those of the targets in their units.
        """
        names = self._feature_names()
        self.input_scaling_ = InputScaling.fit(X, weights, names, standardize=bool(self.standardize))
        inputs = self.input_scaling_.transform(X)
        lines: list[str] = []

        def say(line: str) -> None:
            lines.append(line)
            if self.verbose:
                print(line, flush=True)

        say(self.input_scaling_.describe(names))
        say(about_y)
        arrays = FitArrays(inputs, y, inputs[:0], y[:0], n_targets, units, weights)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            fit = fit_arrays(arrays, likelihoods, settings, details=False, say=say)
        self.draws_ = fit.draws
        self.posteriors_ = list(fit.posteriors)
        self.n_iter_ = Choice.of(fit.draws.members[0].network.net).epochs
        self.report_ = FitReport.of(fit, lines)
        if self.verbose:
            print(self.report_.results(), flush=True)
        _warn_again(caught)
        if self.report_.needs_warning:
            category = UserWarning if self.report_.converged else ConvergenceWarning
            what = "the draws should be looked at" if self.report_.converged else "the chains have not converged"
            warnings.warn(f"{type(self).__name__}: {what}. {self.report_.verdict}", category, stacklevel=3)

    def _inputs(self, X: npt.ArrayLike) -> FloatArray:
        """Return the inputs of the network for checked rows of X."""
        check_is_fitted(self)
        refuse_masked(X, "X")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self.input_scaling_.transform(rows)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted estimator to one .npz file, without pickle and without the training rows.

        Parameters
        ----------
        path : path-like
            Used as given; no file name extension is added.
        overwrite : bool
            Whether an existing file may be replaced; default False.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        OSError
            If the file exists and may not be replaced, or cannot be written.
        """
        check_is_fitted(self)
        content, arrays = fitted_to_arrays(self)
        save_arrays(path, _KIND, content, arrays, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that `save` wrote.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        PatracRegressor or PatracClassifier
            It predicts to the bit as the saved one did. A `random_state` that was a generator is None.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, is of another version, or holds an estimator of another class.
        """
        content, arrays = load_arrays(path, _KIND)
        if content["class"] != cls.__name__:
            raise ValueError(f"{os.fspath(path)} holds a {content['class']}; read it with {content['class']}.load.")
        made = cls()
        fitted_from_arrays(made, content, arrays)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a pickle: everything but the posteriors, which hold the training rows."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("posteriors_", None)
        return state


def _warn_again(caught: Sequence[warnings.WarningMessage]) -> None:
    """Give the warnings of a fit: those for the user at the line that called `fit`, others where they arose."""
    for message in dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)):
        warnings.warn(message, UserWarning, stacklevel=4)
    for one in caught:
        if not issubclass(one.category, UserWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
