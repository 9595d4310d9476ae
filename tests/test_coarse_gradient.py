"""gradient="coarse": what is rounded and what is not, the steps and the posterior of such chains, and who is refused.

Host threads emulate the device, and a GPU is used too if there is one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import noise_reference
import patrac_native as pn
import problems
import reference
from conftest import one_thread_and_cuda, two_threads_and_cuda
from patrac_native.engine import _core
from patrac_native.kernels import kernel_from_dict
from patrac_native.kernels.device_choice import choose_device
from patrac_native.sampling.warmup import Phase
from test_device_inputs import OnDevice
from test_device_rows import wide_problem

Array = npt.NDArray[Any]
INPUTS = ("bytes", "floats")
UNIT = 2.0**-8  # rounding to the 8 bits of bfloat16 changes a number by at most this share of it


def bfloat16(x: Array) -> Array:
    """Round numbers that are exact in float32 to nearest, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def model_of(post: pn.Posterior, device: str) -> Any:
    """Return the device model, whose first layer uses the matrix units."""
    model = post.sampled.compiled.on_device(device)
    assert model.layout(False)["wide_inputs"] != "none"
    return model


def rounded_inputs(X: Array, inputs: str) -> Array:
    """Return the inputs as factors of a coarse gradient; bytes are exact."""
    return X if inputs == "bytes" else bfloat16(X)


def first_delta(problem: problems.Problem) -> Array:
    """Return dl/dz of the first layer's nodes by the oracle, (n, N_1)."""
    partial, data = problem.partial, problem.data
    weights, _ = partial.with_theta(problem.theta)
    _, outputs = partial.layers(problem.theta, problem.X)
    delta = reference.output_slope(data.likelihood, problem.predictor(), problem.y, problem.post.data.row_weights)
    for layer in range(partial.n_layers - 1, 0, -1):
        delta = (delta @ weights[layer]) * reference.activation_slope(partial.activation, outputs[layer - 1])
    return np.asarray(delta)


def first_layer_sums(problem: problems.Problem, delta: Array, X: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return sums over rows of delta times inputs (biases: ones) of the first layer's entries of theta, and those."""
    sums, biases = delta.T @ X, delta.sum(axis=0)
    entries = [(k, i, j) for k, (layer, i, j) in enumerate(problem.partial.locations()) if layer == 1]
    values = [biases[i] if j < 0 else sums[i, j] for _, i, j in entries]
    return np.array(values), np.array([k for k, _, _ in entries])


# Values and gradients


@one_thread_and_cuda
@pytest.mark.filterwarnings("ignore:y, column 0, lies between")
@pytest.mark.parametrize("factor", ["derivatives", "inputs"])
def test_factors_are_rounded_to_nearest(factor: str, device: str) -> None:
    """A linear network at zero, whose gradient is a single product for each input: ties, both signs, tiny and large."""
    rng = problems.rng_of("rounding")
    numbers = (rng.choice([-1, 1], 256) * rng.uniform(1, 2, 256) * 2.0 ** rng.integers(-40, 40, 256)).astype(np.float32)
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, 255.5, 0.0, 2.0**-130, 2**-126 * (1 + 2**-8), 257.0, 259.0])
    numbers[:16] = np.concatenate([ties, -ties])
    of_inputs = factor == "inputs"
    X = np.diag(numbers if of_inputs else np.ones(256)).astype(np.float32)
    y = np.ones(256) if of_inputs else numbers.astype(np.float64)
    net = pn.Network([np.zeros((1, 256))], [np.zeros(1)])
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, y, dtype="float32")
    theta = np.zeros((1, post.dim), np.float32)
    _, gradient = model_of(post, device).log_likelihood_and_grad(theta, coarse=True)
    np.testing.assert_array_equal(np.delete(gradient[0], 256), bfloat16(numbers))
    assert np.isclose(gradient[0, 256], bfloat16(y).sum(), rtol=1e-6)


def dyadic_problem(inputs: str) -> problems.Problem:
    """Return a problem of which everything but the gradients is exact in float32, and so is known in float64.

    Inputs are bytes or multiples of 2^-10, and weights powers of two or zero, so that sums need at most 24 bits; the
    derivatives are the residuals times a power of two.
    """
    rng = problems.rng_of("dyadic", inputs)
    n, d, width = 200, 300, 8
    X = rng.integers(0, 256, (n, d)) if inputs == "bytes" else rng.integers(-1024, 1025, (n, d)) / 1024
    first = rng.choice([-1.0, 0.0, 1.0], (width, d)) / (64 if inputs == "bytes" else 1)
    last = rng.choice([-1.0, -0.5, 0.5, 1.0], (1, width))
    net = pn.Network([first, last], [np.zeros(width), np.zeros(1)], "relu")
    data = problems.Data(pn.Gaussian(1.0), X.astype(np.float64), rng.integers(-40, 41, (n, 1)) / 4, None)
    problem = problems.posed(net, pn.Full(), data, rng, "float32")
    problem.theta = problem.post.theta_map.copy()
    return problem


