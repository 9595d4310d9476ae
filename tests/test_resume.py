"""Runs with a store: the same bits after any break, a folder that xarray reads, and faults of disks and people."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pages
import patrac_native as pn
import problems
from chains import assert_same_runs
from patrac_native.draws import distribution, run_folder
from scripts import process

xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")

DATA = np.random.default_rng(5)
X = DATA.uniform(-2, 2, (30, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * DATA.normal(size=30)
NET = problems.random_network(np.random.default_rng(0), (2, 5, 4, 1))
NET_OF_ROWS = problems.random_network(np.random.default_rng(1), (2, 5, 4, 2))
FIXED, SAMPLED = pn.Gaussian(0.09), pn.Gaussian("sampled", a=2, b=0.1)
TAILS = pn.StudentT(4.0, "sampled", a=2, b=0.1)
SCALES = pn.GaussianPrior(scales="sampled")
MOVED_SCALES = pn.GaussianPrior(scales=pn.SampledScales(interweave=True))
PERSISTENT = pn.MGrad(persistence=0.9)
# Whatever the state of a chain may hold: l and g, momentum and threshold, factors of integrated weights, rotations,
# sampled variances and scales, their random walks, and none of these.
RUNS: dict[str, tuple[pn.Network, Any, Any, Any, Any]] = {
    "pcn": (NET, pn.Mix(2), problems.PRIOR, FIXED, pn.PCN()),
    "pcnl": (NET, pn.Full(), problems.PRIOR, FIXED, pn.PCNL()),
    "always": (NET, pn.Full(), problems.PRIOR, FIXED, pn.PCNL(adapt="always")),
    "slice": (NET, pn.Sep(2), problems.PRIOR, FIXED, pn.EllipticalSlice()),
    "persistent": (NET, pn.Full(), problems.PRIOR, FIXED, PERSISTENT),
    "collapsed": (NET, pn.Full(), problems.PRIOR, FIXED, pn.MGrad(collapse=True, persistence=0.9)),
    "inputs": (NET, pn.Full(), problems.PRIOR, FIXED, pn.MGrad(metric="inputs", persistence=0.9)),
    "curvature": (NET, pn.Full(), problems.PRIOR, FIXED, pn.MGrad(collapse=True, metric="curvature")),
    "variance": (NET, pn.Mix(2), problems.PRIOR, SAMPLED, PERSISTENT),
    "collapsed variance": (NET, pn.Full(), problems.PRIOR, SAMPLED, pn.MGrad(collapse=True)),
    "scales": (NET, pn.Full(), SCALES, FIXED, PERSISTENT),
    "moved scales": (NET, pn.Full(), MOVED_SCALES, FIXED, PERSISTENT),
    "scales and variance": (NET, pn.Full(), SCALES, SAMPLED, pn.MGrad(collapse=True, persistence=0.9)),
    "tails": (NET, pn.Full(), problems.PRIOR, TAILS, PERSISTENT),
    "collapsed tails": (NET, pn.Mix(2), problems.PRIOR, TAILS, pn.MGrad(collapse=True, persistence=0.9)),
    "rotated tails": (NET, pn.Full(), problems.PRIOR, TAILS, pn.MGrad(collapse=True, metric="curvature")),
    "rows": (NET_OF_ROWS, pn.Full(), problems.PRIOR, pn.HeteroscedasticGaussian(), "auto"),
    "last layer": (NET, pn.Out(3), problems.PRIOR, FIXED, pn.PCNL()),
    "last layer, sampled": (NET, pn.Out(3), problems.PRIOR, SAMPLED, pn.MGrad()),
    "exact": (NET, pn.Out(3), problems.PRIOR, FIXED, pn.Exact()),
}


def posterior(name: str, dtype: str = "float32") -> pn.Posterior:
    """Return the posterior of a run."""
    net, architecture, prior, likelihood, _ = RUNS[name]
    return pn.Posterior(net, architecture, prior, likelihood, X, Y, dtype=dtype)


def sampled(name: str, draws: int, dtype: str = "float32", **settings: Any) -> pn.Draws:
    """Run chains whose warm-up ends when they agree."""
    given = {"chains": 3, "thin": 3, "seed": 4, "threads": 2, "progress": False, **settings}
    with warnings.catch_warnings(action="ignore"):
        return pn.sample(posterior(name, dtype), RUNS[name][-1], draws=draws, **given)


@pytest.mark.slow
@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_stretches_is_the_run_without_a_break(name: str, tmp_path: Path) -> None:
    """Borders of stretches fall into the warm-up and between draws; another 20 draws follow, by other threads."""
    dtype = "float64" if name in ("pcnl", "scales and variance") else "float32"
    whole = sampled(name, 60, dtype)
    store = tmp_path / "run.zarr"
    assert_same_runs(sampled(name, 40, dtype, store=store), sampled(name, 40, dtype))
    resumed = pn.resume(store, 60, threads=1, progress=False)
    assert_same_runs(resumed, whole)
    assert_same_runs(pn.Draws.load(store), whole)


def test_a_run_of_one_stretch_goes_on_too(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    sampled("collapsed", 10, store=store)
    for draws in (11, 40):
        assert_same_runs(pn.resume(store, draws, progress=False), sampled("collapsed", draws))
    assert pn.resume(store, 40, progress=False).n_draws == 40  # there is nothing to do


@pytest.mark.slow
@pytest.mark.usefixtures("short_stretches")
def test_xarray_reads_what_to_datatree_makes(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    draws = sampled("scales and variance", 50, store=store, moments_at=X[:4])
    found = xarray.open_datatree(store, engine="zarr", consolidated=False)
    expected = draws.to_datatree(prior_draws=0)
    assert set(found.children) == set(expected.children)
    for name, group in expected.children.items():
        assert found[name].attrs == group.attrs
        assert set(found[name].variables) == set(group.variables)
        for key, variable in group.variables.items():
            there = found[name].variables[key]
            assert there.dims == variable.dims
            np.testing.assert_array_equal(there.to_numpy(), variable.to_numpy())
    assert found["sample_stats"]["moments_mean"].dims == ("chain", "row", "output")
    differ = {key for key in expected.attrs if found.attrs.get(key) != expected.attrs[key]}
    assert differ <= {"seconds", "sampling_time", "patrac_native"}  # the time of the last write is not known before it
    assert_same_runs(pn.Draws.from_datatree(posterior("scales and variance"), found), draws)


def test_what_all_draws_say_of_the_noise_is_in_the_store(tmp_path: Path) -> None:
    """Nodes of this network that are kept fixed have fitted the noise."""
    net = pn.train([2, 30, 30, 1], X, Y, likelihood=pn.Gaussian("sampled"), l2=1e-3, seed=0, progress=False)
    post = pn.Posterior(net, pn.Mix(1), problems.PRIOR, pn.Gaussian("sampled"), X, Y)
    settings: dict[str, Any] = {"chains": 2, "draws": 60, "seed": 0, "progress": False}
    with warnings.catch_warnings(action="ignore"):
        draws = pn.sample(post, store=tmp_path / "run.zarr", **settings)
        expected = pn.sample(post, **settings)
    assert "fitted_noise" in expected.settings
    assert_same_runs(draws, expected)
    assert_same_runs(pn.Draws.load(tmp_path / "run.zarr"), expected)


@pytest.mark.parametrize("name", ["persistent", "collapsed"])
def test_another_level_goes_on_with_other_bits(name: str, tmp_path: Path) -> None:
    """Vectors of another width hold no part of a state."""
    levels = pn.build_info()["SIMD levels"].split(", ")
    if len(levels) < 2:
        pytest.skip(f"this build or processor has the level {levels[0]} only")
    net, architecture, prior, likelihood, kernel = RUNS[name]
    here, there = (
        pn.Posterior(net, architecture, prior, likelihood, X, Y, level=one) for one in (levels[0], levels[-1])
    )
    store, settings = tmp_path / "run.zarr", {"chains": 2, "warmup": 100, "seed": 0, "progress": False}
    first = pn.sample(here, kernel, draws=20, store=store, **settings)
    with pytest.raises(ValueError, match="go on without equal bits, exact=False"):
        pn.resume(store, 40, post=there)
    found = pn.resume(store, 40, post=there, exact=False, progress=False)
    assert np.array_equal(found.theta[:, :20], first.theta)
    # One step of another level rounds differently; the noise is the same.
    np.testing.assert_allclose(
        found.theta[:, 20], pn.sample(here, kernel, draws=21, **settings).theta[:, 20], atol=1e-3
    )


def test_the_posterior_comes_from_the_store_or_must_be_the_same(tmp_path: Path) -> None:
    weights, store = np.linspace(0.5, 1.5, 30), tmp_path / "run.zarr"
    net = problems.random_network(np.random.default_rng(2), (2, 4, 1))

    def post(y: Any = None, likelihood: Any = None, net: pn.Network = net) -> pn.Posterior:
        counts = np.arange(30) % 4 if y is None else y
        return pn.Posterior(
            net, pn.Full(), problems.PRIOR, likelihood or pn.Poisson(), X, counts, sample_weight=weights, offset=X[:, 0]
        )

    settings = {"draws": 20, "warmup": 50, "chains": 2, "seed": 0, "progress": False, "init": np.full((2, 17), 0.1)}
    whole = pn.sample(post(), **{**settings, "draws": 30})
    pn.sample(post(), store=store, **settings)
    assert_same_runs(pn.resume(store, 30, progress=False), whole)
    shutil.rmtree(store)
    pn.sample(post(), store=store, store_data=False, **settings)
    assert not {name for name in np.load(store / "run.npz") if name.startswith("data_")}
    with pytest.raises(ValueError, match=r"only a hash of its data \(store_data=False\): give post"):
        pn.resume(store, 30)
    for other, what in (
        (post(np.arange(30) % 5), "data"),
        (post(likelihood=pn.NegativeBinomial(2.0)), "likelihood"),
        (post(net=problems.random_network(np.random.default_rng(3), (2, 4, 1))), "weights of the network"),
    ):
        with pytest.raises(ValueError, match=f"post is another posterior than .* differ in .*{what}"):
            pn.resume(store, 30, post=other)
    with pytest.raises(TypeError, match="post must be the Posterior of the run"):
        pn.resume(store, 30, post=3)  # type: ignore[arg-type]
    assert_same_runs(pn.resume(store, 30, post=post(), progress=False), whole)


def test_what_a_store_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "run.zarr"
    sampled("pcnl", 10, store=store)
    with pytest.raises(FileExistsError, match=r"exists: patrac_native\.resume\(store, draws\) goes on"):
        sampled("pcnl", 10, store=store)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; make it first"):
        sampled("pcnl", 10, store=tmp_path / "nowhere" / "run.zarr")
    with pytest.raises(ValueError, match=r"draws is the total of each chain; .* has 10 already, got 9"):
        pn.resume(store, 9)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        pn.resume(store, 0)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        pn.resume(tmp_path / "other.zarr", 10)
    with pytest.raises(ValueError, match="init: the log-likelihood or its gradient is not finite"):
        sampled("pcnl", 10, store=tmp_path / "b.zarr", init=np.full((3, 44), 1e30))
    assert not (tmp_path / "b.zarr").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is not the store of a run, or the run was killed before it began"):
        pn.resume(tmp_path / "empty", 10)
    with pytest.raises(ValueError, match='store needs device="cpu"'):
        sampled("pcnl", 10, store=tmp_path / "b.zarr", device="emulated:1")
    target = pn.Target(lambda theta: (0.0, theta * 0), prior_variance=np.ones(2))
    with pytest.raises(TypeError, match="a Target is a function, which no file holds"):
        pn.sample(target, draws=5, store=tmp_path / "b.zarr", progress=False)
    assert not (tmp_path / "b.zarr").exists()
    with run_folder.RunFolder(store).locked(), pytest.raises(FileExistsError, match="another run writes to"):
        pn.resume(store, 20)
    header = np.load(store / "run.npz")
    content = json.loads(str(header["header"]))
    content["network"]["level"] = "v9"
    arrays = {name: header[name] for name in header if name not in ("header", "sha256")}
    own = {name: value for name, value in content.items() if name not in ("format", "kind")}
    run_folder.save_arrays(store / "run.npz", content["kind"], own, arrays, overwrite=True)
    with pytest.raises(ValueError, match=r"at the instruction-set level v9, .* PATRAC_SIMD=v9 .* exact=False"):
        pn.resume(store, 20)
    content["network"]["level"], content["version"] = posterior("pcnl").network.level, "0.0.1"
    own = {name: value for name, value in content.items() if name not in ("format", "kind")}
    run_folder.save_arrays(store / "run.npz", content["kind"], own, arrays, overwrite=True)
    with pytest.raises(ValueError, match=r"was made by patrac_native 0\.0\.1, and this is .* exact=False"):
        pn.resume(store, 20)
    assert pn.resume(store, 20, exact=False, progress=False).n_draws == 20
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r"store needs zarr, .* pip install 'patrac_native\[store\]'"):
        sampled("pcnl", 10, store=tmp_path / "c.zarr")


@pytest.mark.slow
@pytest.mark.usefixtures("short_stretches")
def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    sampled("pcnl", 60, store=store)
    copy = tmp_path / "copy.zarr"

    def damage(path: Path) -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store, copy)
        content = bytearray((copy / path).read_bytes())
        content[len(content) // 2] ^= 0xFF
        (copy / path).write_bytes(content)
        return copy

    for name in ("run.npz", "checkpoint.npz"):
        with pytest.raises(ValueError, match=re.escape(name)):
            pn.resume(damage(Path(name)), 70, progress=False)
    (chunk,) = store.glob("posterior/weights_1/c/0/0/*/*")
    with pytest.raises(Exception, match=r"(?i)checksum|corrupt"):
        _ = pn.Draws.load(damage(chunk.relative_to(store))).theta
    (copy / chunk.relative_to(store)).unlink()
    with pytest.raises(ValueError, match="is damaged: parts of its draws are missing"):
        _ = pn.Draws.load(copy).theta
    shutil.rmtree(damage(chunk.relative_to(store)) / "sample_stats" / "step_size" / "c")
    with pytest.raises(ValueError, match="is damaged: parts of its numbers step_size are missing"):
        pn.Draws.load(copy)
    folder = run_folder.RunFolder(store)
    at = folder.checkpoint()
    assert at is not None
    whole = at.states

    def changed(place: int, value: int) -> list[bytes]:
        return [state[: 8 * place] + np.int64(value).tobytes() + state[8 * place + 8 :] for state in whole]

    # First come seven counters of the chain, of which the fifth is that of steps since a draw, then its phase.
    step, since_draw, phase = 0, 4, 7
    for states in (
        [state[:-1] for state in whole],
        [state + b"0" for state in whole],
        changed(step, -1),
        changed(since_draw, 3),
        changed(since_draw, -1),
        changed(phase, 1 << 40),
        changed(phase, -1),
    ):
        at.states = states
        folder.save(at)
        with pytest.raises(ValueError, match="state: it belongs to a run of other settings, or is damaged"):
            pn.resume(store, 70, progress=False)
    content = (store / "checkpoint.npz").read_bytes()
    (store / "checkpoint.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"checkpoint\.npz"):
        pn.resume(store, 70, progress=False)


@pytest.mark.usefixtures("short_stretches")
def test_what_was_confirmed_outlives_a_full_disk_and_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, whole, calls = tmp_path / "run.zarr", sampled("persistent", 80, warmup=100), 0
    save = run_folder.RunFolder.save

    def fails(error: BaseException, after: int) -> None:
        def now(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
            nonlocal calls
            calls += 1
            if calls > after:
                raise error
            save(self, at)

        monkeypatch.setattr(run_folder.RunFolder, "save", now)

    fails(OSError(28, "No space left on device"), after=6)
    with pytest.raises(OSError, match="No space left"):
        sampled("persistent", 80, warmup=100, store=store)
    left = pn.Draws.load(store)
    assert 0 < left.n_draws < 80
    assert np.array_equal(left.theta, whole.theta[:, : left.n_draws])
    assert left.settings["completed"] is False
    fails(KeyboardInterrupt(), after=10)
    with pytest.warns(UserWarning, match="interrupted: .* of 80 draws of each chain are returned"):
        more = pn.resume(store, 80, progress=False)
    assert left.n_draws < more.n_draws < 80
    monkeypatch.setattr(run_folder.RunFolder, "save", save)
    # All that the store has: now the arrays have it too.
    enough = pn.resume(store, more.n_draws, progress=False)
    assert np.array_equal(enough.theta, whole.theta[:, : more.n_draws])
    assert xarray.open_datatree(store, engine="zarr", consolidated=False)["posterior"].sizes["draw"] == more.n_draws
    assert_same_runs(pn.resume(store, 80, progress=False), whole)


@pytest.mark.usefixtures("short_stretches")
def test_draws_are_read_while_the_run_goes_on(tmp_path: Path) -> None:
    store, whole = tmp_path / "run.zarr", sampled("pcnl", 200, warmup=100)
    thread = threading.Thread(target=sampled, args=("pcnl", 200), kwargs={"store": store, "warmup": 100})
    thread.start()
    seen = []
    while thread.is_alive():
        thread.join(0.02)
        if (store / "checkpoint.npz").exists():
            draws = pn.Draws.load(store)
            assert np.array_equal(draws.theta, whole.theta[:, : draws.n_draws])
            seen.append(draws.n_draws)
    thread.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize(("name", "finished"), [("scales and variance", True), ("rows", True), ("tails", False)])
def test_open_draws_give_the_numbers_of_draws_in_memory(
    name: str, finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole chunks and a rest in the checkpoint, blocks of one row and no array of all states."""
    store, save, calls = tmp_path / "run.zarr", run_folder.RunFolder.save, 0
    if finished:
        sampled(name, 60, warmup=100, store=store)
    else:

        def fails(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
            nonlocal calls
            calls += at.written > 0 and at.theta is not None and at.theta.shape[1] > 0
            if calls > 2:
                raise OSError(28, "No space left on device")
            save(self, at)

        with monkeypatch.context() as patch:
            patch.setattr(run_folder.RunFolder, "save", fails)
            with pytest.raises(OSError, match="No space left"):
                sampled(name, 600, warmup=100, store=store)
    loaded, opened = pn.Draws.load(store), pn.Draws.open(store, memory=1)
    assert loaded.theta.shape == (3, opened.n_draws, opened.network.dim)  # in memory from now on
    if not finished:
        assert loaded.settings["completed"] is False

    rows = X[:3]

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("all states were read at once")

    monkeypatch.setattr(run_folder.StoredTheta, "__array__", forbidden)
    assert len(list(opened.distribution(rows).blocks())) == 3
    assert len(list(loaded.distribution(rows).blocks())) == 1
    np.testing.assert_array_equal(opened.predict(rows), loaded.predict(rows))
    # Sums over draws round by the shape of a block, which therefore is the same for both.
    monkeypatch.setattr(distribution, "_BLOCK_BYTES", 1)
    for values in (
        lambda draws: draws.predictive(rows, seed=3),
        lambda draws: draws.quantiles(rows),
        lambda draws: draws.interval(rows),
        lambda draws: draws.distribution(rows).mean(),
        lambda draws: draws.distribution(rows).log_density(Y[:3]),
        lambda draws: draws.log_likelihood_rows(rows, Y[:3]),
    ):
        np.testing.assert_array_equal(values(opened), values(loaded))
    # A reading of the draws serves four blocks.
    four = pn.Draws.open(store, memory=64 * loaded.predict(X[:1]).nbytes)
    for one in (rows, X[:10]):
        found, expected = (draws.distribution(one).mean() for draws in (four, loaded))
        np.testing.assert_array_equal(found, expected)
    errors = [vars(draws.rerun_error(rows)) for draws in (opened, loaded)]
    for of in errors:
        of |= {f"kurtosis of {name}": values for name, values in of.pop("kurtosis").items()}
    for key, value in errors[1].items():
        np.testing.assert_array_equal(errors[0][key], value)
    found, expected = opened.summary(rows, Y[:3], progress=False), loaded.summary(rows, Y[:3], progress=False)
    assert str(found) == str(expected)
    page = pn.report.Report("figures")
    pn.report.add_run_sections(page, opened, rows, summary=found)
    assert page.html().count("<figure") >= 3
    for key in ("mean", "sd", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, key), getattr(expected, key))


