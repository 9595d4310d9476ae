"""The vector elementary functions of each instruction-set level against mpmath and float64, edge cases included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath  # type: ignore[import-untyped]  # it ships no stubs
import numpy as np
import numpy.typing as npt
import pytest

from patrac_native.engine import _core

FloatArray = npt.NDArray[Any]

LEVELS: list[str] = list(_core.testing.levels())
Precision = type[np.float32] | type[np.float64]
DTYPES: tuple[Precision, ...] = (np.float32, np.float64)

# Largest error allowed, in units in the last place of the exact result: the maximum measured over millions of points,
# which stands beside each function in csrc/shared, rounded up to the next half.
ULP_BOUND: dict[str, float] = {
    "exp": 1.5,
    "log": 1.0,
    "log1p": 1.0,
    "softplus": 2.0,
    "tanh": 3.0,
    "sigmoid": 2.5,
    "erf": 1.5,
    "gauss": 1.5,
    "log_unit": 1.0,
    "sin_turn": 2.0,
    "cos_turn": 2.0,
    "sqrt": 0.5,
}
NOISE = ("log_unit", "sin_turn", "cos_turn")

EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf": mpmath.erf,
    "gauss": lambda x: mpmath.exp(-x * x),
    "log_unit": mpmath.log,
    "sin_turn": lambda t: mpmath.sinpi(2 * t),
    "cos_turn": lambda t: mpmath.cospi(2 * t),
    "sqrt": mpmath.sqrt,
}


def evaluate(name: str, x: FloatArray, level: str) -> FloatArray:
    """Values of the compiled function `name` at x, in the dtype of x."""
    y = _core.testing.elementary(name, x, level)
    assert y.dtype == x.dtype and y.shape == x.shape
    return np.asarray(y)


def points(name: str, dtype: Precision, count: int) -> FloatArray:
    """Random arguments over the whole domain of `name`: every scale, the neighbourhoods of 0 and 1, and both tails."""
    rng = np.random.default_rng(20250214)
    bits = 24 if dtype is np.float32 else 53
    if name in ("sin_turn", "cos_turn"):
        shape = (count // 9, 9)
        eighths = np.arange(9) / 8 + rng.choice([-1.0, 1.0], shape) * 2.0 ** -rng.uniform(3, bits, shape)
        small = 2.0 ** -rng.uniform(0, 33, count // 4)
        t: FloatArray = np.concatenate([rng.random(count), np.abs(eighths.ravel()), small]).astype(dtype)
        return np.asarray(t[t < 1])
    if name == "log_unit":
        near_one = 1 - 2.0 ** -rng.uniform(1, bits, count)
        u = np.concatenate([1 - rng.random(count), 2.0 ** -rng.uniform(0, 33, count), near_one])
        return np.asarray(u.astype(dtype))
    integer = np.uint32 if dtype is np.float32 else np.uint64
    every_exponent = rng.integers(0, np.iinfo(integer).max, count, dtype=integer).view(dtype)  # subnormals too
    parts: list[FloatArray] = [every_exponent]
    parts += [rng.uniform(-scale, scale, count).astype(dtype) for scale in (0.1, 1.0, 4.0, 10.0, 100.0, 800.0)]
    parts += [(rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(-30, 10, count)).astype(dtype)]
    for centre in (-1.0, 1.0):
        parts.append((centre + rng.choice([-1.0, 1.0], count) * 2.0 ** -rng.uniform(1, bits, count)).astype(dtype))
    x: FloatArray = np.concatenate(parts)
    x = x[np.isfinite(x)]
    if name in ("log", "sqrt"):
        return np.asarray(np.abs(x))
    return np.asarray(x[x > -1]) if name == "log1p" else x


def ulp_errors(value: FloatArray, exact: FloatArray, rest: FloatArray | None = None) -> npt.NDArray[np.float64]:
    """|value - (exact + rest)| in units in the last place that `exact` has in the dtype of `value`.

    `exact` and `rest` are float64. An infinite result, computed or true, counts as the power of two past the largest
    number.
    """
    info = np.finfo(value.dtype)
    scale = np.where(np.abs(exact) < 1, 2.0**80, 0.5)  # room for that power, and for units below the least float64
    top = np.ldexp(0.5, info.maxexp)
    exponent = np.frexp(exact)[1]
    unit = np.ldexp(scale, np.maximum(exponent, info.minexp + 1) - (info.nmant + 1))
    got = np.where(np.isinf(value), np.sign(value) * top, value.astype(np.float64) * scale)
    want = np.where(np.isinf(exact), np.sign(exact) * top, np.clip(exact * scale, -top, top))
    difference = got - want if rest is None else (got - want) - rest * scale
    return np.asarray(np.abs(difference) / unit)


def exact_values(name: str, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The true results as an unevaluated sum of two float64 arrays."""
    high, low = np.empty(x.size), np.empty(x.size)
    with mpmath.workdps(60):
        for i, argument in enumerate(x):
            true = EXACT[name](mpmath.mpf(float(argument)))
            high[i] = float(true)
            low[i] = float(true - mpmath.mpf(high[i])) if np.isfinite(high[i]) else 0.0
    return high, low


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(ULP_BOUND))
def test_within_ulp_bound_of_mpmath(name: str, dtype: Precision, level: str) -> None:
    x = points(name, dtype, 60)
    high, low = exact_values(name, x)
    errors = ulp_errors(evaluate(name, x, level), high, low)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP_BOUND[name], f"{name}({x[worst]!r}) is {errors[worst]:.2f} ulp off"


