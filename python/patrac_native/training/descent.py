"""The descent of a network's penalised loss, an epoch at a time; loss and gradient are the compiled model's."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.splits import IndexArray
from patrac_native.engine import _core
from patrac_native.engine.machine import thread_count
from patrac_native.engine.models import CoreModel, ModelSpec, host_model
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.extras import import_extra

OPTIMIZERS = {"adam": "Adam", "nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "sgd": "SGD", "lbfgs": "LBFGS"}

RealArray = npt.NDArray[Any]  # in the dtype of the arithmetic
Evaluate = Callable[[], tuple[float, RealArray]]  # of loss and gradient (p,) at the current parameters

# An evaluation of fewer multiply-adds than this has one thread; the engine's results do not depend on their number.
_ONE_THREAD_BELOW = 50_000_000
# The process that imported this. One that is forked from it lacks torch's other threads, for which torch would wait
# forever.
_PROCESS = os.getpid()


@dataclass(frozen=True)
class Problem:
    """A network to be trained: its shape, its data, and how a step is made."""

    sizes: tuple[int, ...]  # widths (d, hidden layers, m)
    activation: str
    likelihood: Likelihood
    inputs: FloatArray  # (n, d)
    targets: npt.NDArray[Any]  # as `Likelihood.check_targets` returns them
    row_weights: FloatArray  # (n,), factors of each row's term of the log-likelihood
    optimizer: Any  # one of `OPTIMIZERS`, or a class
    learning_rate: float
    batch_size: int  # number of rows, at most n
    seed: int  # of the initial parameters and of the mini-batches
    validation_seed: int  # of the validation rows, and the seed of the networks that these validate
    dtype: str
    left_out: FloatArray | None = None  # (n,), weights of rows that are left out of the training to validate it
    offset: FloatArray | None = None  # (n, m), added to the outputs of each row
    groups: IndexArray | None = None  # (n,), of rows that validation does not divide

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return len(self.inputs)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes of the weights of each layer."""
        return list(zip(self.sizes[1:], self.sizes[:-1], strict=True))

    def threads(self, rows: int, most: int | None) -> int:
        """Return the number of threads of an evaluation of rows, at most `most`, by default that of processors."""
        work = rows * sum(a * b for a, b in self.shapes)
        return 1 if work < _ONE_THREAD_BELOW else thread_count(most)

    @cached_property
    def _cast_inputs(self) -> RealArray:
        """The inputs in the dtype of the arithmetic; with too large ones, infinite there, no loss is finite."""
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(self.inputs, dtype=self.dtype)

    def compiled(self, weights: FloatArray, rows: IndexArray | None = None) -> CoreModel:
        """Return the log-likelihood of rows, by default of those with a weight, in all parameters (p,) of the network.

        The weights are those of the rows, or by default of all rows (n,).
        """
        if rows is None:
            rows = np.flatnonzero(weights)
            weights = weights[rows]
        likelihood, m, y = self.likelihood, self.sizes[-1], self.targets[rows]
        spec = ModelSpec(
            self.activation,
            weights=[np.zeros(shape) for shape in self.shapes],
            biases=[np.zeros(a) for a, _ in self.shapes],
            weight_masks=[np.ones(shape, dtype=bool) for shape in self.shapes],
            bias_masks=[np.ones(a, dtype=bool) for a, _ in self.shapes],
            companion=None,
            likelihood=likelihood.core_name or likelihood.name,
            likelihood_parameters=likelihood.training_parameters(m, y, weights),
        )
        targets = likelihood.core_targets(y, None if self.offset is None else self.offset[rows])
        dtype, level = np.dtype(self.dtype), _core.default_simd_level()
        return host_model(spec, self._cast_inputs[rows], targets, weights, dtype=dtype, level=level)

    def losses(self, net: Network, rows: IndexArray) -> FloatArray:
        """Return the negative log-likelihoods of rows (r,) under a network, unweighted."""
        offset = None if self.offset is None else self.offset[rows]
        f = self.likelihood.with_offset(net.predict(self.inputs[rows]), offset)
        return -self.likelihood.log_likelihood_rows(f, self.targets[rows])

    def network(self, theta: RealArray) -> Network:
        """Return the network with the parameters theta (p,)."""
        shapes = [shape for a, b in self.shapes for shape in ((a, b), (a,))]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        values = np.split(theta.astype(np.float64), ends)
        parts = [part.reshape(shape) for part, shape in zip(values, shapes, strict=True)]
        return Network(parts[0::2], parts[1::2], self.activation)


