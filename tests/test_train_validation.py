"""Validation of a training: the rows it rests on, what it chooses, what it reports, and that it helps."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import patrac_native as pn
from patrac_native.network.network import Network, TrainingHistory
from patrac_native.training import penalty_search
from patrac_native.training.descent import Descent, Problem
from patrac_native.training.penalty_search import validation_folds
from problems import linear

torch = pytest.importorskip("torch")

EPS64 = float(np.finfo(np.float64).eps)


def problem(
    X: np.ndarray,
    y: np.ndarray,
    likelihood: pn.Likelihood | None = None,
    weights: np.ndarray | None = None,
    **settings: Any,
) -> Problem:
    """Return the problem of a network with one hidden layer of five nodes in float64."""
    likelihood = likelihood or pn.Gaussian(1.0)
    m = 1 if likelihood.targets != "class" else int(y.max()) + 1
    standard: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01, "batch_size": len(X)}
    standard |= {"seed": 3, "validation_seed": 3, "dtype": "float64"}
    return Problem(
        (X.shape[1], 5, m),
        "tanh",
        likelihood,
        X,
        likelihood.check_targets(y, len(X), m),
        likelihood.row_weights(weights, len(X)),
        **(standard | settings),
    )


def history_of(net: Network) -> TrainingHistory:
    """Return the history of a trained network."""
    assert net.history is not None
    return net.history


@pytest.mark.parametrize("batch_size", [40, 8])
def test_rows_of_weight_zero_take_no_part_in_the_training(batch_size: int) -> None:
    X, y = linear(40)
    changed = y.copy()
    changed[:10] += 100.0
    for left_out, is_equal in ((slice(10), True), (slice(10, 20), False)):
        weights = np.ones(40)
        weights[left_out] = 0.0
        descents = (Descent(problem(X, of, batch_size=batch_size), 1.0, weights[None]) for of in (y, changed))
        one, other = (list(descent.epochs(5))[-1] for descent in descents)
        assert np.array_equal(one.best_theta, other.best_theta) == is_equal


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_compiled_epochs_are_those_of_single_updates(
    dtype: str, threads: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """37 epochs are two whole calls of the core and a shorter one; threads take networks, or share the rows of each."""
    if shared:
        monkeypatch.setattr("patrac_native.training.descent._ONE_THREAD_BELOW", 0)
    n = 600 if shared else 40
    X, y = linear(n)
    held = np.array([np.arange(n) % 3 == fold for fold in range(3)])
    weights, unseen = np.where(held, 0.0, 1.0), held / n
    descent = Descent(problem(X, y, dtype=dtype), 0.5, weights, unseen, threads=threads)
    compiled, single = list(descent.epochs(37)), list(descent._stepped_epochs(37))
    assert len(compiled) == len(single) == 37
    for one, other in zip(compiled, single, strict=True):
        np.testing.assert_array_equal(one.best_theta, other.best_theta)
        np.testing.assert_array_equal(one.unseen_losses, other.unseen_losses)
        # The squared norms of the 26 parameters are added in another order, those of float32 in double.
        np.testing.assert_allclose(one.losses, other.losses, rtol=26 * float(np.finfo(dtype).eps))
    assert not np.array_equal(compiled[0].best_theta, compiled[-1].best_theta)


def test_updates_of_adam_are_those_of_the_paper() -> None:
    """Algorithm 1 of Kingma & Ba (2015), written out in float64; an update differs by a few roundings."""
    X, y = linear(40)
    rate, first, second, epsilon = 0.01, 0.9, 0.999, 1e-8
    likelihood = pn.Gaussian(1.0)
    one = problem(X, y, likelihood, learning_rate=rate)
    epochs = list(Descent(one, 0.5).epochs(25))
    model, theta = one.compiled(one.row_weights), epochs[0].best_theta[0].copy()
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for t, epoch in enumerate(epochs, 1):
        value, gradient = model.log_likelihood_and_grad(theta[None], 1)
        assert epoch.losses[0] == pytest.approx(0.25 * theta @ theta - value[0], rel=1e-12)
        g = 0.5 * theta - gradient[0]
        m, v = first * m + (1 - first) * g, second * v + (1 - second) * g**2
        theta = theta - rate * (m / (1 - first**t)) / (np.sqrt(v / (1 - second**t)) + epsilon)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [60, 2200])
def test_validation_mse_is_that_of_networks_trained_on_the_other_rows(n: int, weighted: bool) -> None:
    X, y = linear(n)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, n) if weighted else None
    if weights is not None:
        weights[:7] = 0.0
    arguments: dict[str, Any] = {"seed": 3, "dtype": "float64", "progress": False}
    net = pn.train([3, 5, 1], X, y, sample_weight=weights, max_epochs=300, patience=50, **arguments)
    history = history_of(net)
    chosen = history.settings["validation"]
    folds = validation_folds(problem(X, y, weights=weights), 0.2)
    assert len(folds) == chosen["folds"] == (5 if n == 60 else 1)
    assert sum(map(len, folds)) == chosen["rows"]
    if n == 60:  # the folds hold every row with a weight once
        assert sorted(np.concatenate(folds).tolist()) == list(range(7 if weighted else 0, 60))
    arguments |= {"l2": chosen["l2"], "validation_fraction": 0, "max_epochs": chosen["epochs"]}
    squares = total = loss = 0.0
    for held in folds:
        rest = np.setdiff1d(np.arange(n), held)
        held_weight = np.ones(len(held)) if weights is None else weights[held]
        alone = pn.train(
            [3, 5, 1], X[rest], y[rest], sample_weight=None if weights is None else weights[rest], **arguments
        )
        residuals = alone.predict(X[held])[:, 0] - y[held]
        squares += held_weight @ residuals**2
        loss -= pn.Gaussian(1.0).log_likelihood(residuals[:, None], np.zeros((len(held), 1)), held_weight)
        total += held_weight.sum()
    # Sums of up to 2,200 rows are rounded in another order in each of up to 300 epochs.
    assert history.validation_mse is not None
    np.testing.assert_allclose(history.validation_mse, [squares / total], rtol=1e-6)
    assert chosen["loss"] == pytest.approx(float(loss) / total, rel=1e-6)
    assert chosen["l2"] == min(chosen["trials"], key=lambda trial: trial[1])[0]


@pytest.mark.parametrize("batch_size", [None, 32])
def test_the_network_is_trained_on_all_rows_with_what_was_chosen(batch_size: int | None) -> None:
    X, y = linear(120)
    arguments: dict[str, Any] = {"batch_size": batch_size, "progress": False, "seed": 1}
    net = pn.train([3, 8, 1], X, y, l2=0.1, max_epochs=2000, patience=100, **arguments)
    history = history_of(net)
    chosen = history.settings["validation"]
    assert history.stopped == "validation"
    assert history.settings["l2"] == chosen["l2"] == 0.1 and chosen["trials"] == []
    assert len(history.loss) == chosen["epochs"] < 2000
    again = pn.train(
        [3, 8, 1], X, y, l2=0.1, max_epochs=chosen["epochs"], validation_fraction=0, patience=100, **arguments
    )
    for one, other in zip(net.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    copy = TrainingHistory.from_dict(history.to_dict())
    np.testing.assert_array_equal(copy.validation_mse, history.validation_mse)
    assert copy.settings["validation"] == chosen


def test_validation_keeps_noise_out_of_the_fit() -> None:
    X, y = linear(400)
    X_test, y_test = linear(4000, seed=1)
    arguments: dict[str, Any] = {"progress": False, "max_epochs": 3000}
    fitted = pn.train([3, 50, 1], X, y, **arguments)
    overfitted = pn.train([3, 50, 1], X, y, l2=0.01, validation_fraction=0, **arguments)
    squares = (fitted.predict(X_test)[:, 0] - y_test) ** 2
    assert squares.mean() < 1.15 < 1.3 < ((overfitted.predict(X_test)[:, 0] - y_test) ** 2).mean()
    mse = history_of(fitted).validation_mse
    assert mse is not None and mse.shape == (1,)
    # The mean of 400 squared residuals of variance 1 has a standard error of sqrt(2 / 400).
    assert abs(mse[0] - squares.mean()) < 4 * np.sqrt(2 / 400)


def test_penalties_are_relative_to_noise_variance_and_weights() -> None:
    X, y = linear(50)
    arguments: dict[str, Any] = {"max_epochs": 5, "progress": False, "dtype": "float64"}

    def penalties(**more: Any) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="train: the fit is poor")
            history = history_of(pn.train([3, 4, 1], X, y, **arguments, **more))
        return np.array([penalty for penalty, _ in history.settings["validation"]["trials"]])

    plain = penalties()
    np.testing.assert_allclose(penalties(likelihood=pn.Gaussian(0.01)), 100 * plain)
    np.testing.assert_allclose(penalties(sample_weight=np.full(50, 3.0)), 3 * plain)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"\(l2 = \S+ and .* chosen on validation rows, which a closer fit .*\)\..* or give inputs that say more"),
        ({"l2": 1e3}, r"\(validation rows chose \d+ epochs? at l2 = 1e\+03, and more epochs .*\)\..* or lower l2\.$"),
        ({"l2": 1e-3, "max_epochs": 1}, r"1 epoch at l2 = 0\.001, all of max_epochs = 1\)\..* raise .* or lower l2\.$"),
        ({"max_epochs": 1}, r"l2 = \S+ and 1 epoch were chosen .*, all of max_epochs = 1\)\..* or max_epochs\.$"),
    ],
)
def test_the_remedy_of_a_poor_fit_agrees_with_the_choice(given: dict[str, Any], message: str) -> None:
    """A lower penalty is no remedy where validation rows preferred a larger one."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    with pytest.warns(UserWarning, match=message) as raised:
        pn.train([3, 4, 1], X, y, progress=False, **given)
    assert ("lower l2" in str(raised[0].message)) == ("l2" in given)


