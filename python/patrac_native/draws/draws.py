"""Posterior draws: the kept states with their statistics, and everything needed to predict from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.summary import Summary, summarise
from patrac_native.engine.device_array import DeviceArray
from patrac_native.model.likelihoods import Likelihood, likelihood_from_dict
from patrac_native.model.partial_network import PartialNetwork
from patrac_native.network.files import load_arrays, save_arrays
from patrac_native.network.network import Network
from patrac_native.validation.checks import check_count, check_inputs, check_seed

# Statistics with one value for each draw; the others have one for each chain or warm-up phase.
PER_DRAW = ("log_likelihood", "log_prior", "acceptance_rate", "step_size", "variance")
# Bytes of f that one block of `predict_blocks` may take.
BLOCK_BYTES = 64 * 2**20


class Draws:
    """What `sample` returns.

    Attributes
    ----------
    theta : ndarray of the posterior's dtype, shape (chain, draw, K)
        The kept states, in the order of `network.parameters`. Where they stayed on a device, the first use of `theta`
        copies them to the host.
    device_theta : DeviceArray
        The same on the device, after `sample(..., keep_on_device=True)`.
    stats : dict of str to ndarray
        (chain, draw): log_likelihood, log_prior (both normalised), acceptance_rate (over the `thin` steps that end in
        the draw; for the elliptical slice steps over points evaluated), step_size, and variance where the noise
        variance is sampled. (chain, phase): warmup_acceptance_rate, warmup_step_size (at the phase's end). (chain,):
        nonfinite and warmup_nonfinite, the proposals of sampling and of warm-up rejected because their log-likelihood
        or gradient was not finite.
    network : PartialNetwork
        Trained network, architecture and prior.
    likelihood : Likelihood
    settings : dict
        kernel and why it was chosen, warm-up, its steps and whether the chains were stable at its end, seed, thin,
        seconds and whether the run completed.
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
        """The kept states on the device, shape (chain, draw, K).

        Raises
        ------
        ValueError
            Where the run did not keep them there.
        """
        if self._device_theta is None:
            raise ValueError(
                'device_theta: these draws are on the host alone; run sample(..., device="cuda", keep_on_device=True).'
            )
        return self._device_theta

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self._shape[0])

    @property
    def n_draws(self) -> int:
        """Kept states of each chain."""
        return int(self._shape[1])

    @property
    def steps_per_second(self) -> float:
        """Transitions of all chains, warm-up included, by the wall clock of the run; NaN for an interrupted one."""
        if not self.settings["completed"]:
            return float("nan")
        steps = self.n_chains * (self.settings["warmup_steps"] + self.n_draws * self.settings["thin"])
        return float(steps / self.settings["seconds"])

    def thinned(self, every: int) -> Draws:
        """Return every `every`-th draw, the last of each stretch, as a run with thin times `every` has them.

        Parameters
        ----------
        every : int
            1 to `n_draws`.
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

    def predict(self, X: npt.ArrayLike, *, threads: int | None = None) -> npt.NDArray[Any]:
        """Evaluate the function draws f(x; theta).

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite.
        threads : int, optional
            Native threads; default all processors of this process.

        Returns
        -------
        ndarray of the posterior's dtype, shape (chain, draw, n_new, m)
            chain * draw * n_new * m values; `predict_blocks` goes through many rows in bounded memory.
        """
        self._require_draws()
        f = self.network.predict(self._flat_theta(), X, threads=threads)
        return f.reshape(self.n_chains, self.n_draws, *f.shape[1:])

    def predict_blocks(
        self, X: npt.ArrayLike, *, rows: int | None = None, threads: int | None = None
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Go through the rows of X in blocks, so that memory stays bounded however many rows there are.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
        rows : int, optional
            Rows of a block; by default as many as keep f of a block within 64 MiB.
        threads : int, optional

        Yields
        ------
        block : slice
            Rows of X.
        f : ndarray, shape (chain, draw, rows, m)
        """
        self._require_draws()
        inputs = check_inputs(X, self.network.n_inputs)
        if rows is None:
            row_bytes = self.n_chains * self.n_draws * self.network.n_outputs * self.theta.itemsize
            rows = max(1, BLOCK_BYTES // row_bytes)
        rows = check_count(rows, "rows")
        for first in range(0, len(inputs), rows):
            block = slice(first, min(first + rows, len(inputs)))
            yield block, self.predict(inputs[block], threads=threads)

    def predictive(self, X: npt.ArrayLike, *, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets y at X: function draws plus the likelihood's noise, the posterior predictive distribution.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
        seed : int
            At least 0.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, m), or of class labels (chain, draw, n_new) for Categorical
        """
        rng = np.random.Generator(np.random.Philox(check_seed(seed)))
        f = self.predict(X)
        if "variance" in self.stats:
            return self.likelihood.sample_at(f, rng, self.stats["variance"])
        return self.likelihood.sample(f, rng)

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Class probabilities of each draw at X.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n_new, m)
            Softmax over classes for Categorical; for Bernoulli the probability of a 1 at each output.

        Raises
        ------
        TypeError
            For a Gaussian likelihood.
        """
        return self.likelihood.probabilities(self.predict(X))

    def summary(self, X: npt.ArrayLike, *, coverage: float = 0.95) -> Summary:
        """Summarise the draws of f, or of the class probabilities for Categorical, at X.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Inputs where f is looked at, such as a grid or a sample of the training inputs.
        coverage : float
            Posterior probability of the central intervals, in (0, 1).

        Returns
        -------
        Summary
            Mean, interval and convergence at every row of X; prints as a table.
        """
        inputs = check_inputs(X, self.network.n_inputs)
        classes = self.likelihood.targets == "class"
        return summarise(
            self.predict_proba(inputs) if classes else self.predict(inputs),
            "class probabilities" if classes else "f",
            coverage,
            architecture=self.network.architecture,
            stats=self.stats,
            settings=self.settings,
            steps_per_second=self.steps_per_second,
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write draws, network and settings to one .npz file (no pickle); the data are not part of it.

        Parameters
        ----------
        path : path-like
            Taken as it is; no ending is added.
        overwrite : bool
            Whether an existing file may be replaced; otherwise it raises FileExistsError.
        """
        net_header, net_arrays = self.network.net.to_arrays()
        header = {
            "net": net_header,
            "network": self.network.to_dict(),
            "likelihood": self.likelihood.to_dict(),
            "settings": self.settings,
            "stats": list(self.stats),
        }
        arrays = {"theta": self.theta, **net_arrays, **{f"stat_{name}": v for name, v in self.stats.items()}}
        save_arrays(path, "draws", header, arrays, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Draws:
        """Read draws written by `save`.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, holds something else, or has another version's format.
        """
        header, arrays = load_arrays(path, "draws")
        network = PartialNetwork.from_dict(Network.from_arrays(header["net"], arrays), header["network"])
        stats = {name: arrays[f"stat_{name}"] for name in header["stats"]}
        likelihood = likelihood_from_dict(header["likelihood"])
        return cls(arrays["theta"], stats, network, likelihood, header["settings"])

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles hold the draws on the host alone."""
        return {**self.__dict__, "_theta": self.theta, "_device_theta": None}

    def _flat_theta(self) -> npt.NDArray[Any]:
        return self.theta.reshape(-1, self.theta.shape[-1])

    def _require_draws(self) -> None:
        """Raise for a run that was interrupted before its first draw."""
        if self.n_draws == 0:
            raise ValueError("there are no draws: the run was interrupted before the first. Run `sample` again.")

    def __repr__(self) -> str:
        return (
            f"Draws({self.network.architecture.label()}, chains={self.n_chains}, draws={self.n_draws}, "
            f"K={self.network.dim}, thin={self.settings['thin']}, seed={self.settings['seed']})"
        )
