"""Steps with rounded gradients: exact rank tests pass if both ends of a step round, and fail if only one does.

A step reads its gradient as a vector field alone. With a rounded gradient ĝ in place of g, in the proposal and in the
acceptance ratio, it leaves the same posterior invariant, however coarse ĝ is, as long as l is exact and ĝ is one
function of theta (docs/gpu.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from rank_test import LEVEL, Array, Chain, Problem, network, smallest_p
from test_calibration import TWO_ROWS, VAGUE, full, sampled
from test_rank import MGRAD_DELTA, PCNL_DELTA, PRIOR, THIN, gaussian
from twins import ONE_END_FAULTS, GradientRounding, PersistentTwin, Twin, rounded

import patrac_native as pn

KERNELS = ("pcnl", "mgrad", "persistent mgrad")
# Those of bfloat16 and TF32.
FORMATS = (8, 11)
REPLICATES, BLOCK_STATES = 600, 8


def p_value(problem: Problem, kernel: str, chain: Chain, seed: int) -> float:
    """Smallest p-value; with persistent noise a state is a block of steps, and half as many are kept."""
    n_states = BLOCK_STATES if kernel == "persistent mgrad" else 2 * BLOCK_STATES
    return smallest_p(problem, chain, replicates=REPLICATES, n_states=n_states, seed=seed)


def test_rounding_is_that_of_the_formats() -> None:
    rng = np.random.default_rng(61)
    x = rng.choice([-1, 1], 10_000) * rng.uniform(1, 2, 10_000) * np.exp2(rng.integers(-6, 6, 10_000))
    np.testing.assert_array_equal(rounded(x, 11), x.astype(np.float16))
    np.testing.assert_array_equal(rounded(x, 24), x.astype(np.float32))
    # bfloat16 is the upper half of a float32.
    bits = x.astype(np.float32).view(np.uint32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    np.testing.assert_array_equal(rounded(x.astype(np.float32).astype(np.float64), 8), upper.view(np.float32))
    np.testing.assert_array_equal(rounded(np.array([5.0, -7.0, 2.5, 0.0, 15.0]), 2), [4.0, -8.0, 2.0, 0.0, 16.0])


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_with_rounded_gradients_pass(kernel: str, bits: int) -> None:
    """All parameters of a network with a hidden layer."""
    twins = {
        "pcnl": Twin("pcnl", PCNL_DELTA["gaussian"], THIN, bits=bits),
        "mgrad": Twin("mgrad", MGRAD_DELTA["gaussian"], THIN, bits=bits),
        "persistent mgrad": PersistentTwin(MGRAD_DELTA["gaussian"], 6, bits=bits),
    }
    assert p_value(gaussian("float64"), kernel, twins[kernel], 63) > LEVEL


@dataclass(frozen=True)
class OneTarget(Problem):
    """A linear model with one y, given which theta is drawn exactly; the argument of the rank test holds for each y.

    If each replicate had a y of its own, the rounding errors would cancel on average, and the test would have no power.
    """

    y: Array | None = None

    def simulate(self, count: int, seed: int, rng: np.random.Generator) -> tuple[Array, Array]:
        assert self.y is not None
        theta = pn.sample(self.posterior(self.y), pn.Exact(), chains=1, draws=count, seed=seed, progress=False).theta[0]
        return theta, np.broadcast_to(self.y, (count, *self.y.shape))


def far_from_the_prior(bits: int) -> OneTarget:
    """The last layer, with a y that is thousands of prior standard deviations of f away, under much noise.

    g is then nearly the same at all theta of the posterior, and so is its rounding error, which is of the size of the
    prior's gradient. That holds for 8 bits and, with y eight times as far away, for 11. On ordinary data the errors
    nearly cancel: with all parameters of the Gaussian problem and 600 replicates no fault was seen, not even with one
    bit. Power here, measured once over 5 seeds: the largest p-value of any fault was 6e-20.
    """
    X, net, variance = np.linspace(-2, 2, 8)[:, None], network([1, 3, 1], 1, 1.0), 1000.0
    y = net.predict(X) + 2.3 * 2**bits * variance / len(X)
    return OneTarget(net, pn.Out(3), PRIOR, pn.Gaussian(variance), X, np.array([[0.7]]), y=y)


def far_twin(kernel: str, bits: int, fault: str | None) -> Chain:
    """The twin for that problem."""
    if kernel == "persistent mgrad":
        return PersistentTwin(0.5, 4, bits=bits, fault=fault)
    return Twin(kernel, {"pcnl": 0.5, "mgrad": 1.0}[kernel], 1, bits=bits, fault=fault)


@pytest.mark.slow
@pytest.mark.parametrize("bits", FORMATS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_pass_where_rounding_errors_do_not_cancel(kernel: str, bits: int) -> None:
    assert p_value(far_from_the_prior(bits), kernel, far_twin(kernel, bits, None), 64) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("bits", FORMATS)
@pytest.mark.parametrize("fault", ONE_END_FAULTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_that_round_at_one_end_are_rejected(kernel: str, fault: str, bits: int) -> None:
    assert p_value(far_from_the_prior(bits), kernel, far_twin(kernel, bits, fault), 65) < LEVEL


def test_rescaling_keeps_one_function_only_in_units_free_of_the_variance() -> None:
    """A chain that samples the noise variance rescales the gradient that it keeps instead of evaluating it again.

    Rank tests did not see the fault: its errors have mean zero.
    """
    squares = np.random.default_rng(66).standard_normal(1000)  # sigma^2 g
    rounding, old, new = GradientRounding(8), 0.3, 0.2
    rescaled = rounding(squares / old, old) * (old / new)
    np.testing.assert_allclose(rescaled, rounding(squares / new, new), rtol=1e-15)
    # A gradient rounded at a variance depends on the variances that the chain had before.
    wrong, at_new = rounding(squares / old) * (old / new), rounding(squares / new)
    assert np.mean(np.abs(wrong / at_new - 1) > 2**-10) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
def test_steps_with_a_sampled_variance_pass(kernel: str) -> None:
    """Two rows, so that the variance moves by orders of magnitude; the rounded gradient is rescaled to each."""
    problem = sampled(replace(full("float64"), X=TWO_ROWS), VAGUE, by_twin=True)
    twin = Twin(kernel, {"pcnl": 0.05, "mgrad": 0.1}[kernel], THIN, noise=VAGUE, bits=2)
    assert p_value(problem, kernel, twin, 67) > LEVEL