class Epoch(NamedTuple):
    """What an epoch began with: parameters (p,) and their penalised loss."""

    theta: RealArray
    loss: float


class Descent:
    """The training of a network under row weights (n,), by default the problem's, on at most `threads` threads.

    The loss is sum_r w_r nll_r + (l2 / 2) * squared norm of the parameters; the sum over a mini-batch is scaled by
    n / batch_size.
    """

    def __init__(
        self, problem: Problem, l2: float, weights: FloatArray | None = None, *, threads: int | None = None
    ) -> None:
        self._problem, self._l2 = problem, float(l2)
        self._threads, self._batch_threads = (problem.threads(n, threads) for n in (problem.n_rows, problem.batch_size))
        self._weights = problem.row_weights if weights is None else weights
        self._rng = np.random.RandomState(problem.seed % 2**32)
        self._theta = _initial_parameters(problem.shapes, self._rng, problem.dtype)
        start = problem.likelihood.initial_outputs(problem.targets, self._weights, problem.offset)
        if start is not None:  # the vector of parameters ends with the biases of the last layer
            self._theta[-problem.sizes[-1] :] = start
        # Of mini-batches, the noise of whose updates does not fall with a constant learning rate, the parameters are a
        # running mean (Polyak & Juditsky 1992), in which update t has the share 1 / min(t, b) of b batches in an epoch:
        # the plain mean in the first epoch, and an exponential one from then on.
        self._mean, self._updates = self._theta.copy(), 0
        self._whole = problem.compiled(self._weights)
        self._step = _make_optimizer(problem.optimizer, self._theta, problem.learning_rate)

    def epoch(self) -> Epoch:
        """Evaluate the loss of the current parameters, then update them once for each batch; see `_mean`."""
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is said in words
            return self._by_batches() if self._problem.batch_size < self._problem.n_rows else self._by_all_rows()

    def _by_all_rows(self) -> Epoch:
        """Update the parameters once."""
        before, losses = self._theta.copy(), list[float]()

        def evaluate() -> tuple[float, RealArray]:
            loss, gradient = self._value_and_grad(self._whole)
            losses.append(loss)
            return loss, gradient

        self._step(evaluate)  # which may evaluate several times; the first is at the parameters before it
        return Epoch(before, losses[0])

    def _by_batches(self) -> Epoch:
        """Update the parameters once for each mini-batch."""
        problem, before = self._problem, self._mean.copy()
        loss = self._penalty(before) - float(self._whole.log_likelihood(before[None], self._threads)[0])
        order, size = self._rng.permutation(problem.n_rows), problem.batch_size
        batches = [order[start : start + size] for start in range(0, problem.n_rows, size)]
        for rows in batches:
            used = rows[self._weights[rows] > 0]
            scaled = self._weights[used] * (problem.n_rows / len(rows))
            model = problem.compiled(scaled, used) if len(used) else None
            self._step(partial(self._value_and_grad, model))
            self._updates += 1
            self._mean += (self._theta - self._mean) / min(self._updates, len(batches))
        return Epoch(before, loss)

    def _penalty(self, theta: RealArray) -> float:
        """Return (l2 / 2) * squared norm."""
        return 0.5 * self._l2 * float(theta @ theta)

    def _value_and_grad(self, model: CoreModel | None) -> tuple[float, RealArray]:
        """Return the penalised loss of the model's rows, or of none, at the current parameters, and its gradient."""
        if model is None:
            return self._penalty(self._theta), self._l2 * self._theta
        values, gradients = model.log_likelihood_and_grad(self._theta[None], self._batch_threads)
        return self._penalty(self._theta) - float(values[0]), self._l2 * self._theta - gradients[0]


