"""Acceptance rate and effective draws of steps whose gradient is rounded, beside those with the exact one.

`python bench/ess/gradient_rounding.py --data FOLDER --out FILE` runs chains in float64 NumPy on all parameters of a
small network. It rounds either the entries of the gradient or, as matrix units of a device would, the operands of the
products of the reverse pass, whose sums stay exact. The log-likelihood is exact. Step sizes are those chosen with the
exact gradient; errors are from the spread over independent chains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[2] / folder) for folder in ("bench", "tests", "tests/statistical")]

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
import numpy.typing as npt
from harness import print_about, write_json
from sklearn.datasets import load_diabetes
from twins import rounded
from uci_sets import load_split, standardised

import patrac_native as pn
from patrac_native.diagnostics import ess_geyer

Array = npt.NDArray[np.float64]
Evaluate = Callable[[Array], tuple[Array, Array]]  # theta (chain, K) -> l (chain,), g (chain, K)

NODES = 8
PERSISTENCE = 0.9
# Kernel, rate at which the step size is chosen.
KERNELS = {"pCNL": 0.6, "mGrad": 0.6, "mGrad, persistent noise": 0.85}
# Name, significant bits, whether the operands are rounded rather than the gradient.
GRADIENTS: dict[str, tuple[int | None, bool]] = {
    "exact": (None, False),
    "11 bits": (11, False),
    "11 bits, operands": (11, True),
    "8 bits": (8, False),
    "8 bits, operands": (8, True),
    "2 bits": (2, False),
}


def posterior(name: str, data: Path) -> pn.Posterior:
    """Return the posterior of all parameters of d-NODES-1 on a standardised set, the noise that of the residuals."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    else:
        split = standardised(load_split(data, name, 0))
        X, y = split.X, split.y
    net = pn.train([X.shape[1], NODES, 1], X, y, seed=0, progress=False)
    variance = float(np.mean((y[:, None] - net.predict(X)) ** 2))
    return pn.Posterior(net, pn.Full(), pn.TraceClassPrior.fit(net), pn.Gaussian(variance), X, y, dtype="float64")


def evaluator(post: pn.Posterior, bits: int | None, operands: bool) -> Evaluate:
    """Return l and g of many theta at once, with one hidden layer of tanh."""
    X, y, variance = post.data.X, post.data.y[:, 0], float(post.likelihood.variance)
    d = X.shape[1]
    constant = 0.5 * len(y) * np.log(2 * np.pi * variance)

    def operand(x: Array) -> Array:
        return rounded(x, bits) if operands and bits else x

    rounded_X = operand(X)

    def evaluate(theta: Array) -> tuple[Array, Array]:
        w = theta[:, : NODES * d].reshape(-1, NODES, d)
        biases, out = theta[:, NODES * d : NODES * (d + 1)], theta[:, NODES * (d + 1) : -1]
        a = np.tanh(X @ w.transpose(0, 2, 1) + biases[:, None])
        residual = y - (a @ out[:, :, None])[:, :, 0] - theta[:, -1:]
        value = -0.5 * (residual**2).sum(axis=1) / variance - constant
        # In units free of the variance.
        delta = operand(residual)
        below = operand(delta[:, :, None] * operand(out)[:, None] * (1 - a**2))
        g = np.concatenate(
            [
                (below.transpose(0, 2, 1) @ rounded_X).reshape(len(theta), -1),
                below.sum(axis=1),
                (delta[:, None] @ operand(a))[:, 0],
                delta.sum(axis=1, keepdims=True),
            ],
            axis=1,
        )
        return value, (rounded(g, bits) if bits and not operands else g) / variance

    return evaluate


