"""Training: a good fit, the best parameters, reproducibility, its stopping rules and its warnings."""

from __future__ import annotations

import json
import math
import signal
import threading
import warnings
from typing import Any, Literal

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, StudentT
from patrac_native.network.activations import ACTIVATIONS
from patrac_native.network.network import Network
from patrac_native.training.descent import OPTIMIZERS, Problem
from patrac_native.training.preparation import PRESETS
from patrac_native.training.training import train

torch = pytest.importorskip("torch")

EPS32, EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)


def loss_of(net: Network, likelihood: Likelihood, X: np.ndarray, y: np.ndarray, l2: float) -> float:
    """Return the penalised loss in float64."""
    targets = likelihood.check_targets(y, len(X), net.layer_sizes[-1])
    squares = sum(float((p**2).sum()) for p in (*net.weights, *net.biases))
    return -float(likelihood.log_likelihood(net.predict(X), targets)) + l2 / 2 * squares


def short(X: np.ndarray, y: np.ndarray, *, hidden: int = 8, **arguments: Any) -> Network:
    """Train a small network for a few epochs; its fit does not matter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="train: the fit is poor")
        return train(
            [X.shape[1], hidden, 1],
            X,
            y,
            **{"max_epochs": 20, "validation_fraction": 0, "progress": False, **arguments},
        )


def test_all_rows_fit_the_sine_problem_without_a_warning() -> None:
    X, y = problems.sine()
    with warnings.catch_warnings(action="error"):
        net = train([1, 50, 50, 1], X, y, likelihood=Gaussian(1.0), l2=1.0, validation_fraction=0, seed=0)
    history = net.history
    assert history is not None
    assert net.layer_sizes == (1, 50, 50, 1)
    assert history.stopped == "patience"
    assert history.validation_mse is None
    assert len(history.loss) == history.best_epoch + 1 + history.settings["patience"]
    grid = np.linspace(-5, 5, 101)[:, None]
    # A smooth fit with some 8 effective parameters has a standard error of f of about sqrt(8 / 100) = 0.28 from the
    # noise; sin itself has root mean square 0.74, which is what a failed fit would show.
    assert np.sqrt(np.mean((net.predict(grid)[:, 0] - np.sin(grid[:, 0])) ** 2)) < 0.4
    assert history.data_loss < history.constant_loss
    json.dumps(history.to_dict())


@pytest.mark.parametrize("batch_size", [None, 32])
@pytest.mark.parametrize(
    ("likelihood", "m"), [(Gaussian([0.5, 2.0]), 2), (Categorical(), 3), (Categorical(scale=50.0), 3), (Bernoulli(), 2)]
)
def test_history_describes_the_returned_parameters(likelihood: Likelihood, m: int, batch_size: int | None) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(70, 3))
    raw = np.stack([X[:, 0] + X[:, 1], X[:, 1] - X[:, 2]], axis=1)
    y = raw if likelihood.name == "gaussian" else (raw > 0).astype(int)
    if likelihood.name == "categorical":
        y = (raw > 0).sum(axis=1)
    net = train(
        [3, 8, m],
        X,
        y,
        likelihood=likelihood,
        l2=0.3,
        validation_fraction=0,
        batch_size=batch_size,
        max_epochs=60,
        dtype="float64",
        seed=3,
    )
    history = net.history
    assert history is not None
    assert history.stopped == "max_epochs"
    assert history.loss.shape == (60,)
    assert history.best_loss == history.loss.min() == history.loss[history.best_epoch]
    # Sums of 70 rows and 59 parameters, each within a few ulp of the total.
    assert history.best_loss == pytest.approx(loss_of(net, likelihood, X, y, 0.3), rel=256 * EPS64)
    assert history.data_loss == pytest.approx(loss_of(net, likelihood, X, y, 0.0), rel=256 * EPS64)
    targets = likelihood.check_targets(y, 70, m)
    assert history.constant_loss == -likelihood.constant_log_likelihood(targets)
    assert history.data_loss < history.constant_loss


def test_float32_parameters_are_those_of_the_loss() -> None:
    X, y = problems.sine(40)
    net = short(X, y, l2=0.5)
    assert net.history is not None
    # About 100 float32 operations enter the loss, each within half an ulp of a partial sum below it.
    assert net.history.best_loss == pytest.approx(loss_of(net, Gaussian(1.0), X, y, 0.5), rel=100 * EPS32)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mini_batch_gradients_add_up_to_the_full_gradient(activation: str) -> None:
    # One SGD step without penalty: with one batch of all rows, and the mean of the steps of single batches of each row.
    X, y = problems.sine(6)
    first = short(X, y, activation=activation, optimizer="sgd", learning_rate=1e-3, l2=0, max_epochs=1, dtype="float64")
    recorded: list[torch.Tensor] = []

    class Recorder(torch.optim.Optimizer):
        """An optimiser that records each batch's gradient and does not change the parameters."""

        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})

        def step(self, closure: Any = None) -> Any:
            loss = closure()
            recorded.append(self.param_groups[0]["params"][0].grad.clone())
            return loss

    for size in (6, 1, 2):
        recorded.clear()
        net = short(
            X, y, activation=activation, optimizer=Recorder, batch_size=size, l2=0, max_epochs=1, dtype="float64"
        )
        assert len(recorded) == 6 // size
        np.testing.assert_array_equal(net.weights[0], first.weights[0])  # epoch 0 is the initial network in each
        mean = torch.stack(recorded).mean(dim=0)
        if size == 6:
            full = mean
        # Each entry is a sum over 6 rows; its terms are at most 6 times the largest entry of a batch's gradient.
        assert float((mean - full).abs().max()) <= 64 * EPS64 * float(torch.stack(recorded).abs().max())


