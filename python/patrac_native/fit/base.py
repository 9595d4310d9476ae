"""What the estimators have in common: parameters, the fit of rows, scores, files and pickles."""

from __future__ import annotations

import functools
import io
import json
import math
import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

import patrac_native as pn
from patrac_native.files import (
    check_arrays,
    check_entries,
    check_written_again,
    contents_hash,
    load_arrays,
    rebuilding,
    save_arrays,
)
from patrac_native.files import say as print_line
from patrac_native.fit.bins_choice import choose_bins
from patrac_native.fit.candidates import GRID_ROWS
from patrac_native.fit.components import choose_components
from patrac_native.fit.evaluation import Evaluation, evaluate, members_of, of_fits
from patrac_native.fit.fitting import FitReport, FitResult, fit_rows
from patrac_native.fit.pieces import Pieces
from patrac_native.fit.preprocessor import Preprocessor, as_frame, column_named, refuse_dates
from patrac_native.fit.rows import FitData, FloatArray, Rows, TargetScaling, bounds_of_events
from patrac_native.fit.settings import Likelihood, Settings, check_parameters
from patrac_native.fit.training import Choice
from patrac_native.report import RerunError

_Method = TypeVar("_Method", bound=Callable[..., Any])
# Attributes of fitted estimators that are JSON-able, and arrays with their dtype; not every estimator has each.
_PLAIN: dict[str, Any] = {"n_features_in_": int, "n_iter_": int, "n_outputs_": int, "_y_has_columns": bool}
_PLAIN |= {"_numbers_per_target": int, "exposure_name_": str}
_ARRAYS = ("feature_names_in_", "classes_")
# What a file of an estimator holds, in words and by the types of its entries, and the classes of draws in it.
_KIND = "an estimator"
_ENTRIES: dict[str, Any] = {"patrac_native": str, "class": str, "draws": str}
_ENTRIES |= dict.fromkeys(("parameters", "fitted", "labels", "preprocessor", "targets", "report"), dict)
# The objects that a parameter may be, beside a Warmup.
_OBJECTS: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(pn.PCN, pn.PCNL, pn.MGrad, pn.EllipticalSlice, pn.Exact),
        *(pn.Gaussian, pn.HeteroscedasticGaussian, pn.CensoredGaussian, pn.StudentT, pn.Poisson, pn.NegativeBinomial),
    )
}
_DRAWS: dict[str, Any] = {"Draws": pn.Draws, "DrawsMixture": pn.DrawsMixture}
# What `train` advises in its own arguments, and what an estimator has in their place: where l2 was given, and where it
# was chosen. Networks that follow others get the l2 that was chosen for these.
_ADVICE = {
    "raise patience or max_epochs, or lower l2.": ("Raise max_iter, or lower l2.", "Raise max_iter."),
    "or raise patience or max_epochs.": ("Raise max_iter.", "Raise max_iter."),
    "or lower l2.": ("Lower l2, or leave it out: it is then chosen.", "Give inputs that say more about y."),
    "or give inputs that say more about y.": ("Give inputs that say more about y.",) * 2,
}
_ADVICE = {f"Standardise X and y, change learning_rate, {advice}": own for advice, own in _ADVICE.items()}

