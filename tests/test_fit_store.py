"""Fits that are kept in a folder: one that was killed is completed to the bits of one without a break."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
from chains import assert_same_runs
from fits import quietly
from patrac_native.cli.main import main
from patrac_native.fit.evaluation import members_of

pytest.importorskip("zarr")

QUICK: dict[str, Any] = {"hidden_layer_sizes": 6, "max_iter": 60, "l2": 0.5, "random_state": 3, "n_jobs": 1}
# Fits with each kind of piece: pilot runs and a run that ends once f has converged; runs of several networks; an
# estimated dispersion; replicates that are added for a precision; classes.
FITS: dict[str, dict[str, Any]] = {
    "choice": {**QUICK, "minutes": 0.02, "draws": 40},
    "ends": {**QUICK, "minutes": 0.02, "architecture": "full", "likelihood": "gaussian"},
    "networks": {**QUICK, "architecture": "mix", "k": 2, "networks": 3, "thin": 5, "warmup": 400, "draws": 40},
    "counts": {**QUICK, "likelihood": "negative-binomial", "architecture": "full", "thin": 5, "warmup": 400},
    "precision": {**QUICK, "minutes": 0.02, "precision": 0.02, "architecture": "full", "chains": 2, "draws": 30},
    "classes": {**QUICK, "thin": 5, "warmup": 400, "networks": 2, "draws": 40},
}


def rows(kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 120)
    mean = np.sin(x)
    if kind == "counts":
        return x[:, None], rng.poisson(np.exp(1 + mean))
    if kind == "classes":
        return x[:, None], np.where(mean + 0.3 * rng.normal(size=120) > 0, "up", "down")
    return x[:, None], mean + 0.3 * rng.normal(size=120)


def fit(kind: str, **given: Any) -> Any:
    """Return a fit of a kind, without its warnings."""
    made = pn.PatracClassifier if kind == "classes" else pn.PatracRegressor
    return quietly(made(**{**FITS[kind], **given}), *rows(kind))


def assert_equal(found: Any, wanted: Any) -> None:
    """Check that two fits have the same draws, statistics and report, times apart."""
    mine, others = members_of(found.draws_), members_of(wanted.draws_)
    assert len(mine) == len(others)
    for one, other in zip(mine, others, strict=True):
        assert_same_runs(one, other)
    reports = [one.report_.to_dict() for one in (found, wanted)]
    for report in reports:
        report.pop("seconds")
        report["summary"] = report["summary"].split("\nwhat")[0]
    assert reports[0]["lines"] == reports[1]["lines"]
    assert reports[0]["scores"] == reports[1]["scores"] and reports[0]["verdict"] == reports[1]["verdict"]


@pytest.fixture(scope="module")
def unbroken() -> dict[str, Any]:
    """Fits without a folder, which are made as they are asked for."""
    return {}


def of(unbroken: dict[str, Any], kind: str) -> Any:
    if kind not in unbroken:
        unbroken[kind] = fit(kind)
    return unbroken[kind]


def calls(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> list[str]:
    """Count the long calls of a fit, of which one raises in place of the work."""
    made: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(pn, name)

        def call(*arguments: Any, **named: Any) -> Any:
            made.append(name)
            if len(made) == fails_at:
                raise OSError("the machine went down")
            return real(*arguments, **named)

        return call

    for name in ("train_many", "sample", "sample_many", "resume"):
        monkeypatch.setattr(pn, name, counted(name))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", FITS)
def test_a_fit_that_failed_in_each_stage_is_completed_to_the_same_bits(
    kind: str, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """The first call of each kind of work that a piece needs fails in place of it, until all pieces are there."""
    wanted, store, broken = of(unbroken, kind), tmp_path / "fit", 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            made = calls(patch, fails_at=broken + 1)
            try:
                found = fit(kind, store=store)
            except OSError:
                broken += 1
                continue
        # What is finished is read: networks by no call, runs by one each.
        assert made.count("train_many") <= 1 and broken >= 2
        break
    assert_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FITS)
def test_a_finished_fit_is_read_from_its_folder(kind: str, tmp_path: Path, unbroken: dict[str, Any]) -> None:
    assert_equal(fit(kind, store=tmp_path / "fit"), of(unbroken, kind))
    with pytest.MonkeyPatch.context() as patch:
        made = calls(patch)
        assert_equal(fit(kind, store=tmp_path / "fit"), of(unbroken, kind))
    assert set(made) == {"resume"}


KILLED = """
import sys
import test_fit_store
print("begun", flush=True)
test_fit_store.fit(sys.argv[1], store=sys.argv[2])
"""


def moments() -> Iterator[Any]:
    """Yield fits, and what must be in the folder when they are killed: during training, pilot runs and chains."""
    yield pytest.param("choice", "fit.npz", id="training")
    yield pytest.param("choice", "*runs-0.zarr", id="pilot runs")
    yield pytest.param("ends", "*runs-0.zarr/checkpoint.npz", id="chains")
    yield pytest.param("networks", "*runs-1.zarr", id="networks")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "awaited"), list(moments()))
def test_a_killed_fit_is_completed_to_the_same_bits(
    kind: str, awaited: str, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    store = tmp_path / "fit"
    process = subprocess.Popen([sys.executable, "-c", KILLED, kind, str(store)], cwd=Path(__file__).parent)
    while not list(store.glob(awaited)) and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(store.glob(awaited))
    assert_equal(fit(kind, store=store), of(unbroken, kind))


def test_another_fit_is_refused_by_what_differs(tmp_path: Path) -> None:
    store = tmp_path / "fit"
    fit("networks", store=store)
    with pytest.raises(ValueError, match=r"holds another fit: l2 0\.5 there, 0\.7 here"):
        fit("networks", store=store, l2=0.7)
    with pytest.raises(ValueError, match="random_state 3 there, 4 here"):
        fit("networks", store=store, random_state=4)
    with pytest.raises(ValueError, match=r"draws 40 there, 50 here.* or warm_start=True to lengthen its chains"):
        fit("networks", store=store, draws=50)
    X, y = rows("networks")
    with pytest.raises(ValueError, match="holds another fit: rows"):
        pn.PatracRegressor(**FITS["networks"], store=store).fit(X, y + 1e-3 * X[:, 0])
    fit("networks", store=store, n_jobs=2, verbose=False)  # on which no draw depends


def test_a_seed_that_is_not_given_is_that_of_the_folder(tmp_path: Path) -> None:
    store = tmp_path / "fit"
    assert_equal(fit("networks", store=store, random_state=None), fit("networks", store=store, random_state=None))


@pytest.mark.parametrize("kind", ["networks", "classes"])
def test_a_warm_start_lengthens_the_chains(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "fit"
    first = fit(kind, store=store)
    longer = fit(kind, store=store, draws=70, warm_start=True)
    assert first.draws_.n_draws == 40
    assert_equal(longer, fit(kind, draws=70))
    with pytest.raises(ValueError, match=r"is the number of each chain in total, .* has 70; got 60"):
        fit(kind, store=store, draws=60, warm_start=True)
    with pytest.raises(ValueError, match="draws 70 there, 40 here"):
        fit(kind, store=store)


@pytest.mark.slow
def test_chains_that_had_converged_are_lengthened(tmp_path: Path) -> None:
    store = tmp_path / "fit"
    first = fit("ends", store=store)
    assert first.draws_.n_draws < 500
    longer = fit("ends", store=store, draws=600, warm_start=True)
    assert longer.draws_.n_draws == 600
    kept = np.asarray(longer.draws_.theta)[:, : first.draws_.n_draws]
    np.testing.assert_array_equal(kept, np.asarray(first.draws_.theta))


def test_a_warm_start_without_a_folder_names_the_remedy() -> None:
    reg = fit("networks", warm_start=True)
    with pytest.raises(ValueError, match="store is None: give store, a folder, to the first fit"):
        reg.fit(*rows("networks"))
    assert reg.draws_.n_draws == 40  # what there was stays


def test_parameters_are_saved_and_the_file_needs_no_folder(tmp_path: Path) -> None:
    reg = fit("networks", store=tmp_path / "fit")
    reg.save(tmp_path / "estimator.npz")
    os.rename(tmp_path / "fit", tmp_path / "gone")
    loaded = pn.PatracRegressor.load(tmp_path / "estimator.npz")
    assert loaded.store == str(tmp_path / "fit") and loaded.warm_start is False
    X, _ = rows("networks")
    np.testing.assert_array_equal(loaded.predict(X), fit("networks").predict(X))


def test_one_fit_at_a_time_and_no_folder_of_a_run(tmp_path: Path) -> None:
    from patrac_native.files.output import lock

    store = tmp_path / "fit"
    store.mkdir()
    descriptor = os.open(store, os.O_RDONLY)
    assert lock(descriptor, wait=False)
    try:
        with pytest.raises(FileExistsError, match="another fit writes to store="):
            fit("networks", store=store)
    finally:
        os.close(descriptor)
    (store / "run.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="is the store of a run of chains"):
        fit("networks", store=store)


OPTIONS = [*"--target y --hidden-layer-sizes 6 --max-iter 60 --l2 0.5 --n-jobs 1 --architecture mix --k 2".split()]
OPTIONS += [*"--thin 5 --warmup 400 --draws 40 --chains 2 --networks 2".split()]


@pytest.mark.slow
def test_the_command_that_the_first_line_names_completes_a_killed_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = rows("networks")
    data = tmp_path / "t.csv"
    np.savetxt(data, np.column_stack([X, y]), delimiter=",", header="x,y", comments="")
    store, whole, out = tmp_path / "fit", tmp_path / "whole", tmp_path / "out"
    assert main(["fit", str(data), *OPTIONS, "--out", str(whole)]) == 0
    arguments = ["fit", str(data), *OPTIONS, "--out", str(out), "--store", str(store)]
    command = [sys.executable, "-m", "patrac_native.cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while not list(store.glob("*runs-0.zarr")) and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    said, _ = process.communicate()
    assert said.split("\n")[0] == f"a kill costs little: patrac resume {store} completes this fit"
    assert main(["show", str(store)]) == 0
    assert "a fit, unfinished" in capsys.readouterr().out
    assert main(arguments) == 2
    assert f"holds a fit; patrac resume {store} goes on with it" in capsys.readouterr().err
    assert main(["resume", str(store)]) == 0
    wanted, found = (pn.PatracRegressor.load(one / "estimator.npz") for one in (whole, out))
    assert_equal(found, wanted)
    assert sorted(os.listdir(out)) == sorted(os.listdir(whole))
    capsys.readouterr()
    assert main(["show", str(store), "--figures", str(tmp_path / "f.html")]) == 0
    said = capsys.readouterr().out
    assert "a fit, finished" in said and said.count("40 of 40 draws of each chain") == 2
    for part in ("predictions of y: ", "posterior of f: "):  # of each network
        assert said.count(part) >= 2, said
    assert (tmp_path / "f.html").stat().st_size > 10_000
    assert main(["resume", str(store), "--draws", "30"]) == 2  # which costs nothing
    assert main(["resume", str(store), "--draws", "60"]) == 0
    assert main(["resume", str(store)]) == 0
    assert pn.PatracRegressor.load(out / "estimator.npz").draws_.n_draws == 60
    data.write_text("x,y\n1,2\n")
    assert main(["resume", str(store)]) == 2
    assert "is no longer the table of the fit" in capsys.readouterr().err


def test_runs_of_chains_are_shown_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    X = np.linspace(-1, 1, 20)[:, None]
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
    store = str(tmp_path / "run.zarr")
    pn.sample(post, chains=2, draws=50, warmup=100, seed=0, store=store, progress=False)
    assert main(["show", store]) == 0
    assert "run.zarr: 50 of 50 draws of each chain" in capsys.readouterr().out
    assert main(["resume", store]) == 2
    assert "draws must be given for a run of chains" in capsys.readouterr().err
    assert main(["resume", store, "--draws", "80"]) == 0
    assert pn.Draws.load(store).n_draws == 80
    assert main(["show", str(tmp_path)]) == 2
    assert "holds neither a fit nor a run of chains" in capsys.readouterr().err


def test_a_table_that_cannot_be_read_again_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "-", "--target", "y", "--store", str(tmp_path / "fit"), "--out", str(tmp_path / "out")]) == 2
    assert "write standard input to a file" in capsys.readouterr().err
