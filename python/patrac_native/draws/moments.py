"""Running mean and variance of f at some inputs over the states of chains, in memory that does not grow with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.validation.checks import FloatArray

# States that are added together. They are counted from the first of the chain, so that no bit depends on breaks.
_BLOCK = 16
# Bytes of f that are evaluated at a time.
_BYTES = 1 << 23


@dataclass(frozen=True)
class RunningMoments:
    """The sums of a run so far, which a checkpoint holds; `added` returns those after further states.

    They are combined block by block by Chan's update, which Welford's is for one state.
    """

    count: npt.NDArray[np.int64]  # (), states of each chain in mean and squares
    mean: FloatArray  # (chain, n, m)
    squares: FloatArray  # sums of squared deviations from the mean, (chain, n, m)
    pending: FloatArray  # f of the states since the last whole block, (chain, fewer than a block, n, m)
    rates: FloatArray  # acceptance rates of the states since the last draw, (chain, fewer than states of a draw)

    @classmethod
    def none(cls, chains: int, n: int, m: int) -> RunningMoments:
        """Return those of no states."""
        zeros = np.zeros((chains, n, m))
        return cls(np.zeros((), np.int64), zeros, zeros, np.zeros((chains, 0, n, m)), np.zeros((chains, 0)))

    @property
    def states(self) -> int:
        """Number of states of each chain."""
        return int(self.count + self.pending.shape[1])

    def added(self, f: npt.NDArray[Any]) -> RunningMoments:
        """Return the sums after states with these f, (chain, states, n, m)."""
        found, f = self, np.concatenate([self.pending, f], axis=1)
        whole = f.shape[1] // _BLOCK * _BLOCK
        for first in range(0, whole, _BLOCK):
            found = found._merged(f[:, first : first + _BLOCK])
        return replace(found, pending=f[:, whole:].copy())

    def stats(self, at: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the statistics of the states so far, `MOMENTS`, of f at some inputs."""
        found = self._merged(self.pending) if self.pending.shape[1] else self
        chains, count = len(self.mean), int(found.count)
        variance = found.squares / (count - 1) if count > 1 else np.full_like(found.mean, np.nan)
        of_chains = np.broadcast_to(at, (chains, *at.shape)).copy(), found.mean, variance, np.full(chains, count)
        return dict(zip(MOMENTS, of_chains, strict=True))

    def _merged(self, f: npt.NDArray[Any]) -> RunningMoments:
        """Return mean and squares with those of a block."""
        block = np.ascontiguousarray(f, np.float64)  # always in one layout, on which the order of sums depends
        count, size = int(self.count), block.shape[1]
        mean = block.mean(axis=1)
        squares = ((block - mean[:, None]) ** 2).sum(axis=1)
        moved, total = mean - self.mean, count + size
        return replace(
            self,
            count=np.array(total, np.int64),
            mean=self.mean + moved * (size / total),
            squares=self.squares + squares + moved**2 * (count * size / total),
        )


def states_at_once(chains: int, n: int, m: int, itemsize: int) -> int:
    """Return the number of states of each chain whose f at n inputs are to be evaluated at a time."""
    return max(1, _BYTES // (chains * n * m * itemsize))
