"""metric="curvature": each layer along the axes of its Kronecker-factored information, each with its own step size."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.kernels import kernel_from_dict
from patrac_native.kernels.choice import choose_kernel
from patrac_native.likelihoods import LIKELIHOODS, Likelihood
from patrac_native.posterior.curvature_metric import MAX_WIDTH, POWER
from problems import Problem
from test_input_metric import assert_native_steps

FloatArray = npt.NDArray[np.float64]
# Those whose Bayesian weights of each layer are a block of rows and columns of a network that is not zero.
FACTORED = ("full", "mix", "mix_by_layer")


def problem_of(architecture: str = "full", likelihood: str = "gaussian", rows: int = 15, **more: Any) -> Problem:
    """A network 3-5-4-3 in float64."""
    rng = problems.rng_of("curvature metric", architecture, likelihood, rows)
    return problems.problem(rng, (3, 5, 4, 3), rows, architecture, likelihood, **more)


def posterior(architecture: Any = None, prior: Any = None, likelihood: Any = None) -> pn.Posterior:
    """A posterior of a network 3-6-5-1 and 30 rows."""
    net, X, y = problems.regression(np.random.default_rng(1), (3, 6, 5, 1), 30)
    parts = (architecture or pn.Full(), prior or problems.PRIOR, likelihood or pn.Gaussian(0.5))
    return pn.Posterior(net, *parts, X, y, dtype="float64")


def matrix(post: pn.Posterior, kernel: pn.Kernel) -> FloatArray:
    """R with whitened theta = R x, from the definition: of each block, A X B'."""
    metric = post.sampled.metric_of(kernel)
    assert metric is not None
    R = np.zeros((post.dim, post.dim))
    for first, A, B in metric.rotation(kernel):
        size = len(A) * len(B)
        R[first : first + size, first : first + size] = np.kron(A, B)
    return R


# The axes


