"""The runs whose draws are pinned: a table over architectures, likelihoods, kernels, warm-ups, inputs and devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from golden_problems import LIKELIHOODS, Case, Problem

import patrac_native as pn
from patrac_native.sampling.warmup import Phase

SIZES, NO_HIDDEN = (3, 9, 6, 2), (4, 3)
ARCHITECTURES: dict[str, tuple[tuple[int, ...], Any]] = {
    "full": (SIZES, pn.Full()),
    "mix": (SIZES, pn.Mix(2)),
    "mix_by_layer": (SIZES, pn.Mix([4, 1])),
    "out": (SIZES, pn.Out(4)),
    "sep": (SIZES, pn.Sep(3)),
    "sep_by_layer": (SIZES, pn.Sep([2, 5])),
    "custom": (SIZES, "custom"),
    "no_hidden": (NO_HIDDEN, pn.Full()),
}
KERNELS: dict[str, Any] = {
    "pcn": pn.PCN(),
    "pcn_beta": pn.PCN(0.1),
    "pcnl": pn.PCNL(),
    "mgrad": pn.MGrad(),
    "mgrad_persistent": pn.MGrad(persistence=0.9),
    "elliptical_slice": pn.EllipticalSlice(),
    "auto": "auto",
}
NEEDS_HIDDEN_AND_GAUSSIAN: dict[str, Any] = {
    "pcnl_collapse": pn.PCNL(collapse=True),
    "mgrad_collapse": pn.MGrad(collapse=True),
    "mgrad_collapse_persistent": pn.MGrad(collapse=True, persistence=0.9),
}
ALWAYS: dict[str, Any] = {
    "pcnl_always": pn.PCNL(adapt="always"),
    "mgrad_always": pn.MGrad(adapt="always"),
    "mgrad_always_collapse": pn.MGrad(adapt="always", collapse=True, persistence=0.5),
}
# The paper's burn-in in small: adapt, accept every move, adapt again.
PAPER_LIKE = pn.Warmup(
    (Phase(400, (0.85, 0.95)), Phase(100, accept_all=True), Phase(600, (0.4, 0.9))),
    step_size=1e-4,
    only_for="pcnl",
)
# Finds a step size at which about 0.6 of the moves are accepted, so that both outcomes occur in every run.
SHORT = pn.Warmup((Phase(230, target=0.6, average=True), Phase(20)), step_size=0.01)
# For many rows.
BRIEF = pn.Warmup((Phase(80, target=0.6),), step_size=1e-3)
WARMUPS: dict[str, Any] = {
    "steps": 700,
    "auto": "auto",
    "target": pn.Warmup((Phase(205, target=0.5), Phase(0), Phase(13))),
    "average": pn.Warmup((Phase(410, accept=(0.5, 0.8), average=True), Phase(10)), step_size=0.02),
    "band": pn.Warmup((Phase(1030, accept=(0.3, 0.6)),), step_size=0.02),
    "accept_all": pn.Warmup((Phase(25, accept_all=True), Phase(200, target=0.6), Phase(15))),
    "ends_by_itself": pn.Warmup((Phase(1600, target=0.6, first_look=80, average=True), Phase(10))),
    "paper_like": PAPER_LIKE,
}
# For runs without warm-up.
MGRAD_FIXED = pn.MGrad(0.004, persistence=0.9)


def _cpu_cases() -> Iterator[Case]:
    for index, (name, (sizes, chosen)) in enumerate(ARCHITECTURES.items()):
        likelihood, dtype = LIKELIHOODS[index % len(LIKELIHOODS)], ("float32", "float64")[index // 3 % 2]
        problem = Problem(sizes, chosen, likelihood, dtype=dtype, weighted=likelihood == "gaussian_by_output")
        yield Case(f"architecture: {name}, {likelihood}, {dtype}", (problem,), pn.MGrad(persistence=0.5))

    one_output = (2, 8, 7, 1)
    for name, kernel in (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN | ALWAYS).items():
        yield Case(f"kernel: {name}, mix", (Problem(one_output, pn.Mix(2)),), kernel)
    for name, kernel in {"exact": pn.Exact(), "pcnl": pn.PCNL()}.items():
        yield Case(f"kernel: {name}, out", (Problem(one_output, pn.Out(5)),), kernel)
    sampled = Problem(one_output, pn.Mix(3), "sampled")
    for name in ("auto", "mgrad_collapse"):
        yield Case(f"sampled variance: {name}, mix", (sampled,), (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN)[name])

    for index, activation in enumerate(("tanh", "relu", "gelu", "silu", "sigmoid")):
        chosen, dtype = (pn.Full(), pn.Mix(3), pn.Sep(3))[index % 3], ("float32", "float64")[index % 2]
        problem = Problem((3, 11, 18, 3), chosen, "categorical", activation=activation, dtype=dtype)
        yield Case(f"activation: {activation}, {dtype}", (problem,), pn.PCNL())
    for name, warmup in WARMUPS.items():
        problem = Problem(SIZES, pn.Mix(2))
        yield Case(f"warm-up: {name}", (problem,), pn.PCNL(), {"warmup": warmup, "chains": 3})
    yield Case("warm-up: none", (Problem(SIZES, pn.Full()),), MGRAD_FIXED, {"warmup": None, "thin": 1})

    yield from _input_cases()
    yield from _run_cases()


def _input_cases() -> Iterator[Case]:
    """Sizes and layouts that have a pass of their own."""
    collapsed, few = pn.MGrad(collapse=True), {"draws": 5, "thin": 1}
    problem = Problem((5, 9, 6, 1), pn.Mix(2), n=301, inputs="fortran")
    yield Case("inputs: in place", (problem,), collapsed)
    problem = Problem((5, 9, 6, 3), pn.Full(), "categorical", n=130, dtype="float64", inputs="bytes")
    yield Case("inputs: bytes", (problem,), pn.PCNL())
    yield Case("narrow: 1-2-1", (Problem((1, 2, 1), pn.Full(), n=100),), pn.PCNL())
    problem = Problem((3, 12, 10, 1), pn.Sep(5), n=100, dtype="float64")
    yield Case("narrow: sep(5), collapsed", (problem,), NEEDS_HIDDEN_AND_GAUSSIAN["mgrad_collapse_persistent"])
    problem = Problem((4, 70, 66, 3), pn.Mix(5), "categorical", n=61)
    yield Case("wide layers: mix", (problem,), pn.MGrad(persistence=0.9), few)
    problem = Problem((2, 50, 50, 1), pn.Full(), n=100, dtype="float64")
    yield Case("wide layers: full, collapsed", (problem,), collapsed, few)
    problem = Problem((300, 12, 10, 10), pn.Mix(3), "categorical_scale", n=70, inputs="bytes")
    yield Case("wide first layer: mix, bytes", (problem,), pn.PCNL(), few)
    many = {"warmup": BRIEF, "draws": 10, "thin": 1}
    problem = Problem((20, 30, 1), pn.Full(), n=2500, inputs="fortran", weighted=True)
    yield Case("several slabs: full", (problem,), pn.PCNL(), many | {"chains": 1, "threads": 3})
    problem = Problem((20, 30, 1), pn.Full(), n=2500)
    yield Case("several slabs: collapsed", (problem,), collapsed, many | {"threads": 4})


def _run_cases() -> Iterator[Case]:
    """What `sample` and `sample_many` can be asked for beside the kernel and the warm-up."""
    problem = Problem(SIZES, pn.Mix(2), "categorical")
    yield Case("run: init prior, sep", (Problem(SIZES, pn.Sep(2)),), pn.PCNL(), {"init": "prior"})
    yield Case("run: given starts", (problem,), pn.PCNL(), start_scale=0.8)
    yield Case("run: five chains, two threads", (problem,), "auto", {"chains": 5, "threads": 2})
    yield Case("run: level by environment", (problem,), pn.PCNL(), by_environment=True)
    yield Case("several posteriors: auto", THREE, "auto", {"chains": 2})


THREE = tuple(Problem(SIZES, pn.Mix(2), key=key) for key in range(3))


def _emulated_cases() -> Iterator[Case]:
    """Runs on blocks of host threads."""
    on = {"device": "emulated:1"}
    few = {"draws": 8, "thin": 1}
    for index, name in enumerate(("full", "mix", "sep", "custom")):
        sizes, chosen = ARCHITECTURES[name]
        likelihood, dtype = ("gaussian_by_output", "categorical")[index % 2], ("float32", "float64")[index // 2]
        problem = Problem(sizes, chosen, likelihood, dtype=dtype, weighted=True)
        yield Case(f"emulated: {name}, {likelihood}, {dtype}", (problem,), pn.MGrad(persistence=0.5), on | few)
    for name in ("pcn", "mgrad_collapse_persistent"):
        problem = Problem((2, 8, 7, 1), pn.Mix(2))
        yield Case(f"emulated: {name}", (problem,), (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN)[name], on)
    for name in ("ends_by_itself", "paper_like"):
        warmup = {"warmup": WARMUPS[name]}
        yield Case(f"emulated: warm-up {name}", (Problem(SIZES, pn.Mix(2)),), pn.PCNL(), on | warmup)
    more = {"device": "emulated:64", "warmup": None, "draws": 6, "thin": 1}
    problem = Problem(SIZES, pn.Full(), "categorical", dtype="float64")
    yield Case("emulated: block of 64", (problem,), pn.MGrad(0.04, persistence=0.9), more)
    rows = on | {"warmup": BRIEF, "draws": 6, "thin": 1, "chains": 1}
    many = Problem((4, 12, 10, 1), pn.Full(), n=6000)
    yield Case("emulated: rows over many blocks, collapsed", (many,), pn.MGrad(collapse=True), rows)
    wide = Problem((300, 12, 10, 3), pn.Mix(4), "categorical", n=700)
    yield Case("emulated: wide first layer", (wide,), pn.PCNL(), rows)
    yield Case("emulated: several posteriors", THREE, "auto", on | {"chains": 2})


CASES: dict[str, Case] = {}
for _case in (*_cpu_cases(), *_emulated_cases()):
    assert _case.name not in CASES, _case.name
    CASES[_case.name] = _case
