"""The oracle of the tests: the whole method in float64 NumPy, slow and obvious, written from docs/method.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

import patrac_native as pn

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ERF = np.vectorize(math.erf, otypes=[np.float64])


def activation(name: str, z: Array) -> Array:
    """Return zeta(z) (docs/method.md, section 1)."""
    if name == "tanh":
        return np.tanh(z)
    if name == "relu":
        return np.where(z > 0, z, 0.0)
    if name == "gelu":
        return z * 0.5 * (1 + ERF(z / math.sqrt(2)))
    sigmoid = np.exp(-np.logaddexp(0, -z))
    return {"sigmoid": sigmoid, "silu": z * sigmoid, "softplus": np.logaddexp(0, z)}[name]


def activation_slope(name: str, z: Array) -> Array:
    """Return zeta'(z), always computed from z, unlike the engine's."""
    if name == "tanh":
        return 1 / np.cosh(z) ** 2
    if name == "relu":
        return np.where(z > 0, 1.0, 0.0)
    if name == "gelu":
        return 0.5 * (1 + ERF(z / math.sqrt(2))) + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    sigmoid = np.exp(-np.logaddexp(0, -z))
    slope = sigmoid * (1 - sigmoid)
    return {"sigmoid": slope, "silu": sigmoid + z * slope, "softplus": sigmoid}[name]


def rank_nodes(net: pn.Network) -> list[list[int]]:
    """Return ranking[layer][rank] = own index for the hidden layers: largest b^2 + sum of incoming w^2 first."""
    ranking = []
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        # fsum rounds once, so the order of the terms cannot matter.
        eta = [math.fsum([b[i] ** 2, *(w[i] ** 2)]) for i in range(len(b))]
        ranking.append(sorted(range(len(b)), key=lambda i: (-eta[i], i)))
    return ranking


def is_bayesian(architecture: Any, n_layers: int, layer: int, row: int, column: int | None, own: Any) -> bool:
    """Return whether one parameter is sampled; layer from 1, ranked row and column from 0, column None for a bias.

    `own(layer, rank)` is the trained network's own index of a node. Written from the table of docs/method.md.
    """
    output = layer == n_layers
    if isinstance(architecture, pn.Full | pn.Sep):
        return True
    if isinstance(architecture, pn.Out):
        return output and (column is None or column < architecture.k)
    if isinstance(architecture, pn.Mix):
        k = architecture.k
        per_layer = k if isinstance(k, tuple) else (k,) * (n_layers - 1)
        bayesian_row = output or row < per_layer[layer - 1]
        bayesian_column = column is None or layer == 1 or column < per_layer[layer - 2]
        return bayesian_row and bayesian_column
    if column is None:
        return bool(architecture.bias_masks[layer - 1][own(layer, row)])
    return bool(architecture.weight_masks[layer - 1][own(layer, row), own(layer - 1, column)])


def prior_variance(prior: pn.Prior, sizes: tuple[int, ...], layer: int, row: int, column: int | None) -> float:
    """Variance of one parameter before rescaling (docs/method.md, section 2); layer from 1, row and column from 0."""
    if isinstance(prior, pn.GaussianPrior):
        return prior.sigma2_b if column is None else prior.sigma2_w / (sizes[layer - 1] if prior.fan_in else 1)
    assert isinstance(prior, pn.TraceClassPrior)
    n_layers = len(sizes) - 1
    decays = sizes[-1] == 1 if prior.output_decay is None else prior.output_decay
    i = row + 1 if layer < n_layers or decays else 1
    alpha, sigma2_w, sigma2_b = (
        value[layer - 1] if isinstance(value, tuple) else value
        for value in (prior.alpha, prior.sigma2_w, prior.sigma2_b)
    )
    if column is None:
        return sigma2_b / i**alpha
    j = 1 if layer == 1 else column + 1
    return sigma2_w / (i * j) ** alpha


@dataclass
class Partial:
    """A partially Bayesian network: ranked trained values, masks, the order of theta, and Sep's fixed companion."""

    activation: str
    sizes: tuple[int, ...]
    weights: list[Array]
    biases: list[Array]
    weight_masks: list[Flags]
    bias_masks: list[Flags]
    ranking: list[list[int]]
    companion: pn.Network | None

    @property
    def n_layers(self) -> int:
        return len(self.weights)

    def locations(self) -> list[tuple[int, int, int]]:
        """Return (layer, row, column or -1) of each entry of theta: layer by layer, weights row by row, then biases."""
        found = []
        for layer in range(self.n_layers):
            rows, columns = self.weights[layer].shape
            found += [(layer + 1, i, j) for i in range(rows) for j in range(columns) if self.weight_masks[layer][i, j]]
            found += [(layer + 1, i, -1) for i in range(rows) if self.bias_masks[layer][i]]
        return found

    def theta_map(self) -> Array:
        """Return the trained values of the Bayesian parameters."""
        return np.array(
            [self.biases[layer - 1][i] if j < 0 else self.weights[layer - 1][i, j] for layer, i, j in self.locations()]
        )

    def with_theta(self, theta: Array) -> tuple[list[Array], list[Array]]:
        """Return all weights and biases, the Bayesian ones from theta."""
        # Complex if theta is, for derivatives by complex step.
        kind = np.result_type(np.float64, theta)
        weights, biases = [w.astype(kind) for w in self.weights], [b.astype(kind) for b in self.biases]
        for value, (layer, i, j) in zip(theta, self.locations(), strict=True):
            if j < 0:
                biases[layer - 1][i] = value
            else:
                weights[layer - 1][i, j] = value
        return weights, biases

    def prior_variances(self, prior: pn.Prior, full_sizes: tuple[int, ...]) -> Array:
        """Return the variances, those of TraceClassPrior times phi / phi_partial (docs/method.md, section 4)."""
        own = [prior_variance(prior, self.sizes, layer, i, None if j < 0 else j) for layer, i, j in self.locations()]
        if isinstance(prior, pn.GaussianPrior):
            return np.array(own)
        total = 0.0
        for layer in range(1, len(full_sizes)):
            for i in range(full_sizes[layer]):
                total += prior_variance(prior, full_sizes, layer, i, None)
                for j in range(full_sizes[layer - 1]):
                    total += prior_variance(prior, full_sizes, layer, i, j)
        return np.array(own) * total / math.fsum(own)

    def layers(self, theta: Array, X: Array) -> tuple[list[Array], list[Array]]:
        """Return the inputs of each layer (n, N_{l-1}) and its pre-activations (n, N_l)."""
        weights, biases = self.with_theta(theta)
        inputs: list[Array] = [np.asarray(X, dtype=np.float64)]
        outputs: list[Array] = []
        for layer in range(self.n_layers):
            if layer > 0:
                inputs.append(activation(self.activation, outputs[-1]))
            outputs.append(inputs[layer] @ weights[layer].T + biases[layer])
        return inputs, outputs

    def companion_output(self, X: Array) -> Array | float:
        """Return f of Sep's fixed network, 0 for other architectures."""
        if self.companion is None:
            return 0.0
        values = np.asarray(X, dtype=np.float64)
        for layer, (w, b) in enumerate(zip(self.companion.weights, self.companion.biases, strict=True)):
            values = (activation(self.activation, values) if layer else values) @ w.T + b
        return values

    def predict(self, theta: Array, X: Array) -> Array:
        """f, (n, m)."""
        return self.layers(theta, X)[1][-1] + self.companion_output(X)

    def gradient(self, theta: Array, X: Array, output_slope: Array) -> Array:
        """dl/dtheta from dl/df (n, m) by plain back-propagation through the whole network, then the mask."""
        weights, _ = self.with_theta(theta)
        inputs, outputs = self.layers(theta, X)
        delta = output_slope
        of_weights: list[Array] = []
        of_biases: list[Array] = []
        for layer in reversed(range(self.n_layers)):
            of_weights.insert(0, delta.T @ inputs[layer])
            of_biases.insert(0, delta.sum(axis=0))
            if layer > 0:
                delta = (delta @ weights[layer]) * activation_slope(self.activation, outputs[layer - 1])
        return np.array(
            [of_biases[layer - 1][i] if j < 0 else of_weights[layer - 1][i, j] for layer, i, j in self.locations()]
        )