# The documentation of the parameters that both estimators have.
PARAMETERS = """hidden_layer_sizes : int or sequence of int
        Widths of the hidden layers, at least one; default (50, 50).
    activation : {"tanh", "relu", "logistic", "gelu", "silu", "sigmoid", "softplus"}
        Default "tanh"; "logistic" is scikit-learn's name of "sigmoid".
    l2 : float, optional
        Penalty of the training, >= 0, as for `train`; by default chosen on validation rows. It is not the `alpha` of
        scikit-learn's MLP, which is a penalty for each row.
    max_iter : int, optional
        Maximum number of training epochs, >= 1; the default depends on the number of rows.
    validation_fraction : float, optional
        Share of the rows by which penalty and number of epochs are chosen, in [0, 1): with fewer than 2,000 rows
        (10,000 of classes) each part of the rows in turn. Default 0.2. With 0 there is no validation: `l2` is 1 unless
        it is given, and training ends when its own loss stops falling.
    architecture : {"auto", "full", "mix", "out", "sep"}
        Which parameters are Bayesian; default "auto": for a regression the best of "full", with noise of each row or
        under either prior with the same noise for all, and of "mix", by short runs that are scored on validation rows,
        or the largest "mix" for which the budget pays; for classes "out" with all nodes of the last hidden layer, of
        eight networks, or "full", chosen alike. A given `k` means "mix".
    k : int or sequence of int, optional
        Number of Bayesian nodes of each hidden layer; by default 5 for "mix" and "sep", 45 for "out", and at most the
        width.
    prior : {"auto", "gaussian", "trace-class"}
        "gaussian": independent normal parameters, whose variances in each layer are sampled; "trace-class": the
        paper's prior, fitted to the network. Default "auto": chosen with the architecture, else "gaussian" for "full"
        and for classes.
    prior_alpha : float, optional
        Rate of decay of the trace-class prior, > 1; by default fitted to the network's weights.
    networks : int, optional
        Number of networks, >= 1, which are trained alike from other random weights and whose posteriors predict as an
        equally weighted mixture; by default 1, and where the architecture is chosen 4 for "mix" and 5 for classes.
    minutes : float
        Budget of the fit on a nominal machine of two cores, > 0; default 0.1. Beyond 0.1 it includes the training, but
        not the comparisons of kinds of noise and of bins, which are made with any budget. It determines the number of
        steps through the number of operations of a step and never through a clock, so that a seed gives the same draws
        everywhere. The chains of one network end earlier once f, at 100 rows, has an R-hat of at most 1.01 and 400
        effective draws.
    precision : float, optional
        Replicates, networks with chains of their own, are added within `minutes` until a rerun would move the ends of
        90% intervals by at most this share of their width (standard deviation, median of up to 100 rows), or
        probabilities of classes by at most this, in (0, 1); default none. The first ones get a quarter of the budget of
        the chains, or less for precisions below 0.025. Of one network whose nodes are partly fixed, chains are added.
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
    categorical : sequence of str or int
        Columns of X, by name or by number, whose values are categories though they are numbers or have many values;
        each category becomes an input of 0 and 1. Text columns of few values are categories anyway. Default none.
    dates : sequence of str or int
        Columns of X that hold dates; the inputs are days. Default none.
    drop : sequence of str or int
        Columns of X that are left out. Default none.
    ids : sequence of str or int
        Columns of X that are not inputs, such as keys; `patrac predict` copies them to its predictions. Default none.
    impute : {"mean", "median"}, optional
        What replaces missing numbers and dates; by default they are an error. Missing categories are one of their own.
    missing_indicator : bool
        Whether each column of numbers with missing values gets a further input, 1 where it is missing; default False.
    pca : int or str
        How many principal components of the standardised inputs the network gets in their place, >= 0; 0 means the
        inputs themselves. Default "auto": components where the inputs are collinear, or more than the rows, and a
        Gaussian process, which takes seconds, predicts left-out rows better by components (with more inputs than rows:
        no worse). Reports speak of the columns all the same.
    bins : int or str
        How many bins each input of three or more values may get, 2 or more; 0 means none. The network then gets, in the
        place of such an input, one for each bin, linear within it and constant beside it (piecewise linear encoding;
        Gorishniy, Rubachev & Babenko 2022), so that it can follow jumps. Default "auto": 16, or 8 where there are many
        inputs, if networks predict left-out rows better by them; compared with 1,000 rows or more, and up to 250 inputs
        with bins, in about twice the time of a training. Principal components have none.
    standardize : bool
        Whether columns of numbers and targets that are numbers are standardised; default True. Constant columns are
        then left out.
    random_state : int, RandomState or None
        Seed of networks and chains, and on the command line of the held-out rows. What a fit chooses from its rows,
        such as noise, penalties and posterior, depends on their order and not on the seed; a fit of the rows in another
        order shows whether the choice is settled. An integer gives the draws of `patrac fit --random-state`, on any
        number of threads; None, the default, draws a seed from NumPy's global generator.
    n_jobs : int, optional
        Number of native threads of training and chains; -1 means all processors. By default all processors, and one
        within a worker of joblib, such as those of GridSearchCV(n_jobs=2).
    verbose : bool
        Whether to print what is done and to show progress bars on a terminal; default False.
    store : path-like, optional
        A folder, made if there is none, in which the fit keeps its work while it goes on (extra `store`): trained
        networks and runs of chains. After a kill or Ctrl-C the same fit with the same folder goes on from there, to the
        bits of a fit without a break; a fit of other rows or parameters is refused. Default none.
    warm_start : bool
        Whether `fit` with a larger `draws` than before lengthens the chains in `store`, of the same rows and other
        parameters; default False. It needs `store`."""