@pytest.mark.usefixtures("short_stretches")
def test_one_reading_of_the_draws_serves_several_blocks_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read, rows = tmp_path / "run.zarr", run_folder.StoredTheta.blocks, X[:10]
    draws = sampled("pcnl", 60, warmup=100, store=store)
    row_bytes, readings = draws.n_chains * draws.n_draws * 4, 0
    expected = pn.Draws.open(store, memory=1).quantiles(rows)

    def counted(self: run_folder.StoredTheta) -> Any:
        nonlocal readings
        readings += 1
        return read(self)

    monkeypatch.setattr(run_folder.StoredTheta, "blocks", counted)
    opened = pn.Draws.open(store, memory=64 * row_bytes)
    np.testing.assert_array_equal(opened.quantiles(rows), expected)
    assert readings == 3  # four rows at a time
    assert [rows.stop - rows.start for rows, _ in opened.distribution(rows).blocks()] == [1] * 10


@pytest.mark.slow
@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_store_of_fewer_digits_has_the_rounded_states(dtype: str, tmp_path: Path) -> None:
    """Chains, statistics and resumption are those of all digits."""
    store, whole = tmp_path / "run.zarr", sampled("scales and variance", 60, "float64")
    with np.errstate(over="ignore"):
        rounded = whole.theta.astype(dtype).astype(np.float64)
    first = sampled("scales and variance", 40, "float64", store=store, store_dtype=dtype)
    assert np.array_equal(first.theta, rounded[:, :40])
    assert zarr.open_group(store, mode="r")["posterior/weights_1"].dtype == np.dtype(dtype)
    for found in (pn.resume(store, 60, progress=False), pn.Draws.open(store)):
        assert np.array_equal(found.theta, rounded) and found.theta.dtype == np.float64
        for name, values in whole.stats.items():
            assert np.array_equal(found.stats[name], values, equal_nan=True), name


