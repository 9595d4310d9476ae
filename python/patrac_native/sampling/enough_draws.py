"""The condition that ends a run once its draws of f are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.target import Target
from patrac_native.validation.checks import check_inputs, check_positive

if TYPE_CHECKING:
    from patrac_native.draws.draws import Draws
    from patrac_native.draws.target_draws import TargetDraws


class EnoughDraws:
    """A condition for `until` of `sample`: enough effective draws of f, and chains that agree.

    The numbers are those of `draws.summary(at).function`: the smallest bulk ESS and the largest R-hat over the inputs
    and outputs. Network weights are not identified, so they play no part.

    Parameters
    ----------
    ess : float
        Least effective number of draws of all chains, positive; default 400.
    rhat : float
        Largest R-hat, above 1; default 1.01.
    at : array_like, shape (n, d)
        Inputs at which f is judged, such as a grid or some of the training inputs; of a Target, what its `predict`
        takes, or None for theta itself. The time of a look grows with their number and with that of the draws.
    offset : array_like, shape (n,) or (n, m), optional
        As for `Draws.summary`.

    Attributes
    ----------
    state : str
        What the last look found, in words; `Run.progress` shows it.
    found : dict
        Its numbers: "ess", "rhat" and "draws", those of each chain; empty before the first look.

    Raises
    ------
    TypeError, ValueError
        If `ess` or `rhat` is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> import patrac_native as pn
    >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
    >>> enough = pn.EnoughDraws(ess=200, rhat=1.05, at=X)
    >>> draws = pn.sample(post, draws=2000, until=enough, seed=0)
    >>> draws.n_draws < 2000, enough.found["ess"] >= 200, enough.found["rhat"] <= 1.05
    (True, True, True)
    """

    def __init__(
        self, ess: float = 400, rhat: float = 1.01, *, at: npt.ArrayLike | None, offset: npt.ArrayLike | None = None
    ) -> None:
        self.ess, self.rhat = check_positive(ess, "ess"), check_positive(rhat, "rhat")
        if self.rhat <= 1:
            raise ValueError(f"rhat must be above 1, which it approaches as chains agree; got {rhat:g}.")
        self.at, self.offset = at, offset
        self.found: dict[str, float] = {}

    @property
    def state(self) -> str:
        """What the last look found, in words."""
        wanted = f"{self.ess:g} effective draws and an R-hat of {self.rhat:g} are asked for"
        if not self.found:
            return wanted
        return "{ess:.0f} effective draws, R-hat {rhat:.3f} after {draws} draws".format(**self.found) + f"; {wanted}"

    def __call__(self, draws: Draws | TargetDraws) -> bool:
        """Return whether draws are enough."""
        offset: Any = {} if self.offset is None else {"offset": self.offset}
        function = draws.summary(self.at, progress=False, **offset).function
        self.found = {"ess": function.min_ess_bulk, "rhat": function.max_rhat, "draws": draws.n_draws}
        return bool(function.min_ess_bulk >= self.ess and function.max_rhat <= self.rhat)

    def __repr__(self) -> str:
        return f"EnoughDraws({self.state})"

    def check(self, post: Posterior | Target) -> None:
        """Raise TypeError or ValueError if f of a posterior has no values at the inputs, before a run begins."""
        if not isinstance(post, Posterior):
            return
        if self.at is None:
            raise TypeError("until: EnoughDraws needs inputs at which f is judged, such as at=X.")
        check_inputs(self.at, post.network.n_inputs, "at", columns=post.network.input_names)
