"""Files of draws and networks: what is written comes back, nothing is lost, what cannot be read is refused by name."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import signal
import stat
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from copy import copy as copy_of
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from patrac_native.files import archive as store
from patrac_native.network.network import TrainingHistory
from problems import ARCHITECTURES, LIKELIHOODS
from scripts import process


def sampled(architecture: str = "mix", likelihood: str = "gaussian", dtype: str = "float32") -> pn.Draws:
    rng = problems.rng_of("store", architecture, likelihood)
    problem = problems.problem(rng, (2, 5, 4, 3), 9, architecture, likelihood, dtype=dtype, activation="gelu")
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
    assert_same_draws(loaded, draws)
    assert list(loaded.stats) == list(draws.stats)
    assert all(loaded.stats[name].dtype == values.dtype for name, values in draws.stats.items())
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


@pytest.mark.parametrize(
    ("activation", "history"),
    [
        ("tanh", None),
        ("silu", TrainingHistory(np.array([3.0, 1.5]), 1, 1.5, 1.0, 9.0, "patience", {"seed": 1}, 0.25)),
        ("relu", TrainingHistory(np.array([3.0, np.inf]), 0, 3.0, 2.0, 4.0, "non-finite", {"l2": 1.0}, 0.5)),
        (
            "gelu",
            TrainingHistory(np.ones(2), 1, 1.5, 1.0, 9.0, "patience", validation_mse=np.array([0.125, 1.0 / 3.0])),
        ),
    ],
)
def test_a_network_comes_back_with_its_history(
    activation: str, history: TrainingHistory | None, tmp_path: Path
) -> None:
    bare = problems.random_network(problems.rng_of("network file"), (2, 4, 2), activation)
    net = pn.Network(bare.weights, bare.biases, bare.activation, history=history)
    net.save(tmp_path / "net.any")
    assert [file.name for file in tmp_path.iterdir()] == ["net.any"]
    loaded = pn.Network.load(tmp_path / "net.any")
    for a, b in zip((*net.weights, *net.biases), (*loaded.weights, *loaded.biases), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.activation == activation
    found = loaded.history
    assert (found and found.to_dict()) == (history and history.to_dict())
    assert found is None or history is None or (found.validation_mse is None) == (history.validation_mse is None)


# Nothing is lost


def test_an_existing_file_is_refused_and_kept(saved: tuple[Path, pn.Draws]) -> None:
    path, draws = saved
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"run\.draws exists; choose another path or pass overwrite=True"):
        draws.save(path)
    assert path.read_bytes() == before


def test_overwrite_replaces_it(saved: tuple[Path, pn.Draws]) -> None:
    """At the path as it is given: no extension is added, and no other file is left in the folder."""
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
            assert_same_draws(loaded, draws)
    assert refused > 300


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write the file again with its arrays changed."""
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    change(arrays)
    others = {name: array for name, array in arrays.items() if name != "sha256"}
    if not any(array.dtype.hasobject for array in others.values()):
        arrays["sha256"] = store.contents_hash(others)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def with_header(path: Path, **changes: Any) -> None:
    """Write the file again with replaced header entries; None removes an entry."""

    def change(arrays: dict[str, Any]) -> None:
        header = json.loads(str(arrays["header"])) | changes
        arrays["header"] = np.array(json.dumps({key: value for key, value in header.items() if value is not None}))

    rewritten(path, change)


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda a: a.update(theta=a["theta"][..., :3]), r"its theta has shape \(2, 3, 3\), not \(chain, draw, \d+\)"),
    (lambda a: a.update(theta=a["theta"][0]), r"its theta has shape \(3, \d+\)"),
    (lambda a: a.update(theta=a["theta"] * 1j), "its theta has dtype complex64, not float32"),
    (lambda a: a["theta"].__setitem__((1, 2, 3), np.nan), "its theta holds NaN or infinity"),
    (lambda a: a["stat_log_likelihood"].__setitem__((0, 0), np.nan), "its log_likelihood holds numbers that are"),
    (lambda a: a.update(stat_log_prior=a["stat_log_prior"][:, :2]), r"its log_prior has shape \(2, 2\)"),
    (lambda a: a.update(weights_0=a["weights_0"] * 1j), r"weights\[0\] must hold real numbers; got dtype complex"),
    (lambda a: a["weights_0"].__setitem__((0, 0), np.inf), r"weights\[0\] must be finite"),
    (lambda a: a.pop("stat_nonfinite"), "its header lacks 'stat_nonfinite'"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_changed_arrays_are_refused_by_the_files_name(
    change: Callable[[dict[str, Any]], object], message: str, saved: tuple[Path, pn.Draws]
) -> None:
    path, _ = saved
    rewritten(path, change)
    with pytest.raises(ValueError, match=rf"run\.draws is damaged or was not written by patrac_native \(.*{message}"):
        pn.Draws.load(path)


def test_another_version_is_refused_with_both_versions(saved: tuple[Path, pn.Draws]) -> None:
    path, _ = saved
    with_header(path, format=99)
    with pytest.raises(
        ValueError,
        match=r"run\.draws has file format 99, but this version of patrac_native reads 1; read it with the ver",
    ):
        pn.Draws.load(path)


@pytest.mark.parametrize("section", ["header", "net", "network", "prior", "likelihood", "architecture"])
def test_unknown_entries_are_named(section: str, saved: tuple[Path, pn.Draws]) -> None:
    """They may say what this version would leave out."""
    path, draws = saved
    header, _ = draws._to_arrays()
    content = {"weird": 1} if section == "header" else {section: header.get(section, {}) | {"weird": 1}}
    if section in ("prior", "architecture"):
        content = {"network": header["network"] | {section: header["network"][section] | {"weird": 1}}}
    with_header(path, **content)
    with pytest.raises(ValueError, match=r"run\.draws is damaged or was not written by patrac_native \(.*weird"):
        pn.Draws.load(path)


def test_missing_entries_and_unknown_ones_of_networks_and_mixtures_are_named(
    saved: tuple[Path, pn.Draws], tmp_path: Path
) -> None:
    path, draws = saved
    draws.network.net.save(tmp_path / "net")
    pn.DrawsMixture([draws]).save(tmp_path / "mixture")
    for name, load in (("net", pn.Network.load), ("mixture", pn.DrawsMixture.load)):
        with_header(tmp_path / name, weird=1, odd=2)
        with pytest.raises(ValueError, match=rf"{name} is damaged .*header.* has the unknown entries 'odd', 'weird'"):
            load(tmp_path / name)
    with_header(path, net=None)
    with pytest.raises(ValueError, match=r"run\.draws is damaged .*its header lacks 'net'"):
        pn.Draws.load(path)


def test_another_kind_of_file_is_refused_with_both_kinds(saved: tuple[Path, pn.Draws], tmp_path: Path) -> None:
    path, draws = saved
    draws.network.net.save(tmp_path / "net")
    with pytest.raises(ValueError, match=r"net holds a network, not draws; give the path of a file with draws"):
        pn.Draws.load(tmp_path / "net")
    with pytest.raises(ValueError, match=r"run\.draws holds draws, not a network"):
        pn.Network.load(path)


def test_files_of_another_package_are_refused(saved: tuple[Path, pn.Draws], tmp_path: Path) -> None:
    path, draws = saved
    for missing in ("format", "kind"):
        draws.save(path, overwrite=True)
        with_header(path, **{missing: None})
        with pytest.raises(ValueError, match="no header of this package"):
            pn.Draws.load(path)
    for save in (lambda stream: np.savez(stream, theta=np.zeros(3)), lambda stream: np.save(stream, np.zeros(3))):
        with (tmp_path / "other").open("wb") as stream:
            save(stream)
        with pytest.raises(ValueError, match="was not written by patrac_native"):
            pn.Draws.load(tmp_path / "other")


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
        name = "theta" if place == "array" else "header"
        rewritten(path, lambda arrays: arrays.update({name: np.array([Exploit()], dtype=object)}))
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


def test_changed_contents_are_refused_whatever_the_header_says(saved: tuple[Path, pn.Draws]) -> None:
    """An archive that is whole and plausible, but whose numbers are not those that were written."""
    path, _ = saved
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    arrays["theta"][0, 0, 0] += 1
    for without in ((), ("sha256",)):
        np.savez(path.parent / "other.npz", **{name: one for name, one in arrays.items() if name not in without})
        with pytest.raises(ValueError, match=r"other\.npz is damaged .*its contents are not those that were written"):
            pn.Draws.load(path.parent / "other.npz")


def test_a_small_file_takes_little_memory(saved: tuple[Path, pn.Draws]) -> None:
    """Compressed zeros, a header that claims more than there is, and members that overlap are not even allocated."""
    path, _ = saved
    claim = np.lib.format.header_data_from_array_1_0(np.zeros(1)) | {"shape": (10**9,)}  # type: ignore[no-untyped-call]
    with zipfile.ZipFile(path.parent / "claims", "w") as archive, archive.open("theta.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, claim)  # type: ignore[no-untyped-call]
    with (path.parent / "zeros").open("wb") as stream:
        np.savez_compressed(stream, theta=np.zeros(10**7))
    wide = np.zeros(10**6)
    with zipfile.ZipFile(path.parent / "overlap", "w") as archive:
        with archive.open("theta.npy", "w") as member:
            np.save(member, wide)
        for copy in range(20):
            again = copy_of(archive.infolist()[0])
            again.filename = f"copy{copy}.npy"
            archive.filelist.append(again)
    for name in ("claims", "zeros", "overlap"):
        tracemalloc.start()
        with pytest.raises(ValueError, match=rf"{name} is damaged or was not written by patrac_native"):
            pn.Draws.load(path.parent / name)
        assert tracemalloc.get_traced_memory()[1] < 2e6
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thin": 0}, "thin = 0, below 1"),
        ({"thin": 1.5}, "thin = 1.5, which is not int"),
        ({"seconds": math.nan}, "seconds = nan, which is not finite"),
        ({"seconds": -1}, "seconds = -1, below 0"),
        ({"kernel": {"name": "os.system"}}, "os.system"),
        ({"completed": 1}, "completed = 1, which is not bool"),
        ({"weird": 1}, "the unknown entries 'weird'"),
    ],
)
def test_settings_that_no_run_has_are_refused(
    change: dict[str, Any], message: str, saved: tuple[Path, pn.Draws]
) -> None:
    """In files and before they are written, so that no file is written that cannot be read."""
    path, draws = saved
    with_header(path, settings=json.loads(json.dumps(draws.settings)) | change)
    with pytest.raises(ValueError, match=rf"run\.draws is damaged .*{message}"):
        pn.Draws.load(path)
    draws.settings.update(change)
    with pytest.raises(ValueError, match=message):
        draws.save(path.parent / "other")
    assert not (path.parent / "other").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": ["1"]}, "loss of its network is"),
        ({"seconds": math.inf}, "seconds = inf, which is not finite"),
        ({"best_epoch": 7}, "no epoch that was best"),
        ({"stopped": "by\x1b[2J"}, "ended for an unknown reason"),
    ],
)
def test_histories_that_no_training_has_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    history = TrainingHistory(np.array([3.0, 1.5]), 1, 1.5, 1.0, 9.0, "patience", {"seed": 1}, 0.25)
    net = pn.Network([[[1.0]]], [[0.0]], history=history)
    net.save(tmp_path / "net")
    with_header(tmp_path / "net", history=history.to_dict() | change)
    with pytest.raises(ValueError, match=rf"net is damaged .*{message}"):
        pn.Network.load(tmp_path / "net")