def test_classes_are_stratified_and_rare_ones_never_held_out() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((203, 2))
    y = np.r_[np.zeros(150, int), np.ones(50, int), np.full(3, 2)]
    folds = validation_folds(problem(X, y, pn.Categorical()), 0.2)
    for held in folds:
        assert np.bincount(y[held], minlength=3).tolist() == [30, 10, 0]
    likelihood = pn.Categorical()
    net = pn.train([2, 4, 3], X, y, likelihood=likelihood, max_epochs=100, patience=20, progress=False, dtype="float64")
    history = history_of(net)
    assert history.validation_mse is None
    chosen = history.settings["validation"]
    # Held-out rows of unrelated classes cannot be predicted better than by their frequencies.
    frequencies = np.array([150, 50, 3]) / 203
    entropy = -(0.75 * np.log(frequencies[0]) + 0.25 * np.log(frequencies[1]))
    assert chosen["loss"] == pytest.approx(entropy, abs=0.05)


def test_zeros_and_ones_of_one_output_are_stratified() -> None:
    X = np.random.default_rng(0).standard_normal((50, 1))
    y = (np.arange(50) < 10).astype(int)
    assert [y[held].sum() for held in validation_folds(problem(X, y, pn.Bernoulli()), 0.2)] == [2] * 5


