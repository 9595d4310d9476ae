"""The posterior: a partially Bayesian network, a likelihood and data, with its log-densities and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture
from patrac_native.engine.density import Density, DensitySpec
from patrac_native.engine.inputs import Inputs
from patrac_native.engine.machine import thread_count
from patrac_native.interop.c_interface import CDensity
from patrac_native.interop.jax_function import to_jax
from patrac_native.interop.nutpie_model import to_nutpie
from patrac_native.kernels import Exact, Kernel
from patrac_native.kernels.choice import check_kernel
from patrac_native.likelihoods import LIKELIHOODS, Likelihood, Targets
from patrac_native.network.network import Network
from patrac_native.plots.table import html_table
from patrac_native.posterior.data import Data
from patrac_native.posterior.densities import Coordinates, DensityKind, build_density
from patrac_native.posterior.describe import describe_posterior, named_nodes, overview
from patrac_native.posterior.last_layer import ExactPosterior
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.plan import Plan, plan_of
from patrac_native.posterior.sampled_network import SampledNetwork
from patrac_native.priors import Prior
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.columns import column_names
from patrac_native.validation.extras import import_extra

if TYPE_CHECKING:
    import torch


class Posterior:
    """Posterior of the Bayesian parameters theta, with density proportional to exp(l(theta)) N(theta; 0, C).

    The constructor ranks the nodes of the network, rescales the prior, and evaluates everything that does not depend
    on theta once for the given data.

    Parameters
    ----------
    net : Network
        The trained network; the posterior does not depend on the order of its hidden nodes.
    architecture : Architecture
        `Full()`, `Mix(k)`, `Out(k)`, `Sep(k)` or `Custom(weight_masks, bias_masks)`.
    prior : Prior
        Usually `TraceClassPrior.fit(net)`; or `GaussianPrior()`.
    likelihood : Likelihood
        `Gaussian(variance)`, `Gaussian("sampled")`, `HeteroscedasticGaussian()`, `StudentT(df, scale)`,
        `CensoredGaussian(variance)`, `Categorical(scale)`, `Bernoulli()`, `Poisson()` or
        `NegativeBinomial(dispersion)`.
    X : array_like, shape (n, d)
        Finite inputs, n >= 1. Arrays of dtype uint8, float32 and float64 keep their dtype. An array of one of these
        dtypes on a CUDA device, from any library with DLPack or `__cuda_array_interface__`, is checked on the device
        and stays there for runs with device="cuda" or "auto"; computations on the host (evaluation, runs on the CPU)
        copy it to the host at the first use. The columns of a data frame are matched by name with those on which the
        network was trained; if these are not known, the frame's names become those of the posterior and its draws.
    y : array_like
        Targets, as the likelihood describes them: numbers of shape (n,) or (n, t), bounds (n, 2) or (n, t, 2), labels
        0..m-1 of shape (n,), or zeros and ones or counts of shape (n,) or (n, m).
    sample_weight : array_like, shape (n,), optional
        Factor of each row's term of the log-likelihood, finite and nonnegative with a positive sum; default ones.
        Under `Categorical(scale)` these are the weights of the mean.
    offset : array_like, shape (n,) or (n, m), optional
        Of `Poisson` and `NegativeBinomial`: what is added to the outputs of each row, such as the logarithm of its
        exposure; finite. Default zeros.
    dtype : {"float32", "float64"}
        The dtype of theta and of the engine's arithmetic; default "float32". Sums over tiles of rows are in float64 in
        either case.
    copy : bool
        Whether to keep a copy of X, so that the caller may change X afterwards; default True. With False the posterior
        keeps X itself, which must then not change. If X also has dtype `dtype` and Fortran order and the architecture
        uses every input (`Full`, `Mix`, `Sep`), the engine reads all but the last few rows without a copy; otherwise
        it packs the inputs that it needs into tiles of rows.
    level : str, optional
        Instruction-set level; by default the environment variable PATRAC_SIMD or, if it is not set, the level that a
        fixed table gives for the processor.

    Attributes
    ----------
    network : PartialNetwork
        The network with its Bayesian parameters and their prior; draws keep it too. Its `net`, `architecture`, `prior`,
        `dtype`, `level` and `scale_names` describe the posterior.
    likelihood : Likelihood
        As given; a prior of sampled noise variances that was left open is filled in.
    data : Data
        X, y, row_weights, offset and n_rows.
    sampled : SampledNetwork
        What a run needs besides: compiled models, facts on which choices rest, the law of sampled noise, metrics.

    Raises
    ------
    TypeError, ValueError
        If an argument of the constructor or a method is not as described, or not supported by the likelihood, the prior
        or the kernel at hand; the message names the argument, what it got and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> net = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> from patrac_native import Gaussian, Mix, TraceClassPrior
    >>> post = Posterior(net, Mix(1), TraceClassPrior(1.5, 1.0, 1.0), Gaussian(1.0), X, X[:, 0], dtype="float64")
    >>> post.dim
    4
    """

    network: PartialNetwork
    data: Data
    likelihood: Likelihood
    sampled: SampledNetwork

    def __init__(
        self,
        net: Network,
        architecture: Architecture,
        prior: Prior,
        likelihood: Likelihood,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        dtype: str = "float32",
        copy: bool = True,
        level: str | None = None,
    ) -> None:
        _check_likelihood(likelihood)
        network = PartialNetwork(net, architecture, prior, dtype=dtype, level=level, input_names=column_names(X))
        inputs = Inputs(
            X,
            network.n_inputs,
            n_layers=len(network.layer_sizes) - 1,
            dtype=network.dtype,
            copy=copy,
            columns=network.input_names,
        )
        self._condition(network, inputs, likelihood, y, sample_weight, offset)

    def _condition(
        self,
        network: PartialNetwork,
        inputs: Inputs,
        likelihood: Likelihood,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None,
        offset: npt.ArrayLike | None,
    ) -> None:
        """Set all attributes, once network and inputs are made."""
        self.network = network
        self.data = Data.checked(likelihood, inputs, network.n_outputs, y, sample_weight, offset, network.dtype)
        self._given_likelihood = likelihood
        sampled = SampledNetwork(network, likelihood, self.data)
        self.likelihood = sampled.likelihood
        self.sampled = sampled

    def __setattr__(self, name: str, value: Any) -> None:
        # Chains and densities are those of what was compiled.
        if "sampled" in self.__dict__ and (name in self.__dict__ or hasattr(type(self), name)):
            other = "use with_targets(y, likelihood=...)" if name in ("data", "likelihood") else "build another one"
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be set once it is built: {other}.")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a copy is built of, here or in another process, where its models are compiled again.

        Inputs on a device come back on the host, and a level that the other machine lacks becomes its own.
        """
        network, data = self.network, self.data
        rows = (data.X, data.inputs.in_place, self._given_likelihood, data.y, data.sample_weight, data.offset)
        return rebuild, (type(self), network.net, network.to_dict(), *rows)

    @property
    def dim(self) -> int:
        """K, the number of Bayesian parameters."""
        return self.network.dim

    @property
    def theta_map(self) -> FloatArray:
        """Trained values of the Bayesian parameters, shape (K,); zeros for Sep."""
        return self.network.theta_map

    @property
    def prior_variance(self) -> FloatArray:
        """Diagonal of C after rescaling, shape (K,); with sampled scales, that at their centres."""
        return self.network.prior_variance

    @property
    def parameters(self) -> npt.NDArray[np.void]:
        """Layer, row and column of each entry of theta, shape (K,); see `PartialNetwork`."""
        return self.network.parameters

    @property
    def permutation(self) -> list[npt.NDArray[np.intp]]:
        """For each layer, the trained network's own index of the node with each rank; see `PartialNetwork`."""
        return self.network.permutation

    def log_likelihood(
        self, theta: npt.ArrayLike, *, variance: npt.ArrayLike | None = None, threads: int | None = None
    ) -> float | FloatArray:
        """Evaluate the log-likelihood l(theta), normalised.

        Parameters
        ----------
        theta : array_like, shape (K,) or (B, K)
            Finite; converted to the posterior's dtype.
        variance : array_like, optional
            Noise variance, positive, or for StudentT the square of its scale; required if the likelihood samples it,
            and not allowed otherwise. Its shape is () or (B,) for one variance, (m,) or (B, m) for one of each output.
        threads : int, optional
            Number of native threads, which share the points of a batch or the rows of a single point; by default the
            number of processors that this process may use.

        Returns
        -------
        float, or ndarray of float64 of shape (B,)
        """
        batch, single = self.network.check_theta(theta)
        wanted = self.sampled.law.check(variance, len(batch))
        values: FloatArray = self._log_likelihood.core.value(batch, thread_count(threads), wanted)
        return float(values[0]) if single else values

    def log_likelihood_and_grad(
        self, theta: npt.ArrayLike, *, variance: npt.ArrayLike | None = None, threads: int | None = None
    ) -> tuple[float | FloatArray, npt.NDArray[Any]]:
        """Evaluate the log-likelihood l(theta) and its gradient with respect to theta.

        Parameters
        ----------
        theta, variance, threads
            As for `log_likelihood`.

        Returns
        -------
        value : float, or ndarray of float64 of shape (B,)
        gradient : ndarray of the posterior's dtype, shape (K,) or (B, K)
        """
        batch, single = self.network.check_theta(theta)
        wanted = self.sampled.law.check(variance, len(batch))
        values, gradient = self._log_likelihood.core.value_and_grad(batch, thread_count(threads), wanted)
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def log_prior(self, theta: npt.ArrayLike, *, scales: npt.ArrayLike | None = None) -> np.float64 | FloatArray:
        """Evaluate log N(theta; 0, C), normalised, in float64.

        Parameters
        ----------
        theta : array_like, shape (..., K)
        scales : array_like, shape (G,) or (..., G), optional
            sigma2 of each group of `network.scale_names`, positive; required if the prior samples them, and not allowed
            otherwise.

        Returns
        -------
        float64 or ndarray of float64, shape (...)
        """
        return self.network.log_prior(theta, scales)

    def density(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
    ) -> Density:
        """Return a log density with its gradient as a function of one array, as samplers of other libraries take it.

        Parameters
        ----------
        density : {"likelihood", "posterior", "collapsed", "collapsed_posterior"}
            "likelihood", the default: l(theta). "posterior": l(theta) plus the normalised log prior. "collapsed": log
            p(y | theta_h), the log marginal likelihood of the parameters theta_h = theta[density.entries] that are left
            if the Bayesian output weights are integrated out over their prior (with `HeteroscedasticGaussian`, those of
            the means). "collapsed_posterior": that plus the normalised log prior of theta_h. Samplers need one of the
            posteriors, unless they add the prior themselves.
        coordinates : {"theta", "whitened", "theta+log_variance", "whitened+log_variance"}
            "theta", the default: theta, or theta_h if output weights are integrated out. "whitened": z with
            theta = sqrt(prior_variance) z, whose prior is N(0, I). With "+log_variance" the q logarithms of the sampled
            noise variances follow; "posterior" then includes the inverse-gamma prior of the variances and the Jacobian
            of the logarithm, so that it is the joint density of theta and the logarithms.
        variance : array_like, shape () or (q,), optional
            The noise variance, positive, or for StudentT the square of its scale; required if the likelihood samples
            it, unless it is among the coordinates, and not allowed otherwise.

        Returns
        -------
        Density
            Its `theta` and `variance` turn points back into theta and noise variances.

        Raises
        ------
        ValueError
            If an argument is not as described; if the density or the coordinates need the prior and its scales are
            sampled; or if output weights are to be integrated out, and the likelihood does not allow it, there are
            none, or there are no other Bayesian parameters.

        Examples
        --------
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> posterior = post.density("posterior")
        >>> bool(np.isclose(posterior.value(np.ones(4)), post.log_likelihood(np.ones(4)) + post.log_prior(np.ones(4))))
        True
        """
        return build_density(self.sampled, density, coordinates, variance)

    @cached_property
    def _log_likelihood(self) -> Density:
        """l(theta) as a compiled density, with a sampled variance given in each call."""
        noise = self.sampled.noise
        spec = DensitySpec(noise=None if noise is None else noise.at(noise.initial))
        return Density(self.sampled.compiled.host, spec)

    def to_jax(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> Callable[[Any], Any]:
        """Return a log density as a function of JAX, for `jit`, `grad`, `vmap` and `lax.scan` on the CPU.

        The function runs compiled, without Python; `grad` and `value_and_grad` evaluate value and gradient together,
        and `vmap` makes one call of all points. It has a reverse-mode derivative, once. See docs/bridges/jax.md.

        Parameters
        ----------
        density, coordinates, variance
            As for `density`.
        threads : int or None
            Native threads that share the points of a batched call; None means the number of processors that this
            process may use. Default 1: starting a thread takes longer than a small network.

        Returns
        -------
        callable
            From an array of shape (..., D), converted to `dtype`, to values of shape (...) and that dtype.

        Raises
        ------
        ImportError
            If jax is not installed or not supported (extra "jax").
        TypeError, ValueError
            As `density`. A posterior of dtype float64 needs JAX's 64-bit mode when the function is called.
        """
        return to_jax(self.density(density, coordinates, variance), thread_count(threads))

    def to_torch(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a log density as a function of torch tensors, for autograd and `torch.func`; docs/bridges/pytorch.md.

        Its gradient is evaluated together with the value where autograd or a transform such as `grad`,
        `grad_and_value` or `vmap(grad)` records it, and `vmap` makes one native call of all points. A second derivative
        raises RuntimeError.

        Parameters
        ----------
        density, coordinates, variance, threads
            As for `to_jax`.

        Returns
        -------
        callable
            From a tensor of shape (..., D) on the CPU, converted to `dtype`, to values of shape (...) and that dtype.
        """
        import_extra("torch", "torch", "to_torch")
        from patrac_native.interop.torch_function import to_torch

        return to_torch(self.density(density, coordinates, variance), thread_count(threads))

    def c_api(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> CDensity:
        """Return a log density as C functions, for extension modules, numba, Julia and R; see docs/bridges/c.md.

        Parameters
        ----------
        density, coordinates, variance, threads
            As for `to_jax`.

        Returns
        -------
        CDensity
            With the capsules `function`, `batched` and `context`, and their addresses.
        """
        return CDensity(self.density(density, coordinates, variance), thread_count(threads))

    def to_nutpie(
        self,
        density: Literal["posterior", "collapsed_posterior"] = "posterior",
        coordinates: Coordinates = "whitened",
        variance: npt.ArrayLike | None = None,
    ) -> Any:
        """Return a model for `nutpie.sample`, whose chains run in threads of their own; see docs/bridges/nutpie.md.

        Chains start around the trained values, a tenth of the prior's standard deviation away. The variables of the
        result are theta, or theta_h, and, with "+log_variance", variance.

        Parameters
        ----------
        density : {"posterior", "collapsed_posterior"}
            Default "posterior".
        coordinates, variance
            As for `density`; coordinates are "whitened" by default.

        Returns
        -------
        nutpie.compiled_pyfunc.PyFuncModel

        Raises
        ------
        ImportError
            If nutpie is not installed (extra "nutpie").
        TypeError, ValueError
            As `density`; or if the density is not a posterior.
        """
        return to_nutpie(self.density(density, coordinates, variance))

    def exact(self) -> ExactPosterior:
        """Return mean, covariance and log evidence of the posterior in closed form.

        This requires the posterior of Bayesian linear regression, which `Exact()` samples, and a fixed variance and
        prior.

        Returns
        -------
        ExactPosterior

        Raises
        ------
        ValueError
            If the likelihood is not Gaussian, its variance or the scales of the prior are sampled, or a parameter below
            the last layer is Bayesian.
        """
        if self.sampled.noise is not None:
            what = str(self.likelihood.scale_name)
            fixed = self.likelihood.example.replace('"sampled"', what)
            raise ValueError(f"the {what} is sampled; make a posterior with a fixed one, {fixed}.")
        if self.network.scales is not None:
            raise ValueError(
                "the scales of the prior are sampled; make a posterior with a prior of fixed ones (scales=None), such "
                "as one sigma2_w and sigma2_b for each layer."
            )
        check_kernel(Exact(), self.sampled.facts)
        assert self.sampled.quadratic is not None
        return self.sampled.quadratic.exact()

    def describe(self) -> str:
        """Return a text of several lines: which nodes are Bayesian, what is sampled, what is cached and why."""
        return describe_posterior(self.sampled)

    def plan(self, kernel: str | Kernel = "auto") -> Plan:
        """Return what each step of a run computes: nodes by layer, the kernel, and counts of operations.

        Parameters
        ----------
        kernel : "auto" or Kernel
            As for `sample`; default "auto".

        Returns
        -------
        Plan
            With `layers`, `kernel`, `reason`, `is_independent`, `operations` and `step_cost`.
        """
        return plan_of(self.sampled, kernel)

    def sample_prior(self, draws: int, *, seed: int = 0) -> npt.NDArray[Any]:
        """Draw theta from the prior; sampled scales are drawn first, anew for each theta.

        Parameters
        ----------
        draws : int
            Number of draws, at least 1.
        seed : int
            0 <= seed < 2^64; default 0. The random stream is independent of those of the samplers.

        Returns
        -------
        ndarray of `dtype`, shape (draws, K)
        """
        return self.network.prior_states(draws, seed)[0]

    def prior_predict(
        self, X: npt.ArrayLike, draws: int, *, offset: npt.ArrayLike | None = None, seed: int = 0
    ) -> npt.NDArray[Any]:
        """Evaluate the predictions at X, as `Draws.predict` does, for draws of theta from the prior.

        Parameters
        ----------
        X, offset
            As for `Draws.predict`.
        draws, seed : int
            As for `sample_prior`.

        Returns
        -------
        ndarray of `dtype`, shape (draws, n, t)
        """
        return self.likelihood.predicted(self._prior_outputs(X, draws, offset, seed))

    def _prior_outputs(self, X: npt.ArrayLike, draws: int, offset: npt.ArrayLike | None, seed: int) -> npt.NDArray[Any]:
        """Return outputs plus offset for draws of theta from the prior, shape (draws, n, m)."""
        return self.likelihood.with_offset(self.network.predict(self.sample_prior(draws, seed=seed), X), offset)

    def prior_predictive(
        self, X: npt.ArrayLike, draws: int, *, offset: npt.ArrayLike | None = None, seed: int = 0
    ) -> Targets:
        """Draw targets y at X from the prior predictive distribution.

        Parameters
        ----------
        X, draws, offset, seed
            As for `prior_predict`; the seed is that of the noise too.

        Returns
        -------
        ndarray
            Targets of shape (draws, n, t), or int64 labels of shape (draws, n) for classes.
        """
        f, rng = self._prior_outputs(X, draws, offset, seed), np.random.default_rng(seed)
        return self.likelihood.sample_prior(f, rng)

    def with_targets(self, y: npt.ArrayLike, *, likelihood: Likelihood | None = None) -> Self:
        """Return the posterior given other targets of the same rows, which shares network and inputs with this one.

        It is the posterior that the constructor makes of these targets and otherwise the same arguments, at a fraction
        of the cost for small networks: nodes are not ranked again, nor inputs checked. Simulation-based calibration and
        the parametric bootstrap take many of them.

        Parameters
        ----------
        y : array_like
            Targets, as for the class.
        likelihood : Likelihood, optional
            Another likelihood; by default the one that this posterior was given, and a prior of sampled noise that it
            leaves open is chosen anew.

        Returns
        -------
        Posterior

        Examples
        --------
        >>> import numpy as np
        >>> from patrac_native import Full, Gaussian, GaussianPrior, Network, Posterior
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = Posterior(Network([[[1.0]]], [[0.0]]), Full(), GaussianPrior(), Gaussian(1.0), X, X[:, 0])
        >>> doubled = post.with_targets(2 * X[:, 0])
        >>> doubled.data.y[-1], doubled.network is post.network
        (array([2.]), True)
        """
        if likelihood is None:
            likelihood = self._given_likelihood
        _check_likelihood(likelihood)
        other = type(self).__new__(type(self))
        other._condition(self.network, self.data.inputs, likelihood, y, self.data.sample_weight, self.data.offset)
        return other

    def _repr_html_(self) -> str:
        """Return a table of the model for notebooks; `describe` also says how it is evaluated and sampled."""
        rows = [("data", f"{self.data.n_rows} rows"), *overview(self.network, self.likelihood, self.sampled.law.source)]
        if not self.network.separate:
            for layer in range(1, len(self.network.layer_sizes) - 1):
                nodes = named_nodes(self.network, layer)
                if nodes:
                    rows.append((f"Bayesian nodes of layer {layer}", f"{nodes} (in rank order, from 0)"))
        return html_table(repr(self), rows)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.network.architecture.label()}, {self.likelihood!r}, n={self.data.n_rows}, K={self.dim}, "
            f"dtype={self.network.dtype.name})"
        )


def rebuild(
    cls: type[Posterior],
    net: Network,
    content: dict[str, Any],
    X: npt.NDArray[Any],
    in_place: bool,
    likelihood: Likelihood,
    y: npt.NDArray[Any],
    sample_weight: FloatArray | None,
    offset: FloatArray | None,
) -> Posterior:
    """Return the posterior of which `Posterior.__reduce__` returned these parts."""
    post = cls.__new__(cls)
    network = PartialNetwork.from_dict(net, content)
    layers = len(network.layer_sizes) - 1
    inputs = Inputs(X, network.n_inputs, n_layers=layers, dtype=network.dtype, copy=not in_place)
    post._condition(network, inputs, likelihood, y, sample_weight, offset)
    return post


def _check_likelihood(likelihood: Any) -> None:
    """Raise TypeError if the argument is no likelihood."""
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be one of {', '.join(known.__name__ for known in LIKELIHOODS.values())}; got "
            f"{type(likelihood).__name__}. "
            "Arguments come in the order net, architecture, prior, likelihood, X, y."
        )
