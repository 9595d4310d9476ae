"""The architectures: which parameters of a ranked network are Bayesian (docs/method.md, section 3)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native.network.network import Network
from patrac_native.validation.checks import check_count, refuse_masked
from patrac_native.validation.complete import Complete, by_name, entry_of

BoolArray = npt.NDArray[np.bool_]
Masks = tuple[list[BoolArray], list[BoolArray]]
Permutations = Sequence[npt.NDArray[np.intp]]


# What a posterior takes from the trained network where only some of its parameters are Bayesian.
_SOME_FIXED = "fixed parameters, ranks and prior variances are taken from it"


class Architecture(Complete, abstract=True):
    """Base class of the architectures: a rule that selects the Bayesian parameters.

    Attributes
    ----------
    name : str
        Name of the architecture in files, such as "mix".
    is_separate : bool
        Whether the sampled parameters belong to a separate network whose outputs are added to those of the trained one.
    fixes_nodes : bool
        Whether draws of f rest on parameters of the trained network that are kept.
    role_of_network : str
        What the posterior takes from the trained network, in words.
    """

    name: ClassVar[str]
    is_separate: ClassVar[bool]
    role_of_network: ClassVar[str]
    fixes_nodes: ClassVar[bool] = True

    def label(self) -> str:
        """Return a short label for tables and figures, such as "Mix(5)" or "Mix([8, 4])"."""
        k = self._k_as_json()
        return self.name.capitalize() + ("" if k is None else f"({k})")

    @abstractmethod
    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return Boolean masks of the weights and biases of each layer, True where Bayesian, nodes in **ranked** order.

        `permutations` is the ranking, as `rank_nodes(net)` returns it. The shapes are those of a network of widths
        `sampled_layer_sizes(net)`. Raises ValueError if the architecture does not fit the network.
        """

    def sampled_layer_sizes(self, net: Network) -> tuple[int, ...]:
        """Return the widths of the network whose parameters are sampled: those of `net`, except for Sep."""
        return net.layer_sizes

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON-able values: k, if there is one."""
        k = self._k_as_json()
        return {} if k is None else {"k": k}

    def _k_as_json(self) -> Any:
        """Return k as an int or a list of ints; None for an architecture without k."""
        k = getattr(self, "k", None)
        return list(k) if isinstance(k, tuple) else k

    def within(self, width: int) -> Architecture:
        """Return the architecture with at most `width` Bayesian nodes in the last hidden layer; here itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values from which `architecture_from_dict` rebuilds the architecture."""
        return {"name": self.name, **self.arguments()}

    @classmethod
    def from_arguments(cls, content: Mapping[str, Any]) -> Architecture:
        """Rebuild the architecture from what `arguments` returned."""
        return cls(**content)


@dataclass(frozen=True)
class Full(Architecture):
    """All parameters are Bayesian; of the architectures, only Full and Custom allow a network without hidden layer."""

    name: ClassVar[str] = "full"
    is_separate: ClassVar[bool] = False
    role_of_network: ClassVar[str] = "ranks and prior variances are taken from it"
    fixes_nodes: ClassVar[bool] = False

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return masks that are True everywhere; see `Architecture.masks`."""
        return _empty_masks(net.layer_sizes, fill=True)


@dataclass(frozen=True)
class Mix(Architecture):
    """The first k ranked nodes of each hidden layer are Bayesian.

    The Bayesian parameters are the biases of these nodes, all weights from the inputs to them, the weights between
    them, all output biases, and the weights from the k Bayesian nodes of the last hidden layer to every output. All
    other parameters keep their trained values, among them the weights between fixed and Bayesian nodes.

    Parameters
    ----------
    k : int or sequence of int
        Number of Bayesian nodes in each hidden layer, 1 <= k <= N_l; one number for all layers or one for each.

    Raises
    ------
    TypeError
        If k is not an integer or a sequence of integers.
    ValueError
        If k is below 1 or an empty sequence.
    """

    k: int | tuple[int, ...]
    name: ClassVar[str] = "mix"
    is_separate: ClassVar[bool] = False
    role_of_network: ClassVar[str] = _SOME_FIXED

    def __init__(self, k: int | Sequence[int]) -> None:
        object.__setattr__(self, "k", _check_k(k, "Mix"))

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return masks that are True on a leading block of each matrix and vector; see `Architecture.masks`."""
        bayesian = (net.layer_sizes[0], *_k_per_layer(self.k, net, "Mix"), net.layer_sizes[-1])
        weight_masks, bias_masks = _empty_masks(net.layer_sizes)
        for layer in range(net.n_layers):
            weight_masks[layer][: bayesian[layer + 1], : bayesian[layer]] = True
            bias_masks[layer][: bayesian[layer + 1]] = True
        return weight_masks, bias_masks


@dataclass(frozen=True)
class Out(Architecture):
    """All output biases, and the weights from the k highest-ranked last hidden nodes to every output, are Bayesian.

    Parameters
    ----------
    k : int
        Number of hidden nodes whose outgoing weights are Bayesian, 1 <= k <= N_{L-1}.

    Raises
    ------
    TypeError
        If k is not an integer.
    ValueError
        If k is below 1.
    """

    k: int
    name: ClassVar[str] = "out"
    is_separate: ClassVar[bool] = False
    role_of_network: ClassVar[str] = _SOME_FIXED

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count(self.k, "k of Out"))

    def within(self, width: int) -> Out:
        """Return Out with k at most `width`."""
        return Out(min(self.k, width))

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return masks that are True on the first k columns of the last matrix and on the last biases."""
        _check_widths({net.n_layers - 1: self.k}, net, "Out")
        weight_masks, bias_masks = _empty_masks(net.layer_sizes)
        weight_masks[-1][:, : self.k] = True
        bias_masks[-1][:] = True
        return weight_masks, bias_masks


