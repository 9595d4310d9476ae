"""Notes travel as values: fits in threads give their own warnings, and leave those of the program alone."""

from __future__ import annotations

import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn

FITS, THREADS = 6, 4
SHORT = {"hidden_layer_sizes": (4,), "architecture": "full", "prior": "trace-class", "max_iter": 20, "chains": 2}


def test_fits_in_threads_give_their_own_warnings() -> None:
    """Nothing that runs in a thread changes the process's filters: each fit warns, and later warnings are shown."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    shown: list[tuple[str, type[Warning], int]] = []

    def fit(seed: int) -> int:
        y = np.random.default_rng(seed).normal(size=40)
        est = pn.PatracRegressor(**SHORT, draws=30, thin=1, warmup=200, random_state=seed, n_jobs=1)
        est.fit(X, y)
        assert est.report_.needs_warning
        return threading.get_ident()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        shown.append((str(message), category, threading.get_ident()))

    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(action="always"):
        patched.setattr(warnings, "showwarning", show)
        with ThreadPoolExecutor(THREADS) as pool:
            threads = list(pool.map(fit, range(FITS)))
        assert warnings.showwarning is show
        warnings.warn("after the fits", UserWarning, stacklevel=1)
    verdicts = sorted(thread for text, _, thread in shown if text.startswith("PatracRegressor: the chains"))
    assert verdicts == sorted(threads)
    assert shown[-1][:2] == ("after the fits", UserWarning)


@pytest.mark.parametrize("folder", ["fit", "report", "plots", "interop", "training", "sampling", "draws", "studies"])
def test_only_the_command_line_changes_the_filters(folder: str) -> None:
    """`warnings.catch_warnings` and its like are the whole process's, so nothing that a thread may run has them."""
    package = Path(pn.__file__).parent
    changing = ("catch_warnings", "simplefilter", "filterwarnings", "showwarning", "resetwarnings")
    files = list((package / folder).glob("*.py"))
    assert files
    assert [file.name for file in files if any(word in file.read_text(encoding="utf-8") for word in changing)] == []


def test_notes_are_collected_by_kind_and_thread() -> None:
    elsewhere = threading.Thread(target=lambda: pn.Note("few rows", "of another thread").give())
    with pytest.warns(pn.Note) as warned, pn.Note.collect() as outer, pn.Note.collect("warm-up", "step size") as inner:
        pn.Note("warm-up", "first").give()
        pn.Note("poor fit", "second").give()
        elsewhere.start()
        elsewhere.join()
    assert [str(note) for note in inner] == ["first"]
    assert [(note.kind, str(note)) for note in outer] == [("poor fit", "second")]
    assert [str(one.message) for one in warned] == ["of another thread"]


def test_a_warning_has_its_kind_and_line() -> None:
    net = pn.Network([np.ones((3, 1)), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    with pytest.warns(UserWarning, match="all biases of the network are zero") as warned:
        pn.TraceClassPrior.fit(net, alpha=2.0)
    (one,) = warned
    assert one.filename == __file__ and isinstance(one.message, pn.Note) and one.message.kind == "no biases"
    copy = pickle.loads(pickle.dumps(one.message))
    assert (copy.kind, str(copy)) == ("no biases", str(one.message))


def test_runs_side_by_side_give_the_notes_of_until_to_their_caller() -> None:
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(3, 1)), rng.normal(size=(1, 3))], [rng.normal(size=3), rng.normal(size=1)])
    X = np.linspace(-1, 1, 20)[:, None]
    posts = [pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(0.1), X, X) for _ in range(2)]

    def look(draws: pn.Draws) -> bool:
        pn.Note("too short", "asked").give()
        return False

    for threads in (1, 2):
        with pn.Note.collect("too short") as notes:
            pn.sample_many(posts, pn.PCN(0.1), draws=8, warmup=None, threads=threads, until=look, seed=0)
        assert {str(note) for note in notes} == {"asked"}
