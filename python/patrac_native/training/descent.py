"""The descent of a network's penalised loss, an epoch at a time; loss and gradient are the compiled model's."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
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
# Bounds on the epochs, and on their multiply-adds, of one call of the core. The last call of a training goes on beyond
# its end.
_CALL_EPOCHS, _CALL_WORK = 16, 100_000_000
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
    """The losses of k networks before their update in an epoch, and the best parameters so far."""

    losses: FloatArray  # (k,), penalised
    best_theta: RealArray  # (k, p), at the lowest loss of each network
    unseen_losses: FloatArray  # (k,), those of unseen rows at `best_theta`, without penalty; infinite without such rows


class Descent:
    """The training of k networks in step, each under row weights (n,) of its own, on at most `threads` threads.

    `weights` (k, n) are by default those of the problem, for one network; `unseen_weights` (k, n) those of the rows by
    which it is judged. A loss is sum_r w_r nll_r + (l2 / 2) * squared norm of the parameters; the sum over a mini-batch
    is scaled by n / batch_size.
    """

    def __init__(
        self,
        problem: Problem,
        l2: float,
        weights: FloatArray | None = None,
        unseen_weights: FloatArray | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        self._problem, self._l2, self._max_threads = problem, float(l2), threads
        self._weights = problem.row_weights[None] if weights is None else weights
        self._unseen_models = [] if unseen_weights is None else [problem.compiled(part) for part in unseen_weights]

    def epochs(self, max_epochs: int | None = None) -> Iterator[Epoch]:
        """Train from the start, and yield the epochs, at most so many; those of Adam on all rows are the core's."""
        if _is_adam(self._problem.optimizer) and self._problem.batch_size == self._problem.n_rows:
            return self._compiled_epochs(max_epochs)
        return self._stepped_epochs(max_epochs)

    def _compiled_epochs(self, max_epochs: int | None) -> Iterator[Epoch]:
        """Run several epochs in a call, which would otherwise take as long as the gradient of a small network."""
        problem = self._problem
        starts = np.array([_start(problem, weights)[0] for weights in self._weights])
        build: Any = _core.Descent32 if problem.dtype == "float32" else _core.Descent64
        trained = [problem.compiled(weights) for weights in self._weights]
        core = build(
            trained=trained, unseen=self._unseen_models, theta=starts, l2=self._l2, learning_rate=problem.learning_rate
        )
        threads = problem.threads(problem.n_rows, self._max_threads)
        at_once = 1 if threads > 1 else thread_count(self._max_threads)
        per_call = max(1, min(_CALL_EPOCHS, _CALL_WORK // (starts.size * problem.n_rows)))
        done = 0
        while max_epochs is None or done < max_epochs:
            count = per_call if max_epochs is None else min(per_call, max_epochs - done)
            yield from map(Epoch, *core.run(count, at_once=at_once, threads=threads))
            done += count

    def _stepped_epochs(self, max_epochs: int | None) -> Iterator[Epoch]:
        """Train each network by steps of any optimiser, on all rows or on mini-batches."""
        problem, k = self._problem, len(self._weights)
        networks = [_Stepped(problem, self._l2, weights, self._max_threads) for weights in self._weights]
        threads = problem.threads(problem.n_rows, self._max_threads)
        best = [network.theta.copy() for network in networks]
        best_losses, unseen_losses = np.full(k, math.inf), np.full(k, math.inf)
        for _ in itertools.count() if max_epochs is None else range(max_epochs):
            losses = np.empty(k)
            for index, network in enumerate(networks):
                with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is said in words
                    theta, losses[index] = network.epoch()
                if losses[index] < best_losses[index]:  # False for NaN
                    best_losses[index], best[index] = losses[index], theta
                    if self._unseen_models:
                        unseen_losses[index] = -self._unseen_models[index].log_likelihood(theta[None], threads)[0]
            yield Epoch(losses, np.array(best), unseen_losses.copy())


class _Stepped:
    """The training of one network by steps of an optimiser, an epoch at a time."""

    def __init__(self, problem: Problem, l2: float, weights: FloatArray, threads: int | None) -> None:
        self._problem, self._l2, self._weights = problem, l2, weights
        self._threads, self._batch_threads = (problem.threads(n, threads) for n in (problem.n_rows, problem.batch_size))
        self.theta, self._rng = _start(problem, weights)
        # Of mini-batches, the noise of whose updates does not fall with a constant learning rate, the parameters are a
        # running mean (Polyak & Juditsky 1992), in which update t has the share 1 / min(t, b) of b batches in an epoch:
        # the plain mean in the first epoch, and an exponential one from then on.
        self._mean, self._updates = self.theta.copy(), 0
        self._whole = problem.compiled(weights)
        self._step = _make_optimizer(problem.optimizer, self.theta, problem.learning_rate)

    def epoch(self) -> tuple[RealArray, float]:
        """Return parameters and their loss, then update them once for each batch; see `_mean`."""
        return self._by_batches() if self._problem.batch_size < self._problem.n_rows else self._by_all_rows()

    def _by_all_rows(self) -> tuple[RealArray, float]:
        """Update the parameters once."""
        before, losses = self.theta.copy(), list[float]()

        def evaluate() -> tuple[float, RealArray]:
            loss, gradient = self._value_and_grad(self._whole)
            losses.append(loss)
            return loss, gradient

        self._step(evaluate)  # which may evaluate several times; the first is at the parameters before it
        return before, losses[0]

    def _by_batches(self) -> tuple[RealArray, float]:
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
            self._mean += (self.theta - self._mean) / min(self._updates, len(batches))
        return before, loss

    def _penalty(self, theta: RealArray) -> float:
        """Return (l2 / 2) * squared norm."""
        return 0.5 * self._l2 * float(theta @ theta)

    def _value_and_grad(self, model: CoreModel | None) -> tuple[float, RealArray]:
        """Return the penalised loss of the model's rows, or of none, at the current parameters, and its gradient."""
        if model is None:
            return self._penalty(self.theta), self._l2 * self.theta
        values, gradients = model.log_likelihood_and_grad(self.theta[None], self._batch_threads)
        return self._penalty(self.theta) - float(values[0]), self._l2 * self.theta - gradients[0]


def check_optimizer(choice: Any) -> None:
    """Raise ValueError unless `choice` is a name of `OPTIMIZERS` or a torch optimiser class."""
    known = isinstance(choice, str) and choice.lower() in OPTIMIZERS
    if isinstance(choice, type) and "torch" in sys.modules:  # without torch there is no such class
        known = issubclass(choice, sys.modules["torch"].optim.Optimizer)
    if not known:
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)} or a torch.optim.Optimizer class; got {choice!r}."
        )


