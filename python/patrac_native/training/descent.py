"""The descent of a penalised loss by a torch optimiser, an epoch at a time, for one network or several at once."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods import Likelihood
from patrac_native.network.activations import ACTIVATIONS
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch

OPTIMIZERS = {"adam": "Adam", "nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "sgd": "SGD", "lbfgs": "LBFGS"}

# If a forward pass has fewer multiply-adds than this, training uses one thread. Torch's threads spin while they wait
# for each other: on a busy machine with two processors, two threads were measured to need 5 to 15 times the time of one
# for an epoch of 2 to 8 million multiply-adds. The network then does not depend on the number of processors either.
_ONE_THREAD_BELOW = 50_000_000


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
    dtype: str
    left_out: FloatArray | None = None  # (n,), weights of rows that are left out of the training to validate it
    offset: FloatArray | None = None  # (n, m), added to the outputs of each row
    groups: npt.NDArray[np.intp] | None = None  # (n,), of rows that validation does not divide

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return len(self.inputs)

    @property
    def real(self) -> torch.dtype:
        """The dtype of the arithmetic."""
        import torch

        return torch.float32 if self.dtype == "float32" else torch.float64

    @property
    def work(self) -> int:
        """Number of multiply-adds of one forward pass of a batch."""
        return self.batch_size * sum(a * b for a, b in zip(self.sizes[1:], self.sizes[:-1], strict=True))

    def network(self, theta: torch.Tensor) -> Network:
        """Return the network with the parameters theta (p,)."""
        return Network(*_unpack(theta.double().numpy(), self.sizes), self.activation)


class Epoch(NamedTuple):
    """What an epoch began with: parameters (p,) or (B, p), penalised losses () or (B,), rows' losses (n,) or (B, n)."""

    theta: torch.Tensor
    loss: torch.Tensor
    rows: torch.Tensor


