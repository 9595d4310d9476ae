"""Noise far below the spread of the targets: float32 collapsed chains stay finite and sample what float64's do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems

FloatArray = npt.NDArray[np.float64]
U32 = float(np.finfo(np.float32).eps) / 2
COLLAPSED = pn.MGrad(collapse=True, persistence=0.9)


class LowNoise:
    """Targets of unit variance from a network on 2-24-m plus noise of a given variance, and that network."""

    def __init__(self, variance: float, activation: str = "tanh", m: int = 1, n: int = 80) -> None:
        rng = problems.rng_of("low noise", activation, m, n)
        net = problems.random_network(rng, (2, 24, m), activation)
        self.X = rng.uniform(-1.5, 1.5, (n, 2))
        scale = net.predict(self.X).std(axis=0)
        self.net = pn.Network(
            [net.weights[0], net.weights[1] / scale[:, None]], [net.biases[0], net.biases[1] / scale], activation
        )
        self.y = self.net.predict(self.X) + np.sqrt(variance) * rng.normal(size=(n, m))
        self.weight = rng.uniform(0.3, 2.0, n)
        self.variance = variance

    def posterior(self, likelihood: pn.Likelihood, dtype: str) -> pn.Posterior:
        """Full posterior with unequal row weights."""
        prior = pn.TraceClassPrior(1.5, 4.0, 4.0)
        return pn.Posterior(
            self.net, pn.Full(), prior, likelihood, self.X, self.y, sample_weight=self.weight, dtype=dtype
        )


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("variance", [1e-2, 1e-4, 1e-6])
def test_the_marginal_of_float32_is_that_of_float64(variance: float, activation: str) -> None:
    """l differs by the rounding of features and residuals alone, whose effect grows with 1 / sd of the noise.

    A Gram matrix summed in float32 was wrong by 10 at variance 1e-6, and below that not positive definite.
    """
    case = LowNoise(variance, activation)
    narrow, wide = (case.posterior(pn.Gaussian(variance), dtype) for dtype in ("float32", "float64"))
    rng = problems.rng_of("low noise, points", activation)
    around = narrow.theta_map[: narrow.sampled.facts.hidden_dim]
    points = (around + 0.01 * np.sqrt(variance) * rng.normal(size=(20, len(around)))).astype(np.float32)
    l32, g32 = narrow.density("collapsed").value_and_grad(points)
    l64, g64 = wide.density("collapsed").value_and_grad(points.astype(np.float64))
    # Each f and residual has an error of some u of the outputs' scale, 1; dl/df is about residual / variance.
    size = np.abs(case.y - case.net.predict(case.X)).sum() / variance
    np.testing.assert_allclose(l32, l64, rtol=0, atol=16 * U32 * size)
    assert (np.linalg.norm(g32 - g64, axis=1) < 0.05 * np.linalg.norm(g64, axis=1)).all()


@pytest.mark.parametrize("device", ["cpu", "emulated:1", "emulated:4"])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_no_proposal_is_lost_to_the_rounding_of_the_gram_matrix(activation: str, m: int, device: str) -> None:
    """At variance 1e-8 a third of the proposals near the mode were not finite."""
    case = LowNoise(1e-8, activation, m, n=30)
    post = case.posterior(pn.Gaussian(1e-8), "float32")
    draws = pn.sample(
        post, pn.MGrad(1e-8, collapse=True), chains=2, draws=30, warmup=None, init="map", seed=1, device=device
    )
    assert np.isfinite(draws.theta).all()
    assert (draws.stats["nonfinite"] == 0).all()
    assert draws.stats["acceptance_rate"].mean() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("variance", [1e-2, 1e-4, 1e-6])
def test_chains_with_a_sampled_low_variance_stay_finite_and_agree_with_float64(variance: float) -> None:
    """Means of log sigma^2, of the log-likelihood and of f agree within 4.5 standard errors of batch means.

    Batches have 10,000 steps: those of 400 are shorter than the autocorrelation at a variance of 1e-4, where the
    differences of twelve seeds had a root mean square of 1.9 such standard errors, and a mean near zero.
    """
    case = LowNoise(variance)
    estimates = []
    for dtype, seed in (("float32", 3), ("float64", 4)):
        post = case.posterior(pn.Gaussian("sampled", a=2.0, b=variance), dtype)
        draws = pn.sample(post, COLLAPSED, chains=4, draws=500, thin=100, warmup=4000, init="map", seed=seed)
        assert np.isfinite(draws.theta).all()
        assert all(np.isfinite(values).all() for values in draws.stats.values())
        assert (draws.stats["nonfinite"] == 0).all() and (draws.stats["warmup_nonfinite"] == 0).all()
        f = np.asarray(draws.predict(case.X[:5]), dtype=np.float64)[..., 0]
        quantities = np.concatenate(
            [np.log(draws.stats["variance"])[..., None], draws.stats["log_likelihood"][..., None], f], axis=-1
        )
        batches = quantities.reshape(4 * 5, 100, -1).mean(axis=1)
        estimates.append((batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))))
    (mean32, error32), (mean64, error64) = estimates
    assert (np.abs(mean32 - mean64) < 4.5 * np.hypot(error32, error64)).all()


@pytest.mark.parametrize("kernel", [pn.MGrad(0.5), pn.MGrad(0.5, collapse=True)])
def test_a_variance_at_which_the_density_overflows_is_not_kept(kernel: pn.Kernel) -> None:
    """One row that any network fits, and a vague prior: near the variances drawn here g overflows float32.

    Such a draw is refused and counted, and the chain goes on with the variance that it had. Where g overflows depends
    on the rounding of a residual, which differs between instruction-set levels, so starting points are tried until a
    run has both kinds of draws; no run may keep what is not finite.
    """
    net = problems.random_network(problems.rng_of("overflow"), (1, 3, 1))
    X = np.array([[0.3]])
    post = pn.Posterior(
        net, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian("sampled", a=0.02, b=1e-36), X, net.predict(X)
    )
    rng = problems.rng_of("starting points")
    refused, variances = 0, 0
    for _ in range(500):
        start = post.theta_map + 1e-3 * rng.normal(size=post.dim)
        try:
            draws = pn.sample(post, kernel, chains=2, draws=500, warmup=None, seed=2, init=np.stack([start, start]))
        except ValueError as error:
            assert "not finite at the starting point" in str(error)
            continue
        assert np.isfinite(draws.theta).all()
        assert all(np.isfinite(values).all() for values in draws.stats.values())
        refused, variances = int(draws.stats["nonfinite"].sum()), len(np.unique(draws.stats["variance"]))
        if refused > 0 and variances > 2:
            break
    assert refused > 0 and variances > 2


@pytest.mark.parametrize("kernel", [pn.PCN(0.3), pn.MGrad(0.3), pn.EllipticalSlice(), pn.MGrad(0.3, collapse=True)])
def test_a_chain_goes_on_after_an_infinite_variance(kernel: pn.Kernel) -> None:
    """A vague prior near the largest number, of which many draws are infinite.

    Scaling g back from such a variance made NaN of zeros: of pCN's g, which no evaluation writes, and of what lies
    beyond the last entry of any. The chain then rejected all that followed.
    """
    net, X, y = problems.regression(problems.rng_of("infinite variance"), (1, 3, 2), 2)
    likelihood = pn.Gaussian("sampled", a=0.02, b=1e307, pooled=True)
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), likelihood, X, y, dtype="float64")
    with pytest.warns(UserWarning, match="not finite and were rejected"):
        draws = pn.sample(post, kernel, chains=4, draws=300, warmup=None, seed=2, variance_every=1)
    assert (draws.stats["nonfinite"] > 0).all()
    assert all(np.isfinite(draws.stats[name]).all() for name in ("variance", "log_likelihood", "log_prior"))
    # The likelihood is flat at such variances: all moves are taken, and a third of the draws or more are finite.
    assert draws.stats["acceptance_rate"][:, -100:].mean() > 0.9
    assert all(len(np.unique(variance[-100:])) > 20 for variance in draws.stats["variance"])


@pytest.mark.parametrize("kernel", [pn.Exact(), pn.PCN(0.9), pn.EllipticalSlice()])
def test_a_draw_that_overflows_ends_the_run(kernel: pn.Kernel) -> None:
    """The chain is finite in whitened coordinates, theta under a prior variance of 4e77 is not in float32."""
    net = problems.random_network(problems.rng_of("overflow of theta"), (1, 3, 1))
    X = np.full((2, 1), 0.5)
    prior = pn.TraceClassPrior(1.5, 1e77, 1.0)
    post = pn.Posterior(net, pn.Out(3), prior, pn.Gaussian(1e30), X, X[:, 0])
    with pytest.raises(RuntimeError, match=r"chain \d: .* not finite.*float64"):
        pn.sample(post, kernel, chains=2, draws=300, warmup=None, init="map", seed=1)
