"""The log densities of a posterior in several coordinates, for samplers of other libraries."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from patrac_native.engine.density import Density, DensitySpec, SampledNoise
from patrac_native.kernels import MGrad
from patrac_native.kernels.choice import check_kernel
from patrac_native.posterior.noise import Noise
from patrac_native.posterior.sampled_network import SampledNetwork
from patrac_native.validation.checks import FloatArray

DensityKind = Literal["likelihood", "posterior", "collapsed", "collapsed_posterior"]
Coordinates = Literal["theta", "whitened", "theta+log_variance", "whitened+log_variance"]


def build_density(sampled: SampledNetwork, density: str, coordinates: str, variance: npt.ArrayLike | None) -> Density:
    """Return a log density with its gradient; the arguments and errors are those of `Posterior.density`."""
    for name, value, known in (("density", density, DensityKind), ("coordinates", coordinates, Coordinates)):
        if value not in get_args(known):
            raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(known)))}; got {value!r}.")
    place, _, tail = coordinates.partition("+")
    collapsed, whitened, log_variance = density.startswith("collapsed"), place == "whitened", bool(tail)
    needs_prior = whitened or density != "likelihood"
    if needs_prior and sampled.scales is not None:
        raise ValueError(
            f"density={density!r}, coordinates={coordinates!r} needs the prior, whose scales are sampled; choose "
            'density="likelihood" with coordinates="theta" and add the prior, or make a posterior whose prior has '
            "fixed variances (scales=None)."
        )
    if collapsed:
        check_kernel(MGrad(collapse=True), sampled.facts)
        if sampled.law.is_sampled and not sampled.likelihood.is_conjugate:
            raise ValueError(
                f"density={density!r} is one given a precision of each row, which chains draw, under "
                f'{sampled.likelihood!r}; choose density="posterior".'
            )
        if log_variance:
            raise ValueError(
                f"coordinates={coordinates!r} is not supported by density={density!r}; give variance=, or choose "
                'density="posterior".'
            )
    noise = _noise(sampled.law, variance, log_variance=log_variance, by_output=collapsed)
    spec = DensitySpec(
        kind=density,
        whitened=whitened,
        log_variance=log_variance,
        prior_variance=np.ascontiguousarray(sampled.prior_variance) if needs_prior else np.empty(0),
        noise=noise,
    )
    return Density(sampled.compiled.host, spec, *_start(sampled, spec))


def _noise(law: Noise, variance: npt.ArrayLike | None, *, log_variance: bool, by_output: bool) -> SampledNoise | None:
    """Return the noise of a density, with variances of shape (q,) or, if `by_output`, (m,); None if it is fixed."""
    if not law.is_sampled:
        if log_variance:
            raise ValueError(f'coordinates must be "theta" or "whitened": {law.likelihood!r} has no sampled variance.')
        law.check(variance, 1)
        return None
    values = law.initial
    if log_variance and variance is not None:
        raise ValueError("variance must be left out: its logarithm is among the coordinates.")
    if not log_variance:
        if variance is None:
            needed = "a positive number" if len(values) == 1 else f"{len(values)} positive numbers"
            raise ValueError(
                f"variance must be given, since it is sampled: {needed}; or make its logarithm a coordinate, "
                'coordinates="theta+log_variance".'
            )
        checked = law.check(variance, 1)
        assert checked is not None
        values = checked[0]
    if by_output:
        values = np.ascontiguousarray(np.broadcast_to(values, law.n_outputs))
    return law.at(values)


def _start(sampled: SampledNetwork, spec: DensitySpec) -> tuple[FloatArray, FloatArray]:
    """Return the trained values in the coordinates of a density, and a tenth of the prior's deviations, (D,)."""
    network = sampled.network
    collapsed = spec.kind.startswith("collapsed")
    entries = sampled.compiled.planned.hidden_entries if collapsed else np.arange(network.dim)
    deviation = np.sqrt(network.prior_variance[entries])
    unit = deviation if spec.whitened else np.ones(len(entries))
    logarithms = np.log(sampled.law.initial) if spec.log_variance else np.empty(0)
    start = np.concatenate([network.theta_map[entries] / unit, logarithms])
    spread = np.concatenate([0.1 * deviation / unit, np.full(len(logarithms), 0.1)])
    return start, spread