class Descent:
    """The training of one network, or side by side of several that differ in their row weights (B, n) alone."""

    # The loss of a network is sum_r w_r nll_r + (l2 / 2) * squared norm of the parameters; the sum over a mini-batch
    # is scaled by n / batch_size. The parameters of B networks form one tensor (B, p), which one elementwise
    # optimiser updates: its calls take hardly longer for several small networks.
    def __init__(self, problem: Problem, l2: float, weights: FloatArray | None = None) -> None:
        import torch

        real = problem.real
        self._problem = problem
        self._penalty = l2 / 2
        self._generator = torch.Generator().manual_seed(problem.seed)
        self._X = torch.tensor(problem.inputs, dtype=real)
        self._offset = None if problem.offset is None else torch.tensor(problem.offset, dtype=real)
        self._y = torch.tensor(problem.targets, dtype=real if problem.targets.dtype.kind == "f" else None)
        theta = _initial_parameters(problem.sizes, real, self._generator)
        self._count = None if weights is None else len(weights)
        self._theta = theta if self._count is None else theta.repeat(self._count, 1)
        self._weights: torch.Tensor | float
        given = problem.row_weights if weights is None else weights
        for parameters, of_one in zip(self._theta.view(-1, theta.numel()), np.atleast_2d(given), strict=True):
            start = problem.likelihood.initial_outputs(problem.targets, of_one, problem.offset)
            if start is not None:  # the vector of parameters ends with the biases of the last layer
                parameters[-problem.sizes[-1] :] = torch.tensor(start, dtype=real)
        # Of mini-batches, the noise of whose updates does not fall with a constant learning rate, the parameters are a
        # running mean (Polyak & Juditsky 1992), in which update t has the share 1 / min(t, b) of b batches in an epoch:
        # the plain mean in the first epoch, and an exponential one from then on.
        self._mean, self._updates = self._theta.clone(), 0
        self._theta.requires_grad_()
        if weights is None and (given == given[0]).all():
            self._weights = float(given[0])
        else:
            self._weights = torch.tensor(given, dtype=real)
        self._stepper = _make_optimizer(problem.optimizer, self._theta, problem.learning_rate)

    def epoch(self) -> Epoch:
        """Evaluate the loss of the current parameters, then update them once for each batch; see `_mean`."""
        import torch

        batches = self._batches()
        before = (self._theta.detach() if batches[0] is None else self._mean).clone()
        evaluated: list[tuple[torch.Tensor, torch.Tensor]] = []
        if batches[0] is not None:
            with torch.no_grad():
                evaluated.append(self._losses(before, None))
        for batch in batches:

            def closure(batch: torch.Tensor | None = batch) -> float:
                self._stepper.zero_grad()
                losses, rows = self._losses(self._theta, batch)
                if not evaluated:  # an optimiser may call this several times; the first is at the current parameters
                    evaluated.append((losses.detach(), rows.detach()))
                total = losses.sum()
                total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                return total.item()

            self._stepper.step(closure)
            if batch is not None:
                self._updates += 1
                self._mean.lerp_(self._theta.detach(), 1 / min(self._updates, len(batches)))
        return Epoch(before, *evaluated[0])

    def _losses(self, theta: torch.Tensor, batch: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the penalised losses () or (B,), and the negative log-likelihoods of the batch's rows."""
        import torch

        problem, weights = self._problem, self._weights
        X, y = (self._X, self._y) if batch is None else (self._X[batch], self._y[batch])
        if batch is not None and not isinstance(weights, float):
            weights = weights[..., batch]
        scale = problem.n_rows / len(X)
        f = _forward(theta, problem.sizes, problem.activation, X)
        if self._offset is not None:
            f = f + (self._offset if batch is None else self._offset[batch])
        if self._count is None:
            rows = problem.likelihood.torch_loss_rows(f, y)
            # One factor for all rows is applied to their sum, which is one operation fewer.
            data = rows.sum() * (weights * scale) if isinstance(weights, float) else (rows * weights).sum() * scale
            return data + self._penalty * torch.dot(theta, theta), rows
        y = y.repeat(self._count, *[1] * (y.ndim - 1))
        rows = problem.likelihood.torch_loss_rows(f.reshape(-1, f.shape[-1]), y).view(self._count, -1)
        data = (rows * weights).sum(dim=-1) * scale
        return data + self._penalty * theta.square().sum(dim=-1), rows

    def _batches(self) -> Sequence[torch.Tensor | None]:
        """Return the rows of each batch of an epoch; None means all rows."""
        import torch

        n, size = self._problem.n_rows, self._problem.batch_size
        if size == n:
            return [None]
        order = torch.randperm(n, generator=self._generator)
        return [order[start : start + size] for start in range(0, n, size)]


def check_optimizer(choice: Any) -> None:
    """Raise ValueError unless `choice` is a name of `OPTIMIZERS` or an optimiser class."""
    import torch

    known = isinstance(choice, str) and choice.lower() in OPTIMIZERS
    if not known and not (isinstance(choice, type) and issubclass(choice, torch.optim.Optimizer)):
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)} or a torch.optim.Optimizer class; got {choice!r}."
        )


