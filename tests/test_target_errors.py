"""Targets: what is refused, by name, and how exceptions and interrupts end a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import patrac_native as pn
from conftest import Interrupt
from test_target import VARIANCE, quadratic

Array = npt.NDArray[Any]


# Arguments and settings


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"log_likelihood_and_grad": 3.5}, TypeError, "must be a callable, a C function or its address; got float"),
        ({"log_likelihood_and_grad": 0}, ValueError, "log_likelihood_and_grad must be the address of something; got 0"),
        ({"prior_variance": 1.0}, ValueError, r"prior_variance must have shape \(K,\), K >= 1; got \(\)"),
        ({"prior_variance": []}, ValueError, "prior_variance must have shape"),
        ({"prior_variance": [1.0, 0.0]}, ValueError, "prior_variance must be positive; got 0 at entry 1"),
        ({"prior_variance": [1.0, np.nan]}, ValueError, "prior_variance"),
        ({"batched": 1}, TypeError, "batched must be True or False; got 1"),
        ({"predict": 3}, TypeError, "predict must be a function of theta and X; got int"),
        ({"context": 8}, ValueError, "context is the last argument of a C function"),
        (
            {"log_likelihood_and_grad": 8, "context": "x"},
            TypeError,
            "context must be an address, a ctypes pointer or a",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pn.Target(**{"log_likelihood_and_grad": quadratic, "prior_variance": VARIANCE} | arguments)


def test_bad_points() -> None:
    target = pn.Target(quadratic, VARIANCE)
    for theta in (np.zeros(2), np.zeros((1, 1, 3)), [np.nan, 0, 0]):
        with pytest.raises(ValueError, match="theta"):
            target.log_likelihood_and_grad(theta)
    with pytest.raises(TypeError, match="post must be a Posterior or a Target; got int"):
        pn.sample(3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"init": "map"}, 'init="map" needs trained values, and a Target has none; use "prior"'),
        ({"kernel": pn.Exact()}, "the likelihood is a function; use MGrad"),
        ({"kernel": pn.MGrad(collapse=True)}, "whose output weights can be integrated out; got a function"),
        ({"kernel": pn.PCNL(metric="inputs")}, 'there are none: the log-likelihood is a function; use metric="prior"'),
        ({"device": "emulated:1"}, 'device="emulated:1" cannot run this: the log-likelihood is a function of the host'),
        ({"keep_on_device": True}, "keep_on_device=True needs"),
        ({"variance_every": 3}, "got 3 and a function"),
    ],
    ids=str,
)
def test_settings_that_a_function_cannot_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pn.sample(pn.Target(quadratic, VARIANCE), **settings)


# Results, exceptions and interrupts


class Broken(Exception):
    """An exception of a user's function."""


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("call", [0, 1, 2, 300])
def test_an_exception_ends_the_run_and_is_raised(call: int, batched: bool) -> None:
    calls = iter(range(10**9))

    def function(theta: Array) -> tuple[Any, Array]:
        if next(calls) == call:
            raise Broken("no solution")
        return quadratic(theta)

    with pytest.raises(Broken, match="no solution"):
        pn.sample(pn.Target(function, VARIANCE, batched=batched), chains=3, draws=1_000, threads=3, seed=1)
    # The interpreter may run another thread between the count and the exception, for some milliseconds.
    assert next(calls) < call + 1_000


@pytest.mark.parametrize(
    ("result", "batched", "error", "words"),
    [
        (1.0, False, TypeError, "must return a value and a gradient; it returned float"),
        ((1.0, np.zeros(3), 0), False, TypeError, "must return a value and a gradient; it returned tuple"),
        ((1.0, np.zeros(2)), False, ValueError, r"must return a gradient of shape \(3,\); got \(2,\)"),
        ((1.0, "abc"), False, TypeError, "must return a gradient of real numbers; got str"),
        ((1.0, ["1", "2", "3"]), False, TypeError, "a gradient of real numbers; got list of dtype <U1"),
        ((1.0, np.zeros(3) + 1j), False, TypeError, "a gradient of real numbers; got ndarray of dtype complex128"),
        ((1.0, [[1.0], [1.0, 2.0]]), False, TypeError, r"a gradient of real numbers; got list \(ValueError: .*shape"),
        (("1.5", np.zeros(3)), False, TypeError, "must return a value of real numbers; got str of dtype <U3"),
        ((None, np.zeros(3)), False, TypeError, "a value of real numbers; got NoneType"),
        ((1j, np.zeros(3)), False, TypeError, "a value of real numbers; got complex"),
        ((np.zeros(1), np.zeros(3)), False, ValueError, r"must return a value of shape \(\); got \(1,\)"),
        ((np.zeros(2) + 1j, np.zeros((2, 3))), True, TypeError, "values of real numbers; got ndarray of dtype complex"),
        ((np.zeros(3), np.zeros((2, 3))), True, ValueError, r"values of shape \(2,\); got \(3,\)"),
        ((np.zeros(2), np.zeros(3)), True, ValueError, r"gradients of shape \(2, 3\); got \(3,\)"),
    ],
)
def test_results_of_another_shape(result: Any, batched: bool, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pn.sample(pn.Target(lambda theta: result, VARIANCE, batched=batched), chains=2, draws=10, seed=1)


def test_other_forms_of_numbers() -> None:
    """Whatever NumPy reads as real numbers, and tensors of torch that still require a gradient."""
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    for value, gradient in ((2, [1, 1, 1]), (np.float32(2), np.ones(3, bool)), (tensor.sum() - 1, tensor)):
        target = pn.Target(lambda theta, result=(value, gradient): result, VARIANCE)
        found, slope = target.log_likelihood_and_grad(np.zeros(3))
        assert found == 2.0 and slope.tolist() == [1.0, 1.0, 1.0]


def test_a_start_that_is_not_finite() -> None:
    target = pn.Target(lambda theta: (np.nan, np.zeros(1)), [1.0])
    with pytest.raises(ValueError, match=r"not finite at the starting point of chain 0; start from another point$"):
        pn.sample(target, chains=1, draws=1, seed=1)


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_an_interrupt_returns_the_draws_so_far(batched: bool, interrupt: Interrupt) -> None:
    interrupt(4)
    with pytest.warns(UserWarning, match="interrupted"):
        draws = pn.sample(
            pn.Target(quadratic, VARIANCE, batched=batched),
            chains=3,
            draws=10_000_000,
            warmup=100,
            seed=1,
            progress=True,
            threads=3,
        )
    assert 0 < draws.n_draws < 10_000_000 and not draws.settings["completed"]
