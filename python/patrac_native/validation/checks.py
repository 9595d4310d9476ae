"""Checks of arguments that training, prediction, the posterior and the sampler share."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.columns import in_order

FloatArray = npt.NDArray[np.float64]

# Device types of DLPack: host memory, CUDA device memory, and CUDA managed memory, which both can address.
HOST, CUDA, MANAGED = 1, 2, 13

# The floating-point dtypes of torch that NumPy has.
_NUMPY_FLOATS = ("torch.float16", "torch.float32", "torch.float64")

# A large array is checked this many rows at a time, which bounds the memory of the temporary Boolean array.
_ROWS_AT_A_TIME = 65_536


def as_real_array(value: Any, name: str, advice: str = "Encode it as numbers first.") -> FloatArray:
    """Convert `value` to a C-contiguous float64 array, or raise if its entries are not real numbers."""
    return np.require(_as_numbers(value, name, advice), dtype=np.float64, requirements="C")


def _as_numbers(value: Any, name: str, advice: str) -> npt.NDArray[Any]:
    """Return `value` as an array of real numbers, dtype and memory order kept; raises as `as_real_array` does."""
    refuse_masked(value, name)
    if value is None:
        raise TypeError(f"{name} must be an array of numbers; got None.")
    if hasattr(type(value), "toarray") and hasattr(type(value), "nnz"):
        raise TypeError(f"{name} must be an array; got a sparse {type(value).__name__}. Convert it: .toarray().")
    if is_tensor(value) and value.is_meta:
        raise ValueError(f"{name} is a tensor on the meta device, which holds no numbers; give one on another device.")
    try:
        if is_tensor(value):
            value = value.detach().cpu()  # NumPy rejects a tensor that requires grad
            if value.is_floating_point() and str(value.dtype) not in _NUMPY_FLOATS:
                value = value.float()  # bfloat16, for one, which float32 holds exactly
        array = _as_array(value)
    except MemoryError:
        raise
    except Exception as error:  # rows of unequal length, torch types that NumPy lacks, the code of the array's class
        raise TypeError(f"{name} must be a rectangular array of numbers; NumPy could not read it: {error}") from error
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            if "NAType" in str(error):
                raise ValueError(f"{name} has missing values (pandas.NA). Remove or impute those rows.") from error
            raise TypeError(f"{name} must hold real numbers; got dtype object ({error}). {advice}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; got dtype {array.dtype}. {advice}")
    return array


def refuse_masked(value: Any, name: str) -> None:
    """Raise ValueError if an array, or an array in a list, has masked entries, whose hidden values NumPy would use."""
    parts = value if isinstance(value, list | tuple) else (value,)
    for part in parts:
        if not isinstance(part, np.ma.MaskedArray):
            continue
        masked = np.ma.getmaskarray(part)
        if masked.any():
            where = ", ".join(str(index) for index in np.argwhere(masked)[0])
            raise ValueError(
                f"{name} must not have masked entries; got {int(masked.sum())}, the first at [{where}]. Remove those "
                "rows, or fill them in with .filled()."
            )


def is_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor of torch, by its class: a data frame's columns are attributes."""
    return hasattr(type(value), "detach") and hasattr(type(value), "cpu")


def place_of(array: Any) -> tuple[int, int] | None:
    """Return the DLPack device type and index of an array's device, or None if the object does not report one."""
    if isinstance(array, np.ndarray):
        return HOST, 0
    if not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
        return None
    try:
        kind, index = array.__dlpack_device__()
        return int(kind), int(index)
    except Exception:  # DLPack has no number for this device, or the object has other methods of these names
        return None


def _as_array(value: Any) -> npt.NDArray[Any]:
    """Convert `value` with `numpy.asarray`, or with DLPack if it is on a device and `asarray` fails, as for CuPy."""
    on_device = (place_of(value) or (HOST, 0))[0] != HOST
    try:
        array = np.asarray(value)
        if not (on_device and array.dtype.kind == "O"):
            return array
    except TypeError:
        if not on_device:
            raise
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        raise TypeError("it is on a device, from where NumPy brings arrays only since 2.1; copy it to the host")
    return np.from_dlpack(value, device="cpu", copy=True)


def check_finite(
    array: npt.NDArray[Any],
    name: str,
    advice: str = "Remove or impute those rows.",
    *,
    columns: Sequence[object] | None = None,
) -> None:
    """Raise if an (n, c) array holds NaN or infinity, naming the first bad column and its first bad row."""
    starts = range(0, len(array), _ROWS_AT_A_TIME)
    if all(np.isfinite(array[first : first + _ROWS_AT_A_TIME]).all() for first in starts):
        return
    bad = ~np.isfinite(array)
    column = int(np.argmax(bad.any(axis=0)))
    row = int(np.argmax(bad[:, column]))
    named = "" if columns is None else f" ({columns[column]!r})"
    raise ValueError(
        f"{name} must be finite; column {column}{named} has {array[row, column]} first at row {row} "
        f"({int(bad.sum())} bad values in all). {advice}"
    )


def check_variances(variances: FloatArray, name: str, remedy: str) -> None:
    """Raise ValueError unless float64 holds variances (K,) and their reciprocals without loss."""
    least, most = np.finfo(float).tiny, np.finfo(float).max
    bad = ~((variances >= least) & (variances <= most))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(
            f"{name} must be between {least:.2g} and {most:.2g}, which float64 holds without loss; got "
            f"{variances[where]:.3g} at entry {where}{remedy}."
        )


