"""The settings of a fit: the checked parameters of an estimator, under the names that they have there."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions, validate_parameter_constraints

import patrac_native as pn
from patrac_native.fit.pieces import Pieces

# The types of annotations; users write the public classes below them, such as `pn.Gaussian`.
Likelihood: TypeAlias = pn.Likelihood
Architecture: TypeAlias = pn.Architecture
Kernel: TypeAlias = pn.Kernel
Prior: TypeAlias = pn.Prior
# scikit-learn's names of activations, beside the package's own.
_ACTIVATIONS = {"logistic": "sigmoid"}
# The likelihoods of numbers by their names.
NUMBERS = ("real", "count", "value")
LIKELIHOODS = {one.label: one for one in vars(pn).values() if getattr(one, "targets", "") in NUMBERS}
# Between these a regression chooses, in the order in which it tries them. The last is the default without a choice.
NOISE_CHOICES: tuple[Likelihood, ...] = (pn.HeteroscedasticGaussian(), pn.Gaussian("sampled"))
# Numbers of chains and of draws of each for one network and for several; the budget by which a posterior is chosen
# where `thin` takes the place of `minutes`.
CHAINS, DRAWS, MINUTES_WITH_THIN = (4, 2), (500, 250), 2.0
# The seed of all that a fit chooses from its rows, whatever its own: fits by other seeds differ in their networks and
# chains alone, which are the replicates of the rerun error. No fit has it for these, see `_seed_of`.
CHOICE_SEED = 0

_COUNT = Interval(numbers.Integral, 1, None, closed="left")
_COLUMNS = [None, "array-like", str, numbers.Integral]
CONSTRAINTS: Mapping[str, list[Any]] = {
    "hidden_layer_sizes": ["array-like", _COUNT],
    "activation": [str],
    "l2": [None, Interval(numbers.Real, 0, None, closed="left")],
    "max_iter": [None, _COUNT],
    "validation_fraction": [None, Interval(numbers.Real, 0, 1, closed="left")],
    "architecture": [StrOptions({"auto", "full", "mix", "out", "sep"})],
    "k": [None, "array-like", _COUNT],
    "prior": [StrOptions({"auto", "gaussian", "trace-class"})],
    "prior_alpha": [None, Interval(numbers.Real, 1, None, closed="neither")],
    "networks": [None, _COUNT],
    # Two years; with more, the number of steps would not fit a machine integer.
    "minutes": [Interval(numbers.Real, 0, 1_000_000, closed="right")],
    "precision": [None, Interval(numbers.Real, 0, 1, closed="neither")],
    "chains": [None, _COUNT],
    "draws": [None, Interval(numbers.Integral, 4, None, closed="left")],
    "thin": [None, _COUNT],
    "warmup": [None, StrOptions({"paper"}), _COUNT, pn.Warmup],
    "kernel": [StrOptions({"auto"}), pn.PCN, pn.PCNL, pn.MGrad, pn.EllipticalSlice, pn.Exact],
    "device": [StrOptions({"auto", "cpu", "cuda"})],
    "dtype": [StrOptions({"float32", "float64"})],
    "categorical": _COLUMNS,
    "dates": _COLUMNS,
    "drop": _COLUMNS,
    "ids": _COLUMNS,
    "impute": [None, StrOptions({"mean", "median"})],
    "missing_indicator": ["boolean"],
    "pca": [StrOptions({"auto"}), Interval(numbers.Integral, 0, None, closed="left")],
    "bins": [StrOptions({"auto"}), Options(numbers.Integral, {0}), Interval(numbers.Integral, 2, None, closed="left")],
    "standardize": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [None, Interval(numbers.Integral, None, -1, closed="right"), _COUNT],
    "verbose": ["boolean"],
    "store": [None, str, os.PathLike],
    "warm_start": ["boolean"],
}
NOISE_CONSTRAINTS: Mapping[str, list[Any]] = {
    "noise_variance": [None, Interval(numbers.Real, 0, None, closed="neither")],
    "log_target": [None, "boolean"],
    "df": [None, Interval(numbers.Real, 1, 1e8, closed="both")],
    "dispersion": [None, Interval(numbers.Real, 1e-8, None, closed="left")],
    "exposure": [None, str, numbers.Integral],
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The parameters of an estimator that say how it is fitted, checked and in one form; see `PatracRegressor`."""

    hidden_layer_sizes: tuple[int, ...] = (50, 50)
    activation: str = "tanh"
    l2: float | None = None
    max_iter: int | None = None
    validation_fraction: float | None = None
    architecture: str = "auto"
    k: tuple[int, ...] | None = None
    prior: str = "auto"
    prior_alpha: float | None = None
    networks: int | None = None
    likelihood: str | Likelihood | None = None
    noise_variance: float | None = None
    log_target: bool | None = None
    df: float | None = None
    dispersion: float | None = None
    minutes: float = 0.1
    precision: float | None = None
    chains: int | None = None
    draws: int | None = None
    thin: int | None = None
    warmup: int | str | pn.Warmup | None = None
    kernel: str | Kernel = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    random_state: int = 0
    seed: int = CHOICE_SEED  # of networks and chains, and the next ones
    n_jobs: int | None = None
    verbose: bool = False
    pieces: Pieces = field(default_factory=Pieces, compare=False)  # where the work of the fit is kept

    @classmethod
    def of(cls, parameters: Mapping[str, Any], owner: str) -> Settings:
        """Check the parameters of an estimator of the class `owner`; raise TypeError or ValueError that names one."""
        check_parameters(parameters, owner)
        given = {one.name: parameters[one.name] for one in fields(cls) if one.name in parameters}
        given["hidden_layer_sizes"] = _counts(given["hidden_layer_sizes"], "hidden_layer_sizes")
        given["k"] = None if given["k"] is None else _counts(given["k"], "k")
        given["activation"] = _ACTIVATIONS.get(given["activation"], given["activation"])
        given["minutes"] = given["minutes"] if given["thin"] is None else MINUTES_WITH_THIN
        given["random_state"] = _random_state(given["random_state"])
        # Within a worker of joblib each fit gets one thread.
        nested = given["n_jobs"] is None and get_active_backend()[0].nesting_level
        given["n_jobs"] = 1 if nested else given["n_jobs"] and effective_n_jobs(given["n_jobs"])
        made = cls(**given).with_random_state(given["random_state"])
        if made.precision is not None and made.thin is not None:
            raise ValueError(
                f"precision={made.precision:g} adds replicates within minutes, and thin={made.thin} takes the place of "
                "minutes; leave one of them out."
            )
        if made.prior == "gaussian" and made.prior_alpha is not None:
            raise ValueError(
                f"prior_alpha={made.prior_alpha} is the decay of prior='trace-class', and prior is 'gaussian'; leave "
                "one of them out."
            )
        made._check_noise()
        made.given_architecture()
        return made

    def with_random_state(self, random_state: int) -> Settings:
        """Return the settings of a fit with networks and chains of its own, see `_seed_of`."""
        return replace(self, random_state=random_state, seed=_seed_of(random_state))

    @property
    def for_choices(self) -> Settings:
        """The settings by which a fit chooses from its rows, the same for any `random_state`."""
        return replace(self, seed=CHOICE_SEED)

    @property
    def progress(self) -> bool | None:
        """Whether to show progress bars: if the fit prints, in terminals and notebooks."""
        return None if self.verbose else False

    @property
    def estimates_dispersion(self) -> bool:
        """Whether the dispersion of a negative binomial likelihood is to be estimated."""
        return self.likelihood == "negative-binomial" and self.dispersion is None

    def likelihoods(self, **estimated: float) -> Sequence[Likelihood]:
        """Return the likelihoods of targets in their units between which a regression chooses; often one.

        `estimated` has values of parameters that are not given.
        """
        if self.likelihood is None and self.noise_variance is None:
            return NOISE_CHOICES
        if not (self.likelihood is None or isinstance(self.likelihood, str)):
            return [self.likelihood]
        kind = LIKELIHOODS[self.likelihood or "gaussian"]
        given = {name: getattr(self, name) for name in kind.settings}
        return [kind.from_settings(**{name: estimated.get(name) if v is None else v for name, v in given.items()})]

    def _check_noise(self) -> None:
        """Raise ValueError if the likelihood has no such name, or a parameter belongs to another likelihood."""
        name = "gaussian" if self.likelihood is None else self.likelihood
        if isinstance(name, str) and name not in LIKELIHOODS:
            raise ValueError(
                f"likelihood must be one of {', '.join(LIKELIHOODS)}, or a likelihood such as Gaussian('sampled'); got "
                f"{name!r}."
            )
        for setting in {setting for kind in LIKELIHOODS.values() for setting in kind.settings}:
            owners = [label for label, kind in LIKELIHOODS.items() if setting in kind.settings]
            if name not in owners and getattr(self, setting) is not None:
                meant = " or ".join(f"likelihood={label!r}" for label in owners)
                raise ValueError(
                    f"{setting} belongs to {meant}, and likelihood is {self.likelihood!r}; give {meant}, or leave "
                    f"{setting} out."
                )

    def given_architecture(self) -> Architecture | None:
        """Return what `architecture` and `k` say, None for the automatic choice; raise ValueError if they disagree."""
        name, k, widths = self.architecture, self.k, self.hidden_layer_sizes
        if name == "auto":
            if k is None:
                return None
            name = "mix"
        if name == "full":
            if k is not None:
                raise ValueError(
                    "k has no meaning for architecture='full', where all nodes are Bayesian; leave it out."
                )
            return pn.Full()
        if name == "out":
            widths = widths[-1:]
        nodes = k or tuple(min(45 if name == "out" else 5, width) for width in widths)
        if len(nodes) not in (1, len(widths)):
            many = f", or one for each of the {len(widths)} hidden_layer_sizes" if len(widths) > 1 else ""
            raise ValueError(f"k must be one number{many}, for architecture={name!r}; got {list(nodes)}.")
        for count, width in zip(nodes * (len(widths) if len(nodes) == 1 else 1), widths, strict=True):
            if not 1 <= count <= width:
                raise ValueError(
                    f"k must be from 1 to the width of the layer; got {count} for a hidden layer of {width} nodes. "
                    "Give a smaller k, or larger hidden_layer_sizes."
                )
        same = nodes[0] if len(set(nodes)) == 1 else list(nodes)
        return pn.Out(nodes[0]) if name == "out" else {"mix": pn.Mix, "sep": pn.Sep}[name](same)

    def given_warmup(self) -> pn.Warmup | int | None:
        """Return the schedule or number of steps that is given."""
        return pn.paper_warmup() if self.warmup == "paper" else self.warmup  # type: ignore[return-value]

    def warmup_of(self, steps: int, kernel: Kernel) -> pn.Warmup:
        """Return the warm-up of a kernel: as given, or of `steps` steps; of a budget it ends once the chains agree."""
        given = self.given_warmup()
        if isinstance(given, pn.Warmup):
            return given
        if given is None and self.thin is None and steps:
            return pn.Warmup.default(kernel, at_most=steps)
        fixed = steps if given is None else given
        return pn.Warmup.default(kernel, fixed) if fixed else pn.Warmup(())


