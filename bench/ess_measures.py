"""Effective sample sizes of kept states, by four measures."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native.diagnostics import autocorrelation, ess_geyer

FloatArray = npt.NDArray[Any]

PAPER_LAGS = 1000  # in steps
MAX_FOR_ARVIZ = 20_000  # draws for ArviZ, which takes milliseconds for a thousand draws of one point
CONDITIONAL_CHUNK = 2**22  # maximum number of entries of the largest array


def geyer(values: FloatArray) -> float:
    """Return the ESS by Geyer's initial monotone sequence of the mean autocorrelation, which speed claims use."""
    return ess_geyer(values[None])


def paper(values: FloatArray, thin: int) -> float:
    """Return the paper's ESS with lags up to 1,000 steps; the autocorrelation is interpolated between kept states.

    The value is NaN if the run is too short for these lags.
    """
    lags = PAPER_LAGS // thin
    if len(values) < 10 * lags:
        return float("nan")
    rho = autocorrelation(values[None], lags)[0]
    steps = np.arange(PAPER_LAGS + 1)
    time = -1 + 2 * np.interp(steps, thin * np.arange(lags + 1), rho).sum()
    return len(values) * thin / time if time > 0 else float("nan")


def bulk(values: FloatArray) -> float:
    """Return the median over the grid of ArviZ's bulk ESS."""
    from importlib import import_module

    array_stats: Any = import_module("arviz_stats.base").array_stats
    kept = values[:MAX_FOR_ARVIZ].reshape(1, min(len(values), MAX_FOR_ARVIZ), -1).astype(np.float64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = array_stats.ess(kept, chain_axis=0, draw_axis=1, method="bulk")
    return float(np.median(found)) * len(values) / kept.shape[1]


def longest_stay(theta: FloatArray) -> int:
    """Return the largest number of consecutive equal states."""
    moves = np.flatnonzero((theta[1:] != theta[:-1]).any(axis=1))
    return int(np.diff(np.concatenate([[-1], moves, [len(theta) - 1]])).max())


def conditional_mean(post: pn.Posterior, theta: FloatArray, X: FloatArray) -> FloatArray:
    """Return f at inputs X, (draw, n), with the Bayesian output weights at their mean given all other parameters.

    In float64, for one output (docs/method.md, section 6): y = o + Phi a + e, a ~ N(0, S), and the mean of a is
    (S^-1 + Phi'Phi/s2)^-1 Phi'(y - o)/s2.
    """
    assert isinstance(post.likelihood, pn.Gaussian) and post.net.layer_sizes[-1] == 1
    variance = float(np.asarray(post.likelihood.variance).ravel()[0])
    weights, bias = post.network.weight_masks[-1][0], post.network.bias_masks[-1][0]
    n_output = int(weights.sum()) + int(bias)
    prior_precision = np.diag(1 / post.prior_variance[len(post.prior_variance) - n_output :])
    both = np.concatenate([post.X, X])
    n, widest = len(post.X), len(both) * max(post.net.layer_sizes)
    found = []
    for part in np.array_split(theta, max(1, len(theta) * widest // CONDITIONAL_CHUNK)):
        features, offset = output_features(post, part.astype(np.float64), both)
        phi, residual = features[:, :n], post.y[:, 0] - offset[:, :n]
        gram = prior_precision + phi.transpose(0, 2, 1) @ phi / variance
        mean = np.linalg.solve(gram, phi.transpose(0, 2, 1) @ residual[..., None] / variance)
        found.append((features[:, n:] @ mean)[..., 0] + offset[:, n:])
    return np.concatenate(found)


def output_features(post: pn.Posterior, theta: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the factors of the Bayesian output weights and bias, (draw, n, ...), and the rest of f, (draw, n)."""
    network = post.network
    separate = network.separate
    h, at = np.broadcast_to(X, (len(theta), *X.shape)), 0
    shapes = [mask.shape for mask in network.weight_masks]
    fixed = list(zip(network.ranked.weights, network.ranked.biases, strict=True))
    if separate:
        fixed = [(np.zeros(shape), np.zeros(shape[0])) for shape in shapes]
    masks = list(zip(network.weight_masks, network.bias_masks, strict=True))
    for (w, b), (wm, bm) in zip(fixed[:-1], masks[:-1], strict=True):
        weights, biases = np.tile(w, (len(theta), 1, 1)), np.tile(b, (len(theta), 1))
        weights[:, wm] = theta[:, at : at + wm.sum()]
        at += wm.sum()
        biases[:, bm] = theta[:, at : at + bm.sum()]
        at += bm.sum()
        h = np.tanh(h @ weights.transpose(0, 2, 1) + biases[:, None])
    (w, b), (wm, bm) = fixed[-1], masks[-1]
    offset = h[:, :, ~wm[0]] @ w[0, ~wm[0]] + (0.0 if bm[0] else b[0])
    if separate:
        offset = offset + post.net.predict(X)[:, 0]
    features = h[:, :, wm[0]]
    if bm[0]:
        features = np.concatenate([features, np.ones((*features.shape[:2], 1))], axis=2)
    return features, offset
