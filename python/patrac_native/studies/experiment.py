"""An experiment: a problem, an architecture, a run of the sampler, and a record of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.architectures import Architecture, Full, Mix, Out, Sep
from patrac_native.diagnostics.regression import QuantileMethod
from patrac_native.draws.draws import Draws
from patrac_native.kernels import PCNL, Kernel, short_name
from patrac_native.likelihoods import Gaussian
from patrac_native.network.network import Network
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import Prior
from patrac_native.sampling.sampler import sample
from patrac_native.sampling.warmup import Warmup
from patrac_native.studies.sampled_noise import Candidate, with_noise
from patrac_native.validation.checks import FloatArray, check_count

# The architectures of the paper's tables, the slowest first: if their chains run at the same time, the longest one
# should not start last.
ARCHITECTURES: tuple[Architecture, ...] = (Full(), Sep(2), Sep(5), Mix(2), Mix(5), Out(12), Out(45))
# Probabilities outside the intervals whose coverage is reported (paper, Figure 3).
TAU = (0.01, 0.05, 0.35)
# The paper's ESS is a sum of autocorrelations over lags up to 1000 steps (Appendix C).
PAPER_LAGS = 1000
# The ESS is computed from every fourth state, or from fewer if their theta would take more than this many bytes. Fewer
# states have a smaller ESS where chains integrate output weights out, since they draw them independently for each state
# that is kept.
ESS_THIN = 4
MAX_KEPT_BYTES = 192 * 2**20


@dataclass(frozen=True)
class Problem:
    """The data of a regression problem with one output and Gaussian noise.

    Attributes
    ----------
    name : str
    layer_sizes : tuple of int
        Widths of the network to train.
    X, y : ndarray, shapes (n, d), (n,)
        Training rows.
    X_test, y_test : ndarray, shapes (n_test, d), (n_test,)
        Test rows.
    grid : ndarray, shape (g, d)
        Inputs at which mixing and convergence of f are measured.
    variance : float, optional
        Variance of the noise, in squared units of y; None if it is not known, and sampled.
    truth_test : ndarray, shape (n_test,), optional
        The true f at the test inputs, if it is known.
    """

    name: str
    layer_sizes: tuple[int, ...]
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    grid: FloatArray
    variance: float | None
    truth_test: FloatArray | None = None

    @property
    def likelihood(self) -> Gaussian:
        """The Gaussian likelihood with the problem's variance, or with one that is sampled."""
        return Gaussian("sampled" if self.variance is None else self.variance)


@dataclass(frozen=True)
class SamplingSettings:
    """The settings with which each posterior is sampled.

    Attributes
    ----------
    steps : int
        Number of steps of each chain after the warm-up, a multiple of `draws`.
    draws : int
        Number of draws of each chain for scores, intervals and plots.
    chains : int
        Number of chains; default 1.
    warmup : "auto", int or Warmup
        As in `sample`.
    kernel : Kernel or "auto"
        Default `PCNL()`, the paper's kernel; "auto" as in `sample`.
    threads : int
        Number of native threads, which run chains at the same time; default 1.
    progress : bool, optional
        As in `sample`; default False.
    quantiles : str
        Estimator of the ends of intervals, as in `coverage`; default "weibull".
    steps_by_model : mapping of str to int
        Numbers of steps, by label, that differ from `steps`; default none.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer of at least 1, or `steps` is not a multiple of `draws`.
    """

    steps: int
    draws: int
    chains: int = 1
    warmup: str | int | Warmup = "auto"
    kernel: Kernel | str = field(default_factory=PCNL)
    threads: int = 1
    progress: bool | None = False
    quantiles: QuantileMethod = "weibull"
    steps_by_model: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("steps", "draws", "chains", "threads"):
            check_count(getattr(self, name), name)
        if self.steps % self.draws:
            raise ValueError(f"steps must be a multiple of draws; got steps={self.steps}, draws={self.draws}.")

    @property
    def thin(self) -> int:
        """Number of steps for each scored draw."""
        return self.steps // self.draws

    def of_model(self, label: str) -> SamplingSettings:
        """Return the settings of one model, with its own number of steps."""
        return replace(self, steps=self.steps_by_model.get(label, self.steps), steps_by_model={})

    def ess_thin(self, dim: int, itemsize: int = 4) -> int:
        """Return the thinning for the ESS: a divisor of `thin` for which theta takes at most MAX_KEPT_BYTES.

        Parameters
        ----------
        dim : int
            K, the number of Bayesian parameters.
        itemsize : int
            Size of one entry of theta in bytes.

        Returns
        -------
        int
            `thin` if no smaller divisor is possible.
        """
        minimum = self.chains * self.steps * dim * itemsize / MAX_KEPT_BYTES
        divisors = (value for value in range(min(ESS_THIN, self.thin), self.thin) if self.thin % value == 0)
        return next((value for value in divisors if value >= minimum), self.thin)


