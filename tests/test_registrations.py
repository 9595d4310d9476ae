"""The core does not compile with an enumerator that is not registered, and refuses what it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from patrac_native.engine import _core

ROOT = Path(__file__).parents[1] / "csrc"
# Headers with an enum, its table of names and what dispatches on it.
HEADERS = {
    "Activation": "shared/activation.hpp",
    "LikelihoodKind": "shared/likelihood.hpp",
    "KernelKind": "shared/kernels.hpp",
}
INCLUDED = ("shared/activation.hpp", "shared/likelihood.hpp", "shared/crank_nicolson.hpp")


def compile_with(folder: Path, header: str, text: str) -> subprocess.CompletedProcess[str]:
    """Compile the shared headers, `text` in place of one of them."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    (folder / header).parent.mkdir(parents=True, exist_ok=True)
    (folder / header).write_text(text)
    includes = "".join(f'#include "{name}"\n' for name in INCLUDED)
    # Calls of the templates, which otherwise are not compiled.
    use = """
    namespace patrac::plain {
    int use(Activation zeta, LikelihoodKind kind, KernelKind kernel) {
        const auto one = [](auto) { return 1; };
        return visit(zeta, one) + visit(kind, one) + (shrink_of(kernel, 0.5, 1.0) > 0.0);
    }
    }
    """
    source = folder / "all.cpp"
    source.write_text(f"#define PATRAC_LEVEL plain\n#define PATRAC_VECTOR_BYTES 16\n{includes}{use}")
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wno-psabi", "-Wall", "-Werror=switch"]
    return subprocess.run(
        [*command, "-I", str(folder), "-I", str(ROOT), str(source)], capture_output=True, text=True, check=False
    )


def test_the_headers_compile_as_they_are(tmp_path: Path) -> None:
    header = HEADERS["Activation"]
    assert compile_with(tmp_path, header, (ROOT / header).read_text()).returncode == 0


@pytest.mark.parametrize("enum", HEADERS)
def test_an_enumerator_without_registrations_does_not_compile(enum: str, tmp_path: Path) -> None:
    """With one more enumerator, the headers lack its name or a case that dispatches on it."""
    text = (ROOT / HEADERS[enum]).read_text()
    start = text.index("{", text.index(f"enum class {enum}")) + 1
    built = compile_with(tmp_path, HEADERS[enum], f"{text[:start]} another, {text[start:]}")
    assert built.returncode != 0 and "error" in built.stderr


def test_an_unknown_name_is_refused() -> None:
    arguments = {"activation": "tanh", "likelihood": "bernoulli", "likelihood_parameters": {}}
    empty = {"weights": [], "biases": [], "weight_masks": [], "bias_masks": [], "companion": None}
    for key in ("activation", "likelihood"):
        with pytest.raises(ValueError, match="the compiled core has no 'cosine'"):
            _core.ModelSpec(**{**arguments, **empty, key: "cosine"})


def test_a_model_refuses_what_its_likelihood_or_kernel_lacks() -> None:
    """The core checks for itself, whoever calls it: no noise variance to sample, no conditional law to integrate, no
    prior that may change."""
    rng = problems.rng_of("what the core refuses")
    student = problems.problem(rng, (2, 4, 3, 1), 9, "mix", "student_t").post
    bernoulli = problems.problem(rng, (2, 4, 3, 1), 9, "mix", "bernoulli").post
    gaussian = problems.problem(rng, (2, 4, 3, 1), 9, "mix").post
    step: dict[str, Any] = {"persistence": 0.0, "step_size": 0.1, "step_size_max": 2.0, "draws": 1, "thin": 1}
    phase = _core.Phase(
        steps=0,
        adapt=False,
        accept_low=0.0,
        accept_high=1.0,
        accept_all=False,
        energy_error=0.0,
        persistence=0.0,
        travel=0.0,
        average=False,
        target=0.0,
        first_look=0,
        superchains=0,
    )
    step |= {"warmup": [], "sampling": phase, "seed": 0, "threads": 1}
    sampled = _core.SampledVariance(shape=2.0, rate=np.ones(1), initial=np.ones(1), every=1)
    for post, kernel, collapse, variance, message in (
        (bernoulli, "pcnl", False, sampled, "only Gaussian and Student-t noise have a variance to sample"),
        (bernoulli, "pcnl", True, None, "under Gaussian noise alone"),
        (student, "pcnl", True, None, "of one output with a sampled scale are integrated out"),
        (gaussian, "elliptical_slice", True, None, "only kernels of the Crank-Nicolson family integrate"),
    ):
        config = _core.RunConfig(kernel=kernel, collapse=collapse, variance=variance, scales=None, **step)
        with pytest.raises(ValueError, match=message):
            post.sampled.compiled.host.sample(
                config, post.theta_map[None].astype(post.network.dtype), post.prior_variance, None
            )
    last = problems.problem(rng, (2, 4, 3, 1), 9, "out").post
    group = np.zeros(last.dim, dtype=np.int32)
    scales = _core.SampledScales(group=group, groups=1, shape=2.0, rate=2.0, every=1, interweave=False)
    config = _core.RunConfig(kernel="pcnl", collapse=False, variance=None, scales=scales, **step)
    form = last.sampled.quadratic
    assert form is not None
    with pytest.raises(ValueError, match="a chain in a whitened basis does not sample the scales of its prior"):
        _core.sample_quadratic64(
            constant=form.constant,
            slope=form.slope,
            matrix=form.curvature,
            to_theta=np.ascontiguousarray(form.to_theta),
            terms=last.sampled.law.terms,
            variance=last.sampled.law.initial,
            output=form.output,
            config=config,
            init=form.whitened(last.theta_map[None]),
            prior_variance=last.prior_variance,
            progress=None,
            level=last.network.level,
        )
    on_device: Any = last.sampled.compiled.on_device("emulated:4")
    with pytest.raises(ValueError, match="a device does not sample the scales of the prior"):
        on_device.sample(config, [0], last.theta_map[None], last.prior_variance[None], None, False)
