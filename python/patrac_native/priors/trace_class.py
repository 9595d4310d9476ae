"""The trace-class Gaussian prior and its fit to a trained network (docs/method.md, sections 2, 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from patrac_native.network.network import Network
from patrac_native.network.ranking import rank_nodes
from patrac_native.priors.base import Prior
from patrac_native.priors.scales import (
    ByLayer,
    SampledScales,
    by_layer,
    check_by_layer,
    check_scales,
    in_words,
    law_in_words,
)
from patrac_native.validation.checks import FloatArray, check_layer_sizes
from patrac_native.validation.notes import Note

# The interval in which `TraceClassPrior.fit` searches for alpha.
ALPHA_BOUNDS = (1.001, 8.0)
_AT_UPPER_BOUND = (
    f"TraceClassPrior.fit: alpha ended at the upper bound of {list(ALPHA_BOUNDS)}: nearly all of the weight sits at "
    "the first nodes, and the prior leaves the others next to nothing. Check that training went well. To spread the "
    "prior variance over more nodes, choose alpha yourself, as in TraceClassPrior.fit(net, alpha=2.0); that also "
    "silences this warning."
)
# The fitted variances describe point estimates; the prior's variances are four times as large (paper, Appendix A).
VARIANCE_MULTIPLIER = 4.0

# The decay of one layer's weights, (row factors, column factors): s_ij = row_i * column_j.
Decay = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class TraceClassPrior(Prior):
    """Prior of independent normal parameters whose variances decay with the rank of the nodes.

    w^(1)_ij ~ N(0, sigma2_w / i^alpha); w^(l)_ij ~ N(0, sigma2_w / (ij)^alpha) for l >= 2;
    b^(l)_i ~ N(0, sigma2_b / i^alpha); i and j are ranks that count from 1 (docs/method.md, section 2).

    Parameters
    ----------
    alpha : float or sequence of L floats
        Rate of decay, > 1; one for all layers, as in the paper, or one for the weights and biases of each.
    sigma2_w : float or sequence of L floats
        Variance scale of the weights, > 0; one for all layers, as in the paper, or one for each.
    sigma2_b : float or sequence of L floats
        Variance scale of the biases, > 0.
    output_decay : bool, optional
        Whether the variances of the last layer decay with the output index i too, as in the paper's formula. With
        False the last layer's variances are sigma2_w / j^alpha and sigma2_b, so that several outputs are exchangeable.
        The default None means True for one output and False for several.
    scales : None, "sampled" or SampledScales
        With "sampled", short for `SampledScales()`, the variances of the weights and of the biases of each layer are
        sampled with theta, under inverse-gamma priors centred at sigma2_w and sigma2_b. The default None keeps them
        fixed.

    Raises
    ------
    ValueError
        If alpha <= 1, a variance is not positive and finite, or scales is an unknown word.
    TypeError
        If a value is not a number, output_decay not a bool or None, or scales of another type.

    Examples
    --------
    >>> weights, biases = TraceClassPrior(alpha=2.0, sigma2_w=4.0, sigma2_b=1.0).variances([1, 2, 1])
    >>> weights
    [array([[4.],
           [1.]]), array([[4., 1.]])]
    >>> biases
    [array([1.  , 0.25]), array([1.])]
    """

    alpha: ByLayer
    sigma2_w: ByLayer
    sigma2_b: ByLayer
    output_decay: bool | None = None
    scales: str | SampledScales | None = None
    name: ClassVar[str] = "trace_class"
    is_rescaled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", _check_alpha(self.alpha))
        super().__post_init__()
        _check_output_decay(self.output_decay)
        if self.output_decay is not None:
            object.__setattr__(self, "output_decay", bool(self.output_decay))

    def variances(self, layer_sizes: Sequence[int]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the prior variances of a network's parameters; see `Prior.variances`."""
        sizes = check_layer_sizes(layer_sizes)
        n_layers = len(sizes) - 1
        rates = by_layer(self.alpha, n_layers, "alpha")
        weight_decay, bias_decay = _decays(sizes, rates, self.output_decay, fit=False)
        of_weights, of_biases = self.centres(n_layers)
        return (
            [sigma2 * np.outer(row, column) for sigma2, (row, column) in zip(of_weights, weight_decay, strict=True)],
            [sigma2 * row for sigma2, row in zip(of_biases, bias_decay, strict=True)],
        )

    def describe(self) -> str:
        """Return alpha and the two variance scales in words."""
        return (
            f"trace-class, alpha {in_words(self.alpha)}, sigma2_w {in_words(self.sigma2_w)}, sigma2_b "
            f"{in_words(self.sigma2_b)}{law_in_words(self.sampled_scales)}"
        )

    @classmethod
    def fit(
        cls,
        net: Network,
        output_decay: bool | None = None,
        *,
        alpha: ByLayer | Literal["layer"] | None = None,
        scales: str | SampledScales | None = None,
    ) -> TraceClassPrior:
        """Choose alpha and the variances from a trained network (paper, Appendix A; docs/method.md, section 4).

        They minimise sum (w^2 - sigma2_w s)^2 + sum (b^2 - sigma2_b s)^2 over the ranked network. The decay s of a
        weight is i^-alpha in the first layer, (ij)^-alpha in those between and j^-alpha in the last one; that of a bias
        is i^-alpha (1 for output biases without `output_decay`). For a given alpha both variances are solutions of
        linear least squares, so only alpha in [1.001, 8] is searched. The prior's variances are **four times** the
        fitted ones.

        With sampled scales the same sum is minimised over one sigma2_w and one sigma2_b for each layer: their laws are
        centred at four times the fitted values. With `alpha="layer"` it is minimised over an alpha, a sigma2_w and a
        sigma2_b of each layer, which is a search for each layer alone: the many small weights of a wide layer then do
        not set the decay of the others.

        Parameters
        ----------
        net : Network
            The trained network, nodes in any order; `fit` ranks them.
        output_decay : bool, optional
            As for the class; the returned prior has the same value.
        alpha : float, sequence of L floats or "layer", optional
            A given rate of decay, > 1, or that of each layer. Only the variances are then fitted, in closed form,
            without a search and without its warning. With "layer" each layer has a rate and variances of its own. By
            default one rate is searched for all layers.
        scales : None, "sampled" or SampledScales
            As for the class; default None, the paper's fit.

        Returns
        -------
        TraceClassPrior

        Warns
        -----
        UserWarning
            If the best alpha of all layers is at the upper bound, where the prior leaves nearly all variance to the
            first nodes, or all biases are zero (sigma2_b is then set to sigma2_w). At the lower bound a slower decay
            would hardly change a variance.
            With sampled scales, or `alpha="layer"`, a layer whose weights or biases are all zero has the variance that
            fits those of all layers together at the rates that are returned.

        Raises
        ------
        TypeError
            If net is not a Network, alpha is not a number, output_decay is not a bool or None, or scales of another
            type.
        ValueError
            If all weights are zero, alpha <= 1 or of another number of layers, or a word is unknown.

        Notes
        -----
        For a network without hidden layer and without output decay, nothing depends on alpha; it is 2 unless given.

        The best alpha is often at the lower bound. Nodes are ranked by their incoming weights and bias, and in many
        trained networks neither incoming nor outgoing weights decay with that rank; the slowest decay then fits best.
        """
        if not isinstance(net, Network):
            raise TypeError(
                f"net must be a Network, such as patrac_native.train returns; got {type(net).__name__}. "
                "A torch module becomes one by Network.from_torch(module)."
            )
        _check_output_decay(output_decay)
        of_layers = alpha == "layer"
        if isinstance(alpha, str):
            if not of_layers:
                raise ValueError(f'alpha must be a number, one for each layer, or "layer"; got {alpha!r}.')
            given = None
        else:
            given = None if alpha is None else _check_alpha(alpha)
        ranked = net.permuted(rank_nodes(net))
        weights, biases = [w**2 for w in ranked.weights], [b**2 for b in ranked.biases]
        if not any(w.any() for w in weights):
            raise ValueError("TraceClassPrior.fit: all weights of the network are zero; train it or give a prior.")
        has_biases = any(b.any() for b in biases)
        sizes, chosen = net.layer_sizes, check_scales(scales)
        n_layers = len(sizes) - 1

        def products(alpha: ByLayer) -> tuple[FloatArray, FloatArray]:
            """Return <target, s> and <s, s> at alpha, each (2, L): of the weights and of the biases of each layer."""
            weight_decay, bias_decay = _decays(sizes, by_layer(alpha, n_layers, "alpha"), output_decay, fit=True)
            # s is an outer product, so its matrix is never formed.
            w_dot = [float(row @ w @ column) for w, (row, column) in zip(weights, weight_decay, strict=True)]
            w_norm = [float(row @ row) * float(column @ column) for row, column in weight_decay]
            b_dot = [float(row @ b) for b, row in zip(biases, bias_decay, strict=True)]
            b_norm = [float(row @ row) for row in bias_decay]
            return np.array([w_dot, b_dot]), np.array([w_norm, b_norm])

        def explained(alpha: float, layer: int | None = None) -> float:
            """Return the sum of squares that is explained at alpha, of all layers or of one."""
            # Least squares through the origin with one regressor s: sigma2 = <target, s> / <s, s>, and the explained
            # part of <target, target> is <target, s>^2 / <s, s>.
            dot, norm = products(alpha)
            if layer is not None:
                dot, norm = dot[:, layer], norm[:, layer]
            elif chosen is None:
                dot, norm = _summed(dot), _summed(norm)
            return float((dot**2 / norm).sum())

        fitted_alpha: ByLayer
        if given is not None:
            fitted_alpha = given
        elif n_layers == 1 and not _resolve(output_decay, sizes):
            fitted_alpha = (2.0,) if of_layers else 2.0
        elif of_layers:
            fitted_alpha = tuple(_search_alpha(partial(explained, layer=layer)) for layer in range(n_layers))
        else:
            fitted_alpha = found = _search_alpha(explained)
            if found == ALPHA_BOUNDS[1]:
                Note("decay", _AT_UPPER_BOUND).give(stacklevel=2)
        dot, norm = products(fitted_alpha)
        sigma2_w, sigma2_b = (_summed(dot) / _summed(norm)).tolist()
        if not has_biases:
            sigma2_b = sigma2_w
            Note(
                "no biases",
                "TraceClassPrior.fit: all biases of the network are zero, so they say nothing about sigma2_b; "
                "sigma2_b is set to sigma2_w.",
            ).give(stacklevel=2)
        if chosen is None and not of_layers:
            return cls(fitted_alpha, VARIANCE_MULTIPLIER * sigma2_w, VARIANCE_MULTIPLIER * sigma2_b, output_decay)
        fitted = VARIANCE_MULTIPLIER * np.where(dot > 0, dot / norm, np.array([[sigma2_w], [sigma2_b]]))
        return cls(fitted_alpha, tuple(fitted[0].tolist()), tuple(fitted[1].tolist()), output_decay, chosen)


