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
PCNL_FIXED, MGRAD_FIXED = pn.PCNL(0.002), pn.MGrad(0.004, persistence=0.9)


def _cpu_cases() -> Iterator[Case]:
    for index, (name, (sizes, chosen)) in enumerate(ARCHITECTURES.items()):
        for likelihood in LIKELIHOODS:
            dtype = ("float32", "float64")[(index + LIKELIHOODS.index(likelihood)) % 2]
            problem = Problem(sizes, chosen, likelihood, dtype=dtype, weighted=likelihood == "gaussian_by_output")
            yield Case(f"architecture: {name}, {likelihood}, {dtype}", (problem,), pn.MGrad(persistence=0.5))

    one_output = (2, 8, 7, 1)
    for name, kernel in (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN | ALWAYS).items():
        for where, chosen in {"full": pn.Full(), "mix": pn.Mix(2), "sep": pn.Sep(4)}.items():
            yield Case(f"kernel: {name}, {where}", (Problem(one_output, chosen),), kernel)
    for name, kernel in (KERNELS | {"exact": pn.Exact(), "pcnl_always": ALWAYS["pcnl_always"]}).items():
        yield Case(f"kernel: {name}, out", (Problem(one_output, pn.Out(5)),), kernel)
    for name, kernel in (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN).items():
        yield Case(f"sampled variance: {name}, mix", (Problem(one_output, pn.Mix(3), "sampled"),), kernel)
    for name, kernel in (KERNELS | {"exact": pn.Exact()}).items():
        problem = Problem(SIZES, pn.Out(3), "sampled", dtype="float64", weighted=True)
        yield Case(f"sampled variance: {name}, out", (problem,), kernel)
    yield Case("kernel: exact, no hidden layer", (Problem((3, 2), pn.Full()),), pn.Exact())
    yield Case(
        "kernel: elliptical_slice, categorical", (Problem(SIZES, pn.Full(), "categorical"),), pn.EllipticalSlice()
    )

    for activation in ("tanh", "relu", "gelu", "silu", "sigmoid"):
        for name, chosen, likelihood, dtype in (
            ("full", pn.Full(), "categorical", "float32"),
            ("mix", pn.Mix(3), "gaussian", "float64"),
            ("sep", pn.Sep(3), "gaussian", "float32"),
        ):
            problem = Problem((3, 11, 18, 3), chosen, likelihood, activation=activation, dtype=dtype)
            yield Case(f"activation: {activation}, {name}", (problem,), pn.PCNL())

    for name, warmup in WARMUPS.items():
        for kind, likelihood in ("pcnl", "gaussian"), ("mgrad_persistent", "categorical"):
            if warmup is PAPER_LIKE and kind != "pcnl":
                continue
            problem = Problem(SIZES, pn.Mix(2), likelihood)
            yield Case(f"warm-up: {name}, {kind}", (problem,), KERNELS[kind], {"warmup": warmup, "chains": 3})
    for name, kernel in {"pcn": pn.PCN(0.2), "pcnl": PCNL_FIXED, "mgrad": MGRAD_FIXED}.items():
        yield Case(f"warm-up: none, {name}", (Problem(SIZES, pn.Full()),), kernel, {"warmup": None, "thin": 1})
    yield Case("warm-up: paper_like, auto", (Problem(SIZES, pn.Mix(2)),), "auto", {"warmup": PAPER_LIKE})

    yield from _input_cases()
    yield from _run_cases()


