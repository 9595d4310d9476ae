"""Files that a stranger changed, with the right hash: each is refused, or gives an object that works.

What the file of an object holds is changed entry by entry, and array by array. A file is then refused by a ValueError
that names it; or the object predicts, shows itself and is written again; or it raises a ValueError that says what is
wrong. Nothing else may happen: no other exception, no long loop, no memory beyond the size of the file.
"""

from __future__ import annotations

import io
import json
import math
import re
import tracemalloc
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
import problems
from patrac_native.files import contents_hash

ROWS = 40
GONE = object()
VALUES = [None, True, -1, 0, 2.5, 1e308, 10**30, math.nan, "x", "", [], {}, [1], {"a": 1}, GONE]
CHANGES: dict[str, Callable[[Any], Any]] = {
    "gone": lambda array: None,
    "empty": lambda array: array[:0],
    "not finite": lambda array: array * np.nan if array.dtype.kind == "f" else array.astype(float),
    "negative": lambda array: -np.ones_like(array, dtype=np.int64),
    "whole": lambda array: array.astype(np.int64),
    "complex": lambda array: array.astype(complex),
    "text": lambda array: array.astype(str),
    "flat": lambda array: array.reshape(1, -1),
    "twice": lambda array: np.concatenate([array, array]),
    "scalar": lambda array: np.float64(1),
}
FIT = {"hidden_layer_sizes": 3, "max_iter": 5, "l2": 1.0, "chains": 1, "draws": 30, "thin": 1, "warmup": 5}
FIT |= {"random_state": 0, "n_jobs": 1, "dates": ["day"], "categorical": ["code"], "impute": "mean"}


def table() -> pd.DataFrame:
    rng = problems.rng_of("forged", "table")
    days = pd.date_range("2020-01-01", periods=ROWS)
    frame = pd.DataFrame({"a": rng.normal(size=ROWS), "day": days, "code": np.arange(ROWS) % 3})
    frame["c"] = [["u", "v"][row % 2] for row in range(ROWS)]
    frame.loc[3, "a"] = np.nan
    return frame


@cache
def made(kind: str) -> Any:
    rng, frame = problems.rng_of("forged", kind), table()
    X = rng.normal(size=(ROWS, 2))
    with pn.Note.collect():
        if kind == "regressor":
            likelihood = {"architecture": "full", "networks": 2, "missing_indicator": True, "kernel": pn.PCN()}
            return pn.PatracRegressor(**FIT, **likelihood).fit(frame, rng.normal(size=ROWS))
        if kind == "classifier":
            return pn.PatracClassifier(**FIT, architecture="mix").fit(
                frame, [["p", "q", "r"][r % 3] for r in range(ROWS)]
            )
        if kind == "network":
            named = pd.DataFrame(X, columns=["p", "q"])
            return pn.train([2, 3, 1], named, X[:, 0], likelihood=pn.Gaussian(0.1), max_epochs=9, progress=False)
        net = problems.random_network(rng, (2, 3, 1))
        post = pn.Posterior(net, pn.Mix(2), pn.GaussianPrior(), pn.Gaussian("sampled"), X, X[:, 0])
        runs = [pn.sample(post, chains=2, draws=30, thin=1, warmup=20, seed=s, progress=False) for s in (0, 7)]
        return pn.DrawsMixture(runs, [0.3, 0.7]) if kind == "mixture" else runs[0]


def used(kind: str, of: Any, path: Path) -> None:
    """Predict, show and write again."""
    X = np.linspace(-1, 1, 6).reshape(3, 2)
    if kind in ("regressor", "classifier"):
        of.predict(table()[:3])
        of.preprocessor_.remarks(table()[:3])
        _ = str(of.report_), of.preprocessor_.table(), of.preprocessor_.describe()
    else:
        of.predict(X)
    if kind in ("draws", "mixture"):
        of.distribution(X).quantiles()
        str(of.summary(X, progress=False))
    repr(of)
    of.save(path, overwrite=True)


def contents(kind: str, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    made(kind).save(path, overwrite=True)
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files if name != "sha256"}
    return json.loads(str(arrays.pop("header"))), arrays


def write(path: Path, header: Any, arrays: dict[str, Any]) -> None:
    write_signed(path, json.dumps(header), arrays)