def check_optimizer(choice: Any) -> None:
    """Raise ValueError unless `choice` is a name of `OPTIMIZERS` or a torch optimiser class."""
    known = isinstance(choice, str) and choice.lower() in OPTIMIZERS
    if isinstance(choice, type) and "torch" in sys.modules:  # without torch there is no such class
        known = issubclass(choice, sys.modules["torch"].optim.Optimizer)
    if not known:
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)} or a torch.optim.Optimizer class; got {choice!r}."
        )


def _make_optimizer(choice: Any, theta: RealArray, learning_rate: float) -> Callable[[Evaluate], None]:
    """Return a function that updates the parameters theta in place, once for each call."""
    if isinstance(choice, str) and choice.lower() == "adam":
        return _Adam(theta, learning_rate)
    return _TorchOptimizer(choice, theta, learning_rate)


class _Adam:
    """Adam with its authors' constants (Kingma & Ba 2015, algorithm 1)."""

    def __init__(self, theta: RealArray, learning_rate: float) -> None:
        self._theta, self._learning_rate, self._count = theta, learning_rate, 0
        self._mean, self._square, self._step = (np.zeros_like(theta) for _ in range(3))

    def __call__(self, evaluate: Evaluate) -> None:
        _, gradient = evaluate()
        self._count += 1
        mean, square, step = self._mean, self._square, self._step
        # In place, since new arrays would take as long as the gradient of a small network.
        mean += np.multiply(np.subtract(gradient, mean, out=step), 1 - 0.9, out=step)
        square += np.multiply(np.subtract(np.square(gradient, out=step), square, out=step), 1 - 0.999, out=step)
        np.sqrt(square, out=step)
        step /= math.sqrt(1 - 0.999**self._count)
        step += 1e-8
        np.divide(mean, step, out=step)
        step *= self._learning_rate / (1 - 0.9**self._count)
        self._theta -= step


class _TorchOptimizer:
    """An optimiser of torch, whose parameter shares the memory of theta."""

    def __init__(self, choice: Any, theta: RealArray, learning_rate: float) -> None:
        self._torch = torch = import_extra("torch", "torch", f"optimizer={choice!r}")
        factory = getattr(torch.optim, OPTIMIZERS[choice.lower()]) if isinstance(choice, str) else choice
        with torch.device("cpu"), torch.inference_mode(False):
            self._parameter = torch.from_numpy(theta).requires_grad_()
            self._optimizer = factory([self._parameter], lr=learning_rate)

    def __call__(self, evaluate: Evaluate) -> None:
        torch = self._torch

        def closure() -> float:
            loss, gradient = evaluate()
            self._parameter.grad = torch.from_numpy(gradient)
            return loss

        if os.getpid() != _PROCESS:
            torch.set_num_threads(1)
        with torch.device("cpu"), torch.inference_mode(False):
            self._optimizer.step(closure)


def _initial_parameters(shapes: Sequence[tuple[int, int]], rng: np.random.RandomState, dtype: str) -> RealArray:
    """Draw all parameters as one vector (p,); weights and biases are uniform on +-1/sqrt(fan-in).

    They are those of torch's modules: its uniform numbers are the low bits of the generator's words.
    """
    parts = []
    for a, b in shapes:
        words = rng.randint(0, 2**32, size=(a * b + a, 1 if dtype == "float32" else 2), dtype=np.uint32)
        bits, numbers = 24, words[:, -1]
        if dtype == "float64":
            bits, numbers = 53, (words[:, 0].astype(np.uint64) << np.uint64(32)) + numbers
        uniform = (numbers % numbers.dtype.type(2**bits)).astype(dtype) / np.dtype(dtype).type(2**bits)
        parts.append((2 * uniform - 1) / np.dtype(dtype).type(b**0.5))
    return np.concatenate(parts)
