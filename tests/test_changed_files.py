"""Files that no longer hold what was written, and paths that are no regular files: refused, never waited for."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn


def network() -> pn.Network:
    return pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])


def posterior() -> pn.Posterior:
    X = np.linspace(-1, 1, 20)[:, None]
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    return pn.Posterior(network(), pn.Mix(1), prior, pn.Gaussian(1.0), X, X[:, 0])


def without(header: Any, entry: str) -> Any:
    """Return a header without one of its entries."""
    return np.array(json.dumps({name: value for name, value in json.loads(str(header)).items() if name != entry}))


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    change(arrays)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(theta=a["theta"][..., :3]), r"its theta has shape \(4, 10, 3\), not \(chain, draw, 4\)"),
        (lambda a: a.update(theta=a["theta"][0]), r"its theta has shape \(10, 4\)"),
        (lambda a: a.update(theta=a["theta"] * 1j), "its theta has dtype complex64, not float32"),
        (lambda a: a["theta"].__setitem__((1, 2, 3), np.nan), "its theta holds NaN or infinity"),
        (lambda a: a["stat_log_likelihood"].__setitem__((0, 0), np.nan), "its log_likelihood holds numbers that are"),
        (lambda a: a.update(stat_log_prior=a["stat_log_prior"][:, :5]), r"its log_prior has shape \(4, 5\)"),
        (lambda a: a.update(weights_0=a["weights_0"] * 1j), r"weights\[0\] must hold real numbers; got dtype complex"),
        (lambda a: a["weights_0"].__setitem__((0, 0), np.inf), r"weights\[0\] must be finite"),
        (
            lambda a: a.update(header=np.array(str(a["header"]).replace('"net"', '"nut"'))),
            "its header has the unknown entries 'nut'",
        ),
        (lambda a: a.update(header=without(a["header"], "net")), "its header lacks 'net'"),
        (
            lambda a: a.update(header=np.array(str(a["header"]).replace('"name": "mix"', '"name": "mix", "bay": 3'))),
            "bay",
        ),
    ],
)
def test_changed_draws_are_refused_by_the_files_name(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.draws"
    pn.sample(posterior(), draws=10, warmup=100, seed=0).save(path)
    rewritten(path, change)
    with pytest.raises(ValueError, match=rf"run\.draws is damaged or was not written by patrac_native \(.*{message}"):
        pn.Draws.load(path)


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
    net = network()
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
