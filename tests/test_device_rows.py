"""Evaluations that blocks of a device share: values, gradients and whole chains against the CPU engine.

Host threads emulate the device, and a GPU is used too if there is one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import test_device_chains
from conftest import four_threads_and_cuda, one_thread_and_cuda, two_threads_and_cuda
from patrac_native.sampling.warmup import Phase

EPS = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}
MAX_SLABS = 264  # csrc/cuda/model/data_set.hpp


def many_rows(
    likelihood: str,
    architecture: str,
    dtype: str,
    *,
    n: int = 1100,
    sizes: tuple[int, ...] = (3, 8, 6, 3),
    activation: str = "tanh",
) -> problems.Problem:
    """Return a problem of several tiles."""
    return problems.problem(
        problems.rng_of(likelihood, architecture, n, sizes),
        sizes,
        n,
        architecture,
        likelihood,
        activation=activation,
        dtype=dtype,
    )


def check_against_reference(problem: problems.Problem, device: str) -> dict[str, Any]:
    """Compare l and its gradient with the oracle's; check that blocks shared the evaluation."""
    theta = np.stack([problem.theta, problem.theta / 2])
    model = problem.post.sampled.compiled.on_device(device)
    value, gradient = model.log_likelihood_and_grad(theta.astype(problem.post.network.dtype))
    # Rounding errors of sums over sources and over the rows of a tile grow like the root of their number, hundreds.
    bound = 50 * EPS[problem.post.network.dtype.name]
    for i in range(len(theta)):
        right, slope = problem.reference_value(theta[i]), problem.reference_gradient(theta[i])
        assert abs(value[i] - right) <= bound * abs(right)
        assert np.linalg.norm(gradient[i] - slope) <= bound * np.linalg.norm(slope)
    layout: dict[str, Any] = model.layout(False)
    assert layout["blocks_of_chain"] >= 4
    return layout


@two_threads_and_cuda
@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype"),
    problems.balanced(itertools.product(problems.ARCHITECTURES, problems.LIKELIHOODS), ("float32", "float64")),
)
def test_every_model(architecture: str, likelihood: str, dtype: str, device: str) -> None:
    """Several tiles, a block each, for all architectures and likelihoods."""
    check_against_reference(many_rows(likelihood, architecture, dtype), device)


@four_threads_and_cuda
@pytest.mark.parametrize("activation", problems.ACTIVATIONS)
def test_every_activation(activation: str, device: str) -> None:
    """Some activations need the values before the activation."""
    check_against_reference(many_rows("gaussian", "full", "float64", activation=activation), device)


@four_threads_and_cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_beyond_shared_memory(dtype: str, device: str) -> None:
    """A wide first layer: its weights stay in the device's memory, the activations do not."""
    problem = many_rows("categorical", "full", dtype, n=600, sizes=(700, 30, 5, 3))
    layout = check_against_reference(problem, device)
    assert layout["in_shared_memory"] and not layout["parameters_in_shared"]


@four_threads_and_cuda
def test_activations_beyond_shared_memory(device: str) -> None:
    """If a layer is too wide for the smallest tile, its activations are in the device's memory.

    28 rows of 1,200 activations in float64 are 269 KB; a block of an H100 has 227 KB.
    """
    problem = many_rows("gaussian", "full", "float64", n=120, sizes=(2, 1200, 1))
    assert not check_against_reference(problem, device)["in_shared_memory"]


@one_thread_and_cuda
def test_more_tiles_than_slabs(device: str) -> None:
    """Blocks that process several tiles add up their sums."""
    problem = many_rows("gaussian", "full", "float64", n=80_000, sizes=(2, 3, 1))
    layout = check_against_reference(problem, device)
    assert layout["blocks_of_chain"] == MAX_SLABS
    assert layout["blocks_of_chain"] * layout["tile_rows"] < 80_000


def test_who_shares() -> None:
    """Evaluations are shared where chains are few and tiles several, whatever the device's size."""
    model = many_rows("gaussian", "full", "float32").post.sampled.compiled.on_device("emulated:1")
    assert model.layout(False, 1)["blocks_of_chain"] == model.layout(False, 32)["blocks_of_chain"] >= 4
    assert model.layout(False, 33)["blocks_of_chain"] == 1
    small = many_rows("gaussian", "full", "float32", n=100).post.sampled.compiled.on_device("emulated:1")
    assert small.layout(False, 1)["blocks_of_chain"] == 1


