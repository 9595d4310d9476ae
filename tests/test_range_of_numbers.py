"""Numbers at the ends of float64's range are refused where they are given, not where they first spoil a step."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import patrac_native as pn
import problems

RNG = np.random.default_rng(3)
NET = problems.random_network(RNG, (3, 10, 10, 1))
X, Y = RNG.normal(size=(50, 3)), RNG.normal(size=50)


def posterior(prior: pn.Prior, **settings: object) -> pn.Posterior:
    return pn.Posterior(NET, pn.Full(), prior, pn.Gaussian(1.0), X, Y, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "prior",
    [
        pn.TraceClassPrior(200.0, 1.0, 1.0),  # 100^-200 = 0
        pn.TraceClassPrior(1.5, 1e-307, 1e-307),  # subnormal: 1 / variance is infinite
        pn.TraceClassPrior(1.5, 1e-323, 1.0),
    ],
    ids=str,
)
def test_prior_variances_that_underflow(prior: pn.Prior, dtype: str) -> None:
    message = r"prior: the variances of theta must be between 2.2e-308 and 1.8e\+308.* at entry \d+; choose other"
    with pytest.raises(ValueError, match=message):
        posterior(prior, dtype=dtype)
    with pytest.raises(ValueError, match=r"prior_variance must be between 2.2e-308 and"):
        pn.Target(lambda theta: (0.0, -theta), [1.0, 1e-310])


@pytest.mark.parametrize("kernel", [pn.PCN(0.1), pn.MGrad(0.1), pn.MGrad(0.1, collapse=True)])
def test_small_prior_variances_work(kernel: pn.Kernel) -> None:
    """100^-140 = 1e-280: such parameters stand still."""
    draws = pn.sample(
        posterior(pn.TraceClassPrior(140.0, 1.0, 1.0), dtype="float64"),
        kernel,
        chains=1,
        draws=100,
        warmup=50,
        seed=1,
        progress=False,
    )
    assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_prior"]).all()


def test_a_scale_whose_reciprocal_float32_does_not_hold() -> None:
    """The engine multiplies by 1 / (df scale^2), of at most 3.4e38."""
    for reciprocal, fits in ((3.3e38, True), (3.5e38, False)):
        likelihood = pn.StudentT(4.0, (4.0 * reciprocal) ** -0.5)
        with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="scale of StudentT is beyond what"):
            pn.Posterior(NET, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), likelihood, X, Y, dtype="float32")


@pytest.mark.parametrize("likelihood", [pn.Gaussian(1.0), pn.Gaussian("sampled"), pn.StudentT(4.0)], ids=str)
def test_weights_whose_sum_overflows(likelihood: pn.Likelihood) -> None:
    with pytest.raises(ValueError, match=r"sample_weight sums to more than float64 holds \(1.8e\+308\).*nearer to 1"):
        pn.Posterior(
            NET,
            pn.Full(),
            pn.TraceClassPrior(1.5, 1.0, 1.0),
            likelihood,
            X,
            Y,
            dtype="float64",
            sample_weight=np.full(50, 1e307),
        )


def test_weights_whose_sum_overflows_are_blamed_by_estimators() -> None:
    with pytest.raises(ValueError, match=r"^sample_weight sums to more than float64 holds .*nearer to 1"):
        pn.PatracRegressor().fit(X, Y, sample_weight=np.full(50, 1e307))
