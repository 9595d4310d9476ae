"""The problems that are timed: architecture, network, rows and dtype, with a starting point and a step size."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import patrac_native as pn

ARCHITECTURES: dict[str, Any] = {
    "Full": pn.Full(),
    "Mix(2)": pn.Mix(2),
    "Mix(5)": pn.Mix(5),
    "Sep(2)": pn.Sep(2),
    "Sep(5)": pn.Sep(5),
    "Out(12)": pn.Out(12),
    "Out(45)": pn.Out(45),
}
# A network of ten outputs is a classification, one of one output a regression.
NETWORKS = {"1-50-50-1": (1, 50, 50, 1), "8-50-50-1": (8, 50, 50, 1), "784-64-64-10": (784, 64, 64, 10)}
SINE = "1-50-50-1"
# A step size is tried for about this many seconds, within these bounds on the number of steps.
TRIAL_SECONDS, TRIAL_STEPS = 0.2, (20, 2000)


class Key(NamedTuple):
    """The architecture, network, number of rows and dtype of a case."""

    architecture: str
    network: str = SINE
    rows: int = 100
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.architecture}, {self.network}, n={self.rows}, {self.dtype}"


class Required(NamedTuple):
    """Minimum ratios of times to native: JAX for one chain and for many, the floor, PyTorch."""

    one: float | None = None
    many: float | None = None
    floor: float | None = None
    torch: float | None = None
    plain: float | None = None  # over the plain JAX scan


REQUIRED = {
    Key("Full"): Required(2.0, 2.0, 0.70, 18),
    Key("Mix(2)"): Required(3.0, 1.7, 0.6, 100, 7),
    Key("Mix(5)"): Required(2.5, 1.7, 0.6, 100, 7),
    Key("Sep(2)"): Required(6.0, 2.5, 0.5, 850),
    Key("Sep(5)"): Required(4.5, 2.5, 0.5, 380),
    Key("Out(12)"): Required(12.0, 6.0, None, 2800),
    Key("Out(45)"): Required(12.0, 6.0, None, 2000),
    Key("Full", "8-50-50-1", 2923): Required(1.2, None, 0.75),
    Key("Full", "784-64-64-10", 10_000): Required(1.1, None, 0.70),
}


@dataclass(frozen=True)
class Case:
    """A posterior, a starting point and a step size."""

    key: Key
    post: pn.Posterior
    start: npt.NDArray[Any]
    delta: float

    @property
    def required(self) -> Required:
        """The requirements of the case; all None if there are none."""
        return REQUIRED.get(self.key, Required())


@cache
def sine_problem() -> tuple[pn.Network, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a trained 1-50-50-1 network and its 100 rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (100, 1))
    y = np.sin(X[:, 0]) + rng.standard_normal(100)
    net = pn.train(
        [1, 50, 50, 1],
        X,
        y,
        likelihood=pn.Gaussian(1.0),
        l2=1.0,
        validation_fraction=0,
        max_epochs=1000,
        progress=False,
    )
    return net, X, y


@cache
def random_problem(network: str, n: int) -> tuple[pn.Network, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a network of random weights with activations of the order of one, and data that it generates."""
    rng = np.random.default_rng(1)
    sizes = NETWORKS[network]
    weights = [
        rng.standard_normal((rows, columns)) / np.sqrt(columns)
        for rows, columns in zip(sizes[1:], sizes[:-1], strict=True)
    ]
    net = pn.Network(weights, [0.1 * rng.standard_normal(rows) for rows in sizes[1:]])
    X = rng.standard_normal((n, sizes[0])).astype(np.float32).astype(np.float64)
    likelihood = pn.Gaussian(1.0) if sizes[-1] == 1 else pn.Categorical()
    y = likelihood.sample(net.predict(X), rng)
    return net, X, y[:, 0] if sizes[-1] == 1 else y


@cache
def posterior(key: Key) -> pn.Posterior:
    """Return the posterior of a case."""
    is_sine = key.network == SINE and key.rows == 100
    net, X, y = sine_problem() if is_sine else random_problem(key.network, key.rows)
    likelihood = pn.Gaussian(1.0) if net.layer_sizes[-1] == 1 else pn.Categorical()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # alpha is at its bound, because random weights do not decay
        prior = pn.TraceClassPrior.fit(net)
    return pn.Posterior(net, ARCHITECTURES[key.architecture], prior, likelihood, X, y, dtype=key.dtype)


@cache
def prepare(key: Key) -> Case:
    """Return a case; starting point and step size come from a warm-up for the sine problem, else from trials."""
    post = posterior(key)
    if key.network == SINE and key.rows == 100:
        warm = pn.sample(post, pn.PCNL(), chains=1, draws=1, seed=1, threads=1, progress=False)
        return Case(key, post, warm.theta[0, -1], float(warm.stats["step_size"][0, -1]))
    # The trained values generated the data; Sep has none.
    start = post.theta_map.astype(post.network.dtype)
    if post.network.separate:
        start = 0.1 * post.sample_prior(1, seed=1)[0]
    return Case(key, post, start, step_size_by_trials(post, start))


def step_size_by_trials(post: pn.Posterior, start: npt.NDArray[Any]) -> float:
    """Return the first of the step sizes 1, 1/4, 1/16, ... with which more than half of the proposals are accepted."""
    started = time.perf_counter()
    post.log_likelihood_and_grad(start, threads=1)
    steps = int(np.clip(TRIAL_SECONDS / (time.perf_counter() - started), *TRIAL_STEPS))
    delta = 1.0
    while delta > 1e-9:
        draws = pn.sample(
            post, pn.PCNL(delta), chains=1, draws=1, thin=steps, warmup=None, init=start[None], seed=1, progress=False
        )
        if draws.stats["acceptance_rate"][0, 0] > 0.5:
            return delta
        delta /= 4
    raise RuntimeError(f"no step size above 1e-9 accepts half of the moves of {post!r}")
