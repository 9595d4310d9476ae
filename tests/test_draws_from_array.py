"""Draws of another sampler: densities, predictions, verdict, files and refused arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.report.report import Report
from patrac_native.report.run_sections import _HEADERS, add_run_sections
from problems import ARCHITECTURES, LIKELIHOODS

STEPS = {
    *("acceptance_rate", "step_size", "nonfinite", "gradients"),
    *("warmup_acceptance_rate", "warmup_step_size", "warmup_nonfinite"),
}


def run(post: pn.Posterior, **arguments: Any) -> pn.Draws:
    """Run PCNL, whose states are evaluated in the coordinates of theta."""
    settings: dict[str, Any] = {"chains": 2, "draws": 6, "thin": 5, "warmup": None, "seed": 1, "threads": 1}
    return pn.sample(post, pn.PCNL(0.01), **(settings | arguments))


@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype"),
    [
        *((name, "gaussian", dtype) for name in ARCHITECTURES if name != "out" for dtype in ("float32", "float64")),
        *(("mix", name, "float32") for name in LIKELIHOODS[1:]),
    ],
)
def test_states_of_a_run_give_back_its_draws(architecture: str, likelihood: str, dtype: str) -> None:
    """Same states, same evaluator: predictions and log-likelihoods are equal to the bit.

    All but Out, whose chains evaluate a quadratic form instead of the data.
    """
    rng = problems.rng_of("from_array", architecture, likelihood, dtype)
    post = problems.problem(rng, (2, 6, 5, 3), 14, architecture, likelihood, dtype=dtype).post
    own = run(post)
    draws = pn.Draws.from_array(post, own.theta, sampler="another")
    assert set(own.stats) - set(draws.stats) == STEPS
    np.testing.assert_array_equal(draws.stats["log_likelihood"], own.stats["log_likelihood"])
    # The chain sums K squares of theta, rounded to the dtype, in another order than NumPy.
    np.testing.assert_allclose(draws.stats["log_prior"], own.stats["log_prior"], rtol=4 * post.dim * 2.0**-53)
    X = rng.normal(size=(5, 2))
    np.testing.assert_array_equal(draws.predict(X), own.predict(X))
    np.testing.assert_array_equal(draws.predictive(X, seed=3), own.predictive(X, seed=3))
    assert draws.theta.dtype == post.network.dtype


@pytest.mark.parametrize(
    "likelihood",
    [pn.Gaussian("sampled", a=2.0, b=1.0), pn.Gaussian("sampled", a=2.0, b=[1.0, 2.0]), pn.StudentT(4.0, "sampled")],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:the prior of the noise variance")
def test_sampled_variances_belong_to_their_draws(likelihood: pn.Likelihood) -> None:
    net, X, y = problems.regression(problems.rng_of("from_array, variance"), (2, 5, 2), 20)
    post = pn.Posterior(net, pn.Mix(2), problems.PRIOR, likelihood, X, y, dtype="float64")
    own = run(post)
    draws = pn.Draws.from_array(post, own.theta, sampler="another", variance=own.stats["variance"])
    np.testing.assert_array_equal(draws.log_likelihood_rows(X, y), own.log_likelihood_rows(X, y))
    np.testing.assert_array_equal(draws.predictive(X), own.predictive(X))
    # The chain carries l from one variance to the next by rescaling it: rounding of l's terms, a few times over.
    np.testing.assert_allclose(draws.stats["log_likelihood"], own.stats["log_likelihood"], rtol=1e-12)
    other = pn.Draws.from_array(post, own.theta, sampler="another", variance=2 * own.stats["variance"])
    assert (other.stats["log_likelihood"] != draws.stats["log_likelihood"]).all()
    with pytest.raises(ValueError, match="variance must be given, because this posterior samples the noise"):
        pn.Draws.from_array(post, own.theta, sampler="another")
    for bad, words in (
        (own.stats["variance"][:, 1:], "variance must have shape"),
        (-own.stats["variance"], "positive"),
    ):
        with pytest.raises(ValueError, match=words):
            pn.Draws.from_array(post, own.theta, sampler="another", variance=bad)
    # Of one chain the message names both shapes.
    with pytest.raises(ValueError, match=r"variance must have shape \(5,.*\) or \(1, 5,.*\), .*; got \(4,"):
        pn.Draws.from_array(post, own.theta[0, :5], sampler="another", variance=own.stats["variance"][0, :4])


def test_sampled_scales_of_the_prior_belong_to_their_draws() -> None:
    net, X, y = problems.regression(problems.rng_of("from_array, scales"), (2, 5, 1), 20)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(scales="sampled"), pn.Gaussian(1.0), X, y, dtype="float64")
    own = run(post, scales_every=1)
    scales = own.stats["prior_scales"]
    draws = pn.Draws.from_array(post, own.theta, sampler="another", prior_scales=scales)
    np.testing.assert_allclose(draws.stats["log_prior"], own.stats["log_prior"], rtol=1e-13)
    summary = draws.summary(X[:3])
    assert summary.prior_scales is not None and summary.prior_scales.names == post.network.scale_names
    with pytest.raises(ValueError, match="prior_scales must be given, because this posterior samples the scales"):
        pn.Draws.from_array(post, own.theta, sampler="another")


def exact_problem() -> tuple[pn.Posterior, npt.NDArray[np.float64]]:
    """Return a posterior in closed form, and 4 chains of 400 independent draws from NumPy."""
    rng = problems.rng_of("from_array, exact")
    net = problems.random_network(rng, (1, 6, 1))
    X = rng.normal(size=(30, 1))
    y = net.predict(X)[:, 0] + 0.3 * rng.normal(size=30)
    post = pn.Posterior(net, pn.Out(5), problems.PRIOR, pn.Gaussian(0.09), X, y, dtype="float64")
    exact = post.exact()
    return post, rng.multivariate_normal(exact.mean, exact.covariance, size=(4, 400))


def test_the_posterior_in_closed_form_by_another_sampler() -> None:
    """Means of f against the closed form, within five standard errors of 1600 independent draws; a twin is off."""
    post, theta = exact_problem()
    grid = np.linspace(-2, 2, 5)[:, None]
    summary = pn.Draws.from_array(post, theta, sampler="NumPy").summary(grid)
    expected = post.network.predict(post.exact().mean, grid)
    assert (np.abs(summary.mean - expected) < 5 * summary.sd / 40).all()
    verdict = summary.verdict()
    assert verdict.grade == "good" and "(steps and warm-up of NumPy are not known here)" in str(verdict)
    assert summary.acceptance_rate is None and summary.step_size is None
    assert str(summary).startswith("Out(5) by NumPy: 4 chains x 400 draws (thin 1)\n")
    assert "steps: not recorded" in str(summary) and "nan" not in str(summary)
    twin = pn.Draws.from_array(post, 1.5 * theta, sampler="NumPy").summary(grid)
    assert not (np.abs(twin.mean - expected) < 5 * twin.sd / 40).all()


def test_chains_that_disagree_are_not_to_be_used() -> None:
    post, theta = exact_problem()
    theta[0] += np.linspace(0, 6, 400)[:, None] * theta.std(axis=(0, 1))  # still on its way
    verdict = pn.Draws.from_array(post, theta, sampler="BlackJAX NUTS").summary(post.data.X).verdict()
    assert verdict.grade == "do not use"
    (finding,) = [f for f in verdict.findings if "the chains disagree" in f.what]
    assert finding.remedy.startswith("run BlackJAX NUTS longer, ") and "warmup=" not in finding.remedy


def test_a_single_chain_of_few_draws() -> None:
    post, theta = exact_problem()
    draws = pn.Draws.from_array(post, theta[0, :5], sampler="NumPy")
    assert draws.theta.shape == (1, 5, post.dim)
    remedies = [finding.remedy for finding in draws.summary(post.data.X).verdict().findings]
    assert "run several." in remedies and any("1000 of each chain" in remedy for remedy in remedies)


def test_draws_that_fit_worse_than_a_constant_start_elsewhere() -> None:
    post, theta = exact_problem()
    verdict = pn.Draws.from_array(post, theta + 20.0, sampler="NumPy").summary(post.data.X).verdict()
    (finding,) = [f for f in verdict.findings if "no better than a constant" in f.what]
    assert finding.grade == "do not use" and "post.theta_map" in finding.remedy and "init=" not in finding.remedy


def test_saved_thinned_and_shortened_draws(tmp_path: Path) -> None:
    post, theta = exact_problem()
    draws = pn.Draws.from_array(post, theta, sampler="NumPy")
    draws.save(tmp_path / "draws.npz")
    loaded = pn.Draws.load(tmp_path / "draws.npz")
    np.testing.assert_array_equal(loaded.theta, draws.theta)
    np.testing.assert_array_equal(loaded.predict(post.data.X), draws.predict(post.data.X))
    assert str(loaded.summary(post.data.X)) == str(draws.summary(post.data.X))
    assert repr(loaded) == "Draws(Out(5), chains=4, draws=400, K=6, sampler='NumPy')"
    np.testing.assert_array_equal(draws[:, 9::10].theta, theta[:, 9::10])
    assert draws[:, 9::10].settings["thin"] == 10
    np.testing.assert_array_equal(draws[:, :7].stats["log_likelihood"], draws.stats["log_likelihood"][:, :7])
    assert np.isnan(draws.summary(post.data.X).steps_per_second)


def test_a_report_of_them_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    post, theta = exact_problem()
    report = Report("draws of another sampler")
    add_run_sections(report, pn.Draws.from_array(post, theta, sampler="NumPy"), post.data.X)
    report.write(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "draws of NumPy; its step sizes, acceptance rates and warm-up are not known here" in page
    headers = re.findall(r"<th [^>]*>(.*?)</th>", re.sub(r"</?span[^>]*>", "", page), re.DOTALL)
    assert set(_HEADERS) <= set(headers) and "non-finite proposals" not in headers


def test_they_join_a_mixture_with_draws_of_this_package() -> None:
    post, theta = exact_problem()
    own = pn.sample(post, chains=4, draws=400, seed=1, threads=1)
    mixture = pn.DrawsMixture([own, pn.Draws.from_array(post, theta, sampler="NumPy")])
    assert mixture.summary(post.data.X).verdict().grade == "good"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"post": None}, TypeError, "post must be a Posterior; got NoneType"),
        ({"sampler": ""}, TypeError, "sampler must be a name"),
        ({"sampler": 3}, TypeError, "sampler must be a name"),
        ({"theta": np.zeros(6)}, ValueError, r"theta must have shape \(chain, draw, K\).*K = 6.*got \(6,\)"),
        ({"theta": np.zeros((2, 3, 5))}, ValueError, r"got \(2, 3, 5\)"),
        ({"theta": np.zeros((2, 0, 6))}, ValueError, "at least one draw"),
        ({"theta": np.full((2, 3, 6), np.nan)}, ValueError, "theta"),
        ({"theta": [["a"] * 6]}, TypeError, "theta"),
        (
            {"variance": np.ones((4, 400))},
            ValueError,
            "variance must be left out: this posterior has the noise",
        ),
        ({"prior_scales": np.ones((4, 400, 2))}, ValueError, "prior_scales must be left out"),
    ],
)
def test_bad_arguments(change: dict[str, Any], error: type[Exception], words: str) -> None:
    post, theta = exact_problem()
    arguments: dict[str, Any] = {"post": post, "theta": theta, "sampler": "NumPy"} | change
    with pytest.raises(error, match=words):
        pn.Draws.from_array(**arguments)
