"""A partially Bayesian network: ranked nodes, masks, the order of theta, the prior and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture, architecture_from_dict
from patrac_native.engine import _core
from patrac_native.engine.machine import thread_count
from patrac_native.engine.models import CoreModel, ModelSpec, planned_model
from patrac_native.files.archive import check_entries, check_written_again
from patrac_native.likelihoods import Gaussian
from patrac_native.network.network import Network, network_digest
from patrac_native.network.ranking import rank_nodes
from patrac_native.network.torch_exchange import build_module
from patrac_native.priors import Prior, prior_from_dict
from patrac_native.priors.scales import scale_groups
from patrac_native.validation.checks import (
    FloatArray,
    as_real_array,
    cast_checked,
    check_count,
    check_finite,
    check_inputs_keeping_dtype,
    check_seed,
    check_variances,
)
from patrac_native.validation.extras import import_extra
from patrac_native.validation.memory import check_memory

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float64")

# The position of one entry of theta: layers count from 1, nodes from 0 in ranked order; `column` is -1 for a bias.
PARAMETER_DTYPE = np.dtype([("layer", np.int32), ("row", np.int32), ("column", np.int32)])

# log_prior converts this many entries to float64 at a time, which bounds its memory.
_VALUES_AT_A_TIME = 2**20


def _as_floats(theta: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return theta itself if it is a float32 or float64 array, else convert it to float64."""
    if type(theta) is np.ndarray and theta.dtype in (np.float32, np.float64):
        return theta
    return as_real_array(theta, name)


def _check_level(level: str) -> str:
    """Return `level`; raise ValueError if this machine or build does not support it."""
    known = _core.simd_levels()
    if level not in known:
        raise ValueError(f"level: no instruction-set level '{level}' on this machine; choose one of {', '.join(known)}")
    return level


