"""Chains in NumPy on the formulas of tests/reference.py, right or broken on purpose.

They show that the rank tests reject what is wrong. They run on `post.log_likelihood_and_grad`, which has tests of its
own; the collapsed one on formulas written out here for one hidden layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
import reference

Array = npt.NDArray[Any]

KERNELS = ("pcn", "pcnl", "mgrad", "elliptical slice")
WRONG_SIGN = "wrong sign"
STALE_AFTER_REJECTION = "gradient stale after a rejection"
STALE_AFTER_ACCEPTANCE = "gradient stale after acceptance"
HALF_STEP = "half the step size in the reverse density"
NO_SLICE = "slice at the height of the state"
NO_DETERMINANT = "no log determinant of Sigma"
STALE_WEIGHTS = "variance drawn from stale output weights"
NOT_REFRESHED = "l and g not refreshed after the variance"
WRONG_SHAPE = "scales drawn with the shape of twice as many parameters"
SAME_WHITENED = "whitened coordinates kept, not theta, when the scales change"
ROUNDED_IN_PROPOSAL = "gradient rounded in the proposal, exact in the acceptance ratio"
ROUNDED_AT_STATE = "gradient rounded at the state, exact at the proposed point"
NOT_TURNED = "noise not turned round after a rejection"
GRADIENT_FAULTS = (WRONG_SIGN, STALE_AFTER_REJECTION, STALE_AFTER_ACCEPTANCE, HALF_STEP)
ONE_END_FAULTS = (ROUNDED_IN_PROPOSAL, ROUNDED_AT_STATE)
FAULTS = (*GRADIENT_FAULTS, NO_SLICE, NO_DETERMINANT, STALE_WEIGHTS, NOT_REFRESHED, WRONG_SHAPE, SAME_WHITENED)


def rounded(x: Array, bits: int) -> Array:
    """Round float64 x to `bits` significant bits, the leading one included, ties to even: bfloat16 has 8, TF32 11."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits))


@dataclass(frozen=True)
class GradientRounding:
    """The gradients of a step that rounds them to `bits` significant bits (None: not at all).

    The right step has the rounded gradient in the proposal and at both ends of the acceptance ratio; with a fault some
    of these are exact.
    """

    bits: int | None
    fault: str | None = None

    def __call__(self, g: Array, unit: float = 1.0) -> Array:
        """g rounded as a multiple of 1 / unit."""
        return g if self.bits is None else rounded(g * unit, self.bits) / unit

    def kept(self, g: Array, unit: float = 1.0) -> Array:
        """What the chain keeps of g at its state, and the ratio uses there."""
        return g if self.fault == ROUNDED_IN_PROPOSAL else self(g, unit)

    def returning(self, g: Array, unit: float = 1.0) -> Array:
        """What the ratio uses of g at the proposed point."""
        return g if self.fault in ONE_END_FAULTS else self(g, unit)


class PlainTarget:
    """l and g of a posterior over all of theta.

    With `sampled` the posterior's own noise variance must be 1, from which those of any other follow.
    """

    def __init__(self, post: pn.Posterior, *, sampled: bool) -> None:
        self._post, self._sampled = post, sampled
        self.dim = post.dim
        self._constant = 0.5 * post.data.y.size * np.log(2 * np.pi)

    def evaluate(self, theta: Array, variance: float) -> tuple[float, Array]:
        """l and g at theta."""
        value, gradient = self._post.log_likelihood_and_grad(theta, threads=1)
        if not self._sampled:
            return float(value), gradient
        squares = -2 * (float(value) + self._constant)
        value = -0.5 * squares / variance - 0.5 * self._post.data.y.size * np.log(2 * np.pi * variance)
        return value, gradient / variance