def test_mini_batches_train_a_running_mean_of_the_parameters() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), rng.integers(0, 2, 60)
    # All rows alike: every mini-batch then has the loss of the whole, so the paths agree to rounding.
    X[:], y[:] = 0.5, 1
    likelihood = Categorical(scale=7.0)
    arguments: dict[str, Any] = {"likelihood": likelihood, "optimizer": "sgd", "learning_rate": 0.01, "l2": 0.0}

    def trained(max_epochs: int, **options: Any) -> Network:
        with warnings.catch_warnings(action="ignore"):  # nothing beats a constant here
            return train(
                [1, 4, 2], X, y, max_epochs=max_epochs, validation_fraction=0, dtype="float64", **arguments, **options
            )

    # The loss falls with every step, so the best parameters are the last ones.
    path = [trained(steps + 1) for steps in range(13)]
    parameters = [[*net.weights, *net.biases] for net in path]
    mean = parameters[0]
    for step in range(1, 13):
        share = 1 / min(step, 3)  # of an epoch of three batches
        mean = [old + share * (new - old) for old, new in zip(mean, parameters[step], strict=True)]
    expected = Network(mean[:2], mean[2:], path[0].activation)
    batched = trained(5, batch_size=20)
    assert batched.history is not None
    # Each step rounds a handful of sums of 60 rows.
    for found, wanted in zip([*batched.weights, *batched.biases], mean, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=12 * 64 * EPS64)
    weights = likelihood.row_weights(None, 60)
    loss = -float(weights @ likelihood.log_likelihood_rows(expected.predict(X), y))
    assert batched.history.loss[4] == pytest.approx(loss, rel=12 * 64 * EPS64)


@pytest.mark.parametrize("batch_size", [None, 16])
def test_seed_fixes_the_result_and_leaves_torch_alone(batch_size: int | None) -> None:
    X, y = problems.sine(50)
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first = short(X, y, seed=1, batch_size=batch_size)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(6)
    again, other = short(X, y, seed=1, batch_size=batch_size), short(X, y, seed=2, batch_size=batch_size)
    np.testing.assert_array_equal(first.weights[0], again.weights[0])
    assert (first.weights[0] != other.weights[0]).any()


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, torch.optim.Adagrad])
def test_optimizers_lower_the_loss(optimizer: Any) -> None:
    X, y = problems.sine(40)
    history = short(X, y, optimizer=optimizer, learning_rate=1e-3).history
    assert history is not None
    assert history.best_loss < history.loss[0]


