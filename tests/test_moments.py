"""Running mean and variance of f over all states of a stride: those of the states, whatever breaks the run had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
import test_resume
from chains import assert_same_runs
from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.draws import moments, run_folder
from patrac_native.sampling import stored_run, stretches
from test_resume import X, sampled

AT = X[:5]
# A plain kernel; output weights that are drawn for each state; a rotation; points of a slice.
NAMES = ("pcnl", "scales and variance", "curvature", "slice")


def check_moments(found: pn.Draws, f: Any) -> None:
    """The statistics are those of f (chain, state, n, m), up to rounding of float64 sums."""
    f = np.asarray(f, np.float64)
    assert (found.stats["moments_states"] == f.shape[1]).all()
    np.testing.assert_array_equal(found.stats["moments_at"], np.broadcast_to(AT, (len(f), *AT.shape)))
    np.testing.assert_allclose(found.stats["moments_mean"], f.mean(axis=1), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.stats["moments_variance"], f.var(axis=1, ddof=1), rtol=1e-9)
    together, flat = pn.diagnostics.moments(found.stats), f.reshape(-1, *f.shape[2:])
    assert together is not None and together.states == len(flat)
    np.testing.assert_array_equal(together.at, AT)
    np.testing.assert_allclose(together.mean, flat.mean(axis=0), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(together.variance, flat.var(axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [1, 2, 6])
def test_moments_are_those_of_the_states_and_draws_do_not_change(
    name: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stretches of 29 steps end between draws and between blocks of states."""
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 29)
    monkeypatch.setattr(moments, "_BYTES", 1000)  # few states are evaluated at a time
    settings: dict[str, Any] = {"warmup": 100, "moments_at": AT, "moments_every": every}
    found, plain = sampled(name, 40, thin=6, **settings), sampled(name, 40, thin=6, warmup=100)
    check_moments(found, sampled(name, 40 * 6 // every, thin=every, warmup=100).predict(AT))
    np.testing.assert_array_equal(found.theta, plain.theta)
    for key, values in plain.stats.items():
        np.testing.assert_array_equal(found.stats[key], values, err_msg=key)
    assert found.settings.keys() == plain.settings.keys() | {"moments_every"}
    assert found.settings["moments_every"] == every
    assert pn.diagnostics.moments(plain.stats) is None and not MOMENTS.keys() & plain.stats.keys()


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("name", NAMES)
def test_moments_go_on_to_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither breaks, nor a store, nor threads change a bit, and the store is read while it is written."""
    pytest.importorskip("zarr")
    store, save, seen = tmp_path / "run.zarr", run_folder.RunFolder.save, []
    settings: dict[str, Any] = {"warmup": 100, "moments_at": AT, "moments_every": 3, "thin": 6}
    whole = sampled(name, 60, **settings)

    def looks(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
        save(self, at)
        if at.draws > 3:
            seen.append(pn.Draws.open(store))
            if len(seen) == 7:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.RunFolder, "save", looks)
        sampled(name, 40, store=store, **settings)
    f = sampled(name, 120, thin=3, warmup=100).predict(AT)
    for draws in seen:
        states = int(draws.stats["moments_states"][0])
        assert 0 <= states - 2 * draws.n_draws < 2
        check_moments(draws, f[:, :states])
    assert any(int(draws.stats["moments_states"][0]) % 2 for draws in seen)  # in the middle of a draw
    assert_same_runs(pn.resume(store, 50, threads=1, progress=False), sampled(name, 50, **settings))
    assert_same_runs(pn.resume(store, 60, progress=False), whole)
    assert_same_runs(pn.Draws.open(store), whole)


def test_a_cap_of_states_in_memory_makes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches are shorter than what lies between two checkpoints; an interruption confirms those that were whole."""
    pytest.importorskip("zarr")
    store, save, confirm = tmp_path / "run.zarr", run_folder.RunFolder.save, stored_run.KeptInFolder.confirm
    settings: dict[str, Any] = {"warmup": 50, "moments_at": AT, "thin": 100}
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 250)
    monkeypatch.setattr(run_folder, "_CHUNK_BYTES", 12 * test_resume.posterior("pcnl").network.dim * 20)
    assert run_folder.RunFolder.chunk_draws(3, 4 * test_resume.posterior("pcnl").network.dim) == 20

    def looks(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
        save(self, at)
        written.append((at.step, at.draws))

    def interrupts(self: stored_run.KeptInFolder) -> None:
        confirm(self)
        if self.at.step > 650 and written[-1][0] < self.at.step:
            said.append((self.at.step, self.at.draws, self.kill_costs))
            raise KeyboardInterrupt

    said: list[tuple[int, int, int]] = []
    monkeypatch.setattr(run_folder.RunFolder, "save", looks)
    with monkeypatch.context() as patch:
        patch.setattr(stored_run.KeptInFolder, "confirm", interrupts)
        stopped = sampled("pcnl", 30, store=store, **settings)
    ((step, draws, costs),) = said
    assert written[-1] == (step, draws) and stopped.n_draws == draws and costs == 3
    assert_same_runs(pn.resume(store, 30, progress=False), sampled("pcnl", 30, **settings))
    assert np.diff([one for one, _ in written]).max() == 240  # twelve stretches


@pytest.mark.usefixtures("short_stretches")
def test_moments_of_a_handle_and_of_an_interrupted_run() -> None:
    settings: dict[str, Any] = {"chains": 2, "draws": 10**7, "thin": 4, "warmup": 50, "seed": 1, "progress": False}
    post = test_resume.posterior("pcnl")
    with pn.start(post, pn.PCNL(), moments_at=AT, **settings) as run:
        while (so_far := run.peek()) is None or so_far.n_draws < 10:
            pass
        draws = run.stop()
    for one in (so_far, draws):
        assert isinstance(one, pn.Draws)
        states = int(one.stats["moments_states"][0])
        assert 0 <= states - 4 * one.n_draws < 4
    first = pn.sample(post, pn.PCNL(), **{**settings, "draws": 4 * so_far.n_draws + 4, "thin": 1}).predict(AT)
    check_moments(so_far, first[:, : int(so_far.stats["moments_states"][0])])


def test_moments_of_classes_are_of_probabilities_and_files_keep_them(tmp_path: Path) -> None:
    net = problems.random_network(np.random.default_rng(0), (2, 5, 3))
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Categorical(), X, np.arange(30) % 3)
    settings: dict[str, Any] = {"chains": 2, "draws": 50, "warmup": 50, "progress": False}
    found = pn.sample(post, seed=1, moments_at=AT, **settings)
    check_moments(found, found.predict_proba(AT))
    found.save(tmp_path / "draws.npz")
    assert_same_runs(pn.Draws.load(tmp_path / "draws.npz"), found)
    both = found + pn.sample(post, seed=2, moments_at=AT, **settings)
    check_moments(both, both.predict_proba(AT))
    check_moments(found[1:, 3:], found.predict_proba(AT)[1:])  # of the whole run
    assert pn.diagnostics.moments((found + pn.sample(post, seed=3, **settings)).stats) is None
    assert pn.diagnostics.moments((found + pn.sample(post, seed=3, moments_at=X[5:10], **settings)).stats) is None
    for changes in ({"moments_at": AT[:4]}, {"moments_every": 2}, {"moments_at": None}):
        run = {"seed": 3, "moments_at": AT, "thin": 2, **settings}
        one, other = pn.sample(post, **run), pn.sample(post, **{**run, "seed": 4, **changes})
        for together in (one + other, other + one):
            assert together.stats.keys() == one.stats.keys() - MOMENTS.keys()
            assert "moments_every" not in together.settings
    del other.stats["nonfinite"]
    with pytest.raises(ValueError, match="different statistics, of which one alone has nonfinite"):
        _ = one + other
    if pytest.importorskip("xarray"):
        assert_same_runs(pn.Draws.from_datatree(post, found.to_datatree()), found)


def test_far_from_zero_the_variance_keeps_its_digits() -> None:
    """A difference of squares would lose all: the mean is 1e9 standard deviations from zero."""
    f = 1e9 + np.random.default_rng(0).normal(size=(2, 1001, 1, 1))
    sums = moments.RunningMoments.none(2, 1, 1)
    for first in range(0, 1001, 7):
        sums = sums.added(f[:, first : first + 7])
    found = sums.stats(np.zeros((1, 1)))
    # f itself is rounded to 1e-7 at this size.
    np.testing.assert_allclose(found["moments_variance"], f.var(axis=1, ddof=1), rtol=1e-6)
    at_once = moments.RunningMoments.none(2, 1, 1).added(f).stats(np.zeros((1, 1)))
    for name, values in at_once.items():
        np.testing.assert_array_equal(values, found[name])


def test_what_moments_refuse() -> None:
    with pytest.raises(ValueError, match=r"moments_every must divide thin=3; got 2\."):
        sampled("pcnl", 5, moments_at=AT, moments_every=2)
    with pytest.raises(ValueError, match="moments_every needs moments_at"):
        sampled("pcnl", 5, moments_every=3)
    with pytest.raises(ValueError, match="moments_at must have 2 columns"):
        sampled("pcnl", 5, moments_at=AT[:, :1])
    with pytest.raises(ValueError, match='moments_at needs device="cpu"'):
        sampled("pcnl", 5, moments_at=AT, device="emulated:1")
    target = pn.Target(lambda theta: (0.0, theta * 0), prior_variance=np.ones(2))
    with pytest.raises(TypeError, match="moments_at watches f of a Posterior; a Target has none"):
        pn.sample(target, draws=5, moments_at=AT, progress=False)


def test_forged_sums_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    store = tmp_path / "run.zarr"
    sampled("pcnl", 10, store=store, moments_at=AT, warmup=40)
    folder = run_folder.RunFolder(store)
    whole = folder.checkpoint()
    assert whole is not None and whole.moments is not None
    sums = vars(whole.moments)
    for changes in (
        {"count": sums["count"] + 1},
        {"count": np.array(-1)},
        {"mean": sums["mean"][:, :2]},
        {"pending": sums["pending"][:, :, :1]},
        {"pending": sums["pending"][0]},
        {"rates": sums["rates"][0]},
        {"squares": sums["squares"].astype(complex)},
    ):
        at = folder.checkpoint()
        assert at is not None
        at.moments = moments.RunningMoments(**{**sums, **changes})
        folder.save(at)
        for use in (pn.Draws.open, lambda path: pn.resume(path, 20, progress=False)):
            with pytest.raises(ValueError, match=r"checkpoint\.npz is damaged"):
                use(store)
    whole.moments = None
    folder.save(whole)
    with pytest.raises(ValueError, match=r"checkpoint\.npz"):
        pn.resume(store, 20, progress=False)
