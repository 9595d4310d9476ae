"""The network: checks of its parameters, its float64 evaluation and its exchange with torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patrac_native.network.activations import ACTIVATIONS
from patrac_native.network.network import Network
from problems import random_network, refusals, rng_of

torch = pytest.importorskip("torch")
nn = torch.nn

EPS = np.finfo(np.float64).eps


def rounding(net: Network, X: np.ndarray) -> float:
    """Bound on the difference of two float64 evaluations: each layer rounds a sum of width terms."""
    bound, size = 0.0, float(np.abs(X).max())
    for w, b in zip(net.weights, net.biases, strict=True):
        gain = float(np.abs(w).sum(axis=1).max())
        size = gain * size + float(np.abs(b).max())
        # 1.13 is the largest slope of the five activations (gelu); 8 ulp covers each evaluation of an activation.
        bound = 1.13 * gain * bound + (w.shape[1] + 8) * EPS * size
    return 2 * bound


SCALAR = {
    "tanh": math.tanh,
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * 0.5 * math.erfc(-z / math.sqrt(2)),
    "silu": lambda z: z / (1 + math.exp(-z)),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "softplus": lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_prediction_is_the_sum_of_the_design(activation: str) -> None:
    net = random_network(rng_of("network"), (3, 4, 5, 2), activation)
    X = np.random.default_rng(1).normal(size=(6, 3))
    expected = np.empty((6, 2))
    for r, x in enumerate(X):
        values = list(x)
        for layer, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
            if layer > 0:
                values = [SCALAR[activation](v) for v in values]
            values = [b[i] + sum(w[i, j] * values[j] for j in range(w.shape[1])) for i in range(w.shape[0])]
        expected[r] = values
    assert np.abs(net.predict(X) - expected).max() <= rounding(net, X)
    np.testing.assert_array_equal(net(X), net.predict(X))


@pytest.mark.parametrize("activation", ["gelu", "silu", "sigmoid", "softplus", "tanh"])
def test_tails_of_activations_are_accurate(activation: str) -> None:
    z = -30.0
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation)
    # 1 + tanh and 1 + erf are 0 here. The tails fall like exp(-z) or exp(-z^2 / 2): rounding z costs up to z^2 ulp.
    assert net.predict([[z]])[0, 0] == pytest.approx(SCALAR[activation](z), rel=16 * abs(z) ** 2 * EPS)
    assert np.isfinite(net.predict([[-800.0], [800.0]])).all()


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    activation=st.sampled_from(list(ACTIVATIONS)),
    seed=st.integers(0, 1000),
)
def test_torch_round_trip(sizes: list[int], activation: str, seed: int) -> None:
    net = random_network(np.random.default_rng(seed), sizes, activation)
    X = np.random.default_rng(seed).normal(size=(5, sizes[0]))
    state = torch.get_rng_state()
    module = net.to_torch()
    assert torch.equal(state, torch.get_rng_state())
    assert np.abs(module(torch.tensor(X)).detach().numpy() - net.predict(X)).max() <= rounding(net, X)
    back = Network.from_torch(module)
    assert back.activation == (activation if len(sizes) > 2 else "tanh")
    for ours, theirs in zip((*net.weights, *net.biases), (*back.weights, *back.biases), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_from_torch_passes_over_layers_without_effect() -> None:
    act = nn.GELU()  # one instance in two places: children() would list it once
    module = nn.Sequential(
        nn.Flatten(),
        nn.Sequential(nn.Linear(4, 5), act, nn.Dropout(0.3)),
        nn.Linear(5, 3, bias=False),
        act,
        nn.Identity(),
        nn.Linear(3, 2),
    ).double()
    net = Network.from_torch(module)
    assert net.layer_sizes == (4, 5, 3, 2)
    assert not net.biases[1].any()
    X = np.random.default_rng(0).normal(size=(7, 4))
    expected = module.eval()(torch.tensor(X.reshape(7, 2, 2))).detach().numpy()
    assert np.abs(net.predict(X) - expected).max() <= rounding(net, X)


def test_a_single_linear_layer_and_other_precisions() -> None:
    assert random_network(rng_of("network"), (2, 3, 1)).to_torch(torch.float32)[0].weight.dtype == torch.float32
    linear = nn.Linear(3, 2).to(torch.bfloat16)
    net = Network.from_torch(linear)
    assert net.n_layers == 1
    np.testing.assert_array_equal(net.weights[0], linear.weight.detach().double().numpy())


class Doubled(nn.Linear):
    """A Linear that is not one."""

    def forward(self, input):
        return 2 * super().forward(input)


def test_from_torch_lists_every_unsupported_layer() -> None:
    module = nn.Sequential(
        nn.Conv1d(1, 1, 1),
        nn.Linear(2, 2),
        nn.GELU("tanh"),
        nn.Sequential(nn.BatchNorm1d(2)),
        nn.Flatten(),
        Doubled(2, 1),
    )
    with pytest.raises(TypeError) as caught:
        Network.from_torch(module)
    message = str(caught.value)
    for part in ("0: Conv1d", "2: GELU(approximate='tanh')", "3.0: BatchNorm1d", "4: Flatten", "5: Doubled"):
        assert part in message
    assert "1: Linear" not in message
    assert "Supported: Linear layers" in message


ORDERS: dict[type[Exception], list[tuple[str, list[Any]]]] = {
    ValueError: [
        (
            r"mix activations \(tanh, relu\)",
            [nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)],
        ),
        ("expected an activation at layer 1, found Linear", [nn.Linear(1, 2), nn.Linear(2, 1)]),
        ("expected a Linear layer at layer 0, found Tanh", [nn.Tanh(), nn.Linear(1, 2)]),
        (r"layer 1 \(Sigmoid\) follows the last Linear", [nn.Linear(1, 2), nn.Sigmoid()]),
    ],
    TypeError: [("found no Linear layer in Sequential", [nn.Identity()])],
}


@pytest.mark.parametrize(("error", "message", "layers"), refusals(ORDERS))
def test_from_torch_refuses_other_orders(error: type[Exception], message: str, layers: list[Any]) -> None:
    with pytest.raises(error, match=message):
        Network.from_torch(nn.Sequential(*layers))
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module; got list"):
        Network.from_torch(layers)  # type: ignore[arg-type]  # the point of the test


def test_parameters_are_copied_and_read_only() -> None:
    w = np.ones((1, 1))
    net = Network([w], [np.zeros(1)])
    w[0, 0] = 5.0
    assert net.weights[0][0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        net.weights[0][0, 0] = 2.0
    assert (net.n_layers, net.n_parameters, net.layer_sizes) == (1, 2, (1, 1))


NAN_WEIGHT = [[1.0, 2.0], [3.0, float("nan")]]
PARAMETERS: dict[type[Exception], list[tuple[str, tuple[Any, ...]]]] = {
    ValueError: [
        ("at least one layer", ([], [])),
        ("1 weight matrices and 0 bias vectors", ([[[1.0]]], [])),
        ("activation must be one of tanh, .*, sigmoid, softplus; got 'elu'", ([[[1.0]]], [[0.0]], "elu")),
        (r"weights\[0\] must be a non-empty array of shape .* got \(1,\)", ([[1.0]], [[0.0]])),
        (r"weights\[0\] must be a non-empty", ([np.ones((0, 2))], [[]])),
        (r"biases\[0\] must have shape \(1,\).*got \(2,\)", ([[[1.0]]], [[0.0, 0.0]])),
        (r"weights\[1\] must have 3 columns", ([np.ones((3, 1)), np.ones((1, 2))], [np.zeros(3), [0.0]])),
        (
            r"weights\[1\] must be finite; got nan at \[1, 1\]",
            ([np.ones((2, 1)), NAN_WEIGHT], [[0, 0], [0, 0]]),
        ),
        (r"biases\[0\] must be finite; got inf at \[0\]", ([[[1.0]]], [[np.inf]])),
    ],
    TypeError: [
        (r"weights\[0\] must hold real numbers; got dtype <U1", ([[["a"]]], [[0.0]])),
        (r"weights\[0\] must be a rectangular array", ([[[1.0], [1.0, 2.0]]], [[0.0]])),
    ],
}


@pytest.mark.parametrize(("error", "message", "arguments"), refusals(PARAMETERS))
def test_bad_parameters(error: type[Exception], message: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=message):
        Network(*arguments)


INPUTS: dict[type[Exception], list[tuple[str, Any]]] = {
    ValueError: [
        (r"X must have shape \(n, 1\); got \(3,\)\. Use X\[:, None\]", np.ones(3)),
        ("X must have 1 columns.*got 2", np.ones((3, 2))),
        ("X has no rows", np.ones((0, 1))),
        (r"X must be finite; column 0 has nan first at row 1 \(2 bad", [[1.0], [np.nan], [np.inf]]),
        (r"X must be finite; column 0 \('mass'\) has nan first at row 1", pd.DataFrame({"mass": [3.0, np.nan]})),
    ],
    TypeError: [
        ("X must hold real numbers; got dtype complex128", [[1j]]),
        ("X must hold real numbers; got dtype <U1", [["a"]]),
        ("X must hold real numbers; got dtype object", np.array([[{}]])),
    ],
}


@pytest.mark.parametrize(("error", "message", "X"), refusals(INPUTS))
def test_bad_inputs(error: type[Exception], message: str, X: Any) -> None:
    with pytest.raises(error, match=message):
        random_network(rng_of("network"), (1, 2, 1)).predict(X)


def test_inputs_may_be_tensors_with_a_gradient() -> None:
    net = Network([[[2.0, 1.0]]], [[0.5]])
    X = torch.ones((3, 2), requires_grad=True)
    np.testing.assert_array_equal(net.predict(2 * X), [[6.5]] * 3)


def test_permuting_keeps_the_function() -> None:
    net = random_network(rng_of("network"), (3, 6, 5, 2))
    rng = np.random.default_rng(3)
    orders = [rng.permutation(6), rng.permutation(5)]
    moved = net.permuted(orders)
    X = rng.normal(size=(8, 3))
    assert np.abs(moved.predict(X) - net.predict(X)).max() <= rounding(net, X)
    np.testing.assert_array_equal(moved.weights[1], net.weights[1][orders[1]][:, orders[0]])
    np.testing.assert_array_equal(moved.biases[0], net.biases[0][orders[0]])


@pytest.mark.parametrize(
    ("permutations", "message"),
    [
        ([], "each of the 1 hidden layers; got 0"),
        ([[0, 0, 1]], r"permutations\[0\] must be a permutation of 0\.\.2"),
        ([[0.0, 1.0, 2.0]], r"permutations\[0\] must be a permutation of 0\.\.2"),
    ],
)
def test_bad_permutations(permutations: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_network(rng_of("network"), (1, 3, 1)).permuted(permutations)