def partial(net: pn.Network, architecture: Any) -> Partial:
    """Build the sampled network of an architecture."""
    ranking = rank_nodes(net)
    orders = [list(range(net.layer_sizes[0])), *ranking, list(range(net.layer_sizes[-1]))]
    sizes = tuple(net.layer_sizes)
    if isinstance(architecture, pn.Sep):
        k = architecture.k
        hidden = k if isinstance(k, tuple) else (k,) * (net.n_layers - 1)
        sizes = (sizes[0], *hidden, sizes[-1])
        weights = [np.zeros((a, b)) for a, b in zip(sizes[1:], sizes[:-1], strict=True)]
        biases = [np.zeros(a) for a in sizes[1:]]
    else:
        weights = [w[np.ix_(orders[layer + 1], orders[layer])] for layer, w in enumerate(net.weights)]
        biases = [b[orders[layer + 1]] for layer, b in enumerate(net.biases)]

    def marked(layer: int, row: int, column: int | None) -> bool:
        return is_bayesian(architecture, net.n_layers, layer, row, column, lambda at, rank: orders[at][rank])

    weight_masks = [
        np.array([[marked(layer + 1, i, j) for j in range(w.shape[1])] for i in range(w.shape[0])])
        for layer, w in enumerate(weights)
    ]
    bias_masks = [np.array([marked(layer + 1, i, None) for i in range(len(b))]) for layer, b in enumerate(biases)]
    companion = net if isinstance(architecture, pn.Sep) else None
    return Partial(net.activation, sizes, weights, biases, weight_masks, bias_masks, ranking, companion)