@pytest.mark.parametrize("name", sorted(LIKELIHOODS))
def test_the_root_of_the_information_is_that_of_the_score(name: str) -> None:
    """E[s s'] = B B' for the score s of draws from the likelihood, within five Monte Carlo standard errors."""
    rng = np.random.default_rng(3)
    m, draws = 2 * problems.outputs_per_target(name), 200_000
    likelihood: Likelihood = problems.random_data(name, rng, 1, 1, m // problems.outputs_per_target(name)).likelihood
    f = np.broadcast_to(rng.uniform(-0.7, 0.7, m), (draws, m))
    y = likelihood.sample(f, rng)
    if likelihood.numbers_per_target > 1:
        y = np.repeat(y[..., None], likelihood.numbers_per_target, axis=-1)
    step = 1e-5
    score = np.stack(
        [
            (likelihood.log_likelihood_rows(f + e, y) - likelihood.log_likelihood_rows(f - e, y)) / (2 * step)
            for e in step * np.eye(m)
        ],
        axis=1,
    )
    products = score[:, :, None] * score[:, None, :]
    root = likelihood.information_root(f[:1])
    error = products.std(axis=0) / math.sqrt(draws)
    assert (np.abs(products.mean(axis=0) - root[0] @ root[0].T) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical", "bernoulli"])
@pytest.mark.parametrize("architecture", FACTORED)
def test_the_information_of_a_single_row_is_exact(architecture: str, likelihood: str) -> None:
    """With one row the Kronecker product is the Gauss-Newton matrix of each block: J'BB'J, by finite differences."""
    problem = problem_of(architecture, likelihood, rows=1)
    post = problem.post
    kernel = pn.MGrad(metric="curvature")
    theta, step = np.asarray(post.theta_map), 1e-5
    X = np.asarray(post.data.X)
    J = np.stack(
        [(post.network.predict(theta + e, X)[0] - post.network.predict(theta - e, X)[0]) / (2 * step)
         for e in step * np.eye(post.dim)],
        axis=1,
    ).astype(float)  # fmt: skip
    root = post.sampled.law.reference.information_root(post.network.predict(theta, X).astype(float))[0]
    whitened = math.sqrt(float(post.data.row_weights[0])) * (root.T @ J) * np.sqrt(np.asarray(post.prior_variance))
    R = matrix(post, kernel)
    np.testing.assert_allclose(R.T @ R, np.eye(post.dim), atol=1e-12)
    along = whitened @ R
    information = (np.asarray(post.sampled.metric_of(kernel).step_factor(kernel)) ** (-1 / POWER)) - 1.0  # type: ignore[union-attr]
    # Differences of f have an error of eps / step times its size, squared slopes twice that.
    np.testing.assert_allclose((along**2).sum(axis=0), information, rtol=1e-6, atol=1e-7 * information.max())
    for first, A, B in post.sampled.metric_of(kernel).rotation(kernel):  # type: ignore[union-attr]
        block = slice(first, first + len(A) * len(B))
        product = along[:, block].T @ along[:, block]
        np.testing.assert_allclose(product, np.diag(np.diag(product)), atol=1e-6 * information.max())


def test_rows_and_their_weights_add_up() -> None:
    """A row of weight 2 counts as two rows; rows that are left out of the sum are made up for."""
    net, X, y = problems.regression(np.random.default_rng(2), (2, 4, 1), 6)
    kernel = pn.MGrad(metric="curvature")

    def factor(X: Any, y: Any, **more: Any) -> FloatArray:
        post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(0.5), X, y, dtype="float64", **more)
        metric = post.sampled.metric_of(kernel)
        assert metric is not None
        return metric.step_factor(kernel)

    twice = factor(np.concatenate([X, X]), np.concatenate([y, y]))
    np.testing.assert_allclose(factor(X, y, sample_weight=np.full(6, 2.0)), twice, rtol=1e-9)
    many = 1500  # 9,000 rows, of which every third is summed
    np.testing.assert_allclose(
        factor(np.repeat(X, many, axis=0), np.repeat(y, many)),
        factor(X, y, sample_weight=np.full(6, float(many))),
        rtol=1e-9,
    )
    assert (twice < factor(X, y)).any()


# The transition


@pytest.mark.parametrize("kernel", [pn.PCNL(0.05, metric="curvature"), pn.MGrad(0.1, metric="curvature")], ids=str)
@pytest.mark.parametrize("architecture", FACTORED)
def test_native_steps_are_the_reference_steps(architecture: str, kernel: Any) -> None:
    """In x = R'C^(-1/2) theta."""
    problem = problem_of(architecture)
    post = problem.post
    metric = post.sampled.metric_of(kernel)
    assert metric is not None
    to_theta = np.sqrt(np.asarray(post.prior_variance))[:, None] * matrix(post, kernel)
    step_size = kernel.delta * metric.step_factor(kernel)
    if kernel.name == "pcnl":
        step_size = np.minimum(step_size, 2.0)
    assert_native_steps(problem, kernel, to_theta, np.ones(post.dim), step_size)


@pytest.mark.parametrize("collapse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("hidden", [(9, 7), (40,), (1, 3)])
def test_draws_are_in_the_posteriors_own_coordinates(hidden: tuple[int, ...], dtype: str, collapse: bool) -> None:
    """A chain that does not move keeps its start; the recorded log-likelihood is that of the recorded theta."""
    net, X, y = problems.regression(np.random.default_rng(4), (5, *hidden, 2), 40)
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(0.5), X, y, dtype=dtype)
    start = np.asarray(post.theta_map)[None] + 0.3
    still = pn.MGrad(1e-30, metric="curvature", collapse=collapse)
    found = pn.sample(post, still, chains=1, draws=2, warmup=None, init=start, seed=1).theta[0, -1]
    part = slice(0, post.sampled.facts.hidden_dim if collapse else post.dim)
    # Two products of at most 40 terms there and back.
    error = 1e3 * np.finfo(dtype).eps * np.abs(start).max()
    np.testing.assert_allclose(found[part], start[0, part], rtol=0, atol=error)
    kernel = pn.MGrad(metric="curvature", collapse=collapse, persistence=0.9)
    draws = pn.sample(post, kernel, chains=2, draws=20, warmup=2000, seed=1)
    values = post.log_likelihood(draws.theta.reshape(-1, post.dim))
    np.testing.assert_allclose(
        draws.stats["log_likelihood"].ravel(), values, rtol=1e-10 if dtype == "float64" else 2e-4
    )
    assert (draws.theta[:, :, part].std(axis=1) > 0).all()


@pytest.mark.parametrize("collapse", [False, True])
def test_sampled_scales_and_variances_follow(collapse: bool) -> None:
    """With sampled scales and noise, f has the mean and spread that the metric of the prior gives: either metric."""
    post = posterior(prior=pn.GaussianPrior(scales="sampled"), likelihood=pn.Gaussian("sampled"))
    found = []
    for metric in ("prior", "inputs", "curvature"):
        kernel = pn.MGrad(collapse=collapse, metric=metric)  # type: ignore[arg-type]
        draws = pn.sample(post, kernel, chains=8, draws=400, thin=5, warmup=2000, seed=2, progress=False)
        f = draws.predict(np.asarray(post.data.X)[:4])[..., 0].astype(float)
        noise, scales = np.log(draws.stats["variance"])[..., None], np.log(draws.stats["prior_scales"])
        watched = np.concatenate([f, noise, scales], axis=2)
        found.append((watched.mean(axis=1), watched.std(axis=1)))
    for prior, *others in zip(*found, strict=True):
        for other in others:
            error = np.hypot(prior.std(axis=0, ddof=1), other.std(axis=0, ddof=1)) / np.sqrt(8)
            assert (np.abs(prior.mean(axis=0) - other.mean(axis=0)) < 5 * error).all()


@pytest.mark.parametrize("likelihood", [pn.StudentT(4.0, "sampled"), pn.StudentT(4.0, 0.5)], ids=str)
def test_other_noise_has_the_moments_of_the_prior_metric(likelihood: Likelihood) -> None:
    """A sampled scale of Student's t is drawn from residuals at theta, not at the rotated coordinates."""
    post, found = posterior(likelihood=likelihood), []
    for metric in ("prior", "curvature"):
        draws = pn.sample(
            post, pn.MGrad(metric=metric), chains=8, draws=400, thin=5, warmup=2000, seed=3, progress=False
        )
        f = draws.predict(np.asarray(post.data.X)[:4])[..., 0].astype(float)
        if likelihood.is_sampled:
            f = np.concatenate([f, np.log(draws.stats["variance"])[..., None]], axis=2)
        found.append(f.mean(axis=1))
    error = np.hypot(*(means.std(axis=0, ddof=1) for means in found)) / np.sqrt(8)
    assert (np.abs(found[0].mean(axis=0) - found[1].mean(axis=0)) < 5 * error).all()


# Who may use it


def test_it_is_stored_and_named() -> None:
    draws = pn.sample(posterior(), pn.MGrad(metric="curvature", collapse=True), chains=1, draws=3, warmup=50, seed=1)
    assert kernel_from_dict(draws.settings["kernel"]).metric == "curvature"


def scattered() -> pn.Architecture:
    masks = [np.zeros(shape, dtype=bool) for shape in ((6, 3), (5, 6), (1, 5))]
    masks[0][0, 1] = masks[0][1, 0] = masks[1][0, 0] = True
    return pn.Custom(masks, [np.ones(n, dtype=bool) for n in (6, 5, 1)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: posterior(pn.Sep(2)), "a separate network is zero"),
        (lambda: posterior(scattered()), "the Bayesian weights of layer 1 are no block"),
        (lambda: posterior(pn.Out(3)), "the likelihood is quadratic"),
        (
            lambda: posterior(prior=pn.GaussianPrior(scales=pn.SampledScales(by_input=True))),
            "the weights of layer 1 have several sampled scales",
        ),
    ],
)
def test_posteriors_without_axes_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"metric='curvature'\) rotates.*{message}.*use metric=\"prior\""):
        pn.sample(make(), pn.MGrad(0.1, metric="curvature"), draws=1, warmup=None)