def cast_checked(array: npt.NDArray[Any], dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """Convert a finite array to a C-contiguous array of `dtype`."""
    with np.errstate(over="ignore"):
        values: npt.NDArray[Any] = np.ascontiguousarray(array, dtype=dtype)
    if dtype != array.dtype:
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(
                f"{name} must fit {dtype.name}; got {array[bad][0]:g}, beyond {np.finfo(dtype).max:g}. "
                'Scale it or use dtype="float64".'
            )
    return values


def check_inputs(X: npt.ArrayLike, d: int, name: str = "X", *, columns: Sequence[str] | None = None) -> FloatArray:
    """Validate network inputs."""
    return np.require(check_inputs_keeping_dtype(X, d, name, columns=columns), dtype=np.float64, requirements="C")


def check_inputs_keeping_dtype(
    X: npt.ArrayLike, d: int, name: str = "X", *, columns: Sequence[str] | None = None
) -> npt.NDArray[Any]:
    """Validate network inputs as `check_inputs` does; uint8, float32 and float64 keep their dtype and memory order."""
    X = in_order(X, columns, name)
    array = _as_numbers(X, name, "Encode it as numbers first.")
    if array.dtype not in (np.uint8, np.float32, np.float64):
        array = array.astype(np.float64)
    check_matrix_shape(array.shape, d, name)
    own = getattr(X, "columns", None)  # the column names of a data frame
    if array.dtype != np.uint8:
        check_finite(array, name, columns=None if own is None else list(own))
    return array


def check_matrix_shape(shape: tuple[int, ...], d: int, name: str) -> None:
    """Raise ValueError unless `shape` is (n, d) with n >= 1."""
    if len(shape) != 2:
        hint = f" Use {name}[:, None] for a single input." if len(shape) == 1 and d == 1 else ""
        raise ValueError(f"{name} must have shape (n, {d}); got {shape}.{hint}")
    if shape[0] < 1:
        raise ValueError(f"{name} has no rows (shape {shape}); give at least one.")
    if shape[1] != d:
        raise ValueError(f"{name} must have {d} columns, one for each input of the network; got {shape[1]}.")


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Return `value` as an int if it is a whole number of at least `least`, else raise TypeError or ValueError."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer; got {value!r}.")
    count = int(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}; got {count}.")
    return count


def check_seed(value: Any, name: str = "seed") -> int:
    """Return `value` as an int if it is a whole number in 0..2^64 - 1, else raise TypeError or ValueError."""
    seed = check_count(value, name, least=0)
    if seed >= 2**64:
        raise ValueError(f"{name} must be below 2^64; got {seed}.")
    return seed


def _as_number(value: Any, name: str, what: str = "a number") -> float:
    """Return `value` as a float if it is a real number, else raise TypeError."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {what}; got {value!r}.")
    return float(value)


def check_positive(value: Any, name: str) -> float:
    """Return `value` as a float if it is a positive finite number, else raise TypeError or ValueError."""
    number = _as_number(value, name)
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite; got {number}.")
    return number


def check_nonnegative(value: Any, name: str) -> float:
    """Return `value` as a float if it is zero or a positive finite number, else raise TypeError or ValueError."""
    number = _as_number(value, name)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be zero or positive, and finite; got {number}.")
    return number


def check_probability(value: Any, name: str) -> float:
    """Return `value` as a float if it is a number strictly between 0 and 1, else raise TypeError or ValueError."""
    number = _as_number(value, name, "one number between 0 and 1")
    if not 0 < number < 1:
        percent = f" Write {number / 100:g} for {number:g}%." if 2 <= number < 100 else ""
        raise ValueError(f"{name} must be between 0 and 1; got {value}.{percent}")
    return number


def check_probabilities(values: Any, name: str, *, may_be_empty: bool = False) -> list[float]:
    """Return one or several numbers strictly between 0 and 1 as a list, else raise TypeError or ValueError."""
    single = isinstance(values, numbers.Real) or (isinstance(values, np.ndarray) and values.ndim == 0)
    if isinstance(values, str) or not (single or isinstance(values, Iterable)):
        raise TypeError(f"{name} must be numbers, such as (0.05, 0.95); got {values!r}.")
    given = [np.asarray(values).item()] if single else list(values)
    if not given and not may_be_empty:
        raise ValueError(f"{name} must hold at least one number; got none.")
    return [check_probability(one, f"{name}[{index}]" if len(given) > 1 else name) for index, one in enumerate(given)]


def check_index(value: Any, name: str, count: int) -> int:
    """Return `value` as an int if it is a whole number in 0..count - 1, else raise TypeError or ValueError."""
    index = check_count(value, name, least=0)
    if index >= count:
        raise ValueError(f"{name} must be in 0..{count - 1}; got {index}.")
    return index


def check_layer_sizes(layer_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the widths (N_0 .. N_L) as a tuple of at least two positive ints, else raise."""
    if isinstance(layer_sizes, str) or not isinstance(layer_sizes, Sequence | np.ndarray):
        raise TypeError(f"layer_sizes must be a sequence of widths such as [1, 50, 50, 1]; got {layer_sizes!r}.")
    if len(layer_sizes) < 2:
        raise ValueError(f"layer_sizes needs at least inputs and outputs, such as [1, 1]; got {list(layer_sizes)}.")
    return tuple(check_count(size, f"layer_sizes[{index}]") for index, size in enumerate(layer_sizes))