KERNELS = (pn.PCN(0.02), pn.PCNL(0.0005), pn.MGrad(0.0002), pn.MGrad(0.0002, persistence=0.9))
WARMUPS = {
    "none": None,
    "band": pn.Warmup((Phase(5, accept_all=True), Phase(220, accept=(0.2, 0.4)))),
    "target": pn.Warmup((Phase(100, target=0.6, first_look=40, average=True),)),
}


def two_starts(post: pn.Posterior) -> npt.NDArray[Any]:
    """Return the trained values and a point near them."""
    return np.stack([post.theta_map, 0.9 * post.theta_map]).astype(post.network.dtype)


def run(post: pn.Posterior, kernel: pn.Kernel, device: str, **more: Any) -> pn.Draws:
    """Run two chains, of which each third state is kept."""
    return test_device_chains.run(post, kernel, device, **{"chains": 2, "thin": 3} | more)


@two_threads_and_cuda
@pytest.mark.filterwarnings("ignore:the warm-up ended")
@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_chains_are_the_cpus(kernel: Any, warmup: str, device: str) -> None:
    """float64 chains agree with the CPU's step by step: the same noise, and sums that differ by rounding alone."""
    post = many_rows("gaussian", "mix", "float64").post
    cpu, found = (run(post, kernel, name, warmup=WARMUPS[warmup], init=two_starts(post)) for name in ("cpu", device))
    assert cpu.settings["warmup_steps"] == found.settings["warmup_steps"]
    accepted = cpu.stats["acceptance_rate"]
    assert accepted.max() > 0 and (warmup != "none" or accepted.min() < 1)
    # These chains are short and their maps tame: differences stay near those of rounding.
    np.testing.assert_allclose(found.theta, cpu.theta, rtol=0, atol=1e-11)
    for name in cpu.stats:
        np.testing.assert_allclose(found.stats[name], cpu.stats[name], rtol=1e-10, err_msg=name)


@two_threads_and_cuda
def test_float32_chains_start_like_the_cpus(device: str) -> None:
    """float32 and the kept coordinates of a categorical model, as far as rounding lets chains agree."""
    post = many_rows("categorical", "full", "float32").post
    kernel = pn.PCNL(0.001)
    cpu, found = (run(post, kernel, name, draws=4, thin=1) for name in ("cpu", device))
    np.testing.assert_allclose(found.theta, cpu.theta, rtol=0, atol=1e-4)


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_of_a_block_do_not_matter(threads: int) -> None:
    """Chains of blocks of one thread and of several differ by rounding alone."""
    post = many_rows("bernoulli", "full", "float64").post
    one, several = (run(post, pn.PCNL(0.0005), f"emulated:{count}", init=two_starts(post)) for count in (1, threads))
    np.testing.assert_allclose(several.theta, one.theta, rtol=0, atol=1e-11)


@four_threads_and_cuda
def test_runs_repeat(device: str) -> None:
    """Two equal runs give the same bits."""
    post = many_rows("gaussian", "full", "float32").post
    first, second = (run(post, pn.MGrad(0.01), device) for _ in range(2))
    assert np.array_equal(first.theta, second.theta)


@two_threads_and_cuda
def test_flat_likelihood_always_accepts(device: str) -> None:
    """With no weight on any row, pCNL leaves the prior as it is: every proposal is taken."""
    rng = problems.rng_of("flat")
    net = problems.random_network(rng, (2, 5, 1))
    data = problems.random_data("gaussian", rng, 1100, 2, 1)
    post = pn.Posterior(
        net,
        pn.Full(),
        pn.TraceClassPrior(1.5, 1.0, 1.0),
        data.likelihood,
        data.X,
        data.y,
        sample_weight=np.full(1100, 1e-12),
        dtype="float64",
    )
    assert post.sampled.compiled.on_device(device).layout(False)["blocks_of_chain"] >= 4
    draws = run(post, pn.PCNL(1.0), device, init="prior")
    assert (draws.stats["acceptance_rate"] == 1).all()
    square = draws.theta**2 / post.prior_variance
    normaliser = -0.5 * np.log(2 * np.pi * post.prior_variance).sum()
    np.testing.assert_allclose(draws.stats["log_prior"], normaliser - 0.5 * square.sum(axis=-1), rtol=1e-10)