class CollapsedTarget:
    """log p(y | theta_h) and its gradient for `Full()` on d-N-1, tanh, without row weights, up to a constant."""

    def __init__(self, post: pn.Posterior, *, determinant: bool = True) -> None:
        width = post.network.net.layer_sizes[1]
        self.dim = post.dim - width - 1
        self._X, self._y, self._width, self._determinant = post.data.X, post.data.y[:, 0], width, determinant
        self.set_prior_variance(post.prior_variance)

    def set_prior_variance(self, prior_variance: Array) -> None:
        """Take other variances of theta, (K,)."""
        self._precision = 1 / prior_variance[self.dim :]

    def features(self, theta_hidden: Array) -> Array:
        """Phi, (n, N + 1)."""
        split = self._width * self._X.shape[1]
        weights = theta_hidden[:split].reshape(self._width, -1)
        hidden = np.tanh(self._X @ weights.T + theta_hidden[split:])
        return np.column_stack([hidden, np.ones(len(hidden))])

    def conditional(self, phi: Array, variance: float) -> tuple[Array, Array]:
        """m and Sigma of the output weights."""
        gram = phi.T @ phi / variance
        gram.flat[:: len(gram) + 1] += self._precision
        sigma = np.linalg.inv(gram)
        return sigma @ (phi.T @ self._y) / variance, sigma

    def evaluate(self, theta_hidden: Array, variance: float) -> tuple[float, Array]:
        """Log marginal likelihood and its gradient at theta_h."""
        phi = self.features(theta_hidden)
        m, sigma = self.conditional(phi, variance)
        away = self._y - phi @ m
        value = -0.5 * away @ away / variance - 0.5 * m @ (self._precision * m)
        value -= 0.5 * len(away) * np.log(2 * np.pi * variance)
        slope = np.outer(away, m)
        if self._determinant:
            value += 0.5 * np.linalg.slogdet(sigma)[1]
            slope -= phi @ sigma
        below = (slope[:, :-1] / variance) * (1 - phi[:, :-1] ** 2)
        return float(value), np.concatenate([(below.T @ self._X).ravel(), below.sum(axis=0)])

    def draw(self, theta_hidden: Array, variance: float, rng: np.random.Generator) -> Array:
        """(theta_h, a) with a ~ N(m, Sigma)."""
        m, sigma = self.conditional(self.features(theta_hidden), variance)
        return np.concatenate([theta_hidden, m + np.linalg.cholesky(sigma) @ rng.standard_normal(len(m))])


