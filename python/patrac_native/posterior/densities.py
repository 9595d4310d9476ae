"""The log densities of a posterior with their gradients, as functions of arrays and as `Density` objects."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.engine.density import Density, DensitySpec, SampledNoise
from patrac_native.engine.models import CompiledModels
from patrac_native.engine.threads import thread_count
from patrac_native.kernels import MGrad
from patrac_native.kernels.choice import check_kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.compiled_likelihood import check_variances
from patrac_native.posterior.prior_model import PriorModel
from patrac_native.validation.checks import FloatArray

DensityKind = Literal["likelihood", "posterior", "collapsed", "collapsed_posterior"]
Coordinates = Literal["theta", "whitened", "theta+log_variance", "whitened+log_variance"]
DENSITIES = ("likelihood", "posterior", "collapsed", "collapsed_posterior")
COORDINATES = ("theta", "whitened", "theta+log_variance", "whitened+log_variance")


def check_choice(value: str, known: tuple[str, ...], name: str) -> str:
    """Return `value`; raise ValueError, which names the argument, if it is not one of the known ones."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")
    return value


class PosteriorDensities(PriorModel):
    """Base class of `PosteriorBridges` with the log densities of a posterior.

    Attributes
    ----------
    reference_likelihood : Likelihood
        The compiled likelihood, in which sampled variances are fixed at reference values.
    row_weights : ndarray of float64, shape (n,)
    facts : ModelFacts
    """

    reference_likelihood: Likelihood
    row_weights: FloatArray

    @property
    def compiled(self) -> CompiledModels:
        """The compiled models, on the host and on devices."""
        raise NotImplementedError

    @property
    def facts(self) -> ModelFacts:
        """The facts on which the choice of kernel and device depends."""
        raise NotImplementedError

    @cached_property
    def hidden_entries(self) -> npt.NDArray[np.int64]:
        """Positions in theta of theta_h, the parameters that are left if output weights are integrated out, (K_h,).

        With a Gaussian likelihood they are theta[:K_h], the Bayesian parameters below the output layer. With
        `HeteroscedasticGaussian` the weights and biases of the log-variances belong to them too; theta has these after
        the weights, or the biases, of the means.
        """
        entries: npt.NDArray[np.int64] = self.compiled.planned.hidden_entries
        entries.flags.writeable = False
        return entries

    @property
    def hidden_dim(self) -> int:
        """K_h, the number of `hidden_entries`."""
        return len(self.hidden_entries)

    def log_likelihood(
        self, theta: npt.ArrayLike, *, variance: npt.ArrayLike | None = None, threads: int | None = None
    ) -> float | FloatArray:
        """Evaluate the log-likelihood l(theta), normalised.

        Parameters
        ----------
        theta : array_like, shape (K,) or (B, K)
            Finite; converted to `dtype`.
        variance : array_like, optional
            Noise variance, positive, or for StudentT the square of its scale; required if the likelihood samples it,
            and not allowed otherwise. Its shape is () or (B,) for one variance, (m,) or (B, m) for one of each output.
        threads : int, optional
            Number of native threads, which share the points of a batch or the rows of a single point; by default the
            number of processors that this process may use.

        Returns
        -------
        float, or ndarray of float64 of shape (B,)

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        batch, single = self.network.check_theta(theta)
        wanted = self._wanted_variances(variance, len(batch))
        values: FloatArray = self._likelihood_density.core.value(batch, thread_count(threads), wanted)
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
        gradient : ndarray of `dtype`, shape (K,) or (B, K)

        Raises
        ------
        TypeError, ValueError
            As `log_likelihood`.
        """
        batch, single = self.network.check_theta(theta)
        wanted = self._wanted_variances(variance, len(batch))
        values, gradient = self._likelihood_density.core.value_and_grad(batch, thread_count(threads), wanted)
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def _wanted_variances(self, variance: npt.ArrayLike | None, count: int) -> FloatArray | None:
        """Return requested variances as (B, q); None if the likelihood's own is fixed. Raises as `check_variances`."""
        if not self.variance_is_sampled:
            if variance is not None:
                raise ValueError(f"variance must be left out: {self.likelihood!r} has it fixed.")
            return None
        n_variances = len(self.starting_variances)
        return check_variances(variance, count, likelihood=self.likelihood, n_variances=n_variances)

    @property
    def variance_is_sampled(self) -> bool:
        """Whether the noise variance is sampled with theta."""
        return self.reference_likelihood is not self.likelihood

    @property
    def starting_variances(self) -> FloatArray:
        """Initial values of the sampled noise variances, their modes given the trained network, shape (q,).

        There is one for each output, or one of all. With fixed variances it is that of the first output, shape (1,).
        """
        of_outputs = self.reference_likelihood.variance_vector(self.network.n_outputs)
        if not self.variance_is_sampled:
            return of_outputs[:1]
        return of_outputs[: len(self.likelihood.variance_prior(self.network.n_outputs)[1])]

    @property
    def gaussian_terms(self) -> float:
        """Number of outputs times the sum of the row weights: the weighted number of terms of the log-likelihood."""
        return self.network.n_outputs * float(self.row_weights.sum())

    def collapsed_log_likelihood(self, theta_hidden: npt.ArrayLike) -> float | FloatArray:
        """Evaluate log p(y | theta_h), in which the Bayesian output weights are integrated out over their prior.

        Parameters
        ----------
        theta_hidden : array_like, shape (K_h,) or (B, K_h)
            The Bayesian parameters but for the output weights that are integrated out, theta[hidden_entries]; finite.

        Returns
        -------
        float, or ndarray of float64 of shape (B,)
            The log density of y, normalised.

        Raises
        ------
        ValueError
            If the likelihood is neither Gaussian with a fixed variance nor `HeteroscedasticGaussian`, the scales of the
            prior are sampled, or there are no output weights to integrate out or no other Bayesian parameters.
        """
        values, _, single = self._collapsed(theta_hidden, with_gradient=False)
        return float(values[0]) if single else values

    def collapsed_log_likelihood_and_grad(
        self, theta_hidden: npt.ArrayLike
    ) -> tuple[float | FloatArray, npt.NDArray[Any]]:
        """Evaluate log p(y | theta_h) and its gradient with respect to theta_h.

        Parameters
        ----------
        theta_hidden : array_like, shape (K_h,) or (B, K_h)
            As for `collapsed_log_likelihood`.

        Returns
        -------
        value : float, or ndarray of float64 of shape (B,)
        gradient : ndarray of `dtype`, shape (K_h,) or (B, K_h)

        Raises
        ------
        ValueError
            As `collapsed_log_likelihood`.
        """
        values, gradient, single = self._collapsed(theta_hidden, with_gradient=True)
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def _collapsed(
        self, theta_hidden: npt.ArrayLike, *, with_gradient: bool
    ) -> tuple[FloatArray, npt.NDArray[Any], bool]:
        """Return values (B,), gradients (B, K_h) and whether a single point (K_h,) was given."""
        check_kernel(MGrad(collapse=True), self.facts)
        self._check_nothing_sampled()
        batch, single = self.network.check_theta(theta_hidden, "theta_hidden", self.hidden_dim)
        values, gradient = self.compiled.host.collapsed(batch, self.prior_variance, with_gradient)
        return values, gradient, single

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
            "likelihood", the default: l(theta). "posterior": l(theta) plus the normalised log prior. "collapsed":
            log p(y | theta_h), the log marginal likelihood of theta[hidden_entries], as
            `collapsed_log_likelihood` evaluates it. "collapsed_posterior": that plus the normalised log prior of
            theta_h. Samplers need one of the posteriors, unless they add the prior themselves.
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
        check_choice(density, DENSITIES, "density")
        place, _, tail = check_choice(coordinates, COORDINATES, "coordinates").partition("+")
        collapsed, whitened, log_variance = density.startswith("collapsed"), place == "whitened", bool(tail)
        needs_prior = whitened or density != "likelihood"
        if needs_prior and self.scale_names:
            raise ValueError(
                f"density={density!r}, coordinates={coordinates!r} needs the prior, whose scales are sampled; choose "
                'density="likelihood" with coordinates="theta" and add the prior, or make a posterior whose prior has '
                "fixed variances (scales=None)."
            )
        if collapsed:
            check_kernel(MGrad(collapse=True), self.facts)
            if log_variance:
                raise ValueError(
                    f"coordinates={coordinates!r} is not supported by density={density!r}; give variance=, or choose "
                    'density="posterior".'
                )
        spec = DensitySpec(
            kind=density,
            whitened=whitened,
            log_variance=log_variance,
            prior_variance=np.ascontiguousarray(self.prior_variance) if needs_prior else np.empty(0),
            noise=self._noise(variance, log_variance=log_variance, by_output=collapsed),
        )
        return Density(self.compiled.host, spec)

    def _noise(
        self, variance: npt.ArrayLike | None, *, log_variance: bool, by_output: bool = False
    ) -> SampledNoise | None:
        """Return the noise of a density, with variances of shape (q,) or, if `by_output`, (m,); None if it is fixed."""
        if not self.variance_is_sampled:
            if log_variance:
                raise ValueError(
                    f'coordinates must be "theta" or "whitened": {self.likelihood!r} has no sampled variance.'
                )
            self._wanted_variances(variance, 1)
            return None
        values = self.starting_variances
        if log_variance and variance is not None:
            raise ValueError("variance must be left out: its logarithm is among the coordinates.")
        if not log_variance:
            if variance is None:
                needed = "a positive number" if len(values) == 1 else f"{len(values)} positive numbers"
                raise ValueError(
                    f"variance must be given, since it is sampled: {needed}; or make its logarithm a coordinate, "
                    'coordinates="theta+log_variance".'
                )
            values = check_variances(variance, 1, likelihood=self.likelihood, n_variances=len(values))[0]
        if by_output:
            values = np.ascontiguousarray(np.broadcast_to(values, self.network.n_outputs))
        return self._noise_at(values)

    def _noise_at(self, variance: FloatArray) -> SampledNoise:
        """Return the sampled noise with its prior, at given variances."""
        shape, rate = self.likelihood.variance_prior(self.network.n_outputs)
        rescales = len(self.starting_variances) == 1 and self.likelihood.is_conjugate
        return SampledNoise(
            variance=variance,
            reference=float(self.starting_variances[0]) if rescales else 0.0,
            terms=self.gaussian_terms,
            shape=shape,
            rate=rate,
        )

    @cached_property
    def _likelihood_density(self) -> Density:
        """l(theta), with a sampled variance given in each call."""
        noise = self._noise_at(self.starting_variances) if self.variance_is_sampled else None
        return Density(self.compiled.host, DensitySpec(noise=noise))

    def _check_nothing_sampled(self) -> None:
        """Raise ValueError if the noise variance or the scales of the prior are sampled."""
        if self.variance_is_sampled:
            what = self.likelihood.scale_name
            fixed = self.likelihood.example.replace('"sampled"', str(what))
            raise ValueError(f"the {what} is sampled; make a posterior with a fixed one, {fixed}.")
        if self.scale_names:
            raise ValueError(
                "the scales of the prior are sampled; make a posterior with a prior of fixed ones (scales=None), such "
                "as one sigma2_w and sigma2_b for each layer."
            )
