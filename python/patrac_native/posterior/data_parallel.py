"""A posterior whose rows are shared out among processes: one sum over them for each evaluation."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np

from patrac_native.network.network import network_digest
from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray

TargetT = TypeVar("TargetT")


class SharedRows(Generic[TargetT]):
    """A posterior whose rows are shared out among processes; `Target.data_parallel` makes it and explains its use.

    Attributes
    ----------
    rank : int
        The number of this process in the group.
    target : Target
        The posterior of all rows, which process 0 samples; the `with` block gives it.
    """

    target: TargetT

    def __init__(self, post: Posterior, group: Any = None) -> None:
        import torch.distributed as distributed

        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        if post.sampled.noise or post.network.scales:
            what = "noise variance is" if post.sampled.noise else "scales of the prior are"
            raise ValueError(f"post must have fixed variances; its {what} sampled, given all rows.")
        if post.likelihood.targets == "class" and getattr(post.likelihood, "scale", None) is not None:
            raise ValueError(f"post must have a likelihood that is a sum over rows; {post.likelihood!r} is a mean.")
        if not (distributed.is_available() and distributed.is_initialized()):
            raise RuntimeError(
                'data_parallel needs a process group: call torch.distributed.init_process_group("gloo", ...) in each '
                "process first."
            )
        self._post, self._dim = post, post.dim
        self.rank: int = distributed.get_rank(group)
        self._group = group
        self._leader = 0 if group is None else distributed.get_global_rank(group, 0)
        _check_equal(post, group)

    def serve(self) -> None:
        """Evaluate the rows of this process, which is not process 0, until that leaves its `with` block.

        Raises
        ------
        RuntimeError
            In process 0.
        Exception
            Whatever the first failing evaluation raised, at the end.
        """
        import torch

        if self.rank == 0:
            raise RuntimeError("process 0 samples, in a with block; the others serve.")
        failure: Exception | None = None
        while count := self._sent(torch.zeros(1, dtype=torch.int64)).item():
            theta = self._sent(torch.zeros(int(count), self._dim, dtype=torch.float64)).numpy()
            sums, error = self._own(theta)
            self._sum(sums)
            failure = failure or error
        if failure is not None:
            raise failure

    def __enter__(self) -> TargetT:
        if self.rank:
            raise RuntimeError(f"only process 0 samples; this is process {self.rank}, which must call serve().")
        return self.target

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        import torch

        self._sent(torch.zeros(1, dtype=torch.int64))

    def summed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-likelihoods (B,) and gradients (B, K) of the rows of all processes; in process 0."""
        import torch

        if self.rank:
            raise RuntimeError(f"only process 0 evaluates the sums; this is process {self.rank}.")
        self._sent(torch.tensor([len(theta)]))
        self._sent(torch.from_numpy(theta))
        sums, error = self._own(theta)
        self._sum(sums)
        if error is not None:
            raise error
        if sums[:, -1].any():
            raise RuntimeError("the evaluation of another process failed; it raises the error when sampling ends.")
        return sums[:, 0], sums[:, 1:-1]

    def _own(self, theta: FloatArray) -> tuple[FloatArray, Exception | None]:
        """Return value, gradient and zero (B, K + 2) of this process's rows; ones in the last column if they failed."""
        own = np.zeros((len(theta), self._dim + 2))
        try:
            own[:, 0], own[:, 1:-1] = self._post.log_likelihood_and_grad(theta)
        except Exception as error:  # the other processes wait for the sum
            own[:, -1] = 1.0
            return own, error
        return own, None

    def _sum(self, own: FloatArray) -> None:
        """Sum over the processes, in place in process 0."""
        import torch
        import torch.distributed as distributed

        distributed.reduce(torch.from_numpy(own), self._leader, group=self._group)

    def _sent(self, tensor: Any) -> Any:
        """Send a tensor of process 0 to the others, in place."""
        import torch.distributed as distributed

        distributed.broadcast(tensor, self._leader, group=self._group)
        return tensor


def _check_equal(post: Posterior, group: Any) -> None:
    """Raise ValueError unless all processes have the same parameters, prior and likelihood."""
    import torch.distributed as distributed

    own = {
        "architecture": post.network.architecture.label(),
        "likelihood": repr(post.likelihood),
        "dtype": post.network.dtype.name,
        "trained network": network_digest(post.network.net),
        "prior": repr(post.network.prior.to_dict()),
    }
    others: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(others, own, group=group)
    for rank, other in enumerate(others):
        for name, value in own.items():
            if other[name] != value:
                raise ValueError(
                    f"post must be the same in all processes but for its rows; {name} of process {rank} differs: "
                    f"{other[name]} there, {value} here."
                )