def _is_adam(choice: Any) -> bool:
    """Return whether this is the optimiser that the core has."""
    return isinstance(choice, str) and choice.lower() == "adam"


def _make_optimizer(choice: Any, theta: RealArray, learning_rate: float) -> Callable[[Evaluate], None]:
    """Return a function that updates the parameters theta in place, once for each call."""
    if _is_adam(choice):
        return _Adam(theta, learning_rate)
    return _TorchOptimizer(choice, theta, learning_rate)


class _Adam:
    """Adam with its authors' constants (Kingma & Ba 2015, algorithm 1)."""

    def __init__(self, theta: RealArray, learning_rate: float) -> None:
        self._theta, self._learning_rate, self._updates = theta, learning_rate, 0
        self._mean, self._square = np.zeros_like(theta), np.zeros_like(theta)
        self._update: Any = _core.adam_update32 if theta.dtype == np.float32 else _core.adam_update64

    def __call__(self, evaluate: Evaluate) -> None:
        _, gradient = evaluate()
        self._updates += 1
        self._update(
            theta=self._theta,
            mean=self._mean,
            square=self._square,
            gradient=gradient,
            update=self._updates,
            learning_rate=self._learning_rate,
        )


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


def _start(problem: Problem, weights: FloatArray) -> tuple[RealArray, np.random.RandomState]:
    """Return where the training of a network begins (p,), and the generator of its mini-batches."""
    rng = np.random.RandomState(problem.seed % 2**32)
    theta = _initial_parameters(problem.shapes, rng, problem.dtype)
    outputs = problem.likelihood.initial_outputs(problem.targets, weights, problem.offset)
    if outputs is not None:  # the vector of parameters ends with the biases of the last layer
        theta[-problem.sizes[-1] :] = outputs
    return theta, rng


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