def _input_cases() -> Iterator[Case]:
    """Sizes and layouts that have a pass of their own."""
    for dtype in ("float32", "float64"):
        for name, chosen in {"full": pn.Full(), "mix": pn.Mix(2), "sep": pn.Sep(2)}.items():
            problem = Problem((5, 9, 6, 1), chosen, n=301, dtype=dtype, inputs="fortran")
            yield Case(f"inputs: in place, {name}, {dtype}", (problem,), pn.MGrad(collapse=True))
            problem = Problem((5, 9, 6, 3), chosen, "categorical", n=130, dtype=dtype, inputs="bytes")
            yield Case(f"inputs: bytes, {name}, {dtype}", (problem,), pn.PCNL())
        for name, sizes, chosen in (
            ("1-2-1", (1, 2, 1), pn.Full()),
            ("2-3-3-1", (2, 3, 3, 1), pn.Full()),
            ("sep(5)", (3, 12, 10, 1), pn.Sep(5)),
            ("sep(1)", (6, 12, 1), pn.Sep(1)),
        ):
            for kernel in ("pcnl", "mgrad_collapse_persistent"):
                problem = Problem(sizes, chosen, n=100, dtype=dtype)
                yield Case(
                    f"narrow: {name}, {kernel}, {dtype}", (problem,), (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN)[kernel]
                )
        few = {"draws": 5, "thin": 1}
        for name, chosen in {"full": pn.Full(), "mix": pn.Mix(5), "out": pn.Out(45), "custom": "custom"}.items():
            problem = Problem((4, 70, 66, 3), chosen, "categorical", n=61, dtype=dtype)
            yield Case(f"wide layers: {name}, {dtype}", (problem,), pn.MGrad(persistence=0.9), few)
        for name, chosen in {"full": pn.Full(), "mix": pn.Mix(5)}.items():
            problem = Problem((2, 50, 50, 1), chosen, n=100, dtype=dtype)
            yield Case(f"wide layers: {name} collapsed, {dtype}", (problem,), pn.MGrad(collapse=True), few)
        for name, chosen, inputs in (("full", pn.Full(), "floats"), ("mix", pn.Mix(3), "bytes")):
            problem = Problem((300, 12, 10, 10), chosen, "categorical_scale", n=70, dtype=dtype, inputs=inputs)
            yield Case(f"wide first layer: {name}, {inputs}, {dtype}", (problem,), pn.PCNL(), few)
        few = {"warmup": BRIEF, "draws": 10, "thin": 1, "chains": 1}
        for name, chosen, inputs in (("full", pn.Full(), "fortran"), ("mix", pn.Mix(2), "floats")):
            problem = Problem((20, 30, 1), chosen, n=2500, dtype=dtype, inputs=inputs, weighted=True)
            yield Case(f"several slabs: {name}, {inputs}, {dtype}", (problem,), pn.PCNL(), few | {"threads": 3})
    problem = Problem((20, 30, 1), pn.Full(), n=2500)
    arguments = {"warmup": BRIEF, "draws": 10, "thin": 1, "threads": 4}
    yield Case("several slabs: collapsed", (problem,), pn.MGrad(collapse=True), arguments)
    yield Case(
        "several slabs: sampled variance", (Problem((20, 30, 2), pn.Full(), "sampled", 2500),), "auto", arguments
    )
    yield Case("inputs: one row", (Problem(SIZES, pn.Full(), n=1),), pn.PCNL())
    yield Case("inputs: two rows in each tile's rest", (Problem(SIZES, pn.Mix(2), n=130),), pn.PCNL())
    yield Case("prior: outputs decay", (Problem(SIZES, pn.Mix(2), output_decay=True),), pn.PCNL())
    yield Case("prior: outputs do not decay", (Problem((2, 8, 1), pn.Full(), output_decay=False),), "auto")


def _run_cases() -> Iterator[Case]:
    """What `sample` and `sample_many` can be asked for beside the kernel and the warm-up."""
    problem = Problem(SIZES, pn.Mix(2), "categorical")
    for init in ("map", "prior"):
        for name, chosen in {"mix": pn.Mix(2), "sep": pn.Sep(2)}.items():
            yield Case(f"run: init {init}, {name}", (Problem(SIZES, chosen),), pn.PCNL(), {"init": init})
    yield Case("run: given starts", (problem,), pn.PCNL(), start_scale=0.8)
    yield Case("run: given starts, out", (Problem(SIZES, pn.Out(3)),), pn.PCNL(), start_scale=0.8)
    yield Case("run: one chain", (problem,), "auto", {"chains": 1})
    yield Case("run: five chains, two threads", (problem,), "auto", {"chains": 5, "threads": 2})
    yield Case("run: largest seed", (problem,), pn.PCN(), {"seed": 2**64 - 1})
    yield Case("run: level by environment", (problem,), pn.PCNL(), by_environment=True)
    yield Case("run: device auto", (Problem(SIZES, pn.Full()),), "auto", {"device": "auto"})
    three = tuple(Problem(SIZES, pn.Mix(2), key=key) for key in range(3))
    for kernel in ("pcnl", "auto"):
        yield Case(f"several posteriors: {kernel}", three, KERNELS[kernel], {"chains": 2})
    out = tuple(Problem(SIZES, pn.Out(2), key=key) for key in range(2))
    yield Case("several posteriors: out", out, "auto", {"chains": 2})