@pytest.mark.parametrize("n", [100, 2200])
def test_no_validation_row_has_a_copy_among_the_others(n: int) -> None:
    X, y = linear(n)
    X, y = np.concatenate([X, X[: n // 2]]), np.concatenate([y, y[: n // 2]])
    for held in validation_folds(problem(X, y), 0.2):
        rest = np.setdiff1d(np.arange(len(y)), held)
        assert len(held) and not set(y[held].tolist()) & set(y[rest].tolist())


@pytest.mark.parametrize(("fraction", "parts"), [(0.5, 2), (0.9, 2), (0.3, 3), (0.1, 10)])
def test_the_fraction_sets_the_number_of_parts(fraction: float, parts: int) -> None:
    X, y = linear(100)
    assert len(validation_folds(problem(X, y), fraction)) == parts
    X, y = linear(2000)
    [held] = validation_folds(problem(X, y), fraction)
    assert len(held) == round(2000 * fraction)


def test_other_optimisers_train_the_folds_one_by_one() -> None:
    X, y = linear(60)
    found = []
    for optimizer in ("adam", torch.optim.Adam):
        setup = problem(X, y, optimizer=optimizer)
        folds = validation_folds(setup, 0.2)
        found.append(penalty_search.cross_validate(setup, 1.0, folds, max_epochs=100, patience=100))
    assert found[0].epochs == found[1].epochs
    # The fused implementation of Adam rounds in another order.
    assert found[0].mse == pytest.approx(found[1].mse, rel=1e-6)
    with warnings.catch_warnings(action="error"):
        net = pn.train(
            [3, 1], X, y, optimizer="lbfgs", learning_rate=1.0, max_epochs=20, dtype="float64", progress=False
        )
    assert history_of(net).validation_mse is not None


def test_a_search_waits_for_300_epochs_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of epochs is chosen with all of the patience, by the training of the search if it waited as long."""
    X, y = linear(60)
    waited: list[tuple[int, int]] = []
    cross_validate = penalty_search.cross_validate

    def keep(*arguments: Any, **named: Any) -> penalty_search.Validation:
        found = cross_validate(*arguments, **named)
        waited.append((found.epochs - 1, found.network_epochs // found.folds - found.epochs))
        return found

    monkeypatch.setattr(penalty_search, "cross_validate", keep)
    for patience in (400, 300, 10):
        waited.clear()
        net = pn.train([3, 8, 1], X, y, max_epochs=2000, patience=patience, progress=False)
        chosen = history_of(net).settings["validation"]
        searched, last = waited[: len(chosen["trials"])], waited[len(chosen["trials"]) :]
        assert [wait for _, wait in last] == ([400] if patience == 400 else []) and len(searched) > 2
        assert chosen["is_of_search"] == (patience <= 300)
        # Or until the 1,000 epochs of the search are over.
        waits = [wait for best, wait in searched if best + min(patience, 300) < 999]
        assert set(waits) == {min(patience, 300)} and len(waits) > 2


def test_a_validation_loss_that_is_never_finite_is_an_error() -> None:
    X, y = np.linspace(-1, 1, 20)[:, None], np.ones(20)
    X[3] = 1e30  # the square of the output overflows
    of = problem(X, y, learning_rate=1e-9)
    of = dataclasses.replace(of, activation="relu", dtype="float32", validation_seed=1)
    with pytest.raises(ValueError, match=r"train: the loss of the validation rows is inf in every epoch\. Standardise"):
        penalty_search.cross_validate(of, 0.1, [np.array([3])], max_epochs=5, patience=5)


def test_integer_weights_are_repeated_rows() -> None:
    X, y = linear(30)
    weights = np.arange(30) % 3
    arguments: dict[str, Any] = {"validation_fraction": 0, "max_epochs": 50, "dtype": "float64", "progress": False}
    weighted = pn.train([3, 4, 1], X, y, sample_weight=weights, **arguments)
    repeated = pn.train([3, 4, 1], np.repeat(X, weights, axis=0), np.repeat(y, weights), **arguments)
    for one, other in zip(weighted.weights, repeated.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e6 * EPS64)
    assert history_of(weighted).data_loss == pytest.approx(history_of(repeated).data_loss, rel=1e6 * EPS64)
    assert history_of(weighted).constant_loss == pytest.approx(history_of(repeated).constant_loss, rel=1e6 * EPS64)


def test_few_rows_are_said_and_refused_if_validation_was_asked_for() -> None:
    X, y = linear(9)
    with pytest.warns(UserWarning, match=r"9 rows are too few.*with l2 = 1 .*validation_fraction=0 asks for that"):
        net = pn.train([3, 2, 1], X, y, max_epochs=200, progress=False)
    assert history_of(net).settings["validation_fraction"] == 0
    assert history_of(net).settings["l2"] == 1.0
    with pytest.raises(ValueError, match=r"validation_fraction=0\.1 of 9 rows leaves too few.*validation_fraction=0 "):
        pn.train([3, 2, 1], X, y, validation_fraction=0.1, progress=False)


def test_too_few_groups_are_named() -> None:
    X, y = linear(30)
    with pytest.raises(ValueError, match=r"0\.2 of 30 rows in 1 group leaves too few to .*: give more groups, or"):
        pn.train([3, 2, 1], X, y, groups=np.zeros(30), progress=False)


def test_no_signal_is_said_with_what_was_chosen() -> None:
    X = np.random.default_rng(5).standard_normal((200, 3))
    y = np.random.default_rng(6).standard_normal(200)
    net = None
    with warnings.catch_warnings(record=True, action="always") as raised:
        net = pn.train([3, 20, 1], X, y, progress=False)
    mse = history_of(net).validation_mse
    assert mse is not None and mse[0] == pytest.approx(y.var(), abs=0.1)
    assert all("were chosen on validation rows" in str(warning.message) for warning in raised)


def test_ctrl_c_while_choosing_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(penalty_search, "cross_validate", interrupt)
    X, y = linear(50)
    with pytest.raises(KeyboardInterrupt):
        pn.train([3, 4, 1], X, y, progress=False)


def test_progress_names_the_validation(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = linear(50)
    pn.train([3, 4, 1], X, y, max_epochs=50, progress=True)
    shown = capsys.readouterr().err
    assert "validation" in shown and "training" in shown


def test_the_papers_preset_uses_all_rows() -> None:
    X, y = linear(50)
    with warnings.catch_warnings(action="ignore"):
        history = history_of(pn.train([3, 4, 1], X, y, preset="paper", max_epochs=3, progress=False))
    assert history.settings["validation_fraction"] == 0 and history.settings["l2"] == 1.0
    assert history.settings["validation"] is None


@pytest.mark.slow
def test_the_sampled_noise_of_a_partial_model_holds_on_real_data(data_dir: Path) -> None:
    """Red wine quality, first UCI split: 20,000 epochs on all rows left the 90% intervals of Out 66% coverage."""
    folder = data_dir / "uci" / "wine-quality-red" / "data"
    folder = folder if folder.is_dir() else folder.parent
    table = np.loadtxt(folder / "data.txt")
    rows, test = (np.loadtxt(folder / f"index_{part}_0.txt").astype(int) for part in ("train", "test"))
    table = (table - table[rows].mean(axis=0)) / table[rows].std(axis=0)
    X, y, X_test, y_test = table[rows, :-1], table[rows, -1], table[test, :-1], table[test, -1]
    net = pn.train([11, 50, 1], X, y, progress=False)
    mse = history_of(net).validation_mse
    test_mse = ((net.predict(X_test)[:, 0] - y_test) ** 2).mean()
    # 288 validation rows and 160 test rows: standard errors of 8% and 11%, if the squares vary like those of normals.
    assert mse is not None and mse[0] == pytest.approx(test_mse, rel=0.3)
    prior = pn.TraceClassPrior.fit(net, alpha=1.5)
    post = pn.Posterior(net, pn.Out(45), prior, pn.Gaussian("sampled"), X, y)
    draws = pn.sample(post, chains=4, draws=500, seed=1, progress=False)
    assert draws.stats["variance"].mean() > 0.8 * mse[0]
    # The standard error of a coverage of 0.9 of 160 rows is 0.024.
    assert draws.distribution(X_test).coverage(y_test, 0.9) > 0.9 - 3 * 0.024


# On rows of these seeds a larger penalty than the best is no worse.
@pytest.mark.parametrize(
    ("n", "is_class", "seed"), [(200, True, 4), (1200, True, 4), (200, False, 1), (2200, False, 4)]
)
def test_classes_take_the_largest_penalty_that_is_no_worse_by_a_standard_error_of_all_rows(
    n: int, is_class: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[penalty_search.Validation] = []
    cross_validate = penalty_search.cross_validate

    def keep(*arguments: Any, **named: Any) -> penalty_search.Validation:
        found.append(cross_validate(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(penalty_search, "cross_validate", keep)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    f = X[:, 0]
    arguments: dict[str, Any] = {"max_epochs": 200, "patience": 30, "progress": False}
    if is_class:
        y = (f + rng.logistic(size=n) > 0).astype(np.int64)
        net = pn.train([4, 8, 2], X, y, likelihood=pn.Categorical(), **arguments)
    else:
        net = pn.train([4, 8, 1], X, f + rng.normal(size=n), **arguments)
    tried = found[: len(history_of(net).settings["validation"]["trials"])]
    best = min(tried, key=lambda one: one.loss)
    for one in found:
        assert one.row_losses is not None and len(one.row_losses) == one.rows
        # A label tells less than a number: all rows count.
        assert one.rows == (n if is_class or n == 200 else n // 5)
        # Each row is rounded to float32.
        assert one.row_losses.sum() == pytest.approx(one.loss, rel=1e-5)
    ties = [one.l2 for one in tried if one.loss - best.loss <= _standard_error(one.row_losses, best.row_losses)]
    assert len(ties) > 1 and ties[0] > best.l2  # otherwise the rows tell nothing
    assert history_of(net).settings["l2"] == (ties[0] if is_class else best.l2)


def _standard_error(losses: Any, others: Any) -> float:
    """Return the standard error of a difference of sums over rows."""
    return float(np.sqrt(len(losses) * np.var(losses - others)))


def searched(monkeypatch: pytest.MonkeyPatch, losses: np.ndarray, **arguments: Any) -> penalty_search.PenaltySearch:
    """Return a search in which the first penalties have these losses (penalty, row), and the others more."""
    X, _ = linear(losses.shape[1])
    tried = iter([*losses, *np.full((20, losses.shape[1]), 1e3)])

    def fake(_: Problem, l2: float, *__: Any, **___: Any) -> penalty_search.Validation:
        of_rows = next(tried)
        return penalty_search.Validation(l2, 10, of_rows.sum(), None, len(of_rows), 2, 30, row_losses=of_rows)

    monkeypatch.setattr(penalty_search, "cross_validate", fake)
    rows = np.arange(len(X))
    of = problem(X, X[:, 0], **arguments)
    return penalty_search.search_penalties(of, [rows[::2], rows[1::2]], max_epochs=100, patience=10)


def test_a_search_goes_down_until_two_penalties_in_a_row_are_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(losses: list[float]) -> list[float]:
        found = searched(monkeypatch, np.repeat(np.array(losses)[:, None] / 40, 40, axis=1)).tried
        np.testing.assert_allclose([one.l2 for one in found], 31.6 * 10 ** (-0.5 * np.arange(len(found))))
        return [one.loss for one in found]

    np.testing.assert_allclose(tried([3, 2, 2.5, 1, 2, 1.5, 0.5]), [3, 2, 2.5, 1, 2, 1.5])
    assert len(tried(list(range(30, 1, -1)))) == 12


def test_shares_of_penalties_are_those_of_samples_of_folds_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference of two losses is normal; a sample has the other sign with a known probability, by rows a third."""
    n = 400
    differences = np.random.default_rng(0).normal(size=n)
    differences += 0.06 - differences.mean() + 0.3 * (-1.0) ** np.arange(n)
    found = searched(monkeypatch, np.stack([np.ones(n), 1.0 + differences]))
    larger, smaller = (one.l2 for one in found.tried[:2])
    shares = found.shares(3)
    folds = [differences[::2], differences[1::2]]
    expected = 0.0
    for drawn in ([0, 0], [0, 1], [1, 0], [1, 1]):
        total = sum(folds[fold].sum() for fold in drawn)
        expected += special.ndtr(-total / np.sqrt(sum(folds[fold].var() * n / 2 for fold in drawn))) / 4
    by_rows = special.ndtr(-np.sqrt(n) * differences.mean() / differences.std())
    assert next(iter(shares)) == larger == found.preferred() and sum(shares.values()) == pytest.approx(1.0)
    assert set(shares) == {larger, smaller}
    # 200 samples have a standard error of 0.035.
    assert abs(shares[smaller] - expected) < 4 * 0.035 < abs(shares[smaller] - by_rows)
    assert found.network_epochs == 30 * len(found.tried)
    assert found.shares(3) == shares != found.shares(4)


def test_samples_take_groups_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two groups one prefers the larger penalty, and a quarter of the samples lacks the other, which does not."""
    groups = np.repeat([0, 1], 100)
    losses = np.stack([np.where(groups == 0, 1.0, 1.3), np.ones(200) + 0.1 * (groups == 0)])
    by_row, by_group = (searched(monkeypatch, losses, **given) for given in ({}, {"groups": groups}))
    larger, smaller = (one.l2 for one in by_row.tried[:2])
    assert by_row.shares(0) == {smaller: 1.0}
    shares = by_group.shares(0)
    assert list(shares) == [smaller, larger]
    assert abs(shares[larger] - 0.25) < 4 * 0.03
    # A group has the fold of its rows: here even and odd rows, which are the folds.
    row = np.arange(200)
    of_folds = searched(monkeypatch, losses, groups=row // 4 + 100 * (row % 2))
    assert of_folds.folds.tolist() == [0] * 50 + [1] * 50


@pytest.mark.parametrize("is_class", [False, True])
def test_the_preferred_penalty_of_a_sample_is_that_of_its_rows(is_class: bool) -> None:
    rng, chosen = np.random.default_rng(1), set()
    for _ in range(40):
        losses = rng.exponential(size=(4, 30)) + np.array([[0.2], [0.1], [0.0], [0.3]])
        tried = tuple(penalty_search.Validation(float(k), 1, 0.0, None, 30, 1, 1) for k in range(4))
        drawn = rng.integers(30, size=30)
        search = penalty_search.PenaltySearch(tried, losses, np.zeros(30, dtype=np.intp), is_class)
        found = search.preferred(np.bincount(drawn, minlength=30) * 1.0)
        sample = losses[:, drawn]
        best = int(np.argmin(sample.sum(axis=1)))
        differences = sample - sample[best]
        within = differences.sum(axis=1) <= differences.std(axis=1) * np.sqrt(30) + 1e-12
        assert found == (int(np.argmax(within)) if is_class else best)
        chosen.add((found, best))
    assert len(chosen) > 3 and any(found != best for found, best in chosen) == is_class


def test_a_search_that_went_as_far_is_not_repeated() -> None:
    X, y = linear(60)
    bounds: dict[str, Any] = {"max_epochs": 300, "patience": 40}
    of = problem(X, y)
    folds = validation_folds(of, 0.2)
    search = penalty_search.search_penalties(of, folds, **bounds)
    l2 = search.preferred()
    found = penalty_search.validate_penalty(of, l2, folds, search=search, **bounds)
    again = penalty_search.validate_penalty(of, l2, folds, search=None, **bounds)
    assert found.is_of_search and not again.is_of_search
    assert (found.epochs, found.loss, found.network_epochs) == (again.epochs, again.loss, again.network_epochs)
    longer = penalty_search.validate_penalty(of, l2, folds, search=search, max_epochs=300, patience=80)
    assert not longer.is_of_search and longer.network_epochs > found.network_epochs
    assert longer.trials == found.trials and longer.searched_epochs == search.network_epochs
