"""Rank tests of chains that sample the scales of the prior, for each family of kernels, and of broken twins."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from rank_test import LEVEL, Problem, native_blocks, native_chain, smallest_p
from test_calibration import PLAIN, SAMPLED, full, mix, out
from twins import SAME_WHITENED, WRONG_SHAPE, Twin

import patrac_native as pn

# With a = 1 scales vary by an order of magnitude, so that those of another step are far off.
SCALES = pn.SampledScales(a=1.0)


def with_scales(problem: Problem, scales: pn.SampledScales = SCALES) -> Problem:
    """The problem under its prior with sampled scales."""
    return dataclasses.replace(problem, prior=dataclasses.replace(problem.prior, scales=scales))


def gaussian_prior(dtype: str) -> Problem:
    """All parameters of 1-3-1 under GaussianPrior, each input's weights with a scale of their own."""
    return dataclasses.replace(full(dtype), prior=pn.GaussianPrior(1.0, 0.5, fan_in=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "mix"])
@pytest.mark.parametrize("kernel", SAMPLED)
def test_compiled_kernels_pass(kernel: str, name: str) -> None:
    """Scales drawn in every step; float64 and float32."""
    problem = with_scales(full("float64") if name == "full" else mix("float32"))
    assert smallest_p(problem, native_chain(SAMPLED[kernel], 3), seed=31) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mgrad", "collapsed mgrad"])
def test_scales_drawn_in_every_third_step_pass(kernel: str) -> None:
    chain = native_chain(SAMPLED[kernel], 3, scales_every=3)
    assert smallest_p(with_scales(full("float64")), chain, seed=32) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PLAIN)
def test_compiled_kernels_pass_on_sufficient_statistics(kernel: str) -> None:
    """Not in a whitened basis, which would be that of one prior covariance."""
    chosen = pn.MGrad(0.1) if kernel == "mgrad" else PLAIN[kernel]
    assert smallest_p(with_scales(out("float32")), native_chain(chosen, 3), replicates=500, seed=33) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
def test_persistent_steps_pass(collapse: bool) -> None:
    """The whitened momentum and the accept threshold stay as they are when the scales change."""
    kernel = pn.MGrad(0.3 if collapse else 0.05, collapse=collapse, persistence=0.9)
    chain = native_blocks(kernel, 6, scales_every=2)
    assert smallest_p(with_scales(full("float64")), chain, replicates=400, seed=34, n_states=8) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mgrad", "collapsed mgrad"])
def test_a_gaussian_prior_with_relevance_of_each_input_passes(kernel: str) -> None:
    problem = with_scales(gaussian_prior("float64"), pn.SampledScales(a=1.0, by_input=True))
    assert smallest_p(problem, native_chain(SAMPLED[kernel], 3), seed=35) > LEVEL


# Twins


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad", "elliptical slice"])
def test_right_twins_pass(kernel: str) -> None:
    step_size = {"pcnl": 0.03, "mgrad": 0.04, "elliptical slice": 0.0}[kernel]
    twin = Twin(kernel, step_size, 3, scales=True)
    assert smallest_p(with_scales(full("float64")), twin, replicates=250, seed=36) > LEVEL


@pytest.mark.slow
def test_the_right_collapsed_twin_passes() -> None:
    twin = Twin("mgrad", 0.3, 3, collapse=True, scales=True)
    assert smallest_p(with_scales(full("float64")), twin, replicates=250, seed=37) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "replicates"),
    [
        (Twin("mgrad", 0.04, 10, scales=True, fault=WRONG_SHAPE), 300),
        (Twin("mgrad", 0.3, 10, collapse=True, scales=True, fault=WRONG_SHAPE), 150),
        (Twin("pcnl", 0.03, 3, scales=True, fault=SAME_WHITENED), 300),
        (Twin("elliptical slice", 0.0, 3, scales=True, fault=SAME_WHITENED), 200),
    ],
    ids=lambda value: value.fault if isinstance(value, Twin) else "",
)
def test_broken_twins_are_rejected(twin: Twin, replicates: int) -> None:
    assert smallest_p(with_scales(full("float64")), twin, replicates=replicates, seed=38) < LEVEL


# Scales that move together with their parameters. Steps so small that theta stays leave chains that draw the scales
# given theta, move one of them with its parameters and forget them, which is reversible as the test asks for.

INTERWOVEN = pn.SampledScales(a=1.0, interweave=True)
RESTING = {"pcn": pn.PCN(1e-9), "mgrad": pn.MGrad(1e-18)}
NO_DATA = "moved without the likelihood"
NO_JACOBIAN = "moved with the prior of the scale, not of its logarithm"


@dataclasses.dataclass(frozen=True)
class RescalingTwin:
    """Such chains in NumPy, every third state kept; `fault` is None, NO_DATA or NO_JACOBIAN."""

    fault: str | None = None

    def __call__(self, post: pn.Posterior, theta: Any, states: int, rng: np.random.Generator) -> Any:
        groups, kept, theta = post.network.scales, [], theta.astype(np.float64)
        assert groups is not None
        a, own = groups.a, groups.group
        for _ in range(3 * states):
            rate = a + 0.5 * np.bincount(own, theta**2 / post.prior_variance)
            scale = rate / rng.gamma(a + 0.5 * np.bincount(own))
            g, step = rng.integers(len(scale)), 0.5 * rng.standard_normal()
            moved = np.where(own == g, np.exp(0.5 * step) * theta, theta)
            after, before = (float(post.log_likelihood(point, threads=1)) for point in (moved, theta))
            log_ratio = 0.0 if self.fault == NO_DATA else after - before
            shape = a + 1 if self.fault == NO_JACOBIAN else a
            log_ratio -= shape * step + a * np.expm1(-step) / scale[g]
            theta = moved if np.log(rng.random()) < log_ratio else theta
            kept.append(theta)
        return np.asarray(kept[2::3])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "mix", "out"])
@pytest.mark.parametrize("kernel", RESTING)
def test_interwoven_scales_pass(kernel: str, name: str) -> None:
    problem = {"full": full("float64"), "mix": mix("float32"), "out": out("float64")}[name]
    chain = native_chain(RESTING[kernel], 3)
    assert smallest_p(with_scales(problem, INTERWOVEN), chain, replicates=600, seed=39) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, NO_DATA, NO_JACOBIAN])
def test_twins_of_interwoven_scales(fault: str | None) -> None:
    p = smallest_p(with_scales(full("float64"), INTERWOVEN), RescalingTwin(fault), replicates=400, seed=40)
    assert (p > LEVEL) == (fault is None)