# float64 NumPy is right to about 1 ulp of float64, 2e-9 ulp of float32, so it is an exact oracle for float32 sweeps.
FLOAT64: dict[str, Callable[[FloatArray], FloatArray]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "tanh": np.tanh,
    "sigmoid": lambda x: np.exp(-np.logaddexp(0.0, -x)),
    "gauss": lambda x: np.exp(-x * x),
    "log_unit": np.log,
    "sqrt": np.sqrt,
}


@pytest.mark.parametrize("name", list(FLOAT64))
def test_float32_sweep_within_ulp_bound(name: str, level: str) -> None:
    x = points(name, np.float32, 40_000)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        errors = ulp_errors(evaluate(name, x, level), FLOAT64[name](x.astype(np.float64)))
    worst = int(np.argmax(errors))
    # logaddexp near -log 2 and exp of it cost up to 100 float64 ulp, 2e-7 of a float32 one.
    assert errors[worst] <= ULP_BOUND[name] + 1e-6, f"{name}({x[worst]!r}) is {errors[worst]:.2f} ulp off"


def same_bits(a: FloatArray, b: FloatArray) -> bool:
    """Whether two arrays hold the same bits, except that every NaN equals every other."""
    kind = np.uint32 if a.dtype == np.float32 else np.uint64
    return bool(np.all((a.view(kind) == b.view(kind)) | (np.isnan(a) & np.isnan(b))))


INF, NAN = np.inf, np.nan
EDGES: dict[str, tuple[list[float], list[float]]] = {
    "exp": ([0.0, -0.0, INF, -INF, 1e4, -1e4, NAN], [1.0, 1.0, INF, 0.0, INF, 0.0, NAN]),
    "log": ([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN], [-INF, -INF, 0.0, NAN, INF, NAN, NAN]),
    "log1p": ([0.0, -0.0, -1.0, -2.0, INF, -INF, NAN], [0.0, -0.0, -INF, NAN, INF, NAN, NAN]),
    "softplus": ([INF, -INF, 1e4, -1e4, NAN], [INF, 0.0, 1e4, 0.0, NAN]),
    "tanh": ([0.0, -0.0, 20.0, -20.0, INF, -INF, NAN], [0.0, -0.0, 1.0, -1.0, 1.0, -1.0, NAN]),
    "sigmoid": ([0.0, -0.0, 40.0, -1e4, INF, -INF, NAN], [0.5, 0.5, 1.0, 0.0, 1.0, 0.0, NAN]),
    "erf": ([0.0, -0.0, 6.0, -6.0, INF, -INF, NAN], [0.0, -0.0, 1.0, -1.0, 1.0, -1.0, NAN]),
    "gauss": ([0.0, -0.0, 40.0, -40.0, INF, -INF, NAN], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, NAN]),
    "log_unit": ([1.0], [0.0]),
    "sin_turn": ([0.0, 0.25, 0.75], [0.0, 1.0, -1.0]),
    "cos_turn": ([0.0, 0.5], [1.0, -1.0]),
    "sqrt": ([0.0, -0.0, 4.0, -1.0, INF, NAN], [0.0, -0.0, 2.0, NAN, INF, NAN]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(EDGES))
def test_edge_values(name: str, dtype: Precision, level: str) -> None:
    arguments, expected = (np.asarray(values, dtype=dtype) for values in EDGES[name])
    # Each edge fills whole vectors and also stands in the scalar tail.
    for repeats in (1, 33):
        y = evaluate(name, np.repeat(arguments, repeats), level)
        assert same_bits(y, np.repeat(expected, repeats)), f"{name}: {y[::repeats]} for {arguments}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["tanh", "log1p"])
def test_subnormals_pass_through(name: str, dtype: Precision, level: str) -> None:
    tiny: FloatArray = np.array([1, -1, 3, -7, 1000]) * float(np.finfo(dtype).smallest_subnormal)
    tiny = tiny.astype(dtype)
    assert same_bits(evaluate(name, tiny, level), tiny)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_bounded_functions_stay_in_bounds(name: str, dtype: Precision, level: str) -> None:
    y = evaluate(name, np.linspace(-45, 45, 200_001).astype(dtype), level)
    assert y.max() == 1 and y.min() >= (0 if name == "sigmoid" else -1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tanh_is_exactly_odd(dtype: Precision, level: str) -> None:
    x = points("tanh", dtype, 5_000)
    assert same_bits(evaluate("tanh", -x, level), -evaluate("tanh", x, level))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NOISE)
def test_noise_functions_have_the_same_bits_on_every_level(name: str, dtype: Precision) -> None:
    x = points(name, dtype, 50_000)
    first = evaluate(name, x, LEVELS[0])
    for level in LEVELS[1:]:
        assert same_bits(evaluate(name, x, level), first), f"{name} differs between {LEVELS[0]} and {level}"
    # The scalar code, which device code shares: an array of one element has no whole vector.
    few = x[:: x.size // 200]
    alone = np.concatenate([evaluate(name, np.ascontiguousarray(few[i : i + 1]), LEVELS[0]) for i in range(few.size)])
    assert same_bits(alone, np.ascontiguousarray(first[:: x.size // 200]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(ULP_BOUND))
def test_scalar_tail_equals_vector_lanes(name: str, dtype: Precision, level: str) -> None:
    x = points(name, dtype, 32)[:67]
    whole = evaluate(name, x, level)
    shifted = evaluate(name, np.ascontiguousarray(x[5:]), level)  # other elements now fall to the tail
    assert same_bits(whole[5:], shifted)
