"""Small problems for the tests: random networks, data and every architecture."""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import reference
from patrac_native.network import activations

ARCHITECTURES = ("full", "mix", "mix_by_layer", "out", "sep", "sep_by_layer", "custom")
NEEDS_HIDDEN = tuple(name for name in ARCHITECTURES if name not in ("full", "custom"))
LIKELIHOODS = (
    "gaussian",
    "gaussian_by_output",
    "categorical",
    "categorical_scale",
    "discrete_values",
    "bernoulli",
    "student_t",
    "heteroscedastic_gaussian",
    "poisson",
    "negative_binomial",
    "censored_gaussian",
)
ACTIVATIONS = tuple(activations.ACTIVATIONS)


def balanced(base: Iterable[tuple[str, ...]], *others: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the combinations of `base`, each with values of the other factors, so that all pairs occur equally often.

    A full product of five factors repeats each pair dozens of times; what a formula or a pass gets wrong, it gets wrong
    for a pair (an architecture in float32, a likelihood under an activation).
    """
    seen: Counter[Any] = Counter()
    found = []
    for one in base:
        pairs_of = [
            (one + more, list(itertools.combinations(enumerate(one + more), 2))) for more in itertools.product(*others)
        ]
        chosen, pairs = min(pairs_of, key=lambda option: sum(seen[pair] for pair in option[1]))
        seen.update(pairs)
        found.append(chosen)
    return found


def refusals(table: Mapping[type[Exception], Sequence[tuple[str, Any]]]) -> list[Any]:
    """Return the cases of a table as parameters of a test: an error, a pattern of its message, and what raises it."""
    return [
        pytest.param(error, message, case, id=f"{number}: {message[:40]}")
        for error, cases in table.items()
        for number, (message, case) in enumerate(cases)
    ]


def rng_of(*key: object) -> np.random.Generator:
    """Return a random generator whose seed is a hash of the test's own parameters, the same in every run."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def random_sizes(rng: np.random.Generator, n_layers: int, max_width: int = 20) -> tuple[int, ...]:
    """Return unequal widths between 1 and `max_width`."""
    return tuple(int(width) for width in rng.integers(1, max_width + 1, n_layers + 1))


def widths_for(rng: np.random.Generator, architecture_name: str, likelihood: str) -> tuple[int, ...]:
    """Return random widths of one to five layers: two or more if the architecture needs them, and two classes."""
    sizes = random_sizes(rng, int(rng.integers(2 if architecture_name in NEEDS_HIDDEN else 1, 6)))
    return (*sizes[:-1], max(2, sizes[-1])) if likelihood.startswith("categorical") else sizes


def random_network(rng: np.random.Generator, sizes: Sequence[int], activation: str = "tanh") -> pn.Network:
    """Return a network with weights of variance 1 / fan-in, so that no activation saturates, and biases of sd 1/2."""
    pairs = list(zip(sizes[1:], sizes[:-1], strict=True))
    return pn.Network(
        [rng.normal(size=pair) / math.sqrt(pair[1]) for pair in pairs],
        [rng.normal(size=rows) / 2 for rows, _ in pairs],
        activation,
    )


def regression(
    rng: np.random.Generator, sizes: Sequence[int], n: int
) -> tuple[pn.Network, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return a random network, normal inputs, and targets that are normal noise: (n,) for one output, else (n, m)."""
    net, X = random_network(rng, sizes), rng.normal(size=(n, sizes[0]))
    return net, X, rng.normal(size=n if sizes[-1] == 1 else (n, sizes[-1]))


def normal_target(dim: int) -> pn.Target:
    """Return l = -theta^2 / 2 under a standard normal prior: each parameter has mean 0 and variance 1/2."""
    return pn.Target(lambda theta: (-0.5 * float(theta @ theta), -theta), np.ones(dim))


def linear(
    n: int, seed: int = 0, *, d: int = 3, sd: float = 1.0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return normal inputs (n, d), and y = x_0 plus normal noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + sd * rng.normal(size=n)


def sine(n: int = 100, seed: int = 0, sd: float = 1.0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the paper's problem: x uniform on [-5, 5], y = sin(x) plus normal noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, (n, 1))
    return X, np.sin(X[:, 0]) + sd * rng.normal(size=n)


def shuffled(rng: np.random.Generator, net: pn.Network) -> tuple[pn.Network, list[npt.NDArray[np.intp]]]:
    """Return the same network with its hidden nodes in another order, and that order."""
    orders = [rng.permutation(width) for width in net.layer_sizes[1:-1]]
    return net.permuted(orders), orders


def random_masks(rng: np.random.Generator, net: pn.Network, share: float = 0.3) -> pn.Custom:
    """Return masks of randomly chosen Bayesian parameters, at least one."""
    weights = [rng.random(w.shape) < share for w in net.weights]
    biases = [rng.random(b.shape) < share for b in net.biases]
    weights[-1][0, -1] = True
    return pn.Custom(weights, biases)


def architecture(name: str, rng: np.random.Generator, net: pn.Network) -> Any:
    """Return an architecture with a random k for this network."""
    hidden = net.layer_sizes[1:-1]
    if name == "full":
        return pn.Full()
    if name == "custom":
        return random_masks(rng, net)
    if name == "out":
        return pn.Out(int(rng.integers(1, hidden[-1] + 1)))
    kind = {"mix": pn.Mix, "sep": pn.Sep}[name.removesuffix("_by_layer")]
    if name.endswith("by_layer"):
        return kind([int(rng.integers(1, width + 1)) for width in hidden])
    return kind(int(rng.integers(1, min(hidden) + 1)))


@dataclass
class Data:
    """A likelihood with matching inputs, targets, row weights and offsets."""

    likelihood: pn.Likelihood
    X: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    sample_weight: npt.NDArray[np.float64] | None
    offset: npt.NDArray[np.float64] | None = None


def random_data(name: str, rng: np.random.Generator, n: int, d: int, m: int) -> Data:
    """Return data of m targets or classes; all except those of "gaussian" have unequal sample weights."""
    X = rng.normal(size=(n, d))
    weight = rng.uniform(0.2, 2.0, n)
    if name == "gaussian":
        return Data(pn.Gaussian(0.7), X, rng.normal(size=(n, m)), None)
    if name == "gaussian_by_output":
        return Data(pn.Gaussian(rng.uniform(0.3, 2.0, m)), X, rng.normal(size=(n, m)), weight)
    if name.startswith("categorical"):
        scale = 50.0 if name == "categorical_scale" else None
        return Data(pn.Categorical(scale), X, rng.integers(0, m, n), weight)
    if name == "discrete_values":
        values = np.arange(2 * m) ** 2 / 2  # unequal distances, exact in single precision
        return Data(pn.DiscreteValues(values), X, rng.choice(values, (n, 1)), weight)
    if name == "student_t":
        return Data(pn.StudentT(3.5, rng.uniform(0.5, 1.5, m)), X, rng.standard_t(2.0, size=(n, m)), weight)
    if name == "heteroscedastic_gaussian":
        return Data(pn.HeteroscedasticGaussian(), X, rng.normal(size=(n, m)), weight)
    if name == "poisson":
        return Data(pn.Poisson(), X, rng.poisson(2.0, (n, m)), weight, rng.normal(size=(n, m)))
    if name == "negative_binomial":
        counts = rng.negative_binomial(1.0, 0.2, (n, m))
        return Data(pn.NegativeBinomial(rng.uniform(0.3, 2.0, m)), X, counts, weight, rng.normal(size=n))
    if name == "censored_gaussian":
        return Data(pn.CensoredGaussian(rng.uniform(0.3, 2.0, m)), X, random_bounds(rng, (n, m)), weight)
    if name == "bernoulli":
        return Data(pn.Bernoulli(), X, rng.integers(0, 2, (n, m)), weight)
    raise ValueError(f"no data for the likelihood {name!r}")


def random_bounds(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return bounds (*shape, 2) of normal targets: some known, some open to either side, some in an interval."""
    y, width, kind = rng.normal(size=shape), rng.exponential(size=shape), rng.integers(4, size=shape)
    lower = np.where(kind == 1, -np.inf, np.where(kind == 3, y - width, y))
    return np.stack([lower, np.where(kind == 2, np.inf, np.where(kind == 3, y + width, y))], axis=-1)


def outputs_per_target(likelihood: str) -> int:
    """Return how many outputs of a network belong to a target or class, for a likelihood of `LIKELIHOODS`.

    Of "discrete_values" it is the number of values for each of m, so that there are at least two.
    """
    return 2 if likelihood in ("heteroscedastic_gaussian", "discrete_values") else 1


@dataclass
class Problem:
    """A posterior with its oracle and a point theta that is exact in the posterior's dtype."""

    post: pn.Posterior
    partial: reference.Partial
    data: Data
    theta: npt.NDArray[np.float64]

    @property
    def X(self) -> npt.NDArray[np.float64]:
        """The inputs rounded to the engine's dtype."""
        return self.data.X.astype(self.post.network.dtype).astype(np.float64)

    @property
    def y(self) -> npt.NDArray[np.float64]:
        """The targets rounded to the engine's dtype."""
        return np.asarray(self.post.data.y, dtype=np.float64).astype(self.post.network.dtype).astype(np.float64)

    def predictor(self, theta: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """Return the outputs of the oracle plus the offset."""
        f = self.partial.predict(self.theta if theta is None else theta, self.X)
        return f if self.post.data.offset is None else f + self.post.data.offset

    def reference_value(self, theta: npt.NDArray[np.float64] | None = None) -> float:
        """Return l from the oracle."""
        return reference.log_likelihood(self.data.likelihood, self.predictor(theta), self.y, self.post.data.row_weights)

    def reference_gradient(self, theta: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """Return g from the oracle."""
        at = self.theta if theta is None else theta
        slope = reference.output_slope(self.data.likelihood, self.predictor(at), self.y, self.post.data.row_weights)
        return self.partial.gradient(at, self.X, slope)

    def again(self, **changes: Any) -> pn.Posterior:
        """Return the posterior with some arguments changed, by default in float64."""
        data, network = self.data, self.post.network
        same = {"net": network.net, "architecture": network.architecture, "prior": PRIOR, "dtype": "float64"}
        same |= {name: getattr(data, name) for name in ("likelihood", "X", "y", "sample_weight", "offset")}
        return pn.Posterior(**same | changes)


PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)


def posed(
    net: pn.Network, chosen: pn.Architecture, data: Data, rng: np.random.Generator, dtype: str = "float64"
) -> Problem:
    """Return posterior and oracle of a network, with theta near its `theta_map`."""
    given = {"sample_weight": data.sample_weight, "offset": data.offset}
    post = pn.Posterior(net, chosen, PRIOR, data.likelihood, data.X, data.y, **given, dtype=dtype)
    theta = (post.theta_map + 0.3 * rng.normal(size=post.dim)).astype(post.network.dtype).astype(np.float64)
    return Problem(post, reference.partial(net, chosen), data, theta)


def problem(
    rng: np.random.Generator,
    sizes: Sequence[int],
    n: int,
    architecture_name: str = "full",
    likelihood: str = "gaussian",
    *,
    activation: str = "tanh",
    dtype: str = "float64",
) -> Problem:
    """Return a random problem of sizes[-1] targets, with theta near the trained values or, for Sep, near zero."""
    net = random_network(rng, (*sizes[:-1], sizes[-1] * outputs_per_target(likelihood)), activation)
    chosen = architecture(architecture_name, rng, net)
    return posed(net, chosen, random_data(likelihood, rng, n, sizes[0], sizes[-1]), rng, dtype)
