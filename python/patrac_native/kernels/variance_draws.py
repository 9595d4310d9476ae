"""How often the sampled noise variances are drawn: a number of steps that follows from counts of operations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts

# Draws of the variances may take this share of the steps' operations.
DRAW_SHARE = 0.15
# Operations in multiply-adds: an activation with its derivative; a normal with the algebra of its proposal; a draw from
# an inverse gamma distribution, which takes scalar logarithms; and of a chain on a quadratic log-likelihood, a step
# beside its coordinates, and what a new variance changes of a coordinate. The last three follow from times of Out(12)
# and Out(45), whose steps take so little that each of them counts.
_ACTIVATION, _COORDINATE, _INVERSE_GAMMA, _QUADRATIC_STEP, _RESCALED_COORDINATE = 30.0, 25.0, 1500.0, 300.0, 70.0


def variance_every(facts: ModelFacts, plan: Sequence[dict[str, int]], n_rows: int, kernel: Kernel) -> int:
    """Return the number of steps from one draw of the noise variances to the next.

    It is the smallest number with which the draws take at most 15% of the operations of the steps. A scan that draws
    them every so many steps leaves the posterior as invariant as one that draws them in every step. Where a draw only
    rescales the log-likelihood and its gradient, that is 1. Where output weights are integrated out, or each output has
    a variance of its own, a draw takes another evaluation, and so about 7 to 14 steps; where a step reads no data, the
    draw itself costs several steps, and so 20 to 30.
    """
    if kernel.is_independent:
        return 1
    assert facts.sampled_variances is not None
    n_variances = len(facts.sampled_variances)
    drawing = n_variances * _INVERSE_GAMMA
    if facts.reads_statistics(kernel.is_independent):
        rotated = kernel.is_rotation_invariant
        step = _QUADRATIC_STEP + facts.dim * (_COORDINATE + (2 if rotated else facts.dim))
        drawing += facts.dim * (_RESCALED_COORDINATE + (0 if rotated or n_variances == 1 else 2 * facts.dim))
    else:
        forward, reverse = _passes(plan, n_rows)
        evaluation = forward + (0.0 if kernel.gradients_per_step == 0 else reverse)
        if kernel.collapse:
            features = (facts.dim - facts.hidden_dim) / plan[-1]["nodes"]
            # The Gram matrix, another pass through the output layer, and the features' part of the reverse pass.
            evaluation += n_rows * features * (0.5 * features + 1 + features)
        step = evaluation + facts.dim * _COORDINATE
        if not facts.likelihood.is_conjugate:  # each row is read: a precision is drawn, or terms are evaluated
            drawing += n_rows * n_variances * _INVERSE_GAMMA + forward + evaluation
        elif kernel.collapse or n_variances > 1:
            drawing += evaluation + (forward if n_variances > 1 else 0.0)
        else:
            drawing += facts.dim
    return max(1, math.ceil(drawing / (DRAW_SHARE * step)))


def _passes(plan: Sequence[dict[str, int]], n_rows: int) -> tuple[float, float]:
    """Return the operations of a forward pass, and of a reverse pass with its gradient."""
    forward = reverse = 0.0
    for position, layer in enumerate(plan):
        is_output = position + 1 == len(plan)
        rows = layer["nodes"] if is_output else layer["varying"]
        forward += rows * (layer["varying_sources"] + layer["constant_sources"])
        forward += 0.0 if is_output else _ACTIVATION * rows
        reverse += rows * layer["varying_sources"] + layer["gradient_block"]
    return n_rows * forward, n_rows * reverse
