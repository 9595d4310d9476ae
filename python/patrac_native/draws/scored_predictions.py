"""Scores of the predictions of rows whose targets are known, of draws of one posterior and of mixtures of several."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.predictions import Predictions
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray, check_probability
from patrac_native.verdict.calibration import COVERAGE, Calibration, calibrate, network_nlpd


class ScoredPredictions(Predictions):
    """Base class of what predicts new targets and is scored on known ones; see `Predictions`."""

    def _offset_of_targets(self, offset: npt.ArrayLike | None, rows: int) -> npt.ArrayLike | None:
        """Return the offset of known targets; if it is missing though the data had one, zeros with a warning.

        A public method calls this before it calls another that scores, so that its caller sees one warning.
        """
        if offset is not None or not any(member.settings.get("has_offset") for member in self.members):
            return offset
        warnings.warn(
            "the posterior has an offset, and these targets are scored at an offset of zero; give theirs, offset=..., "
            "or zeros to mean that.",
            UserWarning,
            stacklevel=3,
        )
        return np.zeros((rows, self.n_outputs))

    def nlpd(self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> FloatArray:
        """Return the negative log predictive density of each row, -log sum_i w_i p(y | draw i).

        Their mean is the score by which models are compared.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like
            Targets, as the likelihood describes them.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.

        Returns
        -------
        ndarray of float64, shape (n,)

        Raises
        ------
        TypeError, ValueError
            As `log_likelihood_rows`.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        from scipy.special import logsumexp

        inputs = self._inputs(X)
        rows = self.log_likelihood_rows(inputs, y, offset=self._offset_of_targets(offset, len(inputs)))
        density: FloatArray = logsumexp(rows, axis=(0, 1), b=self.draw_weights[..., None])
        return -density

    def crps(self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> float:
        """Return the continuous ranked probability score of targets that are numbers, from draws with their noise.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,) or (n, t)
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.
        seed : int
            As for `predictive`.

        Raises
        ------
        TypeError, ValueError
            As `predictive`, or if the targets are classes.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        if self.likelihood.targets in ("class", "binary"):
            raise TypeError(f"crps: the targets of {self.likelihood!r} are classes; use diagnostics.brier.")
        inputs = self._inputs(X)
        offset = self._offset_of_targets(offset, len(inputs))
        return diagnostics.crps(self.predictive(inputs, offset=offset, seed=seed), y)

    def coverage(
        self, X: npt.ArrayLike, y: npt.ArrayLike, probability: float = 0.95, *, offset: npt.ArrayLike | None = None
    ) -> float:
        """Return the share of targets that lie in their `interval` of the given probability.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,) or (n, t)
        probability : float
            In (0, 1); default 0.95.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.

        Raises
        ------
        TypeError, ValueError
            As `interval`, or if y does not fit X.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        check_probability(probability, "probability")
        inputs = self._inputs(X)
        lower, upper = self.interval(inputs, probability, offset=self._offset_of_targets(offset, len(inputs)))
        observed = self.likelihood.check_targets(y, len(lower), self.n_outputs)
        return float(((lower <= observed) & (observed <= upper)).mean())

    def calibration(self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> Calibration:
        """Score predictions of rows that the draws have not seen, beside those of the trained networks alone.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs of held-out rows.
        y : array_like
            Their targets, as the likelihood describes them.
        offset : array_like, shape (n,) or (n, m), optional
            As for `predict`.

        Returns
        -------
        Calibration
            Log density of both, and coverage of 90% intervals of targets that are numbers; a count at the end of its
            interval counts in part (`CountMixture.inside`).

        Raises
        ------
        TypeError, ValueError
            As `log_likelihood_rows`.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        inputs = self._inputs(X)
        likelihood = self.likelihood
        targets = likelihood.check_targets(y, len(inputs), self.n_outputs)
        offset = self._offset_of_targets(offset, len(inputs))
        inside = None
        if likelihood.targets not in ("class", "binary"):
            by_target = [
                np.concatenate(
                    [
                        mixture.inside(targets[rows, target], COVERAGE)
                        for rows, mixture in self.predictive_mixtures(inputs, target, offset=offset)
                    ]
                )
                for target in range(targets.shape[1])
            ]
            inside = np.stack(by_target, axis=-1)
        return calibrate(
            "held out",
            self.nlpd(inputs, targets, offset=offset),
            self.network_nlpd(inputs, targets, offset=offset),
            inside,
        )

    def network_nlpd(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        offset: npt.ArrayLike | None = None,
        nets: Sequence[Network] | None = None,
    ) -> FloatArray:
        """Return the negative log density of each row under the trained network alone, or the ensemble of several.

        Sampled variances of `Gaussian` are replaced by the network's mean squared residuals on rows that it was not
        trained on or, if these are not known, by the posterior means; other sampled scales by the posterior means.

        Parameters
        ----------
        X, y, offset
            As for `nlpd`.
        nets : sequence of Network, optional
            The networks, with equal weights, where the chains of one posterior started at several; by default that of
            each member, with its weight.

        Returns
        -------
        ndarray of float64, shape (n,)

        Warns
        -----
        UserWarning
            As `nlpd`.
        """
        from scipy.special import logsumexp

        inputs = self._inputs(X)
        targets = self.likelihood.check_targets(y, len(inputs), self.n_outputs)
        offset = self._offset_of_targets(offset, len(inputs))
        added = self.likelihood.check_offset(offset, len(inputs), self.n_outputs)
        if nets is None:
            chains = np.cumsum([member.n_chains for member in self.members])[:-1]
            weights = [part.sum() for part in np.split(self.draw_weights, chains)]
            pairs = [(member, member.network.net) for member in self.members]
        else:
            weights = [1 / len(nets)] * len(nets)
            pairs = [(self.members[0], net) for net in nets]
        rows = [
            -network_nlpd(
                net,
                member.likelihood,
                member.stats.get("variance"),
                self.likelihood.with_offset(net.predict(inputs), added),
                targets,
            )
            for member, net in pairs
        ]
        density: FloatArray = logsumexp(rows, axis=0, b=np.reshape(weights, (-1, 1)))
        return -density