# Paths that are no regular files


def test_modes_are_kept_and_dangling_links_are_not_followed(tmp_path: Path) -> None:
    net = pn.Network([[[4.0]]], [[0.0]])
    net.save(tmp_path / "net")
    (tmp_path / "net").chmod(0o600)
    net.save(tmp_path / "net", overwrite=True)
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match="link is a link to a file that is not there; remove it"):
        net.save(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(ValueError, match=r"path must not hold a NUL character; got 'a\\x00b'"):
        net.save("a\0b")
    with pytest.raises(ValueError, match="path must not hold a NUL character"):
        pn.Network.load("a\0b")


def test_what_a_killed_save_left_is_cleaned_by_the_next(tmp_path: Path) -> None:
    net = pn.Network([[[4.0]]], [[0.0]])
    net.save(tmp_path / "net")
    code = (
        "import os, signal, patrac_native as pn\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "pn.Network([[[5.0]]], [[0.0]]).save('net', overwrite=True)"
    )
    assert process("-c", code, cwd=tmp_path).returncode == -signal.SIGKILL
    assert sorted(one.name for one in tmp_path.iterdir()) == ["net", "net.partial"]
    assert pn.Network.load(tmp_path / "net").weights[0] == 4.0
    net.save(tmp_path / "net", overwrite=True)
    assert [one.name for one in tmp_path.iterdir()] == ["net"]


def test_saves_to_one_path_at_once_follow_each_other(tmp_path: Path) -> None:
    """Whoever waited for a file that another save has renamed meanwhile opens a new one, and keeps no lock."""
    nets, errors = [pn.Network([[[float(value)]]], [[0.0]]) for value in range(8)], list[Exception]()

    def save(net: pn.Network) -> None:
        try:
            for _ in range(40):
                net.save(tmp_path / "net", overwrite=True)
        except Exception as error:
            errors.append(error)

    saving = [threading.Thread(target=save, args=(net,), daemon=True) for net in nets]
    for one in saving:
        one.start()
    for one in saving:
        one.join(timeout=60)
    assert not errors and not any(one.is_alive() for one in saving)
    assert pn.Network.load(tmp_path / "net").weights[0].item() in range(8)
    assert [one.name for one in tmp_path.iterdir()] == ["net"]


def test_a_fifo_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    caught: list[str] = []

    def load() -> None:
        for kind in (pn.Draws, pn.DrawsMixture, pn.Network):
            try:
                kind.load(tmp_path / "pipe")
            except ValueError as error:
                caught.append(str(error))

    waiting = threading.Thread(target=load, daemon=True)
    waiting.start()
    waiting.join(timeout=20)
    assert len(caught) == 3 and all("pipe is a pipe or a device" in message for message in caught)


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    net = problems.random_network(problems.rng_of("network file"), (2, 4, 2))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="pipe is a device or a pipe, which a file cannot replace"):
        net.save(tmp_path / "pipe", overwrite=True)
    with pytest.raises(FileExistsError, match="/dev/null is a device or a pipe"):
        net.save("/dev/null", overwrite=True)
    net.save(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    other = pn.Network([[[4.0]]], [[0.0]])
    other.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    np.testing.assert_array_equal(pn.Network.load(tmp_path / "real").weights[0], [[4.0]])