def test_digits_that_a_store_refuses(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="store_dtype must be None or one of float16, float32; got 'int8'"):
        sampled("pcnl", 10, store=tmp_path / "run.zarr", store_dtype="int8")
    far = pn.Posterior(NET, pn.Full(), pn.GaussianPrior(), FIXED, X, Y)
    settings: dict[str, Any] = {"chains": 1, "draws": 5, "warmup": None, "seed": 0, "progress": False}
    with pytest.raises(OverflowError, match=r"float16 of the store .* some are above 65504: sample with another"):
        pn.sample(
            far,
            pn.PCN(1e-6),
            init=np.full((1, 44), 1e5),
            store=tmp_path / "run.zarr",
            store_dtype="float16",
            **settings,
        )
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.usefixtures("short_stretches")
def test_what_auto_became_is_in_the_store_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "run.zarr"
    draws = sampled("rows", 20, warmup=50, store=store)
    header, _ = run_folder.RunFolder(store).given()
    assert header["settings"]["kernel"] == "auto"
    assert header["resolved"]["kernel"] == draws.settings["kernel"] and draws.settings["kernel"]["collapse"]
    assert header["resolved"]["device"] == "cpu" and header["resolved"]["level"] == draws.network.level
    from patrac_native.sampling import preparation

    monkeypatch.setattr(preparation, "_resolve_kernel", lambda *_: (pn.MGrad(), "another version's choice"))
    with pytest.raises(ValueError, match=r"run\.zarr was begun with the kernel .*collapse.*, now .*exact=False"):
        pn.resume(store, 40, progress=False)


