"""The likelihood of real targets of which bounds are known, such as times that are longer than a study lasted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import NoiseChange, Targets, diagonal_root
from patrac_native.likelihoods.numbers import refuse_targets
from patrac_native.likelihoods.real import PredictiveMixture
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.validation.checks import FloatArray, as_real_array

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
# Location and variance are fitted by the EM algorithm: the maximum number of steps, and the relative change at its end.
_MAX_STEPS, _TOLERANCE = 1000, 1e-8
# Times that location and sampled variance of the constant predictor are fitted in turn.
_SCALE_STEPS = 20


class CensoredGaussian(SampledNoiseLikelihood):
    """Targets are normal, y_r ~ N(f_r, variance), and two bounds of each are known; outputs are independent.

    y is (n, 2) for one output or (n, m, 2): the lower and the upper bound of each target. They are equal where it is
    known, and one of them is infinite where it is censored on one side: (t, inf) for a time that is longer than t. With
    Phi the standard normal distribution function, the log-likelihood of an output is that of `Gaussian` where the
    bounds are equal, else

        log(Phi((upper - f) / sd) - Phi((lower - f) / sd)).

    On the logarithm of a time this is log-normal survival regression, the accelerated failure time model with f for its
    linear predictor (docs/survival.md). Censoring must not depend on the target beyond the inputs. Predictions are of
    the targets themselves, uncensored.

    Parameters
    ----------
    variance : float, array_like of shape (m,) or "sampled"
        Variance of the targets given f, positive and finite; one for all outputs or one for each. With "sampled" the
        variances are sampled with theta, one for each output, a priori independent and inverse-gamma with density
        proportional to x^(-a-1) exp(-b/x).
    a : float, optional
        Shape of that prior, positive; default 2.
    b : float or array_like of shape (m,), optional
        Rate of the prior, positive; one for all outputs or one for each. By default `Posterior` sets it to a v / 2 for
        each output, as for `Gaussian`, v being the maximum-likelihood estimate of the variance around the trained
        network.

    Raises
    ------
    ValueError
        If a variance, a or b is not positive and finite, or a or b is given together with a fixed variance.
    TypeError
        If one of them is not a number.

    Examples
    --------
    >>> bounds = np.array([[[0.5, 0.5]], [[1.0, np.inf]], [[-1.0, 1.0]]])  # known, right-censored, in an interval
    >>> CensoredGaussian(1.0).log_likelihood_rows(np.zeros((3, 1)), bounds).round(6)
    array([-1.043939, -1.841022, -0.381715])
    """

    name = "censored_gaussian"
    label = "censored"
    example = 'CensoredGaussian("sampled")'
    columns = ("upper",)
    numbers_per_target = 2
    is_quadratic = False

    def wider(self) -> tuple[NoiseChange, ...]:
        """Return that the variance is sampled, if it is not."""
        return () if self.is_sampled else super().wider()

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return that the variance is sampled, if it is not."""
        return self.wider()

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return bounds as float64 (n, m, 2); (n, 2) is accepted for one output. Raises as the base class does."""
        self.check_noise(m)
        values = as_real_array(y, "y", "Give the lower and the upper bound of each target as numbers.")
        if values.shape == (n, 2) and m == 1:
            values = values[:, None]
        if values.shape != (n, m, 2):
            allowed = f"({n}, 2)" if m == 1 else f"({n}, {m}, 2)"
            raise ValueError(
                f"y must have shape {allowed}, the lower and the upper bound of each target, equal where it is known; "
                f"got {np.shape(y)}."
            )
        lower, upper = values[..., 0], values[..., 1]
        for bad, problem in (
            (np.isnan(values).any(axis=-1), "must not be NaN; an open side is -inf or inf"),
            (lower > upper, "must not have a lower bound above the upper one"),
            (np.isinf(lower) & np.isinf(upper), "must have at least one finite bound; leave rows without any out"),
        ):
            refuse_targets(bad, values, f"the bounds of y {problem}")
        return np.array(values, dtype=np.float64, order="C")

    def check_precision(self, y: Targets, dtype: np.dtype[Any]) -> None:
        """Raise ValueError if the width of an interval is lost to rounding, where it would count as known or wider."""
        lower, upper = y[..., 0], y[..., 1]
        finite = np.isfinite(y).all(axis=-1)
        width = np.where(finite, upper, 0.0) - np.where(finite, lower, 0.0)
        kept = np.where(finite, upper, 0.0).astype(dtype) - np.where(finite, lower, 0.0).astype(dtype)
        lost = np.abs(kept - width) > 0.01 * width
        if lost.any():
            row, output = (int(index) for index in np.argwhere(lost)[0])
            raise ValueError(
                f"the bounds of y at row {row}, output {output} are {width[row, output]:.3g} apart, which {dtype} does "
                f'not hold at {lower[row, output]:g}; centre and scale y, or use dtype="float64".'
            )

    def typical(self, y: Targets) -> Targets:
        """Return the middle of the bounds, or the finite one, shape (n, m)."""
        lower, upper = np.moveaxis(np.where(np.isinf(y), y[..., ::-1], y), -1, 0)
        return np.asarray(lower + 0.5 * (upper - lower))

    def is_known(self, y: Targets) -> npt.NDArray[np.bool_]:
        """Return where the bounds are equal, shape (n, m)."""
        return np.asarray(y[..., 0] == y[..., 1])

    def log_units(self, y: Targets, scale: FloatArray) -> FloatArray:
        """Return the sum of log scale over the targets that are known: probabilities of others have no units."""
        return np.asarray(np.where(self.is_known(y), np.log(scale), 0.0).sum(axis=1))

    def core_targets(self, y: Targets, offset: FloatArray | None) -> FloatArray:
        """Return the lower bounds and, beside them, the upper ones, shape (n, 2m)."""
        return np.concatenate([y[..., 0], y[..., 1]], axis=1)

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the scale of each output, and the share of the weight whose targets are known."""
        known = row_weights @ self.is_known(y) / row_weights.sum()
        return {"scale": self.scale_vector(n_outputs), "known": known}

    def range_checks(self, n_outputs: int) -> Mapping[str, tuple[FloatArray, str]]:
        """Return 1 / standard deviation, by which the engine multiplies."""
        return {"variance of CensoredGaussian": (1.0 / self.scale_vector(n_outputs), "scale y and the variance")}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return three exponentials and a logarithm for each output."""
        return {"exp": 3 * n_outputs, "log": n_outputs}

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return the log density or log probability summed over outputs, shape (..., n), for f (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        rows: FloatArray = log_density_of_bounds(outputs, self.scale_vector(outputs.shape[-1]), y).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of the root of -d^2 l / df^2 at the bounds, or of 1 / variance without them, shape (n, m, m)."""
        sd = self.scale_vector(f.shape[1])
        root = np.broadcast_to(1.0 / sd, f.shape)
        return diagonal_root(root if y is None else root * np.sqrt(np.maximum(self._at(f, y).information, 0.0)))

    def _at(self, f: FloatArray, y: Targets) -> _Interval:
        """Return the terms of the bounds y (n, m, 2) around f (n, m)."""
        return _standardised(f, self.scale_vector(y.shape[1]), y)

    def squared_residuals(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> FloatArray:
        """Return the squares (n, m) that are expected given the bounds, at the most likely variance of each output."""
        square = np.average((self.typical(y) - f) ** 2, axis=0, weights=row_weights)
        square = np.maximum(square, np.finfo(np.float64).tiny)
        expected = self._fitted(f, y, row_weights, 0.0, np.zeros_like(square), square)
        return expected * self.at(expected)._at(f, y).square

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> CensoredGaussian:
        """Return the likelihood with sampled variances fixed at their modes given outputs (n, m) and row weights."""
        square = np.maximum(np.average(self.squared_residuals(f, y, row_weights), axis=0, weights=row_weights), 1e-300)
        a, b = self.with_prior_guess(square).variance_prior(y.shape[1])
        return self.at(self._fitted(f, y, row_weights, a + 1.0, b, square))

    def _fitted(
        self, f: FloatArray, y: Targets, weights: FloatArray, more: float, b: FloatArray, square: FloatArray
    ) -> FloatArray:
        """Return the mode of the variances (m,) under a prior ∝ x^(-more) exp(-b/x), by the EM algorithm."""
        least = np.finfo(np.float64).eps * square
        for _ in range(_MAX_STEPS):
            expected = weights @ self.at(square)._at(f, y).square * square
            found = np.maximum((b + 0.5 * expected) / (more + 0.5 * weights.sum()), least)
            moved = np.abs(found / square - 1.0)
            square = found
            if (moved <= _TOLERANCE).all():
                break
        return square

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting each output's location, which is fitted by maximum likelihood."""
        likelihood, location = self, row_weights @ self.typical(y) / row_weights.sum()
        for _ in range(_SCALE_STEPS if self.is_sampled else 1):  # location and variance in turn
            if self.is_sampled:
                likelihood = self.fitted(np.broadcast_to(location, y.shape[:2]), y, row_weights)
            location = likelihood._location(location, y, row_weights)
        return likelihood.weighted_log_likelihood(np.broadcast_to(location, y.shape[:2]), y, row_weights)

    def _location(self, location: FloatArray, y: Targets, weights: FloatArray) -> FloatArray:
        """Return the most likely constant of each output, shape (m,), by the EM algorithm from a first one."""
        for _ in range(_MAX_STEPS):
            moved = weights @ self._at(np.broadcast_to(location, y.shape[:2]), y).slope / weights.sum()
            location = location + moved * self.scale_vector(len(location))
            if (np.abs(moved) <= _TOLERANCE).all():
                break
        return location

    def mixture(self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0) -> BoundedMixture:
        """Return the distribution of one target given draws; see `Likelihood.mixture`."""
        return BoundedMixture(*self.located_noise(f, variance, output))

    def crps_rows(self, noisy: FloatArray, y: Targets) -> FloatArray:
        """Return the integral of (F - 1{y <= x})^2 over the x at which the bounds say whether y <= x, shape (n, t).

        That is the survival-CRPS of Avati et al. (2020), Countdown regression; where y is known, the CRPS.
        """
        x, count = np.sort(noisy, axis=0), len(noisy)
        rank = np.arange(count, dtype=np.float64)[:, None, None]
        below = (rank * np.maximum(y[..., 0] - x, 0.0)).sum(axis=0)
        above = ((count - 1 - rank) * np.maximum(x - y[..., 1], 0.0)).sum(axis=0)
        score: FloatArray = 2.0 * (below + above) / (count * (count - 1.0))
        return score


class BoundedMixture(PredictiveMixture):
    """The predictive mixture of one target; methods that take targets take bounds (n, 2) too."""

    def _bounds(self, y: npt.ArrayLike) -> FloatArray:
        """Return bounds (n, 2), from those or from known targets (n,)."""
        given = np.asarray(y, dtype=np.float64)
        if given.shape == (self.n_inputs, 2):
            return given
        return np.repeat(np.broadcast_to(self._targets(y), (self.n_inputs,))[:, None], 2, axis=1)

    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities of less than the lower and of less than the upper bound, each of shape (n,)."""
        below, upto = (
            self.average(self.noise.cdf((bound - self.location) / self.noise.scale)) for bound in self._bounds(y).T
        )
        return below, upto

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of less than y or, of bounds, than the upper one, shape (n,)."""
        return self.step(y)[1]

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log density of y or the log probability of its bounds in each draw, shape (M, n)."""
        return log_density_of_bounds(self.location, np.asarray(self.noise.scale), self._bounds(y))


class _Interval(NamedTuple):
    """The standard normal distribution between bounds: log probability, or log density where they are equal."""

    value: FloatArray
    slope: FloatArray  # the mean between the bounds, which is the derivative of `value` by a shift
    square: FloatArray  # the mean square

    @property
    def information(self) -> FloatArray:
        """Minus the second derivative of `value` by the shift, from 0 to 1."""
        return 1.0 + self.slope**2 - self.square


def log_density_of_bounds(f: FloatArray, scale: FloatArray, y: FloatArray) -> FloatArray:
    """Return log densities, or log probabilities of bounds y (..., 2), under N(f, scale^2)."""
    return _standardised(f, scale, y).value - np.where(y[..., 0] == y[..., 1], np.log(scale), 0.0)


def _standardised(f: FloatArray, scale: FloatArray, y: FloatArray) -> _Interval:
    """Return the terms of bounds y (..., 2) under N(f, scale^2)."""
    u, v = (y[..., 0] - f) / scale, (y[..., 1] - f) / scale
    found = _Interval(-0.5 * u**2 - _HALF_LOG_2_PI, u.copy(), u**2)
    is_open = np.broadcast_to(y[..., 0] < y[..., 1], u.shape)
    if is_open.any():
        width = np.broadcast_to((y[..., 1] - y[..., 0]) / scale, u.shape)
        for whole, part in zip(found, _interval(u[is_open], v[is_open], width[is_open]), strict=True):
            whole[is_open] = part
    return found


def _interval(u: FloatArray, v: FloatArray, width: FloatArray) -> _Interval:
    """Return the terms of bounds u < v, (k,), by the formulas of csrc/shared/normal_interval.hpp in float64."""
    from scipy.special import erfcx

    far = 1e15  # where a bound is infinite, products below are finite
    u, v, width = np.clip(u, -far, far), np.clip(v, -far, far), np.minimum(width, far)
    flips = u + v < 0
    near, other = np.where(flips, -v, u), np.where(flips, -u, v)
    z, h = 0.5 * (near + other), 0.5 * width

    hazard_near, hazard_far = (math.sqrt(2 / math.pi) / erfcx(np.abs(t) / math.sqrt(2)) for t in (near, other))
    share, inside = np.exp(-2.0 * z * h), near < 0
    phi = np.exp(-0.5 * near**2 - _HALF_LOG_2_PI)
    narrow = (h <= 0.5) & (z * h <= 0.5)
    outer = np.where(narrow | inside, 1.0, 1.0 / hazard_near - share / hazard_far)
    inner = np.where(narrow | ~inside, 1.0, 1.0 - phi * (1.0 / hazard_near + share / hazard_far))
    scale = np.where(inside, phi / inner, 1.0 / outer)
    value = np.where(inside, np.log(inner), np.log(outer) - 0.5 * near**2 - _HALF_LOG_2_PI)
    slope, square = (1.0 - share) * scale, 1.0 + (near - other * share) * scale

    # phi(z) 2h S, with S and its moments by Gauss-Legendre quadrature over the interval, whose midpoint is z.
    if narrow.any():
        nodes, weights = np.polynomial.legendre.leggauss(10)
        t, middle = nodes[:, None] * h[narrow], z[narrow]
        density = 0.5 * weights[:, None] * np.exp(-t * (middle + 0.5 * t))
        mass = density.sum(axis=0)
        first, second = (density * t).sum(axis=0) / mass, (density * t**2).sum(axis=0) / mass
        value[narrow] = np.log(width[narrow] * mass) - 0.5 * middle**2 - _HALF_LOG_2_PI
        slope[narrow], square[narrow] = middle + first, middle**2 + 2.0 * middle * first + second
    return _Interval(value, np.where(flips, -slope, slope), square)
