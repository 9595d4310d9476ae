"""A step of a chain, replayed in NumPy from its noise with the formulas of reference.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import noise_reference
import patrac_native as pn
import reference
from patrac_native.engine import _core

Array = npt.NDArray[np.float64]


def proposal_normals(post: pn.Posterior, seed: int, chain: int, step: int, count: int) -> Array:
    """Return the normals of the proposal of one step, in float64."""
    where: dict[str, Any] = {"seed": seed, "chain": chain, "step": step, "level": post.network.level}
    normals = _core.standard_normals64(**where, purpose=_core.Purpose.proposal, steps=1, count=count)
    return np.asarray(normals[0])


def accepts(seed: int, chain: int, step: int, log_ratio: float) -> bool:
    """Return the decision of one step."""
    return math.log(noise_reference.acceptance_uniform(seed, chain, step)) < log_ratio


def proposed(
    kernel: pn.Kernel, u: Array, C: Array, w: Array, value_and_slope: Callable[[Array], tuple[Any, Any]]
) -> tuple[Array, float, float]:
    """Return v, l(v) and the log acceptance ratio of PCN, PCNL or MGrad from u under the prior N(0, C)."""
    step, (l_u, g_u) = kernel.step_size or 0.0, value_and_slope(u)
    if kernel.name == "pcn":
        v = reference.pcn_proposal(u, C, w, step)
    else:
        v = (reference.pcnl_proposal if kernel.name == "pcnl" else reference.mgrad_proposal)(u, g_u, C, w, step)
    l_v, g_v = value_and_slope(v)
    log_ratio = l_v - l_u
    if kernel.name == "pcnl":
        log_ratio = reference.pcnl_rho(l_u, g_u, u, v, C, step) - reference.pcnl_rho(l_v, g_v, v, u, C, step)
    elif kernel.name == "mgrad":
        log_ratio += reference.mgrad_h(u, v, g_v, C, step) - reference.mgrad_h(v, u, g_u, C, step)
    return v, float(l_v), float(log_ratio)