@pytest.mark.parametrize(
    "likelihood",
    [
        pn.Gaussian(0.3),
        pn.StudentT(4.0, 0.5),
        pn.HeteroscedasticGaussian(),
        pn.CensoredGaussian(0.4),
        pn.Poisson(),
        pn.NegativeBinomial(0.5),
        pn.Bernoulli(),
        pn.Categorical(),
        pn.DiscreteValues([0.0, 1.0, 3.0]),
    ],
    ids=lambda one: one.name,
)
def test_losses_of_parts_of_the_rows_hold_all_constants(likelihood: Likelihood) -> None:
    """Validation losses of parts are added, and compared with those of other likelihoods."""
    rng = problems.rng_of("training", likelihood.name)
    n = 30
    m = {"class": 3}.get(likelihood.targets, likelihood.outputs_per_target)
    given = {"class": rng.integers(0, 3, n), "binary": rng.integers(0, 2, n), "count": rng.poisson(2.0, n)}
    y = given.get(likelihood.targets, rng.normal(size=n))
    if likelihood.numbers_per_target == 2:
        y = problems.random_bounds(rng, (n, 1))
    if isinstance(likelihood, pn.DiscreteValues):
        y, m = rng.choice([0.0, 1.0, 3.0], n), 3
    offset = likelihood.check_offset(rng.normal(size=n), n, m) if likelihood.takes_offset else None
    targets = likelihood.check_targets(y, n, m)
    problem = Problem(
        (2, 4, m),
        "tanh",
        likelihood,
        rng.normal(size=(n, 2)),
        targets,
        rng.uniform(0.5, 2.0, n) * (rng.random(n) < 0.7),
        optimizer="adam",
        learning_rate=0.1,
        batch_size=n,
        seed=0,
        validation_seed=0,
        dtype="float64",
        offset=offset,
    )
    theta = rng.normal(size=problem.sizes[1] * 3 + m * 5)
    rows = np.flatnonzero(problem.row_weights)
    expected = -problem.row_weights[rows] * problem.losses(problem.network(theta), rows)
    for part in (rows, rows[:7], rows[-1:]):
        weights = np.where(np.isin(np.arange(n), part), problem.row_weights, 0.0)
        found = problem.compiled(weights).log_likelihood(theta[None], 1)[0]
        assert found == pytest.approx(expected[np.isin(rows, part)].sum(), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("likelihood", [pn.Poisson(), pn.CensoredGaussian(0.4)], ids=lambda one: one.name)
def test_a_row_without_weight_takes_no_part_in_a_mini_batch(likelihood: Likelihood) -> None:
    """Not even one whose log-likelihood is not finite, nor in a batch of such rows alone."""
    rng = problems.rng_of("training", "weights")
    X, y = rng.normal(size=(40, 1)), rng.poisson(2.0, 40).astype(float)
    if likelihood.numbers_per_target == 2:
        y = problems.random_bounds(rng, (40, 1))
    weights = (rng.random(40) < 0.5).astype(float)
    X[weights == 0] = 1e6
    net = train(
        [1, 4, 1],
        X,
        y,
        likelihood=likelihood,
        sample_weight=weights,
        activation="relu",
        batch_size=2,
        max_epochs=5,
        l2=0.1,
        validation_fraction=0,
        progress=False,
    )
    assert net.history is not None and np.isfinite(net.history.loss).all() and len(net.history.loss) == 5


def test_adam_is_that_of_torch() -> None:
    X, y = problems.sine(40)
    for size in (None, 16):
        ours, theirs = (
            short(X, y, optimizer=one, batch_size=size, dtype="float64") for one in ("adam", torch.optim.Adam)
        )
        for mine, other in zip([*ours.weights, *ours.biases], [*theirs.weights, *theirs.biases], strict=True):
            # A few dozen steps of bounded length, each with a few roundings.
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_parameters_are_those_of_torch(dtype: Literal["float32", "float64"]) -> None:
    X, y = problems.sine(5)
    net = short(X, y, dtype=dtype, max_epochs=1, l2=0.0)
    generator = torch.Generator().manual_seed(net.history.settings["seed"])
    for weights, biases in zip(net.weights, net.biases, strict=True):
        count = weights.size + biases.size
        uniform = torch.rand(count, dtype=getattr(torch, dtype), generator=generator).double().numpy()
        expected = (2 * uniform - 1) / np.sqrt(weights.shape[1])
        found = np.concatenate([weights.ravel(), biases])
        np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


def test_preset_of_the_paper_and_what_overrides_it() -> None:
    X, y = problems.sine(20)
    history = short(X, y, preset="paper").history
    assert history is not None
    assert {key: history.settings[key] for key in PRESETS["paper"]} == {**PRESETS["paper"], "max_epochs": 20}
    assert tuple(PRESETS["paper"][name] for name in ("learning_rate", "l2", "patience")) == (1e-6, 1.0, 20)
    overridden = short(X, y, preset="paper", learning_rate=0.1, l2=0).history
    assert overridden is not None
    assert (overridden.settings["learning_rate"], overridden.settings["l2"], overridden.settings["patience"]) == (
        0.1,
        0,
        20,
    )


def test_patience_counts_consecutive_epochs_without_improvement() -> None:
    X, y = problems.sine(30)
    # A step that only makes things worse: the initial parameters stay best.
    worse = short(X, y, optimizer="sgd", learning_rate=0.05, l2=0, patience=7, max_epochs=500).history
    assert worse is not None
    assert worse.stopped == "patience"
    assert len(worse.loss) == worse.best_epoch + 1 + 7
    assert (worse.loss[worse.best_epoch + 1 :] >= worse.best_loss).all()


def test_poor_fit_warns_with_both_losses() -> None:
    X, y = problems.sine()
    with pytest.warns(
        UserWarning, match=r"the fit is poor.*negative log-likelihood \d+.*no better than 158\.568.*raise"
    ):
        net = train([1, 5, 1], X, y + 1, l2=1.0, validation_fraction=0, max_epochs=2)
    assert net.history is not None
    assert net.history.data_loss >= net.history.constant_loss


def test_divergence_keeps_the_best_and_warns() -> None:
    X, y = problems.sine()
    with pytest.warns(UserWarning, match=r"loss became (inf|nan) in epoch \d+.*Lower learning_rate"):
        net = short(X, y, optimizer="sgd", learning_rate=100.0, max_epochs=200)
    assert net.history is not None
    assert net.history.stopped == "non-finite"
    assert not np.isfinite(net.history.loss[-1])
    assert net.history.best_loss == net.history.loss[:-1].min()


def test_loss_that_is_never_finite_raises() -> None:
    X, y = problems.sine()
    with pytest.raises(ValueError, match=r"the loss is inf at the initial parameters\. Standardise X and y"):
        short(X, y * 1e30)


class InterruptedSGD(torch.optim.SGD):
    """An optimiser that raises KeyboardInterrupt in the fifth step."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        InterruptedSGD.calls += 1
        if InterruptedSGD.calls == 5:
            raise KeyboardInterrupt
        return super().step(closure)


def test_ctrl_c_keeps_the_best() -> None:
    X, y = problems.sine()
    InterruptedSGD.calls = 0
    with pytest.warns(UserWarning, match="interrupted after 4 epochs; the best parameters, of epoch 3"):
        net = short(X, y, optimizer=InterruptedSGD, learning_rate=1e-4)
    assert net.history is not None
    assert net.history.stopped == "interrupted"
    InterruptedSGD.calls = 4
    with pytest.raises(KeyboardInterrupt):  # nothing to keep yet
        short(X, y, optimizer=InterruptedSGD, learning_rate=1e-4)


def test_ctrl_c_ends_epochs_of_the_core() -> None:
    X, y = problems.sine()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background leaves it ignored
    timer = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
    try:
        timer.start()
        with pytest.warns(UserWarning, match="interrupted after"):  # or after some ten seconds without
            net = short(X, y, max_epochs=5_000_000, patience=5_000_000)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert net.history is not None and net.history.stopped == "interrupted"
    assert net.history.best_loss == min(net.history.loss)


def test_progress_bar_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = problems.sine(20)
    short(X, y, progress=None)  # captured standard error is no terminal
    assert capsys.readouterr().err == ""
    short(X, y, progress=True)
    assert "training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sampled", "fixed"),
    [
        (Gaussian("sampled"), Gaussian(1.0)),
        (Gaussian("sampled", a=2.0, b=0.1), Gaussian(1.0)),
        (StudentT(4.0, "sampled"), StudentT(4.0, 1.0)),
    ],
)
def test_a_sampled_variance_is_1_in_the_training(sampled: Likelihood, fixed: Likelihood) -> None:
    X, y = problems.sine(40)
    arguments: dict[str, Any] = {"max_epochs": 30, "validation_fraction": 0.5}
    nets = [short(X, y, likelihood=likelihood, **arguments) for likelihood in (sampled, fixed)]
    for one, other in zip(nets[0].weights, nets[1].weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_hidden_layer_reaches_ridge_regression() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 3))
    y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 + rng.normal(size=50)
    arguments: dict[str, Any] = {"optimizer": "lbfgs", "learning_rate": 1.0, "max_epochs": 20, "dtype": "float64"}
    net = train([3, 1], X, y, l2=2.0, validation_fraction=0, **arguments)
    design = np.column_stack([X, np.ones(50)])
    exact = np.linalg.solve(design.T @ design + 2.0 * np.eye(4), design.T @ y)
    # torch's LBFGS stops when the loss changes by less than 1e-9. The Hessian's eigenvalues exceed l2 = 2, so a loss
    # within 1e-9 of its minimum is met within sqrt(2 * 1e-9 / 2) of the solution.
    np.testing.assert_allclose([*net.weights[0][0], net.biases[0][0]], exact, rtol=0, atol=math.sqrt(1e-9))


BAD_ROW = np.column_stack([np.ones(4), [1.0, 2.0, np.nan, np.inf]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"X": BAD_ROW, "layer_sizes": [2, 3, 1]}, ValueError, r"X must be finite; column 1 has nan first at row 2"),
        ({"y": [1.0, np.inf, 1.0, 1.0]}, ValueError, "y must be finite; column 0 has inf first at row 1"),
        ({"X": np.ones((0, 1)), "y": []}, ValueError, "X has no rows"),
        ({"X": np.ones((4, 2))}, ValueError, "X must have 1 columns.*got 2"),
        ({"y": np.ones(3)}, ValueError, r"y must have shape \(4,\) or \(4, 1\).*got \(3,\)"),
        ({"layer_sizes": [1]}, ValueError, "at least inputs and outputs"),
        ({"layer_sizes": [1, 0, 1]}, ValueError, r"layer_sizes\[1\] must be at least 1; got 0"),
        ({"layer_sizes": [1, 2.5, 1]}, TypeError, r"layer_sizes\[1\] must be an integer; got 2\.5"),
        ({"layer_sizes": 3}, TypeError, "layer_sizes must be a sequence of widths"),
        ({"activation": "swish"}, ValueError, "activation must be one of tanh, relu.*got 'swish'"),
        ({"dtype": "float16"}, ValueError, "dtype must be 'float32' or 'float64'; got 'float16'"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive"),
        ({"l2": -1.0}, ValueError, "l2 must be zero or positive, and finite; got -1"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction must be at least 0 and below 1; got 1"),
        ({"validation_fraction": -0.1}, ValueError, "validation_fraction must be zero or positive"),
        ({"sample_weight": np.ones(3)}, ValueError, r"sample_weight must have shape \(4,\)"),
        ({"patience": 0}, ValueError, "patience must be at least 1"),
        ({"max_epochs": 0}, ValueError, "max_epochs must be at least 1"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 2**64}, ValueError, r"seed must be below 2\^64"),
        ({"optimizer": "newton"}, ValueError, "optimizer must be one of adam, nadam.*got 'newton'"),
        ({"preset": "fast"}, ValueError, "preset must be one of default, paper or None; got 'fast'"),
        ({"likelihood": Categorical()}, ValueError, "at least 2; got 1. Use Bernoulli"),
        (
            {"likelihood": "gaussian"},
            TypeError,
            r"likelihood must be an object such as Gaussian\(1\.0\).*got 'gaussian'",
        ),
        ({"likelihood": Categorical}, TypeError, "likelihood must be an object .*got <class .*Categorical"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    call = {"layer_sizes": [1, 3, 1], "X": np.ones((4, 1)), "y": np.ones(4), **arguments}
    with pytest.raises(error, match=message):
        train(**call)