@pytest.mark.parametrize("inputs", INPUTS)
def test_a_coarse_gradient_is_that_of_rounded_factors(inputs: str, device: str) -> None:
    """In the first layer; l and the other layers have the bits of the exact gradient's."""
    problem = dyadic_problem(inputs)
    model, theta = model_of(problem.post, device), problem.theta[None].astype(np.float32)
    value, exact = model.log_likelihood_and_grad(theta)
    same, coarse = model.log_likelihood_and_grad(theta, coarse=True)
    assert same == value
    delta = first_delta(problem)
    expected, at = first_layer_sums(problem, bfloat16(delta), rounded_inputs(problem.X, inputs))
    right, _ = first_layer_sums(problem, delta, problem.X)
    np.testing.assert_array_equal(np.delete(coarse[0], at), np.delete(exact[0], at))
    # 64 products are summed after each other, then the sums of n / 64 depths; a matrix unit may cut off, at 2^-23.
    magnitude, _ = first_layer_sums(problem, np.abs(delta), np.abs(problem.X))
    bound = (64 + len(problem.X) / 64 + 1) * 2.0**-23 * magnitude
    assert (np.abs(coarse[0, at] - expected) <= bound).all()
    assert (np.abs(exact[0, at] - right) <= bound).all()
    # The bound tells rounding from cutting off, whose errors are twice as large and have the sign of the derivative.
    cut = (delta.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    of_cut, _ = first_layer_sums(problem, cut, problem.X)
    assert np.mean(np.abs(of_cut - expected) > 2 * bound) > 0.5


@two_threads_and_cuda
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(
    ("architecture", "sizes"), [("full", (400, 70)), ("mix", (300, 70, 3)), ("custom", (257, 40, 4))]
)
def test_the_error_is_that_of_rounding(architecture: str, sizes: tuple[int, ...], inputs: str, device: str) -> None:
    """At most the unit of rounding for each factor, relative to the sum of magnitudes; about 2^-9 of the norm."""
    problem = wide_problem(architecture, sizes, 150, inputs)
    model, theta = model_of(problem.post, device), problem.theta[None].astype(np.float32)
    value, exact = model.log_likelihood_and_grad(theta)
    same, coarse = model.log_likelihood_and_grad(theta, coarse=True)
    assert same == value
    magnitude, at = first_layer_sums(problem, np.abs(first_delta(problem)), np.abs(problem.X))
    np.testing.assert_array_equal(np.delete(coarse[0], at), np.delete(exact[0], at))
    error = coarse[0, at].astype(np.float64) - exact[0, at]
    share = UNIT if inputs == "bytes" else 2 * UNIT + UNIT**2
    assert (np.abs(error) <= (share + 1e-5) * magnitude).all()  # 1e-5: twice the error of an exact gradient
    assert 2.0**-11 < np.linalg.norm(error) / np.linalg.norm(exact[0, at]) < 2.0**-7


# Chains


@dataclasses.dataclass(frozen=True)
class Linear:
    """A posterior with a linear log-likelihood l = constant + <g, theta>, so that it is N(C g, C).

    Each row has one count of a Poisson distribution, whose rate the offset makes next to nothing at all theta of the
    posterior: the derivatives are then the row weights. Both gradients are constants.
    """

    post: pn.Posterior
    exact: Array  # g
    coarse: Array  # with rounded factors

    @property
    def deviation(self) -> Array:
        return np.sqrt(self.post.prior_variance)

    def draws(self, rng: np.random.Generator, count: int) -> Array:
        """Return independent draws of theta, (count, K), in float32."""
        noise = rng.standard_normal((count, self.post.dim))
        return (self.post.prior_variance * self.exact + self.deviation * noise).astype(np.float32)


def linear(inputs: str) -> Linear:
    """256 inputs, 32 rows; rounding changes the gradient by 1.5 of the prior's standard deviations.

    The error is then as large as the gradient of the prior: steps that round at one end only sample another posterior.
    """
    rng = problems.rng_of("linear", inputs)
    n, d = 32, 256
    # Of bytes few are not zero, or else f and with it the error of l in float32 would be large.
    X = (
        rng.integers(0, 256, (n, d)) * (rng.uniform(size=(n, d)) < 0.05)
        if inputs == "bytes"
        else rng.normal(size=(n, d))
    )
    X = X.astype(np.float32).astype(np.float64)
    prior = pn.TraceClassPrior(1.5, 1.0, 0.5) if inputs == "floats" else pn.TraceClassPrior(1.5, 0.01, 0.01)
    net, ones = pn.Network([np.zeros((1, d))], [np.zeros(1)]), np.ones((n, 1))
    columns, rounded = np.hstack([X, ones]), np.hstack([rounded_inputs(X, inputs), ones])

    def posterior(weight: Array, offset: float) -> pn.Posterior:
        given: dict[str, Any] = {"sample_weight": weight, "offset": np.full(n, offset), "dtype": "float32"}
        return pn.Posterior(net, pn.Full(), prior, pn.Poisson(), X, np.ones(n), **given)

    weight = rng.uniform(1, 2, n)
    C = posterior(weight, 0.0).prior_variance
    for _ in range(4):  # the error is nearly proportional to the weights
        error = np.linalg.norm(np.sqrt(C) * (bfloat16(weight) @ rounded - weight @ columns))
        weight = (weight * 1.5 / error).astype(np.float32).astype(np.float64)
    exact, coarse = weight @ columns, bfloat16(weight) @ rounded
    far = np.abs(columns @ (C * exact)).max() + 20 * np.sqrt((columns**2 @ C).max()) + 100
    post = posterior(weight, -np.round(far))
    with np.errstate(divide="ignore", invalid="ignore"):  # an offset so low leaves no rate without theta
        _ = post.sampled.fit_quality
    return Linear(post, exact, coarse)


def run(post: pn.Posterior, kernel: pn.Kernel, device: str, start: Array, **more: Any) -> pn.Draws:
    arguments: dict[str, Any] = {"draws": 1, "thin": 1, "warmup": None, "seed": 3, "progress": False} | more
    return pn.sample(post, kernel, chains=len(start), init=start, device=device, **arguments)


KERNELS: dict[str, Callable[[Linear], pn.Kernel]] = {
    "pcnl": lambda problem: pn.PCNL(0.5, gradient="coarse"),
    "mgrad": lambda problem: pn.MGrad(float(problem.post.prior_variance.max()), gradient="coarse"),
    "persistent": lambda problem: pn.MGrad(
        float(problem.post.prior_variance.max()), persistence=0.9, gradient="coarse"
    ),
}


def normals(post: pn.Posterior, seed: int, chain: int, step: int) -> Array:
    """Return the normals of the proposal of one step in float32, (K,)."""
    where: dict[str, Any] = {"seed": seed, "chain": chain, "step": step, "level": post.network.level}
    found = _core.standard_normals32(**where, purpose=_core.Purpose.proposal, steps=1, count=post.dim)
    return np.asarray(found[0], np.float64)


def log_ratio(
    kernel: pn.Kernel, C: Array, u: Array, v: Array, at_u: tuple[Any, Array], at_v: tuple[Any, Array]
) -> float:
    """Return the log acceptance ratio of a step from u to v with (l, g) at both."""
    step, (l_u, g_u), (l_v, g_v) = kernel.step_size or 0.0, at_u, at_v
    if kernel.name == "pcnl":
        return reference.pcnl_rho(l_u, g_u, u, v, C, step) - reference.pcnl_rho(l_v, g_v, v, u, C, step)
    return float(l_v - l_u) + reference.mgrad_h(u, v, g_v, C, step) - reference.mgrad_h(v, u, g_u, C, step)


@two_threads_and_cuda
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("kernel_name", ["pcnl", "mgrad"])
def test_steps_have_the_coarse_gradient_at_both_ends(kernel_name: str, inputs: str, device: str) -> None:
    """Steps of 32 chains, replayed in float64 from their noise; decisions tell them from those with one exact end."""
    problem, seed, steps = linear(inputs), 3, 6
    post, C, kernel = problem.post, problem.post.prior_variance, KERNELS[kernel_name](problem)
    model = model_of(post, device)
    start = problem.draws(problems.rng_of("replay"), 32)
    draws = run(post, kernel, device, start, draws=steps, seed=seed)
    proposal = reference.pcnl_proposal if kernel.name == "pcnl" else reference.mgrad_proposal
    # v is rounded to float32, of which each f, several thousand, is a sum: l is known up to the weights times that.
    tolerance, decided, mistakes = 0.05, 0, 0
    differences: list[float] = []
    states = [start, *np.ascontiguousarray(draws.theta.swapaxes(0, 1))]
    for step in range(steps):
        u, after = states[step].astype(np.float64), states[step + 1].astype(np.float64)
        l_u, g_u = model.log_likelihood_and_grad(states[step], coarse=True)
        w = np.stack([normals(post, seed, chain, step) for chain in range(32)])
        v = np.stack([proposal(u[c], g_u[c].astype(np.float64), C, w[c], kernel.step_size or 0.0) for c in range(32)])
        l_v, g_v = model.log_likelihood_and_grad(v.astype(np.float32), coarse=True)
        g_exact = model.log_likelihood_and_grad(v.astype(np.float32))[1]
        moved = (states[step] != states[step + 1]).any(axis=1)
        assert (moved == (draws.stats["acceptance_rate"][:, step] == 1)).all()
        scale = np.abs(C * problem.exact) + problem.deviation
        assert (np.abs(after - np.where(moved[:, None], v, u)) <= 1e-6 * scale).all()
        for c in range(32):
            at_u, uniform = (l_u[c], g_u[c].astype(np.float64)), noise_reference.acceptance_uniform(seed, c, step)
            right, wrong = (
                log_ratio(kernel, C, u[c], v[c], at_u, (l_v[c], g[c].astype(np.float64))) for g in (g_v, g_exact)
            )
            differences.append(abs(wrong - right))
            if abs(np.log(uniform) - right) > tolerance:
                decided += 1
                assert moved[c] == (np.log(uniform) < right)
                mistakes += moved[c] != (np.log(uniform) < wrong)
    assert decided > 0.9 * 32 * steps and np.median(differences) > 5 * tolerance
    assert mistakes > 10  # of the steps that are exact at v


@one_thread_and_cuda
@pytest.mark.parametrize("metric", ["prior", "inputs"])
def test_runs_with_a_warmup_and_each_metric(metric: str, device: str) -> None:
    """The recorded l is that of theta, in the coordinates of either metric, after a step size was found."""
    post = wide()
    kernel = pn.MGrad(persistence=0.9, metric=metric, gradient="coarse")
    start = np.tile(post.theta_map, (3, 1)).astype(np.float32)
    draws = run(post, kernel, device, start, draws=5, thin=2, warmup=pn.Warmup((Phase(100, target=0.8),)))
    assert draws.stats["acceptance_rate"].max() > 0
    assert (draws.stats["step_size"] != kernel.starting_step_size).all()
    expected = [post.log_likelihood(theta) for theta in draws.theta.reshape(15, -1)]
    # In the coordinates of the axes of the inputs, sums of 300 products are rounded twice.
    np.testing.assert_allclose(draws.stats["log_likelihood"].ravel(), expected, rtol=2e-5)


def deviations_along_the_error(problem: Linear, theta: Array) -> Array:
    """Return theta in standard normal units along the error of the gradient, the direction that a fault shifts."""
    error = problem.deviation * (problem.coarse - problem.exact)
    whitened = (theta - problem.post.prior_variance * problem.exact) / problem.deviation
    return np.asarray(whitened @ error / np.linalg.norm(error))


def scores(t: Array) -> tuple[float, float]:
    """Return the errors of mean and variance of standard normal t, in their standard errors."""
    return float(np.mean(t) * np.sqrt(t.size)), float((np.mean(t**2) - 1) * np.sqrt(t.size / 2))


def twin(problem: Linear, theta: Array, at_v: Array, steps: int, rng: np.random.Generator) -> Array:
    """Steps of pCNL in NumPy, with the coarse gradient at the state and another at the proposed point."""
    C, delta = problem.post.prior_variance, 0.5
    u = theta.astype(np.float64)
    for _ in range(steps):
        for c in range(len(u)):
            v = reference.pcnl_proposal(u[c], problem.coarse, C, rng.standard_normal(len(C)), delta)
            rho = reference.pcnl_rho(0.0, problem.coarse, u[c], v, C, delta)
            ratio = problem.exact @ (v - u[c]) + rho - reference.pcnl_rho(0.0, at_v, v, u[c], C, delta)
            if np.log(rng.uniform()) < ratio:
                u[c] = v
    return u


@one_thread_and_cuda
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("kernel_name", KERNELS)
def test_the_posterior_stays_invariant(kernel_name: str, inputs: str, device: str) -> None:
    """Exact draws remain such after steps: mean and variance along the error of the gradient, of 320 chains."""
    problem, rng, last = linear(inputs), problems.rng_of("invariance", kernel_name, inputs), []
    kernel, accepted = KERNELS[kernel_name](problem), []
    for seed in range(10):
        draws = run(problem.post, kernel, device, problem.draws(rng, 32), thin=8, seed=seed)
        accepted.append(draws.stats["acceptance_rate"].mean())
        last.append(draws.theta[:, 0].astype(np.float64))
    assert 0.1 < np.mean(accepted) < 0.95
    assert max(map(abs, scores(deviations_along_the_error(problem, np.concatenate(last))))) < 4


def test_a_step_with_one_exact_end_does_not_keep_the_posterior() -> None:
    """The power of the test above."""
    problem, rng = linear("floats"), problems.rng_of("power")
    start = problem.draws(rng, 320)
    right, wrong = (
        deviations_along_the_error(problem, twin(problem, start, at_v, 8, rng))
        for at_v in (problem.coarse, problem.exact)
    )
    assert max(map(abs, scores(right))) < 4
    assert abs(scores(wrong)[0]) > 8


# Arguments


def test_gradient_is_recorded_with_the_kernel() -> None:
    problem = linear("bytes")
    kernel = KERNELS["mgrad"](problem)
    draws = run(problem.post, kernel, "emulated:1", problem.draws(problems.rng_of("recorded"), 2))
    assert draws.settings["kernel"]["gradient"] == "coarse"
    assert kernel_from_dict(json.loads(json.dumps(draws.settings["kernel"]))) == kernel
    assert "gradient='coarse'" in kernel.label() and "gradient='coarse'" in repr(kernel)
    assert "gradient" not in pn.MGrad(0.1).label()
    old = {name: value for name, value in pn.PCNL(0.1).to_dict().items() if name != "gradient"}
    assert kernel_from_dict(old) == pn.PCNL(0.1)
    assert pn.PCN().gradient == pn.EllipticalSlice().gradient == "exact"


def test_gradient_has_two_values() -> None:
    kernels: tuple[Any, ...] = (pn.PCNL, pn.MGrad)
    for kernel in kernels:
        for wrong in ("bfloat16", None, True):
            with pytest.raises(ValueError, match=rf'^gradient of {kernel.__name__} must be "exact" or "coarse"; got'):
                kernel(gradient=wrong)
        with pytest.raises(ValueError, match=r'must be "exact" with collapse=True.*Leave one of them out'):
            kernel(collapse=True, gradient="coarse")
        with pytest.raises(TypeError):
            kernel(0.1, False, "warmup", "prior", "coarse")


COARSE = pn.PCNL(0.1, gradient="coarse")
ON_DEVICE: dict[str, Any] = {"device": "emulated:1"}
NEEDS = (
    "is supported only where the first layer uses matrix units: .* 256 inputs or more and 8192 or more over all rows, "
)


def refuse(post: Any, message: str, kernel: pn.Kernel = COARSE, **more: Any) -> None:
    arguments: dict[str, Any] = {"chains": 2, "draws": 1, "warmup": None, "progress": False} | more
    with pytest.raises(ValueError, match=message):
        pn.sample(post, kernel, **arguments)


def test_the_cpu_has_no_coarse_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    post = linear("bytes").post
    own = r"^kernel=PCNL\(delta=0.1, gradient='coarse'\)"
    remedy = r'Give device="cuda" or use gradient="exact"\.$'
    refuse(post, rf'{own} needs device="cuda"; this run goes to the CPU\. {remedy}', device="cpu")
    refuse(post, rf"{own} .* goes to the CPU \(the inputs are on the host\)\. {remedy}", device="auto")
    refuse(problems.normal_target(2), rf"{own} .* goes to the CPU \(.+\)\. {remedy}")
    curvature = pn.MGrad(0.1, metric="curvature", gradient="coarse")
    refuse(problems.problem(problems.rng_of("cpu"), (3, 4, 2), 20).post, "goes to the CPU", curvature)
    refuse(post, r'runs the metrics "prior" and "inputs"', curvature, device="emulated:1")
    # Where the device turns out not to hold the run, "auto" does not fall back to another gradient.
    usable = {"usable": True, "reason": ""}
    monkeypatch.setattr("patrac_native.kernels.device_choice.device_status", lambda _: usable)
    monkeypatch.setattr("patrac_native.kernels.device_choice.AUTO_DEVICE", "emulated:1")

    def fails(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("patrac_native.sampling.execution._joined_model", fails)
    there = wide(on_device=True)
    assert choose_device("auto", there.sampled.facts, COARSE).device == "emulated:1"
    refuse(there, rf"{own} .* goes to the CPU \(emulated:1 does not run it: out of memory\)", device="auto")


def test_the_core_of_the_cpu_refuses_it_too() -> None:
    """Nothing ignores it, whoever makes the configuration."""
    post = problems.problem(problems.rng_of("core"), (3, 4, 2), 20).post
    phase: dict[str, Any] = {
        "steps": 0,
        "accept_low": 0.0,
        "accept_high": 1.0,
        "energy_error": 0.0,
        "persistence": 0.0,
        "travel": 0.0,
    }
    phase |= {"adapt": False, "accept_all": False, "average": False, "target": 0.0, "first_look": 0, "superchains": 0}
    config = _core.RunConfig(
        kernel="pcnl",
        collapse=False,
        coarse_gradient=True,
        persistence=0.0,
        variance=None,
        scales=None,
        step_size=0.1,
        step_size_max=2.0,
        warmup=[],
        sampling=_core.Phase(**phase),
        draws=1,
        thin=1,
        seed=1,
        threads=1,
    )
    with pytest.raises(ValueError, match='the CPU has no coarse gradient; use device="cuda" or gradient="exact"'):
        post.sampled.compiled.host.sample(config, post.theta_map[None], post.prior_variance, None)


@pytest.mark.parametrize("device", ["cpu", "auto", "emulated:1"])
def test_sampled_noise_variances_are_refused(device: str) -> None:
    rng = problems.rng_of("sampled")
    net = problems.random_network(rng, (300, 2, 1))
    noise = pn.Gaussian("sampled", a=2.0, b=1.0)
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, noise, rng.normal(size=(40, 300)), rng.normal(size=40))
    refuse(post, r"rescales the gradient that it keeps.*fix its scale or use gradient=\"exact\"\.$", device=device)


def wide(n: int = 40, d: int = 300, dtype: str = "float32", on_device: bool = False) -> pn.Posterior:
    """Return a posterior that may have a coarse gradient, unless an argument says otherwise."""
    rng = problems.rng_of("wide", n, d)
    net, X, y = problems.random_network(rng, (d, 2, 1)), rng.normal(size=(n, d)).astype(dtype), rng.normal(size=n)
    given: Any = OnDevice(X) if on_device else X
    return pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1.0), given, y, dtype=dtype)