def between(lower: float, upper: float, sd: float) -> tuple[float, float]:
    """Density over sd at equal bounds of a standard normal variate, else probability; derivative of its log over sd."""

    def density(t: float) -> float:
        return math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)

    if lower == upper:
        return density(lower) / sd, lower / sd
    near, far = (-upper, -lower) if lower + upper < 0 else (lower, upper)  # no cancellation in the upper tail
    if math.isinf(far):
        probability = 0.5 * math.erfc(near / math.sqrt(2))
        return probability, (density(lower) - density(upper)) / probability / sd
    with mpmath.workdps(30):  # at the ends of a narrow interval both differences cancel
        wide = (mpmath.erfc(near / mpmath.sqrt(2)) - mpmath.erfc(far / mpmath.sqrt(2))) / 2
        return float(wide), float((mpmath.npdf(lower) - mpmath.npdf(upper)) / wide / sd)


def labels_of(likelihood: Any, y: Array) -> Array:
    """Return the place among the values of each target (n, 1)."""
    values = likelihood.values.tolist()
    return np.array([values.index(one) for one in y[:, 0]])


def log_likelihood(likelihood: Any, f: Array, y: Array, row_weights: Array) -> float:
    """Return l, normalised, row by row (docs/method.md, section 5).

    f includes an offset, and `row_weights` include sample_weight and scale.
    """
    total = 0.0
    if isinstance(likelihood, pn.DiscreteValues):
        likelihood, y = pn.Categorical(), labels_of(likelihood, y)
    for r in range(len(f)):
        if isinstance(likelihood, pn.Categorical):
            top = f[r].max()
            term = f[r, int(y[r])] - top - math.log(sum(math.exp(value - top) for value in f[r]))
        elif isinstance(likelihood, pn.Bernoulli):
            term = sum(-math.log1p(math.exp(-abs(v))) + min(v, 0) for v in np.where(y[r] == 1, f[r], -f[r]))
        elif isinstance(likelihood, pn.StudentT):
            df, scale = likelihood.df, np.full(f.shape[1], likelihood.scale)
            normaliser = math.gamma((df + 1) / 2) / (math.gamma(df / 2) * math.sqrt(df * math.pi))
            term = sum(
                math.log(normaliser / scale[c]) - (df + 1) / 2 * math.log1p(((y[r, c] - f[r, c]) / scale[c]) ** 2 / df)
                for c in range(f.shape[1])
            )
        elif isinstance(likelihood, pn.Poisson):
            term = sum(y[r, c] * f[r, c] - math.exp(f[r, c]) - math.lgamma(y[r, c] + 1) for c in range(f.shape[1]))
        elif isinstance(likelihood, pn.NegativeBinomial):
            term = 0.0
            for c, size in enumerate(1 / np.full(f.shape[1], likelihood.dispersion)):
                mean = math.exp(f[r, c])
                term += math.lgamma(y[r, c] + size) - math.lgamma(size) - math.lgamma(y[r, c] + 1)
                term += y[r, c] * math.log(mean / (mean + size)) + size * math.log(size / (mean + size))
        elif isinstance(likelihood, pn.CensoredGaussian):
            sd = np.sqrt(np.full(f.shape[1], likelihood.variance))
            term = sum(math.log(between(*(y[r, c] - f[r, c]) / sd[c], sd[c])[0]) for c in range(f.shape[1]))
        elif isinstance(likelihood, pn.HeteroscedasticGaussian):
            t = f.shape[1] // 2
            term = sum(
                -((y[r, c] - f[r, c]) ** 2) / (2 * math.exp(f[r, t + c])) - 0.5 * (f[r, t + c] + math.log(2 * math.pi))
                for c in range(t)
            )
        else:
            assert isinstance(likelihood, pn.Gaussian)
            variance = np.full(f.shape[1], likelihood.variance)
            term = sum(
                -((y[r, c] - f[r, c]) ** 2) / (2 * variance[c]) - 0.5 * math.log(2 * math.pi * variance[c])
                for c in range(f.shape[1])
            )
        total += row_weights[r] * term
    return float(total)


