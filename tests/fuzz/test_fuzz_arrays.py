"""Inputs, targets and weights as arrays of every kind: of NumPy, through DLPack, and through the array interfaces."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fuzzing import fuzz
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import patrac_native as pn
import problems
from test_device_inputs import ByPointer, OnDevice

ROWS = 6
NET = problems.random_network(problems.rng_of("fuzz", "arrays"), (2, 3, 1))
GOOD = np.linspace(-1, 1, 2 * ROWS).reshape(ROWS, 2)

DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(max_len=3),
    hnp.unicode_string_dtypes(max_len=3),
    hnp.array_dtypes(max_size=2),
    st.sampled_from([np.dtype(object), np.dtype(">f8"), np.dtype("f2"), np.dtype("g")]),
)
VALUES = [0, 1, -1, 0.5, 1e30, 1e300, np.nan, -np.inf, 2**63, 10**400, "1", b"1", None, True, 1j, [1], {}, np.ma.masked]


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Numbers of the right shape in another type and layout of memory, or another shape, or no numbers."""
    found: Any
    kind = draw(st.sampled_from(["numbers", "numbers", "view", "any dtype", "any shape", "objects", "list", "masked"]))
    good = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
    if kind == "any dtype":
        return draw(hnp.arrays(draw(DTYPES), shape))
    if kind == "any shape":
        return draw(hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)))
    if kind in ("objects", "list"):
        found = good.astype(object)
        found.flat[draw(st.integers(0, good.size - 1))] = draw(st.sampled_from(VALUES))
        return found if kind == "objects" else found.tolist()
    dtypes = ["f8", ">f8", "f4", ">f4", "f2", "g", "i1", "u1", ">i8", "u8", "?"]
    found = (100 * good).astype(draw(st.sampled_from(dtypes)))
    if kind == "masked":
        return np.ma.array(found, mask=draw(hnp.arrays(bool, shape)))
    if kind == "view":
        wide = np.zeros(tuple(3 * side for side in shape), found.dtype)
        wide[tuple(slice(None, None, 3) for _ in shape)] = found
        found = wide[tuple(slice(None, None, 3) for _ in shape)]
        found = draw(st.sampled_from([found, found[::-1], np.asfortranarray(found), np.broadcast_to(found[:1], shape)]))
        found.flags.writeable = False
    return found


def expected(given: Any) -> np.ndarray[Any, Any] | None:
    """Return the numbers as plain float64, None if NumPy makes none of them."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        return None


def posterior(**given: Any) -> pn.Posterior:
    rows = {"X": GOOD, "y": GOOD[:, 0], "sample_weight": np.ones(ROWS)} | given
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)
    return pn.Posterior(NET, pn.Full(), prior, pn.Gaussian(1.0), **rows, dtype="float64")


@pytest.mark.parametrize(("name", "shape"), [("X", (ROWS, 2)), ("y", (ROWS,)), ("sample_weight", (ROWS,))])
@fuzz(100)
@given(data=st.data())
def test_arrays_of_numpy(name: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    """The posterior is that of the same numbers in plain float64, or the error names the argument."""
    array = data.draw(arrays(shape))
    try:
        found = posterior(**{name: array})
    except (ValueError, TypeError) as error:
        assert name.removeprefix("sample_") in str(error), error
        return
    numbers = expected(array)
    assert numbers is not None
    same = posterior(**{name: numbers})
    assert found.log_likelihood(found.theta_map) == same.log_likelihood(same.theta_map)


@fuzz(100)
@given(data=st.data(), pointer=st.booleans(), newest=st.sampled_from([None, (1, 0), (0, 5), (7, 3)]))
def test_arrays_on_a_device(data: st.DataObject, pointer: bool, newest: tuple[int, int] | None) -> None:
    """Arrays of another library, by DLPack and by pointer, in all types and layouts that NumPy exports."""
    array = data.draw(arrays((ROWS, 2)).filter(lambda made: type(made) is np.ndarray))
    X = ByPointer(array) if pointer else OnDevice(array, newest=newest)
    try:
        found = posterior(X=X)
    except (ValueError, TypeError, BufferError) as error:
        assert "X" in str(error), error
        return
    numbers = expected(array)
    assert numbers is not None
    np.testing.assert_array_equal(found.data.inputs.host, numbers)


def test_another_order_of_bytes_is_refused() -> None:
    """A device reads the bytes as they are: such an array was taken for other numbers."""
    with pytest.raises(TypeError, match="X must hold real numbers"):
        posterior(X=ByPointer(GOOD.astype(">f8")))


ENTRIES = st.one_of(st.none(), st.integers(-(2**65), 2**65), st.text(max_size=3), st.just(()), st.just(1.5))
INTERFACES = st.fixed_dictionaries(
    {},
    optional={
        "shape": st.one_of(ENTRIES, st.lists(st.integers(-1, 9) | st.just(2**62), max_size=3).map(tuple)),
        "typestr": st.sampled_from(["<f8", ">f8", "<f4", "|u1", "<f2", "|O", "<i8", "x", "", "<f99", None, 3]),
        "strides": st.one_of(ENTRIES, st.lists(st.integers(-64, 64), max_size=3).map(tuple)),
        "version": st.sampled_from([0, 2, 3, 99, None, "3"]),
        "mask": st.sampled_from([None, 1]),
        "stream": st.sampled_from([None, 0, 1, 2, -1, "x"]),
    },
)


@fuzz(100)
@example(changes={"data": None})
@example(changes={"data": (0, False)})
@example(changes={"shape": (-1, 2)})
@given(changes=INTERFACES)
def test_interfaces_that_say_something_else(changes: dict[str, Any]) -> None:
    """An interface with other entries than its array has, which lies in the middle of enough memory.

    Nothing tells where memory of the host ends, so farther strides are for tests on a GPU.
    """
    memory = np.zeros((1000, 2))
    memory[400 : 400 + ROWS] = GOOD
    try:
        found = posterior(X=ByPointer(memory[400 : 400 + ROWS], **changes))
    except (ValueError, TypeError, BufferError) as error:
        assert "X" in str(error), error
        return
    assert np.isfinite(found.data.inputs.host).all() and found.data.inputs.host.shape == (ROWS, 2)


ANSWERS = st.one_of(
    st.sampled_from([None, 0, "x", (), (1,), (2, 0), (1, 0), (-1, 10**9), b"", GOOD, np.array(1.0)]),
    st.sampled_from([BufferError("b"), RuntimeError("r"), TypeError("t"), ValueError("v"), AttributeError("a")]),
)


@fuzz(60)
@example(dlpack=None, device=None, shape=(ROWS, 2))
@example(dlpack=None, device=TypeError("t"), shape=(ROWS, 2))
@given(dlpack=ANSWERS, device=ANSWERS, shape=st.sampled_from([(ROWS, 2), (ROWS,), None, "x", (2**62, 2)]))
def test_objects_that_are_no_arrays(dlpack: Any, device: Any, shape: Any) -> None:
    """Methods of DLPack that return nonsense or raise."""

    def answer(what: Any) -> Any:
        return Mock(side_effect=what) if isinstance(what, Exception) else Mock(return_value=what)

    kinds = {"__dlpack__": answer(dlpack), "__dlpack_device__": answer(device), "dtype": np.dtype("f8"), "shape": shape}
    X = type("Odd", (SimpleNamespace,), kinds)()
    with pytest.raises((ValueError, TypeError, BufferError), match="X"):
        posterior(X=X)
