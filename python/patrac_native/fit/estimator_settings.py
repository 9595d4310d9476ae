"""The settings of a fit from the parameters of an estimator."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib.parallel import get_active_backend
from sklearn.utils import check_random_state

from patrac_native.engine.threads import thread_count
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.kernels import Kernel
from patrac_native.network.activations import check_activation

# The parameters that scikit-learn names otherwise than `patrac fit`.
_PARAMETERS = {
    "hidden": "hidden_layer_sizes",
    "epochs": "max_iter",
    "alpha": "prior_alpha",
    "seed": "random_state",
    "threads": "n_jobs",
}
# The likelihoods that `patrac fit` names.
_LIKELIHOODS = {
    "gaussian": 'Gaussian("sampled")',
    "student-t": 'StudentT(4, "sampled")',
    "heteroscedastic": "HeteroscedasticGaussian()",
    "poisson": "Poisson()",
    "negative-binomial": "NegativeBinomial(dispersion)",
}
# scikit-learn's names of activations.
_ACTIVATIONS = {"logistic": "sigmoid"}


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(ModelSettings):
    """The settings of a fit, whose messages name the parameters of an estimator."""

    @property
    def noise_option(self) -> str:
        """How a known noise variance is given."""
        return "a known noise variance, likelihood=Gaussian(variance), or validation_fraction=0"

    def option(self, name: str, value: Any = None) -> str:
        """Return the parameter of a setting, with a value if there is one; a likelihood is given as an object."""
        if name == "likelihood" and value is not None:
            return f"likelihood={_LIKELIHOODS[value]}"
        return super().option(_PARAMETERS.get(name, name), value)


def settings_of(parameters: dict[str, Any]) -> EstimatorSettings:
    """Return the checked settings of a fit.

    Parameters
    ----------
    parameters : dict
        As `get_params(deep=False)` of an estimator returns them.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not as the estimators describe it; the message names it.
    """
    given = dict(parameters)
    for name in ("max_iter", "networks", "chains", "draws", "thin"):
        given[name] = _whole(given[name], name)
    for name in ("l2", "prior_alpha", "minutes", "validation_fraction"):
        _check_number(given[name], name)
    if not isinstance(given["kernel"], Kernel) and given["kernel"] != "auto":
        raise ValueError(f'kernel must be "auto" or a kernel such as MGrad(); got {given["kernel"]!r}.')
    activation = _ACTIVATIONS.get(given["activation"], given["activation"])
    check_activation(activation)
    settings = EstimatorSettings(
        hidden=_widths(given["hidden_layer_sizes"]),
        activation=activation,
        epochs=given["max_iter"],
        alpha=given["prior_alpha"],
        seed=_seed(given["random_state"]),
        threads=_threads(given["n_jobs"]),
        k=None if given["k"] is None else _counts(given["k"], "k"),
        # A given `thin` takes the place of the budget.
        minutes=given["minutes"] if given["thin"] is None else None,
        progress=None if given["verbose"] else False,
        **{
            name: given[name]
            for name in (
                "validation_fraction",
                "l2",
                "architecture",
                "prior",
                "networks",
                "chains",
                "draws",
                "thin",
                "warmup",
                "kernel",
                "device",
                "dtype",
            )
        },
    )
    settings.check_model()
    return settings


def _whole(value: Any, name: str) -> int | None:
    """Return an integer or None; raise TypeError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer or None; got {value!r}.")
    return int(value)


def _check_number(value: Any, name: str) -> None:
    """Raise TypeError unless a value is a real number or None."""
    if value is not None and (isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number or None; got {value!r}.")


def _counts(value: Any, name: str) -> list[int]:
    """Return one or several integers as a list; raise TypeError for anything else."""
    values: Sequence[Any] = [value] if isinstance(value, numbers.Integral) else value
    try:
        counts = [_whole(one, name) for one in values]
    except TypeError:
        counts = [None]
    if None in counts or isinstance(value, str):
        raise TypeError(f"{name} must be an integer, or one for each hidden layer; got {value!r}.")
    return [count for count in counts if count is not None]


def _widths(value: Any) -> list[int]:
    """Return the widths of the hidden layers; raise ValueError unless there is at least one, and each is positive."""
    widths = _counts(value, "hidden_layer_sizes")
    if min(widths, default=0) < 1:
        raise ValueError(f"hidden_layer_sizes must hold positive widths, at least one; got {value!r}.")
    return widths


def _seed(random_state: Any) -> int:
    """Return the seed of a fit: an integer itself, as `patrac fit --seed` takes it, otherwise a drawn one."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _threads(n_jobs: Any) -> int | None:
    """Return the number of native threads: all by default, but one where joblib already runs several workers."""
    count = _whole(n_jobs, "n_jobs")
    if count is None:
        return 1 if get_active_backend()[0].nesting_level else None
    if count == 0:
        raise ValueError("n_jobs must not be 0; give a number of threads, or -1 for all processors.")
    return count if count > 0 else max(1, thread_count(None) + 1 + count)