@dataclass(frozen=True)
class Twin:
    """A chain as `rank_test.ranks` runs it, kept every `thin` steps.

    Attributes
    ----------
    kernel : str
        One of KERNELS.
    step_size : float
        beta or delta; elliptical slice has none.
    collapse : bool
        Run on theta_h, for posteriors that `CollapsedTarget` takes.
    noise : (a, b), optional
        Sample the noise variance; the posterior's own must then be 1.
    scales : bool
        Sample the scales of the posterior's prior; they are drawn first, given the starting point.
    fault : str, optional
        What is broken.
    bits : int, optional
        Round gradients to so many significant bits. The kept gradient is then rescaled when the noise variance changes.
    """

    kernel: str
    step_size: float
    thin: int
    collapse: bool = False
    noise: tuple[float, float] | None = None
    scales: bool = False
    fault: str | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        known = FAULTS if self.bits is None else ONE_END_FAULTS
        if self.kernel not in KERNELS or self.fault not in (None, *known):
            raise ValueError(f"kernel must be one of {KERNELS} and fault of {known}; got {self}.")
        if self.bits is not None and (self.collapse or self.scales):
            raise ValueError(f"bits is for chains on theta with fixed scales; got {self}.")

    def __call__(self, post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        """Run from theta (K,) and return the next states, (states, K)."""
        collapsed = CollapsedTarget(post, determinant=self.fault != NO_DETERMINANT) if self.collapse else None
        target = collapsed or PlainTarget(post, sampled=self.noise is not None)
        full, kept = theta.astype(np.float64), []
        variance = self._fixed_variance(post) if self.noise is None else self._variance(post, full, rng)
        u = full[: target.dim]
        c = self._prior_variance(post, full, rng) if self.scales else post.prior_variance
        if collapsed is not None:
            collapsed.set_prior_variance(c)
        l_u, g_u = target.evaluate(u, variance)
        g_u = self._rounding.kept(g_u, self._unit(variance))
        for step in range(states * self.thin):
            u, l_u, g_u = self._step(target, c[: target.dim], u, l_u, g_u, variance, rng)
            keep = (step + 1) % self.thin == 0
            if collapsed is None:
                full = u
            elif self.noise is None and not self.scales:
                full = collapsed.draw(u, variance, rng) if keep else full
            elif self.fault == STALE_WEIGHTS:
                full = np.concatenate([u, full[target.dim :]])
            else:
                full = collapsed.draw(u, variance, rng)
            if self.noise is not None:
                old, variance = variance, self._variance(post, full, rng)
                if collapsed is not None and self.fault == STALE_WEIGHTS:
                    full = collapsed.draw(u, old, rng)
                if self.bits is not None:
                    l_u, g_u = target.evaluate(u, variance)[0], g_u * (old / variance)
                elif self.fault != NOT_REFRESHED:
                    l_u, g_u = target.evaluate(u, variance)
            if self.scales:
                before, c = c, self._prior_variance(post, full, rng)
                if collapsed is not None:
                    collapsed.set_prior_variance(c)
                if self.fault == SAME_WHITENED:
                    u = u * np.sqrt(c / before)[: target.dim]
                l_u, g_u = target.evaluate(u, variance)
            if keep:
                kept.append(full)
        return np.asarray(kept)

    def _step(
        self, target: Any, c: Array, u: Array, l_u: float, g_u: Array, variance: float, rng: np.random.Generator
    ) -> tuple[Array, float, Array]:
        """One transition given C and the noise variance: the next state, its l and the g that the next step uses."""
        if self.kernel == "elliptical slice":
            return self._slice(target, c, u, l_u, variance, rng)
        delta, unit = self.step_size, self._unit(variance)
        back = delta / 2 if self.fault == HALF_STEP else delta
        wrong = self.fault == WRONG_SIGN
        noise, drift = rng.standard_normal(len(u)), self._rounding(g_u, unit)
        if self.kernel == "pcn":
            v = reference.pcn_proposal(u, c, noise, delta)
        elif self.kernel == "pcnl":
            v = reference.pcnl_proposal(u, drift, c, noise, delta)
        else:
            v = reference.mgrad_proposal(u, drift, c, noise, delta)
        l_v, exact = target.evaluate(v, variance)
        g_v = self._rounding.returning(exact, unit)
        if self.kernel == "pcn":
            log_ratio = l_v - l_u
        elif self.kernel == "pcnl":
            there = reference.pcnl_rho(l_u, g_u, u, v, c, delta, printed=wrong)
            log_ratio = there - reference.pcnl_rho(l_v, g_v, v, u, c, back, printed=wrong)
        else:
            h = reference.mgrad_h(u, v, g_v, c, back) - reference.mgrad_h(v, u, g_u, c, delta)
            log_ratio = l_v - l_u + (-h if wrong else h)
        g_v = self._rounding.kept(exact, unit)
        if np.log(rng.random()) < log_ratio:
            return v, l_v, g_u if self.fault == STALE_AFTER_ACCEPTANCE else g_v
        return u, l_u, g_v if self.fault == STALE_AFTER_REJECTION else g_u

    @property
    def _rounding(self) -> GradientRounding:
        return GradientRounding(self.bits, self.fault)

    def _unit(self, variance: float) -> float:
        """What makes g free of the noise variance where that is sampled, so that rescaling commutes with rounding."""
        return 1.0 if self.noise is None else variance

    def _slice(
        self, target: Any, c: Array, u: Array, l_u: float, variance: float, rng: np.random.Generator
    ) -> tuple[Array, float, Array]:
        """Elliptical slice (Murray, Adams & MacKay 2010): shrink the angle until l is above the slice."""
        w = np.sqrt(c) * rng.standard_normal(len(u))
        height = l_u + (0.0 if self.fault == NO_SLICE else np.log(rng.random()))
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            v = u * np.cos(angle) + w * np.sin(angle)
            l_v, g_v = target.evaluate(v, variance)
            if l_v > height or high - low < 1e-12:
                return v, l_v, g_v
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)

    def _prior_variance(self, post: pn.Posterior, theta: Array, rng: np.random.Generator) -> Array:
        """C after a draw of the scales given theta, each inverse-gamma with shape a + K_g / 2."""
        groups = post.network.scales
        assert groups is not None
        squares = np.bincount(groups.group, theta**2 / post.prior_variance)
        counts = np.bincount(groups.group) * (2 if self.fault == WRONG_SHAPE else 1)
        factors = (groups.a + 0.5 * squares) / rng.gamma(groups.a + 0.5 * counts)
        return np.asarray(post.prior_variance * factors[groups.group])

    @staticmethod
    def _fixed_variance(post: pn.Posterior) -> float:
        return float(getattr(post.likelihood, "variance", np.nan))

    def _variance(self, post: pn.Posterior, theta: Array, rng: np.random.Generator) -> float:
        """sigma^2 given the residuals, whose squares are read off l at unit variance: inverse gamma."""
        assert self.noise is not None
        a, b = self.noise
        squares = -2 * float(post.log_likelihood(theta, threads=1)) - post.data.y.size * np.log(2 * np.pi)
        return float((b + 0.5 * squares) / rng.gamma(a + 0.5 * post.data.y.size))


