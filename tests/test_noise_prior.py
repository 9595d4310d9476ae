"""The default prior of sampled noise variances, how often they are drawn, and noise that frozen nodes have fitted."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.network.network import TrainingHistory

FloatArray = npt.NDArray[np.float64]


class Case:
    """Data of 200 rows in given units, and a network on 2-5-m that fits them, with or without residuals of others."""

    def __init__(self, units: float = 1.0, m: int = 1, validation: FloatArray | None = None) -> None:
        rng = problems.rng_of("noise prior", m)
        plain = problems.random_network(rng, (2, 5, m))
        self.X = rng.normal(size=(200, 2))
        scale = units * np.arange(1.0, m + 1)
        self.y = scale * (plain.predict(self.X) + 0.3 * rng.normal(size=(200, m)))
        history = None
        if validation is not None:
            history = TrainingHistory(np.ones(1), 0, 1.0, 1.0, 2.0, "patience", validation_mse=validation)
        self.net = pn.Network(
            [plain.weights[0], plain.weights[1] * scale[:, None]], [plain.biases[0], plain.biases[1] * scale],
            history=history,
        )  # fmt: skip
        self.residuals = ((self.y - self.net.predict(self.X)) ** 2).mean(axis=0)
        self.prior = pn.TraceClassPrior(1.5, 4.0 * scale[-1] ** 2, 4.0 * scale[-1] ** 2)

    def posterior(self, likelihood: pn.Likelihood, architecture: Any = None) -> pn.Posterior:
        """Posterior, by default of the last layer alone."""
        chosen = pn.Out(5) if architecture is None else architecture
        return pn.Posterior(self.net, chosen, self.prior, likelihood, self.X, self.y, dtype="float64")


def run(post: pn.Posterior, **settings: Any) -> pn.Draws:
    """Independent draws, without the warnings that other tests are about."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return pn.sample(post, pn.Exact(), **{"chains": 4, "draws": 2000, "seed": 3, "progress": False} | settings)


# The prior


@pytest.mark.parametrize("known", [None, 2.0, 0.7])
@pytest.mark.parametrize("units", [1e-3, 1.0, 1e3])
def test_the_default_prior_moves_the_variance_of_200_rows_by_less_than_two_percent(
    units: float, known: float | None
) -> None:
    """Whatever the units, and though the guess is off by a factor: against a prior of no weight."""
    case = Case(units)
    if known is not None:
        case = Case(units, validation=known * case.residuals)
    of_default = run(case.posterior(pn.Gaussian("sampled"))).stats["variance"].mean()
    of_data = run(case.posterior(pn.Gaussian("sampled", a=1e-9, b=1e-9 * units**2))).stats["variance"].mean()
    assert abs(of_default / of_data - 1) < 0.02


@pytest.mark.parametrize("pooled", [False, True])
def test_residuals_of_unseen_rows_come_first(pooled: bool) -> None:
    unseen = np.array([0.5, 3.0])
    likelihood = pn.Gaussian("sampled", pooled=pooled)
    post = Case(m=2, validation=unseen).posterior(likelihood)
    assert post.sampled.law.source == "validation"
    assert post.likelihood == pn.Gaussian("sampled", a=2.0, b=1.75 if pooled else unseen, pooled=pooled)
    case = Case(m=2)
    post = case.posterior(likelihood)
    assert post.sampled.law.source == "training"
    assert isinstance(post.likelihood, pn.Gaussian)
    np.testing.assert_allclose(post.likelihood.b, case.residuals.mean() if pooled else case.residuals, rtol=1e-12)


def test_a_given_prior_is_kept_and_a_given_half_is_completed() -> None:
    case = Case(m=2, validation=np.array([0.5, 3.0]))
    given = pn.Gaussian("sampled", a=3.0, b=[1.0, 2.0])
    assert case.posterior(given).likelihood == given
    assert case.posterior(given).sampled.law.source == "given"
    # The mean of 1 / variance is a / b, 2 / guess.
    completed = case.posterior(pn.Gaussian("sampled", a=3.0)).likelihood
    assert completed == pn.Gaussian("sampled", a=3.0, b=[0.75, 4.5])
    assert case.posterior(pn.Gaussian("sampled", b=1.5)).likelihood == pn.Gaussian("sampled", a=2.0, b=1.5)


def test_a_network_that_fits_its_rows_exactly_still_has_a_prior() -> None:
    case = Case()
    post = pn.Posterior(
        case.net, pn.Out(5), case.prior, pn.Gaussian("sampled"), case.X, case.net.predict(case.X), dtype="float64"
    )
    assert np.isfinite(run(post, draws=20).stats["variance"]).all()


def test_where_the_prior_comes_from_is_said_and_recorded() -> None:
    unseen, own = Case(validation=np.array([0.1])), Case()
    with pytest.warns(UserWarning, match=r"rows of this posterior.*validation rows"):
        draws = pn.sample(own.posterior(pn.Gaussian("sampled")), draws=5, progress=False)
    assert draws.settings["noise_prior"] == "training"
    with warnings.catch_warnings(action="error"):
        draws = pn.sample(unseen.posterior(pn.Gaussian("sampled"), pn.Full()), draws=5, warmup=20, progress=False)
    assert draws.settings["noise_prior"] == "validation"
    assert "may be too low" in own.posterior(pn.Gaussian("sampled")).describe()
    assert "not trained on" in unseen.posterior(pn.Gaussian("sampled")).describe()
    assert "prior that was given" in own.posterior(pn.Gaussian("sampled", a=2.0, b=1.0)).describe()