def test_wide_layers_are_refused() -> None:
    rng = np.random.default_rng(0)
    net = problems.random_network(rng, (MAX_WIDTH + 1, 2, 1))
    X = rng.normal(size=(5, MAX_WIDTH + 1))
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(0.5), X, np.zeros(5))
    with pytest.raises(ValueError, match=f"layer 1 has more than {MAX_WIDTH} nodes or inputs"):
        pn.sample(post, pn.MGrad(0.1, metric="curvature"), draws=1, warmup=None)


def test_it_runs_on_the_cpu(device: str) -> None:
    with pytest.raises(ValueError, match=r'runs the metrics "prior" and "inputs"; got MGrad\(.*metric=.curvature'):
        pn.sample(posterior(), pn.MGrad(0.1, metric="curvature"), draws=1, warmup=None, device=device)


def test_a_target_has_no_axes() -> None:
    target = problems.normal_target(2)
    with pytest.raises(ValueError, match="there are none: the log-likelihood is a function"):
        pn.sample(target, pn.MGrad(0.1, metric="curvature"), draws=1, warmup=None)


# The choice of kernel="auto"


def chosen(sizes: tuple[int, ...], architecture: Any = None, likelihood: Any = None, **more: Any) -> Any:
    """What kernel="auto" means for a posterior of twelve rows, and its facts; a run takes that kernel."""
    rng = problems.rng_of("curvature by default", sizes)
    net = problems.random_network(rng, sizes)
    X, y = more.pop("X", rng.normal(size=(12, sizes[0]))), rng.normal(size=(12, more.pop("y", 1)))
    post = pn.Posterior(
        net, architecture or pn.Full(), more.pop("prior", problems.PRIOR), likelihood or pn.Gaussian(0.5), X, y, **more
    )
    kernel, reason = choose_kernel(post.sampled.facts)
    assert f'kernel="auto" means {kernel.label()}: {reason}' in post.describe()
    assert pn.sample(post, chains=2, draws=2, warmup=20, seed=1).settings["kernel"] == kernel.to_dict()
    return kernel, post.sampled.facts