def check_parameters(parameters: Mapping[str, Any], owner: str) -> None:
    """Raise ValueError that names a parameter of an estimator of the class `owner` outside its constraints."""
    wanted = {**CONSTRAINTS, **{name: NOISE_CONSTRAINTS[name] for name in NOISE_CONSTRAINTS if name in parameters}}
    validate_parameter_constraints(wanted, {name: parameters[name] for name in wanted}, caller_name=owner)
    pca, bins = parameters["pca"], parameters["bins"]
    if pca not in ("auto", 0) and bins not in ("auto", 0):
        raise ValueError(f"pca={pca} and bins={bins} both take the place of the inputs; leave one of them out.")


def _counts(value: Any, name: str) -> tuple[int, ...]:
    """Return one or several positive integers as a tuple."""
    values = np.atleast_1d(np.asarray(value))
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.size == 0 or values.min() < 1:
        what = f"{name} must be a positive integer, or one for each hidden layer; got {value!r}."
        raise (ValueError if values.dtype.kind in "iu" or values.size == 0 else TypeError)(what)
    return tuple(values.tolist())


def _random_state(random_state: Any) -> int:
    """Return a `random_state` as an integer: itself, or one that it draws."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _seed_of(random_state: int) -> int:
    """Return the seed of a fit's networks and chains, below 2^63.

    The networks of a fit have this seed and the next ones: fits by neighbouring integers would share all but one.
    """
    return int(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0]) >> 1