def output_slope(likelihood: Any, f: Array, y: Array, row_weights: Array) -> Array:
    """dl/df, (n, m)."""
    if isinstance(likelihood, pn.DiscreteValues):
        likelihood, y = pn.Categorical(), labels_of(likelihood, y)
    if isinstance(likelihood, pn.Categorical):
        exponent = np.exp(f - f.max(axis=1, keepdims=True))
        slope = -exponent / exponent.sum(axis=1, keepdims=True)
        slope[np.arange(len(f)), y.astype(int)] += 1
    elif isinstance(likelihood, pn.Bernoulli):
        slope = y - np.exp(-np.logaddexp(0, -f))
    elif isinstance(likelihood, pn.StudentT):
        slope = (likelihood.df + 1) * (y - f) / (likelihood.df * np.square(likelihood.scale) + (y - f) ** 2)
    elif isinstance(likelihood, pn.Poisson):
        slope = y - np.exp(f)
    elif isinstance(likelihood, pn.NegativeBinomial):
        slope = (y - np.exp(f)) / (1 + likelihood.dispersion * np.exp(f))
    elif isinstance(likelihood, pn.CensoredGaussian):
        sd = np.sqrt(np.full(f.shape[1], likelihood.variance))
        slope = np.array(
            [
                [between(*(bounds - at) / s, s)[1] for bounds, at, s in zip(*row, sd, strict=True)]
                for row in zip(y, f, strict=True)
            ]
        )
    elif isinstance(likelihood, pn.HeteroscedasticGaussian):
        t = f.shape[1] // 2
        residual, variance = y - f[:, :t], np.exp(f[:, t:])
        slope = np.concatenate([residual / variance, 0.5 * (residual**2 / variance - 1)], axis=1)
    else:
        assert isinstance(likelihood, pn.Gaussian)
        slope = (y - f) / likelihood.variance
    return slope * row_weights[:, None]


# Kernels (method.md, section 6). `value` is a log-likelihood, g its gradient, C the diagonal of the prior covariance.


def pcn_proposal(u: Array, C: Array, w: Array, beta: float) -> Array:
    """v = sqrt(1 - beta^2) u + beta C^(1/2) w, w standard normal."""
    return math.sqrt(1 - beta**2) * u + beta * np.sqrt(C) * w


def pcnl_proposal(u: Array, g: Array, C: Array, w: Array, delta: float) -> Array:
    """v = ((2 - delta) u + 2 delta C g(u) + sqrt(8 delta) C^(1/2) w) / (2 + delta), w standard normal."""
    return ((2 - delta) * u + 2 * delta * C * g + math.sqrt(8 * delta) * np.sqrt(C) * w) / (2 + delta)


def pcnl_rho(value: float, g: Array, u: Array, v: Array, C: Array, delta: float, *, printed: bool = False) -> float:
    """Return rho(u, v); with `printed`, <v - u, g(u)> has the sign that the paper prints."""
    difference = (u - v) if printed else (v - u)
    return float(-value - 0.5 * difference @ g - delta / 4 * (u + v) @ g + delta / 4 * np.sum(C * g**2))