@pytest.mark.usefixtures("short_stretches")
def test_a_store_that_was_replaced_under_open_draws_is_noticed(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    sampled("pcnl", 60, warmup=100, store=store)
    opened = pn.Draws.open(store)
    shutil.rmtree(store)
    with pytest.raises(ValueError, match="was removed or replaced while its draws were open"):
        opened.quantiles(X)
    sampled("pcnl", 60, warmup=100, store=store, seed=5)
    with pytest.raises(ValueError, match="was removed or replaced while its draws were open"):
        _ = opened.theta
    pn.resume(store, 80, progress=False)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        pn.Draws.open(tmp_path / "other.zarr")
    with pytest.raises(ValueError, match="memory must be at least 1"):
        pn.Draws.open(store, memory=0)


@pytest.mark.usefixtures("short_stretches")
def test_chunks_are_on_the_disk_before_the_checkpoint_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of the arrays that has changed since the last checkpoint has been synced since its change."""
    store, save, fsync = tmp_path / "run.zarr", run_folder.RunFolder.save, os.fsync
    synced: dict[tuple[int, int], int] = {}
    checked = 0

    def sync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced[found.st_dev, found.st_ino] = found.st_mtime_ns
        fsync(descriptor)

    def checks(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
        nonlocal checked
        for path in [store, *store.glob("[pscz]*/**/*")] if at.written else ():
            found = path.stat()
            assert synced.get((found.st_dev, found.st_ino), -1) >= found.st_mtime_ns or path == store, path
            checked += 1
        save(self, at)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(run_folder.RunFolder, "save", checks)
    sampled("scales and variance", 100, warmup=100, store=store)
    assert checked > 100


@pytest.mark.slow
def test_the_script_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(pages.script_of("stores.md", "pn.resume"), "docs/stores.md", "exec"), names)
    assert names["draws"].n_draws == names["so_far"].n_draws == names["tree"]["posterior"].sizes["draw"] == 1000
    exec(compile(pages.script_of("stores.md", "moments_every"), "docs/stores.md", "exec"), names)
    assert names["moments"].states == 4_000 and names["moments"].mean.shape == (50, 1)
    exec(compile(pages.script_of("stores.md", "pn.start"), "docs/stores.md", "exec"), names)
    function = names["draws"].summary(names["X"]).function
    assert function.min_ess_bulk >= 400 and function.max_rhat <= 1.01


KILLS = """
import json, os, pickle, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import patrac_native as pn
from patrac_native.draws import run_folder
from patrac_native.sampling import stored_run
sys.path.insert(0, sys.argv[1])
import test_resume
stored_run.KeptInFolder.stretch_seconds, run_folder._CHUNK_BYTES = 0.05, 500_000
folder, names, kills = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
chance, log = random.Random(int(sys.argv[5])), []
for name in names:
    store, killed = f"{folder}/{name}.zarr", 0
    while True:
        # So many that no run ends before its kill, however fast the machine; after the last kill, some more.
        draws = 10**9
        before = pn.Draws.load(store).n_draws if os.path.exists(f"{store}/checkpoint.npz") else 0
        began = os.path.exists(f"{store}/run.npz")
        if killed == kills:
            draws = before + 3_000
        child = os.fork()
        if child == 0:
            try:
                threads = chance.choice([1, 2])
                if began:
                    pn.resume(store, draws, threads=threads, progress=False)
                else:
                    import shutil
                    shutil.rmtree(store, ignore_errors=True)
                    test_resume.sampled(name, draws, store=store, threads=threads)
                os._exit(0)
            except BaseException as error:
                print(name, repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        if killed < kills:
            time.sleep(chance.uniform(0.0, 1.0))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status)
        killed += 1
        after = pn.Draws.load(store).n_draws if os.path.exists(f"{store}/checkpoint.npz") else 0
        assert after >= before, (before, after)
        log.append([name, before, after, is_killed])
        if not is_killed:
            assert status == 0, status
            break
print(json.dumps(log))
"""


@pytest.mark.slow
def test_kills_at_random_moments_cost_no_confirmed_draw_and_no_bit(tmp_path: Path) -> None:
    """`KILLS=200` in the environment asks for more of them than the 30 that are made by default."""
    names = ["persistent", "collapsed", "scales and variance", "rows", "tails", "last layer, sampled"]
    kills = int(os.environ.get("KILLS", "30")) // len(names)
    arguments = [str(Path(__file__).parent), str(tmp_path), json.dumps(names), str(kills), os.environ.get("SEED", "1")]
    done = process("-c", KILLS, *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    log = json.loads(done.stdout.splitlines()[-1])
    for entry in log:
        print(*entry)
    assert sum(entry[-1] for entry in log) == kills * len(names)
    assert any(0 < before < after for _, before, after, _ in log)
    for name in names:
        found = pn.Draws.load(tmp_path / f"{name}.zarr")
        assert_same_runs(found, sampled(name, found.n_draws))