@dataclass(frozen=True)
class Sep(Architecture):
    """A separate, fully Bayesian network of width k, whose outputs are added to those of the trained network.

    Parameters
    ----------
    k : int or sequence of int
        Width of each hidden layer of the separate network, 1 <= k <= N_l; one number for all layers or one for each.

    Raises
    ------
    TypeError
        If k is not an integer or a sequence of integers.
    ValueError
        If k is below 1 or an empty sequence.
    """

    k: int | tuple[int, ...]
    name: ClassVar[str] = "sep"
    is_separate: ClassVar[bool] = True
    role_of_network: ClassVar[str] = "it is part of every draw of f, and prior variances are taken from it"

    def __init__(self, k: int | Sequence[int]) -> None:
        object.__setattr__(self, "k", _check_k(k, "Sep"))

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return masks of the separate network's shapes that are True everywhere; see `Architecture.masks`."""
        return _empty_masks(self.sampled_layer_sizes(net), fill=True)

    def sampled_layer_sizes(self, net: Network) -> tuple[int, ...]:
        """Return the widths (d, k, ..., k, m) of the separate network."""
        return (net.layer_sizes[0], *_k_per_layer(self.k, net, "Sep"), net.layer_sizes[-1])


@dataclass(frozen=True, eq=False)
class Custom(Architecture):
    """Any set of Bayesian parameters, given by masks in the trained network's own order of nodes.

    Parameters
    ----------
    weight_masks : sequence of L Boolean arrays, shapes (N_{l+1}, N_l)
        True for the Bayesian weights.
    bias_masks : sequence of L Boolean arrays, shapes (N_{l+1},)
        True for the Bayesian biases.

    Raises
    ------
    TypeError
        If a mask is not Boolean.
    ValueError
        If no entry is True, or entries are masked.

    Examples
    --------
    The whole last layer of a 1-3-1 network:

    >>> Custom([[[False]] * 3, [[True] * 3]], [[False] * 3, [True]]).label()
    'Custom'
    """

    weight_masks: tuple[BoolArray, ...]
    bias_masks: tuple[BoolArray, ...]
    name: ClassVar[str] = "custom"
    is_separate: ClassVar[bool] = False
    role_of_network: ClassVar[str] = _SOME_FIXED

    def __init__(self, weight_masks: Sequence[npt.ArrayLike], bias_masks: Sequence[npt.ArrayLike]) -> None:
        object.__setattr__(self, "weight_masks", _bool_arrays(weight_masks, "weight_masks"))
        object.__setattr__(self, "bias_masks", _bool_arrays(bias_masks, "bias_masks"))
        if not any(mask.any() for mask in (*self.weight_masks, *self.bias_masks)):
            raise ValueError("Custom: no entry of weight_masks or bias_masks is True; mark at least one parameter.")

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Return the given masks with their nodes permuted to ranked order; see `Architecture.masks`."""
        expected = {
            "weight_masks": (self.weight_masks, [w.shape for w in net.weights]),
            "bias_masks": (self.bias_masks, [b.shape for b in net.biases]),
        }
        for name, (masks, shapes) in expected.items():
            if [mask.shape for mask in masks] != shapes:
                raise ValueError(
                    f"Custom: {name} must have the network's shapes {shapes}; got {[mask.shape for mask in masks]}."
                )
        orders = [np.arange(net.layer_sizes[0]), *permutations, np.arange(net.layer_sizes[-1])]
        weight_masks = [mask[np.ix_(orders[layer + 1], orders[layer])] for layer, mask in enumerate(self.weight_masks)]
        return weight_masks, [mask[orders[layer + 1]] for layer, mask in enumerate(self.bias_masks)]

    def arguments(self) -> dict[str, Any]:
        """Return JSON-able values: for each mask its shape and the flat indices of its True entries."""

        def content(masks: Sequence[BoolArray]) -> list[dict[str, list[int]]]:
            return [{"shape": list(mask.shape), "true": np.flatnonzero(mask).tolist()} for mask in masks]

        return {"weight_masks": content(self.weight_masks), "bias_masks": content(self.bias_masks)}

    @classmethod
    def from_arguments(cls, content: Mapping[str, Any]) -> Custom:
        """Rebuild the architecture from what `arguments` returned."""
        return cls(_masks_from(content["weight_masks"]), _masks_from(content["bias_masks"]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


# All architectures by their names in files.
ARCHITECTURES: dict[str, type[Architecture]] = by_name((Full, Mix, Out, Sep, Custom))


def architecture_from_dict(content: Mapping[str, Any]) -> Architecture:
    """Rebuild an architecture from what its `to_dict` returned."""
    entry, arguments = entry_of(ARCHITECTURES, content, "architecture")
    return entry.from_arguments(arguments)


def _empty_masks(layer_sizes: Sequence[int], *, fill: bool = False) -> Masks:
    """Return weight and bias masks of a network of these widths, all entries equal to `fill`."""
    pairs = list(zip(layer_sizes[1:], layer_sizes[:-1], strict=True))
    return [np.full(shape, fill) for shape in pairs], [np.full(rows, fill) for rows, _ in pairs]


def _check_k(k: int | Sequence[int], owner: str) -> int | tuple[int, ...]:
    """Return k as an int or a tuple of ints; raise TypeError or ValueError unless each is an integer of at least 1."""
    if isinstance(k, Sequence | np.ndarray) and not isinstance(k, str):
        if len(k) == 0:
            raise ValueError(f"k of {owner} is empty; give one number for each hidden layer.")
        return tuple(check_count(value, f"k of {owner} for hidden layer {layer + 1}") for layer, value in enumerate(k))
    return check_count(k, f"k of {owner}")


def _k_per_layer(k: int | tuple[int, ...], net: Network, owner: str) -> tuple[int, ...]:
    """Return k for each hidden layer; raise ValueError if their number or a value does not fit the network."""
    hidden = net.n_layers - 1
    per_layer = k if isinstance(k, tuple) else (k,) * hidden
    if hidden and len(per_layer) != hidden:
        raise ValueError(
            f"k of {owner} must hold one number for each of the {hidden} hidden layers; got {list(per_layer)}."
        )
    _check_widths(dict(enumerate(per_layer, start=1)), net, owner)
    return per_layer


def _check_widths(k: Mapping[int, int], net: Network, owner: str) -> None:
    """Raise ValueError without a hidden layer, or if k of one, counted from 1, exceeds its width."""
    if net.n_layers == 1:
        raise ValueError(
            f"{owner} needs a network with a hidden layer; this one has layer_sizes {net.layer_sizes}. "
            "Use Full or Custom."
        )
    for layer, value in k.items():
        if value > net.layer_sizes[layer]:
            raise ValueError(
                f"k of {owner} is {value}, but hidden layer {layer} has {net.layer_sizes[layer]} nodes; "
                f"choose k <= {net.layer_sizes[layer]} there."
            )


def _masks_from(content: Sequence[Mapping[str, Sequence[int]]]) -> list[BoolArray]:
    """Rebuild masks from one entry of what `Custom.arguments` returned."""
    masks = []
    for entry in content:
        mask = np.zeros(tuple(entry["shape"]), dtype=np.bool_)
        mask.flat[np.asarray(entry["true"], dtype=np.intp)] = True
        masks.append(mask)
    return masks


def _bool_arrays(masks: Sequence[npt.ArrayLike], name: str) -> tuple[BoolArray, ...]:
    """Return read-only copies of Boolean arrays; raise TypeError if one is not Boolean."""
    arrays = []
    for layer, mask in enumerate(masks):
        refuse_masked(mask, f"Custom: {name}[{layer}]")
        array = np.array(mask)
        if array.dtype != np.bool_:
            raise TypeError(f"Custom: {name}[{layer}] must be a Boolean array; got dtype {array.dtype}.")
        array.flags.writeable = False
        arrays.append(array)
    return tuple(arrays)