def run(
    evaluate: Evaluate, kernel: str, delta: float, C: Array, start: Array, steps: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Run a kernel from start (chain, K): acceptance rates (chain,) and states (chain, steps, K), x = theta / C^(1/2).

    All kernels are the one transition of docs/method.md, section 6, written with the noise as a momentum.
    """
    scale = np.sqrt(C)
    s = np.full(len(C), 2 * delta / (2 + delta)) if kernel == "pCNL" else delta / (delta + 2 * C)
    c, k, sine = 1 - s, np.sqrt(s / (2 - s)), np.sqrt(s * (2 - s))
    persists = kernel.endswith("noise")
    a = PERSISTENCE * c if persists else np.zeros(len(C))
    x = start / scale
    value, g = evaluate(start)
    p, t = rng.standard_normal(x.shape), rng.uniform(-1, 1, len(x))
    accepted, states = np.zeros(len(x)), np.empty((len(x), steps, len(C)), dtype=np.float32)
    for step in range(steps):
        p = a * p + np.sqrt(1 - a**2) * rng.standard_normal(x.shape)
        kicked = p + k * scale * g
        v = c * x + sine * kicked
        value_v, g_v = evaluate(scale * v)
        p_v = c * kicked - sine * x + k * scale * g_v
        log_ratio = value_v - value + 0.5 * (p**2 - p_v**2 + x**2 - v**2).sum(axis=1)
        ratio = np.exp(np.minimum(log_ratio, 700.0))
        if persists:
            t += 0.1 * (0.95 + 0.1 * rng.random(len(x)))
            t -= 2 * (t > 1)
            accept = np.abs(t) < ratio
            t = np.where(accept, t / np.maximum(ratio, 1e-300), t)
        else:
            accept = rng.random(len(x)) < ratio
        take = accept[:, None]
        x, g, p = np.where(take, v, x), np.where(take, g_v, g), np.where(take, p_v, -p)
        value = np.where(accept, value_v, value)
        accepted += accept
        states[:, step] = x
    return accepted / steps, states


def step_size(evaluate: Evaluate, kernel: str, C: Array, start: Array, rng: np.random.Generator) -> float:
    """Return the step size with which the exact gradient has the kernel's rate."""
    delta = 0.01
    for turn in range(1, 31):
        rate = run(evaluate, kernel, delta, C, start, 60, rng)[0].mean()
        delta = min(delta * float(np.exp(4 * (rate - KERNELS[kernel]) / np.sqrt(turn))), 2.0)
    return delta


def mean_and_error(values: Array) -> list[float]:
    """Mean over chains and its standard error."""
    return [float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))]


def effective(states: Array, post: pn.Posterior) -> Array:
    """Effective draws of each chain for 1,000 steps, of f at 20 rows."""
    chains, steps, _ = states.shape
    kept = states[:, ::10]
    theta = kept.reshape(-1, post.dim) * np.sqrt(post.prior_variance)
    f = post.network.predict(theta, post.data.X[:20], threads=1).reshape(chains, kept.shape[1], -1)
    return np.asarray(ess_geyer(f, per_chain=True)) * 1000 / steps


def main() -> int:
    """Measure all and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the UCI sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["diabetes", "boston"])
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_args()
    print_about()
    found: list[dict[str, Any]] = []
    for name in options.sets:
        post = posterior(name, options.data)
        C = post.prior_variance
        start = np.asarray(
            pn.sample(post, chains=options.chains, draws=1, seed=1, threads=1, progress=False).theta[:, 0]
        )
        exact = evaluator(post, None, False)
        value, g = exact(start[:2])
        there = post.log_likelihood_and_grad(start[0], threads=1)
        np.testing.assert_allclose(value[0], there[0], rtol=1e-9)
        np.testing.assert_allclose(g[0], there[1], rtol=1e-7, atol=1e-7)
        for kernel in KERNELS:
            delta = step_size(exact, kernel, C, start, np.random.default_rng(2))
            for label, (bits, operands) in GRADIENTS.items():
                evaluate = evaluator(post, bits, operands)
                rates, states = run(evaluate, kernel, delta, C, start, options.steps, np.random.default_rng(3))
                row = {"set": name, "kernel": kernel, "gradient": label, "step_size": delta, "K": post.dim}
                row |= {"acceptance": mean_and_error(rates), "effective": mean_and_error(effective(states, post))}
                found.append(row)
                print(row, flush=True)
                write_json(options.out, {"chains": options.chains, "steps": options.steps, "rows": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
