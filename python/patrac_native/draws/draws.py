"""Draws of a posterior: the kept states of the chains, their statistics, and what they predict."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws import arviz_groups
from patrac_native.draws.chain_draws import ENTRIES, ChainDraws, Stats, Theta, read_states, sampler_of
from patrac_native.draws.distribution import (
    SCORE_NEW_ROWS,
    Component,
    LeftOut,
    PredictiveDistribution,
    leave_out,
    too_good,
    warn_caller,
)
from patrac_native.draws.replicates import Replicates, rerun_error
from patrac_native.draws.run_folder import MEMORY, RunFolder, StoredTheta
from patrac_native.draws.stored_states import read_checkpoint, stored_states
from patrac_native.draws.summary import Summary, summarise
from patrac_native.files.archive import check_entries, check_written_again, contents_hash, rebuilding
from patrac_native.interop.datatree import build_datatree, inference_data
from patrac_native.likelihoods import Likelihood, likelihood_from_dict
from patrac_native.network.network import Network
from patrac_native.plots.progress import evaluation_bar
from patrac_native.posterior.describe import overview
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import (
    FloatArray,
    as_real_array,
    cast_checked,
    check_count,
    check_finite,
    check_inputs,
    check_seed,
)
from patrac_native.validation.columns import column_names
from patrac_native.validation.memory import release_memory
from patrac_native.validation.notes import Note
from patrac_native.verdict.calibration import COVERAGE
from patrac_native.verdict.rerun_error import RerunError

# What is computed from outputs of a block of rows, and the statistics, take up to so many times their memory.
_BLOCK_SHARE = 64
# The outputs of all rows that one reading of the draws evaluates take this part of the memory.
_READ_SHARE = 16
# A summary has the rerun error of at most so many rows.
_RERUN_ROWS = 100

if TYPE_CHECKING:
    import arviz
    import xarray


class Predictions(ABC):
    """Base class of `Draws` and `DrawsMixture`: weighted draws of functions that predict new targets."""

    likelihood: Likelihood

    @abstractmethod
    def _weighted_members(self) -> Sequence[tuple[Draws, float]]:
        """Return the draws of each posterior with their weight; their chains follow one another in all arrays."""

    def distribution(
        self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, threads: int | None = None
    ) -> PredictiveDistribution:
        """Return the predictive distribution of new targets at X, noise included.

        Its methods are means, quantiles, densities, probabilities of classes, samples and scores. All draws of a
        mixture take part, with their weights.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1; the columns of a data frame in any order, if the training or the posterior had
            one.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            Of `Poisson` and `NegativeBinomial`: what is added to the outputs of each row, such as the logarithm of its
            exposure; finite. Default zeros, also if the posterior has offsets.
        threads : int, optional
            Number of native threads; by default the number of processors that this process may use.

        Returns
        -------
        PredictiveDistribution

        Raises
        ------
        TypeError
            If X does not hold real numbers.
        ValueError
            If X has another shape or is not finite, the likelihood takes no offset, or there are no draws.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> at_X = pn.sample(post, chains=2, draws=50, warmup=100, seed=0).distribution(X)
        >>> at_X.mean().shape, at_X.quantiles([0.1, 0.9]).shape, at_X.nlpd(X[:, 0], per_row=True).shape
        ((5, 1), (5, 1, 2), (5,))
        """
        own: object = self
        members = self._weighted_members()
        network = members[0][0].network
        return PredictiveDistribution(
            [_component(member, weight, threads) for member, weight in members],
            check_inputs(X, network.n_inputs, columns=network.input_names),
            offset,
            is_mixture=members[0][0] is not own,
            expects_offset=any(member.settings.get("has_offset") for member, _ in members),
            threads=threads,
        )

    def predict(
        self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, threads: int | None = None
    ) -> npt.NDArray[Any]:
        """Evaluate the predictions of each draw: the function draws f(x; theta) of the t targets.

        Returns
        -------
        ndarray of the posterior's dtype, shape (chain, draw, n_new, t)
            The outputs of the network, or what the likelihood derives from them: the means of
            `HeteroscedasticGaussian` and of counts. Of a mixture with unequal weights, those of equally weighted draws
            that represent it, of which each member has a number in proportion to its weight; the first two axes then
            have no meaning. For many rows, `distribution(X).blocks()` needs less memory.
        """
        return self._by_chain(self.likelihood.predicted(self.distribution(X, offset=offset, threads=threads).outputs()))

    def predictive(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets y at X from the posterior predictive distribution: function draws with the likelihood's noise.

        Parameters
        ----------
        seed : int
            0 <= seed < 2^64, for the noise; default 0.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, t)
            Targets, of the draws that `predict` returns; for Categorical, class labels of shape (chain, draw, n_new).
        """
        return self._by_chain(self.distribution(X, offset=offset).sample(seed))

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Evaluate the class probabilities of each draw at X.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n_new, m)
            For Categorical the softmax over classes; for Bernoulli the probability of a 1 at each output. The draws
            are those of `predict`.

        Raises
        ------
        TypeError
            If the likelihood has no classes.
        """
        return self._by_chain(self.likelihood.probabilities(self.distribution(X).outputs()))

    def interval(
        self, X: npt.ArrayLike, coverage: float = 0.95, *, offset: npt.ArrayLike | None = None
    ) -> diagnostics.Interval:
        """Return central intervals of new targets, noise included, without Monte Carlo error of the noise.

        The ends of an interval of counts are counts, and its probability is at least `coverage`.

        Parameters
        ----------
        coverage : float
            Probability of the intervals, in (0, 1); default 0.95.

        Returns
        -------
        lower, upper : ndarray of float64, shape (n_new, t)

        Raises
        ------
        TypeError, ValueError
            ValueError if `coverage` is outside (0, 1), TypeError if the targets are classes.
        """
        return self.distribution(X, offset=offset).interval(coverage)

    def quantiles(
        self,
        X: npt.ArrayLike,
        probabilities: float | Sequence[float] = (0.05, 0.5, 0.95),
        *,
        offset: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Return quantiles of new targets, noise included, without Monte Carlo error of the noise.

        Those of counts are counts: the smallest k for which P(y <= k) is at least the probability.

        Parameters
        ----------
        probabilities : float or sequence of q float
            In (0, 1); default (0.05, 0.5, 0.95).

        Returns
        -------
        ndarray of float64, shape (n_new, t, q)

        Raises
        ------
        TypeError, ValueError
            ValueError if there is no probability or one is outside (0, 1), TypeError if the targets are classes.
        """
        return self.distribution(X, offset=offset).quantiles(probabilities)

    def rerun_error(
        self,
        X: npt.ArrayLike,
        coverage: float = 0.9,
        *,
        replicates: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        progress: bool | None = None,
    ) -> RerunError:
        """Return how far predictions at X would move in another complete run, in standard deviations.

        They are Monte Carlo standard errors whose unit is the *replicate*: chains that share a network or a start are
        one, so the number holds for chains that have not met, of which R-hat says only that they have not. Each
        replicate is left out in turn (docs/rerun.md has the formula, and beside it the spread of actual reruns). For
        independent draws, and for chains that have met, they agree with the usual Monte Carlo standard errors.

        Parameters
        ----------
        coverage : float
            Probability of the intervals, in (0, 1); default 0.9.
        replicates : array_like, shape (chain,), optional
            The replicate of each chain (of all members of a mixture in turn) by any labels, at least two; for chains
            from elsewhere that share a network or a start. By default the members of a mixture that have networks of
            their own, else the chains of each start that was given, else the chains; of one chain its parts, and parts
            of independent draws.
        progress : bool, optional
            Whether to show a progress bar, if it takes more than a second; by default in terminals and notebooks only.

        Returns
        -------
        RerunError
            `lower`, `upper` and `mean`, among others, for each row; its string is a sentence.

        Raises
        ------
        ValueError
            If `coverage` is outside (0, 1), or `replicates` are not as described.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
        >>> error = pn.sample(post, chains=8, draws=50, warmup=100, seed=0).rerun_error(X)
        >>> error.lower.shape, error.replicates, error.unit
        ((5, 1), 8, 'dispersed')
        """
        members = [member for member, _ in self._weighted_members()]
        return rerun_error(self.distribution(X, offset=offset), Replicates(members, replicates), coverage, progress)

    def log_likelihood_rows(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Evaluate the log-likelihood of each row in each draw, normalised and without sample weights.

        With the data of the posterior, this is what leave-one-out predictions (`diagnostics.leave_one_out`) and the
        weights of a mixture (`DrawsMixture.weighted`) are computed from.

        Parameters
        ----------
        y : array_like
            The targets at X, as the likelihood describes them, such as `post.data.y` at `post.data.X`.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n)
            Under a sampled noise variance, with the variance of each draw. The chains of the members of a mixture
            follow one another.
        """
        return self._by_chain(self.distribution(X, offset=offset).log_density_by_draw(y))

    def _summarised(self, distribution: PredictiveDistribution) -> Iterator[npt.NDArray[Any]]:
        """Yield what a summary shows, (chain, draw, rows, m) for blocks of rows: outputs, or class probabilities."""
        for _, part in distribution.blocks():
            yield self.likelihood.identified(self._by_chain(part.outputs()))

    def _few_rows(self, distribution: PredictiveDistribution) -> PredictiveDistribution:
        """Return the distribution of at most 100 of the rows, evenly spread, which tell how far a rerun moves any."""
        rows = np.linspace(0, distribution.n_rows - 1, min(_RERUN_ROWS, distribution.n_rows)).round().astype(np.intp)
        if len(rows) == distribution.n_rows:
            return distribution
        offset = None if distribution.offset is None else distribution.offset[rows]
        return self.distribution(distribution.X[rows], offset=offset)

    def _by_chain(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values (M, ...) of all draws with the axes (chain, draw, ...)."""
        return values.reshape(sum(member.n_chains for member, _ in self._weighted_members()), -1, *values.shape[1:])