@dataclass(frozen=True)
class Record:
    """The results of one run of one architecture, as tables and summary.json contain them.

    Attributes
    ----------
    architecture : str
        Label of the architecture, such as "Mix(5)".
    dim : int
        K, the number of Bayesian parameters.
    chains, draws, thin : int
        Number of chains, of scored draws of each chain, and of steps for each scored draw.
    ess_thin : int
        Number of steps between the states from which the ESS is computed.
    steps, warmup_steps : int
        Number of steps of each chain after the warm-up, and of its warm-up.
    kernel : str
        The kernel of the run.
    nll : float
        Negative log-likelihood as in the paper's Table 1, a sum over test rows without the constant; see
        `diagnostics.nll`.
    nlpd : float
        Negative log predictive density, mean over test rows.
    rmse : float
        Root mean squared error of the posterior mean, relative to the true f or, if that is unknown, to y.
    coverage : dict of str to float
        Share of test rows inside the central interval, by its nominal probability, such as "0.95".
    coverage_of : str
        "f", or "y" for intervals that include the noise.
    max_rhat, min_ess_bulk : float
        Worst values over the grid, from the scored draws.
    ess, ess_paper : float
        Effective sample size of f over the grid, of all chains together: by Geyer's sequence, and by the paper's sum
        over lags up to 1000 steps, which are 1000 / ess_thin kept draws, and at most a tenth of the chain.
    ess_per_second, ess_paper_per_second : float
        Effective sample sizes divided by `seconds`.
    acceptance_rate, step_size : float
        Means over chains and draws.
    steps_per_second : float
        Speed of all chains together, warm-up included.
    seconds : float
        Wall-clock time of the sampler, warm-up included.
    """

    architecture: str
    dim: int
    chains: int
    draws: int
    thin: int
    ess_thin: int
    steps: int
    warmup_steps: int
    kernel: str
    nll: float
    nlpd: float
    rmse: float
    coverage: Mapping[str, float]
    coverage_of: str
    max_rhat: float
    min_ess_bulk: float
    ess: float
    ess_paper: float
    ess_per_second: float
    ess_paper_per_second: float
    acceptance_rate: float
    step_size: float
    steps_per_second: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """A record with its draws, for plots.

    Attributes
    ----------
    record : Record
    draws : Draws
        The scored draws.
    f_test : ndarray, shape (chain, draw, n_test, 1)
        Their outputs at the test inputs.
    autocorrelation : ndarray, shape (chain, lag + 1)
        Autocorrelation of f over the grid; one lag is `record.ess_thin` steps.
    pit_f, pit_y : ndarray, shape (n_test,)
        Share of draws of f, and of y with its noise, below each test observation.
    """

    record: Record
    draws: Draws
    f_test: npt.NDArray[Any]
    autocorrelation: FloatArray
    pit_f: FloatArray
    pit_y: FloatArray