# A first layer on the matrix units: the gradient's error, relative to its norm, that "float32" stands for.
WIDE_ERROR = 5e-6


def wide_problem(architecture: str, sizes: tuple[int, ...], n: int, inputs: str) -> problems.Problem:
    """Return a problem with byte inputs and correspondingly small weights, or with real inputs."""
    rng = problems.rng_of(architecture, sizes, n, inputs)
    net = problems.random_network(rng, sizes)
    chosen = problems.architecture(architecture, rng, net)
    data = problems.random_data("categorical", rng, n, sizes[0], sizes[-1])
    if inputs == "bytes":
        data.X = rng.integers(0, 256, data.X.shape).astype(np.float64)
        net = pn.Network([net.weights[0] / 128, *net.weights[1:]], net.biases, net.activation)
    problem = problems.posed(net, chosen, data, rng, "float32")
    problem.theta = problem.post.theta_map.astype(np.float32).astype(np.float64)
    return problem


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["bytes", "floats"])
@pytest.mark.parametrize(
    ("architecture", "sizes"),
    # Nodes beyond one group of 64 columns, features that end within a depth, one layer alone, and a custom mask.
    [
        ("full", (700, 30, 5, 3)),
        ("mix", (300, 70, 3)),
        ("sep", (301, 90, 3)),
        ("custom", (257, 40, 4)),
        ("full", (400, 70)),
    ],
)
@pytest.mark.parametrize("n", [35, 1100])
def test_wide_first_layer(architecture: str, sizes: tuple[int, ...], n: int, inputs: str, device: str) -> None:
    """Products of a wide first layer that are split into bfloat16 are as accurate as in float32, for few rows too."""
    problem = wide_problem(architecture, sizes, n, inputs)
    theta = problem.theta[None].astype(np.float32)
    model = problem.post.sampled.compiled.on_device(device)
    assert model.layout(False)["wide_inputs"] == inputs
    value, gradient = model.log_likelihood_and_grad(theta)
    right, slope = problem.reference_value(), problem.reference_gradient()
    assert abs(value[0] - right) <= 1e-6 * abs(right)
    assert np.linalg.norm(gradient[0] - slope) <= WIDE_ERROR * np.linalg.norm(slope)
    if device != "emulated:1":
        _, one_thread = problem.post.sampled.compiled.on_device("emulated:1").log_likelihood_and_grad(theta)
        assert np.linalg.norm(gradient - one_thread) <= 1e-6 * np.linalg.norm(one_thread)


def test_wide_layers_are_chosen() -> None:
    """Neither float64 nor layers with few features use the matrix units."""
    few_features = many_rows("gaussian", "full", "float32")
    doubles = many_rows("categorical", "full", "float64", n=600, sizes=(700, 30, 5, 3))
    for problem in (few_features, doubles):
        assert problem.post.sampled.compiled.on_device("emulated:1").layout(False)["wide_inputs"] == "none"


def test_few_rows_of_many_features_are_shared() -> None:
    """By up to 32 chains, unless the inputs are fewer than 8,192."""

    def inputs(n: int, chains: int) -> str:
        problem = wide_problem("full", (300, 4, 3), n, "floats")
        found: str = problem.post.sampled.compiled.on_device("emulated:1").layout(False, chains)["wide_inputs"]
        return found

    assert inputs(28, 1) == inputs(28, 32) == "floats"
    assert inputs(28, 33) == inputs(27, 1) == "none"


@two_threads_and_cuda
@pytest.mark.parametrize("kernel", [pn.PCN(0.01), pn.PCNL(1e-4)], ids=repr)
def test_wide_chains_are_the_cpus(kernel: Any, device: str) -> None:
    """A few steps from the trained values, in float32 on both sides."""
    post = wide_problem("full", (300, 20, 3), 1100, "bytes").post
    cpu, found = (run(post, kernel, name, draws=4, thin=2) for name in ("cpu", device))
    assert cpu.stats["acceptance_rate"].max() > 0
    np.testing.assert_allclose(found.theta, cpu.theta, rtol=0, atol=1e-5)