class _Adam:
    """Adam with the defaults of torch, whose fused kernel it calls: its class loads a compiler, which takes seconds."""

    def __init__(self, theta: torch.Tensor, learning_rate: float) -> None:
        import torch

        self._theta, self._learning_rate = theta, learning_rate
        self._moments, self._count = [torch.zeros_like(theta), torch.zeros_like(theta)], torch.tensor(0.0)

    def zero_grad(self) -> None:
        """Forget the gradient of the last step."""
        self._theta.grad = None

    def step(self, closure: Callable[[], float]) -> None:
        """Update the parameters by the gradient that `closure` computes."""
        import torch

        closure()
        assert self._theta.grad is not None
        of_gradient, of_squares = self._moments
        with torch.no_grad():
            self._count += 1
            torch._fused_adam_(
                [self._theta],
                [self._theta.grad],
                [of_gradient],
                [of_squares],
                [],
                [self._count],
                lr=self._learning_rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


def _make_optimizer(choice: Any, theta: torch.Tensor, learning_rate: float) -> Any:
    """Build the optimiser of a parameter vector."""
    import torch

    if isinstance(choice, str) and choice.lower() == "adam" and hasattr(torch, "_fused_adam_"):
        return _Adam(theta, learning_rate)
    factory = getattr(torch.optim, OPTIMIZERS[choice.lower()]) if isinstance(choice, str) else choice
    return factory([theta], lr=learning_rate)


@dataclass
class _Trainings:
    """The trainings under way in all threads, and what they change for the whole process as long as there are any."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0
    threads: int = 1  # torch's number outside of them, with which a thread that begins during one does not start
    dtype: torch.dtype | None = None  # torch's default outside of them
    is_forked: bool = False  # a forked process lacks its parent's threads, for which torch would wait forever


_TRAININGS = _Trainings()
if hasattr(os, "register_at_fork"):  # the lock may be held where the process is forked
    os.register_at_fork(after_in_child=lambda: _TRAININGS.__init__(is_forked=True))  # type: ignore[misc]


@contextmanager
def training_state(work: int, threads: int | None = None) -> Iterator[None]:
    """Let torch train as it does by default, whatever the caller's state: gradients, on the CPU, without autocast.

    It uses at most `threads` threads (by default its own number), and one if a forward pass of `work` multiply-adds is
    small or the process was forked.
    """
    import torch

    shared = _TRAININGS
    with shared.lock:
        if shared.count == 0:
            shared.threads, shared.dtype = torch.get_num_threads(), torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
        shared.count += 1
        usual = shared.threads
    one = work < _ONE_THREAD_BELOW or shared.is_forked
    torch.set_num_threads(1 if one else min(usual, threads or usual))
    # A device as a context makes each call slower.
    on_cpu = nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu")
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False), on_cpu:
            yield
    finally:
        torch.set_num_threads(usual)
        with shared.lock:
            shared.count -= 1
            if shared.count == 0 and shared.dtype is not None:
                torch.set_default_dtype(shared.dtype)


def is_elementwise(optimizer: Any) -> bool:
    """Return whether an optimiser treats every parameter by itself, so that networks may share one vector of them."""
    # LBFGS does not, and of a class that the caller gives it is not known.
    return isinstance(optimizer, str) and optimizer.lower() != "lbfgs"


def all_finite(values: torch.Tensor) -> bool:
    """Return whether all values are finite."""
    return bool(np.isfinite(values.numpy()).all())


def _parameter_shapes(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of weights and biases in the order of the vector: weights, biases, layer by layer."""
    return [shape for a, b in zip(sizes[1:], sizes[:-1], strict=True) for shape in ((a, b), (a,))]


def _initial_parameters(sizes: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Draw all parameters as one vector; weights and biases are uniform on +-1/sqrt(fan-in)."""
    import torch

    # With one vector instead of a tensor for each matrix, optimiser and penalty take only a few calls of torch.
    parts = []
    for a, b in zip(sizes[1:], sizes[:-1], strict=True):
        parts.append((2 * torch.rand(a * b + a, dtype=dtype, generator=generator) - 1) / b**0.5)
    return torch.cat(parts)


def _forward(theta: torch.Tensor, sizes: Sequence[int], activation: str, X: torch.Tensor) -> torch.Tensor:
    """Evaluate a network (p,) at X (n, d), or B networks (B, p): outputs (n, m) or (B, n, m)."""
    import torch

    apply = ACTIVATIONS[activation].torch_module().forward
    shapes = _parameter_shapes(sizes)
    several = theta.shape[:-1]
    parts = torch.split(theta, [math.prod(shape) for shape in shapes], dim=-1)
    values = X.expand(*several, *X.shape)
    for layer in range(len(sizes) - 1):
        if layer > 0:
            values = apply(values)
        weight = parts[2 * layer].view(*several, *shapes[2 * layer])
        bias = parts[2 * layer + 1]
        if several:
            values = torch.baddbmm(bias[:, None], values, weight.transpose(1, 2))
        else:
            values = torch.addmm(bias, values, weight.t())
    return values


def _unpack(
    theta: npt.NDArray[Any], sizes: Sequence[int]
) -> tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]:
    """Return the weights and biases, layer by layer, as views of the parameter vector."""
    shapes = _parameter_shapes(sizes)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = [part.reshape(shape) for part, shape in zip(np.split(theta, ends), shapes, strict=True)]
    return parts[0::2], parts[1::2]
