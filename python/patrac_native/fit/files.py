"""Fitted estimators as JSON-able values and arrays, for files without pickle."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.estimator_report import FitReport
from patrac_native.fit.scaling import InputScaling, TargetScaling
from patrac_native.kernels import Kernel, kernel_from_dict
from patrac_native.likelihoods import Likelihood, likelihood_from_dict
from patrac_native.sampling.warmup import Warmup

Arrays = Mapping[str, npt.NDArray[Any]]
# Attributes of fitted estimators that are JSON-able; not every estimator has each.
_PLAIN = ("n_features_in_", "n_iter_", "n_outputs_", "_y_has_columns")


def fitted_to_arrays(estimator: Any) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return a fitted estimator as JSON-able values and arrays by name."""
    draws, arrays = estimator.draws_.to_arrays()
    content = {
        "class": type(estimator).__name__,
        "parameters": {name: _plain(value) for name, value in estimator.get_params(deep=False).items()},
        "fitted": {name: getattr(estimator, name) for name in _PLAIN if hasattr(estimator, name)},
        "input_scaling": estimator.input_scaling_.to_dict(),
        "report": estimator.report_.to_dict(),
        "is_mixture": isinstance(estimator.draws_, DrawsMixture),
        "draws": draws,
    }
    if hasattr(estimator, "target_scaling_"):
        content["target_scaling"] = estimator.target_scaling_.to_dict()
    for name in ("feature_names_in_", "classes_"):
        if hasattr(estimator, name):
            values = getattr(estimator, name)
            content[name] = {"values": values.tolist(), "dtype": values.dtype.str}
    return content, arrays


def fitted_from_arrays(estimator: Any, content: Mapping[str, Any], arrays: Arrays) -> None:
    """Set parameters and attributes of a new estimator to those that `fitted_to_arrays` returned."""
    estimator.set_params(**{name: _rebuilt(value) for name, value in content["parameters"].items()})
    for name, value in content["fitted"].items():
        setattr(estimator, name, value)
    estimator.input_scaling_ = InputScaling.from_dict(content["input_scaling"])
    if "target_scaling" in content:
        estimator.target_scaling_ = TargetScaling.from_dict(content["target_scaling"])
    estimator.report_ = FitReport.from_dict(content["report"])
    kind = DrawsMixture if content["is_mixture"] else Draws
    estimator.draws_ = kind.from_arrays(content["draws"], arrays)
    for name in ("feature_names_in_", "classes_"):
        if name in content:
            setattr(estimator, name, np.array(content[name]["values"], dtype=content[name]["dtype"]))


def _plain(value: Any) -> Any:
    """Return a parameter as JSON-able values."""
    if isinstance(value, Likelihood):
        return {"likelihood": value.to_dict()}
    if isinstance(value, Kernel):
        return {"kernel": value.to_dict()}
    if isinstance(value, Warmup):
        return {"warmup": value.to_dict()}
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.ndarray):
        return {"tuple": value.tolist()}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_plain(one) for one in value]}
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def _rebuilt(value: Any) -> Any:
    """Return a parameter from what `_plain` returned."""
    if not isinstance(value, Mapping):
        return value
    ((kind, content),) = value.items()
    if kind in ("tuple", "list"):
        values = [_rebuilt(one) for one in content]
        return tuple(values) if kind == "tuple" else values
    return {"likelihood": likelihood_from_dict, "kernel": kernel_from_dict, "warmup": Warmup.from_dict}[kind](content)
