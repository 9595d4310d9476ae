"""Runs a case and takes the digests of its draws."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from golden_cases import SHORT
from golden_problems import Case

import patrac_native as pn

FILE = Path(__file__).with_name("digests.json")
# The level under which cases of an emulated device are stored: their code is compiled once.
ANY_LEVEL = "emulated"
# Of the 64 hexadecimal digits of SHA-256; 64 bits tell arrays apart that differ by accident.
DIGITS = 16
# What every run is asked for unless its case says otherwise; the warm-up is `SHORT`, or 40 steps without a step size.
DEFAULTS: dict[str, Any] = {"chains": 2, "draws": 12, "thin": 3, "seed": 7, "threads": 1, "device": "cpu"}
# Digests of their own; the other statistics share one.
APART = ("log_likelihood", "step_size", "variance")
# Without a digest: a number of steps times a constant of the kernel.
COUNTED = ("gradients",)


def levels(case: Case) -> list[str]:
    """The levels of the processor and the build, or one name for what does not depend on the level."""
    return [ANY_LEVEL] if case.is_emulated else pn.build_info()["SIMD levels"].split(", ")


def run(case: Case, level: str) -> list[pn.Draws]:
    """Sample what the case asks for."""
    by_argument = None if case.is_emulated or case.by_environment else level
    before = os.environ.get("PATRAC_SIMD")
    if case.by_environment:
        os.environ["PATRAC_SIMD"] = level
    try:
        posts = [problem.posterior(by_argument) for problem in case.problems]
        default_warmup = SHORT if case.has_step_size else 40
        arguments = DEFAULTS | {"warmup": default_warmup} | case.arguments | {"progress": False}
        if any(problem.likelihood == "sampled" for problem in case.problems):
            arguments["variance_every"] = 1
        if case.start_scale is not None:
            steps = np.arange(arguments["chains"])[:, None] + np.arange(posts[0].dim) % 5
            arguments["init"] = case.start_scale * posts[0].theta_map + steps / 64
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            if len(posts) > 1:
                return pn.sample_many(posts, case.kernel, **arguments)
            return [pn.sample(posts[0], case.kernel, **arguments)]
    finally:
        if case.by_environment:
            if before is None:
                del os.environ["PATRAC_SIMD"]
            else:
                os.environ["PATRAC_SIMD"] = before


def digests(case: Case, level: str) -> dict[str, str]:
    """Run a case: the digest of each kind of number, and the last log-likelihood of the first chain in words.

    theta, log_likelihood, step_size and, where it is sampled, variance; "other statistics"; f, the predictions at the
    first rows; and "warm-up steps", which is how many were run.
    """
    everything = run(case, level)
    stats = [draws.stats for draws in everything]
    others = sorted(set(stats[0]) - {*APART, *COUNTED})
    X = np.linspace(-1.0, 1.0, 5 * case.problems[0].sizes[0]).reshape(5, -1)
    found = {"theta": digest(draws.theta for draws in everything)}
    found |= {name: digest(of[name] for of in stats) for name in APART if name in stats[0]}
    found["other statistics"] = digest(of[name] for of in stats for name in others)
    if not case.is_emulated:  # predictions are the CPU's work, at its level
        found["f"] = digest(draws.predict(X, threads=1) for draws in everything)
    found["warm-up steps"] = ", ".join(str(draws.settings["warmup_steps"]) for draws in everything)
    found["last log-likelihood"] = repr(float(stats[0]["log_likelihood"][0, -1]))
    return found


def digest(arrays: Iterable[npt.NDArray[Any]]) -> str:
    """SHA-256 of types, shapes and bytes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:DIGITS]