def log_normal(x: Array, mean: Array, variance: Array) -> float:
    """Return the log density of independent normals, without log 2 pi."""
    return float(np.sum(-0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(variance)))


def pcnl_log_density(v: Array, u: Array, g: Array, C: Array, delta: float) -> float:
    """Return log q(u, v), the density of the proposal v from u."""
    return log_normal(v, ((2 - delta) * u + 2 * delta * C * g) / (2 + delta), 8 * delta * C / (2 + delta) ** 2)


def pcn_log_density(v: Array, u: Array, C: Array, beta: float) -> float:
    """Return log q(u, v) of pCN for beta < 1."""
    return log_normal(v, math.sqrt(1 - beta**2) * u, beta**2 * C)


def mgrad_posterior_variance(C: Array, delta: float) -> Array:
    """Return the diagonal of A = (C^-1 + (2 / delta) I)^-1."""
    return 1 / (1 / C + 2 / delta)


def mgrad_proposal(u: Array, g: Array, C: Array, w: Array, delta: float) -> Array:
    """v ~ N(A((2 / delta) u + g(u)), A + (2 / delta) A^2) from w standard normal."""
    A = mgrad_posterior_variance(C, delta)
    return A * (2 / delta * u + g) + np.sqrt(A + 2 / delta * A**2) * w


def mgrad_log_density(v: Array, u: Array, g: Array, C: Array, delta: float) -> float:
    """Return log q(u, v) of mGrad."""
    A = mgrad_posterior_variance(C, delta)
    return log_normal(v, A * (2 / delta * u + g), A + 2 / delta * A**2)


def mgrad_h(z: Array, w: Array, g: Array, C: Array, delta: float) -> float:
    """Return h(z, w) with g = g(w), where the log acceptance ratio is l(v) - l(u) + h(u, v) - h(v, u)."""
    A = mgrad_posterior_variance(C, delta)
    return float((z - A * (2 / delta * w + 0.5 * g)) @ (g / (1 + 2 / delta * A)))


# The collapsed output layer (method.md, section 6), from the definition: y is normal given the hidden parameters.


def hidden_dim(partial: Partial) -> int:
    """Return K_h, the number of Bayesian parameters below the output layer, which are the first entries of theta."""
    return sum(layer < partial.n_layers for layer, _, _ in partial.locations())


def drawn_entries(partial: Partial, n_outputs: int) -> list[int]:
    """Return the positions in theta of the Bayesian weights and biases of the first outputs, `n_outputs` of them."""
    located = enumerate(partial.locations())
    return [entry for entry, (layer, row, _) in located if layer == partial.n_layers and row < n_outputs]


def joined(partial: Partial, theta_hidden: Array, a: Array, n_outputs: int) -> Array:
    """Return theta with the weights a of the first outputs and theta_h elsewhere."""
    drawn = drawn_entries(partial, n_outputs)
    theta = np.empty(len(partial.locations()), dtype=np.result_type(theta_hidden, a))
    theta[drawn] = a
    theta[np.delete(np.arange(len(theta)), drawn)] = theta_hidden
    return theta


def output_design(partial: Partial, theta_hidden: Array, X: Array, n_outputs: int | None = None) -> tuple[Array, Array]:
    """Return offset o (n m,) and design Phi (n m, K_a) of f = o + Phi a, from f at a = 0 and at the unit vectors.

    f are the first outputs, by default all, and a their weights.
    """
    m = partial.sizes[-1] if n_outputs is None else n_outputs

    def outputs(a: Array) -> Array:
        return np.asarray(partial.predict(joined(partial, theta_hidden, a, m), X)[:, :m].ravel())

    count = len(drawn_entries(partial, m))
    at_zero = outputs(np.zeros(count))
    return at_zero, np.stack([outputs(unit) - at_zero for unit in np.eye(count)], axis=1)


def row_variances(partial: Partial, theta_hidden: Array, X: Array, t: int) -> Array:
    """Return e^s (n, t) of a network with the outputs f (n, t) and s (n, t), whose s the weights of f do not enter."""
    theta = joined(partial, theta_hidden, np.zeros(len(drawn_entries(partial, t))), t)
    return np.exp(partial.predict(theta, X)[:, t:])