def _summed(by_layer: FloatArray) -> FloatArray:
    """Return the sums over layers of (2, L) numbers, shape (2,), in the order of the layers."""
    return np.array([sum(row) for row in by_layer.tolist()])


def _check_alpha(value: Any) -> ByLayer:
    """Return a rate of decay, or those of each layer, if finite and > 1, else raise TypeError or ValueError."""
    alpha = check_by_layer(value, "alpha")
    if any(one <= 1.0 for one in np.atleast_1d(alpha)):
        raise ValueError(
            f"alpha must be greater than 1 (only then is the prior trace-class: its total variance stays finite as "
            f"layers widen); got {alpha}."
        )
    return alpha


def _search_alpha(explained: Callable[[float], float]) -> float:
    """Return the alpha within ALPHA_BOUNDS at which `explained` is largest."""
    from scipy.optimize import minimize_scalar

    # There can be several local maxima: a grid search finds the best one, a bounded search refines it.
    grid = np.linspace(*ALPHA_BOUNDS, 281)
    best = int(np.argmax([explained(value) for value in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    refined = minimize_scalar(
        lambda value: -explained(float(value)), bounds=around, method="bounded", options={"xatol": 1e-10}
    )
    # The bounded search never evaluates the bounds of its interval; the grid point is returned if it is better.
    return max((float(refined.x), float(grid[best])), key=explained)


def _check_output_decay(value: bool | None) -> None:
    """Raise TypeError unless value is a bool or None."""
    if not (value is None or isinstance(value, bool | np.bool_)):
        raise TypeError(f"output_decay must be True, False or None (None: True for one output); got {value!r}.")


def _resolve(output_decay: bool | None, sizes: Sequence[int]) -> bool:
    """Return output_decay, or its default m == 1 if it is None."""
    return sizes[-1] == 1 if output_decay is None else bool(output_decay)


def _decays(
    sizes: Sequence[int], alpha: FloatArray, output_decay: bool | None, *, fit: bool
) -> tuple[list[Decay], list[FloatArray]]:
    """Return the decay s of every layer, of rates (L,): (row, column) factors for weights, row factors for biases."""
    # With `fit` the last layer's weights do not decay with the output index (Appendix A), unless it is the only layer.
    last = len(sizes) - 1
    ranks = [np.arange(1, size + 1, dtype=np.float64) for size in sizes]
    rows = [ranks[layer + 1] ** -alpha[layer] for layer in range(last)]
    if not _resolve(output_decay, sizes):
        rows[-1] = np.ones(sizes[last])
    weight_rows = [*rows[:-1], np.ones(sizes[last]) if fit and last > 1 else rows[-1]]
    columns = [np.ones(sizes[0]), *(ranks[layer] ** -alpha[layer] for layer in range(1, last))]
    return list(zip(weight_rows, columns, strict=True)), rows