DEEP = pn.MGrad(collapse=True, metric="curvature", persistence=0.97)
OTHER = pn.MGrad(collapse=True, persistence=0.9)
CORRELATED = np.outer(np.linspace(-1.0, 1.0, 12), np.ones(3)) + 1e-3 * np.eye(12, 3)


@pytest.mark.parametrize("architecture", [pn.Full(), pn.Mix(3)], ids=str)
def test_auto_takes_the_metric_of_the_curvature_in_deep_narrow_networks(architecture: pn.Architecture) -> None:
    kernel, facts = chosen((2, 4, 4, 4, 1), architecture)
    assert kernel == DEEP
    # Chains on a device step in theta or along the inputs, and draws that stay on one are not rotated back.
    on_device: Any = object()
    assert choose_kernel(facts, "cuda")[0] == choose_kernel(facts, keep=True)[0] == OTHER
    assert choose_kernel(dataclasses.replace(facts, inputs_on_device=on_device))[0].metric != "curvature"


@pytest.mark.parametrize(
    "more",
    [
        {"sizes": (1, 4, 4, 4, 1)},
        {"sizes": (3, 4, 4, 4, 1), "X": CORRELATED},  # in other networks the metric of the inputs
        {"sizes": (3, 32, 32, 32, 32, 1), "X": CORRELATED.astype(np.float32), "dtype": "float32", "copy": False},
        {"sizes": (3, 4, 4, 4, 1), "X": np.arange(36, dtype=np.uint8).reshape(12, 3)},
        {"sizes": (2, 3, 3, 3, 3, 2), "likelihood": pn.Gaussian("sampled", a=2, b=1), "y": 2},
        {"sizes": (2, 3, 3, 3, 1), "prior": pn.GaussianPrior(scales="sampled")},
    ],
)
def test_auto_takes_it_whatever_the_inputs_are(more: dict[str, Any]) -> None:
    assert chosen(**more)[0] == DEEP


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sizes": (2, 4, 4, 1)}, OTHER),
        ({"sizes": (2, 33, 4, 4, 1)}, OTHER),
        ({"sizes": (3, 4, 4, 1), "X": CORRELATED}, dataclasses.replace(OTHER, metric="inputs")),
        ({"sizes": (2, 4, 4, 4, 1), "architecture": pn.Sep(2)}, OTHER),  # no curvature where the chains start
        ({"sizes": (2, 4, 4, 4, 2), "likelihood": pn.HeteroscedasticGaussian()}, OTHER),
        ({"sizes": (2, 4, 4, 4, 1), "likelihood": pn.StudentT(4.0)}, pn.MGrad(persistence=0.9)),
        ({"sizes": (2, 4, 4, 4, 1), "prior": pn.GaussianPrior(scales=pn.SampledScales(by_input=True))}, OTHER),
        (
            {"sizes": (2, 4, 4, 4, 1), "prior": pn.GaussianPrior(scales=pn.SampledScales(interweave=True))},
            pn.MGrad(persistence=0.9),
        ),
        ({"sizes": (2, 4, 4, 4, 1), "architecture": pn.Out(2)}, pn.Exact()),
    ],
)
def test_auto_keeps_another_kernel_elsewhere(more: dict[str, Any], expected: pn.Kernel) -> None:
    assert chosen(**more)[0] == expected
