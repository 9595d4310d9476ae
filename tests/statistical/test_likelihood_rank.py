"""Rank tests of the likelihoods whose noise depends on the outputs: targets of the right law, and of wrong ones.

The targets come from `Likelihood.sample`, the chains from the compiled density; the two are written independently. A
twin draws its targets from a law that is wrong by one factor, as a density with that fault would be right for.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import LEVEL, Problem, native_chain, network, smallest_p

import patrac_native as pn

PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)
# Acceptance rates of 0.2 (Poisson) to 0.9.
CHAIN = native_chain(pn.MGrad(0.05), 3)


class SquaredScale(pn.HeteroscedasticGaussian):
    """The log-variance taken for the logarithm of the standard deviation."""

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Draw noise with the standard deviation exp(s)."""
        outputs = np.asarray(f, dtype=np.float64)
        t = outputs.shape[-1] // 2
        return outputs[..., :t] + np.exp(outputs[..., t:]) * rng.standard_normal(outputs[..., :t].shape)


def heteroscedastic(architecture: pn.Architecture, likelihood: pn.Likelihood, dtype: str) -> Problem:
    """Two targets with a mean and a log-variance each, on 1-4-4, 8 rows."""
    X, point = np.linspace(-2, 2, 8)[:, None], np.array([[0.7]])
    return Problem(network((1, 4, 4), 1, 0.4), architecture, PRIOR, likelihood, X, point, dtype)


class SizeForDispersion(pn.NegativeBinomial):
    """The dispersion taken for its inverse."""

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw counts of variance mu + mu^2 / dispersion."""
        return pn.NegativeBinomial(1 / np.asarray(self.dispersion)).sample(f, rng)


class Overdispersed(pn.Poisson):
    """Counts that vary more than their mean."""

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw counts of variance mu + mu^2."""
        return pn.NegativeBinomial(1.0).sample(f, rng)


def counts(architecture: pn.Architecture, likelihood: pn.Likelihood, dtype: str) -> Problem:
    """Two counts in a row, on 1-4-2, 8 rows of unequal exposure."""
    X, point = np.linspace(-2, 2, 8)[:, None], np.array([[0.7]])
    offset = np.linspace(-1, 2, 8)
    return Problem(network((1, 4, 2), 1, 0.4), architecture, PRIOR, likelihood, X, point, dtype, offset=offset)


RIGHT = {
    "poisson full": counts(pn.Full(), pn.Poisson(), "float32"),
    "poisson mix": counts(pn.Mix(2), pn.Poisson(), "float64"),
    "negative binomial full": counts(pn.Full(), pn.NegativeBinomial([0.3, 2.0]), "float32"),
    "negative binomial sep": counts(pn.Sep(2), pn.NegativeBinomial(0.5), "float64"),
    "heteroscedastic full": heteroscedastic(pn.Full(), pn.HeteroscedasticGaussian(), "float32"),
    "heteroscedastic mix": heteroscedastic(pn.Mix(2), pn.HeteroscedasticGaussian(), "float64"),
    "heteroscedastic sep": heteroscedastic(pn.Sep(2), pn.HeteroscedasticGaussian(), "float32"),
    "heteroscedastic out": heteroscedastic(pn.Out(3), pn.HeteroscedasticGaussian(), "float64"),
}
WRONG = {
    "heteroscedastic": dataclasses.replace(RIGHT["heteroscedastic full"], likelihood=SquaredScale()),
    "poisson": dataclasses.replace(RIGHT["poisson full"], likelihood=Overdispersed()),
    "negative binomial": dataclasses.replace(RIGHT["negative binomial full"], likelihood=SizeForDispersion([0.3, 2.0])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_compiled_likelihoods_pass(name: str) -> None:
    assert smallest_p(RIGHT[name], CHAIN, seed=31) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_targets_of_another_law_are_rejected(name: str) -> None:
    # Power, measured once over 3 seeds: the largest p-value was 7e-57.
    assert smallest_p(WRONG[name], CHAIN, replicates=500, seed=32) < LEVEL
