"""The posteriors between which `patrac fit` chooses: architecture, prior, and the number of networks and chains."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture, Full, Mix, Out
from patrac_native.diagnostics.psis import LEAST_DRAWS
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.budget import MIN_STEPS, Schedule, run_kernel, schedule_given, schedule_within, steps_within
from patrac_native.fit.fit_data import DataRows
from patrac_native.fit.model_settings import CHAINS, DRAWS_OF_CHAIN, MINUTES, ModelSettings
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import GaussianPrior, Prior, SampledScales, TraceClassPrior
from patrac_native.sampling.sampler import sample, sample_many
from patrac_native.sampling.warmup import Warmup

# The numbers of networks where the architecture is chosen: of Mix, whose frozen nodes no chain changes, and of classes.
_MIX_NETWORKS, _CLASS_NETWORKS = 4, 5
# Where the noise has its own variance in each row, chains become twice as many if each still gets so many steps.
_MANY_CHAINS_STEPS = 3 * MIN_STEPS
# Pilot runs leave out this share of the rows, on which they are scored, and have so many chains and draws of each.
PILOT_FRACTION, _PILOT_CHAINS, _PILOT_DRAWS = 0.2, 2, 100
# Mix is tried with the widths divided by 2, 4, ... until each is at most this.
_MIN_NODES = 5
# How warnings of `sample` begin that are findings of the verdict too, which words their remedies in settings of a fit.
_WARNINGS_OF_VERDICT = (
    "the warm-up ended after",
    r"\d+ proposals had a log-likelihood",
    ".*keeps fixed have fitted noise",
)


class RunInterrupted(RuntimeError):
    """Ctrl-C ended a run before it had enough draws to be scored."""


@dataclass(frozen=True)
class Candidate:
    """A choice of posteriors and of their chains.

    Attributes
    ----------
    likelihood : Likelihood
        Of the standardised targets, or of the others as they are.
    architecture : Architecture
    prior : {"gaussian", "trace-class"}
    networks : int
        Number of trained networks, each with a posterior of its own; several predict as an equally weighted mixture.
    chains, draws : int
        Number of chains of each posterior, and of draws of each chain.
    """

    likelihood: Likelihood
    architecture: Architecture
    prior: str
    networks: int
    chains: int
    draws: int

    @property
    def n_chains(self) -> int:
        """Number of chains of all posteriors."""
        return self.networks * self.chains

    @property
    def starts_at_networks(self) -> bool:
        """Whether the chains of one posterior start at networks that are trained alike from other random weights.

        Such networks lie in different regions of high posterior density, as far apart as regions that training finds
        are, so that R-hat still sees chains that do not meet, and a short run represents several regions. Other
        architectures than Full keep parameters of their network, which do not fit another's.
        """
        return isinstance(self.architecture, Full) and self.networks == 1

    @property
    def trained(self) -> int:
        """Number of networks to train."""
        return self.chains if self.starts_at_networks else self.networks

    def pilot(self) -> Candidate:
        """Return the candidate of a short run: fewer chains, of one network each if there are several networks."""
        chains = min(_PILOT_CHAINS, self.n_chains)
        several = self.networks > 1
        return replace(self, networks=chains if several else 1, chains=1 if several else chains, draws=_PILOT_DRAWS)

    def with_more_chains(self, minutes: float, net: Network, rows: DataRows, settings: ModelSettings) -> Candidate:
        """Return the candidate with twice as many chains of half the length, if its noise has a variance of each row.

        Four such chains rarely converge within the budget, and a chain whose noise variance vanishes near an unseen row
        dominates the score; eight, from eight networks, dilute it (docs/performance.md, Predictive quality). Each must
        still get `_MANY_CHAINS_STEPS` steps of the minutes; of the network, only sizes count. Numbers of chains and
        draws that the settings give stay.
        """
        given = (settings.chains, settings.draws, settings.thin) != (None, None, None)
        if given or not self.starts_at_networks or self.likelihood.outputs_per_target == 1:
            return self
        more = replace(self, chains=2 * self.chains, draws=self.draws // 2)
        return more if more.steps_within(minutes, net, rows, settings) >= _MANY_CHAINS_STEPS else self

    def __str__(self) -> str:
        of_networks = f" of {self.networks} networks" if self.networks > 1 else ""
        noise = ", heteroscedastic noise" if self.likelihood.outputs_per_target > 1 else ""
        return f"{self.architecture.label()}{of_networks}, {self.prior} prior{noise}"

    def posteriors(self, nets: Sequence[Network], rows: DataRows, settings: ModelSettings) -> list[Posterior]:
        """Return the posterior of each network."""
        return [
            Posterior(
                net,
                self.architecture,
                self._prior(net, settings.alpha),
                self.likelihood,
                rows.X,
                rows.y,
                sample_weight=rows.sample_weight,
                offset=rows.offset,
                dtype=settings.dtype,
            )
            for net in nets[: self.networks]
        ]

    def steps_within(self, minutes: float, net: Network, rows: DataRows, settings: ModelSettings) -> int:
        """Return the number of steps of each chain for which so many minutes pay; of the network, only sizes count."""
        post = self.posteriors([net], rows, settings)[0]
        return steps_within(minutes, post, self.n_chains, settings.kernel)

    def schedule(self, post: Posterior, settings: ModelSettings, minutes: float) -> Schedule:
        """Return the lengths of the chains, which the settings give or which take so many minutes."""
        given = settings.given_warmup()
        warmup = given.steps if isinstance(given, Warmup) else given
        if run_kernel(post, settings.kernel).is_independent:
            return Schedule(settings.thin or 1, 0)
        if settings.thin is not None:
            default = schedule_given(settings.thin, self.draws)
            return default if warmup is None else replace(default, warmup=warmup)
        return schedule_within(
            minutes, post, chains=self.n_chains, draws=self.draws, warmup=warmup, kernel=settings.kernel
        )

    def warmup(self, post: Posterior, schedule: Schedule, settings: ModelSettings) -> Warmup:
        """Return the warm-up of the chains."""
        return settings.warmup_of(schedule.warmup, run_kernel(post, settings.kernel))

    def sample(
        self,
        posts: Sequence[Posterior],
        nets: Sequence[Network],
        schedule: Schedule,
        settings: ModelSettings,
        *,
        pilot: Draws | DrawsMixture | None = None,
        stop_when: Callable[[Draws], bool] | None = None,
        say: Callable[[str], None] = print,
    ) -> Draws | DrawsMixture:
        """Sample the posteriors of `posteriors`.

        Parameters
        ----------
        posts : sequence of Posterior
        nets : sequence of Network
            At least `trained` networks, of which the first belong to the posteriors.
        schedule : Schedule
        settings : ModelSettings
        pilot : Draws or DrawsMixture, optional
            The pilot run: where chains start at networks, the first of them go on from where its chains ended, each of
            which began at a network of its own.
        stop_when : callable, optional
            Ends the run of a single posterior early, as in `sample`.
        say : callable
            Receives a line if the run was interrupted; default `print`.

        Returns
        -------
        Draws or DrawsMixture
            A mixture if there are several posteriors.

        Raises
        ------
        RunInterrupted
            If the run was interrupted before each chain had enough draws for the scores: 4, or without held-out rows 25
            of each network.
        """
        arguments: dict[str, Any] = {
            "draws": self.draws,
            "thin": schedule.thin,
            "warmup": self.warmup(posts[0], schedule, settings),
            "seed": settings.seed,
            "threads": settings.threads,
            "kernel": settings.kernel,
            "device": settings.device,
            "progress": settings.progress,
        }
        init: str | npt.NDArray[Any] = "auto"
        if self.starts_at_networks:
            init = self._starts(posts[0], nets)
            if isinstance(pilot, Draws):
                ends = pilot.theta[: self.chains, -1]
                init[: len(ends)] = ends
        with warnings.catch_warnings():
            for start in _WARNINGS_OF_VERDICT:
                warnings.filterwarnings("ignore", message=start)
            if len(posts) == 1:
                found = [sample(posts[0], chains=self.chains, init=init, stop_when=stop_when, **arguments)]
            else:
                found = sample_many(posts, chains=self.chains, **arguments)
        usable = [draws for draws in found if draws.n_draws >= self._least_draws(settings)]
        if not usable:
            raise RunInterrupted(
                f"the run was interrupted before there were {self._least_draws(settings)} draws of each chain; "
                f"{settings.nothing_done}."
            )
        if len(posts) == 1:
            return usable[0]
        if len(usable) < len(posts):
            say(f"  the run was interrupted: {len(usable)} of {len(posts)} networks have enough draws")
        # After an interrupt, networks may differ in their numbers of draws.
        common = min(draws.n_draws for draws in usable)
        return DrawsMixture([draws.head(common) for draws in usable])

    def check(self, settings: ModelSettings) -> None:
        """Raise ValueError if there are too few draws for the scores."""
        if self.draws < self._least_draws(settings):
            least = self._least_draws(settings)
            raise ValueError(
                f"{settings.option('draws')} must be at least {least} for {self.chains} chains of "
                f"each network{settings.why_left_out}, whose leave-one-out scores need 25 draws of each network; got "
                f"{self.draws}."
            )

    def _least_draws(self, settings: ModelSettings) -> int:
        """Return the smallest number of draws of a chain that can be scored."""
        return max(4, math.ceil(LEAST_DRAWS / self.chains)) if settings.leaves_one_out else 4

    def _starts(self, post: Posterior, nets: Sequence[Network]) -> npt.NDArray[Any]:
        """Return the parameters of a network for each chain; each network is ranked by itself."""
        prior, level = post.network.prior, post.network.level
        ranked = [
            PartialNetwork(net, self.architecture, prior, dtype=post.network.dtype.name, level=level)
            for net in nets[: self.chains]
        ]
        return np.stack([one.theta_map for one in ranked])

    def _prior(self, net: Network, alpha: float | None) -> Prior:
        if self.prior == "gaussian":
            # Where the kernel integrates output weights out, their scale does not hold the chain back.
            return GaussianPrior(scales=SampledScales(interweave=not self.likelihood.integrates_outputs))
        with warnings.catch_warnings():
            # `describe_prior` says so in the words of a fit.
            warnings.filterwarnings("ignore", message="TraceClassPrior.fit: alpha ended at")
            return TraceClassPrior.fit(net, alpha=alpha)


def possible_candidates(settings: ModelSettings, likelihoods: Sequence[Likelihood]) -> list[Candidate]:
    """Return the posteriors to choose from, in the order in which they are tried; one if the settings leave no choice.

    Parameters
    ----------
    settings : ModelSettings
    likelihoods : sequence of Likelihood
        Those to choose from. The last is that of a posterior whose architecture the settings give, and of all
        architectures where there is a choice; the others are tried with Full.
    """
    *others, likelihood = likelihoods
    given = settings.bayesian()
    if given is not None:
        return [_candidate(likelihood, given, settings)]
    if likelihood.targets == "class":
        # On digits, Full of one network was measured to be worse than the network under every prior tried.
        return [
            _candidate(likelihood, Out(settings.hidden[-1]), settings, _CLASS_NETWORKS),
            _candidate(likelihood, Full(), settings),
        ]
    found = [_candidate(other, Full(), settings) for other in others]
    found += [_candidate(likelihood, Full(), settings, prior=prior) for prior in ("gaussian", "trace-class")]
    nodes = [min(_MIN_NODES, width) for width in settings.hidden]
    if nodes != list(settings.hidden):
        found.append(_candidate(likelihood, _mix(nodes), settings, _MIX_NETWORKS))
    return list(dict.fromkeys(found))


def affordable_candidates(
    possible: Sequence[Candidate],
    nets: Sequence[Network],
    rows: DataRows,
    settings: ModelSettings,
    minutes: float,
) -> tuple[list[Candidate], str]:
    """Return the posteriors of one likelihood for which the budget pays, and in words why if there is one.

    Parameters
    ----------
    possible : list of Candidate
        Those of one likelihood, as `possible_candidates` returns them.
    nets : sequence of Network
        Trained by that likelihood.
    rows : DataRows
        The training rows.
    settings : ModelSettings
    minutes : float
        What the budget leaves for the chains, those of the choice included.

    Returns
    -------
    candidates : list of Candidate
        Those that get enough steps with what the choice leaves of the budget, if the first is among them; the first
        alone, if `thin` takes the place of the budget. Otherwise the largest Mix that gets enough steps of the whole
        budget, or for classes the first.
    reason : str
        Empty if there are several.
    """
    if settings.bayesian() is not None:
        return list(possible), "as asked"

    def steps_of(candidate: Candidate, minutes: float) -> int:
        return candidate.steps_within(minutes, nets[0], rows, settings)

    budget = settings.minutes or MINUTES
    final = minutes * final_share(possible) if len(possible) > 1 else minutes
    steps = steps_of(possible[0], final)
    if steps >= MIN_STEPS:
        if settings.thin is not None:
            return [possible[0]], (
                f"the default, without a choice, because {settings.option('thin')} takes the place of the budget"
            )
        others = [candidate for candidate in possible[1:] if steps_of(candidate, final) >= MIN_STEPS]
        if others or len(possible) == 1:
            return [possible[0], *others], "" if others else _describe_steps(steps_of(possible[0], minutes), budget)
        steps = _two_digits(steps_of(possible[0], minutes))
        return [possible[0]], f"the only one that the budget pays for: about {steps:,} steps a chain"
    candidate = possible[0]
    if candidate.likelihood.targets != "class":
        for architecture in _smaller(settings.hidden):
            candidate = replace(possible[-1], architecture=architecture)
            steps = steps_of(candidate, minutes)
            if steps >= MIN_STEPS:
                break
    return [candidate], _describe_steps(steps, budget)


def final_share(candidates: Sequence[Candidate]) -> float:
    """Return the share of the budget that is left for the final run if all candidates have a pilot run.

    A pilot run of each candidate then has as many steps as the final run, on fewer rows and with fewer chains.
    """
    return 1.0 / (1.0 + sum(pilot_cost(one) for one in candidates))


def pilot_cost(candidate: Candidate) -> float:
    """Return the operations of a pilot run relative to those of a final run with as many steps."""
    return (1 - PILOT_FRACTION) * candidate.pilot().n_chains / candidate.n_chains


def _candidate(
    likelihood: Likelihood, architecture: Architecture, settings: ModelSettings, networks: int = 1, prior: str = "auto"
) -> Candidate:
    """Return the candidate of an architecture, with what the settings give in place of the defaults."""
    networks = networks if settings.networks is None else settings.networks
    if settings.prior != "auto":
        prior = settings.prior
    elif settings.alpha is not None:
        prior = "trace-class"
    elif prior == "auto":
        # The nodes of Full are exchangeable. Under a prior that does not depend on their rank, whose variances of each
        # layer the data choose, its chains were measured to mix better, and to predict no worse, on four UCI sets. A
        # confident classifier has output weights far larger than the paper's prior allows, which doubled the NLL on
        # digits.
        prior = "gaussian" if isinstance(architecture, Full) or likelihood.targets == "class" else "trace-class"
    several = networks > 1
    return Candidate(
        likelihood,
        architecture,
        prior,
        networks,
        CHAINS[several] if settings.chains is None else settings.chains,
        DRAWS_OF_CHAIN[several] if settings.draws is None else settings.draws,
    )


def _smaller(hidden: Sequence[int]) -> Iterator[Architecture]:
    """Yield Mix with the hidden widths divided by 2, 4 and so on; at least one."""
    nodes = np.asarray(hidden)
    while True:
        nodes = np.maximum(np.minimum(nodes, _MIN_NODES), nodes // 2)
        yield _mix(nodes.tolist())
        if (nodes <= _MIN_NODES).all():
            return


def _mix(nodes: Sequence[int]) -> Mix:
    return Mix(nodes[0] if len(set(nodes)) == 1 else nodes)


def _describe_steps(steps: int, minutes: float) -> str:
    """Return in words why an architecture was chosen by its number of steps."""
    rounded = _two_digits(steps)
    if steps >= MIN_STEPS:
        return f"the largest that gets {MIN_STEPS:,} steps a chain: about {rounded:,} in {minutes:.2g} minutes"
    return f"the smallest, though {minutes:.2g} minutes pay for only about {rounded:,} steps a chain"


def _two_digits(value: int) -> int:
    """Round to two significant digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return int(round(value / size) * size)
