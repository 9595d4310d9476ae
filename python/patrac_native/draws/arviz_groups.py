"""Draws as the groups of ArviZ and back: the variables of each group, their axes, labels and attributes."""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.draws.chain_draws import PER_DRAW, Stats, sampler_of
from patrac_native.draws.distribution import PredictiveDistribution, too_good
from patrac_native.interop.datatree import Group, Named, array_of
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import network_digest
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.theta_variables import ThetaVariable, theta_variables

CHAIN_DRAW = ("chain", "draw")
# ArviZ 0.x takes a variable "log_likelihood" of sample_stats for that of single rows.
_RENAMED = {"log_likelihood": "total_log_likelihood"}
# Statistics that are draws of parameters, and belong to the posterior.
_PARAMETERS = ("variance", "prior_scales")
_LIBRARY = "patrac_native"
_version = functools.cache(version)  # it reads files, and stores ask with each chunk


@dataclass(frozen=True)
class PosteriorGroups:
    """The groups of draws of a posterior, with labels of inputs (d,), outputs (m,) and targets (t,)."""

    network: PartialNetwork
    likelihood: Likelihood
    inputs: npt.NDArray[Any]
    outputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]

    @classmethod
    def labelled(
        cls,
        network: PartialNetwork,
        likelihood: Likelihood,
        input_names: Sequence[object] | None,
        target_names: Sequence[object] | None,
    ) -> PosteriorGroups:
        """Return the groups with names or, where there are none, indices as labels; ValueError for wrong names."""
        m = network.n_outputs
        inputs = check_names(input_names, network.n_inputs, "input_names", "input")
        if likelihood.targets == "class":
            classes = check_names(target_names, m, "target_names", "class")
            return cls(network, likelihood, inputs, classes, np.arange(1))
        targets = check_names(target_names, likelihood.n_targets(m), "target_names", "target")
        outputs = targets if m == len(targets) else np.arange(m)
        if likelihood.values is not None:
            outputs = likelihood.values
        if likelihood.noise_by_row and target_names is not None:
            # The first t outputs belong to the targets, and so do the next t.
            outputs = np.array([*targets, *(f"log variance of {name}" for name in targets)])
        return cls(network, likelihood, inputs, outputs, targets)

    def of_run(self, theta: npt.NDArray[Any], stats: Stats) -> dict[str, Group]:
        """Return the groups of theta (chain, draw, K) and of the statistics."""
        return {"posterior": self.posterior(theta, stats), "sample_stats": sample_stats_group(stats)}

    def posterior(self, theta: npt.NDArray[Any], stats: Stats) -> Group:
        """Return the group of parameters: theta (chain, draw, K) by layers, and sampled variances and scales."""
        layout = theta_variables(self.network, self.inputs, self.outputs)
        group = Group(coordinates=chain_coordinates(theta.shape[:2]) | layout.coordinates)
        for variable in layout.variables:
            group.variables[variable.name] = (*CHAIN_DRAW, *variable.dimensions), variable.of_theta(theta)
        labels = {"output": self.outputs, "scale": np.array(self.network.scale_names)}
        for name in _PARAMETERS:
            if name in stats:
                axes = _axes(name, stats[name].ndim)
                group.variables[name] = axes, stats[name]
                group.coordinates.update({axis: ((axis,), labels[axis]) for axis in axes[2:]})
        return group

    def prior(self, distribution: PredictiveDistribution | None, draws: int, seed: int) -> dict[str, Group]:
        """Return the prior and prior predictive draws, in one chain, as `Posterior.prior_predictive` draws."""
        theta, scales = self.network.prior_states(draws, seed)
        sampled: dict[str, npt.NDArray[Any]] = {} if scales is None else {"prior_scales": scales[None]}
        if self.likelihood.is_sampled:
            # Drawn as `Likelihood.sample_prior` draws them, before the noise.
            shape, rate = self.likelihood.variance_prior(self.network.n_outputs)
            variances = rate / np.random.default_rng(seed).gamma(shape, size=(draws, len(rate)))
            sampled["variance"] = variances[None, :, 0] if len(rate) == 1 else variances[None]
        groups = {"prior": self.posterior(theta[None], sampled)}
        if distribution is not None:
            f = self.likelihood.with_offset(self.network.predict(theta, distribution.X), distribution.offset)
            y = self.likelihood.sample_prior(f, np.random.default_rng(seed))
            coordinates = chain_coordinates((1, draws)) | self._rows(distribution.n_rows)
            groups["prior_predictive"] = Group({"y": self._of_targets(y[None])}, coordinates)
        return groups

    def data(
        self, shape: tuple[int, ...], distribution: PredictiveDistribution | None, y: npt.ArrayLike | None, seed: int
    ) -> dict[str, Group]:
        """Return what is known at the inputs of a distribution, and with targets y the groups that need them too."""
        layout = theta_variables(self.network, self.inputs, self.outputs)
        # The places are no coordinates of the posterior: ArviZ's tables fail on coordinates that label no dimension.
        constant = Group(dict(layout.positions))
        for along, _ in layout.positions.values():
            constant.coordinates.update({name: layout.coordinates[name] for name in along})
        if distribution is None:
            return {"constant_data": constant}
        likelihood, rows = self.likelihood, self._rows(distribution.n_rows)
        by_draw = chain_coordinates(shape) | rows
        observed = None if y is None else distribution.check_targets(y)

        def drawn(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return values.reshape(*shape, *values.shape[1:])

        constant.variables["X"] = ("row", "input"), distribution.X
        constant.coordinates.update({**rows, "input": (("input",), self.inputs)})
        if distribution.offset is not None:
            constant.variables["offset"] = self._of_targets(distribution.offset)
        predicted = {"y": self._of_targets(drawn(distribution.sample(seed)))}
        # A group of its own: plots of posterior_predictive expect no axis that observed_data lacks, as that of classes.
        function = Group(coordinates=dict(by_draw))
        f = drawn(distribution.outputs())
        if likelihood.targets == "class":
            function.variables["p"] = (*CHAIN_DRAW, "row", "output"), likelihood.probabilities(f)
            function.coordinates["output"] = ("output",), self.outputs
        elif likelihood.targets == "binary":
            function.variables["p"] = self._of_targets(likelihood.probabilities(f))
        else:
            function.variables["f"] = self._of_targets(likelihood.predicted(f))
        groups = {
            "constant_data": constant,
            "posterior_predictive": Group(predicted, dict(by_draw)),
            "function": function,
        }
        if observed is not None:
            groups["observed_data"] = Group({"y": self._of_targets(likelihood.typical(observed))}, rows)
            own = {name: at for name, at in by_draw.items() if name != "target"}
            values = drawn(distribution.log_density_by_draw(observed))
            reason = too_good(self.network)
            attributes = {"too_good": reason} if reason else {}
            groups["log_likelihood"] = Group({"y": ((*CHAIN_DRAW, "row"), values)}, own, attributes)
        return groups

    def _of_targets(self, values: npt.NDArray[Any]) -> Named:
        """Return targets (..., n) of classes or (..., n, t) with their dimensions; a single target has no axis."""
        is_class, is_single = self.likelihood.targets == "class", len(self.targets) == 1
        if is_single and not is_class:
            values = values[..., 0]
        axes = ("row",) if is_class or is_single else ("row", "target")
        return (*CHAIN_DRAW[: 2 * (values.ndim > len(axes))], *axes), values

    def _rows(self, n: int) -> dict[str, Named]:
        """Return the coordinates of rows and, if there are several, of targets."""
        rows: dict[str, Named] = {"row": (("row",), np.arange(n))}
        return rows | ({"target": (("target",), self.targets)} if len(self.targets) > 1 else {})


def check_names(names: Sequence[object] | None, count: int, argument: str, what: str) -> npt.NDArray[Any]:
    """Return names, or indices if there are none; raise ValueError unless there are `count` different ones."""
    if names is None:
        return np.arange(count)
    words = [str(name) for name in names]
    if isinstance(names, str) or len(words) != count or len(set(words)) != count:
        raise ValueError(f"{argument} must hold {count} different names, one for each {what}; got {names!r}.")
    return np.array(words)


def chain_coordinates(shape: Sequence[int]) -> dict[str, Named]:
    """Return the coordinates of chains and draws."""
    return {name: ((name,), np.arange(size)) for name, size in zip(CHAIN_DRAW, shape, strict=True)}


def sample_stats_group(stats: Stats) -> Group:
    """Return the group of the statistics that are no parameters, and of the log density lp of theta and data."""
    shape = stats["log_likelihood"].shape
    group = Group({"lp": (CHAIN_DRAW, stats["log_likelihood"] + stats["log_prior"])}, chain_coordinates(shape))
    for name, values in stats.items():
        if name not in _PARAMETERS:
            group.variables[_RENAMED.get(name, name)] = _axes(name, values.ndim), values
    return group


def _axes(name: str, ndim: int) -> tuple[str, ...]:
    """Return the dimensions of a statistic."""
    if name in MOMENTS:
        return MOMENTS[name]
    last = "scale" if name == "prior_scales" else "output"
    return (*CHAIN_DRAW, last)[:ndim] if name in PER_DRAW else ("chain", "phase")[:ndim]


def library_attributes() -> dict[str, str]:
    """Return the attributes of every group."""
    return {"inference_library": _LIBRARY, "inference_library_version": _version(_LIBRARY)}


def run_attributes(settings: Mapping[str, Any]) -> dict[str, str | int | float]:
    """Return versions, the sampler, every setting and, by ArviZ's names, the time and the steps of the warm-up."""
    found: dict[str, str | int | float] = {
        **library_attributes(),
        "python_version": platform.python_version(),
        "numpy_version": _version("numpy"),
        "sampler": sampler_of(settings),
    }
    for name, value in settings.items():
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        # netCDF has no integers above 64 bits with sign.
        found[name] = value if is_plain and not (isinstance(value, int) and value >= 2**63) else json.dumps(value)
    if "seconds" in settings:
        found["sampling_time"] = float(settings["seconds"])
    if "warmup_steps" in settings:
        found["tuning_steps"] = int(settings["warmup_steps"])
    return found


def posterior_attributes(
    network: PartialNetwork, likelihood: Likelihood, settings: Mapping[str, Any]
) -> dict[str, str | int | float]:
    """Return the attributes of the root: those of the run, what was sampled, and what `restore` reads."""
    return {
        **run_attributes(settings),
        "architecture": network.architecture.label(),
        "prior": network.prior.describe(),
        "likelihood": repr(likelihood),
        "layer_sizes": json.dumps(network.net.layer_sizes),
        "activation": network.net.activation,
        "n_parameters": network.dim,
        "dtype": network.dtype.name,
        "level": network.level,
        _LIBRARY: json.dumps({**_identity(network, likelihood), "settings": dict(settings)}),
    }


def _identity(network: PartialNetwork, likelihood: Likelihood) -> dict[str, Any]:
    """Return what draws and their posterior have in common, as JSON-able values; levels and names may differ."""
    content = {name: network.to_dict()[name] for name in ("architecture", "prior", "dtype")}
    identity = {**content, "likelihood": likelihood.to_dict(), "trained network": network_digest(network.net)}
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain


def restore(
    network: PartialNetwork, likelihood: Likelihood, tree: Any
) -> tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return theta, statistics and settings of a tree; TypeError or ValueError if it is not one of this posterior."""
    if not (hasattr(tree, "children") and hasattr(tree, "attrs")):
        hint = " Call its to_datatree() first." if hasattr(tree, "to_datatree") else ""
        raise TypeError(f"tree must be an xarray.DataTree, as to_datatree returns it; got {type(tree).__name__}.{hint}")
    content = tree.attrs.get(_LIBRARY)
    missing = {"posterior", "sample_stats"} - set(tree.children)
    if content is None or missing:
        lacks = "its attribute 'patrac_native'" if content is None else f"the group {min(missing)!r}"
        raise ValueError(
            f"tree must be what to_datatree returned; it lacks {lacks}. Draws of another sampler: Draws.from_array."
        )
    found = json.loads(content)
    for name, value in _identity(network, likelihood).items():
        if found[name] != value:
            what = "network of other weights" if name == "trained network" else f"{name} {found[name]}, not {value}"
            raise ValueError(f"tree holds draws of another posterior than post: {what}.")
    return theta_of(network, tree), stats_of(network, likelihood, tree), found["settings"]


def theta_of(network: PartialNetwork, tree: Any) -> npt.NDArray[Any]:
    """Return theta (chain, draw, K) of a tree of this network."""
    parts = []
    for variable in _theta_variables(network):
        part = array_of(tree, "posterior", variable.name, (*CHAIN_DRAW, *variable.dimensions))
        if part.shape[2:] != variable.shape:
            raise ValueError(f"tree: {variable.name} must have {variable.shape} entries; got {part.shape[2:]}.")
        parts.append(variable.flat(part))
    return np.concatenate(parts, axis=-1).astype(network.dtype, copy=False)  # a store may have fewer digits


def theta_names(network: PartialNetwork) -> set[str]:
    """Return the names of the variables of theta."""
    return {variable.name for variable in _theta_variables(network)}


def _theta_variables(network: PartialNetwork) -> Sequence[ThetaVariable]:
    """Return the variables of theta, without labels."""
    return theta_variables(network, np.arange(network.n_inputs), np.arange(network.n_outputs)).variables


def stats_of(network: PartialNetwork, likelihood: Likelihood, tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of a tree of this network and likelihood."""
    names = {"sample_stats": [name for name in tree["sample_stats"].data_vars if name != "lp"]}
    names["sample_stats"] += [_RENAMED["log_likelihood"], "log_prior"]
    names["posterior"] = [name for name in _PARAMETERS if name in tree["posterior"].data_vars]
    names["posterior"] += ["variance"] * likelihood.is_sampled + ["prior_scales"] * (network.scales is not None)
    own_names = {new: old for old, new in _RENAMED.items()}
    stats = {}
    for group, of_group in names.items():
        for name in dict.fromkeys(of_group):
            own, values = own_names.get(name, name), tree[group].data_vars.get(name)
            stats[own] = array_of(tree, group, name, () if values is None else _axes(own, values.ndim))
    return stats
