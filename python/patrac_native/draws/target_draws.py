"""Draws of a target, a log-likelihood that was given as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native.draws import arviz_groups
from patrac_native.draws.chain_draws import ENTRIES, ChainDraws, Stats, read_states
from patrac_native.draws.run_folder import RunFolder
from patrac_native.draws.summary import Summary, summarise
from patrac_native.files.archive import check_entries
from patrac_native.interop.datatree import Group, build_datatree
from patrac_native.plots.progress import evaluation_bar
from patrac_native.validation.checks import as_real_array

if TYPE_CHECKING:
    import xarray


class TargetDraws(ChainDraws):
    """The draws of a run on a `Target`, as `sample` returns them.

    Attributes
    ----------
    theta : ndarray of float64, shape (chain, draw, K)
        The kept states.
    stats : dict of str to ndarray
        As of `Draws`: log_likelihood, log_prior, acceptance_rate and step_size of shape (chain, draw);
        warmup_acceptance_rate and warmup_step_size (chain, phase); nonfinite, warmup_nonfinite and
        gradients (chain,).
    settings : dict
        As of `Draws`.
    """

    _KIND: ClassVar[str] = "draws of a target"

    def __init__(
        self,
        theta: npt.NDArray[Any],
        stats: Stats,
        settings: Mapping[str, Any],
        *,
        predict: Callable[[npt.NDArray[np.float64], Any], npt.ArrayLike] | None = None,
    ) -> None:
        super().__init__(theta, stats, settings)
        self._predict = predict

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Evaluate the target's `predict` for each draw.

        Parameters
        ----------
        X : object
            Whatever the function takes.

        Returns
        -------
        ndarray, shape (chain, draw, n) or (chain, draw, n, m)

        Raises
        ------
        TypeError
            If the function does not return real numbers, or not of one shape for every theta.
        ValueError
            If the target was given no `predict`, the draws come from a file, there are no draws, or the function
            returns an array of another number of axes.
        """
        if self._predict is None:
            raise ValueError(
                "these draws have no predict: give the function, Target(..., predict=...); files do not hold it."
            )
        flat, batched = self._flat_theta(), bool(self.settings["batched"])
        predicted = self._predict(flat, X) if batched else [self._predict(one, X) for one in flat]
        values = as_real_array(predicted, "predict of the Target", "Return arrays of one shape for every theta.")
        if values.ndim not in (2, 3) or len(values) != len(flat):
            shape = "(B, n) or (B, n, m)" if batched else "(n,) or (n, m)"
            found = values.shape if batched else values.shape[1:]
            raise ValueError(f"predict of the Target must return an array {shape}; got shape {found}.")
        return values.reshape(self.n_chains, self.n_draws, *values.shape[1:])

    def summary(self, X: Any = None, *, coverage: float = 0.95, progress: bool | None = None) -> Summary:
        """Summarise theta, or the predictions at X, with the verdict on the run.

        Parameters
        ----------
        X : object, optional
            What `predict` takes; by default theta itself is summarised.
        coverage : float
            Posterior probability of the central intervals, in (0, 1); default 0.95.
        progress : bool, optional
            Whether to show a progress bar, if it takes more than a second; by default in terminals and notebooks only.

        Returns
        -------
        Summary
            Its arrays have shape (K, 1), or (n, m) of the predictions.

        Raises
        ------
        ValueError
            As `predict` if X is given; if `coverage` is outside (0, 1), or there are fewer than 4 draws of each chain,
            or of each superchain after `Warmup.many_chains`.
        """
        self._flat_theta()
        values = self.theta[..., None] if X is None else self.predict(X)
        total = values[0, 0].size
        with evaluation_bar(progress, total=total, desc="summary", unit=" points") as bar:
            return summarise(
                self,
                [values if values.ndim == 4 else values[..., None]],
                "theta" if X is None else "predictions",
                coverage,
                points="entries" if X is None else "inputs",
                advance=bar.update,
            )

    def to_datatree(self, *, names: Sequence[object] | None = None) -> xarray.DataTree:
        """Return the draws as an xarray DataTree for ArviZ; see docs/bridges/arviz.md.

        Parameters
        ----------
        names : sequence of K str, optional
            Labels of the entries of theta; by default indices.

        Returns
        -------
        xarray.DataTree
            The groups posterior, with "theta" (chain, draw, parameter), and sample_stats, as those of
            `Draws.to_datatree`. The log-likelihood of a target is one number, so there are no other groups.

        Raises
        ------
        ImportError
            If xarray is not installed (extra "arviz").
        ValueError
            If `names` are not K different ones, or there are no draws.
        """
        self._flat_theta()
        labels = arviz_groups.check_names(names, self.theta.shape[-1], "names", "entry of theta")
        axes = (*arviz_groups.CHAIN_DRAW, "parameter")
        coordinates = arviz_groups.chain_coordinates(self.theta.shape[:2]) | {"parameter": (("parameter",), labels)}
        groups = {
            "posterior": Group({"theta": (axes, self.theta)}, coordinates),
            "sample_stats": arviz_groups.sample_stats_group(self.stats),
        }
        root = arviz_groups.run_attributes(self.settings)
        return build_datatree(groups, root, arviz_groups.library_attributes(), "to_datatree")

    @classmethod
    def _from_arrays(cls, header: Mapping[str, Any], arrays: Stats) -> TargetDraws:
        """Rebuild draws from what `_to_arrays` returned; they have no `predict`."""
        check_entries(header, ENTRIES, "its header")
        return cls(*read_states(header, arrays), header["settings"])

    @classmethod
    def _from_run(cls, folder: RunFolder) -> TargetDraws:
        """Raise ValueError: a run on a function cannot be kept."""
        raise ValueError(f"{folder.path} is a folder; give the file of draws of a Target.")

    def __repr__(self) -> str:
        return (
            f"TargetDraws(K={self.theta.shape[-1]}, chains={self.n_chains}, draws={self.n_draws}, "
            f"thin={self.settings['thin']}, seed={self.settings['seed']})"
        )
