"""The posterior: data, likelihood and a partially Bayesian network compiled into one log-density with gradient."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine.inputs import Inputs
from patrac_native.engine.models import CompiledModels
from patrac_native.engine.threads import thread_count
from patrac_native.model.architectures import Architecture
from patrac_native.model.choice import check_kernel
from patrac_native.model.compiled_likelihood import at_variance, check_range, fixed_likelihood
from patrac_native.model.describe import describe_posterior
from patrac_native.model.facts import ModelFacts
from patrac_native.model.fit_quality import FitQuality, fit_quality
from patrac_native.model.kernels import Exact, MGrad
from patrac_native.model.last_layer import ExactPosterior, WhitenedQuadratic, whiten
from patrac_native.model.likelihoods import LIKELIHOODS, Gaussian, Likelihood
from patrac_native.model.partial_network import PartialNetwork
from patrac_native.model.prior import TraceClassPrior
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray, cast_checked, check_count, check_seed


class Posterior:
    """Posterior of the Bayesian parameters theta, proportional to exp(l(theta)) N(theta; 0, C).

    Ranks the network itself, rescales the prior and folds everything that does not depend on theta into
    constants of the data.

    Parameters
    ----------
    net : Network
        The trained network, nodes in any order: the posterior is the same for every order.
    architecture : Architecture
        `Full()`, `Mix(k)`, `Out(k)`, `Sep(k)` or `Custom(weight_masks, bias_masks)`.
    prior : TraceClassPrior
        Usually `TraceClassPrior.fit(net)`.
    likelihood : Likelihood
        `Gaussian(variance)`, `Gaussian("sampled")`, `Categorical(scale)` or `Bernoulli()`.
    X : array_like, shape (n, d)
        Finite inputs, n >= 1. Those of type uint8, float32 and float64 keep it. What another library has on a CUDA
        device in one of these types (DLPack or `__cuda_array_interface__`) is checked there and stays there for runs
        with device="cuda" or "auto"; what works on the host (evaluation, runs on the CPU) copies it at its first use.
    y : array_like
        (n,) or (n, m) numbers, labels 0..m-1 of shape (n,), or zeros and ones, as the likelihood wants.
    sample_weight : array_like, shape (n,), optional
        Factor of each row's term of the log-likelihood; under `Categorical(scale)` the weights of the mean.
    dtype : {"float32", "float64"}
        Type of theta and of the engine's arithmetic; sums over tiles of rows are in float64 either way.
    copy : bool
        Whether to keep a copy of X, so that it may change afterwards. False keeps X itself, which must then stay as it
        is; if it is of type `dtype`, in Fortran order and no input is left out (`Full`, `Mix`, `Sep`), the engine reads
        it where it is, all but the last few rows. Otherwise the engine packs the inputs that it needs, row tile by row
        tile.
    level : str, optional
        Instruction-set level; by default PATRAC_SIMD or, from a fixed table, the processor's.

    Attributes
    ----------
    dim, theta_map, prior_variance, parameters, permutation
        See `PartialNetwork`, which is `network`.
    network : PartialNetwork
        The part that draws keep.
    inputs : Inputs
        X, where it is.
    y, row_weights : ndarray
        Targets and the factor of each row's term, as the likelihood's checks return them.
    level : str
        Instruction-set level of the compiled code.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit, naming the argument, what it got and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> net = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> from patrac_native import Gaussian, Mix
    >>> post = Posterior(net, Mix(1), TraceClassPrior(1.5, 1.0, 1.0), Gaussian(1.0), X, X[:, 0], dtype="float64")
    >>> post.dim
    4
    """

    def __init__(
        self,
        net: Network,
        architecture: Architecture,
        prior: TraceClassPrior,
        likelihood: Likelihood,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        sample_weight: npt.ArrayLike | None = None,
        dtype: str = "float32",
        copy: bool = True,
        level: str | None = None,
    ) -> None:
        if not isinstance(likelihood, Likelihood):
            raise TypeError(
                f"likelihood must be one of {', '.join(known.__name__ for known in LIKELIHOODS.values())}; got "
                f"{type(likelihood).__name__}. "
                "Arguments come in the order net, architecture, prior, likelihood, X, y."
            )
        self.network = PartialNetwork(net, architecture, prior, dtype=dtype, level=level)
        self.likelihood = likelihood
        self.inputs = Inputs(
            X,
            self.network.n_inputs,
            n_layers=len(self.network.layer_sizes) - 1,
            dtype=self.network.dtype,
            copy=copy,
        )
        self.y = likelihood.check_targets(y, self.n_rows, self.network.n_outputs)
        self.y.flags.writeable = False
        self.row_weights = likelihood.row_weights(sample_weight, self.n_rows)
        self.reference_likelihood = fixed_likelihood(
            likelihood, lambda: self.y - self.net.predict(self.X), self.row_weights
        )
        check_range(self.reference_likelihood, self.row_weights, self.network.n_outputs, self.network.dtype)
        targets = np.ascontiguousarray(self.y, dtype=np.float64)
        cast_checked(targets, self.network.dtype, "y")  # the engine's own conversion would be silent
        self.compiled = CompiledModels(
            self.network.spec(self.reference_likelihood),
            self.inputs,
            targets,
            self.row_weights,
            dtype=self.network.dtype,
            level=self.network.level,
        )
        if self.inputs.on_device is None:
            self.compiled.host  # noqa: B018 - built at once, so that the memory it needs is taken here

    @property
    def net(self) -> Network:
        """The trained network as it was given."""
        return self.network.net

    @property
    def architecture(self) -> Architecture:
        """Which parameters are Bayesian."""
        return self.network.architecture

    @property
    def dim(self) -> int:
        """K, the number of Bayesian parameters."""
        return self.network.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of theta."""
        return self.network.dtype

    @property
    def level(self) -> str:
        """Instruction-set level of the compiled code."""
        return self.network.level

    @property
    def theta_map(self) -> FloatArray:
        """Trained values of the Bayesian parameters, shape (K,); zeros for Sep."""
        return self.network.theta_map

    @property
    def prior_variance(self) -> FloatArray:
        """Diagonal of C after rescaling, shape (K,)."""
        return self.network.prior_variance

    @property
    def parameters(self) -> npt.NDArray[np.void]:
        """(layer, row, column) of each entry of theta; see `PartialNetwork`."""
        return self.network.parameters

    @property
    def permutation(self) -> list[npt.NDArray[np.intp]]:
        """Ranked node -> the trained network's own node, for each layer."""
        return self.network.permutation

    @property
    def n_rows(self) -> int:
        """n, the number of rows of X."""
        return self.inputs.n_rows

    @property
    def X(self) -> npt.NDArray[Any]:
        """The inputs on the host, shape (n, d), read-only; those that came on a device are copied at the first use."""
        return self.inputs.host

    @property
    def hidden_dim(self) -> int:
        """K_h, the number of Bayesian parameters below the output layer: theta[:K_h]."""
        return int(self.compiled.planned.hidden_dim)

    def log_likelihood(
        self, theta: npt.ArrayLike, *, variance: npt.ArrayLike | None = None, threads: int | None = None
    ) -> float | FloatArray:
        """Evaluate l(theta), normalised.

        Parameters
        ----------
        theta : array_like, shape (K,) or (B, K)
            Finite; converted to `dtype`.
        variance : array_like, shape () or (B,), optional
            Of the noise; needed where it is sampled, and only there.
        threads : int, optional
            Native threads over the batch, or over the rows of a single point; default all processors of this process.

        Returns
        -------
        float, or ndarray of float64 of shape (B,)
        """
        batch, single = self.network.check_theta(theta)
        values: FloatArray = self.compiled.host.log_likelihood(batch, thread_count(threads))
        values, _ = self._at_variance(values, variance)
        return float(values[0]) if single else values

    def log_likelihood_and_grad(
        self, theta: npt.ArrayLike, *, variance: npt.ArrayLike | None = None, threads: int | None = None
    ) -> tuple[float | FloatArray, npt.NDArray[Any]]:
        """Evaluate l(theta) and its gradient over the Bayesian parameters.

        Parameters
        ----------
        theta : array_like, shape (K,) or (B, K)
            Finite; converted to `dtype`.
        variance : array_like, shape () or (B,), optional
            Of the noise; needed where it is sampled, and only there.
        threads : int, optional
            Native threads over the batch, or over the rows of a single point; default all processors of this process.

        Returns
        -------
        value : float, or ndarray of float64 of shape (B,)
        gradient : ndarray of `dtype`, shape (K,) or (B, K)
        """
        batch, single = self.network.check_theta(theta)
        values, gradient = self.compiled.host.log_likelihood_and_grad(batch, thread_count(threads))
        values, scale = self._at_variance(values, variance)
        if scale is not None:
            gradient = (gradient * scale[:, None]).astype(self.dtype)
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def _at_variance(self, values: FloatArray, variance: npt.ArrayLike | None) -> tuple[FloatArray, FloatArray | None]:
        """Rescale l (B,) to a variance, which is given exactly where it is sampled; see `at_variance`."""
        return at_variance(
            values,
            variance,
            likelihood=self.likelihood,
            reference=self.starting_variance if self.variance_is_sampled else None,
            terms=self.gaussian_terms,
        )

    @property
    def variance_is_sampled(self) -> bool:
        """Whether the noise variance is drawn with theta."""
        return self.reference_likelihood is not self.likelihood

    @property
    def starting_variance(self) -> float:
        """Where a sampled noise variance starts: its mode given the trained network; else that of the first output."""
        assert isinstance(self.reference_likelihood, Gaussian)
        return float(self.reference_likelihood.variance_vector(self.network.n_outputs)[0])

    @property
    def gaussian_terms(self) -> float:
        """Outputs times the sum of the row weights."""
        return self.network.n_outputs * float(self.row_weights.sum())

    def collapsed_log_likelihood(self, theta_hidden: npt.ArrayLike) -> float | FloatArray:
        """Evaluate log p(y | theta_h), the Bayesian output weights integrated out over their prior.

        Parameters
        ----------
        theta_hidden : array_like, shape (K_h,) or (B, K_h)
            The Bayesian parameters below the output layer, theta[:hidden_dim].

        Returns
        -------
        float, or ndarray of float64 of shape (B,)
            Normalised as `log_likelihood` is.

        Raises
        ------
        ValueError
            For a likelihood other than Gaussian with a fixed variance, or where nothing can be integrated out.
        """
        values, _, single = self._collapsed(theta_hidden, with_gradient=False)
        return float(values[0]) if single else values

    def collapsed_log_likelihood_and_grad(
        self, theta_hidden: npt.ArrayLike
    ) -> tuple[float | FloatArray, npt.NDArray[Any]]:
        """Evaluate log p(y | theta_h) and its gradient; see `collapsed_log_likelihood`.

        Returns
        -------
        value : float, or ndarray of float64 of shape (B,)
        gradient : ndarray of `dtype`, shape (K_h,) or (B, K_h)
        """
        values, gradient, single = self._collapsed(theta_hidden, with_gradient=True)
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def _collapsed(
        self, theta_hidden: npt.ArrayLike, *, with_gradient: bool
    ) -> tuple[FloatArray, npt.NDArray[Any], bool]:
        check_kernel(MGrad(collapse=True), self.facts)
        if self.variance_is_sampled:
            raise ValueError("the variance is sampled; make a posterior with a fixed one, Gaussian(variance).")
        batch, single = self.network.check_theta(theta_hidden, "theta_hidden", self.hidden_dim)
        values, gradient = self.compiled.host.collapsed(batch, self.prior_variance, with_gradient)
        return values, gradient, single

    def exact(self) -> ExactPosterior:
        """Return mean, covariance and log evidence in closed form, where `Exact()` serves and the variance is fixed.

        Raises
        ------
        ValueError
            Where the posterior is not that of Bayesian linear regression.
        """
        check_kernel(Exact(), self.facts)
        if self.quadratic is None or self.variance_is_sampled:
            raise ValueError("the variance is sampled; make a posterior with a fixed one, Gaussian(variance).")
        return self.quadratic.exact()

    def log_prior(self, theta: npt.ArrayLike) -> np.float64 | FloatArray:
        """Evaluate log N(theta; 0, C), normalised; theta of shape (..., K)."""
        return self.network.log_prior(theta)

    def sample_prior(self, draws: int, *, seed: int = 0) -> npt.NDArray[Any]:
        """Draw theta from the prior.

        Parameters
        ----------
        draws : int
            At least 1.
        seed : int
            0 <= seed < 2^64; the stream is apart from those of the samplers.

        Returns
        -------
        ndarray of `dtype`, shape (draws, K)
        """
        return self.network.sample_prior(check_count(draws, "draws"), seed=check_seed(seed))

    def prior_predict(self, X: npt.ArrayLike, draws: int, *, seed: int = 0) -> npt.NDArray[Any]:
        """Outputs f of prior draws at X, shape (draws, n, m): the prior predictive distribution of f."""
        return self.network.predict(self.sample_prior(draws, seed=seed), X)

    def prior_predictive(self, X: npt.ArrayLike, draws: int, *, seed: int = 0) -> npt.NDArray[Any]:
        """Targets y of prior draws at X with the likelihood's noise: (draws, n, m), or labels (draws, n)."""
        f, rng = self.prior_predict(X, draws, seed=seed), np.random.default_rng(seed)
        return self.likelihood.sample_prior(f, rng)

    def describe(self) -> str:
        """Say in words which nodes are Bayesian, what is sampled, what is cached and why."""
        cached = ""
        if self.inputs.on_device is None:
            host = self.compiled.host
            cached = f"tiles of {host.tile_rows} rows, {host.cached_bytes / 2**20:.2f} MiB of cached data"
        return describe_posterior(self.network, self.facts, self.plan(), self.n_rows, cached)

    def plan(self) -> list[dict[str, int]]:
        """Return what the plan found in each layer.

        Returns
        -------
        list of L dicts
            nodes; varying (nodes that theta reaches); varying_sources and constant_sources (nodes read each step);
            offsets (nodes with a cached offset a row); bayesian (parameters); gradient_block (entries of the dense
            block that covers the Bayesian weights).
        """
        layers: list[dict[str, int]] = self.compiled.planned.layers
        return layers

    @cached_property
    def facts(self) -> ModelFacts:
        """What the choice of kernel and device needs to know."""
        is_quadratic = self.likelihood.is_quadratic and self.plan()[-1]["varying_sources"] == 0
        return ModelFacts(
            likelihood=self.likelihood,
            architecture=self.architecture.label(),
            dim=self.dim,
            hidden_dim=self.hidden_dim,
            n_layers=len(self.network.layer_sizes) - 1,
            is_last_layer_gaussian=is_quadratic,
            sampled_variance=self.starting_variance if self.variance_is_sampled else None,
            inputs_on_device=self.inputs.on_device,
        )

    @cached_property
    def fit_quality(self) -> FitQuality:
        """How well the trained network fits the training data, beside the best constant."""
        # At Sep's trained values, zeros, its own network adds nothing: theta_map is the trained network everywhere.
        return fit_quality(
            self.likelihood,
            self.y,
            self.row_weights,
            outputs=lambda: self.network.predict(self.theta_map, self.X, threads=1),
            log_likelihood=self._trained_log_likelihood,
        )

    def _trained_log_likelihood(self) -> float:
        """Evaluate l at the trained values, on the device of the inputs unless they have come to the host."""
        there = self.inputs.on_device
        if there is None or self.compiled.has_host:
            return float(self.log_likelihood(self.theta_map, threads=1))
        model = self.compiled.on_device(there.device)
        return float(model.log_likelihood(self.theta_map.astype(self.dtype)[None])[0])

    @cached_property
    def quadratic(self) -> WhitenedQuadratic | None:
        """Sufficient statistics in the whitened eigenbasis, or None where l is not quadratic in theta."""
        if not self.facts.is_last_layer_gaussian:
            return None
        compiled = self.compiled
        return whiten(compiled.spec, self.X, compiled.targets, self.row_weights, self.prior_variance, level=self.level)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.architecture.label()}, {self.likelihood!r}, n={self.n_rows}, K={self.dim}, "
            f"dtype={self.dtype.name})"
        )
