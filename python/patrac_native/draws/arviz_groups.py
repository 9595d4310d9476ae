"""Draws as the groups of ArviZ: which variables each group holds, their axes and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.chain_draws import PER_DRAW, Stats
from patrac_native.draws.distribution import PredictiveDistribution
from patrac_native.interop.datatree import Group, Named
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.theta_variables import theta_variables
from patrac_native.validation.checks import FloatArray

CHAIN_DRAW = ("chain", "draw")
# ArviZ 0.x takes a variable "log_likelihood" of sample_stats for that of single rows.
RENAMED = {"log_likelihood": "total_log_likelihood"}
# Statistics that are draws of parameters, and belong to the posterior.
PARAMETERS = ("variance", "prior_scales")


@dataclass(frozen=True)
class Labels:
    """Labels of the inputs (d,), outputs (m,) and targets (t,): names or, where there are none, indices."""

    inputs: npt.NDArray[Any]
    outputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]


def make_labels(
    network: PartialNetwork,
    likelihood: Likelihood,
    input_names: Sequence[object] | None,
    target_names: Sequence[object] | None,
) -> Labels:
    """Return the labels of a network's inputs, outputs and targets; raise ValueError if names are not as many."""
    n_classes = network.n_outputs if likelihood.targets == "class" else 0
    n_targets = 1 if n_classes else likelihood.n_targets(network.n_outputs)
    inputs = check_names(input_names, network.n_inputs, "input_names", "input")
    if n_classes:
        return Labels(inputs, check_names(target_names, n_classes, "target_names", "class"), np.arange(1))
    targets = check_names(target_names, n_targets, "target_names", "target")
    if target_names is None or network.n_outputs == n_targets:
        outputs = targets if network.n_outputs == n_targets else np.arange(network.n_outputs)
    else:  # the first t outputs belong to the targets, and so do the next t
        outputs = np.array([*targets, *(f"log variance of {name}" for name in targets)])
    return Labels(inputs, outputs, targets)


def check_names(names: Sequence[object] | None, count: int, argument: str, what: str) -> npt.NDArray[Any]:
    """Return names, or indices if there are none; raise ValueError unless there are `count` different ones."""
    if names is None:
        return np.arange(count)
    words = [str(name) for name in names]
    if isinstance(names, str) or len(words) != count or len(set(words)) != count:
        raise ValueError(f"{argument} must hold {count} different names, one for each {what}; got {names!r}.")
    return np.array(words)


def run_groups(network: PartialNetwork, labels: Labels, theta: npt.NDArray[Any], stats: Stats) -> dict[str, Group]:
    """Return the groups of a run that need no inputs, for theta (chain, draw, K)."""
    sampled = {name: stats[name] for name in PARAMETERS if name in stats}
    return {
        "posterior": posterior_group(network, labels, theta, sampled),
        "sample_stats": sample_stats_group(stats),
    }


