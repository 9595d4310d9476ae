"""The attributes of a DataTree of draws, and the way back from the tree to the draws."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.arviz_groups import CHAIN_DRAW, PARAMETERS, RENAMED, sampled_axes, stat_axes
from patrac_native.interop.datatree import array_of
from patrac_native.likelihoods import Likelihood
from patrac_native.network.digest import network_digest
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.theta_variables import theta_variables

_LIBRARY = "patrac_native"


def attributes(
    network: PartialNetwork, likelihood: Likelihood, settings: Mapping[str, Any], sampler: str
) -> dict[str, str | int | float]:
    """Return the attributes of the root: what ArviZ expects, versions, every setting, and what `restore` reads."""
    return {
        **library_attributes(),
        "architecture": network.architecture.label(),
        "prior": network.prior.describe(),
        "likelihood": repr(likelihood),
        "layer_sizes": json.dumps(network.net.layer_sizes),
        "activation": network.net.activation,
        "n_parameters": network.dim,
        "dtype": network.dtype.name,
        "level": network.level,
        **run_attributes(settings, sampler),
        "patrac_native": json.dumps({**_identity(network, likelihood), "settings": dict(settings)}),
    }


def run_attributes(settings: Mapping[str, Any], sampler: str) -> dict[str, str | int | float]:
    """Return versions, the sampler, every setting and, by ArviZ's names, the time and the steps of the warm-up."""
    found: dict[str, str | int | float] = {
        "python_version": platform.python_version(),
        "numpy_version": version("numpy"),
        "sampler": sampler,
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


def library_attributes() -> dict[str, str]:
    """Return the attributes of every group."""
    return {"inference_library": _LIBRARY, "inference_library_version": version(_LIBRARY)}


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
    content = tree.attrs.get("patrac_native")
    missing = {"posterior", "sample_stats"} - set(tree.children)
    if content is None or missing:
        lacks = "its attribute 'patrac_native'" if content is None else f"the group {min(missing)!r}"
        raise ValueError(
            f"tree must be what to_datatree returned; it lacks {lacks}. Draws of another sampler: Draws.from_array."
        )
    found = json.loads(content)
    expected = _identity(network, likelihood)
    for name, value in expected.items():
        if found[name] != value:
            what = "network of other weights" if name == "trained network" else f"{name} {found[name]}, not {value}"
            raise ValueError(f"tree holds draws of another posterior than post: {what}.")
    theta = _theta(network, tree)
    own_names = {new: old for old, new in RENAMED.items()}
    stats = {}
    for name, values in tree["sample_stats"].data_vars.items():
        if name != "lp":
            own = own_names.get(name, name)
            stats[own] = array_of(tree, "sample_stats", name, stat_axes(own, values.ndim))
    for name, values in tree["posterior"].data_vars.items():
        if name in PARAMETERS:
            stats[name] = array_of(tree, "posterior", name, sampled_axes(name, values.ndim))
    needed = {
        "log_likelihood": True,
        "log_prior": True,
        "variance": likelihood.is_sampled,
        "prior_scales": network.scales is not None,
    }
    for name, is_needed in needed.items():
        if is_needed and name not in stats:
            where = "posterior" if name in PARAMETERS else "sample_stats"
            raise ValueError(f"tree has no variable {RENAMED.get(name, name)!r} in its group {where!r}.")
    return theta, stats, found["settings"]


def _theta(network: PartialNetwork, tree: Any) -> npt.NDArray[Any]:
    """Return theta (chain, draw, K) from the posterior group of a tree; raise ValueError if one is wrong."""
    layout = theta_variables(network, np.arange(network.n_inputs), np.arange(network.n_outputs))
    parts = []
    for variable in layout.variables:
        part = array_of(tree, "posterior", variable.name, (*CHAIN_DRAW, *variable.dimensions))
        if part.shape[2:] != variable.shape:
            raise ValueError(f"tree: {variable.name} must have {variable.shape} entries; got {part.shape[2:]}.")
        parts.append(variable.flat(part))
    return np.concatenate(parts, axis=-1)