def test_the_prior_is_in_the_file_of_the_draws(tmp_path: Path) -> None:
    draws = run(Case(m=2).posterior(pn.Gaussian("sampled")), draws=10)
    draws.save(tmp_path / "draws")
    loaded = pn.Draws.load(tmp_path / "draws")
    assert loaded.likelihood == draws.likelihood
    assert loaded.likelihood.variance_prior(2)[1].shape == (2,)
    np.testing.assert_array_equal(loaded.stats["variance"], draws.stats["variance"])
    X = draws.network.theta_map[:1].repeat(2)[None]
    np.testing.assert_array_equal(loaded.predictive(X, seed=1), draws.predictive(X, seed=1))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"b": [1.0, 2.0], "pooled": True}, "pooled"),
        ({"b": [1.0, -2.0]}, r"b must be positive and finite; got -2.0 for output 1"),
        ({"b": [[1.0]]}, r"b must be a number or have shape \(m,\)"),
    ],
)
def test_bad_priors_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        pn.Gaussian("sampled", **arguments)


def test_a_prior_for_another_number_of_outputs_is_refused() -> None:
    with pytest.raises(ValueError, match="b has 3 entries, but the network has 2 outputs"):
        Case(m=2).posterior(pn.Gaussian("sampled", b=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="pooled"):
        pn.Gaussian(1.0, pooled=True)


def test_predictions_use_the_variance_of_their_output() -> None:
    """Draws of y, and the distribution of each output, spread as the variances of that output say."""
    case = Case(m=2)
    draws = run(case.posterior(pn.Gaussian("sampled")), draws=500)
    X = case.X[:3]
    f, y = draws.predict(X), draws.predictive(X, seed=5)
    z = (y - f) / np.sqrt(draws.stats["variance"])[..., None, :]
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * z.size)
    total = f.var(axis=(0, 1)) + draws.stats["variance"].mean(axis=(0, 1))
    np.testing.assert_allclose(draws.distribution(X).sd(), np.sqrt(total), rtol=1e-10)
    rows = draws.log_likelihood_rows(case.X, case.y).sum(axis=-1)
    np.testing.assert_allclose(rows, draws.stats["log_likelihood"], rtol=1e-9)
    assert draws[:, 4::5].stats["variance"].shape == (4, 100, 2)


# Noise that frozen nodes have fitted


def test_noise_far_below_that_of_unseen_rows_is_said_where_nodes_are_frozen() -> None:
    high = Case(m=2)
    high = Case(m=2, validation=high.residuals * [1.0, 2.0])
    with pytest.warns(UserWarning, match=r"variance of output 1 is .*0\.5.*Out\(5\) keeps fixed.*Full\(\).*l2"):
        pn.sample(high.posterior(pn.Gaussian("sampled")), draws=300, seed=1, progress=False)
    with warnings.catch_warnings(action="error"):
        pn.sample(high.posterior(pn.Gaussian("sampled"), pn.Full()), draws=50, warmup=500, seed=1, progress=False)
        fair = Case(m=2, validation=high.residuals * 1.1)
        pn.sample(fair.posterior(pn.Gaussian("sampled")), draws=300, seed=1, progress=False)


# How often the variances are drawn


@pytest.mark.parametrize(
    ("architecture", "m", "kernel", "least", "most"),
    [
        (pn.Full(), 1, pn.MGrad(0.1), 1, 1),
        (pn.Full(), 2, pn.MGrad(0.1), 9, 13),
        (pn.Full(), 2, pn.PCN(0.1), 12, 14),
        (pn.Full(), 1, pn.MGrad(0.1, collapse=True), 6, 7),
        (pn.Mix(2), 2, pn.MGrad(0.1, collapse=True), 8, 13),
        (pn.Out(5), 1, pn.Exact(), 1, 1),
        (pn.Out(5), 1, pn.PCNL(0.1), 7, 30),
    ],
)
def test_the_number_of_steps_between_draws_follows_from_operation_counts(
    architecture: pn.Architecture, m: int, kernel: pn.Kernel, least: int, most: int
) -> None:
    post = Case(m=m).posterior(pn.Gaussian("sampled", a=2.0, b=1.0), architecture)
    draws = pn.sample(post, kernel, chains=1, draws=40, warmup=None, progress=False)
    every = draws.settings["variance_every"]
    assert least <= every <= most
    variance = draws.stats["variance"].reshape(40, -1)
    changed = np.flatnonzero((np.diff(variance, axis=0) != 0).any(axis=1)) + 1
    np.testing.assert_array_equal(changed, np.arange(2 * every - 1 if every == 1 else every - 1, 40, every))
    given = pn.sample(post, kernel, chains=1, draws=4, warmup=None, variance_every=3, progress=False)
    assert given.settings["variance_every"] == 3


def test_bad_intervals_are_refused() -> None:
    post = Case().posterior(pn.Gaussian(1.0))
    with pytest.raises(ValueError, match="variance_every"):
        pn.sample(post, draws=5, variance_every=2, progress=False)
    for bad in (0, "often"):
        with pytest.raises(ValueError, match="variance_every"):
            pn.sample(Case().posterior(pn.Gaussian("sampled")), draws=5, variance_every=bad, progress=False)
    assert "variance_every" not in pn.sample(post, draws=5, progress=False).settings
    assert dataclasses.replace(pn.sampling.settings.RunSettings(), variance_every=4).variance_every == 4
