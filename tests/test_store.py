"""Files of draws and networks: what is written comes back, nothing is lost, what cannot be read is refused by name."""

from __future__ import annotations

import errno
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.network import files as store
from patrac_native.network.network import TrainingHistory
from problems import ARCHITECTURES, LIKELIHOODS


def sampled(architecture: str = "mix", likelihood: str = "gaussian", dtype: str = "float32") -> pn.Draws:
    rng = problems.rng_of("store", architecture, likelihood)
    problem = problems.problem(
        rng, (2, 5, 4, 3), 9, architecture_name=architecture, likelihood=likelihood, dtype=dtype, activation="gelu"
    )
    return pn.sample(problem.post, chains=2, draws=3, warmup=400, seed=1)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, pn.Draws]:
    path, draws = tmp_path / "run.draws", sampled()
    draws.settings["seconds"] = 0.5  # the same bytes in every run
    draws.save(path)
    return path, draws


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_draws_come_back_with_equal_arrays_and_predictions(architecture: str, likelihood: str, tmp_path: Path) -> None:
    dtype = "float64" if likelihood == "bernoulli" else "float32"
    draws = sampled(architecture, likelihood, dtype)
    draws.save(tmp_path / "run")
    loaded = pn.Draws.load(tmp_path / "run")
    assert loaded.theta.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(loaded.theta, draws.theta)
    assert list(loaded.stats) == list(draws.stats)
    for name, values in draws.stats.items():
        np.testing.assert_array_equal(loaded.stats[name], values)
        assert loaded.stats[name].dtype == values.dtype
    assert loaded.settings == json.loads(json.dumps(draws.settings))
    assert loaded.likelihood == draws.likelihood
    assert loaded.network.architecture == draws.network.architecture
    assert loaded.network.prior == draws.network.prior
    assert loaded.network.level == draws.network.level
    np.testing.assert_array_equal(loaded.network.prior_variance, draws.network.prior_variance)
    X = problems.rng_of("store X").normal(size=(7, 2))
    np.testing.assert_array_equal(loaded.predict(X), draws.predict(X))
    np.testing.assert_array_equal(loaded.predictive(X, seed=3), draws.predictive(X, seed=3))
    assert repr(loaded) == repr(draws)


def test_the_path_is_taken_as_it_is(saved: tuple[Path, pn.Draws]) -> None:
    """No file name extension is added, and no other file is left in the folder."""
    path, _ = saved
    assert [entry.name for entry in path.parent.iterdir()] == ["run.draws"]


def test_a_network_comes_back_with_its_history(tmp_path: Path) -> None:
    history = TrainingHistory(np.array([3.0, 1.5]), 1, 1.5, 1.0, 9.0, "patience", {"seed": 1}, 0.25)
    bare = problems.random_network(problems.rng_of("network file"), (2, 4, 3), "silu")
    net = pn.Network(bare.weights, bare.biases, bare.activation, history=history)
    net.save(tmp_path / "net")
    loaded = pn.Network.load(tmp_path / "net")
    for a, b in zip((*net.weights, *net.biases), (*loaded.weights, *loaded.biases), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.activation == "silu"
    assert loaded.history is not None and loaded.history.to_dict() == history.to_dict()
    assert loaded.history.validation_mse is None


def test_validation_residuals_of_a_network_come_back(tmp_path: Path) -> None:
    history = TrainingHistory(
        np.array([3.0, 1.5]), 1, 1.5, 1.0, 9.0, "patience", validation_mse=np.array([0.125, 1.0 / 3.0])
    )
    bare = problems.random_network(problems.rng_of("network file"), (2, 4, 2), "tanh")
    pn.Network(bare.weights, bare.biases, history=history).save(tmp_path / "network.npz")
    back = pn.Network.load(tmp_path / "network.npz").history
    assert back is not None and history.validation_mse is not None
    np.testing.assert_array_equal(back.validation_mse, history.validation_mse)
    earlier = {name: value for name, value in history.to_dict().items() if name != "validation_mse"}
    assert TrainingHistory.from_dict(earlier).validation_mse is None


# Nothing is lost


def test_an_existing_file_is_refused_and_kept(saved: tuple[Path, pn.Draws]) -> None:
    path, draws = saved
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"run\.draws exists; choose another path or pass overwrite=True"):
        draws.save(path)
    assert path.read_bytes() == before


def test_overwrite_replaces_it(saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    other = sampled("out")
    other.save(path, overwrite=True)
    np.testing.assert_array_equal(pn.Draws.load(path).theta, other.theta)
    assert [entry.name for entry in path.parent.iterdir()] == ["run.draws"]


@pytest.mark.parametrize("where", ["while writing", "while moving"])
def test_no_room_on_the_disk_says_so_and_keeps_what_was_there(
    where: str, saved: tuple[Path, pn.Draws], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, draws = saved
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((np, "savez") if where == "while writing" else (store.os, "replace")), full)
    size = draws.theta.nbytes
    with pytest.raises(OSError, match=r"no room on the disk for \d+ bytes; free some or choose another path") as caught:
        draws.save(path, overwrite=True)
    assert caught.value.errno == errno.ENOSPC
    assert int(str(caught.value).split("for ")[1].split(" bytes")[0]) >= size
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["run.draws"]


# What cannot be read


def test_a_missing_file_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pn.Draws.load(tmp_path / "nothing")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-30],
    "text": lambda content: b"theta\n1.0\n",
    "zeros": lambda content: bytes(len(content)),
    "a byte of the data": lambda content: content[:3000] + bytes([content[3000] ^ 0xFF]) + content[3001:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_by_name(damage: str, saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(
        ValueError, match=r"run\.draws is damaged or was not written by patrac_native \(.*\); restore a"
    ):
        pn.Draws.load(path)


def test_no_flipped_byte_gets_past_or_out_as_another_error(saved: tuple[Path, pn.Draws]) -> None:
    """Every byte of the archive's directory, which no checksum covers, and 150 bytes before it.

    A load either refuses by name or returns the same numbers.
    """
    path, draws = saved
    content = path.read_bytes()
    directory = content.find(b"PK\x01\x02")
    rng = problems.rng_of("flips")
    refused = 0
    for position in [*rng.choice(directory, 150, replace=False), *range(directory, len(content))]:
        broken = bytearray(content)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(broken))
        try:
            loaded = pn.Draws.load(path)
        except ValueError as error:
            assert "run.draws" in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.theta, draws.theta)
            for name, values in draws.stats.items():
                np.testing.assert_array_equal(loaded.stats[name], values)
    assert refused > 300


