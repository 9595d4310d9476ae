"""The posterior: a partially Bayesian network, a likelihood and data, with its log-densities and their gradients."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture
from patrac_native.engine import _core
from patrac_native.engine.inputs import Inputs
from patrac_native.kernels import Exact, Kernel
from patrac_native.kernels.choice import check_kernel, run_kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.kernels.variance_draws import variance_every
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.plots.table import html_table
from patrac_native.posterior.conditioned import Conditioned, check_likelihood
from patrac_native.posterior.curvature_metric import CurvatureMetric, curvature_obstacle
from patrac_native.posterior.describe import describe_posterior, named_nodes, overview
from patrac_native.posterior.fit_quality import FitQuality, fit_quality
from patrac_native.posterior.input_metric import MAX_ROTATED_BYTES, InputMetric, PrincipalAxes, rotation_obstacle
from patrac_native.posterior.last_layer import ExactPosterior, WhitenedQuadratic, whiten
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.plan import Plan, count_operations, step_cost
from patrac_native.posterior.posterior_bridges import PosteriorBridges
from patrac_native.posterior.sampled_density import NoiseLaw, SampledDensity
from patrac_native.priors import Prior
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.columns import column_names


class Posterior(Conditioned, PosteriorBridges, SampledDensity):
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
        `Categorical(scale)`, `Bernoulli()`, `Poisson()` or `NegativeBinomial(dispersion)`.
    X : array_like, shape (n, d)
        Finite inputs, n >= 1. Arrays of dtype uint8, float32 and float64 keep their dtype. An array of one of these
        dtypes on a CUDA device, from any library with DLPack or `__cuda_array_interface__`, is checked on the device
        and stays there for runs with device="cuda" or "auto"; computations on the host (evaluation, runs on the CPU)
        copy it to the host at the first use. The columns of a data frame are matched by name with those on which the
        network was trained; if these are not known, the frame's names become those of the posterior and its draws.
    y : array_like
        Targets, as the likelihood describes them: numbers of shape (n,) or (n, t), labels 0..m-1 of shape (n,), or
        zeros and ones or counts of shape (n,) or (n, m).
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
    dim, theta_map, prior_variance, parameters, permutation
        See `PartialNetwork`.
    network : PartialNetwork
        The network with its Bayesian parameters and their prior; draws keep it too.
    inputs : Inputs
        X, on the host or on a device.
    likelihood : Likelihood
        As given; a prior of sampled noise variances that was left open is filled in.
    noise_prior_source : str or None
        Where the prior of sampled noise variances comes from: "given"; "validation", from the trained network's
        residuals on rows on which it was not trained; or "training", from its residuals on the posterior's own rows.
    y, row_weights, offset : ndarray
        Targets, the factor of each row's term and offsets, as the likelihood's checks return them; the offset is None
        if there is none.
    level : str
        Instruction-set level of the compiled code.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; the message names the argument, what it got and what to do.

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

    nonfinite_remedy = 'scale X and y or use dtype="float64"'

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
        check_likelihood(likelihood)
        self.network = PartialNetwork(net, architecture, prior, dtype=dtype, level=level, input_names=column_names(X))
        self.inputs = Inputs(
            X,
            self.network.n_inputs,
            n_layers=len(self.network.layer_sizes) - 1,
            dtype=self.network.dtype,
            copy=copy,
            columns=self.network.input_names,
        )
        self._condition(likelihood, y, sample_weight, offset)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a copy is built of, here or in another process, where its models are compiled again.

        Inputs on a device come back on the host, and a level that the other machine lacks becomes its own.
        """
        network = self.network
        parts = (network.net, network.architecture, network.prior)
        options = {"dtype": network.dtype.name, "level": network.level, "input_names": network.input_names}
        data = (self.X, self.inputs.in_place, self._given_likelihood, self.y, self._sample_weight, self.offset)
        return _rebuilt, (type(self), parts, options, *data)

    @property
    def sampled_noise(self) -> NoiseLaw | None:
        """The law of the sampled noise variances; None if they are fixed."""
        if not self.variance_is_sampled:
            return None
        shape, rate = self.likelihood.variance_prior(self.network.n_outputs)
        every = partial(variance_every, self.facts, self._layers, self.n_rows)
        return NoiseLaw(shape, rate, self.starting_variances, every)

    @property
    def scale_groups(self) -> ScaleGroups | None:
        """The groups of parameters whose prior scales are sampled; None if the variances are fixed."""
        return self.network.scales

    @property
    def map_start(self) -> FloatArray:
        """The trained values, shape (K,); zeros for Sep."""
        return self.theta_map

    @property
    def is_trained(self) -> bool:
        """Whether `theta_map` holds trained values: False for Sep."""
        return not self.network.separate

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,); sampled scales are at their centres."""
        start: npt.NDArray[Any] = self.network.sample_prior(1, seed=seed, chain=chain, purpose=_core.Purpose.init)[0]
        return start

    def cautions(self) -> list[str]:
        """Return a warning if the prior of sampled noise rests on residuals that may be too small."""
        if self.noise_prior_source != "training":
            return []
        call = self.likelihood.example.replace('"sampled"', '"sampled", a=2, b=...')
        return [
            "the prior of the noise variance rests on the trained network's residuals on the rows of this posterior, "
            "which may be too small if the network was trained on them; train with validation rows, which then give "
            f"net.history.validation_mse, or give a and b, as in {call}."
        ]

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
        self._check_nothing_sampled()
        check_kernel(Exact(), self.facts)
        assert self.quadratic is not None
        return self.quadratic.exact()

    def describe(self) -> str:
        """Return a text of several lines: which nodes are Bayesian, what is sampled, what is cached and why."""
        cached = ""
        if self.inputs.on_device is None:
            host = self.compiled.host
            cached = f"tiles of {host.tile_rows} rows, {host.cached_bytes / 2**20:.2f} MiB of cached data"
        return describe_posterior(self.network, self.facts, self._layers, self.n_rows, cached)

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

        Raises
        ------
        TypeError, ValueError
            If `kernel` is something else, or the posterior does not support it.
        """
        chosen, reason = run_kernel(kernel, self.facts)
        described = (self._layers, self.network, self.likelihood, self.n_rows)
        return Plan(
            self._layers,
            chosen,
            reason,
            count_operations(*described, is_quadratic=self.facts.is_last_layer_gaussian),
            step_cost(*described, self.facts, chosen),
        )

    @property
    def _layers(self) -> list[dict[str, int]]:
        """The numbers of nodes and parameters by which the compiled model evaluates each layer."""
        layers: list[dict[str, int]] = self.compiled.planned.layers
        return layers

    @cached_property
    def facts(self) -> ModelFacts:
        """The facts on which the choice of kernel and device depends."""
        is_quadratic = self.likelihood.is_quadratic and self._layers[-1]["varying_sources"] == 0
        return ModelFacts(
            likelihood=self.likelihood,
            architecture=self.architecture.label(),
            dim=self.dim,
            hidden_dim=self.hidden_dim,
            n_layers=len(self.network.layer_sizes) - 1,
            max_hidden_width=max(self.network.layer_sizes[1:-1], default=0),
            is_last_layer_gaussian=is_quadratic,
            sampled_variances=tuple(self.starting_variances.tolist()) if self.variance_is_sampled else None,
            noise_prior_source=self.noise_prior_source,
            samples_scales=self.network.scales is not None,
            interweaves=self.network.scales is not None and self.network.scales.interweave,
            inputs_on_device=self.inputs.on_device,
            rotation_obstacle=rotation_obstacle(self.network),
            curvature_obstacle=curvature_obstacle(self.network),
            input_spread=self._input_spread(),
        )

    def _input_spread(self) -> float | None:
        """See `ModelFacts`."""
        inputs = self.inputs
        if inputs.on_device is not None or inputs.in_place or inputs.host.dtype == np.uint8:
            return None
        if inputs.host.size * self.dtype.itemsize > MAX_ROTATED_BYTES or rotation_obstacle(self.network):
            return None
        return self.input_metric.axes.spread

    @cached_property
    def input_metric(self) -> InputMetric:
        """The model along the principal axes of its inputs, for kernels with metric="inputs"."""
        return InputMetric(self.network, self.compiled, PrincipalAxes.of(self.X, self.row_weights))

    @cached_property
    def curvature_metric(self) -> CurvatureMetric:
        """The axes of the curvature at the trained network, for kernels with metric="curvature"."""
        return CurvatureMetric(
            self.network, self.reference_likelihood, self.compiled, self.X, self.row_weights, self.offset
        )

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return what the kernel's metric supplies to a run; None if the chains step in theta, all alike."""
        if kernel.metric == "inputs":
            return self.input_metric
        return self.curvature_metric if kernel.metric == "curvature" else None

    @cached_property
    def fit_quality(self) -> FitQuality:
        """The quality of the trained network's fit to the training data, compared with the best constant predictor."""
        # Sep's trained values are zeros, at which its separate network adds nothing; so theta_map gives the trained
        # network for every architecture.
        return fit_quality(
            self.likelihood,
            self.y,
            self.row_weights,
            self.offset,
            outputs=lambda: self.network.predict(self.theta_map, self.X, threads=1),
            log_likelihood=self._trained_log_likelihood,
        )

    def _trained_log_likelihood(self) -> float:
        """Evaluate l at the trained values: on the host if its model has been built, else on the inputs' device."""
        device_inputs = self.inputs.on_device
        if device_inputs is None or self.compiled.has_host:
            return float(self.log_likelihood(self.theta_map, threads=1))
        model = self.compiled.on_device(device_inputs.device)
        return float(model.log_likelihood(self.theta_map.astype(self.dtype)[None])[0])

    @cached_property
    def quadratic(self) -> WhitenedQuadratic | None:
        """Sufficient statistics in the whitened eigenbasis; None if the log-likelihood is not quadratic in theta."""
        if not self.facts.is_last_layer_gaussian:
            return None
        compiled = self.compiled
        by_output = self.variance_is_sampled and len(self.starting_variances) > 1
        return whiten(
            compiled.spec,
            self.X,
            compiled.targets,
            self.row_weights,
            self.prior_variance,
            level=self.level,
            output=self.parameters["row"].astype(np.int32) if by_output else None,
        )

    def _repr_html_(self) -> str:
        """Return a table of the model for notebooks; `describe` also says how it is evaluated and sampled."""
        rows = [("data", f"{self.n_rows} rows"), *overview(self.network, self.likelihood, self.noise_prior_source)]
        if not self.network.separate:
            for layer in range(1, len(self.network.layer_sizes) - 1):
                nodes = named_nodes(self.network, layer)
                if nodes:
                    rows.append((f"Bayesian nodes of layer {layer}", f"{nodes} (in rank order, from 0)"))
        return html_table(repr(self), rows)

    def __repr__(self) -> str:
        return (
            f"Posterior({self.architecture.label()}, {self.likelihood!r}, n={self.n_rows}, K={self.dim}, "
            f"dtype={self.dtype.name})"
        )


def _rebuilt(
    cls: type[Posterior],
    parts: tuple[Network, Architecture, Prior],
    options: dict[str, Any],
    X: npt.NDArray[Any],
    in_place: bool,
    likelihood: Likelihood,
    y: npt.NDArray[Any],
    sample_weight: FloatArray | None,
    offset: FloatArray | None,
) -> Posterior:
    """Return the posterior of which `Posterior.__reduce__` returned these parts."""
    if options["level"] not in _core.simd_levels():
        options["level"] = None
    post = cls.__new__(cls)
    post.network = PartialNetwork(*parts, **options)
    layers = len(post.network.layer_sizes) - 1
    post.inputs = Inputs(X, post.network.n_inputs, n_layers=layers, dtype=post.network.dtype, copy=not in_place)
    post._condition(likelihood, y, sample_weight, offset)
    return post
