"""The text of `Posterior.describe`: what is sampled, what is cached, and why."""

from __future__ import annotations

from patrac_native.kernels.choice import choose_kernel
from patrac_native.kernels.device_choice import choose_device
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.sampled_network import SampledNetwork

# By `ModelFacts.noise_prior_source`.
_NOISE_PRIORS = {
    "given": "variances sampled, under the prior that was given",
    "validation": "variances sampled; their prior rests on the trained network's residuals on rows that it was not "
    "trained on",
    "training": "variances sampled; their prior rests on the trained network's residuals on the rows of this "
    "posterior, for lack of others, and may be too low",
}


def overview(
    network: PartialNetwork, likelihood: Likelihood, noise_prior_source: str | None = None
) -> list[tuple[str, str]]:
    """Return labels and values that say what the network, its Bayesian parameters, their prior and the noise are."""
    total = network.net.n_parameters
    sampled = (
        f"{network.dim} parameters of a separate network {list(network.layer_sizes)}, beside {total} fixed ones"
        if network.separate
        else f"{network.dim} of {total} parameters ({network.dim / total:.1%})"
    )
    rescaled = f", variances rescaled by {network.rescaling:.4g}" if network.prior.is_rescaled else ""
    rows = [
        ("network", f"{list(network.net.layer_sizes)} {network.net.activation} network"),
        ("likelihood", repr(likelihood)),
        ("Bayesian", sampled),
        ("prior", network.prior.describe() + rescaled),
    ]
    return rows if noise_prior_source is None else [*rows, ("noise", _NOISE_PRIORS[noise_prior_source])]


def describe_posterior(sampled: SampledNetwork) -> str:
    """Return the lines of `Posterior.describe`."""
    network, facts = sampled.network, sampled.facts
    (_, title), *rows = overview(network, sampled.likelihood, facts.noise_prior_source)
    lines = [f"{facts.architecture} posterior of a {title}, n = {sampled.data.n_rows}, {facts.likelihood!r}"]
    lines += [f"{label}: {text}" for label, text in rows if label != "likelihood"]
    for index, layer in enumerate(sampled.layers, start=1):
        read = layer["varying_sources"] + layer["constant_sources"]
        fixed = layer["nodes"] - layer["varying"]
        text = (
            f"layer {index}: {layer['bayesian']} Bayesian parameters; {layer['varying']} of {layer['nodes']} nodes "
            f"vary, each reads {read} values a row ({layer['varying_sources']} varying, "
            f"{layer['constant_sources']} constant)"
        )
        if layer["offsets"]:
            text += f"; {layer['offsets']} cached offsets a row, the fixed weights out of constant nodes"
        if fixed:
            text += f"; {fixed} nodes are constants of the data and were evaluated once"
        lines.append(text)
        if not network.separate and index < len(network.layer_sizes) - 1:
            found = named_nodes(network, index)
            lines += [f"  Bayesian nodes, in rank order, by your numbering from 0: {found}"] if found else []
    device_inputs = facts.inputs_on_device
    if device_inputs is None:
        host = sampled.compiled.host
        cached = f"tiles of {host.tile_rows} rows, {host.cached_bytes / 2**20:.2f} MiB of cached data"
        lines.append(f"engine: {network.dtype.name}, level {network.level}, {cached}")
    else:
        lines.append(
            f"engine: {network.dtype.name}; the inputs are on {device_inputs.place}, where runs on that device read "
            "them; computations on the host copy them to it at the first use"
        )
    if facts.reads_statistics(is_independent=False):
        lines.append(
            "a step needs no pass over the data: the log-likelihood is quadratic in theta, so draws and chains come "
            "from its sufficient statistics"
        )
    kernel, reason = choose_kernel(facts)
    lines.append(f'device="auto" means {choose_device("auto", facts, kernel)}')
    lines.append(f'kernel="auto" means {kernel.label()}: {reason}')
    return "\n".join(lines)


def named_nodes(network: PartialNetwork, layer: int) -> str:
    """Return the user's own indices of the nodes whose incoming weights or bias are Bayesian; empty for none."""
    rows = sorted({int(row) for row in network.parameters["row"][network.parameters["layer"] == layer]})
    if not rows:
        return ""
    own = [int(network.permutation[layer][row]) for row in rows]
    shown = ", ".join(str(node) for node in own[:12]) + (", ..." if len(own) > 12 else "")
    return shown
