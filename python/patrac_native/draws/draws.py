"""Posterior draws: the kept states of the chains, their statistics, and everything needed for predictions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.count_mixture import CountMixture
from patrac_native.draws.mixture import PredictiveMixture
from patrac_native.draws.predictions import Predictions
from patrac_native.draws.summary import Summary, summarise
from patrac_native.engine.device_array import DeviceArray
from patrac_native.model.likelihoods import CountLikelihood, Likelihood, RealLikelihood, likelihood_from_dict
from patrac_native.model.partial_network import PartialNetwork
from patrac_native.network.files import load_arrays, save_arrays
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray, check_count, check_inputs, check_seed

# Statistics with one value for each draw; the others have one value for each chain or each warm-up phase of a chain.
PER_DRAW = ("log_likelihood", "log_prior", "acceptance_rate", "step_size", "variance", "prior_scales")


class Draws(Predictions):
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
        finite.
    network : PartialNetwork
        Trained network, architecture and prior.
    likelihood : Likelihood
    settings : dict
        The kernel and why it was chosen; the warm-up, its number of steps and whether the chains were stable at its
        end; device, seed, thin and seconds; and whether the run completed.
    """

    def __init__(
        self,
        theta: npt.NDArray[Any] | DeviceArray,
        stats: Mapping[str, npt.NDArray[Any]],
        network: PartialNetwork,
        likelihood: Likelihood,
        settings: Mapping[str, Any],
    ) -> None:
        self._device_theta = theta if isinstance(theta, DeviceArray) else None
        self._theta = None if isinstance(theta, DeviceArray) else theta
        self._shape = theta.shape
        self.stats = dict(stats)
        self.network = network
        self.likelihood = likelihood
        self.settings = dict(settings)

    @property
    def theta(self) -> npt.NDArray[Any]:
        """The kept states on the host, shape (chain, draw, K)."""
        if self._theta is None:
            self._theta = np.asarray(self._device_theta)
        return self._theta

    @property
    def device_theta(self) -> DeviceArray:
        """The kept states in the device's memory, shape (chain, draw, K).

        Raises
        ------
        ValueError
            If the draws are on the host only.
        """
        if self._device_theta is None:
            raise ValueError(
                'device_theta: these draws are on the host alone; run sample(..., device="cuda", keep_on_device=True).'
            )
        return self._device_theta

    @property
    def members(self) -> tuple[Draws, ...]:
        """These draws, as the only member of a mixture."""
        return (self,)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self._shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws (kept states) of each chain."""
        return int(self._shape[1])

    @property
    def n_outputs(self) -> int:
        """Number m of outputs of the network."""
        return self.network.n_outputs

    @property
    def draw_weights(self) -> FloatArray:
        """Weight of each draw, shape (chain, draw): all are equal and sum to one."""
        return np.full((self.n_chains, self.n_draws), 1.0 / max(1, self.n_chains * self.n_draws))

    @property
    def steps_per_second(self) -> float:
        """Steps of all chains, warm-up included, for each second of the run's wall-clock time; NaN if interrupted."""
        if not self.settings["completed"]:
            return float("nan")
        steps = self.n_chains * (self.settings["warmup_steps"] + self.n_draws * self.settings["thin"])
        return float(steps / self.settings["seconds"])

    def thinned(self, every: int) -> Draws:
        """Return every `every`-th draw, which are the draws of a run whose `thin` is `every` times as large.

        Parameters
        ----------
        every : int
            A number from 1 to `n_draws`. Of each `every` consecutive draws the last is kept.

        Returns
        -------
        Draws
            On the host; acceptance rates are averaged over the steps between the kept draws.

        Raises
        ------
        TypeError, ValueError
            If `every` is not an integer from 1 to `n_draws`.
        """
        if check_count(every, "every") > self.n_draws:
            raise ValueError(f"every must be at most the number of draws, {self.n_draws}; got {every}.")
        keep = slice(every - 1, None, every)
        theta = self.theta[:, keep]
        stats = {name: values[:, keep] if name in PER_DRAW else values for name, values in self.stats.items()}
        whole = self.n_draws // every * every
        rate = self.stats["acceptance_rate"][:, :whole].reshape(self.n_chains, -1, every)
        stats["acceptance_rate"] = rate.mean(axis=-1)
        settings = {**self.settings, "thin": self.settings["thin"] * every}
        return Draws(theta, stats, self.network, self.likelihood, settings)

    def head(self, draws: int) -> Draws:
        """Return the first draws of each chain.

        Parameters
        ----------
        draws : int
            A number from 1 to `n_draws`.

        Returns
        -------
        Draws
            On the host.

        Raises
        ------
        TypeError, ValueError
            If `draws` is not an integer from 1 to `n_draws`.
        """
        if check_count(draws, "draws") > self.n_draws:
            raise ValueError(f"draws must be at most the number of draws, {self.n_draws}; got {draws}.")
        stats = {name: values[:, :draws] if name in PER_DRAW else values for name, values in self.stats.items()}
        return Draws(self.theta[:, :draws], stats, self.network, self.likelihood, self.settings)

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
    ) -> Iterator[tuple[slice, PredictiveMixture | CountMixture]]:
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
                f"the likelihood must be one of real numbers or counts, such as Gaussian; got {likelihood!r}."
            )
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
        """
        inputs = check_inputs(X, self.network.n_inputs)
        targets = self.likelihood.check_targets(y, len(inputs), self.network.n_outputs)
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

    def summary(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None, *, coverage: float = 0.95) -> Summary:
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

        Returns
        -------
        Summary
            Mean, interval and convergence at every row of X; its string is a table.

        Raises
        ------
        TypeError, ValueError
            As `predict`, or if `coverage` is outside (0, 1) or there are fewer than 4 draws.
        """
        inputs = check_inputs(X, self.network.n_inputs)
        classes = self.likelihood.targets == "class"
        summary = summarise(
            self.predict_proba(inputs) if classes else self.predict_outputs(inputs),
            "class probabilities" if classes else self.likelihood.quantity,
            coverage,
            architecture=self.network.architecture,
            scale_names=self.network.scale_names,
            stats=self.stats,
            settings=self.settings,
            steps_per_second=self.steps_per_second,
        )
        return summary if y is None else summary.with_calibration(self.calibration(inputs, y))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write draws, network and settings to one .npz file (no pickle); the data are not part of it.

        Parameters
        ----------
        path : path-like
            Path of the file, used as given; no file name extension is added.
        overwrite : bool
            Whether an existing file may be replaced; default False.

        Raises
        ------
        FileExistsError
            If the file exists and overwrite is False.
        OSError
            If the file cannot be written.
        """
        header, arrays = self.to_arrays()
        save_arrays(path, "draws", header, arrays, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Draws:
        """Read draws written by `save`.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Draws

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, holds something else, or has another version of the format.
        """
        return cls.from_arrays(*load_arrays(path, "draws"))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the draws as JSON-able values and arrays by name, as they are written to files."""
        net_header, net_arrays = self.network.net.to_arrays()
        header = {
            "net": net_header,
            "network": self.network.to_dict(),
            "likelihood": self.likelihood.to_dict(),
            "settings": self.settings,
            "stats": list(self.stats),
        }
        return header, {"theta": self.theta, **net_arrays, **{f"stat_{name}": v for name, v in self.stats.items()}}

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Draws:
        """Rebuild draws from what `to_arrays` returned."""
        network = PartialNetwork.from_dict(Network.from_arrays(header["net"], arrays), header["network"])
        stats = {name: arrays[f"stat_{name}"] for name in header["stats"]}
        likelihood = likelihood_from_dict(_with_pooled(header["likelihood"], stats, network.n_outputs))
        return cls(arrays["theta"], stats, network, likelihood, header["settings"])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, which hold the draws on the host only."""
        return {**self.__dict__, "_theta": self.theta, "_device_theta": None}

    def _flat_theta(self) -> npt.NDArray[Any]:
        """Return theta with shape (chain * draw, K)."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    def _require_draws(self) -> None:
        """Raise ValueError if the run was interrupted before its first draw."""
        if self.n_draws == 0:
            raise ValueError("there are no draws: the run was interrupted before the first. Run `sample` again.")

    def __repr__(self) -> str:
        return (
            f"Draws({self.network.architecture.label()}, chains={self.n_chains}, draws={self.n_draws}, "
            f"K={self.network.dim}, thin={self.settings['thin']}, seed={self.settings['seed']})"
        )


def _with_pooled(
    likelihood: Mapping[str, Any], stats: Mapping[str, npt.NDArray[Any]], n_outputs: int
) -> Mapping[str, Any]:
    """Complete a likelihood's content from a file: before `pooled` existed, all outputs shared a sampled variance."""
    if n_outputs > 1 and "variance" in stats and stats["variance"].ndim == 2:
        return {**likelihood, "pooled": True}
    return likelihood