@pytest.mark.parametrize(
    ("changed", "chains", "got"),
    [
        ({"dtype": "float64"}, 2, 'got dtype="float64"'),
        ({"d": 255}, 2, "got a first layer that reads 255 inputs of 40 rows"),
        ({"n": 27}, 2, "got a first layer that reads 300 inputs of 27 rows"),
        ({}, 33, "got 33 chains"),
    ],
)
def test_runs_without_matrix_units_are_refused(changed: dict[str, Any], chains: int, got: str) -> None:
    post = wide(**changed)
    refuse(post, rf'^kernel: gradient="coarse" {NEEDS}.*; {got}\. Use gradient="exact"$', chains=chains, **ON_DEVICE)
    theta = np.tile(post.theta_map, (chains, 1)).astype(post.network.dtype)
    with pytest.raises(ValueError, match=got):
        post.sampled.compiled.on_device("emulated:1").log_likelihood_and_grad(theta, coarse=True)


def test_sample_many_is_refused() -> None:
    posts = [wide(), wide()]
    arguments: dict[str, Any] = {"draws": 1, "warmup": None, "progress": False}
    with pytest.raises(ValueError, match="got 2 posteriors in one run"):
        pn.sample_many(posts, COARSE, **ON_DEVICE, **arguments)
    with pytest.raises(ValueError, match="goes to the CPU"):
        pn.sample_many(posts, COARSE, **arguments)
    (alone,) = pn.sample_many(posts[:1], COARSE, **ON_DEVICE, **arguments)
    assert alone.settings["kernel"]["gradient"] == "coarse"


def test_stores_need_the_cpu_and_so_an_exact_gradient(tmp_path: Any) -> None:
    refuse(wide(), r"store needs device=\"cpu\"", store=tmp_path / "run", **ON_DEVICE)
    refuse(wide(), r"goes to the CPU", store=tmp_path / "run", device="cpu")