def _emulated_cases() -> Iterator[Case]:
    """Runs on blocks of host threads."""
    on = {"device": "emulated:1"}
    few = {"draws": 8, "thin": 1}
    for index, (name, (sizes, chosen)) in enumerate(ARCHITECTURES.items()):
        for likelihood in [name for name in LIKELIHOODS if name != "sampled"]:
            dtype = ("float32", "float64")[(index + LIKELIHOODS.index(likelihood)) % 2]
            problem = Problem(sizes, chosen, likelihood, dtype=dtype, weighted=likelihood == "gaussian_by_output")
            yield Case(f"emulated: {name}, {likelihood}, {dtype}", (problem,), pn.MGrad(persistence=0.5), on | few)
    for name, kernel in (KERNELS | NEEDS_HIDDEN_AND_GAUSSIAN | ALWAYS).items():
        if name != "elliptical_slice":
            yield Case(f"emulated: {name}", (Problem((2, 8, 7, 1), pn.Mix(2)),), kernel, on)
    for activation in ("tanh", "relu", "gelu", "silu", "sigmoid"):
        problem = Problem((3, 11, 5, 3), pn.Full(), "categorical", activation=activation)
        yield Case(f"emulated: {activation}", (problem,), pn.PCNL(), on | few)
    for name, warmup in WARMUPS.items():
        if name != "auto":
            yield Case(f"emulated: warm-up {name}", (Problem(SIZES, pn.Mix(2)),), pn.PCNL(), on | {"warmup": warmup})
    for block in (4, 64):
        more = {"device": f"emulated:{block}", "warmup": None, "draws": 6, "thin": 1}
        problem = Problem(SIZES, pn.Full(), "categorical", dtype="float64")
        yield Case(f"emulated: block of {block}", (problem,), pn.MGrad(0.04, persistence=0.9), more)
        collapsed = pn.MGrad(0.12, collapse=True)
        yield Case(f"emulated: block of {block}, collapsed", (Problem(SIZES, pn.Mix(2)),), collapsed, more)
    rows = on | {"warmup": BRIEF, "draws": 6, "thin": 1, "chains": 1}
    many = Problem((4, 12, 10, 1), pn.Full(), n=6000)
    yield Case("emulated: rows over many blocks", (many,), pn.PCNL(), rows)
    yield Case("emulated: rows over many blocks, collapsed", (many,), pn.MGrad(collapse=True), rows)
    for inputs in ("floats", "bytes"):
        wide = Problem((300, 12, 10, 3), pn.Mix(4), "categorical", n=700, inputs=inputs)
        # Inputs up to 255 want steps so much smaller.
        warmup = BRIEF if inputs == "floats" else pn.Warmup((Phase(40, target=0.6),), step_size=1e-8)
        yield Case(f"emulated: wide first layer, {inputs}", (wide,), pn.PCNL(), rows | {"warmup": warmup})
    three = tuple(Problem(SIZES, pn.Mix(2), key=key) for key in range(3))
    for name in ("pcnl", "auto"):
        yield Case(f"emulated: several posteriors, {name}", three, KERNELS[name], on | {"chains": 2})
    kept = on | few | {"keep_on_device": True}
    yield Case("emulated: draws kept there", (Problem(SIZES, pn.Full()),), pn.PCNL(), kept)


CASES: dict[str, Case] = {}
for _case in (*_cpu_cases(), *_emulated_cases()):
    assert _case.name not in CASES, _case.name
    CASES[_case.name] = _case