def _collapsed_normal(
    partial: Partial, theta_hidden: Array, C: Array, variance: Any, X: Array, y: Array, row_weights: Array
) -> tuple[Array, Array, Array, Array]:
    """Residual y - o (n m,), design, prior variances S of the output weights, covariance of y (n m, n m).

    `variance` None: that of each row, which the network gives.
    """
    if variance is None:
        variance = row_variances(partial, theta_hidden, X, y.shape[1])
    offset, design = output_design(partial, theta_hidden, X, y.shape[1])
    S = C[drawn_entries(partial, y.shape[1])]
    noise = (np.broadcast_to(variance, y.shape) / row_weights[:, None]).ravel()
    return y.ravel() - offset, design, S, design @ np.diag(S) @ design.T + np.diag(noise)


def collapsed_log_likelihood(
    partial: Partial, theta_hidden: Array, C: Array, variance: Any, X: Array, y: Array, row_weights: Array
) -> Any:
    """log of the mean of exp l over the output weights' prior: a normal density of y, its (n m)-square covariance.

    Positive row weights. A row's term of l has the normaliser -(w / 2) log(2 pi sigma^2), the density of a normal of
    variance sigma^2 / w has -(1 / 2) log(2 pi sigma^2 / w): the difference is added. Complex for a complex argument.
    `variance` None: each row has its own, e^s, s the second half of the outputs of the network.
    """
    r, _, _, covariance = _collapsed_normal(partial, theta_hidden, C, variance, X, y, row_weights)
    sign, log_size = np.linalg.slogdet(covariance)
    log_determinant = log_size + 1j * np.angle(sign) if np.iscomplexobj(covariance) else log_size
    value = -0.5 * (r @ np.linalg.solve(covariance, r) + log_determinant + len(r) * math.log(2 * math.pi))
    noise = row_variances(partial, theta_hidden, X, y.shape[1]) if variance is None else variance
    for weight, of_row in zip(row_weights, np.broadcast_to(noise, y.shape), strict=True):
        for one in of_row:
            value += 0.5 * np.log(2 * math.pi * one / weight) - 0.5 * weight * np.log(2 * math.pi * one)
    return value


def collapsed_slope(
    partial: Partial, theta_hidden: Array, direction: Array, C: Array, variance: Any, X: Array, y: Array, weights: Array
) -> float:
    """Derivative of the collapsed log-likelihood in a direction, by complex step: exact to rounding (tanh only)."""
    step = 1e-30
    moved = theta_hidden + 1j * step * direction
    return float(collapsed_log_likelihood(partial, moved, C, variance, X, y, weights).imag / step)


def output_conditional(
    partial: Partial, theta_hidden: Array, C: Array, variance: Any, X: Array, y: Array, row_weights: Array
) -> tuple[Array, Array]:
    """Mean (K_a,) and covariance (K_a, K_a) of the output weights given y, by conditioning their joint normal."""
    r, design, S, covariance = _collapsed_normal(partial, theta_hidden, C, variance, X, y, row_weights)
    gain = np.linalg.solve(covariance, design * S).T
    return gain @ r, np.diag(S) - gain @ (design * S)


def inverse_gamma(normals: Iterator[float], uniforms: Iterator[float], shape: float, rate: float) -> float:
    """Return a draw of density x^(-shape - 1) exp(-rate / x) by Marsaglia and Tsang (2000), from one noise each try."""
    boost = next(uniforms) ** (1 / shape) if shape < 1 else 1.0
    d = (shape + 1 if shape < 1 else shape) - 1 / 3
    while True:
        x, u = next(normals), next(uniforms)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
            return rate / (d * v * boost)


def variance_conditional(a: float, b: float, f: Array, y: Array, row_weights: Array) -> tuple[float, float]:
    """Shape and scale of the inverse gamma of one sigma^2 given f (n, m): density x^(-shape - 1) exp(-scale / x)."""
    squares = sum(row_weights[r] * (y[r, c] - f[r, c]) ** 2 for r in range(len(y)) for c in range(y.shape[1]))
    return a + 0.5 * y.shape[1] * float(row_weights.sum()), b + 0.5 * float(squares)
