"""Posterior draws: the kept states of the chains, their statistics, and everything needed for predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native.draws.arviz_restore import restore
from patrac_native.draws.chain_draws import ENTRIES, Stats, stats_of_file
from patrac_native.draws.distribution import Component, PredictiveDistribution
from patrac_native.draws.draws_bridges import DrawsBridges
from patrac_native.draws.elsewhere import check_states, densities
from patrac_native.draws.stored import check_stored
from patrac_native.draws.summary import Summary, summarise
from patrac_native.engine.device_array import DeviceArray
from patrac_native.likelihoods import (
    CountLikelihood,
    CountMixture,
    Likelihood,
    PredictiveMixture,
    RealLikelihood,
    TargetMixture,
    likelihood_from_dict,
)
from patrac_native.network.files import refuse_unknown
from patrac_native.network.network import Network
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray, check_index, check_seed

if TYPE_CHECKING:
    import xarray


class Draws(DrawsBridges):
    """The draws of a run, as `sample` returns them.

    Attributes
    ----------
    theta : ndarray of the posterior's dtype, shape (chain, draw, K)
        The kept states, in the order of `network.parameters`. If they are on a device, the first use of `theta` copies
        them to the host.
    device_theta : DeviceArray
        The same array on the device, after `sample(..., keep_on_device=True)`.
    stats : dict of str to ndarray
        Of shape (chain, draw): log_likelihood and log_prior, both normalised; acceptance_rate, over the `thin` steps up
        to the draw (for elliptical slice sampling, the number of steps over the number of points evaluated);
        step_size; and variance, if one noise variance is sampled (of StudentT, the square of its scale). If each of
        m > 1 outputs has its own, variance has shape (chain, draw, m). Of shape (chain, draw, G): prior_scales, the
        sampled variances of `network.scales.names`, if the prior samples them; log_prior is then that of theta given
        them. Of shape (chain, phase): warmup_acceptance_rate, and warmup_step_size at the end of the phase. Of shape
        (chain,): nonfinite and warmup_nonfinite, the numbers of
        proposals of sampling and of the warm-up that were rejected because their log-likelihood or gradient was not
        finite; and gradients, the number of gradients that the steps of the draws evaluated, those of the warm-up and
        of draws of variances left out.
    network : PartialNetwork
        Trained network, architecture and prior.
    likelihood : Likelihood
    settings : dict
        The kernel and why it was chosen; the warm-up, its number of steps and whether the chains were stable at its
        end; device, seed, thin and seconds; whether the run completed, and whether the data had an offset. Of draws
        from elsewhere (`from_array`): sampler; thin, which counts given draws; the quality of the trained network's
        fit; and whether the data had an offset.
    """

    file_kind: ClassVar[str] = "draws"

    def __init__(
        self,
        theta: npt.NDArray[Any] | DeviceArray,
        stats: Stats,
        network: PartialNetwork,
        likelihood: Likelihood,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(theta, stats, settings)
        self.network = network
        self.likelihood = likelihood

    @classmethod
    def from_array(
        cls,
        post: Posterior,
        theta: npt.ArrayLike,
        *,
        sampler: str,
        variance: npt.ArrayLike | None = None,
        prior_scales: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> Draws:
        """Make draws from states that another sampler drew, such as BlackJAX, NumPyro or nutpie.

        They predict, summarise and save as draws of `sample` do. Log-likelihood and log prior are evaluated here. What
        this package does not know is left out: `stats` holds neither acceptance rates nor step sizes, and the verdict
        makes no statement about steps and warm-up.

        Parameters
        ----------
        post : Posterior
            The posterior that was sampled.
        theta : array_like, shape (chain, draw, K) or (draw, K) of one chain
            States after the warm-up in the coordinates of `post`, finite; converted to its dtype. Whitened states z are
            theta = z * sqrt(post.prior_variance).
        sampler : str
            Name of the sampler for summaries and reports, such as "BlackJAX NUTS".
        variance : array_like, shape (chain, draw) or (chain, draw, m), optional
            Draws of the noise variance, or of StudentT the square of its scale; required if the likelihood samples it,
            and not allowed otherwise. The axis of chains may be missing where it is in theta.
        prior_scales : array_like, shape (chain, draw, G), optional
            Draws of the variances of `post.scale_names`, likewise.
        threads : int, optional
            Number of native threads for the log-likelihoods; by default the number of processors that this process may
            use.

        Returns
        -------
        Draws
            Its settings hold `sampler` and the quality of the trained network's fit.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; the message names the argument.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> theta = np.zeros((4, 100, post.dim))  # from the other sampler
        >>> pn.Draws.from_array(post, theta, sampler="NumPyro NUTS")
        Draws(Mix(1), chains=4, draws=100, K=4, sampler='NumPyro NUTS')
        """
        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        if not isinstance(sampler, str) or not sampler:
            raise TypeError(f'sampler must be a name, such as "BlackJAX NUTS"; got {sampler!r}.')
        states = check_states(post, theta)
        stats = densities(post, states, variance=variance, prior_scales=prior_scales, threads=threads)
        settings = {"sampler": sampler, "thin": 1, "fit": post.fit_quality.to_dict()}
        if post.offset is not None:
            settings["has_offset"] = True
        return cls(states, stats, post.network, post.likelihood, settings)

    @classmethod
    def from_datatree(cls, post: Posterior, tree: xarray.DataTree) -> Draws:
        """Return the draws that `to_datatree` made into a tree, such as one from a netCDF file.

        Parameters
        ----------
        post : Posterior
            The posterior from which the draws came: the same trained network, architecture, prior, likelihood and
            dtype. The trained network is no part of the tree.
        tree : xarray.DataTree
            Chains and draws may have been left out; settings and statistics are those of the whole run.

        Returns
        -------
        Draws
            With theta, statistics and settings equal to those of the original.

        Raises
        ------
        TypeError
            If an argument is of another type.
        ValueError
            If the tree was not made by `to_datatree`, lacks a variable or holds draws of another posterior.
        """
        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        theta, stats, settings = restore(post.network, post.likelihood, tree)
        return cls(theta, stats, post.network, post.likelihood, settings)

    def _with(self, theta: npt.NDArray[Any], stats: Stats, settings: Mapping[str, Any]) -> Draws:
        """Return draws of the same posterior with other states."""
        return Draws(theta, stats, self.network, self.likelihood, settings)

    @property
    def members(self) -> tuple[Draws, ...]:
        """These draws, as the only member of a mixture."""
        return (self,)

    @property
    def n_outputs(self) -> int:
        """Number m of outputs of the network."""
        return self.network.n_outputs

    @property
    def draw_weights(self) -> FloatArray:
        """Weight of each draw, shape (chain, draw): all are equal and sum to one."""
        return np.full((self.n_chains, self.n_draws), 1.0 / max(1, self.n_chains * self.n_draws))

    def predict_outputs(self, X: npt.ArrayLike, *, threads: int | None = None) -> npt.NDArray[Any]:
        """Evaluate all outputs f of the network for each draw, which the methods of `likelihood` take.

        For counts they are the linear predictor without its offset.

        Parameters
        ----------
        X, threads
            As for `predict`.

        Returns
        -------
        ndarray of the posterior's dtype, shape (chain, draw, n_new, m)

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        self._require_draws()
        f = self.network.predict(self._flat_theta(), X, threads=threads)
        return f.reshape(self.n_chains, self.n_draws, *f.shape[1:])

    def component(self, weight: float = 1.0) -> Component:
        """Return these draws as a component of a predictive distribution."""
        self._require_draws()
        variance = self.stats.get("variance")
        return Component(
            lambda X: self.network.predict(self._flat_theta(), X),
            self.n_chains * self.n_draws,
            self.theta.itemsize,
            self.likelihood,
            None if variance is None else variance.reshape(-1, *variance.shape[2:]),
            weight,
            self.network.net,
        )

    def distribution(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> PredictiveDistribution:
        """Return the posterior predictive distribution of new targets at X, noise included.

        Its methods are means, quantiles, densities, probabilities of classes, samples and scores.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `predict`.

        Returns
        -------
        PredictiveDistribution

        Raises
        ------
        TypeError, ValueError
            As `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> at_X = pn.sample(post, chains=2, draws=50, warmup=100, seed=0).distribution(X)
        >>> at_X.mean().shape, at_X.quantiles([0.1, 0.9]).shape, at_X.nlpd(X[:, 0]).shape
        ((5, 1), (5, 1, 2), (5,))
        """
        return PredictiveDistribution(
            [self.component()],
            None,
            self._inputs(X),
            self.n_outputs,
            offset,
            expects_offset=bool(self.settings.get("has_offset")),
        )

    def predictive(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets y at X from the posterior predictive distribution: function draws with the likelihood's noise.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `predict`.
        seed : int
            0 <= seed < 2^64, for the noise; default 0.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, t)
            Targets; for Categorical, class labels of shape (chain, draw, n_new).

        Raises
        ------
        TypeError, ValueError
            As `predict`, or if `seed` is not an integer in its range.
        """
        rng = np.random.Generator(np.random.Philox(check_seed(seed)))
        f = self.likelihood.with_offset(self.predict_outputs(X), offset)
        if "variance" in self.stats:
            return self.likelihood.sample_at(f, rng, self.stats["variance"])
        return self.likelihood.sample(f, rng)

    def predictive_mixtures(
        self, X: npt.ArrayLike, output: int = 0, *, offset: npt.ArrayLike | None = None
    ) -> Iterator[tuple[slice, TargetMixture]]:
        """Evaluate the posterior predictive distribution of one target for blocks of rows of X.

        It is known up to rounding given the draws, so its quantiles and densities need no draws of the noise.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        output : int
            The target, counted from 0; default 0.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `predict`.

        Yields
        ------
        block : slice
            The rows of X in this block.
        mixture : PredictiveMixture, or CountMixture for counts
            Over all draws of all chains.

        Raises
        ------
        TypeError, ValueError
            As `predict`; TypeError if the targets are neither real numbers nor counts.
        """
        likelihood = self.likelihood
        if not isinstance(likelihood, RealLikelihood | CountLikelihood):
            raise TypeError(
                f"the likelihood must be one of real numbers or counts, such as Gaussian; got {likelihood!r}. For "
                "classes use predict_proba, and score it with diagnostics.accuracy, brier or ece."
            )
        output = check_index(output, "output", likelihood.n_targets(self.n_outputs))
        for block, f in self._predictor_blocks(X, offset):
            if isinstance(likelihood, CountLikelihood):
                predictor = f[..., output].reshape(-1, f.shape[2]).astype(np.float64)
                yield block, CountMixture(predictor, likelihood.of_output(output))
            else:
                yield block, self._mixture(likelihood, f, output)

    def _mixture(self, likelihood: RealLikelihood, f: npt.NDArray[Any], output: int) -> PredictiveMixture:
        """Return the mixture of one target for outputs f (chain, draw, rows, m)."""
        variance = self.stats.get("variance")
        flat = None if variance is None else variance.reshape(-1, *variance.shape[2:])
        return PredictiveMixture(*likelihood.located_noise(f.reshape(-1, *f.shape[2:]), flat, output))

    def log_likelihood_rows(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Evaluate the log-likelihood of each row in each draw, normalised and without sample weights.

        With the data of the posterior, this is what leave-one-out predictions (`diagnostics.leave_one_out`) and the
        weights of a mixture (`DrawsMixture.weighted`) are computed from.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs, n >= 1, such as `post.X`.
        y : array_like
            Their targets, as the likelihood describes them, such as `post.y`.
        offset : array_like, shape (n,) or (n, m), optional
            As for `predict`, such as `post.offset`.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n)
            Under a sampled noise variance, with the variance of each draw.

        Raises
        ------
        TypeError, ValueError
            As `predict`, or if y does not fit X or the likelihood.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        inputs = self._inputs(X)
        targets = self.likelihood.check_targets(y, len(inputs), self.network.n_outputs)
        offset = self._offset_of_targets(offset, len(inputs))
        rows = np.empty((self.n_chains, self.n_draws, len(inputs)))
        for block, f in self._predictor_blocks(inputs, offset):
            rows[..., block] = self._log_likelihood_rows(f, targets[block])
        return rows

    def _log_likelihood_rows(self, f: npt.NDArray[Any], y: npt.NDArray[Any]) -> FloatArray:
        """Return the log-likelihood of each row (chain, draw, rows) for outputs f (chain, draw, rows, m)."""
        likelihood = self.likelihood
        if "variance" not in self.stats or not isinstance(likelihood, RealLikelihood):
            return likelihood.log_likelihood_rows(f, y)
        rows = sum(
            self._mixture(likelihood, f, target).log_density_by_draw(y[:, target]) for target in range(y.shape[1])
        )
        return np.asarray(rows).reshape(f.shape[:3])

    def summary(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        offset: npt.ArrayLike | None = None,
    ) -> Summary:
        """Summarise the draws of the outputs f, or of the class probabilities for Categorical, at X.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs at which f is summarised, such as a grid or a sample of the training inputs.
        y : array_like, optional
            Targets at X, if these rows were held out: the verdict then also considers how well the draws predict them
            (`calibration`). Targets of the training rows would flatter.
        coverage : float
            Posterior probability of the central intervals, in (0, 1); default 0.95.
        offset : array_like, shape (n,) or (n, m), optional
            As for `predict`; it is part of f.

        Returns
        -------
        Summary
            Mean, interval and convergence at every row of X; its string is a table.

        Raises
        ------
        TypeError, ValueError
            As `predict`, or if `coverage` is outside (0, 1) or there are fewer than 4 draws.

        Warns
        -----
        UserWarning
            If targets are given without `offset`, though the posterior has one.
        """
        inputs = self._inputs(X)
        if y is not None:
            offset = self._offset_of_targets(offset, len(inputs))
        classes = self.likelihood.targets == "class"
        outputs = (f for _, f in self._predictor_blocks(inputs, offset))
        summary = summarise(
            (self.likelihood.probabilities(f) for f in outputs) if classes else outputs,
            "class probabilities" if classes else self.likelihood.quantity,
            coverage,
            label=self.network.architecture.label(),
            network=self.network,
            likelihood=self.likelihood,
            scale_names=self.network.scale_names,
            stats=self.stats,
            settings=self.settings,
            sampler=self.sampler,
            steps_per_second=self.steps_per_second,
        )
        return summary if y is None else summary.with_calibration(self.calibration(inputs, y, offset=offset))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return draws and network as JSON-able values and arrays by name, as they are written to files."""
        header, arrays = super().to_arrays()
        net_header, net_arrays = self.network.net.to_arrays()
        content = {"net": net_header, "network": self.network.to_dict(), "likelihood": self.likelihood.to_dict()}
        return {**content, **header}, {**arrays, **net_arrays}

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Stats) -> Draws:
        """Rebuild draws from what `to_arrays` returned."""
        refuse_unknown(header, ("net", "network", "likelihood", *ENTRIES), "its header")
        network = PartialNetwork.from_dict(Network.from_arrays(header["net"], arrays), header["network"])
        stats = stats_of_file(header, arrays)
        check_stored(arrays["theta"], stats, network.dim, network.dtype)
        likelihood = likelihood_from_dict(_with_pooled(header["likelihood"], stats, network.n_outputs))
        return cls(arrays["theta"], stats, network, likelihood, header["settings"])

    def __repr__(self) -> str:
        if "kernel" in self.settings:
            made = f"thin={self.settings['thin']}, seed={self.settings['seed']}"
        else:
            made = f"sampler={self.sampler!r}"
        return (
            f"Draws({self.network.architecture.label()}, chains={self.n_chains}, draws={self.n_draws}, "
            f"K={self.network.dim}, {made})"
        )


def _with_pooled(
    likelihood: Mapping[str, Any], stats: Mapping[str, npt.NDArray[Any]], n_outputs: int
) -> Mapping[str, Any]:
    """Complete a likelihood's content from a file: before `pooled` existed, all outputs shared a sampled variance."""
    if n_outputs > 1 and "variance" in stats and stats["variance"].ndim == 2:
        return {**likelihood, "pooled": True}
    return likelihood