class Draws(ChainDraws, Predictions):
    """The draws of a run, as `sample` returns them.

    `draws[chains, draws]` with two slices selects chains and draws: `draws[:, :100]` are the first 100 draws of each
    chain, and `draws[:, 9::10]` those of a run whose `thin` is ten times as large, with acceptance rates of all steps
    between them. `first + second` has the chains of two runs of one posterior, which differ in their seeds.

    Methods that predict at inputs X take X, offset and threads as `distribution` does and raise its errors. Those that
    take targets y too raise ValueError or TypeError if these do not fit X or the likelihood, and warn (UserWarning) if
    `offset` is missing, though the posterior has one.

    Attributes
    ----------
    theta : ndarray of the posterior's dtype, shape (chain, draw, K)
        The kept states, in the order of `network.parameters`. If they are on a device, the first use of `theta` copies
        them to the host. After `sample(..., keep_on_device=True)` other libraries take them there by DLPack, such as
        `torch.from_dlpack(draws)`.
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
        of draws of variances left out. Of a run with `moments_at`, by chain: moments_at (chain, n, d), moments_mean and
        moments_variance (chain, n, m), and moments_states (chain,), of the whole run, whichever draws are selected.
    network : PartialNetwork
        Trained network, architecture and prior.
    likelihood : Likelihood
    settings : dict
        The kernel and why it was chosen; the warm-up, its number of steps and whether the chains were stable at its
        end; device, seed, thin and seconds; whether the run completed, and whether the data had an offset. Of draws
        from elsewhere (`from_array`): sampler; thin, which counts given draws; the quality of the trained network's
        fit; and whether the data had an offset.
    """

    _KIND: ClassVar[str] = "draws"

    def __init__(
        self,
        theta: Theta,
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
            Draws of the variances of `post.network.scale_names`, likewise.
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
        states = _states_of(post, theta)
        stats = _densities(post, states, variance, prior_scales, threads)
        settings = {"sampler": sampler, "thin": 1, "fit": post.sampled.fit_quality.to_dict()}
        if post.data.offset is not None:
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
        theta, stats, settings = arviz_groups.restore(post.network, post.likelihood, tree)
        return cls(theta, stats, post.network, post.likelihood, settings)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, memory: int = MEMORY) -> Draws:
        """Open the draws so far of a run with a store, `sample(..., store=path)`, without reading its states.

        Statistics are read now. What predicts, such as `summary`, `distribution` and `rerun_error`, reads the states
        in blocks and evaluates few rows at a time; `theta` reads and keeps all of them, as do slices, `save`
        and `to_datatree`. The outputs of each draw are those of draws in memory, to the bit; sums over draws may
        round otherwise in blocks of fewer rows, and `crps`, whose noise is drawn by blocks, may have other noise.

        Parameters
        ----------
        path : path-like
            The folder, which a run may be writing to: the draws are those of its last checkpoint.
        memory : int
            Bytes that predictions may take beside what they return, as far as single rows do not need more: one row
            takes up to about 200 bytes for each draw and output in float32. Default 256 MiB.

        Returns
        -------
        Draws

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        ValueError
            If the folder is damaged or holds no draws; later, where the states are read, if it was replaced.

        Examples
        --------
        >>> import patrac_native as pn
        >>> pn.Draws.open("run.zarr", memory=64 * 2**20).quantiles(X)  # doctest: +SKIP
        """
        return cls._from_run(RunFolder(path), check_count(memory, "memory"))

    def _stored(self) -> StoredTheta | None:
        """Return the states in the folder of a run; None if they are in memory, or on a device."""
        return self._elsewhere if self._theta is None and isinstance(self._elsewhere, StoredTheta) else None

    def _entry(self, index: int) -> npt.NDArray[Any]:
        """Return an entry of theta (chain, draw), of all draws."""
        stored = self._stored()
        if stored is None:
            return self.theta[:, :, index]
        return np.concatenate([theta[:, :, index].copy() for _, theta in stored.blocks()], axis=1)

    def summary(
        self,
        X: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        offset: npt.ArrayLike | None = None,
        progress: bool | None = None,
    ) -> Summary:
        """Summarise the draws of the outputs f, or of the class probabilities for Categorical, at X.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs at which f is summarised, such as a grid or a sample of the training inputs. They have no
            default: draws hold no data.
        y : array_like, optional
            Targets at X, if these rows were held out: the verdict then also considers how well the draws predict them
            (`PredictiveDistribution.calibration`). Targets of the training rows would flatter.
        coverage : float
            Posterior probability of the central intervals, in (0, 1); default 0.95.
        offset
            As for `distribution`; it is part of f.
        progress : bool, optional
            Whether to show progress bars, if it takes more than a second; by default in terminals and notebooks only.

        Returns
        -------
        Summary
            Mean, interval and convergence at every row of X; its string is a table.

        Raises
        ------
        TypeError
            If X is not given.
        ValueError
            If `coverage` is outside (0, 1) or there are fewer than 4 draws of each chain, or
            of each superchain after `Warmup.many_chains`.
        """
        X = summary_points(X)
        distribution = self.distribution(X, offset=offset)
        calibration = None if y is None else distribution.calibration(y)
        with summary_bar(distribution, 1, progress) as bar:
            summary = self._summary_of(distribution, coverage, bar.update)
        error = rerun_error(self._few_rows(distribution), Replicates([self]), COVERAGE, progress)
        summary = summary.with_rerun_error(error)
        return summary if calibration is None else summary.with_calibration(calibration)

    def _summary_of(
        self, distribution: PredictiveDistribution, coverage: float, advance: Callable[[int], object]
    ) -> Summary:
        """Return the summary of these draws alone, without the errors that need a rerun's replicates."""
        blocks = self._summarised(distribution)
        return summarise(
            self,
            blocks,
            self.likelihood.quantity,
            coverage,
            network=self.network,
            likelihood=self.likelihood,
            superchains=Replicates([self]).superchains,
            advance=advance,
        )

    def loo(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        row_weights: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> LeftOut:
        """Predict each row of the posterior's data as if it had not been part of them, without refitting.

        Of architectures other than `Full` the predictions are too good, and rank models wrongly: the parameters that
        they fix were trained on the row, and leaving it out of the posterior does not change them. The result says so.
        Compare such models by rows that neither the network nor the posterior has seen,
        `distribution(X_new).log_density(y_new)`. Where the network was trained on other rows than the posterior's, its
        parameters know nothing of these, and the predictions are right.

        Draws are reweighted by Pareto-smoothed importance sampling (`diagnostics.leave_one_out`, with ArviZ's
        functions).

        Parameters
        ----------
        X : array_like, shape (n, d)
            The inputs of the posterior, `post.data.X`.
        y : array_like
            Their targets, `post.data.y`.
        row_weights : array_like, shape (n,), optional
            `post.data.row_weights`, if the posterior was given sample weights or a scale; default ones.
        offset : array_like, shape (n,) or (n, m), optional
            `post.data.offset`, if the posterior has one.

        Returns
        -------
        LeftOut
            Log predictive density and Pareto k of each row, and their sum `elpd`; its string is a table.

        Raises
        ------
        TypeError, ValueError
            If `row_weights` are not as described or there are fewer than 25 draws.

        Warns
        -----
        UserWarning
            If parameters of the trained network are fixed, or the predictions of some rows are unreliable (large
            Pareto k).
        """
        found = leave_out(self.distribution(X, offset=offset), y, row_weights, self.network)
        if found.too_good:
            warn_caller("too good", f"Draws.loo: {found.too_good}. {SCORE_NEW_ROWS}")
        if found.unreliable:
            Note(
                "unreliable",
                f"Draws.loo: the predictions of {found.unreliable} of {len(found.khat)} rows are unreliable (Pareto k "
                f"up to {found.khat.max():.2f}), and so is their sum. Run more draws, or score held-out rows.",
            ).give(stacklevel=2)
        return found

    def to_datatree(
        self,
        X: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        *,
        offset: npt.ArrayLike | None = None,
        input_names: Sequence[object] | None = None,
        target_names: Sequence[object] | None = None,
        prior_draws: int = 500,
        seed: int = 0,
    ) -> xarray.DataTree:
        """Return the draws as an xarray DataTree for ArviZ; see docs/bridges/arviz.md.

        Its groups are, with t targets, m outputs and n rows:

        - posterior: theta as one variable for each matrix and vector, without gaps: "weights_1" (chain, draw, input,
          hidden_1), "biases_1" (chain, draw, hidden_1), "weights_2" (chain, draw, hidden_1, hidden_2) and so on, up to
          the "output" of the last layer. Only nodes with Bayesian parameters are part of them, in the order of their
          ranks; their labels are the trained network's own indices (of `Sep`, those of the separate network). Where the
          masks of `Custom` are no blocks of nodes, weights are vectors with labels "node that is read, node that
          reads". Sampled noise variances are "variance", and sampled variances of the prior "prior_scales".
        - sample_stats: `stats`, where "total_log_likelihood" is the log-likelihood of all rows, and "lp" its sum with
          log_prior.
        - prior: draws of the same variables from the prior, in one chain.
        - constant_data: "hidden_1_rank" and its like, the ranks of nodes, counted from 0; with X, X and offset.
        - with X, posterior_predictive: "y" with noise, as `predictive` draws it; prior_predictive: y; and function, a
          name of this package: "f", which `predict` returns, or "p", the probabilities of classes or of ones.
        - with y, observed_data: y; log_likelihood: y, one value for each row, the sum over its targets. It has no
          sample weights; `loo` takes them into account. If parameters of the trained network are fixed, its attribute
          "too_good" says why ArviZ's `loo` and `compare` rank such models wrongly, as for `loo`.

        A single target has no axis; several have the axis "target". The attributes of the root are versions, seed and
        every setting.

        Parameters
        ----------
        X : array_like, shape (n, d), optional
            Finite inputs; those of the posterior if log-likelihoods are to serve leave-one-out predictions.
        y : array_like, optional
            Their targets, as the likelihood describes them.
        offset : array_like, shape (n,) or (n, m), optional
            As for `distribution`.
        input_names : sequence of d str, optional
            Labels of the inputs; by default the columns of the data frame on which the network was trained or that the
            posterior was given, those of X, or indices.
        target_names : sequence of str, optional
            Labels of the t targets or, for `Categorical`, of the m classes; by default indices.
        prior_draws : int
            Number of draws from the prior; 0 leaves the groups of the prior out. Default 500.
        seed : int
            0 <= seed < 2^64, for the noise, as in `predictive`, and for the prior, as in `Posterior.sample_prior`;
            default 0.

        Returns
        -------
        xarray.DataTree
            The arrays of n rows take 8 to 24 bytes for each row, target and draw. Parameters share memory with `theta`
            where possible: copy the tree before changing it.

        Raises
        ------
        ImportError
            If xarray is not installed (extra "arviz").
        TypeError, ValueError
            If an argument is not as described, y or offset is given without X, or there are no draws.

        Warns
        -----
        UserWarning
            If y is given and parameters of the trained network are fixed.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0, 0.5], [2.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 10).reshape(5, 2)
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> draws = pn.sample(post, chains=2, draws=50, warmup=100, seed=0)
        >>> tree = draws.to_datatree(X, input_names=["height", "width"])
        >>> dict(tree["posterior"]["weights_1"].sizes)
        {'chain': 2, 'draw': 50, 'input': 2, 'hidden_1': 1}
        >>> tree["posterior"]["weights_1"].sel(hidden_1=1, input="width").shape
        (2, 50)
        """
        self._flat_theta()
        check_seed(seed)
        check_count(prior_draws, "prior_draws", least=0)
        for name, value in (("y", y), ("offset", offset)):
            if X is None and value is not None:
                raise ValueError(
                    f"{name} must be left out without X: give both, such as post.data.X and post.data.{name}."
                )
        if input_names is None:
            input_names = self.network.input_names or column_names(X)
        made = arviz_groups.PosteriorGroups.labelled(self.network, self.likelihood, input_names, target_names)
        distribution = None if X is None else self.distribution(X, offset=offset)
        if y is not None and (reason := too_good(self.network)):
            warn_caller(
                "too good",
                "to_datatree: leave-one-out predictions of its group log_likelihood, as az.loo and az.compare make "
                f"them, are {reason}. {SCORE_NEW_ROWS}",
            )
        groups = {
            **made.of_run(self.theta, self.stats),
            **made.data(self.theta.shape[:2], distribution, y, seed),
            **(made.prior(distribution, prior_draws, seed) if prior_draws else {}),
        }
        root = arviz_groups.posterior_attributes(self.network, self.likelihood, self.settings)
        return build_datatree(groups, root, arviz_groups.library_attributes(), "to_datatree")

    def to_inferencedata(
        self, X: npt.ArrayLike | None = None, y: npt.ArrayLike | None = None, **options: Any
    ) -> arviz.InferenceData:
        """Return the draws as the InferenceData of ArviZ 0.x, with the groups of `to_datatree`.

        Parameters
        ----------
        X, y, **options
            As for `to_datatree`.

        Returns
        -------
        arviz.InferenceData
            Its method `to_datatree` gives the tree for `Draws.from_datatree`.

        Raises
        ------
        ImportError
            If ArviZ is not installed, or its version is 1.0 or later, which takes the DataTree.
        """
        return inference_data(self.to_datatree(X, y, **options), "to_inferencedata")

    def _weighted_members(self) -> Sequence[tuple[Draws, float]]:
        """Return these draws, with the weight one."""
        return [(self, 1.0)]

    def _unlike(self, other: Draws) -> str | None:
        """Return in words how two posteriors differ; None if they may be one."""
        for what, mine, others in (
            ("networks or priors", *(one.network.to_dict() for one in (self, other))),
            ("likelihoods", *(one.likelihood.to_dict() for one in (self, other))),
            ("networks", *(contents_hash(one.network.net.to_arrays()[1]).tobytes() for one in (self, other))),
        ):
            if mine != others:
                return f"different {what}"
        return super()._unlike(other)

    def _overview(self) -> list[tuple[str, str]]:
        """Return labels and values of the table for notebooks."""
        return [*overview(self.network, self.likelihood), *super()._overview()]

    def _to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return draws and network as JSON-able values and arrays by name, as they are written to files."""
        header, arrays = super()._to_arrays()
        net_header, net_arrays = self.network.net.to_arrays()
        content = {"net": net_header, "network": self.network.to_dict(), "likelihood": self.likelihood.to_dict()}
        return {**content, **header}, {**arrays, **net_arrays}

    @classmethod
    def _from_arrays(cls, header: Mapping[str, Any], arrays: Stats) -> Draws:
        """Rebuild draws from what `_to_arrays` returned."""
        check_entries(header, {"net": dict, "network": dict, "likelihood": dict, **ENTRIES}, "its header")
        network = PartialNetwork.from_dict(Network.from_arrays(header["net"], arrays), header["network"])
        theta, stats = read_states(header, arrays, network.dim, network.dtype)
        likelihood = likelihood_from_dict(header["likelihood"])
        check_written_again(header["likelihood"], likelihood.to_dict())
        return cls(theta, stats, network, likelihood, header["settings"])

    @classmethod
    def _from_run(cls, folder: RunFolder, memory: int = MEMORY) -> Draws:
        """Return the draws so far of the run in a folder."""
        header, arrays = folder.given()
        with rebuilding(folder.path):
            network = PartialNetwork.from_dict(Network.from_arrays(header["net"], arrays), header["network"])
            likelihood = likelihood_from_dict(header["likelihood"])
        at = read_checkpoint(folder, network, likelihood)
        if at is None:
            raise ValueError(f"{folder.path} holds no draws yet: its run was killed, or has not begun.")
        return cls(*stored_states(folder, at, network, likelihood, memory), network, likelihood, at.settings)

    def __repr__(self) -> str:
        if "kernel" in self.settings:
            made = f"thin={self.settings['thin']}, seed={self.settings['seed']}"
        else:
            made = f"sampler={sampler_of(self.settings)!r}"
        return (
            f"Draws({self.network.architecture.label()}, chains={self.n_chains}, draws={self.n_draws}, "
            f"K={self.network.dim}, {made})"
        )


def summary_points(X: npt.ArrayLike | None) -> npt.ArrayLike:
    """Return the inputs of a summary; raise TypeError that says what to give if there are none."""
    if X is None:
        raise TypeError(
            "summary needs X, the inputs at which f is summarised, such as training inputs: summary(X_train)."
        )
    return X


def summary_bar(distribution: PredictiveDistribution, posteriors: int, progress: bool | None) -> Any:
    """Return the bar of a summary, which counts the inputs times outputs of each posterior."""
    total = posteriors * distribution.n_rows * distribution.n_outputs
    return evaluation_bar(progress, total=total, desc="summary", unit=" points")


def _component(member: Draws, weight: float, threads: int | None) -> Component:
    """Return the draws of one posterior as a component of a predictive distribution; ValueError without draws."""
    member._check_drawn()
    network, variance, stored = member.network, member.stats.get("variance"), member._stored()
    return Component(
        functools.partial(network.predict, member._flat_theta(), threads=threads)
        if stored is None
        else functools.partial(_outputs_of_stored, network, stored, threads),
        member.n_chains * member.n_draws,
        network.n_outputs,
        network.dtype.itemsize,
        member.likelihood,
        None if variance is None else variance.reshape(-1, *variance.shape[2:]),
        weight,
        network.net,
        *(() if stored is None else (max(1, stored.memory // _BLOCK_SHARE), max(1, stored.memory // _READ_SHARE))),
    )


def _outputs_of_stored(
    network: PartialNetwork, stored: StoredTheta, threads: int | None, X: FloatArray
) -> npt.NDArray[Any]:
    """Return the outputs f (M, n, m) of all draws of a run in its folder, each row in one piece."""
    chains, draws, dim = stored.shape
    f = np.empty((len(X), chains, draws, network.n_outputs), network.dtype)
    for part, theta in stored.blocks():
        found = network.predict(theta.reshape(-1, dim), X, threads=threads)
        f[:, :, part] = np.moveaxis(found, 1, 0).reshape(len(X), chains, -1, network.n_outputs)
    release_memory()  # threads of zarr have decoded chunks
    return np.moveaxis(f.reshape(len(X), -1, network.n_outputs), 0, 1)


def _states_of(post: Posterior, theta: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return states (chain, draw, K), or (draw, K) of one chain, as (chain, draw, K) in the posterior's dtype."""
    values = as_real_array(theta, "theta")
    if values.ndim not in (2, 3) or values.shape[-1] != post.dim or values.size == 0:
        raise ValueError(
            f"theta must have shape (chain, draw, K) or, for one chain, (draw, K), with K = {post.dim} and at least "
            f"one draw; got {values.shape}."
        )
    check_finite(
        values.reshape(-1, post.dim), "theta", "Rows count draws chain by chain, columns the entries of theta."
    )
    return cast_checked(values if values.ndim == 3 else values[None], post.network.dtype, "theta")


def _densities(
    post: Posterior,
    theta: npt.NDArray[Any],
    variance: npt.ArrayLike | None,
    prior_scales: npt.ArrayLike | None,
    threads: int | None,
) -> dict[str, FloatArray]:
    """Evaluate what `Draws.stats` holds beside the statistics of steps, for theta (chain, draw, K)."""
    chains, draws, _ = theta.shape
    n_variances = 0 if post.sampled.noise is None else len(post.sampled.noise.initial)
    n_scales = len(post.network.scale_names)
    stats = {}
    for name, given, count, what in (
        ("variance", variance, n_variances, "the noise variance"),
        ("prior_scales", prior_scales, n_scales, "the scales of the prior"),
    ):
        if count:
            own = () if name == "variance" and count == 1 else (count,)
            stats[name] = _sampled(given, (chains, draws, *own), name, what)
        elif given is not None:
            raise ValueError(f"{name} must be left out: this posterior has {what} fixed.")
    flat = stats["variance"].reshape(chains * draws, *stats["variance"].shape[2:]) if "variance" in stats else None
    values = post.log_likelihood(theta.reshape(-1, post.dim), variance=flat, threads=threads)
    log_prior = post.log_prior(theta.astype(np.float64), scales=stats.get("prior_scales"))
    return {
        "log_likelihood": np.asarray(values).reshape(chains, draws),
        "log_prior": np.asarray(log_prior),
        **stats,
    }


def _sampled(given: npt.ArrayLike | None, shape: tuple[int, ...], name: str, what: str) -> FloatArray:
    """Return draws of sampled variances with the axes of theta's chains and draws."""
    wanted = f"{shape[1:]} or {shape}" if shape[0] == 1 else f"{shape}"
    if given is None:
        raise ValueError(f"{name} must be given, because this posterior samples {what}: draws of shape {wanted}.")
    values = as_real_array(given, name)
    if shape[0] == 1 and values.shape == shape[1:]:
        values = values[None]
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {wanted}, with chains and draws as theta; got {values.shape}.")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name} must be positive and finite; the smallest value is {values.min():g}.")
    return values