def data_groups(
    network: PartialNetwork,
    labels: Labels,
    shape: tuple[int, ...],
    distribution: PredictiveDistribution | None,
    y: npt.ArrayLike | None,
    seed: int,
) -> dict[str, Group]:
    """Return what is known at the inputs of a distribution, and with targets y the groups that need them too."""
    if distribution is None:
        return {"constant_data": constant_group(network, labels, None, None)}
    likelihood, rows = distribution.likelihood, row_coordinates(distribution.n_rows, labels)
    by_draw = chain_coordinates(shape) | rows
    observed = None if y is None else distribution.check_targets(y)

    def drawn(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values.reshape(*shape, *values.shape[1:])

    def targets(values: npt.NDArray[Any]) -> Named:
        return target_values(values, likelihood, labels)

    places = None if distribution.offset is None else targets(distribution.offset)
    groups = {
        "constant_data": constant_group(network, labels, distribution.X, places),
        "posterior_predictive": Group({"y": targets(drawn(distribution.sample(seed)))}, dict(by_draw)),
    }
    # A group of its own: plots of posterior_predictive expect no axis that observed_data lacks, as that of classes.
    function = groups["function"] = Group(coordinates=dict(by_draw))
    f = drawn(distribution.outputs())
    if likelihood.targets == "class":
        function.variables["p"] = (*CHAIN_DRAW, "row", "output"), likelihood.probabilities(f)
        function.coordinates["output"] = ("output",), labels.outputs
    elif likelihood.targets == "binary":
        function.variables["p"] = targets(likelihood.probabilities(f))
    else:
        function.variables["f"] = targets(likelihood.predicted(f))
    if observed is not None:
        groups["observed_data"] = Group({"y": targets(likelihood.typical(observed))}, rows)
        own = {name: at for name, at in by_draw.items() if name != "target"}
        values = drawn(distribution.log_density_by_draw(observed))
        groups["log_likelihood"] = Group({"y": ((*CHAIN_DRAW, "row"), values)}, own)
    return groups


def posterior_group(
    network: PartialNetwork, labels: Labels, theta: npt.NDArray[Any], sampled: Mapping[str, npt.NDArray[Any]]
) -> Group:
    """Return the group of parameters: theta (chain, draw, K) by layers, and sampled variances and scales by name."""
    layout = theta_variables(network, labels.inputs, labels.outputs)
    group = Group(coordinates=chain_coordinates(theta.shape[:2]) | layout.coordinates)
    for variable in layout.variables:
        group.variables[variable.name] = (*CHAIN_DRAW, *variable.dimensions), variable.of_theta(theta)
    for name, values in sampled.items():
        axes = sampled_axes(name, values.ndim)
        group.variables[name] = axes, values
        if axes[2:] == ("output",):
            group.coordinates["output"] = ("output",), labels.outputs
        elif axes[2:] == ("scale",):
            group.coordinates["scale"] = ("scale",), np.array(network.scale_names)
    return group


def constant_group(network: PartialNetwork, labels: Labels, X: FloatArray | None, offset: Named | None) -> Group:
    """Return the group of what is known: the places of the nodes and entries of theta, and the inputs if given."""
    layout = theta_variables(network, labels.inputs, labels.outputs)
    # The places are no coordinates of the posterior: ArviZ's tables fail on coordinates that label no dimension.
    group = Group(dict(layout.positions))
    for along, _ in layout.positions.values():
        group.coordinates.update({name: layout.coordinates[name] for name in along})
    if X is not None:
        group.variables["X"] = ("row", "input"), X
        group.coordinates.update({**row_coordinates(len(X), labels), "input": (("input",), labels.inputs)})
    if offset is not None:
        group.variables["offset"] = offset
    return group


def sampled_axes(name: str, ndim: int) -> tuple[str, ...]:
    """Return the dimensions of sampled noise variances or scales of the prior."""
    return (*CHAIN_DRAW, "scale" if name == "prior_scales" else "output")[:ndim]


def chain_coordinates(shape: Sequence[int]) -> dict[str, Named]:
    """Return the coordinates of chains and draws."""
    return {name: ((name,), np.arange(size)) for name, size in zip(CHAIN_DRAW, shape, strict=True)}


def sample_stats_group(stats: Stats) -> Group:
    """Return the group of the statistics that are no parameters, and of the log density lp of theta and data."""
    shape = stats["log_likelihood"].shape
    group = Group({"lp": (CHAIN_DRAW, stats["log_likelihood"] + stats["log_prior"])}, chain_coordinates(shape))
    for name, values in stats.items():
        if name not in PARAMETERS:
            group.variables[RENAMED.get(name, name)] = stat_axes(name, values.ndim), values
    return group


def stat_axes(name: str, ndim: int) -> tuple[str, ...]:
    """Return the dimensions of a statistic."""
    return CHAIN_DRAW if name in PER_DRAW else ("chain", "phase")[:ndim]


def prior_groups(
    network: PartialNetwork,
    likelihood: Likelihood,
    labels: Labels,
    distribution: PredictiveDistribution | None,
    *,
    draws: int,
    seed: int,
) -> dict[str, Group]:
    """Return the groups of prior and prior predictive draws, in one chain, as `Posterior.prior_predictive` draws."""
    theta, scales = network.prior_states(draws, seed)
    sampled: dict[str, npt.NDArray[Any]] = {} if scales is None else {"prior_scales": scales[None]}
    if likelihood.is_sampled:
        # Drawn as `Likelihood.sample_prior` draws them, before the noise.
        shape, rate = likelihood.variance_prior(network.n_outputs)
        variances = rate / np.random.default_rng(seed).gamma(shape, size=(draws, len(rate)))
        sampled["variance"] = variances[None, :, 0] if len(rate) == 1 else variances[None]
    groups = {"prior": posterior_group(network, labels, theta[None], sampled)}
    if distribution is not None:
        f = likelihood.with_offset(network.predict(theta, distribution.X), distribution.offset)
        y = likelihood.sample_prior(f, np.random.default_rng(seed))
        groups["prior_predictive"] = Group(
            {"y": target_values(y[None], likelihood, labels)}, chain_coordinates((1, draws))
        )
        groups["prior_predictive"].coordinates.update(row_coordinates(distribution.n_rows, labels))
    return groups


def target_values(
    values: npt.NDArray[Any], likelihood: Likelihood, labels: Labels
) -> tuple[tuple[str, ...], npt.NDArray[Any]]:
    """Return targets (..., n) of classes or (..., n, t) with their dimensions; a single target has no axis."""
    if likelihood.targets != "class":
        values = values[..., 0] if len(labels.targets) == 1 else values
    axes = ("row",) if likelihood.targets == "class" or len(labels.targets) == 1 else ("row", "target")
    return (*CHAIN_DRAW[: 2 * (values.ndim > len(axes))], *axes), values


def row_coordinates(n: int, labels: Labels) -> dict[str, Named]:
    """Return the coordinates of rows and, if there are several, of targets."""
    rows: dict[str, Named] = {"row": (("row",), np.arange(n))}
    return rows | ({"target": (("target",), labels.targets)} if len(labels.targets) > 1 else {})
