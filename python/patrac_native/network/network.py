"""The multilayer perceptron as plain arrays: checked once, evaluated in float64, converted from and to torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from patrac_native.files.archive import (
    check_arrays,
    check_entries,
    check_numbers,
    check_written_again,
    load_arrays,
    rebuilding,
    save_arrays,
)
from patrac_native.network.activations import ACTIVATIONS, check_activation
from patrac_native.network.torch_exchange import build_module, read_module
from patrac_native.validation.checks import FloatArray, as_real_array, check_inputs

if TYPE_CHECKING:
    import torch

StopReason = Literal["patience", "max_epochs", "validation", "interrupted", "non-finite"]


@dataclass(frozen=True)
class TrainingHistory:
    """The record of a training run by `train`.

    Attributes
    ----------
    loss : ndarray of float64, shape (epochs,)
        Penalised loss (negative log-likelihood + (l2/2) * squared norm of the parameters) on all rows at the start of
        each epoch. If training ended because of a non-finite loss, that is the last entry.
    best_epoch : int
        Epoch of the returned parameters, an index into `loss`.
    best_loss : float
        Their penalised loss, loss[best_epoch].
    data_loss : float
        Their negative log-likelihood, without the penalty.
    constant_loss : float
        Negative log-likelihood of the best constant predictor, which `data_loss` should be below.
    stopped : {"patience", "max_epochs", "validation", "interrupted", "non-finite"}
        Why training ended; "validation": after the number of epochs that was chosen on validation rows.
    settings : dict
        The arguments of `train` as plain values, with defaults and preset filled in, and as "validation" what
        validation rows chose; after `train_many` its own arguments too, "penalties" as pairs of penalty and share.
    seconds : float
        Wall-clock time of the optimisation.
    validation_mse : ndarray of float64, shape (m,), or None
        Mean squared residual of each output on rows on which the network was not trained, in the units of y squared.
        None, the default, if no such rows were kept back or the outputs have no residuals (classes).
    """

    loss: FloatArray
    best_epoch: int
    best_loss: float
    data_loss: float
    constant_loss: float
    stopped: StopReason
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    validation_mse: FloatArray | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {
            name: None if fields[name] is None else np.asarray(fields[name]).tolist()
            for name in ("loss", "validation_mse")
        }
        return fields | arrays | {"settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TrainingHistory:
        """Rebuild a history from what `to_dict` returned; raise ValueError if the content is something else."""
        known: dict[str, Any] = {"loss": list, "best_epoch": int, "stopped": str, "settings": dict, "seconds": float}
        known |= {"best_loss": float, "data_loss": float, "constant_loss": float, "validation_mse": (list, NoneType)}
        check_entries(content, known, "the history of its network")
        mse = content["validation_mse"]
        # The last loss of a training that failed is not finite.
        check_numbers(content["loss"], "the loss of its network", finite=False)
        if mse is not None:
            check_numbers(mse, "the validation_mse of its network")
        if content["stopped"] not in get_args(StopReason) or not 0 <= content["best_epoch"] < len(content["loss"]):
            raise ValueError("the history of its network has no epoch that was best, or ended for an unknown reason")
        if content["seconds"] < 0 or not all(one >= 0 for one in mse or []):
            raise ValueError("the history of its network has negative seconds or squares")
        arrays = {
            "loss": np.asarray(content["loss"], dtype=np.float64),
            "validation_mse": None if mse is None else np.asarray(mse, dtype=np.float64),
        }
        return cls(**{**content, **arrays})


class Network:
    """A trained multilayer perceptron with L layers of weights (docs/method.md, section 1).

    f^(l)_i(x) = b^(l)_i + sum_j w^(l)_ij zeta(f^(l-1)_j(x)), where zeta is the activation; the first layer reads x
    itself, and no activation follows the last layer. Methods raise TypeError or ValueError if an argument is not as
    they describe it.

    Parameters
    ----------
    weights : sequence of array_like, weights[l] of shape (N_{l+1}, N_l)
        One finite matrix for each layer, whose rows are the layer's nodes; at least one layer. The arrays are copied.
    biases : sequence of array_like, biases[l] of shape (N_{l+1},)
        One finite vector for each layer. The arrays are copied.
    activation : str
        One of `ACTIVATIONS`; default "tanh".
    history : TrainingHistory, optional
        Record of the training; set by `train`.
    input_names : sequence of d str, optional
        Names of the inputs; set by `train` where X is a data frame with named columns.

    Attributes
    ----------
    weights, biases : tuple of ndarray of float64
        Read-only copies of the parameters.
    activation : str
    history : TrainingHistory or None
    input_names : tuple of str, or None
        Where they are known, the columns of data frames are matched by name, and those of arrays by position.

    Raises
    ------
    ValueError
        If there is no layer, the shapes of neighbouring layers do not match, an entry is NaN or infinite (the message
        gives layer and position), or the activation is unknown.
    TypeError
        If a parameter does not hold real numbers.

    Examples
    --------
    >>> net = Network([[[2.0], [-1.0]], [[1.0, 3.0]]], [[0.0, 0.0], [0.5]], activation="relu")
    >>> net
    Network(layer_sizes=(1, 2, 1), activation='relu', n_parameters=7)
    >>> net.predict([[1.0], [-1.0]])
    array([[2.5],
           [3.5]])
    """

    def __init__(
        self,
        weights: Sequence[npt.ArrayLike],
        biases: Sequence[npt.ArrayLike],
        activation: str = "tanh",
        *,
        history: TrainingHistory | None = None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        for name, arrays in (("weights", weights), ("biases", biases)):
            if not isinstance(arrays, Collection) or isinstance(arrays, str):
                raise TypeError(
                    f"{name} must be a sequence of arrays, one for each layer; got {type(arrays).__name__}."
                )
        if len(weights) == 0:
            raise ValueError("weights is empty; a network needs at least one layer (one matrix of shape (m, d)).")
        if len(weights) != len(biases):
            raise ValueError(
                f"weights and biases must hold one entry for each layer; got {len(weights)} weight matrices and "
                f"{len(biases)} bias vectors. Give zeros for a layer without a bias."
            )
        self.weights = tuple(_parameter(w, f"weights[{layer}]", 2) for layer, w in enumerate(weights))
        self.biases = tuple(_parameter(b, f"biases[{layer}]", 1) for layer, b in enumerate(biases))
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            if b.shape != (w.shape[0],):
                raise ValueError(
                    f"biases[{layer}] must have shape ({w.shape[0]},), one for each row of weights[{layer}] "
                    f"{w.shape}; got {b.shape}."
                )
            if layer > 0 and w.shape[1] != self.weights[layer - 1].shape[0]:
                raise ValueError(
                    f"weights[{layer}] must have {self.weights[layer - 1].shape[0]} columns, one for each row of "
                    f"weights[{layer - 1}]; got shape {w.shape}. Rows are the layer's own nodes: transpose if needed."
                )
        self.activation = check_activation(activation)
        self.history = history
        if isinstance(input_names, str):
            raise TypeError(f"input_names must be a sequence of names; got the string {input_names!r}.")
        if input_names is not None and len(input_names) != self.weights[0].shape[1]:
            raise ValueError(
                f"input_names must hold one name for each of the {self.weights[0].shape[1]} inputs; got "
                f"{len(input_names)}."
            )
        self.input_names = None if input_names is None else tuple(map(str, input_names))

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Widths (N_0, ..., N_L): inputs, hidden layers, outputs."""
        return (self.weights[0].shape[1], *(w.shape[0] for w in self.weights))

    @property
    def n_layers(self) -> int:
        """Number L of layers of weights."""
        return len(self.weights)

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(w.size + b.size for w, b in zip(self.weights, self.biases, strict=True))

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Evaluate the network in float64.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Inputs, n >= 1, finite; the columns of a data frame in any order, if `input_names` are known.

        Returns
        -------
        ndarray of float64, shape (n, m)
            Outputs of the last layer: means for Gaussian, logits for Categorical and Bernoulli likelihoods.
        """
        values = check_inputs(X, self.layer_sizes[0], columns=self.input_names)
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer > 0:
                values = ACTIVATIONS[self.activation].apply(values)
            values = values @ w.T + b
        return values

    __call__ = predict

    def permuted(self, permutations: Sequence[npt.ArrayLike]) -> Network:
        """Return the network with its hidden nodes renumbered, which evaluates the same function.

        Parameters
        ----------
        permutations : sequence of L - 1 integer arrays, shapes (N_1,), ..., (N_{L-1},)
            permutations[l][new index] is the old index in hidden layer l + 1, as `rank_nodes` returns it. The rows of
            a layer and the columns of the next one are permuted together.

        Returns
        -------
        Network
            A new network with the same activation and history.
        """
        if len(permutations) != self.n_layers - 1:
            raise ValueError(
                f"permutations must hold one array for each of the {self.n_layers - 1} hidden layers; "
                f"got {len(permutations)}."
            )
        orders = [np.arange(self.layer_sizes[0])]
        for hidden, given in enumerate(permutations):
            order, width = np.asarray(given), self.layer_sizes[hidden + 1]
            if not (order.dtype.kind in "iu" and np.array_equal(np.sort(order, axis=None), np.arange(width))):
                raise ValueError(f"permutations[{hidden}] must be a permutation of 0..{width - 1}; got {given!r}.")
            orders.append(order.reshape(-1).astype(np.intp))
        orders.append(np.arange(self.layer_sizes[-1]))
        return Network(
            [w[np.ix_(orders[layer + 1], orders[layer])] for layer, w in enumerate(self.weights)],
            [b[orders[layer + 1]] for layer, b in enumerate(self.biases)],
            self.activation,
            history=self.history,
            input_names=self.input_names,
        )

    @classmethod
    def from_torch(cls, module: torch.nn.Module) -> Network:
        """Convert a trained torch network.

        Parameters
        ----------
        module : torch.nn.Linear or torch.nn.Sequential
            Linear layers with one kind of activation (of `ACTIVATIONS`, such as Tanh) between each two of them.
            Sequential may be nested. Identity, Dropout (which has no effect at prediction) and a Flatten before the
            first layer are ignored; Linear(bias=False) gets zero biases. Any dtype and device.

        Returns
        -------
        Network
            A network with float64 copies of the parameters.

        Raises
        ------
        TypeError
            If `module` is not a torch module, has no Linear layer, has unsupported layers (the message lists all of
            these by index and class), or a module in it has a hook, or a forward or __call__ method of its own.
        ValueError
            If the layers are not in the order above, activations are mixed, or a parameter is not finite or holds no
            numbers yet (meta device, lazy modules) or other ones at every use (spectral_norm in training mode).
        """
        return cls(*read_module(module))

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        """Return the same network as a torch module.

        Parameters
        ----------
        dtype : torch.dtype, optional
            The dtype of the parameters; default torch.float64, which represents them exactly.

        Returns
        -------
        torch.nn.Sequential
            Linear layers with the activation between them, on the CPU. Torch's random state is not changed.
        """
        return build_module(self.weights, self.biases, self.activation, dtype)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return a header of JSON-able values and the arrays, from which `from_arrays` rebuilds the network."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays[f"weights_{layer}"], arrays[f"biases_{layer}"] = w, b
        history = None if self.history is None else self.history.to_dict()
        header = {"layers": self.n_layers, "activation": self.activation, "history": history}
        if self.input_names is not None:
            header["input_names"] = list(self.input_names)
        return header, arrays

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Network:
        """Rebuild a network from what `to_arrays` returned."""
        known: dict[str, Any] = {"layers": int, "activation": str, "history": (dict, NoneType), "input_names": list}
        check_entries(header, known, "the header of its network", optional=["input_names"])
        history = None if header["history"] is None else TrainingHistory.from_dict(header["history"])
        made = cls(
            [arrays[f"weights_{layer}"] for layer in range(header["layers"])],
            [arrays[f"biases_{layer}"] for layer in range(header["layers"])],
            header["activation"],
            history=history,
            input_names=header.get("input_names"),
        )
        mse = None if history is None else history.validation_mse
        if mse is not None and not 1 <= len(mse) <= made.layer_sizes[-1]:
            raise ValueError(f"its history has {len(mse)} numbers in validation_mse, not one for each target")
        check_written_again(header, made.to_arrays()[0])
        return made

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the network and its training history to one .npz file (no pickle).

        Parameters
        ----------
        path : path-like
            Path of the file, used as given; no file name extension is added.
        overwrite : bool
            Whether an existing file may be replaced; default False.

        Raises
        ------
        FileExistsError
            If the file exists and overwrite is False.
        OSError
            If the file cannot be written.
        """
        save_arrays(path, "a network", *self.to_arrays(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Network:
        """Read a network written by `save`.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Network

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, was not written by `save`, or has another version of the format.
        """
        header, arrays = load_arrays(path, "a network")
        with rebuilding(path):
            made = cls.from_arrays(header, arrays)
            check_arrays(arrays, made.to_arrays()[1])
        return made

    def __repr__(self) -> str:
        return (
            f"Network(layer_sizes={self.layer_sizes}, activation={self.activation!r}, n_parameters={self.n_parameters})"
        )


def network_digest(net: Network) -> str:
    """Return the SHA-256 of a network's parameters, bit for bit, and its activation, by which copies are recognised."""
    digest = hashlib.sha256(net.activation.encode())
    for array in (*net.weights, *net.biases):
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _parameter(value: npt.ArrayLike, name: str, ndim: int) -> FloatArray:
    """Return a read-only float64 copy of a weight matrix or bias vector; raise if its shape or an entry is invalid."""
    array = as_real_array(value, name).copy()
    if array.ndim != ndim or array.size == 0:
        shape = "(N_l+1, N_l)" if ndim == 2 else "(N_l+1,)"
        raise ValueError(f"{name} must be a non-empty array of shape {shape}; got {array.shape}.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        position = ", ".join(str(index) for index in bad[0])
        raise ValueError(f"{name} must be finite; got {array[tuple(bad[0])]} at [{position}] ({len(bad)} in all).")
    array.flags.writeable = False
    return array
