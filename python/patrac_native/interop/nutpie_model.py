"""A density as a model of nutpie, whose chains call it from threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine.density import Density
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.extras import import_extra

Evaluate = Callable[..., tuple[float, FloatArray]]


def to_nutpie(density: Density) -> Any:
    """Return a posterior as a compiled model for `nutpie.sample`, with theta and, if they are sampled, variances."""
    if not density.spec.kind.endswith("posterior"):
        raise ValueError(f"density must be one of 'posterior', 'collapsed_posterior'; got {density.spec.kind!r}.")
    compiled_pyfunc = import_extra("nutpie.compiled_pyfunc", "nutpie", "to_nutpie")

    def make_evaluate() -> Evaluate:
        point = np.empty((1, density.dim), density.dtype)  # one for each chain, which calls from one thread

        def evaluate(x: FloatArray, **_: Any) -> tuple[float, FloatArray]:
            point[0] = x
            values, gradients = density.core.value_and_grad(point, 1)  # without the GIL
            return float(values[0]), gradients[0].astype(np.float64)

        return evaluate

    def variables_at(point: FloatArray, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        theta = density.complete(point, rng) if density.core.is_collapsed else density.theta(point)
        variance = density.variance(point)
        return {"theta": theta, "variance": variance} if variance.size else {"theta": theta}

    def make_expand(*seeds: int) -> Callable[..., dict[str, npt.NDArray[Any]]]:
        rng = np.random.default_rng(seeds)  # of a chain
        return lambda x, **_: variables_at(np.asarray(x), rng)

    examples = variables_at(density.start, np.random.default_rng(0))

    def make_start(seed: int) -> FloatArray:
        return density.start + density.spread * np.random.default_rng(seed).normal(size=density.dim)

    return compiled_pyfunc.from_pyfunc(
        ndim=density.dim,
        make_logp_fn=make_evaluate,
        make_expand_fn=make_expand,
        make_initial_point_fn=make_start,
        expanded_dtypes=[example.dtype for example in examples.values()],
        expanded_shapes=[example.shape for example in examples.values()],
        expanded_names=list(examples),
    )