def write_signed(path: Path, header: str, arrays: dict[str, Any]) -> None:
    """Write a file with this text as its header, and the right hash."""
    members = {"header": np.array(header), **arrays}
    with path.open("wb") as stream:
        np.savez(stream, **members, sha256=contents_hash(members))


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of entries in a header; of a long list, those of its first entry."""
    keys = content if isinstance(content, dict) else range(min(len(content), 1)) if isinstance(content, list) else ()
    for key in keys:
        yield (*at, key)
        yield from places(content[key], (*at, key))


def forged(header: Any, arrays: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Each changed entry or array in words, and the contents of the file."""
    for place in places(header):
        for value in VALUES:
            changed = deepcopy(header)
            parent = changed
            for key in place[:-1]:
                parent = parent[key]
            if value is GONE:
                del parent[place[-1]]
            else:
                parent[place[-1]] = value
            yield (place, value), changed, arrays
    for name, array in arrays.items():
        for words, change in CHANGES.items():
            with np.errstate(invalid="ignore"):
                found = change(array)
            others = {other: one for other, one in arrays.items() if other != name}
            yield (name, words), header, others if found is None else {**others, name: found}
    yield "an array that is none of them", header, {**arrays, "odd": np.zeros(3)}


KINDS = ["regressor", "classifier", "network", "draws", "mixture"]


@pytest.mark.parametrize("every", [29, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_forged_files_are_refused_or_work(kind: str, every: int, tmp_path: Path) -> None:
    path, of = tmp_path / "forged", type(made(kind))
    header, arrays = contents(kind, path)
    size, refused = path.stat().st_size, 0
    write(path, header, arrays)
    used(kind, of.load(path), tmp_path / "again")
    for number, (what, changed, members) in enumerate(forged(header, arrays)):
        if number % every:
            continue
        write(path, changed, members)
        tracemalloc.start()
        try:
            loaded = of.load(path)
        except ValueError as error:
            refused += 1
            assert re.search(r"forged (is damaged|has file format|holds)|no header of this package", str(error)), what
            continue
        finally:
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert most < 20 * size + 2e6, what
        try:
            with pn.Note.collect():
                used(kind, loaded, tmp_path / "again")
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"{what} loads, and then fails: {error!r}") from error
    assert refused > 20 / every


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("network", ("layers",), 1),
        ("network", ("input_names", 0), None),
        ("network", ("history", "seconds"), -1.0),
        ("network", ("history", "validation_mse"), [1.0, 1.0]),
        ("draws", ("likelihood", "a"), True),
        ("draws", ("network", "prior", "scales"), 1),
        ("classifier", ("labels", "classes_", "values"), ["p"]),
        ("classifier", ("labels", "classes_", "values"), ["q", "p", "r"]),
        ("classifier", ("labels", "classes_", "values", 0), 1),
        ("classifier", ("labels",), {}),
        ("classifier", ("targets", "scale", 0), 2.0),
        ("regressor", ("parameters",), {}),
        ("regressor", ("fitted", "n_features_in_"), -1),
        ("regressor", ("fitted", "n_outputs_"), 0),
        ("regressor", ("fitted",), {"n_features_in_": 4, "n_iter_": 5}),
        ("regressor", ("targets",), {"mean": [0.0, 0.0], "scale": [1.0, 1.0]}),
        ("regressor", ("preprocessor", "table_columns"), ["a"]),
        ("regressor", ("preprocessor", "table_columns", 0), None),
        ("regressor", ("preprocessor", "table_columns", 0), "day"),
        ("regressor", ("preprocessor", "columns"), []),
        ("regressor", ("preprocessor", "columns", 0, "scale"), 0.0),
        ("regressor", ("preprocessor", "columns", 0, "low"), 9.0),
        ("regressor", ("preprocessor", "columns", 0, "layout"), "%Y"),
        ("regressor", ("preprocessor", "columns", 0, "categories"), [1.0]),
        ("regressor", ("preprocessor", "columns", 2, "categories"), ["0", "1", "2"]),
        ("regressor", ("preprocessor", "columns", 3, "categories"), []),
        ("regressor", ("preprocessor", "columns", 3, "fill"), 7.0),
        ("regressor", ("report", "lines", 0), None),
        ("regressor", ("report", "seconds", "training"), None),
        ("regressor", ("report", "verdict", "predictions", "findings"), [{"kind": 1}]),
    ],
)
def test_entries_that_no_object_writes_are_refused(
    kind: str, place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    """Each of these gave an object that failed at its use, or silently another one."""
    path = tmp_path / "forged"
    header, arrays = contents(kind, path)
    parent = header
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    write(path, header, arrays)
    with pytest.raises(ValueError, match="forged is damaged or was not written by patrac_native"):
        type(made(kind)).load(path)


def test_a_stream_of_draws_is_named(tmp_path: Path) -> None:
    header, arrays = contents("draws", tmp_path / "draws")
    write(tmp_path / "draws", header, {**arrays, "odd": np.zeros(2)})
    with pytest.raises(ValueError, match=r"the stream is damaged .*its array 'odd' is unknown"):
        pn.Draws.load(io.BytesIO((tmp_path / "draws").read_bytes()))