@dataclass(frozen=True)
class PersistentTwin:
    """A chain of mGrad with persistent noise, whose states are blocks of `steps` steps; see `rank_test.native_blocks`.

    Attributes
    ----------
    bits : int, optional
        Round gradients to so many significant bits.
    fault : str, optional
        NOT_TURNED or one of ONE_END_FAULTS.
    """

    step_size: float
    steps: int
    persistence: float = 0.9
    bits: int | None = None
    fault: str | None = None

    def __call__(self, post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        """Run from theta (K,) in whitened coordinates and return the next states, (states, K)."""
        scale = np.sqrt(post.prior_variance)
        s = self.step_size / (self.step_size + 2 * post.prior_variance)
        c, k = 1 - s, np.sqrt(s / (2 - s))
        a, sine = self.persistence * c, np.sqrt(s * (2 - s))
        rounding = GradientRounding(self.bits, self.fault)

        def evaluate(x: Array) -> tuple[float, Array]:
            value, g = post.log_likelihood_and_grad(scale * x, threads=1)
            return float(value), np.asarray(g, dtype=np.float64)

        x, kept = theta.astype(np.float64) / scale, []
        value, g = evaluate(x)
        g = rounding.kept(g)
        for _ in range(states):
            p, t = rng.standard_normal(len(x)), rng.uniform(-1, 1)
            for _ in range(self.steps):
                p = a * p + np.sqrt(1 - a**2) * rng.standard_normal(len(x))
                y = c * x + sine * (p + k * scale * rounding(g))
                value_y, g_y = evaluate(y)
                p_y = c * (p + k * scale * g) - sine * x + k * scale * rounding.returning(g_y)
                # The energy of (x, p), which the map would keep were its steps small.
                log_ratio = value_y - value + 0.5 * (p @ p - p_y @ p_y) + 0.5 * (x @ x - y @ y)
                t += 0.1 * (0.95 + 0.1 * rng.random())
                t -= 2 * (t > 1)
                ratio = np.exp(min(log_ratio, 700.0))
                if abs(t) < ratio:
                    x, value, g, p, t = y, value_y, rounding.kept(g_y), p_y, t / ratio
                elif self.fault != NOT_TURNED:
                    p = -p
            kept.append(scale * x)
        return np.asarray(kept)
