"""Training of several networks: what they share, how they differ, and that threads change nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.training import many

torch = pytest.importorskip("torch")

SIZES = [2, 6, 1]


def data(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, 2) and noisy targets (n,)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n)


def several(**arguments: Any) -> list[pn.Network]:
    """Train three small networks."""
    X, y = data()
    return pn.train_many(
        SIZES, X, y, **{"networks": 3, "seed": 5, "max_epochs": 60, "patience": 60, "progress": False, **arguments}
    )


def equal(one: pn.Network, other: pn.Network) -> bool:
    """Return whether two networks have the same parameters, bit for bit."""
    return all(
        np.array_equal(a, b) for a, b in zip([*one.weights, *one.biases], [*other.weights, *other.biases], strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, {"rows": "bootstrap"}, {"rows": 0.7, "batch_size": 16}])
def test_threads_and_number_of_networks_change_no_network(arguments: dict[str, Any]) -> None:
    usual = torch.get_num_threads()
    one, three, more = (
        several(threads=1, **arguments),
        several(threads=3, **arguments),
        several(networks=5, **arguments),
    )
    assert torch.get_num_threads() == usual
    assert all(map(equal, one, three)) and all(map(equal, one, more[:3]))
    assert not equal(one[0], one[1]) and not equal(one[1], one[2])
    assert not equal(one[0], several(seed=6, **arguments)[0])


def test_networks_from_a_position_on_are_those_of_a_larger_call() -> None:
    whole = several(networks=3)
    penalties = dict(whole[0].history.settings["penalties"])
    later = several(networks=2, first=1, l2=penalties)
    assert all(map(equal, whole[1:], later))
    np.testing.assert_array_equal(later[0].history.validation_mse, whole[1].history.validation_mse)
    for value, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="first must be"):
            several(first=value)


def test_the_first_network_is_that_of_train_and_others_have_penalties_of_the_same_search() -> None:
    X, y = data()
    nets = several(networks=6)
    arguments: dict[str, Any] = {"max_epochs": 60, "patience": 60, "progress": False}
    single = pn.train(SIZES, X, y, seed=5, **arguments)
    assert equal(nets[0], single)
    assert nets[0].history is not None
    shares = dict(nets[0].history.settings["penalties"])
    for index, net in enumerate(nets):
        assert net.history is not None and single.history is not None
        l2, found = net.history.settings["l2"], net.history.settings["validation"]
        assert net.history.settings["seed"] == 5 + index and shares[l2] > 0
        assert dict(net.history.settings["penalties"]) == shares
        assert found["l2"] == l2 and found["trials"] == single.history.settings["validation"]["trials"]
        # Epochs and residuals are those that are chosen at its own penalty.
        alone = pn.train(SIZES, X, y, seed=5, l2=l2, **arguments)
        assert alone.history is not None
        assert len(net.history.loss) == len(alone.history.loss) == found["epochs"]
        np.testing.assert_array_equal(net.history.validation_mse, alone.history.validation_mse)
    assert len({net.history.settings["l2"] for net in nets if net.history is not None}) > 1


def test_one_seed_of_the_validation_chooses_alike_for_networks_of_other_seeds() -> None:
    """Trainings by other seeds find the same penalties and epochs; by default the seed is that of the networks."""
    nets, others = several(seed=5, validation_seed=7), several(seed=600, validation_seed=7)
    for net, other in zip(nets, others, strict=True):
        assert net.history is not None and other.history is not None
        for name in ("l2", "penalties", "validation", "validation_seed"):
            assert net.history.settings[name] == other.history.settings[name]
        np.testing.assert_array_equal(net.history.validation_mse, other.history.validation_mse)
        assert not equal(net, other)
    assert all(map(equal, several(seed=5), several(seed=5, validation_seed=5)))
    assert not np.array_equal(nets[0].history.validation_mse, several(seed=5)[0].history.validation_mse)
    with pytest.raises(ValueError, match="validation_seed must be below"):
        several(validation_seed=2**64)


def test_penalties_of_a_saved_network_give_the_networks_that_follow(tmp_path: Path) -> None:
    whole = several(networks=4)
    whole[0].save(tmp_path / "net.npz")
    history = pn.Network.load(tmp_path / "net.npz").history
    assert history is not None and len(history.settings["penalties"]) > 1
    assert all(map(equal, whole[1:], several(first=1, l2=dict(history.settings["penalties"]))))


@pytest.mark.parametrize("rows", ["all", "bootstrap"])
def test_epochs_are_a_share_of_those_chosen_at_the_own_penalty(rows: str) -> None:
    X, y = data()
    nets = several(networks=6, epoch_fraction=0.5, rows=rows)
    histories = [net.history for net in nets if net.history is not None]
    assert len({one.settings["l2"] for one in histories}) > 1
    for one in histories:
        l2 = one.settings["l2"]
        alone = pn.train(SIZES, X, y, seed=5, l2=l2, max_epochs=60, patience=60, progress=False).history
        assert alone is not None and len(one.loss) == round(0.5 * len(alone.loss))


def test_the_rows_of_a_network_do_not_tell_its_penalty() -> None:
    """Both are drawn by the seed, from streams of their own."""
    shares = {0.1: 0.5, 1.0: 0.5}
    given = np.ones(2)  # of few rows the number of times that one is drawn shows the first numbers of a stream
    for of_rows in (0, 1, 2):
        found = np.array(
            [
                (
                    many._penalty(shares, seed, 1),
                    many._multiplicity(given, "bootstrap", np.random.default_rng([seed, of_rows]))[0],
                )
                for seed in range(1000)
            ]
        )
        # A correlation of independent values has a standard error of 0.03.
        assert abs(np.corrcoef(found.T)[0, 1]) < 4 * 0.03


def test_networks_have_penalties_in_their_shares() -> None:
    with pn.Note.collect():  # after one epoch the fit is poor
        nets = several(networks=60, l2={0.5: 0.0, 0.1: 0.75, 2.0: 0.25}, validation_fraction=0, max_epochs=1)
    first, *others = (net.history.settings["l2"] for net in nets)
    assert first == 0.5 and set(others) == {0.1, 2.0}
    assert abs(others.count(2.0) - 59 * 0.25) < 2
    # Shares may be rounded.
    assert len(several(l2={0.1: 0.3333333, 1.0: 0.6666666}, max_epochs=2, validation_fraction=0)) == 3


def test_few_networks_have_the_shares_too_and_no_penalty_is_favoured() -> None:
    """Of eight, from any position on, the numbers are near their shares; over seeds their mean is the share."""
    shares = {0.1: 0.62, 1.0: 0.27, 3.0: 0.11}
    numbers = []
    for seed in range(2_000):
        drawn = [many._penalty(shares, seed, index) for index in range(16)]
        assert drawn[0] == 0.1
        for eight in (drawn[:8], drawn[5:13], drawn[8:]):
            assert all(abs(eight.count(l2) - 8 * share) < 2 for l2, share in shares.items())
        numbers.append([drawn[:8].count(l2) for l2 in shares])
    # The first network always has the first penalty, so that the sequence, which makes up for it, may be off by half
    # a network; independent draws would be off by a third of one, but vary by 1.3.
    assert np.abs(np.mean(numbers, axis=0) - 8 * np.array(list(shares.values()))).max() < 0.5
    assert np.std(numbers, axis=0).max() < 0.8


@pytest.mark.parametrize("rows", ["bootstrap", 0.6])
def test_left_out_rows_validate_each_network(rows: str | float) -> None:
    X, y = data()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    weights[:5] = 0.0
    for net in several(rows=rows, sample_weight=weights, l2=0.1, validation_fraction=0):
        assert net.history is not None and net.history.validation_mse is not None
        index = net.history.settings["seed"] - 5
        drawn = many._multiplicity(weights, rows, np.random.default_rng([5, index]))
        assert not drawn[:5].any()
        if rows == "bootstrap":
            assert drawn.sum() == 75 and drawn.max() > 1
        else:
            assert drawn.sum() == 45 and drawn.max() == 1
        left_out = np.where(drawn == 0, weights, 0.0)
        squares = (net.predict(X)[:, 0] - y) ** 2
        assert net.history.validation_mse[0] == pytest.approx(left_out @ squares / left_out.sum())
        again = pn.train(
            SIZES,
            X,
            y,
            sample_weight=weights * drawn,
            l2=0.1,
            validation_fraction=0,
            max_epochs=60,
            patience=60,
            seed=5 + index,
            progress=False,
        )
        assert equal(net, again)


def test_copies_of_drawn_rows_validate_no_network() -> None:
    X, y = data()
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    quick: dict[str, Any] = {"l2": 0.1, "validation_fraction": 0, "max_epochs": 60, "progress": False}
    for index, net in enumerate(pn.train_many(SIZES, X, y, networks=3, rows="bootstrap", seed=5, **quick)):
        assert net.history is not None and net.history.validation_mse is not None
        drawn = many._multiplicity(np.ones(len(X)), "bootstrap", np.random.default_rng([5, index]))
        unseen = np.tile(drawn.reshape(2, -1).sum(axis=0) == 0, 2)
        assert 0 < unseen.sum() < (drawn == 0).sum()
        squares = (net.predict(X)[:, 0] - y) ** 2
        assert net.history.validation_mse[0] == pytest.approx(squares[unseen].mean())


def test_networks_trained_less_are_stopped_early_and_validated_alike() -> None:
    full, less = (several(epoch_fraction=share, l2=0.1, max_epochs=400, patience=400)[1].history for share in (1, 0.25))
    assert full is not None and less is not None
    assert len(less.loss) == round(0.25 * len(full.loss))
    assert less.settings["validation"]["epochs"] == len(less.loss)
    assert less.validation_mse is not None and full.validation_mse is not None
    assert less.validation_mse[0] > full.validation_mse[0]
    assert less.settings["validation"]["loss"] > full.settings["validation"]["loss"]


def test_warnings_name_the_network_and_the_callers_line() -> None:
    X, y = data()
    with pytest.warns(UserWarning) as raised:
        pn.train_many(
            SIZES, X, y + 5, networks=2, l2=0.1, validation_fraction=0, max_epochs=2, learning_rate=1e-9, progress=False
        )
    assert len(raised) == 2
    for number, warning in enumerate(raised, 1):  # as in verdicts and reports
        assert str(warning.message).startswith(f"network {number}: train: the fit is poor")
    assert all(warning.filename == __file__ for warning in raised)


def test_ctrl_c_ends_all_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    def endless(training: Any, *, threads: int, is_interrupted: Any) -> None:
        started.set()
        while not is_interrupted():
            pass

    class Interrupted(many.ThreadPoolExecutor):
        """A pool whose first future is interrupted while its result is awaited."""

        def submit(self, *arguments: Any, **more: Any) -> Any:
            future = super().submit(*arguments, **more)

            def result() -> None:
                assert started.wait(timeout=60)
                raise KeyboardInterrupt

            future.result = result  # type: ignore[assignment]
            return future

    monkeypatch.setattr(many, "fit_network", endless)
    monkeypatch.setattr(many, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        several(l2=0.1, validation_fraction=0, threads=2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"networks": 0}, ValueError, "networks must be at least 1; got 0"),
        ({"rows": "some"}, ValueError, 'rows must be "all", "bootstrap" or a share.*got \'some\''),
        ({"rows": 1.0}, ValueError, 'rows must be a share between 0 and 1, or "all"; got 1'),
        ({"rows": -0.5}, ValueError, "rows must be positive"),
        ({"epoch_fraction": 0.0}, ValueError, "epoch_fraction must be positive"),
        ({"epoch_fraction": 1.5}, ValueError, "epoch_fraction must be above 0 and at most 1; got 1.5"),
        ({"epoch_fraction": 0.5, "preset": "paper", "max_epochs": None}, ValueError, "max_epochs, which is unlimited"),
        ({"threads": 0}, ValueError, "threads must be at least 1"),
        ({"widths": 3}, TypeError, r"train_many\(\) got an unexpected keyword argument 'widths'"),
        ({"l2": -1.0}, ValueError, "l2 must be zero or positive"),
        ({"l2": {-1.0: 1.0}}, ValueError, "l2 must be zero or positive"),
        ({"l2": {0.1: -0.5, 1.0: 1.5}}, ValueError, r"l2\[0.1\] must be zero or positive"),
        ({"l2": {0.1: 0.5}}, ValueError, r"l2: shares of penalties must add up to one; got \{0.1: 0.5\}"),
        ({"l2": {0.1: 0.33, 1.0: 0.66}}, ValueError, "l2: shares of penalties must add up to one"),
        ({"l2": {}}, ValueError, "l2: shares of penalties must add up to one"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        several(**arguments)
