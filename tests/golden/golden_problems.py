"""What a pinned run is made of: its problems, made with public names alone, and what it asks of `sample`.

Weights and data come from NumPy's `RandomState`, whose stream is frozen, by uniform numbers and elementary arithmetic,
so that no trained network and no mathematical library takes part in them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn

Array = npt.NDArray[Any]

PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)


@dataclass(frozen=True)
class Problem:
    """A posterior to be made.

    Attributes
    ----------
    sizes : tuple of int
        Widths (N_0, ..., N_L) of the network.
    architecture : str or Architecture
        "custom" marks about a third of the parameters as Bayesian.
    likelihood : str
        A key of `LIKELIHOODS`.
    n : int
        Number of rows.
    inputs : {"floats", "fortran", "bytes"}
        "fortran": in the posterior's dtype and in Fortran order, read in place (`copy=False`).
    weighted : bool
        Whether rows have unequal weights.
    output_decay : bool, optional
        See `TraceClassPrior`.
    key : int
        Distinguishes problems that are otherwise the same, such as the replicates of `sample_many`.
    """

    sizes: tuple[int, ...]
    architecture: Any
    likelihood: str = "gaussian"
    n: int = 37
    activation: str = "tanh"
    dtype: str = "float32"
    inputs: str = "floats"
    weighted: bool = False
    output_decay: bool | None = None
    key: int = 0

    def posterior(self, level: str | None = None) -> pn.Posterior:
        """Make the posterior."""
        d, m = self.sizes[0], self.sizes[-1]
        rng = random_of("data", self.sizes, self.n, self.key)
        X: Array = rng.uniform(-1.5, 1.5, (self.n, d))
        if self.inputs == "bytes":
            X = rng.randint(0, 256, (self.n, d)).astype(np.uint8)
        if self.inputs == "fortran":
            X = np.asfortranarray(X, dtype=self.dtype)
        likelihood, y = targets(self.likelihood, rng, self.n, m)
        net = self.network()
        return pn.Posterior(
            net,
            self.masks(net) if self.architecture == "custom" else self.architecture,
            pn.TraceClassPrior(PRIOR.alpha, PRIOR.sigma2_w, PRIOR.sigma2_b, self.output_decay),
            likelihood,
            X,
            y,
            sample_weight=rng.uniform(0.25, 2.0, self.n) if self.weighted else None,
            dtype=self.dtype,
            copy=self.inputs != "fortran",
            level=level,
        )

    def network(self) -> pn.Network:
        """Weights of variance 1 / fan-in and biases of standard deviation 1/2, uniformly distributed."""
        rng = random_of("network", self.sizes, self.key)
        weights, biases = [], []
        for rows, columns in zip(self.sizes[1:], self.sizes[:-1], strict=True):
            weights.append(rng.uniform(-1.0, 1.0, (rows, columns)) * np.sqrt(3.0 / columns))
            biases.append(rng.uniform(-1.0, 1.0, rows) * np.sqrt(0.75))
        if self.inputs == "bytes":
            weights[0] /= 128
        return pn.Network(weights, biases, self.activation)

    def masks(self, net: pn.Network) -> pn.Custom:
        """Scattered Bayesian parameters; at least one of them is an output weight."""
        rng = random_of("masks", self.sizes, self.key)
        weights = [rng.uniform(size=w.shape) < 0.35 for w in net.weights]
        biases = [rng.uniform(size=b.shape) < 0.35 for b in net.biases]
        weights[-1][0, -1] = True
        return pn.Custom(weights, biases)


GAUSSIAN = ("gaussian", "gaussian_by_output", "sampled")
LIKELIHOODS = (*GAUSSIAN, "categorical", "categorical_scale", "bernoulli")


def targets(likelihood: str, rng: np.random.RandomState, n: int, m: int) -> tuple[pn.Likelihood, Array]:
    """A likelihood and targets for it."""
    if likelihood.startswith("categorical"):
        return pn.Categorical(30.0 if likelihood == "categorical_scale" else None), rng.randint(0, m, n)
    if likelihood == "bernoulli":
        return pn.Bernoulli(), rng.randint(0, 2, (n, m))
    y = rng.uniform(-1.5, 1.5, (n, m))
    if likelihood == "gaussian_by_output":
        return pn.Gaussian(rng.uniform(0.25, 1.0, m)), y
    return pn.Gaussian("sampled", a=3.0, b=1.0, pooled=True) if likelihood == "sampled" else pn.Gaussian(0.25), y


def random_of(*key: object) -> np.random.RandomState:
    """A generator seeded by what it is for."""
    return np.random.RandomState(zlib.crc32(repr(key).encode()))


@dataclass(frozen=True)
class Case:
    """One pinned run, or several together through `sample_many`.

    Attributes
    ----------
    name : str
        "group: what is special about it".
    problems : tuple of Problem
        One for `sample`, several for `sample_many`.
    arguments : dict
        Further arguments of the run.
    start_scale : float, optional
        Start at this multiple of the trained values plus a fixed perturbation, in place of `init="auto"`.
    by_environment : bool
        Whether the level comes from PATRAC_SIMD in place of the argument of `Posterior`.
    """

    name: str
    problems: tuple[Problem, ...]
    kernel: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    start_scale: float | None = None
    by_environment: bool = False

    @property
    def is_emulated(self) -> bool:
        """Whether blocks of host threads run the chains, in place of the CPU's own code."""
        return str(self.arguments.get("device", "")).startswith("emulated")

    @property
    def has_step_size(self) -> bool:
        """Whether the kernel has a step size for the warm-up to find."""
        if self.kernel == "auto":
            return not (self.problems[0].likelihood in GAUSSIAN and is_last_layer_alone(self.problems[0]))
        return not isinstance(self.kernel, pn.EllipticalSlice | pn.Exact)

    @property
    def uses_linear_algebra(self) -> bool:
        """Whether numbers from BLAS or LAPACK, which differ from one processor to the next, reach the draws.

        They do where the noise variance is sampled (its start is the mode given the trained network's residuals) and
        where the likelihood is quadratic in theta (its matrix is diagonalised).
        """
        return any(
            problem.likelihood == "sampled" or (problem.likelihood in GAUSSIAN and is_last_layer_alone(problem))
            for problem in self.problems
        )


def is_last_layer_alone(problem: Problem) -> bool:
    """Whether no parameter below the last layer is Bayesian."""
    return isinstance(problem.architecture, pn.Out) or len(problem.sizes) == 2