class PartialNetwork:
    """A network with some Bayesian parameters and their prior: what a posterior and its draws have in common.

    The arguments are those of `Posterior`; `input_names` are the columns of its X, which count if the network has none.

    Attributes
    ----------
    input_names : tuple of d str, or None
        Names by which the columns of data frames are matched: the network's or, if it has none, those given.
    dim : int
        K, the number of Bayesian parameters.
    theta_map : ndarray of float64, shape (K,)
        Trained values of the Bayesian parameters; zeros for Sep.
    prior_variance : ndarray of float64, shape (K,)
        Prior variances of the Bayesian parameters, after rescaling; if the scales of the prior are sampled, those at
        their centres.
    scales : ScaleGroups or None
        The groups of Bayesian parameters that share a sampled sigma2; None if the prior's variances are fixed.
    rescaling : float
        phi / phi_partial, the factor that `prior_variance` contains; 1 for priors that are not rescaled.
    parameters : structured ndarray, shape (K,), fields layer, row, column
        Position of each entry of theta: its layer, counted from 1, its node (row) and the node that it reads (column),
        both counted from 0 in ranked order; column is -1 for a bias.
    permutation : list of L + 1 integer arrays
        permutation[l][rank] is the trained network's own index of the node with that rank in layer l; identities for
        inputs and outputs.
    """

    def __init__(
        self,
        net: Network,
        architecture: Architecture,
        prior: Prior,
        *,
        dtype: str = "float32",
        level: str | None = None,
        input_names: Sequence[str] | None = None,
    ) -> None:
        for argument, value, kind, wanted in (
            ("net", net, Network, "a Network, such as train or Network.from_torch returns"),
            ("architecture", architecture, Architecture, "an architecture such as Mix(5) or Full()"),
            ("prior", prior, Prior, "a prior, such as TraceClassPrior.fit(net) or GaussianPrior()"),
        ):
            if not isinstance(value, kind):
                got = value.__name__ if isinstance(value, type) else type(value).__name__
                raise TypeError(f"{argument} must be {wanted}; got {got}.")
        dtype_name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if dtype_name not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
        self.net = net
        # Names of another number of columns belong to an X that the posterior refuses.
        own = input_names if input_names is not None and len(input_names) == net.layer_sizes[0] else None
        self.input_names = net.input_names or (None if own is None else tuple(own))
        self.architecture = architecture
        self.prior = prior
        self.dtype = np.dtype(dtype_name)
        self.level = _core.default_simd_level() if level is None else _check_level(level)

        ranking = rank_nodes(net)
        self.ranked = net.permuted(ranking)
        self.layer_sizes = architecture.sampled_layer_sizes(net)
        self.weight_masks, self.bias_masks = architecture.masks(net, ranking)
        self.permutation = [np.arange(net.layer_sizes[0]), *ranking, np.arange(net.layer_sizes[-1])]
        self.separate = architecture.is_separate
        if self.separate:
            self.permutation = [np.arange(size) for size in self.layer_sizes]
        shapes = list(zip(self.layer_sizes[1:], self.layer_sizes[:-1], strict=True))
        self._weights = [np.zeros(shape) for shape in shapes] if self.separate else list(self.ranked.weights)
        self._biases = [np.zeros(rows) for rows, _ in shapes] if self.separate else list(self.ranked.biases)

        self.rescaling = prior.rescaling_factor(net.layer_sizes, self.layer_sizes, self.weight_masks, self.bias_masks)
        weight_variances, bias_variances = prior.variances(self.layer_sizes)
        self.theta_map = self._gather(self._weights, self._biases)
        self.prior_variance = self.rescaling * self._gather(weight_variances, bias_variances)
        check_variances(
            self.prior_variance, "prior: the variances of theta", f"; choose other parameters than {prior!r} has"
        )
        self.parameters = self._locate()
        for array in (self.theta_map, self.prior_variance, self.parameters):
            array.flags.writeable = False
        self.dim = len(self.theta_map)
        law = prior.sampled_scales
        of_layers = prior.centres(len(self.layer_sizes) - 1)
        self.scales = None if law is None else scale_groups(law, self.parameters, *of_layers)

    @property
    def n_inputs(self) -> int:
        """d, the number of inputs."""
        return self.layer_sizes[0]

    @property
    def n_outputs(self) -> int:
        """m, the number of outputs."""
        return self.layer_sizes[-1]

    def _gather(self, weights: list[FloatArray], biases: list[FloatArray]) -> FloatArray:
        """Return the Bayesian entries in theta's order: layer by layer, weights row by row, then biases."""
        parts = []
        for w, b, wm, bm in zip(weights, biases, self.weight_masks, self.bias_masks, strict=True):
            parts += [w[wm], b[bm]]
        return np.concatenate(parts).astype(np.float64)

    def _locate(self) -> npt.NDArray[np.void]:
        """Return the position of each entry of theta; see `parameters`."""
        parts = []
        for layer, (wm, bm) in enumerate(zip(self.weight_masks, self.bias_masks, strict=True), start=1):
            rows, columns = np.nonzero(wm)
            biases = np.flatnonzero(bm)
            part = np.empty(len(rows) + len(biases), PARAMETER_DTYPE)
            part["layer"] = layer
            part["row"] = np.concatenate([rows, biases])
            part["column"] = np.concatenate([columns, np.full(len(biases), -1)])
            parts.append(part)
        return np.concatenate(parts)

    def first_output_weight(self) -> int | None:
        """Return the position in theta of the first Bayesian weight of the output layer, or None if there is none."""
        last = self.parameters["layer"] == len(self.layer_sizes) - 1
        found = np.flatnonzero(last & (self.parameters["column"] >= 0))
        return int(found[0]) if len(found) else None

    @property
    def fixes_parameters(self) -> bool:
        """Whether draws of f rest on parameters of the trained network that keep their values."""
        return self.separate or self.dim < self.net.n_parameters

    def fixes_the_same(self, other: PartialNetwork) -> bool:
        """Whether both rest on the same values of the same fixed parameters, or on none."""
        if not (self.fixes_parameters and other.fixes_parameters):
            return self.fixes_parameters == other.fixes_parameters
        masks, others = ([*one.weight_masks, *one.bias_masks] for one in (self, other))
        return (
            network_digest(self.net) == network_digest(other.net)
            and self.separate == other.separate
            and (self.separate or all(map(np.array_equal, masks, others)))
        )

    @property
    def role_of_network(self) -> str | None:
        """What the posterior takes from the trained network, in words; None if that is only where chains start."""
        if not (self.architecture.fixes_nodes or self.prior.ranks_nodes):
            return None
        return self.architecture.role_of_network

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Names of the G sampled scales of the prior, such as "layer 1 weights"; empty if its variances are fixed."""
        return () if self.scales is None else self.scales.names

    def variance_at(self, scales: npt.ArrayLike | None) -> FloatArray:
        """Return the prior variances (..., K) given the sampled scales (..., G), which are None for a fixed prior."""
        if self.scales is None:
            if scales is not None:
                raise ValueError("scales must be left out: the variances of the prior are fixed.")
            return self.prior_variance
        if scales is None:
            raise ValueError(
                "scales must be given, since they are sampled: one set or one for each theta, such as "
                'draws.stats["prior_scales"][0] for theta=draws.theta[0].'
            )
        return self.scales.factors(scales) * self.prior_variance

    def log_prior(self, theta: npt.ArrayLike, scales: npt.ArrayLike | None = None) -> np.float64 | FloatArray:
        """Evaluate log N(theta; 0, C), normalised, in float64: theta (..., K), scales (G,) or (..., G) if sampled."""
        values = _as_floats(theta, "theta")
        if values.ndim == 0 or values.shape[-1] != self.dim:
            raise ValueError(f"theta must have {self.dim} entries on its last axis; got shape {values.shape}.")
        variance = self.variance_at(scales)
        if variance.shape[:-1] not in ((), values.shape[:-1]):
            raise ValueError(
                f"scales must have shape (G,) or that of theta before the last axis, {values.shape[:-1]}; got "
                f"{np.asarray(scales).shape}."
            )
        flat, of_rows = values.reshape(-1, self.dim), variance.reshape(-1, self.dim)
        quadratic = np.empty(len(flat))
        rows = max(1, _VALUES_AT_A_TIME // self.dim)
        for first in range(0, len(flat), rows):
            block = slice(first, first + rows)
            own = of_rows if len(of_rows) == 1 else of_rows[block]
            quadratic[block] = (flat[block].astype(np.float64) ** 2 / own).sum(axis=-1)
        constant = np.log(2 * np.pi * of_rows).sum(axis=-1)
        total = -0.5 * (quadratic + constant).reshape(values.shape[:-1])
        result: np.float64 | FloatArray = total[()]
        return result

    def check_theta(self, theta: npt.ArrayLike) -> tuple[npt.NDArray[Any], bool]:
        """Return theta (K,) or (B, K) as a batch of `dtype`, and whether it was one point."""
        values = _as_floats(theta, "theta")
        if values.ndim not in (1, 2) or values.shape[-1] != self.dim:
            raise ValueError(f"theta must have shape ({self.dim},) or (B, {self.dim}); got {values.shape}.")
        batch = values.reshape(-1, self.dim)
        check_finite(batch, "theta", "Rows count the points of the batch, columns the entries of theta.")
        return cast_checked(batch, self.dtype, "theta"), values.ndim == 1

    def spec(self, likelihood: str, parameters: Mapping[str, FloatArray]) -> ModelSpec:
        """Return the specification of the compiled model under the likelihood of a name, with its core parameters."""
        return ModelSpec(
            activation=self.net.activation,
            weights=self._weights,
            biases=self._biases,
            weight_masks=self.weight_masks,
            bias_masks=self.bias_masks,
            companion=(list(self.ranked.weights), list(self.ranked.biases)) if self.separate else None,
            likelihood=likelihood,
            likelihood_parameters=parameters,
        )

    def parameters_at(self, theta: npt.NDArray[Any]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return weights (B, N_l, N_{l-1}) and biases (B, N_l) of the sampled network at theta (B, K), in float64.

        Nodes are in the trained network's own order. B is 1 where no entry is Bayesian, as all theta have the same.
        """
        weights, biases = [], []
        first = 0
        own = [np.argsort(order) for order in self.permutation]
        for layer, (w, b, wm, bm) in enumerate(
            zip(self._weights, self._biases, self.weight_masks, self.bias_masks, strict=True), start=1
        ):
            parts = []
            for values, mask in ((w, wm), (b, bm)):
                count = int(mask.sum())
                full = np.repeat(values[None], len(theta) if count else 1, axis=0)
                if count:
                    full[:, mask] = theta[:, first : first + count]
                first += count
                parts.append(full)
            weights.append(parts[0][:, own[layer]][:, :, own[layer - 1]])
            biases.append(parts[1][:, own[layer]])
        return weights, biases

    @cached_property
    def _without_rows(self) -> CoreModel:
        """A compiled model without data, which suffices for predictions; its likelihood has no effect on them."""
        return planned_model(self.spec(Gaussian.name, {}), dtype=self.dtype, level=self.level)

    def predict(self, theta: npt.ArrayLike, X: npt.ArrayLike, *, threads: int | None = None) -> npt.NDArray[Any]:
        """Evaluate the outputs f (n, m) or (B, n, m) at X (n, d) for theta (K,) or (B, K), on native threads."""
        batch, single = self.check_theta(theta)
        checked = check_inputs_keeping_dtype(X, self.n_inputs, columns=self.input_names)
        inputs = cast_checked(checked, self.dtype, "X")
        model: Any = self._without_rows
        f: npt.NDArray[Any] = model.predict(batch, inputs, thread_count(threads))
        return f[0] if single else f

    def to_torch(self, theta: npt.ArrayLike, *, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Return the network at one theta as a torch module, whose outputs are f.

        Parameters
        ----------
        theta : array_like, shape (K,)
            Such as `draws.theta[chain, draw]`.
        dtype : torch.dtype, optional
            Of the parameters; by default that of theta.

        Returns
        -------
        torch.nn.Module
            An `nn.Sequential` of Linear layers and activations with the nodes in the trained network's own order, as
            `net.to_torch()` returns it. For Sep, a module that adds the separate network to the trained one.
        """
        torch = import_extra("torch", "torch", "to_torch")
        values = np.asarray(theta)
        dtype = torch.from_numpy(np.empty(0, values.dtype)).dtype if dtype is None else dtype
        weights, biases = self.parameters_at(values[None])
        sampled = build_module([w[0] for w in weights], [b[0] for b in biases], self.net.activation, dtype)
        if not self.separate:
            return sampled
        from patrac_native.network.sum_module import SumOfNetworks

        return SumOfNetworks(self.net.to_torch(dtype), sampled)

    def torch_parameters(self, theta: npt.ArrayLike, *, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        """Return the parameters of the modules of many theta, for `torch.func.functional_call` under `torch.vmap`."""
        torch = import_extra("torch", "torch", "torch_parameters")
        values = np.asarray(theta)
        stacked = {
            name: parameter.detach().expand(len(values), *parameter.shape)
            for name, parameter in self.to_torch(values[0], dtype=dtype).named_parameters()
        }
        prefix = "separate." if self.separate else ""
        for layer, (w, b) in enumerate(zip(*self.parameters_at(values), strict=True)):
            # Linear layers stand at even places of the Sequential, activations between them.
            for name, found in ((f"{prefix}{2 * layer}.weight", w), (f"{prefix}{2 * layer}.bias", b)):
                if len(found) > 1:
                    stacked[name] = torch.from_numpy(found).to(stacked[name].dtype)
        return stacked

    def sample_prior(
        self, draws: int, *, seed: int, chain: int = 0, purpose: _core.Purpose = _core.Purpose.prior
    ) -> npt.NDArray[Any]:
        """Draw theta (draws, K) from N(0, C), with sampled scales at their centres; each chain has its own stream."""
        normals: Any = _core.standard_normals32 if self.dtype == np.float32 else _core.standard_normals64
        theta: npt.NDArray[Any] = normals(
            seed=seed, chain=chain, step=0, purpose=purpose, steps=draws, count=self.dim, level=self.level
        )
        theta *= np.sqrt(self.prior_variance).astype(self.dtype)
        return theta

    def prior_states(self, draws: int, seed: int) -> tuple[npt.NDArray[Any], FloatArray | None]:
        """Draw theta (draws, K) from the prior after its sampled scales (draws, G), or None if they are fixed."""
        count = check_count(draws, "draws")
        needed = count * self.dim * self.dtype.itemsize
        check_memory(needed, f"draws={count}: the draws of {self.dim} parameters", "Take fewer.")
        theta = self.sample_prior(count, seed=check_seed(seed))
        if self.scales is None:
            return theta, None
        scales = self.scales.draw(np.random.Generator(np.random.Philox(seed)), draws)
        theta *= np.sqrt(self.scales.factors(scales)).astype(self.dtype)
        return theta, scales

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the compiled model, which is built again at its next use."""
        return {name: value for name, value in self.__dict__.items() if name != "_without_rows"}

    def to_dict(self) -> dict[str, Any]:
        """Return architecture, prior, dtype and level as JSON-able values; the network is stored separately."""
        content = {
            "architecture": self.architecture.to_dict(),
            "prior": self.prior.to_dict(),
            "dtype": self.dtype.name,
            "level": self.level,
        }
        return content if self.input_names is None else {**content, "input_names": list(self.input_names)}

    @classmethod
    def from_dict(cls, net: Network, content: Mapping[str, Any]) -> PartialNetwork:
        """Rebuild from a network and what `to_dict` returned; an unsupported level is replaced by this machine's."""
        known: dict[str, Any] = {"architecture": dict, "prior": dict, "dtype": str, "level": str, "input_names": list}
        check_entries(content, known, "the section `network` of its header", optional=["input_names"])
        level = content["level"] if content["level"] in _core.simd_levels() else None
        made = cls(
            net,
            architecture_from_dict(content["architecture"]),
            prior_from_dict(content["prior"]),
            dtype=content["dtype"],
            level=level,
            input_names=content.get("input_names"),
        )
        check_written_again(content, made.to_dict() | {"level": content["level"]})
        return made
