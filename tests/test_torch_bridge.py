"""Densities and draws in torch: values and gradients under every transform, samplers of other libraries, modules."""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, jacrev, vjp

import patrac_native as pn
import problems
from problems import ARCHITECTURES, LIKELIHOODS
from statistical.monte_carlo import batch_means, bound, largest_z

Array = npt.NDArray[Any]


def posterior(architecture: str = "mix", likelihood: str = "gaussian", dtype: str = "float64") -> pn.Posterior:
    rng = problems.rng_of("torch", architecture, likelihood, dtype)
    return problems.problem(rng, (2, 6, 5, 3), 14, architecture, likelihood, dtype=dtype).post


def points_of(post: pn.Posterior, *shape: int) -> torch.Tensor:
    rng = problems.rng_of("points", shape)
    values = post.theta_map + 0.3 * rng.normal(size=(*shape, post.dim))
    return torch.from_numpy(values.astype(post.network.dtype))


@pytest.mark.parametrize(
    ("likelihood", "architecture", "dtype"),
    problems.balanced([(name,) for name in LIKELIHOODS * 2], ARCHITECTURES, ("float32", "float64")),
)
def test_values_and_gradients_are_those_of_the_posterior(likelihood: str, architecture: str, dtype: str) -> None:
    """Equal in float64; in float32 the value is rounded to it once."""
    post = posterior(architecture, likelihood, dtype)
    points = points_of(post, 4)
    values, gradients = post.log_likelihood_and_grad(points.numpy())
    function = post.to_torch()
    recorded = points.clone().requires_grad_()
    found = function(recorded)
    found.sum().backward()
    assert found.dtype == points.dtype and recorded.grad is not None
    np.testing.assert_array_equal(found.detach().numpy(), np.asarray(values).astype(dtype))
    np.testing.assert_array_equal(recorded.grad.numpy(), gradients)
    np.testing.assert_array_equal(function(points).numpy(), np.asarray(values).astype(dtype))


