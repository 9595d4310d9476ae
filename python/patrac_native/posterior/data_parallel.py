"""A posterior whose rows are shared out among processes: one sum over them for each evaluation."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from patrac_native.network.digest import network_digest
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.target import Target
from patrac_native.validation.checks import FloatArray


class DataParallel(Target):
    """The posterior of all rows, of which each process of `torch.distributed` holds its own.

    Every process makes the posterior of its rows, with the same network, architecture, prior and likelihood. Process
    0 samples; the others evaluate their rows, `serve`, until it leaves the `with` block. For an evaluation of all
    chains process 0 sends their theta and receives the sums of log-likelihoods and gradients, K + 1 numbers a chain.
    Which moves are proposed and accepted is decided in process 0 alone, so it depends on the seed and the rounding of
    the sums, and on no timing. An interrupt (Ctrl-C) of one of the processes is not handled: end all of them.
    Arithmetic of the chains and sums is in float64, that of an evaluation in the posterior's dtype.

    Parameters
    ----------
    post : Posterior
        Of the rows of this process: with fixed variances of noise and prior.
    group : torch.distributed.ProcessGroup, optional
        The processes; by default all. It must be one that reduces tensors of the host, such as gloo.

    Attributes
    ----------
    post : Posterior
    rank : int
        The number of this process in the group.

    Raises
    ------
    TypeError
        If `post` is no `Posterior`.
    ValueError
        If its likelihood or prior is not supported, or differs between the processes.
    RuntimeError
        If torch.distributed has not been initialised; while sampling, if the evaluation of another process failed.

    Examples
    --------
    In each of two processes, of which `rank` is the number of this one::

        torch.distributed.init_process_group("gloo")
        post = pn.Posterior(net, pn.Mix(5), prior, pn.Gaussian(0.1), X[rank::2], y[rank::2])
        target = pn.DataParallel(post)
        if target.rank:
            target.serve()
        else:
            with target:
                draws = pn.sample(target, chains=4, draws=1000, seed=1)
    """

    def __init__(self, post: Posterior, group: Any = None) -> None:
        import torch.distributed as distributed

        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        if post.variance_is_sampled or post.scale_names:
            what = "noise variance is" if post.variance_is_sampled else "scales of the prior are"
            raise ValueError(f"post must have fixed variances; its {what} sampled, given all rows.")
        if post.likelihood.targets == "class" and getattr(post.likelihood, "scale", None) is not None:
            raise ValueError(f"post must have a likelihood that is a sum over rows; {post.likelihood!r} is a mean.")
        if not (distributed.is_available() and distributed.is_initialized()):
            raise RuntimeError(
                'DataParallel needs a process group: call torch.distributed.init_process_group("gloo", ...) in each '
                "process first."
            )
        self.post = post
        self.rank: int = distributed.get_rank(group)
        self._group = group
        self._leader = 0 if group is None else distributed.get_global_rank(group, 0)
        _check_equal(post, group)
        super().__init__(self._summed, post.prior_variance, batched=True, predict=post.network.predict)

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
            theta = self._sent(torch.zeros(int(count), self.dim, dtype=torch.float64)).numpy()
            sums, error = self._own(theta)
            self._sum(sums)
            failure = failure or error
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        if self.rank:
            raise RuntimeError(f"only process 0 samples; this is process {self.rank}, which must call serve().")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        import torch

        self._sent(torch.zeros(1, dtype=torch.int64))

    def _summed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        own = np.zeros((len(theta), self.dim + 2))
        try:
            own[:, 0], own[:, 1:-1] = self.post.log_likelihood_and_grad(theta)
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

    @property
    def map_start(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """The trained parameters, as of `Posterior`."""
        return np.asarray(self.post.map_start, dtype=np.float64)

    @property
    def is_trained(self) -> bool:
        """Whether chains may start at trained parameters."""
        return self.post.is_trained

    def __repr__(self) -> str:
        return f"DataParallel({self.post.network.architecture.label()}, K={self.dim}, n={self.post.n_rows} here)"


def _check_equal(post: Posterior, group: Any) -> None:
    """Raise ValueError unless all processes have the same parameters, prior and likelihood."""
    import torch.distributed as distributed

    own = {
        "architecture": post.network.architecture.label(),
        "likelihood": repr(post.likelihood),
        "dtype": post.dtype.name,
        "trained network": network_digest(post.net),
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
