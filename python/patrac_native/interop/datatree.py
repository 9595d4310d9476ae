"""Groups of named arrays as an xarray DataTree, the form that ArviZ takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from patrac_native.validation.extras import import_extra

if TYPE_CHECKING:
    import arviz
    import xarray

# An array with the names of its axes.
Named = tuple[Sequence[str], npt.NDArray[Any]]


@dataclass(frozen=True)
class Group:
    """The content of one group: variables, labels of dimensions and further coordinates along them, attributes."""

    variables: dict[str, Named] = field(default_factory=dict)  # axes begin with "chain" and "draw" where they have them
    coordinates: dict[str, Named] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def build_datatree(
    groups: Mapping[str, Group], attributes: Mapping[str, Any], library: Mapping[str, str], method: str
) -> xarray.DataTree:
    """Build a DataTree."""
    module = import_extra("xarray", "arviz", method)
    datasets = {
        name: module.Dataset(group.variables, coords=group.coordinates, attrs={**library, **group.attributes})
        for name, group in groups.items()
    }
    root = module.Dataset(attrs=dict(attributes))
    tree: xarray.DataTree = module.DataTree.from_dict({"/": root, **datasets})
    return tree


def inference_data(tree: xarray.DataTree, method: str) -> arviz.InferenceData:
    """Return a DataTree as the InferenceData of ArviZ 0.x."""
    library = import_extra("arviz", "arviz", method)
    if not hasattr(library, "InferenceData"):
        raise ImportError(
            f"{method} needs ArviZ 0.x; the installed version {library.__version__} has no InferenceData: its "
            "functions take the result of to_datatree."
        )
    data: arviz.InferenceData = library.InferenceData.from_datatree(tree)
    return data


def array_of(tree: Any, group: str, name: str, dimensions: Sequence[str]) -> npt.NDArray[Any]:
    """Return a variable of a group of a DataTree with its axes in the given order."""
    if name not in tree[group].data_vars:
        raise ValueError(f"tree has no variable {name!r} in its group {group!r}.")
    variable = tree[group][name]
    if set(variable.dims) != set(dimensions):
        raise ValueError(f"tree: {name} must have the dimensions {tuple(dimensions)}; got {tuple(variable.dims)}.")
    array: npt.NDArray[Any] = variable.transpose(*dimensions).to_numpy()
    return array