def run_architecture(
    problem: Problem,
    net: Network,
    prior: Prior,
    candidate: Candidate,
    settings: SamplingSettings,
    *,
    seed: int,
) -> Outcome:
    """Sample one architecture's posterior and score it on the test rows.

    Parameters
    ----------
    problem : Problem
    net : Network
        The trained network.
    prior : Prior
        Usually `TraceClassPrior.fit(net)`.
    candidate : Architecture or SampledNoise
    settings : SamplingSettings
    seed : int
        Seed of the chains and of the predictive noise, which determines the outcome except for its times.

    Returns
    -------
    Outcome

    Raises
    ------
    KeyboardInterrupt
        If the run was interrupted.
    """
    architecture, likelihood = with_noise(candidate, problem.likelihood)
    post = Posterior(net, architecture, prior, likelihood, problem.X, problem.y)
    ess_thin = settings.ess_thin(post.dim, post.dtype.itemsize)
    kept = sample(
        post,
        settings.kernel,
        chains=settings.chains,
        draws=settings.steps // ess_thin,
        thin=ess_thin,
        warmup=settings.warmup,
        seed=seed,
        threads=settings.threads,
        progress=settings.progress,
    )
    if not kept.settings["completed"]:
        # The scores of an incomplete run could not be told from those of a complete one.
        raise KeyboardInterrupt
    f_grid = kept.predict(problem.grid, threads=settings.threads)
    # Sums over more lags than a tenth of the chain are mostly noise, which matters only for runs far shorter than the
    # paper's.
    lags = max(1, min(PAPER_LAGS // ess_thin, kept.n_draws // 10))
    rho = diagnostics.autocorrelation(f_grid, max_lag=min(4 * lags, kept.n_draws - 2))
    ess = diagnostics.ess_geyer(f_grid)
    ess_paper = diagnostics.ess_paper(f_grid, max_lag=lags)

    draws = kept.thinned(settings.thin // ess_thin)
    f_test = draws.predict(problem.X_test, threads=settings.threads)
    rng, sampled = np.random.default_rng(seed), likelihood.is_sampled
    variance = draws.stats["variance"] if sampled else likelihood.variance_vector(1)
    y_draws = likelihood.sample_at(f_test, rng, variance) if sampled else likelihood.sample(f_test, rng)
    worst = diagnostics.convergence(draws.predict(problem.grid, threads=settings.threads)).worst()
    seconds = float(kept.settings["seconds"])
    record = Record(
        architecture=candidate.label(),
        dim=post.dim,
        chains=settings.chains,
        draws=settings.draws,
        thin=settings.thin,
        ess_thin=ess_thin,
        steps=settings.steps,
        warmup_steps=kept.settings["warmup_steps"],
        kernel=short_name(kept.settings["kernel"]),
        **score_draws(problem, f_test, y_draws, variance, settings.quantiles),
        coverage_of="y" if problem.truth_test is None else "f",
        max_rhat=worst["max_rhat"],
        min_ess_bulk=worst["min_ess_bulk"],
        ess=ess,
        ess_paper=ess_paper,
        ess_per_second=ess / seconds,
        ess_paper_per_second=ess_paper / seconds,
        acceptance_rate=float(kept.stats["acceptance_rate"].mean()),
        step_size=float(kept.stats["step_size"].mean()),
        steps_per_second=kept.steps_per_second,
        seconds=seconds,
    )
    return Outcome(
        record,
        draws,
        f_test,
        rho,
        pit_f=diagnostics.pit(f_test, problem.y_test),
        pit_y=diagnostics.pit(y_draws, problem.y_test),
    )


def score_draws(
    problem: Problem,
    f_test: npt.NDArray[Any],
    y_draws: npt.NDArray[Any],
    variance: npt.ArrayLike,
    quantiles: QuantileMethod = "weibull",
) -> dict[str, Any]:
    """Return nll, nlpd, rmse and coverage of draws of f at the test rows, and of y with its noise.

    `variance` is that of the noise, or one for each draw; `quantiles` as in `SamplingSettings`.
    """
    truth = problem.y_test if problem.truth_test is None else problem.truth_test
    covered = diagnostics.coverage(y_draws if problem.truth_test is None else f_test, truth, tau=TAU, method=quantiles)
    return {
        "nll": diagnostics.nll(f_test, problem.y_test, variance),
        "nlpd": diagnostics.nlpd(f_test, problem.y_test, variance),
        "rmse": diagnostics.rmse(f_test, truth),
        "coverage": {f"{1 - tau:g}": float(share) for tau, share in zip(TAU, covered, strict=True)},
    }


def derived_seed(seed: int, *path: int) -> int:
    """Return a seed in 0..2^63-1 for the part of a study at `path`, so that parts have different random streams."""
    check_count(seed, "seed", least=0)
    # The path is a spawn key, because the entropies [0] and [0, 0] would give the same seed.
    state = np.random.SeedSequence(seed, spawn_key=path).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
