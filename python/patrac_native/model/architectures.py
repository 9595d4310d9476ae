"""The architectures: which parameters of a ranked network are Bayesian (docs/method.md, section 3)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native.network.network import Network
from patrac_native.validation.checks import check_count
from patrac_native.validation.complete import Complete, by_name

BoolArray = npt.NDArray[np.bool_]
Masks = tuple[list[BoolArray], list[BoolArray]]
Permutations = Sequence[npt.NDArray[np.intp]]


def rank_nodes(net: Network) -> list[npt.NDArray[np.intp]]:
    """Sort the hidden nodes of each layer by eta_i = b_i^2 + sum_j w_ij^2, the weights into node i, largest first.

    Parameters
    ----------
    net : Network
        The trained network.

    Returns
    -------
    list of L - 1 integer arrays, shapes (N_1,), ..., (N_{L-1},)
        ranking[l][rank] = the network's own index of that node of hidden layer l + 1, both from 0; ties go to the
        lower index (docs/method.md, section 3). `net.permuted(ranking)` is the ranked network.

    Examples
    --------
    >>> rank_nodes(Network([[[1.0], [3.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]]))
    [array([1, 0])]
    """
    ranking = []
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        # Exactly rounded sums: the ranking, which the meaning of saved draws hangs on, then depends neither on the
        # order of the nodes below nor on the machine.
        eta = np.array([math.fsum([bias**2, *row]) for bias, row in zip(b, w**2, strict=True)])
        ranking.append(np.argsort(-eta, kind="stable"))
    return ranking


class Architecture(Complete, abstract=True):
    """Base class: a rule that says which parameters are sampled.

    Attributes
    ----------
    name : str
        As files know it, such as "mix".
    is_separate : bool
        Whether the sampled parameters are a network of their own, whose output is added to that of the trained one.
    role_of_network : str
        What a posterior takes from the trained network, in words.
    """

    name: ClassVar[str]
    is_separate: ClassVar[bool] = False
    role_of_network: ClassVar[str] = "fixed parameters, ranks and prior variances are taken from it"

    def label(self) -> str:
        """Return a short label for tables and figures, such as "Mix(5)"."""
        return self.name.capitalize()

    @abstractmethod
    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Say which parameters of the sampled network are Bayesian.

        Parameters
        ----------
        net : Network
            The trained network in its own order of nodes.
        permutations : sequence of L - 1 integer arrays
            As `rank_nodes(net)` returns them.

        Returns
        -------
        weight_masks, bias_masks : lists of L Boolean arrays
            In **ranked** order, of the shapes of the sampled network's weights and biases (`sampled_layer_sizes`).

        Raises
        ------
        ValueError
            If the architecture does not fit the network: k larger than a layer, masks of other shapes, or a network
            without hidden layer for Mix, Out or Sep.
        """

    def sampled_layer_sizes(self, net: Network) -> tuple[int, ...]:
        """Return the widths of the network whose parameters are sampled: those of `net`, except for Sep."""
        return net.layer_sizes

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON-able values."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content from which `architecture_from_dict` rebuilds the architecture."""
        return {"name": self.name, **self.arguments()}

    @classmethod
    def from_arguments(cls, content: Mapping[str, Any]) -> Architecture:
        """Rebuild the architecture from what `arguments` returned."""
        return cls(**content)


@dataclass(frozen=True)
class Full(Architecture):
    """Every parameter is Bayesian; the only architecture besides Custom for a network without hidden layer."""

    name: ClassVar[str] = "full"
    role_of_network: ClassVar[str] = "ranks and prior variances are taken from it"

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """All True; see `Architecture.masks`."""
        return _empty_masks(net.layer_sizes, fill=True)

    def arguments(self) -> dict[str, Any]:
        """Return nothing: there are none."""
        return {}


@dataclass(frozen=True)
class Mix(Architecture):
    """The first k ranked nodes of each hidden layer are Bayesian.

    Bayesian are their biases, all weights from the inputs into them, the weights between Bayesian nodes, all output
    biases, and the weights from the k Bayesian nodes of the last hidden layer to every output. Everything else keeps
    its trained value; fixed and Bayesian nodes read each other through fixed weights.

    Parameters
    ----------
    k : int or sequence of int
        Number of Bayesian nodes of each hidden layer, 1 <= k <= N_l; one number for all layers or one for each.
    """

    k: int | tuple[int, ...]
    name: ClassVar[str] = "mix"

    def __init__(self, k: int | Sequence[int]) -> None:
        object.__setattr__(self, "k", _check_k(k, "Mix"))

    def label(self) -> str:
        """Return "Mix(5)" or "Mix([8, 4])"."""
        return _label_k("Mix", self.k)

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Leading blocks of each matrix; see `Architecture.masks`."""
        bayesian = (net.layer_sizes[0], *_k_per_layer(self.k, net, "Mix"), net.layer_sizes[-1])
        weight_masks, bias_masks = _empty_masks(net.layer_sizes)
        for layer in range(net.n_layers):
            weight_masks[layer][: bayesian[layer + 1], : bayesian[layer]] = True
            bias_masks[layer][: bayesian[layer + 1]] = True
        return weight_masks, bias_masks

    def arguments(self) -> dict[str, Any]:
        """Return k."""
        return {"k": _plain_k(self.k)}


@dataclass(frozen=True)
class Out(Architecture):
    """All output biases, and the weights from the k highest-ranked last hidden nodes to every output, are Bayesian.

    Parameters
    ----------
    k : int
        Number of hidden nodes whose outgoing weights are Bayesian, 1 <= k <= N_{L-1}.
    """

    k: int
    name: ClassVar[str] = "out"

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count(self.k, "k of Out"))

    def label(self) -> str:
        """Return "Out(12)"."""
        return _label_k("Out", self.k)

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """Leading columns of the last matrix; see `Architecture.masks`."""
        _require_hidden(net, "Out")
        _check_width(self.k, net, net.n_layers - 1, "Out")
        weight_masks, bias_masks = _empty_masks(net.layer_sizes)
        weight_masks[-1][:, : self.k] = True
        bias_masks[-1][:] = True
        return weight_masks, bias_masks

    def arguments(self) -> dict[str, Any]:
        """Return k."""
        return {"k": self.k}


@dataclass(frozen=True)
class Sep(Architecture):
    """A separate, fully Bayesian network of width k whose output is added to that of the trained network.

    Parameters
    ----------
    k : int or sequence of int
        Width of each hidden layer of the separate network, 1 <= k <= N_l; one number for all layers or one for each.
    """

    k: int | tuple[int, ...]
    name: ClassVar[str] = "sep"
    is_separate: ClassVar[bool] = True
    role_of_network: ClassVar[str] = "it is part of every draw of f, and prior variances are taken from it"

    def __init__(self, k: int | Sequence[int]) -> None:
        object.__setattr__(self, "k", _check_k(k, "Sep"))

    def label(self) -> str:
        """Return "Sep(5)" or "Sep([8, 4])"."""
        return _label_k("Sep", self.k)

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """All True on the shapes of the separate network; see `Architecture.masks`."""
        return _empty_masks(self.sampled_layer_sizes(net), fill=True)

    def sampled_layer_sizes(self, net: Network) -> tuple[int, ...]:
        """Return (d, k, ..., k, m)."""
        return (net.layer_sizes[0], *_k_per_layer(self.k, net, "Sep"), net.layer_sizes[-1])

    def arguments(self) -> dict[str, Any]:
        """Return k."""
        return {"k": _plain_k(self.k)}


@dataclass(frozen=True, eq=False)
class Custom(Architecture):
    """Any set of Bayesian parameters, given in the trained network's own order of nodes.

    Parameters
    ----------
    weight_masks : sequence of L Boolean arrays, shapes (N_{l+1}, N_l)
        True where a weight is Bayesian.
    bias_masks : sequence of L Boolean arrays, shapes (N_{l+1},)
        True where a bias is Bayesian.

    Raises
    ------
    TypeError
        If a mask is not Boolean.
    ValueError
        If no entry is True.

    Examples
    --------
    The whole last layer of a 1-3-1 network:

    >>> Custom([[[False]] * 3, [[True] * 3]], [[False] * 3, [True]]).label()
    'Custom'
    """

    weight_masks: tuple[BoolArray, ...]
    bias_masks: tuple[BoolArray, ...]
    name: ClassVar[str] = "custom"

    def __init__(self, weight_masks: Sequence[npt.ArrayLike], bias_masks: Sequence[npt.ArrayLike]) -> None:
        object.__setattr__(self, "weight_masks", _bool_arrays(weight_masks, "weight_masks"))
        object.__setattr__(self, "bias_masks", _bool_arrays(bias_masks, "bias_masks"))
        if not any(mask.any() for mask in (*self.weight_masks, *self.bias_masks)):
            raise ValueError("Custom: no entry of weight_masks or bias_masks is True; mark at least one parameter.")

    def masks(self, net: Network, permutations: Permutations) -> Masks:
        """The given masks with their nodes moved to ranked order; see `Architecture.masks`."""
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
        """Return JSON-able content: for each mask its shape and the flat indices of its True entries."""

        def content(masks: Sequence[BoolArray]) -> list[dict[str, list[int]]]:
            return [{"shape": list(mask.shape), "true": np.flatnonzero(mask).tolist()} for mask in masks]

        return {"weight_masks": content(self.weight_masks), "bias_masks": content(self.bias_masks)}

    @classmethod
    def from_arguments(cls, content: Mapping[str, Any]) -> Custom:
        """Rebuild from `arguments`."""
        return cls(_masks_from(content["weight_masks"]), _masks_from(content["bias_masks"]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


# Every architecture by the name under which files know it.
ARCHITECTURES: dict[str, type[Architecture]] = by_name((Full, Mix, Out, Sep, Custom))


def architecture_from_dict(content: Mapping[str, Any]) -> Architecture:
    """Rebuild an architecture from what its `to_dict` returned.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    name = content.get("name")
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture name must be one of {', '.join(ARCHITECTURES)}; got {name!r}.")
    return ARCHITECTURES[name].from_arguments({key: value for key, value in content.items() if key != "name"})


def _empty_masks(layer_sizes: Sequence[int], *, fill: bool = False) -> Masks:
    """Return weight and bias masks of a network of these widths, all `fill`."""
    pairs = list(zip(layer_sizes[1:], layer_sizes[:-1], strict=True))
    return [np.full(shape, fill) for shape in pairs], [np.full(rows, fill) for rows, _ in pairs]


def _masks_from(content: Sequence[Mapping[str, Sequence[int]]]) -> list[BoolArray]:
    """Inverse of the mask part of Custom.to_dict."""
    masks = []
    for entry in content:
        mask = np.zeros(tuple(entry["shape"]), dtype=np.bool_)
        mask.flat[np.asarray(entry["true"], dtype=np.intp)] = True
        masks.append(mask)
    return masks


def _bool_arrays(masks: Sequence[npt.ArrayLike], name: str) -> tuple[BoolArray, ...]:
    """Return read-only copies, or raise for what is not Boolean."""
    arrays = []
    for layer, mask in enumerate(masks):
        array = np.array(mask)
        if array.dtype != np.bool_:
            raise TypeError(f"Custom: {name}[{layer}] must be a Boolean array; got dtype {array.dtype}.")
        array.flags.writeable = False
        arrays.append(array)
    return tuple(arrays)


def _check_k(k: int | Sequence[int], owner: str) -> int | tuple[int, ...]:
    """Return k as an int or a tuple of ints, each at least 1."""
    if isinstance(k, Sequence | np.ndarray) and not isinstance(k, str):
        if len(k) == 0:
            raise ValueError(f"k of {owner} is empty; give one number for each hidden layer.")
        return tuple(check_count(value, f"k of {owner} for hidden layer {layer + 1}") for layer, value in enumerate(k))
    return check_count(k, f"k of {owner}")


def _plain_k(k: int | tuple[int, ...]) -> int | list[int]:
    """Return k as JSON has it."""
    return list(k) if isinstance(k, tuple) else k


def _label_k(owner: str, k: int | tuple[int, ...]) -> str:
    """Return "Mix(5)" or "Mix([8, 4])"."""
    return f"{owner}({_plain_k(k)})"


def _require_hidden(net: Network, owner: str) -> None:
    """Raise for a network of one layer."""
    if net.n_layers == 1:
        raise ValueError(
            f"{owner} needs a network with a hidden layer; this one has layer_sizes {net.layer_sizes}. "
            "Use Full or Custom."
        )


def _check_width(k: int, net: Network, layer: int, owner: str) -> None:
    """Raise if k exceeds the width of hidden layer `layer` (from 1)."""
    if k > net.layer_sizes[layer]:
        raise ValueError(
            f"k of {owner} is {k}, but hidden layer {layer} has {net.layer_sizes[layer]} nodes; "
            f"choose k <= {net.layer_sizes[layer]} there."
        )


def _k_per_layer(k: int | tuple[int, ...], net: Network, owner: str) -> tuple[int, ...]:
    """Return one k for each hidden layer after checking them against the network."""
    _require_hidden(net, owner)
    hidden = net.n_layers - 1
    per_layer = k if isinstance(k, tuple) else (k,) * hidden
    if len(per_layer) != hidden:
        raise ValueError(
            f"k of {owner} must hold one number for each of the {hidden} hidden layers; got {list(per_layer)}."
        )
    for layer, value in enumerate(per_layer, start=1):
        _check_width(value, net, layer, owner)
    return per_layer