TRANSFORMS: dict[str, Any] = {
    "vmap(grad)": lambda f, x: torch.vmap(grad(f))(x),
    "grad of the sum": lambda f, x: grad(lambda at: f(at).sum())(x),
    "grad(vmap)": lambda f, x: grad(lambda at: torch.vmap(f)(at).sum())(x),
    "vmap(grad_and_value)": lambda f, x: torch.vmap(grad_and_value(f))(x)[0],
    "grad, one by one": lambda f, x: torch.stack([grad(f)(at) for at in x]),
    "jacrev": lambda f, x: torch.stack([jacrev(f)(at) for at in x]),
    "vjp": lambda f, x: vjp(f, x)[1](torch.ones(len(x), dtype=x.dtype))[0],
    "vmap of vmap(grad)": lambda f, x: torch.vmap(torch.vmap(grad(f)))(x.reshape(2, 2, -1)).reshape(x.shape),
    "another axis": lambda f, x: torch.vmap(grad(f), in_dims=1, out_dims=1)(x.T).T,
    "autograd of vmap": lambda f, x: torch.autograd.grad(
        torch.vmap(f)(recorded := x.clone().requires_grad_()).sum(), recorded
    )[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    post = posterior()
    points = points_of(post, 4)
    _, gradients = post.log_likelihood_and_grad(points.numpy())
    np.testing.assert_array_equal(TRANSFORMS[name](post.to_torch(), points).numpy(), gradients)


def test_values_under_transforms_and_the_chain_rule() -> None:
    post = posterior()
    points = points_of(post, 4)
    values, gradients = post.log_likelihood_and_grad(points.numpy())
    function = post.to_torch()
    np.testing.assert_array_equal(torch.vmap(function)(points).numpy(), values)
    np.testing.assert_array_equal(torch.vmap(grad_and_value(function))(points)[1].numpy(), values)
    slope = grad(lambda z: torch.exp(1e-3 * function(2.0 * z)).sum())(points / 2)
    expected = 2e-3 * np.exp(1e-3 * np.asarray(values))[:, None] * gradients
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-13)


def test_one_native_call_evaluates_all_points_of_vmap() -> None:
    post = posterior()
    density = post.density()

    class Counting:
        """Counts native calls by their number of points."""

        dim, dtype = density.dim, density.dtype

        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        @property
        def core(self) -> Any:
            return self

        def value(self, points: Array, threads: int) -> Any:
            self.calls.append(("value", len(points)))
            return density.core.value(points, threads)

        def value_and_grad(self, points: Array, threads: int) -> Any:
            self.calls.append(("gradient", len(points)))
            return density.core.value_and_grad(points, threads)

    from patrac_native.interop.torch_function import to_torch

    counting = Counting()
    function = to_torch(counting, 1)
    torch.vmap(grad(function))(points_of(post, 5))
    torch.vmap(function)(points_of(post, 6))
    with torch.no_grad():
        function(points_of(post, 7).requires_grad_())
    assert counting.calls == [("gradient", 5), ("value", 6), ("value", 7)]


@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
@pytest.mark.parametrize("density", ["likelihood", "posterior", "collapsed", "collapsed_posterior"])
def test_arguments_are_those_of_the_density(density: Any, coordinates: Any) -> None:
    post = posterior()
    native = post.density(density, coordinates)
    points = torch.from_numpy(0.3 * problems.rng_of("density").normal(size=(3, native.dim)))
    value, slope = native.value_and_grad(points.numpy())
    gradients, values = torch.vmap(grad_and_value(post.to_torch(density, coordinates)))(points)
    np.testing.assert_array_equal(values.numpy(), value)
    np.testing.assert_array_equal(gradients.numpy(), slope)


def test_sampled_variances() -> None:
    net = problems.random_network(problems.rng_of("torch, variance"), (2, 5, 1))
    X, y = np.ones((9, 2)), np.zeros(9)
    post = pn.Posterior(net, pn.Mix(2), problems.PRIOR, pn.Gaussian("sampled", a=2.0, b=1.0), X, y, dtype="float64")
    with pytest.raises(ValueError, match="variance must be given"):
        post.to_torch()
    points = points_of(post, 2)
    np.testing.assert_array_equal(
        post.to_torch(variance=0.3)(points).numpy(), post.log_likelihood(points.numpy(), variance=0.3)
    )
    with_logarithm = torch.cat([points, torch.zeros(2, 1, dtype=torch.float64)], dim=1)
    np.testing.assert_array_equal(
        post.to_torch("posterior", "theta+log_variance")(with_logarithm).numpy(),
        post.density("posterior", "theta+log_variance").value(with_logarithm.numpy()),
    )


def test_second_derivatives_are_refused_rather_than_zero() -> None:
    post = posterior()
    function, at = post.to_torch(), points_of(post)
    for second in (
        lambda: jacrev(grad(function))(at),
        lambda: torch.func.hessian(function)(at),
        lambda: torch.func.jvp(function, (at,), (at,)),
    ):
        with pytest.raises(RuntimeError, match="first derivatives only"):
            second()
    recorded = at.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(recorded), recorded, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        slope.sum().backward()


def test_points_of_other_shapes_dtypes_and_devices() -> None:
    post = posterior(dtype="float32")
    function, points = post.to_torch(), points_of(post, 2)
    (slope,) = torch.autograd.grad(function(wide := points.double().requires_grad_()).sum(), wide)
    assert slope.dtype == torch.float64
    np.testing.assert_array_equal(slope.numpy(), post.log_likelihood_and_grad(points.numpy())[1])
    for bad, error, words in (
        (np.zeros(3), TypeError, "points must be a torch tensor; got ndarray"),
        (torch.zeros(3), ValueError, r"points must have \d+ entries on their last axis; got shape \(3,\)"),
        (torch.zeros(()), ValueError, r"got shape \(\)"),
        (points.to("meta"), ValueError, "points must be on the CPU; got meta"),
        (points.to(torch.complex64), TypeError, "points must be real"),
    ):
        with pytest.raises(error, match=words):
            function(bad)


# Samplers of other libraries


def line() -> tuple[pn.Posterior, Any]:
    """Return a posterior in closed form of six parameters, all output weights, and its exact moments."""
    rng = problems.rng_of("torch, line")
    net = problems.random_network(rng, (1, 5, 1))
    X = rng.normal(size=(30, 1))
    y = net.predict(X)[:, 0] + 0.5 * rng.normal(size=30)
    post = pn.Posterior(net, pn.Out(5), problems.PRIOR, pn.Gaussian(0.25), X, y, dtype="float64")
    return post, post.exact()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyro") is None, reason="not installed: pyro-ppl")
@pytest.mark.parametrize("factor", [1.0, 0.3], ids=["right", "broken"])
def test_pyro_samples_the_posterior(factor: float) -> None:
    """NUTS on the whitened posterior against the closed form; 0.3 times its logarithm is found to be another one."""
    from pyro.infer import MCMC, NUTS

    post, exact = line()
    function = post.to_torch("posterior", "whitened")
    torch.manual_seed(0)
    kernel = NUTS(potential_fn=lambda state: -factor * function(state["z"]), max_tree_depth=4)
    run = MCMC(
        kernel,
        num_samples=300,
        warmup_steps=100,
        initial_params={"z": torch.zeros(post.dim, dtype=torch.float64)},
        disable_progbar=True,
    )
    run.run()
    z = run.get_samples()["z"].numpy()
    draws = pn.Draws.from_array(post, z * np.sqrt(post.prior_variance), sampler="Pyro NUTS")
    values = np.concatenate([draws.theta, (draws.theta - exact.mean) ** 2], axis=-1)
    expected = np.concatenate([exact.mean, np.diag(exact.covariance)])
    z_score, limit = largest_z(batch_means(values, 15), expected), bound(2 * post.dim, 14)
    assert z_score < limit if factor == 1.0 else z_score > limit
    if factor == 1.0:
        assert "Pyro NUTS" in str(draws.summary(post.data.X))


@pytest.mark.skipif(importlib.util.find_spec("posteriors") is None, reason="not installed: posteriors")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_posteriors_follows_the_gradient() -> None:
    """Langevin steps without noise are gradient ascent on the posterior, by other arithmetic in NumPy."""
    import posteriors

    post, _ = line()
    function = post.to_torch("posterior", "whitened")
    deviation, rate = np.sqrt(post.prior_variance), 0.002
    transform = posteriors.sgmcmc.sgld.build(
        lambda params, batch: (function(params["z"]), torch.tensor([])), lr=rate, temperature=0.0
    )
    state = transform.init({"z": torch.zeros(post.dim, dtype=torch.float64)})
    z = np.zeros(post.dim)
    for _ in range(20):
        state, _ = transform.update(state, None)
        z = z + rate * (deviation * post.log_likelihood_and_grad(deviation * z)[1] - z)
    np.testing.assert_allclose(state.params["z"].detach().numpy(), z, rtol=1e-10)
    assert np.abs(z).min() > 1e-3


# Draws as modules


def drawn(architecture: str, dtype: str) -> pn.Draws:
    """Return a few draws, some far from the trained values."""
    post = posterior(architecture, dtype=dtype)
    return pn.Draws.from_array(post, points_of(post, 2, 3).numpy(), sampler="noise")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_modules_are_the_networks_of_the_draws(architecture: str, dtype: str) -> None:
    """Sums of at most 12 products over three layers in another order: a few hundred units of rounding."""
    draws = drawn(architecture, dtype)
    X = problems.rng_of("modules").normal(size=(5, 2))
    inputs = torch.tensor(X, dtype=getattr(torch, dtype))
    f = draws.predict(X)
    tolerance = 300 * float(np.finfo(dtype).eps)
    for chain in range(2):
        for draw in range(3):
            module = draws.network.to_torch(draws.theta[chain, draw])
            np.testing.assert_allclose(module(inputs).detach().numpy(), f[chain, draw], rtol=tolerance, atol=tolerance)
    flat = draws.theta.reshape(6, -1)
    module, parameters = draws.network.to_torch(flat[0]), draws.network.torch_parameters(flat)
    assert set(parameters) == {name for name, _ in module.named_parameters()}
    together = torch.vmap(lambda one: functional_call(module, one, (inputs,)))(parameters)
    np.testing.assert_allclose(together.numpy().reshape(f.shape), f, rtol=tolerance, atol=tolerance)
    assert np.ptp(f, axis=(0, 1)).min() > 100 * tolerance


def test_a_module_keeps_the_trained_nodes_in_their_order() -> None:
    draws = drawn("mix", "float64")
    trained, module = draws.network.net.to_torch(), draws.network.to_torch(draws.theta[1, 2])
    changed = sum(
        int((one != other).sum()) for one, other in zip(trained.parameters(), module.parameters(), strict=True)
    )
    assert changed == draws.network.dim
    module.load_state_dict(trained.state_dict())


def test_parameters_without_a_bayesian_entry_are_one_copy() -> None:
    post = posterior("out")
    parameters = post.network.torch_parameters(points_of(post, 6).numpy(), dtype=torch.float32)
    assert parameters["0.weight"].stride(0) == 0 and parameters["4.weight"].stride(0) > 0
    assert {value.dtype for value in parameters.values()} == {torch.float32}
    assert {len(value) for value in parameters.values()} == {6}


def test_a_module_of_sep_is_stored_and_read() -> None:
    draws = drawn("sep", "float64")
    module = draws.network.to_torch(draws.theta[0, 1])
    again = pickle.loads(pickle.dumps(module))
    x = torch.ones(3, 2, dtype=torch.float64)
    assert torch.equal(again(x), module(x))