def test_a_file_that_lacks_an_array_is_refused(saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files if name != "stat_nonfinite"}
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    with pytest.raises(ValueError, match=r"run\.draws is damaged .*its arrays are not those that were written"):
        pn.Draws.load(path)


def rewritten(path: Path, **changes: Any) -> None:
    """Write the file again with replaced header entries; None removes an entry."""
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    header = json.loads(str(arrays.pop("header"))) | changes
    header = {key: value for key, value in header.items() if value is not None}
    with path.open("wb") as stream:
        np.savez(stream, header=np.array(json.dumps(header)), **arrays)


def test_another_version_is_refused_with_both_versions(saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    rewritten(path, format=99)
    with pytest.raises(
        ValueError,
        match=r"run\.draws has file format 99, but this version of patrac_native reads 1; read it with the ver",
    ):
        pn.Draws.load(path)


@pytest.mark.parametrize("section", ["header", "net", "network", "prior", "likelihood"])
def test_unknown_entries_are_named(section: str, saved: tuple[Path, pn.Draws]) -> None:
    """They may say what this version would leave out."""
    path, draws = saved
    header, _ = draws._to_arrays()
    content = {"weird": 1} if section == "header" else {section: header.get(section, {}) | {"weird": 1}}
    if section == "prior":
        content = {"network": header["network"] | {"prior": header["network"]["prior"] | {"weird": 1}}}
    rewritten(path, **content)
    with pytest.raises(ValueError, match=r"run\.draws is damaged or was not written by patrac_native \(.*'weird'"):
        pn.Draws.load(path)


def test_unknown_entries_of_networks_and_mixtures_are_named(saved: tuple[Path, pn.Draws], tmp_path: Path) -> None:
    _, draws = saved
    draws.network.net.save(tmp_path / "net")
    pn.DrawsMixture([draws]).save(tmp_path / "mixture")
    for name, load in (("net", pn.Network.load), ("mixture", pn.DrawsMixture.load)):
        rewritten(tmp_path / name, weird=1, odd=2)
        with pytest.raises(ValueError, match=rf"{name} is damaged .*header.* has the unknown entries 'odd', 'weird'"):
            load(tmp_path / name)


def test_another_kind_of_file_is_refused_with_both_kinds(saved: tuple[Path, pn.Draws], tmp_path: Path) -> None:
    path, draws = saved
    draws.network.net.save(tmp_path / "net")
    with pytest.raises(ValueError, match=r"net holds a network, not draws; give the path of a file with draws"):
        pn.Draws.load(tmp_path / "net")
    with pytest.raises(ValueError, match=r"run\.draws holds draws, not a network"):
        pn.Network.load(path)


@pytest.mark.parametrize("missing", ["format", "kind"])
def test_a_header_of_another_package_is_refused(missing: str, saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    rewritten(path, **{missing: None})
    with pytest.raises(ValueError, match="no header of this package"):
        pn.Draws.load(path)


def test_an_npz_of_other_arrays_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "other").open("wb") as stream:
        np.savez(stream, theta=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="was not written by patrac_native"):
        pn.Draws.load(tmp_path / "other")
    with (tmp_path / "plain").open("wb") as stream:
        np.save(stream, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="was not written by patrac_native"):
        pn.Draws.load(tmp_path / "plain")


class Exploit:
    """Unpickling this runs code: it would set `ran`."""

    ran = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Exploit, "ran", True)


@pytest.mark.parametrize("place", ["whole file", "array", "header"])
def test_a_pickle_is_never_opened(place: str, saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    if place == "whole file":
        path.write_bytes(pickle.dumps(Exploit()))
    else:
        with np.load(path) as content:
            arrays = {name: content[name] for name in content.files}
        arrays["theta" if place == "array" else "header"] = np.array([Exploit()], dtype=object)
        with path.open("wb") as stream:
            np.savez(stream, **arrays)
    with pytest.raises(ValueError, match=r"run\.draws is damaged or was not written by patrac_native"):
        pn.Draws.load(path)
    assert not Exploit.ran


def test_the_file_holds_no_pickled_array(saved: tuple[Path, pn.Draws]) -> None:
    """Every member is a plain .npy whose dtype is not object."""
    path, _ = saved
    with zipfile.ZipFile(path) as content:
        assert content.namelist()
        for name in content.namelist():
            with content.open(name) as member:
                version = np.lib.format.read_magic(member)
                assert version == (1, 0)
                assert not np.lib.format.read_array_header_1_0(member)[2].hasobject
