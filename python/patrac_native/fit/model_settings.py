"""The settings of a posterior and its chains, which `patrac fit` and the estimators of scikit-learn share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from patrac_native.architectures import Architecture, Full, Mix, Out, Sep
from patrac_native.kernels import Kernel
from patrac_native.sampling.warmup import (
    FIRST_COMPARISON,
    SETTLE_STEPS,
    Warmup,
    default_warmup,
    paper_warmup,
)

# The values of `architecture`.
ARCHITECTURES = ("auto", "full", "mix", "out", "sep")
# The values of `prior`.
PRIORS = ("auto", "gaussian", "trace-class")
# The default of `minutes`, and those of `chains` and `draws` for one network and for several, beside those of
# `Candidate.with_more_chains`.
MINUTES = 2.0
# Two years; with more, the number of steps would not fit a machine integer.
_MOST_MINUTES = 1_000_000
CHAINS, DRAWS_OF_CHAIN = (4, 2), (500, 250)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of `fit_arrays`; error messages name a setting as `option` does, which each caller defines.

    Attributes
    ----------
    architecture : {"auto", "full", "mix", "out", "sep"}
        Default "auto": for a regression the best of "full", with noise of each row or under either prior with the same
        noise for all, and of "mix", by short runs that are scored on validation rows, or the largest "mix" that is
        cheap enough if the budget does not pay for "full"; for
        classes "out" with all nodes of the last hidden layer, or "full", chosen alike; with `k` it is "mix".
    k : sequence of int, optional
        Number of Bayesian nodes of each hidden layer, or one number for all; by default 5 for "mix" and "sep", 45 for
        "out", and at most the width.
    hidden : sequence of int
        Widths of the hidden layers, at least 1; default (50, 50).
    activation : str
        Default "tanh".
    l2 : float, optional
        Penalty of the training, >= 0; by default chosen on validation rows.
    epochs : int, optional
        Maximum number of training epochs, >= 1; the default depends on the number of rows.
    validation_fraction : float, optional
        Share of the rows on which penalty and number of epochs are chosen, as for `train`.
    prior : {"auto", "gaussian", "trace-class"}
        "gaussian": independent normal parameters, whose variances in each layer are sampled; "trace-class": the
        paper's prior, fitted to the network. Default "auto": chosen with the architecture, else "gaussian" for Full
        and for classes; "trace-class" if `alpha` is given.
    alpha : float, optional
        Rate of decay of the trace-class prior, > 1; by default fitted to the network's weights.
    networks : int, optional
        Number of networks, >= 1, which are trained alike from other random weights and whose posteriors predict as an
        equally weighted mixture. Default 1, and where the architecture is chosen 4 for "mix" and 5 for classes.
    chains : int, optional
        Number of chains of each network's posterior, >= 1; default 4 for one network, 2 for several. With neither
        `chains` nor `draws`, 8 chains of 250 draws where the noise of one network's posterior has its own variance in
        each row, if `minutes` would pay, before any training, for 15,000 steps of each.
    draws : int, optional
        Number of draws of each chain, >= 4; default 500 for one network, 250 for several, or see `chains`.
    minutes : float, optional
        Budget of the fit on a nominal machine of two cores, > 0; default 2. Beyond 0.1 it includes the training. It
        determines the number of steps through the number of operations of a step and never through a clock, so that a
        seed gives the same draws everywhere.
    thin : int, optional
        Number of steps for each draw, >= 1, in place of `minutes`.
    warmup : str, int or Warmup, optional
        A number of steps or "paper"; by default it ends once the chains agree, after a quarter of the steps that
        `minutes` pays for at the latest. With `thin` it is half the number of steps after it, from 4,000 to 20,000.
    kernel : "auto" or Kernel
        As for `sample`; default "auto".
    device : {"auto", "cpu", "cuda"}
        As for `sample`; default "auto".
    seed : int
        Seed of splits, training and chains, >= 0; default 0.
    dtype : {"float32", "float64"}
        The dtype of the chains; default "float32".
    threads : int, optional
        Number of native threads, >= 1; by default the number of processors that this process may use.
    progress : bool, optional
        Whether to show progress bars; by default in terminals and notebooks only.
    """

    architecture: str = "auto"
    k: Sequence[int] | None = None
    hidden: Sequence[int] = (50, 50)
    activation: str = "tanh"
    l2: float | None = None
    epochs: int | None = None
    validation_fraction: float | None = None
    prior: str = "auto"
    alpha: float | None = None
    networks: int | None = None
    chains: int | None = None
    draws: int | None = None
    minutes: float | None = None
    thin: int | None = None
    warmup: str | int | Warmup | None = None
    kernel: str | Kernel = "auto"
    device: str = "auto"
    seed: int = 0
    dtype: str = "float32"
    threads: int | None = None
    progress: bool | None = None

    # What messages say was lost when a run was interrupted.
    nothing_done: ClassVar[str] = "nothing was fitted"

    def option(self, name: str, value: Any = None) -> str:
        """Return how the caller gives a setting, or a setting with a value, for messages."""
        return name if value is None else f"{name}={value!r}"

    @property
    def noise_option(self) -> str:
        """How the caller gives a known noise variance, for messages."""
        return "a likelihood with a fixed variance"

    @property
    def leaves_one_out(self) -> bool:
        """Whether no rows are held out, so that the fit is scored by leave-one-out predictions."""
        return True

    @property
    def why_left_out(self) -> str:
        """Which setting makes the fit be scored by leave-one-out predictions, in words; empty if none does."""
        return ""

    def check_model(self) -> None:
        """Check everything that does not need the data.

        Raises
        ------
        ValueError
            If a setting is outside its range.
        """
        if self.minutes is not None:
            if not 0 < self.minutes < float("inf"):
                raise ValueError(f"{self.option('minutes')} must be positive and finite; got {self.minutes}.")
            if self.minutes > _MOST_MINUTES:
                raise ValueError(f"{self.option('minutes')} must be at most {_MOST_MINUTES:,}; got {self.minutes:g}.")
            if self.thin is not None:
                raise ValueError(
                    f"{self.option('minutes')} and {self.option('thin')} both set the number of steps; give one of "
                    "them."
                )
        least = {"networks": 1, "chains": 1, "draws": 4, "thin": 1, "epochs": 1, "seed": 0, "threads": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{self.option(name)} must be at least {minimum}; got {value}.")
        if self.seed >= 2**64:
            raise ValueError(f"{self.option('seed')} must be below 2^64; got {self.seed}.")
        if min(self.hidden, default=0) < 1:
            raise ValueError(f"{self.option('hidden')} must hold positive widths; got {self.hidden}.")
        if self.l2 is not None and not 0 <= self.l2 < float("inf"):
            raise ValueError(f"{self.option('l2')} must be at least 0 and finite; got {self.l2}.")
        if self.prior not in PRIORS:
            raise ValueError(f"{self.option('prior')} must be one of {', '.join(PRIORS)}; got {self.prior!r}.")
        if self.prior == "gaussian" and self.alpha is not None:
            raise ValueError(
                f"{self.option('alpha')} is a parameter of {self.option('prior', 'trace-class')}; leave it out with "
                f"{self.option('prior', 'gaussian')}."
            )
        if self.alpha is not None and not 1 < self.alpha < float("inf"):
            raise ValueError(f"{self.option('alpha')} must be greater than 1 and finite; got {self.alpha}.")
        self.bayesian()
        self.given_warmup()

    def bayesian(self) -> Architecture | None:
        """Return the architecture given by `architecture` and `k`, None for the automatic choice.

        Raises
        ------
        ValueError
            If they do not fit `hidden`.
        """
        name, k = self.architecture, self.k
        if name == "auto":
            if k is None:
                return None
            name = "mix"
        if name not in ARCHITECTURES:
            raise ValueError(f"{self.option('architecture')} must be one of {', '.join(ARCHITECTURES)}; got {name!r}.")
        if name == "full":
            if k is not None:
                raise ValueError(
                    f"{self.option('k')} has no meaning for {self.option('architecture', 'full')}, where all nodes are "
                    "Bayesian; leave it out."
                )
            return Full()
        if name == "out":
            if k is not None and len(k) != 1:
                raise ValueError(
                    f"{self.option('k')} must be one number for {self.option('architecture', 'out')}; got {k}."
                )
            self._check_k(k or [], self.hidden[-1:])
            return Out(min(45, self.hidden[-1]) if k is None else k[0])
        nodes: Sequence[int] = [min(5, width) for width in self.hidden] if k is None else k
        if len(nodes) not in (1, len(self.hidden)):
            raise ValueError(
                f"{self.option('k')} must be one number, or one for each of the {len(self.hidden)} widths of "
                f"{self.option('hidden')}; got {k}."
            )
        self._check_k(nodes, self.hidden)
        chosen = nodes[0] if len(set(nodes)) == 1 else nodes
        return {"mix": Mix, "sep": Sep}[name](chosen)

    def warmup_of(self, steps: int, kernel: Kernel) -> Warmup:
        """Return the warm-up of a kernel: as given, or of `steps` steps; of a budget it ends once the chains agree."""
        given = self.given_warmup()
        if isinstance(given, Warmup):
            return given
        if given is None and self.thin is None and steps >= FIRST_COMPARISON + SETTLE_STEPS:
            return default_warmup(kernel, max_adaptive_steps=steps - SETTLE_STEPS)
        fixed = steps if given is None else given
        return default_warmup(kernel, fixed) if fixed else Warmup(())

    def given_warmup(self) -> Warmup | int | None:
        """Return the schedule or number of steps that is given; raise ValueError if it is invalid."""
        given = self.warmup
        if given is None or isinstance(given, Warmup):
            return given
        text = str(given)
        if text == "paper":
            return paper_warmup()
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f'{self.option("warmup")} must be a number of steps or "paper"; got {given!r}.')
        return int(text)

    def _check_k(self, nodes: Sequence[int], widths: Sequence[int]) -> None:
        """Raise ValueError unless each number of nodes, or the one for all layers, is from 1 to its layer's width."""
        for layer, width in enumerate(widths):
            count = nodes[layer if len(nodes) > 1 else 0] if nodes else 1
            if not 1 <= count <= width:
                k = self.option("k")
                raise ValueError(
                    f"{k} must be from 1 to the width of the layer; got {count} for a hidden layer of {width} nodes. "
                    f"Give a smaller {k} or a larger {self.option('hidden')}."
                )
