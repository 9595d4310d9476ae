"""The plan of a posterior: how each layer is evaluated, which kernel suits it, and the operations of a step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from patrac_native.kernels import Kernel
from patrac_native.kernels.choice import run_kernel
from patrac_native.network.activations import ACTIVATIONS
from patrac_native.posterior.sampled_network import SampledNetwork

# Multiply-adds that take as long as an activation with its derivative, as an entry of the Gram matrix of a row's
# features with its part of the gradient, and as the factorisation of that matrix for each cube of its size.
_ACTIVATION, _GRAM, _FACTOR = 30.0, 3.0, 6.0


@dataclass(frozen=True)
class Plan:
    """What a run computes in each step, known before it starts; `Posterior.plan` returns it.

    Attributes
    ----------
    layers : list of L dicts of str to int
        Of each layer: nodes: its nodes; varying: those that depend on theta; varying_sources and constant_sources:
        nodes of the layer below that are read in each step; offsets: nodes with a cached offset for each row; bayesian:
        Bayesian parameters; gradient_block: entries of the dense block that covers the Bayesian weights.
    kernel : Kernel
        The kernel of the run: as given, or the one that "auto" chooses.
    reason : str
        Why "auto" chose it; "given" for a given kernel.
    operations : dict of str to int
        Counts for one evaluation of the log-likelihood with its gradient and one proposal: under "multiply_add" the
        products of weights and values in forward pass, reverse pass and gradient, under "normal" K, and the number of
        calls of each elementary function of activation and likelihood, such as "tanh". If the log-likelihood is
        quadratic in theta, an evaluation does not read the data: 2 K multiply-adds and K normals.
    step_cost : float
        Multiply-adds that take about as long as one step of a kernel with gradients, with those that integrate the
        output weights out or turn theta into the axes of the curvature.
    """

    layers: list[dict[str, int]]
    kernel: Kernel
    reason: str
    operations: dict[str, int]
    step_cost: float

    @property
    def is_independent(self) -> bool:
        """Whether the draws are independent, so that there is neither a warm-up nor a chain that has to converge."""
        return self.kernel.is_independent


def plan_of(sampled: SampledNetwork, kernel: str | Kernel) -> Plan:
    """Return the plan of a posterior under a kernel or "auto"; see `Posterior.plan`."""
    chosen, reason = run_kernel(kernel, sampled.facts)
    return Plan(sampled.layers, chosen, reason, _count_operations(sampled, chosen), _step_cost(sampled, chosen))


def _count_operations(sampled: SampledNetwork, kernel: Kernel) -> dict[str, int]:
    """Count the operations of one evaluation with its gradient and one proposal; see `Plan.operations`."""
    network, layers, n_rows = sampled.network, sampled.layers, sampled.data.n_rows
    if sampled.facts.reads_statistics(kernel.is_independent):
        return {"multiply_add": 2 * network.dim, "normal": network.dim}
    counts = {"multiply_add": 0, "normal": network.dim}
    for position, layer in enumerate(layers):
        is_output = position + 1 == len(layers)
        nodes = layer["nodes"] if is_output else layer["varying"]
        forward = nodes * (layer["varying_sources"] + layer["constant_sources"])
        reverse = nodes * layer["varying_sources"]
        counts["multiply_add"] += n_rows * (forward + reverse + layer["gradient_block"])
        if not is_output:
            for name in ACTIVATIONS[network.net.activation].elementary:
                counts[name] = counts.get(name, 0) + n_rows * nodes
    for name, count in sampled.likelihood.elementary_functions(layers[-1]["nodes"]).items():
        counts[name] = counts.get(name, 0) + n_rows * count
    return {name: count for name, count in counts.items() if count}


def _step_cost(sampled: SampledNetwork, kernel: Kernel) -> float:
    """Return the multiply-adds that take as long as one step of a gradient kernel."""
    network, layers, n_rows, facts = sampled.network, sampled.layers, sampled.data.n_rows, sampled.facts
    of_row = 0.0
    for layer in layers:
        # Forward pass, reverse pass and gradient.
        of_row += 3.0 * layer["varying"] * (layer["varying_sources"] + layer["constant_sources"])
    of_row += _ACTIVATION * sum(layer["varying"] for layer in layers[:-1])
    of_step = 0.0
    if kernel.metric == "curvature":
        # The weights of each layer and their gradient times the axes of its rows and of its columns.
        of_step += sum(2.0 * below * nodes * (below + nodes) for below, nodes in pairwise(network.layer_sizes))
    if not kernel.collapse:
        return of_row * n_rows + of_step
    targets = sampled.likelihood.n_targets(network.n_outputs)
    features = (facts.dim - facts.hidden_dim) / targets
    # Where each row has a variance for each target, each target has a Gram matrix.
    grams = targets if sampled.likelihood.noise_by_row else 1
    return (of_row + grams * _GRAM * features**2) * n_rows + grams * _FACTOR * features**3 + of_step
