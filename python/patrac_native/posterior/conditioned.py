"""The part of a posterior that depends on its targets and its likelihood, which other targets replace."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from patrac_native.engine.inputs import Inputs
from patrac_native.engine.models import CompiledModels
from patrac_native.likelihoods import LIKELIHOODS, Likelihood, Targets
from patrac_native.posterior.compiled_likelihood import check_range, fixed_likelihood, with_noise_prior
from patrac_native.posterior.prior_model import PriorModel
from patrac_native.validation.checks import FloatArray, as_real_array, cast_checked


def check_likelihood(likelihood: Any) -> None:
    """Raise TypeError if the argument is no likelihood."""
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be one of {', '.join(known.__name__ for known in LIKELIHOODS.values())}; got "
            f"{type(likelihood).__name__}. "
            "Arguments come in the order net, architecture, prior, likelihood, X, y."
        )


class Conditioned(PriorModel):
    """Base class of `Posterior` with targets, likelihood and the models that are compiled from them.

    Attributes
    ----------
    inputs : Inputs
    likelihood, noise_prior_source, y, row_weights, offset
        See `Posterior`.
    reference_likelihood : Likelihood
        The compiled likelihood, in which sampled variances are fixed at reference values.
    """

    inputs: Inputs
    noise_prior_source: str | None
    y: Targets
    row_weights: FloatArray
    offset: FloatArray | None
    reference_likelihood: Likelihood

    def _condition(
        self,
        likelihood: Likelihood,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None,
        offset: npt.ArrayLike | None,
    ) -> None:
        """Set and compile everything that depends on the likelihood or the targets, once network and inputs are set."""
        self.y = likelihood.check_targets(y, self.n_rows, self.network.n_outputs)
        self.y.flags.writeable = False
        self.row_weights = likelihood.row_weights(sample_weight, self.n_rows)
        self.row_weights.flags.writeable = False
        self.offset = likelihood.check_offset(offset, self.n_rows, self.network.n_outputs)
        if self.offset is not None:
            self.offset.flags.writeable = False
        self._given_likelihood = likelihood
        self._sample_weight = None if sample_weight is None else as_real_array(sample_weight, "sample_weight").copy()
        self.likelihood, self.noise_prior_source = with_noise_prior(
            likelihood,
            None if self.net.history is None else self.net.history.validation_mse,
            self._trained_outputs,
            self.y,
            self.row_weights,
        )
        self.reference_likelihood = fixed_likelihood(self.likelihood, self._trained_outputs, self.y, self.row_weights)
        check_range(self.reference_likelihood, self.row_weights, self.network.n_outputs, self.network.dtype)
        targets = likelihood.core_targets(self.y, self.offset)
        cast_checked(
            targets[np.isfinite(targets)], self.network.dtype, "y"
        )  # the engine's own conversion does not report an overflow
        self._compiled = CompiledModels(
            self.network.spec(
                likelihood.name,
                self.reference_likelihood.core_parameters(self.network.n_outputs, self.y, self.row_weights),
            ),
            self.inputs,
            targets,
            self.row_weights,
            dtype=self.network.dtype,
            level=self.network.level,
        )
        if self.inputs.on_device is None:
            self._compiled.build_host()  # now, so that a lack of memory shows in the constructor

    def __setattr__(self, name: str, value: Any) -> None:
        # Chains and densities are those of what was compiled.
        if "_compiled" in self.__dict__ and (name in self.__dict__ or hasattr(type(self), name)):
            other = "use with_targets(y, likelihood=...)" if name in ("y", "likelihood") else "build another one"
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be set once it is built: {other}.")
        super().__setattr__(name, value)

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

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; ValueError also if the other likelihood takes no offset and this
            posterior has one.

        Examples
        --------
        >>> import numpy as np
        >>> from patrac_native import Full, Gaussian, GaussianPrior, Network, Posterior
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = Posterior(Network([[[1.0]]], [[0.0]]), Full(), GaussianPrior(), Gaussian(1.0), X, X[:, 0])
        >>> doubled = post.with_targets(2 * X[:, 0])
        >>> doubled.y[-1], doubled.network is post.network
        (array([2.]), True)
        """
        if likelihood is None:
            likelihood = self._given_likelihood
        check_likelihood(likelihood)
        other = type(self).__new__(type(self))
        other.network, other.inputs = self.network, self.inputs
        other._condition(likelihood, y, self._sample_weight, self.offset)
        return other

    def _trained_outputs(self) -> FloatArray:
        """Return the outputs of the trained network, shape (n, m)."""
        return self.net.predict(self.X)

    @property
    def compiled(self) -> CompiledModels:
        """The compiled models, on the host and on devices."""
        return self._compiled

    @property
    def n_rows(self) -> int:
        """n, the number of rows of X."""
        return self.inputs.n_rows

    @property
    def X(self) -> npt.NDArray[Any]:
        """The inputs on the host, shape (n, d), read-only; inputs on a device are copied at the first use."""
        return self.inputs.host
