"""The checks that `gpu.py` makes before it times: noise, log-likelihoods and gradients, and first steps of chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from cases import Case

import patrac_native as pn
from patrac_native.engine import Purpose, default_simd_level, device_normals, standard_normals

# Maximum errors relative to the CPU in float64: of a gradient relative to its norm, and of l relative to l.
MAX_ERROR = {"float32": 1e-5, "float64": 1e-11}
POINTS = 3
# Bounds of the change of a gradient by coarse factors, relative to its norm. Rounding changes the gradient of a row by
# about 2^-9.5. Over many rows these changes cancel where the gradients do not: with the 50,000 rows of random bytes the
# change is 2^-12.6 to 2^-12.3 (in NumPy). Exact gradients have errors below 2^-16.
COARSE_CHANGE = (2.0**-14, 2.0**-6)
# JAX may compute products of float32 in TF32, of 10 bits.
MAX_PEER_ERROR = 2.0**-7


def check_normals(device: str) -> int:
    """Compare the device's normals with the CPU's, bit by bit; return the number of normals compared."""
    compared = 0
    for dtype in ("float32", "float64"):
        for seed, chain, step in ((0, 0, 0), (1, 4095, 17), (2**40 + 9, 2, 2**63), (2**64 - 1, 7, 2**32 + 5)):
            where: dict[str, Any] = {"seed": seed, "chain": chain, "step": step, "purpose": Purpose.proposal}
            count = 2**16 + 3
            ours = device_normals[dtype](**where, device=device, count=count)
            expected = standard_normals[dtype](**where, steps=1, count=count, level=default_simd_level())[0]
            if not np.array_equal(ours, expected):
                raise AssertionError(f"normals of {dtype}, seed {seed}, step {step}: the device's are not the CPU's")
            compared += count
    return compared


def check_gradients(case: Case, reference: pn.Posterior, device: str) -> dict[str, float]:
    """Compare l and g of a case on the device with `reference`, the same posterior in float64, on the CPU.

    The result holds the largest error of l relative to l, and of g relative to its norm.
    """
    post, theta = case.post, points(case)
    value, gradient = post.sampled.compiled.on_device(device).log_likelihood_and_grad(theta)
    expected_value, expected = reference.log_likelihood_and_grad(theta.astype(np.float64))
    error = np.linalg.norm(gradient - expected, axis=1) / np.linalg.norm(expected, axis=1)
    found = {
        "log_likelihood": float(np.abs(value / expected_value - 1).max()),
        "gradient": float(error.max()),
    }
    allowed = MAX_ERROR[post.network.dtype.name]
    if not max(found.values()) <= allowed:
        raise AssertionError(f"{case.key}: errors {found} on {device}, more than {allowed:g}")
    return found


def points(case: Case) -> npt.NDArray[Any]:
    """Return a few points near the start, (POINTS, K)."""
    rng = np.random.default_rng(2)
    return (case.start * (1 + 0.05 * rng.standard_normal((POINTS, case.post.dim)))).astype(case.post.network.dtype)


def check_coarse(case: Case, device: str) -> float:
    """Compare the coarse gradient with the exact one, and l bit by bit; return the largest change of the gradient.

    The points are evaluated one by one, as the steps of one chain are.
    """
    model, changes = case.post.sampled.compiled.on_device(device), []
    for theta in points(case):
        value, exact = model.log_likelihood_and_grad(theta[None])
        same, coarse = model.log_likelihood_and_grad(theta[None], coarse=True)
        if not np.array_equal(value, same):
            raise AssertionError(f"{case.key}: l with a coarse gradient is {same}, not {value}")
        changes.append(float(np.linalg.norm(coarse - exact) / np.linalg.norm(exact)))
    least, most = COARSE_CHANGE
    if not least <= min(changes) <= max(changes) <= most:
        raise AssertionError(f"{case.key}: coarse gradients change by {changes}, not by {least:.1e} to {most:.1e}")
    return max(changes)


def check_peer(case: Case, value_and_grad: Callable[[npt.NDArray[Any]], tuple[Any, Any]]) -> float:
    """Compare l and g of a peer, a function of theta, with the CPU's; return the largest error of g."""
    errors = []
    for theta in points(case):
        (value, gradient), (other, change) = case.post.log_likelihood_and_grad(theta), value_and_grad(theta)
        errors.append(float(np.linalg.norm(change - gradient) / np.linalg.norm(gradient)))
        if not max(abs(other / value - 1), errors[-1]) <= MAX_PEER_ERROR:
            raise AssertionError(f"{case.key}: l of the peer is {other}, not {value}; its g is off by {errors[-1]:.1e}")
    return max(errors)


def check_chains(case: Case, device: str) -> float:
    """Compare the first steps of chains with the CPU's, which must accept the same proposals; return the error."""
    found = [
        pn.sample(
            case.post,
            pn.PCNL(case.delta),
            chains=4,
            draws=5,
            warmup=None,
            init=np.tile(case.start, (4, 1)),
            seed=3,
            device=where,
            progress=False,
        )
        for where in (device, "cpu")
    ]
    moves = [draws.stats["acceptance_rate"] for draws in found]
    error = float(np.abs(found[0].theta - found[1].theta).max() / np.abs(found[1].theta).max())
    allowed = {"float32": 1e-4, "float64": 1e-9}[case.post.network.dtype.name]
    if not (np.array_equal(*moves) and error <= allowed):
        raise AssertionError(f"{case.key}: chains on {device} leave the CPU's, by {error:.1e} of the largest entry")
    return error