ATTRIBUTES = """n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    draws_ : Draws or DrawsMixture
        The posterior draws, a mixture if there are several networks. Inputs and targets are those of the network:
        `est.draws_.predict(est.preprocessor_.transform(X))`.
    posterior_ : Posterior
        The posterior of the first network. Files and pickles do not hold it.
    report_ : FitReport
        What was chosen and why, the verdict on the chains with remedies, and scores; its string is a report.
    preprocessor_ : Preprocessor
        The conversion of X to inputs of the network.
    n_iter_ : int
        Number of training epochs of the first network."""

_Class = TypeVar("_Class", bound=type)


def documented(cls: _Class) -> _Class:
    """Fill the documentation of common parameters and attributes into that of an estimator."""
    assert cls.__doc__ is not None
    cls.__doc__ = cls.__doc__.replace("{parameters}", PARAMETERS).replace("{attributes}", ATTRIBUTES)
    return cls


class Uncertainty(NamedTuple):
    """The uncertainty of each row's target, split by its cause; total = aleatoric + epistemic.

    Attributes
    ----------
    total : ndarray of float64, shape (n,), or (n, t) for several targets
        Variance of the predictive distribution of a regression, in the target's units squared; entropy of the mean
        probabilities of a classification, in nats.
    aleatoric : ndarray of the same shape
        What would remain with ever more rows: the mean over draws of the noise variance, or of the entropy.
    epistemic : ndarray of the same shape
        What more rows would remove: the variance over draws of the function, or the mutual information between label
        and parameters.
    """

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


class PatracEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of the estimators; see `PatracRegressor` and `PatracClassifier`."""

    draws_: pn.Draws | pn.DrawsMixture
    result_: FitResult
    report_: FitReport
    preprocessor_: Preprocessor
    target_scaling_: TargetScaling
    n_iter_: int
    n_features_in_: int
    classes_: npt.NDArray[Any]
    categorical: Any
    dates: Any
    drop: Any
    ids: Any
    impute: str | None
    missing_indicator: bool
    pca: int | str
    bins: int | str
    standardize: bool
    exposure: str | int | None = None
    store: str | os.PathLike[str] | None
    warm_start: bool
    random_state: Any

    @property
    def posterior_(self) -> pn.Posterior:
        """The posterior of the first network, whose inputs and targets are standardised.

        Pickles and files do not hold it, because it holds the training rows.
        """
        check_is_fitted(self)
        return self._result.posteriors[0]

    @property
    def _result(self) -> FitResult:
        """The result of `fit`; raises AttributeError where the estimator was read from a file or pickle."""
        if not hasattr(self, "result_"):
            raise AttributeError(
                f"posterior_ is not part of the files and pickles of {type(self).__name__}, nor are the training rows: "
                "fit again to have them."
            )
        return self.result_

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Set the parameters to those with which the class was called."""
        for name, value in given.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def _checked_rows(self, X: Any, *, reset: bool, least: int = 1) -> Any:
        """Return X as a data frame, or as float64 (n, d), once scikit-learn has checked it."""
        X = as_frame(readable(X, "X"))
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            if reset:
                validate_data(self, X, skip_check_array=True)
            # The preprocessor matches columns of new rows by their names, in any order.
            if len(X) < least:
                raise ValueError(f"X has {len(X)} sample(s), while a minimum of {least} is required.")
            return X
        refuse_dates(X, "X", "give a data frame and name their column in dates, or make them numbers, such as days")
        finite = True if self.impute is None else "allow-nan"
        options = {"ensure_min_samples": least, "ensure_all_finite": finite}
        return validate_data(self, X, dtype=np.float64, reset=reset, **options)

    def _weights(self, X: Any, sample_weight: npt.ArrayLike | None) -> FloatArray | None:
        """Return the row weights (n,), None if all are one; raise ValueError if they are invalid, or all are zero."""
        if sample_weight is None:
            return None
        given = readable(sample_weight, "sample_weight")
        refuse_dates(given, "sample_weight", "give numbers")
        weights = np.asarray(_check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True))
        with np.errstate(over="ignore"):
            total = weights.sum()
        if not np.isfinite(total):
            raise ValueError(
                f"sample_weight sums to more than float64 holds ({np.finfo(float).max:.2g}); its largest entry is "
                f"{weights.max():.2g}. Bring the weights nearer to 1."
            )
        if not weights.any():
            raise ValueError("sample_weight is zero for every row; give at least one row a positive weight.")
        return None if (weights == 1).all() else weights

    def _offset(self, X: Any, exposure: npt.ArrayLike | None) -> FloatArray | None:
        """Return the logarithm of the exposure of each row, which is a column of X or given; None if there is none."""
        if exposure is None and self.exposure is None:
            return None
        if exposure is None:
            exposure = self._exposure_column(X)
        exposure = readable(exposure, "exposure")
        refuse_dates(exposure, "exposure", "give numbers, such as days")
        values = check_array(exposure, ensure_2d=False, dtype=np.float64, input_name="exposure").reshape(-1)
        check_consistent_length(X, values)
        if (values <= 0).any():
            row = int(np.argmax(values <= 0))
            raise ValueError(f"exposure must be positive; got {values[row]:g} in row {row} (counted from 0).")
        return np.asarray(np.log(values))

    def _exposure_column(self, X: Any) -> Any:
        """Return the column of the exposure: that of the fit, by its name where the fit had a data frame."""
        names = [str(name) for name in (X.columns if hasattr(X, "columns") else range(X.shape[1]))]
        wanted = getattr(self, "exposure_name_", self.exposure)
        self.exposure_name_ = column_named(names, wanted, "exposure", " of X")
        place = names.index(self.exposure_name_)
        return X.iloc[:, place] if hasattr(X, "iloc") else X[:, place]

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None,
        held_out: tuple[Any, ...] | None,
        likelihoods: Sequence[Likelihood],
        settings: Settings,
        exposure: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> None:
        """Fit rows of positive weight, whose targets have one of the likelihoods, set the attributes, and warn."""
        rows = self._checked_rows(X, reset=True, least=2)
        targets = self._first_targets(y, likelihoods[-1])
        check_consistent_length(rows, targets)
        weights, offset = self._weights(rows, sample_weight), self._offset(rows, exposure)
        numbered = None if groups is None else pn.diagnostics.check_groups(readable(groups, "groups"), len(targets))
        if weights is not None and (weights == 0).any():
            used = np.flatnonzero(weights)
            numbered = None if numbered is None else numbered[used]
            rows = rows.iloc[used] if hasattr(rows, "iloc") else rows[used]
            targets, weights, offset = targets[used], weights[used], None if offset is None else offset[used]
        self.preprocessor_ = Preprocessor.fit(
            rows,
            categorical=_listed(self.categorical),
            dates=_listed(self.dates),
            drop=[*_listed(self.drop), *_listed(self.ids), *_listed(self.exposure)],
            impute=self.impute,
            indicator=self.missing_indicator,
            sample_weight=weights,
            standardize=self.standardize,
        )
        lines: list[str] = []

        def say(line: str) -> None:
            lines.append(line)
            if settings.verbose:
                print_line(line)

        for line in (self.preprocessor_.describe(), *self.preprocessor_.notes):
            say(line)
        inputs = self.preprocessor_.transform(rows)
        # Inputs that are not standardised are meant to stay as they are, and bins that are asked for come first.
        pca = self.pca if (self.standardize and self.bins in ("auto", 0)) or self.pca != "auto" else 0
        components, about_components = choose_components(inputs, likelihoods[-1].typical(targets), weights, pca)
        if about_components:
            say(about_components)
        if components is not None:
            self.preprocessor_.encoding = components
            given = Rows(components.transform(inputs), targets, weights, offset, numbered)
        else:
            given = self._binned(Rows(inputs, targets, weights, offset, numbered), likelihoods, settings, say)
        unseen = self._held_out(held_out, takes_offset=likelihoods[-1].takes_offset)
        about_noise: list[str] = []
        with pn.Note.collect() as notes, self._kept(given, unseen, settings) as pieces:
            if pieces.seed is not None:
                settings = settings.with_random_state(pieces.seed)
                settings = replace(settings, pieces=pieces, draws=pieces.first_draws)
            likelihoods, by_networks, settings = self._kind_of_noise(
                given, unseen, likelihoods, settings, about_noise.append
            )
            targets, n_targets, about_y = self._scaled_targets(targets, weights, likelihoods[-1], settings)
            for line in (about_y, *about_noise):
                say(line)
            unseen = None if unseen is None else unseen._replace(y=self._scaled(unseen.y))
            data = FitData(given._replace(y=targets), unseen, n_targets, self.target_scaling_)
            result = fit_rows(data, likelihoods, settings, by_networks=by_networks, say=say)
        self.result_, self.draws_ = result, result.draws
        self.n_iter_ = Choice.of(result.posteriors[0].network.net).epochs
        self.report_ = FitReport.of(result, lines)
        if settings.verbose:
            print_line(self.report_.results())
        _give_again(notes, is_chosen=settings.l2 is None and settings.validation_fraction != 0)
        if self.report_.needs_warning:
            kind = pn.Note if self.report_.converged else NotConverged
            what = "the draws should be looked at" if self.report_.converged else "the chains have not converged"
            kind("verdict", f"{type(self).__name__}: {what}. {self.report_.verdict}").give(stacklevel=4)

    def _binned(
        self, rows: Rows, likelihoods: Sequence[Likelihood], settings: Settings, say: Callable[[str], None]
    ) -> Rows:
        """Return the rows with the inputs of bins, where these are taken."""
        bins = self.bins if self.standardize or self.bins != "auto" else 0
        likelihood = likelihoods[-1].for_training_targets(rows.y)
        settings = replace(settings, log_target=self._tried_logs(rows.y, likelihoods, settings)[-1])
        targets, n_targets, _ = self._scaled_targets(rows.y, rows.sample_weight, likelihood, settings)
        data = FitData(rows._replace(y=targets), None, n_targets, self.target_scaling_)
        scale = np.atleast_1d(self.target_scaling_.target_scale)
        made, about_bins = choose_bins(data, likelihood.for_scaled_targets(scale), settings, bins)
        if about_bins:
            say(about_bins)
        if made is None:
            return rows
        self.preprocessor_.encoding = made
        return rows.binned(made)

    def _kept(self, given: Rows, unseen: Rows | None, settings: Settings) -> AbstractContextManager[Pieces]:
        """Open the folder in which the fit of rows is kept, if there is one."""
        if self.store is None:
            return nullcontext(Pieces())
        rows = {"": given} | ({} if unseen is None else {"unseen ": unseen})
        arrays = {f"{part}{name}": values for part in rows for name, values in rows[part]._asdict().items()}
        found = contents_hash({name: np.asarray(values) for name, values in arrays.items() if values is not None})
        identity = {"rows": found.tobytes().hex(), "likelihood": None}
        identity |= {one.name: _plain(getattr(settings, one.name)) for one in fields(settings)}
        # These do not determine it, or are compared apart.
        for name in ("random_state", "seed", "draws", "n_jobs", "verbose", "pieces"):
            del identity[name]
        return Pieces.opened(
            self.store,
            identity,
            given.spread(GRID_ROWS).X,
            seed=settings.random_state,
            is_given=isinstance(self.random_state, numbers.Integral),
            draws=settings.draws,
            lengthens=self.warm_start,
        )

    def _held_out(self, rows: tuple[Any, ...] | None, *, takes_offset: bool) -> Rows | None:
        """Return rows (X, y) or (X, y, exposure), checked, as inputs of the network, targets and log exposures."""
        if rows is None:
            return None
        if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
            raise ValueError(f"held_out must be (X, y), or (X, y, exposure) of counts; got {type(rows).__name__}.")
        if len(rows) == 3 and not takes_offset:
            raise ValueError("held_out must be (X, y): exposure belongs to a likelihood of counts.")
        X = self._checked_rows(rows[0], reset=False)
        y = readable(rows[1], "y")
        check_consistent_length(X, y)
        inputs, offset = self.preprocessor_.transform(X), self._offset(X, rows[2] if len(rows) > 2 else None)
        return Rows(inputs, self._observed(y), None, offset)

    @abstractmethod
    def _first_targets(self, y: Any, likelihood: Likelihood) -> npt.NDArray[Any]:
        """Return the checked targets of the rows of a fit, and set the attributes that say what they are."""

    def _kind_of_noise(
        self,
        rows: Rows,
        unseen: Rows | None,
        likelihoods: Sequence[Likelihood],
        settings: Settings,
        say: Callable[[str], None],
    ) -> tuple[Sequence[Likelihood], Likelihood | None, Settings]:
        """Return the likelihoods between which the fit chooses, the one that networks prefer, and the settings."""
        return likelihoods, None, settings

    def _tried_logs(self, y: FloatArray, likelihoods: Sequence[Likelihood], settings: Settings) -> list[bool]:
        """Return whether a fit is one of log y, or both if that is to be chosen."""
        return [bool(settings.log_target)]

    @abstractmethod
    def _scaled_targets(
        self, targets: npt.NDArray[Any], weights: FloatArray | None, likelihood: Likelihood, settings: Settings
    ) -> tuple[npt.NDArray[Any], int, str]:
        """Set the scaling of the targets; return those of the network, their number, and the scaling in words."""

    @abstractmethod
    def _observed(self, y: Any) -> npt.NDArray[Any]:
        """Return observed targets in their units; raise ValueError if they are not such as were fitted."""

    def _scaled(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return checked targets as the network has them; here as they are."""
        return targets

    def evaluate(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: npt.ArrayLike | None = None,
        *,
        event: Any = None,
        exposure: Any = None,
    ) -> Evaluation:
        """Score the predictions of rows, noise included, beside those of the trained networks.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d), optional
            Rows that were not fitted. By default at most 1,000 training rows, each predicted by draws that are
            reweighted as if it had not been among them, which needs an estimator that was not read from a file.
            Parameters that the architecture fixes were trained on them: such scores are too good, and say so.
        y : array_like, shape (n,) or (n, t)
            Their targets.
        sample_weight : array_like, shape (n,), optional
            Weights of the rows, positive; default ones.
        event : array_like, shape (n,), optional
            Of times, see `fit`.
        exposure : array_like, shape (n,), optional
            Of counts, see `fit`.

        Returns
        -------
        Evaluation
            With the dictionary `scores`, such as "nlpd", "rmse" and "coverage", and the `arrays` of each row.
        """
        check_is_fitted(self)
        if event is not None and self.draws_.likelihood.numbers_per_target == 1:
            raise ValueError("event belongs to a fit of likelihood='censored', of bounds; leave it out.")
        if X is None:
            return self._result.leave_one_out()
        rows, y = self._checked_rows(X, reset=False), readable(y, "y")
        check_consistent_length(rows, y)
        y = y if event is None else with_event(y, event)
        weights, offset = self._weights(rows, sample_weight), self._offset(rows, exposure)
        inputs = self.preprocessor_.transform(rows)
        return evaluate(
            self.draws_, self.target_scaling_, Rows(inputs, self._scaled(self._observed(y)), weights, offset)
        )

    def problems(self, X: Any) -> list[str]:
        """Say which rows of X cannot be predicted, where `predict` would raise for all of them.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)

        Returns
        -------
        list of str
            For each row why it cannot be read, such as a word in a column of numbers; empty if it can be.
        """
        check_is_fitted(self)
        found = self.preprocessor_.problems(as_frame(readable(X, "X")))
        if self.exposure is None:
            return found
        exposure = pd.to_numeric(pd.Series(self._exposure_column(as_frame(readable(X, "X")))), errors="coerce")
        odd = ~((exposure > 0) & np.isfinite(exposure)).to_numpy(bool)
        reason = f"exposure {self.exposure_name_!r} is no positive number"
        return ["; ".join(filter(None, (text, reason))) if bad else text for text, bad in zip(found, odd, strict=True)]

    def rerun_error(self, X: Any, coverage: float = 0.9, *, exposure: npt.ArrayLike | None = None) -> RerunError:
        """Return how far predictions would move if the fit were run again with another `random_state`.

        They are standard deviations over reruns of training and chains (of the chains alone, where these share a
        network), by leaving out each replicate in turn; see `Draws.rerun_error`. What a fit chooses from its rows, such
        as the noise and the architecture, is the same for any seed; what other rows would choose is no part of them.

        Parameters
        ----------
        X : array_like or DataFrame, shape (n, d)
        coverage : float
            Probability of the intervals, in (0, 1); default 0.9.
        exposure : array_like, shape (n,), optional
            Of counts, see `fit`.

        Returns
        -------
        RerunError
            With arrays `lower`, `upper` and `mean`, among others, of shape (n, t) in the units of y; those of classes
            are of probabilities, (n, m).

        Raises
        ------
        ValueError
            If `coverage` is outside (0, 1).
        """
        check_is_fitted(self)
        rows = self._checked_rows(X, reset=False)
        inputs, offset = self.preprocessor_.transform(rows), self._offset(rows, exposure)
        progress = None if self.verbose else False
        found = of_fits(self.draws_.rerun_error(inputs, coverage, offset=offset, progress=progress))
        if found.is_class:
            return found
        return self.target_scaling_.scaled(found, self.draws_.distribution(inputs, offset=offset))

    def _distribution(self, X: Any, exposure: npt.ArrayLike | None = None) -> Any:
        """Return the predictive distribution of the network's targets for rows of X."""
        check_is_fitted(self)
        rows = self._checked_rows(X, reset=False)
        return self.draws_.distribution(self.preprocessor_.transform(rows), offset=self._offset(rows, exposure))

    def _samples(self, distribution: Any, n_samples: int, random_state: Any) -> npt.NDArray[Any]:
        """Return samples of the targets of the network, shape (n_samples, n, t); of labels, (n_samples, n).

        The first samples, as many as there are draws, are different draws.
        """
        if isinstance(n_samples, bool) or not isinstance(n_samples, numbers.Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
        rng, total = check_random_state(random_state), self.draws_.n_chains * self.draws_.n_draws
        repeats = math.ceil(n_samples / total)
        order = np.concatenate([rng.permutation(total) for _ in range(repeats)])[:n_samples]
        blocks = []
        for _, part in distribution.blocks():
            # A draw that is used again has noise of its own.
            noisy = [part.sample(int(rng.randint(np.iinfo(np.int32).max))) for _ in range(repeats)]
            blocks.append(np.concatenate(noisy)[order + np.arange(n_samples) // total * total])
        return np.concatenate(blocks, axis=1)

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
        ValueError
            If a parameter that was set after the fit is none that a fit takes.
        OSError
            If the file exists and may not be replaced, or cannot be written.
        """
        check_is_fitted(self)
        check_parameters(self.get_params(deep=False), type(self).__name__)
        draws = io.BytesIO()
        self.draws_.save(draws)
        arrays = {"draws": np.frombuffer(draws.getbuffer(), dtype=np.uint8)}
        save_arrays(path, _KIND, self._content(), arrays, overwrite=overwrite)

    def _content(self) -> dict[str, Any]:
        """Return the header of a file: all but the draws, as JSON-able values."""
        return {
            "patrac_native": pn.__version__,
            "class": type(self).__name__,
            "parameters": {name: _plain(value) for name, value in self.get_params(deep=False).items()},
            "fitted": {name: getattr(self, name) for name in _PLAIN if hasattr(self, name)},
            "labels": {
                name: {"values": getattr(self, name).tolist(), "dtype": getattr(self, name).dtype.str}
                for name in _ARRAYS
                if hasattr(self, name)
            },
            "preprocessor": self.preprocessor_.to_dict(),
            "targets": self.target_scaling_.to_dict(),
            "report": self.report_.to_dict(),
            "draws": type(self.draws_).__name__,
        }

    @abstractmethod
    def _check_parts(self, net: pn.Network) -> None:
        """Raise ValueError, or AttributeError, unless the targets' attributes are those of a network and its draws."""

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
        with rebuilding(path):
            check_entries(content, _ENTRIES, "its header")
            if content["patrac_native"] != pn.__version__:
                raise ValueError(f"it was written by patrac_native {content['patrac_native']}, not {pn.__version__}")
            if content["class"] != cls.__name__:
                raise ValueError(f"it holds a {content['class']}; read it with {content['class']}.load")
            made = cls(**{name: _rebuilt(value) for name, value in content["parameters"].items()})
            check_parameters(made.get_params(deep=False), cls.__name__)
            check_entries(content["fitted"], _PLAIN, "its section `fitted`", optional=_PLAIN)
            for name, value in content["fitted"].items():
                setattr(made, name, value)
            check_entries(content["labels"], dict.fromkeys(_ARRAYS, dict), "its labels", optional=_ARRAYS)
            for name, stored in content["labels"].items():
                check_entries(stored, {"values": list, "dtype": str}, f"its {name}")
                # Text is as wide as its longest value.
                dtype = np.dtype("U" if "U" in stored["dtype"] else stored["dtype"])
                if dtype.kind not in "biufUO" or not {*map(type, stored["values"])} <= {bool, int, float, str}:
                    raise ValueError(f"its {name} are no labels")
                setattr(made, name, np.array(stored["values"], dtype=dtype))
            made.preprocessor_ = Preprocessor.from_dict(content["preprocessor"])
            made.target_scaling_ = TargetScaling.from_dict(content["targets"])
            made.report_ = FitReport.from_dict(content["report"])
            made.draws_ = _DRAWS[content["draws"]].load(io.BytesIO(arrays["draws"].tobytes()))
            check_arrays(arrays, {"draws": np.ravel(arrays["draws"]).astype(np.uint8)})
            check_written_again(content, json.loads(json.dumps(made._content())))
            net, columns = members_of(made.draws_)[0].network.net, made.preprocessor_.table_columns
            if net.layer_sizes[0] != made.preprocessor_.n_inputs or made.n_features_in_ != len(columns):
                raise ValueError("its preprocessor is not that of its network")
            if made.n_iter_ != Choice.of(net).epochs or columns != [*map(str, getattr(made, _ARRAYS[0], columns))]:
                raise ValueError("its attributes are not those of its network and preprocessor")
            made._check_parts(net)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a pickle: everything but the posteriors, which hold the training rows."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("result_", None)
        return state


def readable(values: Any, name: str) -> Any:
    """Return a tensor of torch, or what only says how it becomes an array, as an array; anything else as it is.

    Raises TypeError if the code of the array's class fails, and ValueError if there are no numbers, or masked entries,
    because scikit-learn would use the values behind them.
    """
    if isinstance(values, np.ma.MaskedArray) and (hidden := np.ma.getmaskarray(values)).any():
        first = [int(index) for index in np.argwhere(hidden)[0]]
        raise ValueError(f"{name} must not have masked entries; got {int(hidden.sum())}, the first at {first}.")
    if not (hasattr(type(values), "detach") and hasattr(type(values), "cpu")):  # not the columns of a data frame
        return _array_of(values, name)
    if values.is_meta:
        raise ValueError(f"{name} is a tensor on the meta device, which holds no numbers; give one on another device.")
    host = values.detach().cpu()
    try:
        return host.numpy()
    except TypeError:  # bfloat16, for one, which NumPy lacks and float32 holds exactly
        return host.float().numpy()


def _array_of(values: Any, name: str) -> Any:
    """Return the array that the `__array__` of a class gives; arrays, tables, columns and lists as they are."""
    kind = type(values)
    is_known = isinstance(values, np.ndarray) or kind.__module__.startswith("pandas")
    if is_known or not hasattr(kind, "__array__") or hasattr(kind, "to_pandas") or hasattr(kind, "columns"):
        return values
    try:
        return np.asarray(values)
    except MemoryError:
        raise
    except Exception as error:  # of any kind: it comes from the code of the class
        raise TypeError(f"{name} must be an array of numbers; NumPy could not read it: {error!r}.") from error


def with_event(y: Any, event: Any) -> FloatArray:
    """Return the bounds (n, 2) of times y (n,), of which `event` (n,) says whether they end with an event."""
    times = readable(y, "y")
    refuse_dates(times, "y", "give numbers, such as days since the start")
    return bounds_of_events(
        check_array(times, ensure_2d=False, dtype=np.float64, input_name="y"), readable(event, "event")
    )


def whole_or_not_at_all(fit: _Method) -> _Method:
    """Make a `fit` that fails or is interrupted leave the estimator as it was: no part of another fit stays."""

    @functools.wraps(fit)
    def wrapped(estimator: Any, *arguments: Any, **named: Any) -> Any:
        before = dict(estimator.__dict__)
        if estimator.warm_start and estimator.store is None and "draws_" in before:
            raise ValueError(
                "warm_start=True goes on with a fit that is kept in a folder, and store is None: give store, a folder, "
                "to the first fit, or warm_start=False to fit anew."
            )
        for name in [name for name in estimator.__dict__ if name.endswith("_") and not name.startswith("_")]:
            delattr(estimator, name)
        try:
            return fit(estimator, *arguments, **named)
        except BaseException:
            estimator.__dict__.clear()
            estimator.__dict__.update(before)
            raise

    return cast(_Method, wrapped)


def _listed(columns: Any) -> list[Any]:
    """Return one or several columns as a list."""
    if columns is None:
        return []
    return [columns] if isinstance(columns, str | numbers.Integral) else list(columns)


class NotConverged(pn.Note, ConvergenceWarning):  # type: ignore[misc]
    """The note on chains that have not converged, in scikit-learn's category."""


def _give_again(notes: Sequence[pn.Note], *, is_chosen: bool) -> None:
    """Give each note of a fit, whose penalty is given or chosen, once, at the line of `fit`, in its own words."""
    for text, note in {str(note): note for note in notes}.items():
        for advice, own in _ADVICE.items():
            text = text.replace(advice, own[is_chosen]).replace("max_epochs", "max_iter")
        pn.Note(note.kind, text.replace("train: ", "", 1)).give(stacklevel=5)


def _plain(value: Any) -> Any:
    """Return a parameter as JSON-able values."""
    if hasattr(value, "to_dict"):
        return {"object": type(value).__name__, "content": value.to_dict()}
    if isinstance(value, np.random.RandomState):
        return None
    if hasattr(value, "tolist") and not isinstance(value, np.generic):  # an array, or the columns of a data frame
        return {"object": "tuple", "content": value.tolist()}
    if isinstance(value, tuple | list):
        return {"object": type(value).__name__, "content": [_plain(one) for one in value]}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def _rebuilt(value: Any) -> Any:
    """Return a parameter from what `_plain` returned."""
    if not isinstance(value, Mapping):
        return value
    kind, content = value["object"], value["content"]
    if kind in ("tuple", "list"):
        values = [_rebuilt(one) for one in content]
        return tuple(values) if kind == "tuple" else values
    if kind == "Warmup":
        return pn.Warmup.from_dict(content)
    return _OBJECTS[kind](**{name: part for name, part in content.items() if name != "name"})
