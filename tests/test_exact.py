"""`Exact()`: the closed form of a Gaussian last layer, and independent draws from it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import chains
import patrac_native as pn
import problems
import reference
from patrac_native.kernels import facts
from rounding import assert_log_priors

FloatArray = npt.NDArray[np.float64]
SETS = ("out", "last_layer_of_each_output", "linear", "one_output")
EPS = float(np.finfo(np.float64).eps)


class Case:
    """A Gaussian model that is linear in theta, with its closed form from the oracle."""

    def __init__(self, name: str, dtype: str = "float64", n: int = 17) -> None:
        rng = problems.rng_of("exact", name)
        sizes = {"linear": (3, 2), "one_output": (2, 6, 1)}.get(name, (2, 5, 4, 3))
        net = problems.random_network(rng, sizes)
        architecture: Any = pn.Full() if name == "linear" else pn.Out(3)
        if name == "last_layer_of_each_output":
            masks = [np.zeros(w.shape, dtype=bool) for w in net.weights]
            biases = [np.zeros(b.shape, dtype=bool) for b in net.biases]
            # Three weights into the first output, one and the bias into the second, nothing into the third.
            masks[-1][0, [0, 2, 3]] = masks[-1][1, 1] = biases[-1][1] = True
            architecture = pn.Custom(masks, biases)
        m = sizes[-1]
        self.X, self.y = rng.normal(size=(n, sizes[0])), 2 * rng.normal(size=(n, m))
        self.variance, self.weight = rng.uniform(0.2, 1.5, m), rng.uniform(0.3, 2.0, n)
        self.post = pn.Posterior(
            net,
            architecture,
            problems.PRIOR,
            pn.Gaussian(self.variance),
            self.X,
            self.y,
            sample_weight=self.weight,
            dtype=dtype,
        )
        partial = reference.partial(net, architecture)
        assert reference.hidden_dim(partial) == 0
        C = partial.prior_variances(problems.PRIOR, net.layer_sizes)
        arguments = (partial, np.zeros(0), C, self.variance, self.X, self.y, self.weight)
        self.mean, self.covariance = reference.output_conditional(*arguments)
        self.log_evidence = float(reference.collapsed_log_likelihood(*arguments))
        _, design = reference.output_design(partial, np.zeros(0), self.X)
        noise = (self.variance / self.weight[:, None]).ravel()
        signal = design * np.sqrt(C) / np.sqrt(noise)[:, None]
        # size x condition x eps, of the oracle's solves with the covariance of y.
        self.rounding = float(len(design) * (1 + np.linalg.norm(signal, 2) ** 2) * EPS)


run = functools.partial(chains.run, kernel=pn.Exact())


@pytest.mark.parametrize("name", SETS)
def test_mean_covariance_and_evidence_are_those_of_linear_regression(name: str) -> None:
    case = Case(name)
    exact = case.post.exact()
    deviation = np.sqrt(np.diag(case.covariance))
    scale = np.abs(case.mean).max() + deviation.max()
    np.testing.assert_allclose(exact.mean, case.mean, rtol=0, atol=case.rounding * scale)
    np.testing.assert_allclose(exact.covariance, case.covariance, rtol=0, atol=case.rounding * scale**2)
    assert abs(exact.log_evidence - case.log_evidence) <= case.rounding * (abs(case.log_evidence) + case.y.size)


def test_the_evidence_is_likelihood_times_prior_over_posterior() -> None:
    """log p(y) = l(theta) + log N(theta; 0, C) - log N(theta; mean, covariance) whatever theta is."""
    case = Case("out")
    exact, post = case.post.exact(), case.post
    for theta in problems.rng_of("any").normal(size=(3, post.dim)):
        away = theta - exact.mean
        conditional = -0.5 * away @ np.linalg.solve(exact.covariance, away)
        conditional -= 0.5 * (np.linalg.slogdet(exact.covariance)[1] + post.dim * np.log(2 * np.pi))
        joint = post.log_likelihood(theta) + float(post.log_prior(theta))
        assert abs(joint - conditional - exact.log_evidence) <= case.rounding * (abs(joint) + abs(conditional))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SETS)
def test_draws_are_independent_with_the_exact_moments(name: str, dtype: str) -> None:
    case = Case(name, dtype)
    draws = run(case.post, chains=4, draws=3000)
    root = np.linalg.cholesky(case.covariance)
    z = np.linalg.solve(root, (draws.theta.astype(np.float64) - case.mean).reshape(-1, case.post.dim).T).T
    count, dim = z.shape
    chains.assert_standard_normal(z)
    assert np.abs((z**3).mean(axis=0)).max() < 5 * np.sqrt(15 / count)  # 5 standard errors
    # Between steps, between chains, and between coordinates of neighbouring steps.
    by_chain = z.reshape(4, 3000, dim)
    lag_one = np.einsum("cti,ctj->ij", by_chain[:, 1:], by_chain[:, :-1]) / (4 * 2999)
    assert np.abs(lag_one).max() < 5 / np.sqrt(4 * 2999)
    for one in range(4):
        for other in range(one):
            assert np.abs((by_chain[one] * by_chain[other]).mean(axis=0)).max() < 5 / np.sqrt(3000)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SETS)
def test_draws_depend_neither_on_length_chains_thinning_nor_threads(name: str, dtype: str) -> None:
    post = Case(name, dtype).post
    # Longer than any block of draws that is made at a time, and not a multiple of one.
    long = run(post, chains=3, draws=1301)
    for changes, kept in (
        ({"chains": 3, "draws": 700}, long.theta[:, :700]),
        ({"chains": 1, "draws": 1}, long.theta[:1, :1]),
        ({"chains": 2, "draws": 37}, long.theta[:2, :37]),
        ({"chains": 3, "draws": 130, "thin": 10}, long.theta[:, 9:1300:10]),
        ({"chains": 3, "draws": 1301, "threads": 2}, long.theta),
    ):
        np.testing.assert_array_equal(run(post, **changes).theta, kept)
    # Another seed gives other draws at every step; float32 numbers may coincide once in a while, whole draws not.
    assert (run(post, seed=5).theta != long.theta[:2, :50]).any(axis=-1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SETS)
def test_stats_are_those_of_the_returned_draws(name: str, dtype: str) -> None:
    post = Case(name, dtype).post
    draws = run(post, draws=300)
    chains.assert_log_likelihoods(draws, post)
    assert_log_priors(draws, post)
    assert (draws.stats["acceptance_rate"] == 1).all()
    assert np.isnan(draws.stats["step_size"]).all()


def test_auto_takes_it_where_it_qualifies() -> None:
    draws = pn.sample(Case("out").post, chains=1, draws=5, seed=1, progress=False)
    assert draws.settings["kernel"]["name"] == "exact"
    np.testing.assert_array_equal(draws.theta, run(Case("out").post, chains=1, draws=5, seed=1).theta)


@pytest.mark.parametrize(
    ("architecture", "likelihood"), [("mix", "gaussian"), ("sep", "gaussian"), ("out", "categorical")]
)
def test_where_a_chain_is_needed_exact_is_refused(architecture: str, likelihood: str) -> None:
    rng = problems.rng_of("refused", architecture, likelihood)
    post = problems.problem(rng, (2, 5, 4, 3), 9, architecture, likelihood).post
    with pytest.raises(ValueError, match="Exact"):
        run(post)
    with pytest.raises(ValueError):
        post.exact()


def test_a_sampled_variance_has_no_single_closed_form() -> None:
    case = Case("out")
    likelihood = pn.Gaussian(variance="sampled")
    post = pn.Posterior(
        case.post.network.net, case.post.network.architecture, problems.PRIOR, likelihood, case.X, case.y
    )
    with pytest.raises(ValueError, match="variance"):
        post.exact()
    assert run(post).stats["variance"].shape == (2, 50, 3)


def test_a_sampled_variance_is_forgotten_before_the_first_draw() -> None:
    """The default warm-up leaves nothing of where the variance started: first draws agree with later ones.

    With a single start for all chains the first draw would be 30 standard errors off, the second 5.
    """
    net, X, y = problems.regression(problems.rng_of("first draw"), (2, 5, 4, 2), 14)
    post = pn.Posterior(net, pn.Out(3), problems.PRIOR, pn.Gaussian(variance="sampled", a=2.5, b=0.8), X, y)
    draws = pn.sample(post, pn.Exact(), chains=3000, draws=40, seed=3, threads=1, progress=False)
    log_variance = np.log(draws.stats["variance"])
    later = log_variance[:, 20:].mean()
    for draw in (0, 1):
        # The later draws' mean has a standard error a few times smaller.
        error = log_variance[:, draw].std() / np.sqrt(3000)
        assert abs(log_variance[:, draw].mean() - later) < 4.5 * error


@pytest.mark.parametrize(
    ("dim", "n_rows", "dear"),
    [
        (13, 10, False),
        (2_000, 100, False),
        (2_000, 10**6, False),
        (3_000, 500, True),
        (3_000, 10_000, False),
        (6_000, 500, True),
        (6_000, 60_000, False),
    ],
)
def test_statistics_are_dear_where_chains_take_fewer_operations(dim: int, n_rows: int, dear: bool) -> None:
    """K = 3,000 and K = 6,000 took 25 s and over 190 s; many rows make each step of a chain dear too."""
    assert facts.statistics_are_dear(dim, n_rows) == dear


def test_where_statistics_are_dear_auto_takes_chains_on_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    net = problems.random_network(np.random.default_rng(5), (2, 8, 1))
    X, y = np.random.default_rng(6).normal(size=(40, 2)), np.random.default_rng(7).normal(size=40)
    given = (net, pn.Out(5), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(0.5), X, y)
    exact = pn.Posterior(*given, dtype="float64").sampled.quadratic
    assert exact is not None
    monkeypatch.setattr(facts, "_SECONDS", 0.0)
    monkeypatch.setattr(facts, "_STEPS", 0)
    post = pn.Posterior(*given, dtype="float64")
    plan = post.plan()
    assert plan.kernel == pn.MGrad(persistence=0.9) and "more operations than chains on the data" in plan.reason
    assert plan.operations["multiply_add"] > 40 * post.dim
    draws = pn.sample(post, chains=4, draws=2_000, thin=5, seed=1, progress=False)
    assert "quadratic" not in vars(post.sampled)
    moments = exact.exact()
    z = (draws.theta.mean(axis=(0, 1)) - moments.mean) / np.sqrt(np.diag(moments.covariance))
    # 8,000 draws, of which a tenth counts: 5 standard errors.
    assert np.abs(z).max() < 5 / np.sqrt(800)
    assert pn.sample(post, pn.Exact(), draws=5, seed=1, progress=False).theta.shape == (4, 5, post.dim)
