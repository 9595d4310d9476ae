"""What must agree before anything is timed: log-likelihoods, gradients, acceptance rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import peers
from cases import Case
from harness import Side, steps_for

RUNS = 8
RUN_SECONDS = 0.3  # of one run of the slowest side


def verify(case: Case, targets: Mapping[str, peers.Target], sides: Mapping[str, Side]) -> None:
    """Raise unless all sides compute the same thing."""
    verify_gradients(case, targets)
    verify_acceptance(sides)


def tolerances(case: Case) -> tuple[float, float]:
    """Relative errors that rounding allows: of the log-likelihood, and of the gradient's largest entry.

    Each sum of N products rounds N times by half an ulp, all one way in the worst case, forward and back and once more
    in the peer: 3 x ulp/2 x the widths of all layers. At a mode the gradient is what n terms of both signs leave, about
    their sum over sqrt(n).
    """
    rounding = 3 * float(np.finfo(case.post.network.dtype).eps) / 2 * sum(case.post.network.net.layer_sizes[:-1])
    # The quadratic form of `last_layer` is as exact as the float64 eigenvectors, whatever the type: nothing to add.
    return rounding, rounding * max(1.0, float(np.sqrt(len(case.post.data.X))) / 10)


def verify_gradients(case: Case, targets: Mapping[str, peers.Target]) -> None:
    """Compare log-likelihood and gradient at three points about the start."""
    post = case.post
    of_value, of_gradient = tolerances(case)
    rng = np.random.default_rng(2)
    spread = 0.1 * np.sqrt(min(case.delta, 1.0) * post.prior_variance) * rng.standard_normal((3, post.dim))
    for theta in (case.start + spread).astype(post.network.dtype):
        value: Any
        value, gradient = post.log_likelihood_and_grad(theta)
        for side, target in targets.items():
            z = target.from_theta(theta.astype(np.float64)).astype(post.network.dtype)
            other_value, g_z = target.value_and_grad(z)
            other = target.gradient_in_theta(np.asarray(g_z, np.float64))
            if not abs(value - float(other_value)) <= of_value * abs(value):
                raise AssertionError(f"{case.key}: log-likelihoods differ: native {value}, {side} {other_value}")
            difference = float(np.abs(gradient - other).max() / np.abs(gradient).max())
            if not difference <= of_gradient:
                raise AssertionError(
                    f"{case.key}: gradients of native and {side} differ by {difference:.1e} of the largest entry"
                )


def verify_acceptance(sides: Mapping[str, Side]) -> None:
    """Compare acceptance rates of eight runs of each side with the first's, over the same number of steps.

    |t| > 6 on 14 degrees of freedom has probability 3e-5. Where all runs of both sides agree to the last move (moves
    are always accepted), there is no error to compare with, and the rates must be equal.
    """
    first, *others = sides
    chunk = max(side.chunk for side in sides.values())
    steps = -(-min(steps_for(side, RUN_SECONDS) for side in sides.values()) // chunk) * chunk
    rates = {name: np.array([side.run(steps, seed) for seed in range(RUNS)]) for name, side in sides.items()}
    for name in others:
        difference = abs(rates[name].mean() - rates[first].mean())
        error = np.sqrt((rates[name].var(ddof=1) + rates[first].var(ddof=1)) / RUNS)
        if difference > 6 * error:
            raise AssertionError(
                f"acceptance rates differ: {name} {rates[name].mean():.3f}, {first} {rates[first].mean():.3f}"
            )
