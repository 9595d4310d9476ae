"""Tests of the diagnostics: hand-computed cases, direct loops written from the formulas, and Monte Carlo theory."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from arviz_stats.base import array_stats
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import norm

from patrac_native import diagnostics as dg

EPS = float(np.finfo(np.float64).eps)


def ar1(rng: np.random.Generator, phi: float, chains: int, draws: int, points: int) -> NDArray[np.float64]:
    """Stationary AR(1) series of unit variance, (chain, draw, points, 1); its integrated time is (1+phi)/(1-phi)."""
    noise = rng.standard_normal((chains, draws, points, 1)) * math.sqrt(1 - phi**2)
    noise[:, 0] /= math.sqrt(1 - phi**2)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise, axis=1))


def autocorrelation_from_the_paper(f: NDArray[np.float64], max_lag: int) -> NDArray[np.float64]:
    """Appendix C as printed, one chain (draw, points), by loops."""
    n_draws, n_points = f.shape
    rho = np.zeros(max_lag + 1)
    for r in range(n_points):
        mu = sum(f[:, r]) / n_draws
        variance = sum((f[n, r] - mu) ** 2 for n in range(n_draws)) / (n_draws - 1)
        for k in range(max_lag + 1):
            products = sum((f[n, r] - mu) * (f[n + k, r] - mu) for n in range(n_draws - k))
            rho[k] += products / (n_draws - k - 1) / variance / n_points
    rho[0] = 1.0
    return rho


# Effective sample size


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_autocorrelation_is_the_papers_formula(offset: float) -> None:
    f = ar1(np.random.default_rng(1), 0.8, chains=2, draws=61, points=3) + offset
    rho = dg.autocorrelation(f, max_lag=59)
    lags = np.arange(60)
    # A product sum is at most the sum of squares S, and each of log2(length) FFT stages loses a few ulp of S; the
    # divisor N-k-1 magnifies the last lags. The offset's own rounding, eps * offset, enters through every product.
    tolerance = 4 * EPS * (math.log2(128) + 4 * offset) * 60 / (60 - lags)
    for chain in range(2):
        expected = autocorrelation_from_the_paper(f[chain, :, :, 0], 59)
        assert rho.shape == (2, 60)
        assert rho[chain, 0] == 1.0
        assert (np.abs(rho[chain] - expected) <= tolerance).all()


def test_autocorrelation_by_hand() -> None:
    # Mean 0, S = 6, s2 = 6/5; lag 1: -5/4 / (6/5) = -25/24; lag 2: 4/3 / (6/5) = 10/9.
    rho = dg.autocorrelation([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]], max_lag=2)
    np.testing.assert_allclose(rho, [[1.0, -25 / 24, 10 / 9]], rtol=32 * EPS)


def test_autocorrelation_leaves_out_points_that_never_change() -> None:
    f = ar1(np.random.default_rng(2), 0.5, chains=1, draws=50, points=2)
    # 0.1 is not a binary fraction: its mean over 50 draws rounds away from 0.1.
    with_constant = np.concatenate([f, np.full((1, 50, 1, 1), 0.1)], axis=2)
    np.testing.assert_array_equal(dg.autocorrelation(with_constant, 20), dg.autocorrelation(f, 20))
    stuck = np.full((1, 50, 2, 1), 0.1)
    assert np.isnan(dg.autocorrelation(stuck, 20)).all()
    assert math.isnan(dg.ess_paper(stuck, 20)) and math.isnan(dg.ess_geyer(stuck))
    # One stuck chain beside a good one must not vanish from the sum.
    assert math.isnan(dg.ess_geyer(np.concatenate([f, stuck], axis=0)))


def test_autocorrelation_does_not_depend_on_scale_or_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ar1(np.random.default_rng(3), 0.5, chains=2, draws=40, points=7)
    rho = dg.autocorrelation(f, 20)
    # Powers of two are exact, so not even rounding may differ; 2^-600 squared would underflow.
    np.testing.assert_array_equal(dg.autocorrelation(f * 2.0**-600, 20), rho)
    monkeypatch.setattr("patrac_native.diagnostics._arrays.SLICE_BYTES", 1)
    np.testing.assert_allclose(dg.autocorrelation(f, 20), rho, atol=64 * EPS)


def test_ess_of_an_autoregression_is_the_theory() -> None:
    phi, draws, chains = 0.5, 20_000, 16
    time = (1 + phi) / (1 - phi)
    f = ar1(np.random.default_rng(4), phi, chains, draws, points=4)
    for ess in (dg.ess_paper(f, 50, per_chain=True), dg.ess_geyer(f, per_chain=True)):
        assert ess.shape == (chains,)
        times = draws / ess
        error = times.std(ddof=1) / math.sqrt(chains)
        # Subtracting the chain's own mean biases each rho_k by -time/N: -2 * 50 * time / N over 50 lags.
        assert abs(times.mean() - time) < 4 * error + 100 * time / draws


def test_ess_sums_chains_and_takes_scalars() -> None:
    f = ar1(np.random.default_rng(5), 0.7, chains=3, draws=500, points=1)
    each = [dg.ess_paper(f[c : c + 1], 30) for c in range(3)]
    assert dg.ess_paper(f, 30) == pytest.approx(sum(each), rel=8 * EPS)
    np.testing.assert_array_equal(dg.ess_geyer(f[:, :, 0, 0], per_chain=True), dg.ess_geyer(f, per_chain=True))


def test_the_cap_on_lags_flatters_slow_chains_and_geyer_does_not() -> None:
    phi, draws, chains = 0.999, 200_000, 4
    f = ar1(np.random.default_rng(6), phi, chains, draws, points=2)
    time = (1 + phi) / (1 - phi)
    capped_time = 1 + 2 * phi * (1 - phi**1000) / (1 - phi)
    paper, geyer = (draws / dg.ess_paper(f, per_chain=True), draws / dg.ess_geyer(f, per_chain=True))
    assert (geyer > paper).all()
    for times, expected, last in ((paper, capped_time, 1000), (geyer, time, 10_000)):
        error = times.std(ddof=1) / math.sqrt(chains)
        assert abs(times.mean() - expected) < 4 * error + 2 * last * time / draws  # the bias of the mean, as above


def test_geyer_by_hand() -> None:
    from patrac_native.diagnostics.mixing import _geyer_time

    # Pairs 1.5, 0.3, 0.5 -> 0.3 (monotone), then -0.1 stops; the last lone lag has no pair.
    rho = np.array([1.0, 0.5, 0.2, 0.1, 0.3, 0.2, -0.2, 0.1, 0.9, 0.9, 0.9])
    assert _geyer_time(rho) == pytest.approx(-1 + 2 * (1.5 + 0.3 + 0.3), rel=8 * EPS)


def test_alternating_chain_has_a_bounded_ess() -> None:
    f = np.tile([1.0, -1.0], 500)[None]
    assert dg.ess_geyer(f) == pytest.approx(1000 * 3, rel=1e-12)  # N log10 N
    with pytest.warns(UserWarning, match="less than nothing"):
        assert math.isnan(dg.ess_paper(f, 1))  # -1 + 2 (1 + rho_1), rho_1 < -1


def test_short_chains() -> None:
    f = np.random.default_rng(7).standard_normal((2, 10, 3, 1))
    with pytest.warns(UserWarning, match="max_lag=1000 is lowered to 8"):
        assert dg.autocorrelation(f).shape == (2, 9)
    with warnings.catch_warnings(action="error"):
        assert dg.autocorrelation(f, 8).shape == (2, 9)
        dg.ess_geyer(f)
    for function in (dg.autocorrelation, dg.ess_paper, dg.ess_geyer, dg.convergence):
        with pytest.raises(ValueError, match=r"f has 3 draws in each chain.*at least 4"):
            function(f[:, :3])
        with pytest.raises(ValueError, match=r"f must have shape \(chain, draw, ...\), got \(3,\)"):
            function(np.zeros(3))
        with pytest.raises(ValueError, match=r"f holds NaN or infinity, first at index \(1, 2, 0, 0\)"):
            bad = f.copy()
            bad[1, 2, 0, 0] = np.inf
            function(bad)
    with pytest.raises(ValueError, match="max_lag must be at least 1; got 0"):
        dg.autocorrelation(f, 0)


# Convergence


def test_convergence_is_arviz_at_each_point() -> None:
    f = ar1(np.random.default_rng(8), 0.6, chains=4, draws=200, points=6).reshape(4, 200, 3, 2)
    summary = dg.convergence(f, quantiles=(0.025, 0.975))
    assert summary.rhat.shape == summary.mcse_mean.shape == (3, 2) and summary.mcse_quantiles.shape == (2, 3, 2)
    one = f[:, :, 2, 1]
    assert summary.mcse_quantiles[1, 2, 1] == array_stats.mcse(one, method="quantile", prob=0.975)
    assert summary.mean[2, 1] == pytest.approx(one.mean()) and summary.sd[2, 1] == pytest.approx(one.std(ddof=1))
    assert summary.worst() == {
        "max_rhat": summary.rhat.max(),
        "min_ess_bulk": summary.ess_bulk.min(),
        "min_ess_tail": summary.ess_tail.min(),
        "max_mcse": summary.mcse_mean.max(),
    }
    assert (summary.n_chains, summary.n_draws, summary.n_constant) == (4, 200, 0)


CHAINS: dict[str, NDArray[np.float64]] = {
    "slow": ar1(np.random.default_rng(2), 0.98, chains=4, draws=301, points=5)[..., 0],
    "one chain": ar1(np.random.default_rng(4), 0.5, chains=1, draws=101, points=3)[..., 0],
    "ties": np.random.default_rng(5).integers(0, 4, (4, 60, 5)).astype(float),
    "float32": np.random.default_rng(6).standard_normal((2, 50, 3)).astype(np.float32),
    "stuck apart": np.broadcast_to(np.arange(4.0)[:, None, None], (4, 20, 2)),
    "two values": (np.random.default_rng(9).uniform(size=(2, 40, 3)) < 0.02).astype(float),
    **{f"{draws} draws": np.random.default_rng(draws).standard_normal((1, draws, 5)) for draws in range(4, 10)},
}


@pytest.mark.parametrize("case", CHAINS)
def test_points_have_the_statistics_of_arviz(case: str) -> None:
    f = CHAINS[case]
    chains = f if len(f) > 1 else np.concatenate([f[:, : f.shape[1] // 2], f[:, -(f.shape[1] // 2) :]])
    found = dg.convergence(f)
    for point in range(f.shape[2]):
        one = f[:, :, point].astype(np.float64)
        if np.ptp(one) == 0:
            assert np.isnan(found.ess_bulk[point])
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = (
                array_stats.rhat(chains[:, :, point].astype(np.float64)) if chains.shape[1] >= 4 else np.nan,
                array_stats.ess(one, method="bulk"),
                array_stats.ess(one, method="tail", prob=(0.05, 0.95)),
                array_stats.mcse(one, method="mean"),
            )
        statistics = (found.rhat, found.ess_bulk, found.ess_tail, found.mcse_mean)
        np.testing.assert_array_equal([values[point] for values in statistics], expected)


def test_rhat_flags_a_shifted_chain_and_a_drifting_one() -> None:
    f = np.random.default_rng(9).standard_normal((4, 400, 1, 1))
    # With m n independent draws R-hat - 1 is of order 1/n; 1.01 is the threshold of Vehtari et al.
    assert dg.convergence(f).max_rhat < 1.01
    shifted = f.copy()
    shifted[2] += 1.0
    assert dg.convergence(shifted).max_rhat > 1.05
    drifting = f[:1] + np.linspace(0, 2, 400)[None, :, None, None]
    assert dg.convergence(f[:1]).max_rhat < 1.03  # one chain: quarters of 100 draws
    assert dg.convergence(drifting).max_rhat > 1.05


def nested_by_loops(x: NDArray[np.float64], superchains: list[list[int]]) -> tuple[float, float]:
    """Nested R-hat of draws (chain, draw) as printed, and R-hat within superchains, by loops."""
    centres, spreads, apart, inside = [], [], [], []
    for chains in superchains:
        means = [sum(x[m]) / len(x[m]) for m in chains]
        centre = sum(means) / len(means)
        between = sum((one - centre) ** 2 for one in means) / (len(means) - 1) if len(means) > 1 else 0.0
        variances = [
            sum((x[m] - one) ** 2) / (len(x[m]) - 1) if len(x[m]) > 1 else 0.0
            for m, one in zip(chains, means, strict=True)
        ]
        within = sum(variances) / len(variances)
        centres.append(centre)
        spreads.append(between + within)
        if len(chains) > 1:
            apart.append(between)
            inside.append(within)
    whole = sum(centres) / len(centres)
    between = sum((one - whole) ** 2 for one in centres) / (len(centres) - 1)
    nested = math.sqrt(1 + between / (sum(spreads) / len(spreads)))
    return nested, math.sqrt(1 + sum(apart) / sum(inside)) if sum(inside) else math.nan


@pytest.mark.parametrize(
    ("labels", "draws"),
    [("aabbcc", 30), ("abcabc", 30), ("abbbcc", 30), ("abcdef", 30), ("aaabbb", 1)],
)
def test_nested_rhat_is_that_of_loops_and_of_arviz(labels: str, draws: int) -> None:
    rng = np.random.default_rng(11)
    f = 5.0 + rng.standard_normal((6, draws, 3, 2)) + rng.standard_normal((6, 1, 3, 2))
    found = dg.nested_rhat(f, list(labels))
    superchains = [[m for m in range(6) if labels[m] == label] for label in sorted(set(labels))]
    for point in np.ndindex(3, 2):
        nested, within = nested_by_loops(f[:, :, point[0], point[1]], superchains)
        # Sums of 180 numbers of order 10, squared and relative to numbers of order 0.1.
        np.testing.assert_allclose(found.nested[point], nested, rtol=1e4 * EPS)
        if draws > 1:
            np.testing.assert_allclose(found.within[point], within, rtol=1e4 * EPS)
    if draws > 1 and len({len(one) for one in superchains}) == 1:
        ids = np.unique(list(labels), return_inverse=True)[1]
        theirs = array_stats.rhat_nested(f, superchain_ids=ids, method="identity", chain_axis=0, draw_axis=1)
        np.testing.assert_allclose(found.nested, theirs, rtol=1e4 * EPS)
    assert np.isnan(found.within).all() == (len(superchains) == 6)


def test_nested_rhat_tells_starts_that_differ_from_chains_that_drift() -> None:
    rng, starts = np.random.default_rng(12), np.repeat(np.arange(4), 2)
    met = rng.standard_normal((8, 400))
    # Means of 800 draws have a variance of 1/800 beside one, those of 400 draws twice that.
    assert max(dg.nested_rhat(met, starts)) < 1.01
    apart = dg.nested_rhat(met + 3.0 * starts[:, None], starts)
    assert apart.nested > 3 and apart.within < 1.01
    # One of the two chains of each start has left it: the start itself has nothing to say yet.
    leaving = dg.nested_rhat(met + 3.0 * (np.arange(8) % 2)[:, None], starts)
    assert leaving.within > 2 and leaving.nested < 1.01


def test_nested_rhat_at_its_edges() -> None:
    f = np.random.default_rng(13).standard_normal((4, 20, 2))
    f[..., 1] = 0.1
    with warnings.catch_warnings(action="error"):
        one = dg.nested_rhat(f, [7, 7, 7, 7])
        several = dg.nested_rhat(f, [1, 1, 2, 2])
        stuck = dg.nested_rhat(np.repeat([[0.0], [0.0], [1.0], [1.0]], 20, axis=1), [1, 1, 2, 2])
    assert np.isnan(one.nested).all() and one.within[0] >= 1 and math.isnan(one.within[1])
    assert np.isnan([several.nested[1], several.within[1]]).all() and several.nested[0] >= 1
    assert stuck.nested == math.inf and math.isnan(stuck.within)
    with pytest.raises(ValueError, match=r"superchains must have shape \(4,\), a label of each chain; got \(2,\)"):
        dg.nested_rhat(f, [1, 2])


def test_convergence_of_scalars_short_and_stuck_chains() -> None:
    rng = np.random.default_rng(10)
    scalar = dg.convergence(rng.standard_normal((3, 100)))
    assert scalar.rhat.shape == () and scalar.max_rhat == float(scalar.rhat)
    with warnings.catch_warnings(action="error"):
        short = dg.convergence(rng.standard_normal((1, 7, 2, 1)))
        assert math.isnan(short.max_rhat) and short.min_ess_bulk > 0
        stuck = dg.convergence(np.full((2, 20, 3, 1), 0.1))
        assert stuck.n_constant == 3 and all(math.isnan(value) for value in stuck.worst().values())
        # Each chain stuck somewhere else is the worst case, not an undefined one.
        apart = dg.convergence(np.repeat([[0.0], [1.0]], 20, axis=1))
        assert apart.max_rhat == math.inf
    f = rng.standard_normal((2, 50, 2, 1))
    f[:, :, 1] = 3.0
    mixed = dg.convergence(f)
    assert mixed.n_constant == 1 and np.isnan(mixed.rhat[1, 0]) and mixed.max_rhat == mixed.rhat[0, 0]
    with pytest.raises(ValueError, match=r"quantiles must be between 0 and 1; got 1\.0"):
        dg.convergence(f, quantiles=(1.0,))
    with pytest.raises(TypeError, match=r"quantiles must be numbers, such as \(0\.05, 0\.95\); got None"):
        dg.convergence(f, quantiles=None)  # type: ignore[arg-type]


# Regression


def test_credible_interval_and_coverage_of_a_correct_gaussian() -> None:
    rng = np.random.default_rng(11)
    draws, rows = 199, 4000
    f = rng.standard_normal((2, draws, rows, 1))[:, :, :, :]
    truth = rng.standard_normal(rows)
    tau = np.array([0.01, 0.05, 0.35])
    # Rows are independent and an interval read at positions b (M + 1) holds a further draw with probability 1 - tau
    # (exactly where b (M + 1) is whole; in between, interpolating across one gap adds less than 1/M^2).
    error = np.sqrt(tau * (1 - tau) / rows)
    assert (np.abs(dg.coverage(f, truth, coverage=1 - tau) - (1 - tau)) < 4 * error).all()
    # Intervals for the wrong scale are noticed.
    assert (np.abs(dg.coverage(f * 0.8, truth, coverage=1 - tau) - (1 - tau)) > 4 * error).all()
    assert dg.coverage(f, truth, coverage=0.95).shape == ()
    with pytest.raises(TypeError, match="positional"):
        dg.coverage(f, truth, 0.05)  # type: ignore[misc]  # it must be named
    assert dg.coverage(f, truth, coverage=[[0.95, 0.9]]).shape == (1, 2)


def test_credible_interval_by_hand() -> None:
    f = np.arange(1.0, 100.0).reshape(3, 33, 1, 1)  # 99 draws: the quantile b is 100 b
    lower, upper = dg.credible_interval(f, 0.9)
    np.testing.assert_allclose([lower.item(), upper.item()], [5, 95], rtol=8 * EPS)
    lower, upper = dg.credible_interval(f)  # of 95%
    np.testing.assert_allclose([lower.item(), upper.item()], [2.5, 97.5], rtol=8 * EPS)
    assert dg.coverage(f, [95.5], coverage=[0.95, 0.9]).tolist() == [1.0, 0.0]
    assert dg.coverage(f, [4.5], coverage=[0.95, 0.9]).tolist() == [1.0, 0.0]
    # The paper's order statistics at M = 500: 13th and 488th (floor(b M) + 1) for tau = 0.05.
    paper = dg.credible_interval(np.arange(1.0, 501.0).reshape(1, 500, 1, 1), 0.95, method="inverted_cdf")
    assert (paper.lower.item(), paper.upper.item()) == (13.0, 488.0)


def test_pit_by_hand_and_uniform() -> None:
    draws = np.array([[1.0, 2.0], [3.0, 4.0]])[:, :, None, None]
    assert dg.pit(draws, [2.5]).tolist() == [0.5]
    assert dg.pit(draws, [[2.0]]).tolist() == [[0.25]]  # strictly below; the shape of y comes back
    rng = np.random.default_rng(12)
    u = dg.pit(rng.standard_normal((1, 99, 2000, 1)), rng.standard_normal(2000))
    # Uniform on {0, 1/99, ..., 1}: mean 1/2, variance (1/12)(101/99) (k uniform on 0..99: (100^2 - 1)/12 / 99^2).
    variance = (100**2 - 1) / 12 / 99**2
    assert abs(u.mean() - 0.5) < 4 * math.sqrt(variance / 2000)
    assert abs(u.var() - variance) < 4 * math.sqrt((1 / 80 - 1 / 144) / 2000)


def regression_case(seed: int = 13) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, 5, 7, 3)), rng.standard_normal((7, 3))


@pytest.mark.parametrize("kind", ["scalar", "output", "draw", "draw_output"])
def test_nll_and_nlpd_are_the_direct_loops(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, y = regression_case()
    shapes: dict[str, tuple[int, ...]] = {"scalar": (), "output": (3,), "draw": (2, 5), "draw_output": (2, 5, 3)}
    variance = np.random.default_rng(14).uniform(0.5, 2.0, shapes[kind])
    full = variance[..., None] if kind == "draw" else variance
    v = np.broadcast_to(full if full.ndim < 2 else full[:, :, None, :], f.shape)
    quadratic, density = np.zeros((2, 5)), np.zeros(7)
    for c in range(2):
        for s in range(5):
            for i in range(7):
                log_density = 0.0
                for j in range(3):
                    term = 0.5 * (y[i, j] - f[c, s, i, j]) ** 2 / v[c, s, i, j]
                    quadratic[c, s] += term
                    log_density -= term + 0.5 * math.log(2 * math.pi * v[c, s, i, j])
                density[i] += math.exp(log_density) / 10
    for slice_bytes in (1 << 20, 1):
        monkeypatch.setattr("patrac_native.diagnostics._arrays.SLICE_BYTES", slice_bytes)
        # Sums of 21 terms (nll) and 10 terms (nlpd), each rounded a few times.
        np.testing.assert_allclose(dg.nll(f, y, variance, per_draw=True), quadratic, rtol=32 * EPS)
        assert dg.nll(f, y, variance) == pytest.approx(quadratic.mean(), rel=32 * EPS)
        np.testing.assert_allclose(dg.nlpd(f, y, variance, per_row=True), -np.log(density), rtol=64 * EPS)
        assert dg.nlpd(f, y, variance) == pytest.approx(-np.log(density).mean(), rel=64 * EPS)


def test_nll_table_1_constant() -> None:
    # A perfect fit scores 0 in the paper's nll and log(2 pi sigma^2)/2 in the proper score.
    f = np.ones((2, 3, 4, 1))
    assert dg.nll(f, np.ones(4), 2.0) == 0.0
    assert dg.nlpd(f, np.ones(4), 2.0) == pytest.approx(0.5 * math.log(4 * math.pi), rel=8 * EPS)


def test_nlpd_survives_draws_far_from_y() -> None:
    # exp(-5000) underflows; the log score must not.
    assert dg.nlpd(np.zeros((1, 2, 1, 1)), [100.0], 1.0) == pytest.approx(5000 + 0.5 * math.log(2 * math.pi))


def test_rmse_by_hand() -> None:
    f = np.array([[1.0, 3.0], [0.0, 0.0]]).T[None, :, :, None]  # posterior means 2 and 0
    assert dg.rmse(f, [5.0, 4.0]) == pytest.approx(math.sqrt((9 + 16) / 2), rel=4 * EPS)


def test_crps_by_hand_and_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([0.0, 1.0, 3.0]).reshape(1, 3, 1, 1)
    # E|X - 1| = 1; sum_ij |X_i - X_j| = 2 (1 + 3 + 2) = 12.
    assert dg.crps(draws, [1.0]) == pytest.approx(1 - 12 / 6 / 2, abs=4 * EPS)
    assert dg.crps(draws, [1.0], fair=False) == pytest.approx(1 - 12 / 9 / 2, abs=4 * EPS)
    f, y = regression_case(15)
    flat = f.reshape(10, 7, 3)
    pairs = np.abs(flat[:, None] - flat[None]).sum(axis=(0, 1)) / 90
    expected = np.abs(flat - y).mean(axis=0) - 0.5 * pairs
    for slice_bytes in (1 << 20, 1):
        monkeypatch.setattr("patrac_native.diagnostics._arrays.SLICE_BYTES", slice_bytes)
        # Differences of sums of ten terms of order one.
        np.testing.assert_allclose(dg.crps(f, y, per_row=True), expected, atol=64 * EPS)


@pytest.mark.parametrize("n_draws", [2, 10, 200])
def test_crps_is_unbiased_for_the_gaussian_closed_form(n_draws: int) -> None:
    rng = np.random.default_rng(16)
    rows, mean, sd = 4000, 3.0, 2.0
    y = rng.normal(0.0, 3.0, rows)
    z = (y - mean) / sd
    cdf = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in z])
    closed = sd * (z * (2 * cdf - 1) + 2 * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi))
    draws = rng.normal(mean, sd, (2, n_draws // 2, rows, 1))
    difference = dg.crps(draws, y, per_row=True) - closed
    error = difference.std(ddof=1) / math.sqrt(rows)
    assert abs(difference.mean()) < 4 * error
    # The plain version is biased by E|X - X'|/(2M) = sd/(M sqrt(pi)): visible at M = 2 and 10, so `fair` matters.
    plain = dg.crps(draws, y, fair=False) - closed.mean()
    assert abs(plain - sd / (n_draws * math.sqrt(math.pi))) < 4 * error


def test_regression_messages() -> None:
    f, y = regression_case()
    calls: list[tuple[Any, str]] = [
        (lambda: dg.nll(f[0], y, 1.0), r"f must have shape \(chain, draw, n, m\), got \(5, 7, 3\)"),
        (lambda: dg.nll(f, y[:, 0], 1.0), r"y must have shape \(7, 3\) to match f of shape .*, got \(7,\)"),
        (lambda: dg.nll(f[..., :1], y[:5, 0], 1.0), r"y must have shape \(7,\) or \(7, 1\).*got \(5,\)"),
        (lambda: dg.nll(f, y, 0.0), "variance must be positive, got 0.0"),
        (lambda: dg.nlpd(f, y, np.ones(4)), r"variance must be a scalar or have shape \(3,\).*got \(4,\)"),
        (lambda: dg.pit(f, y * np.nan), r"y holds NaN or infinity, first at index \(0, 0\)"),
        (lambda: dg.coverage(f, y, coverage=95), "coverage must lie strictly between 0 and 1"),
        (lambda: dg.credible_interval(f, 95), "coverage must be between 0 and 1; got 95"),
        (lambda: dg.crps(f[:1, :1], y), "y_draws must hold at least 2 draws"),
        (lambda: dg.rmse(f[:, :, :0], y[:0]), r"f is empty: shape \(2, 5, 0, 3\)"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="y must hold real numbers, got dtype <U1"):
        dg.nll(f[:, :, :1, :1], ["a"], 1.0)


def test_the_error_of_a_mean_under_weights_has_kishs_number_of_rows() -> None:
    values = np.array([1.0, 4.0])
    # Standard deviation 3 / sqrt(2) of one value, of two.
    assert dg.mean_with_error(values) == pytest.approx((2.5, 1.5), rel=8 * EPS)
    assert dg.mean_with_error(values, np.array([3.0, 3.0])) == pytest.approx((2.5, 1.5), rel=8 * EPS)
    # Weights 1/4 and 3/4: mean 13/4, variance 27/16, effective number 8/5.
    expected = 3.25, math.sqrt(27 / 16 / (8 / 5 - 1))
    assert dg.mean_with_error(values, np.array([1.0, 3.0])) == pytest.approx(expected, rel=16 * EPS)
    assert dg.mean_with_error(values[1:]) == (4.0, math.inf)
    assert dg.mean_with_error(values, np.array([0.0, 2.0])) == (4.0, math.inf)


# Classification


def class_case() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    rng = np.random.default_rng(17)
    logits = rng.normal(0.0, 2.0, (2, 4, 6, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=3, keepdims=True)
    return logits, p, rng.integers(0, 3, 6)


def test_class_nll_and_nlpd_are_the_direct_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, p, y = class_case()
    of_label = [[[p[c, s, i, y[i]] for i in range(6)] for s in range(4)] for c in range(2)]
    per_draw = np.array([[np.mean([-math.log(q) for q in draw]) for draw in chain] for chain in of_label])
    per_row = np.array([-math.log(np.mean([draw[i] for chain in of_label for draw in chain])) for i in range(6)])
    for slice_bytes in (1 << 20, 1):
        monkeypatch.setattr("patrac_native.diagnostics._arrays.SLICE_BYTES", slice_bytes)
        for values, is_logits in ((p, False), (logits, True)):
            # Sums of at most 8 terms; a log loses eps absolutely where it is near zero.
            np.testing.assert_allclose(
                dg.class_nll(values, y, logits=is_logits, per_draw=True), per_draw, rtol=32 * EPS, atol=32 * EPS
            )
            np.testing.assert_allclose(
                dg.class_nlpd(values, y, logits=is_logits, per_row=True), per_row, rtol=32 * EPS, atol=32 * EPS
            )
            assert dg.class_nll(values, y, logits=is_logits) == pytest.approx(per_draw.mean(), rel=32 * EPS)
            assert dg.class_nlpd(values, y, logits=is_logits) == pytest.approx(per_row.mean(), rel=32 * EPS)


def test_logits_survive_where_probabilities_underflow() -> None:
    logits = np.array([0.0, 2000.0]).reshape(1, 1, 1, 2)
    assert dg.class_nll(logits, [0], logits=True) == 2000.0
    assert dg.class_nll(np.array([0.0, 1.0]).reshape(1, 1, 1, 2), [0]) == math.inf
    # Half of the draws give probability 1, half 0: the mean is 1/2.
    p = np.array([[0.0, 1.0], [1.0, 0.0]]).reshape(1, 2, 1, 2)
    assert dg.class_nlpd(p, [0]) == pytest.approx(math.log(2), rel=4 * EPS)


def test_bernoulli_is_two_columns() -> None:
    rng = np.random.default_rng(18)
    logit = rng.standard_normal((2, 3, 5, 1))
    p = 1 / (1 + np.exp(-logit))
    two = np.concatenate([1 - p, p], axis=3)
    y = np.array([0, 1, 1, 0, 1])
    for score in (dg.class_nll, dg.class_nlpd, dg.brier, dg.accuracy, dg.ece):
        assert score(p, y) == score(two, y)
    assert dg.class_nll(logit, y, logits=True) == pytest.approx(dg.class_nll(two, y), rel=32 * EPS)
    assert dg.class_nll(np.log(two), y, logits=True) == pytest.approx(dg.class_nll(two, y), rel=32 * EPS)
    np.testing.assert_array_equal(dg.entropy_decomposition(p).total, dg.entropy_decomposition(two).total)
    assert dg.accuracy(p, y[:, None]) == dg.accuracy(p, y)


def test_brier_accuracy_and_ece_by_hand() -> None:
    # Means over two draws: rows (0.7, 0.3), (0.4, 0.6), (0.9, 0.1), (0.7, 0.3).
    first = np.array([[0.8, 0.2], [0.5, 0.5], [1.0, 0.0], [0.8, 0.2]])
    second = np.array([[0.6, 0.4], [0.3, 0.7], [0.8, 0.2], [0.6, 0.4]])
    p = np.stack([first, second])[None]
    y = np.array([0, 0, 0, 1])
    assert dg.accuracy(p, y) == 0.5
    assert dg.brier(p, y) == pytest.approx((2 * 0.09 + 2 * 0.36 + 2 * 0.01 + 2 * 0.49) / 4, rel=8 * EPS)
    # Four bins of width 1/4: (0.5, 0.75] holds 0.7 (right), 0.6 (wrong), 0.7 (wrong); (0.75, 1] holds 0.9 (right).
    bins = dg.calibration_bins(p, y, n_bins=4)
    assert bins.n_rows.tolist() == [0, 0, 3, 1]
    assert np.isnan(bins.accuracy[:2]).all() and np.isnan(bins.confidence[:2]).all()
    np.testing.assert_allclose(bins.accuracy[2:], [1 / 3, 1.0], rtol=8 * EPS)
    np.testing.assert_allclose(bins.confidence[2:], [2 / 3, 0.9], rtol=8 * EPS)
    assert dg.ece(p, y, n_bins=4) == pytest.approx(3 / 4 * (1 / 3) + 1 / 4 * 0.1, rel=16 * EPS)
    # A bin is closed on the right: confidence 1/2 belongs to the lower of two bins.
    half = np.full((1, 1, 2, 2), 0.5)
    assert dg.calibration_bins(half, [0, 1], n_bins=2).n_rows.tolist() == [2, 0]


def test_ece_of_calibrated_forecasts_is_small_and_of_sure_ones_is_not() -> None:
    rng = np.random.default_rng(19)
    n = 4000
    q = rng.uniform(0.5, 1.0, n)
    y = (rng.uniform(size=n) < q).astype(int)
    p = np.stack([1 - q, q], axis=1)[None, None]
    # Each of 15 bins (8 in use) misses by at most about one standard error sqrt(1/4 / (n/8)), weights adding to one.
    assert dg.ece(p, y) < math.sqrt(0.25 * 8 / n)
    assert dg.ece(np.round(p), y) > 0.2  # accuracy 3/4 at confidence 1


def test_entropy_decomposition_identities() -> None:
    _, p, _ = class_case()
    split = dg.entropy_decomposition(p)
    mean = p.mean(axis=(0, 1))
    total = [-sum(q * math.log(q) for q in row) for row in mean]
    kl = (p * np.log(p / mean)).sum(axis=3).mean(axis=(0, 1))  # mutual information as the mean divergence
    np.testing.assert_allclose(split.total, total, rtol=16 * EPS)
    np.testing.assert_allclose(split.aleatoric + split.epistemic, split.total, rtol=4 * EPS)
    np.testing.assert_allclose(split.epistemic, kl, atol=32 * EPS)
    assert (split.total <= math.log(3)).all() and (split.epistemic > 0).all()
    same = dg.entropy_decomposition(p[:1, :1])  # one draw: nothing epistemic
    assert (same.epistemic == 0).all()
    sure = dg.entropy_decomposition(np.array([[1.0, 0.0], [0.0, 1.0]]).reshape(1, 2, 1, 2))
    assert sure.aleatoric.item() == 0.0 and sure.epistemic.item() == pytest.approx(math.log(2), rel=4 * EPS)


def test_float32_softmax_counts_as_probabilities() -> None:
    logits = np.random.default_rng(20).normal(0, 3, (1, 50, 20, 100)).astype(np.float32)
    p = np.exp(logits - logits.max(axis=3, keepdims=True))
    p /= p.sum(axis=3, keepdims=True)
    assert p.dtype == np.float32
    assert math.isfinite(dg.class_nll(p, np.zeros(20, int)))


def test_classification_messages() -> None:
    logits, p, y = class_case()
    calls: list[tuple[Any, str]] = [
        (lambda: dg.class_nll(logits, y), r"p must hold probabilities in \[0, 1\], got -"),
        (lambda: dg.brier(p * 0.5, y), "p must sum to one over its last axis, it is off by up to 0.5"),
        (lambda: dg.class_nll(p, y + 1), r"y must hold whole labels in 0..2, got 3 in row \d"),
        (lambda: dg.class_nll(p, y + 0.5), r"y must hold whole labels in 0..2"),
        (lambda: dg.accuracy(p, y[:3]), r"y must have shape \(6,\), one label for each row, got \(3,\)"),
        (lambda: dg.entropy_decomposition(p[0]), r"p must have shape \(chain, draw, n, m\), got \(4, 6, 3\)"),
        (lambda: dg.ece(p, y, 0), "n_bins must be at least 1; got 0"),
        (lambda: dg.class_nll(p * np.inf, y), r"p holds NaN or infinity, first at index \(0, 0, 0, 0\)"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()


# Leave-one-out


def test_against_the_exact_predictions_of_a_normal_mean() -> None:
    """y_r ~ N(mu, 1) with mu ~ N(0, 100): given all other rows, y_r is normal with a known mean and variance."""
    rng = np.random.default_rng(3)
    n = 40
    y = rng.normal(0.7, 1.0, n)
    precision = n + 0.01
    mu = rng.normal(y.sum() / precision, precision**-0.5, (4, 1000))
    found = dg.leave_one_out(norm.logpdf(y, mu[..., None], 1.0))
    others = precision - 1
    exact = norm.logpdf(y, (y.sum() - y) / others, np.sqrt(1 + 1 / others))
    # The log density of a row changes by |y - mean| for each unit of mu, whose standard deviation is precision^-0.5, so
    # a mean over 4,000 draws has about this standard error; reweighting at most doubles it here. Five of them.
    error = 2 * np.abs(y - y.mean()) * precision**-0.5 / np.sqrt(4000)
    assert (np.abs(found.elpd_rows - exact) <= 5 * error + 1e-3).all()
    assert found.elpd == pytest.approx(found.elpd_rows.sum())
    np.testing.assert_allclose(found.weights.sum(axis=0), 1.0, rtol=1e-12)
    # The reweighted mean of mu is that of the other rows, which in-sample predictions miss by (y - mean) / n.
    # Five standard errors of a mean of 4,000 draws of that standard deviation, doubled as above.
    tolerance = 5 * 2 * precision**-0.5 / np.sqrt(4000)
    np.testing.assert_allclose(mu.reshape(-1) @ found.weights, (y.sum() - y) / others, atol=tolerance)
    assert found.unreliable == 0


def test_a_row_that_rules_the_posterior_is_unreliable() -> None:
    rng = np.random.default_rng(4)
    mu = rng.normal(0.0, 1.0, (2, 500))
    found = dg.leave_one_out(np.stack([-8 * mu**2, np.zeros_like(mu)], axis=-1))
    assert found.unreliable == 1 and found.khat[0] > 0.7


@pytest.mark.parametrize(("shape", "message"), [((2, 50), "must have shape"), ((1, 20, 3), "has 20 draws in all")])
def test_bad_shapes_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dg.leave_one_out(np.zeros(shape))


def test_ties_that_leave_no_tail_are_unreliable() -> None:
    """Chains that hardly move repeat values; the fit of the tail is then NaN, and the plain ratios are the weights."""
    values = np.array([-0.6, -0.4, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4])
    repeated = np.repeat(values, [1, 3, 5, 18, 3, 2, 2, 17, 9])
    found = dg.leave_one_out(repeated.reshape(2, 30, 1))
    ratios = np.exp(-repeated)
    np.testing.assert_allclose(found.weights[:, 0], ratios / ratios.sum(), rtol=1e-12)
    assert found.unreliable == 1 and np.isfinite(found.elpd_rows).all()
