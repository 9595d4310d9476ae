"""The posteriors between which a fit chooses: likelihood, architecture, prior, and numbers of networks and chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native.diagnostics import convergence
from patrac_native.fit.budget import MIN_STEPS, minutes_of, steps_within
from patrac_native.fit.evaluation import members_of
from patrac_native.fit.rows import FloatArray, Rows
from patrac_native.fit.settings import CHAINS, DRAWS, Architecture, Likelihood, Prior, Settings
from patrac_native.fit.training import PILOT_FRACTION, pilot_runs

# The numbers of networks where the architecture is chosen: of Mix, whose frozen nodes no chain changes, and of classes.
_MIX_NETWORKS, _CLASS_NETWORKS = 4, 8
# Where the noise has its own variance in each row, chains become twice as many if each still gets so many steps.
_MANY_CHAINS_STEPS = 3 * MIN_STEPS
# The share of a chain's steps that are warm-up, and the multiple to which their number is rounded; bounds of the number
# of warm-up steps where the number of steps is given.
_WARMUP_SHARE, _WARMUP_MULTIPLE, _WARMUP_BOUNDS = 0.25, 200, (4_000, 20_000)
# Pilot runs have so many chains, and draws of each.
_PILOT_CHAINS, _PILOT_DRAWS = 2, 100
# Where the budget pays for no choice, the largest posterior is taken whose chains get so many steps: a larger one with
# shorter chains predicts better than a smaller one, whose frozen nodes no chain can mend (docs/tried.md).
_LEAST_STEPS = 1_500
# Mix is tried with the widths divided by 2, 4, ... until each is at most this.
_MIN_NODES = 5
# Leave-one-out scores need so many draws of each network, others so many of each chain.
_LOO_DRAWS, _SCORED_DRAWS = 25, 4
# The largest share of the chains' budget that the replicates get with which a fit to a precision begins, and a rerun
# error that is rarely exceeded by them: eight had 1.5 to 5% on four UCI sets (docs/rerun.md).
_FIRST_SHARE, _FIRST_ERROR = 0.25, 0.05
# The R-hat with which draws can be used (docs/method.md, 8), and the maximum number of rows at which it is looked at.
RHAT_USABLE, GRID_ROWS = 1.05, 100
# The notes of `sample` that are findings of the verdict too, which words their remedies in settings of a fit.
_NOTES_OF_VERDICT = ("warm-up", "not finite", "fitted noise")


class RunInterrupted(RuntimeError):
    """Ctrl-C ended a run before it had enough draws to be scored."""


@dataclass(frozen=True)
class Schedule:
    """Lengths of the chains: number of steps for each draw, and of warm-up steps."""

    thin: int
    warmup: int


@dataclass(frozen=True)
class Candidate:
    """A choice of posteriors and of their chains; several networks predict as an equally weighted mixture.

    The likelihood is that of the network's targets: standardised ones, or counts and labels as they are.
    """

    likelihood: Likelihood
    architecture: Architecture
    prior: str  # "gaussian" or "trace-class"
    networks: int  # trained networks, each with a posterior of its own
    chains: int  # of each posterior
    draws: int  # of each chain

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
        return not self.architecture.fixes_nodes and self.networks == 1

    @property
    def trained(self) -> int:
        """Number of networks to train."""
        return self.chains if self.starts_at_networks else self.networks

    def pilot(self) -> Candidate:
        """Return the candidate of a short run: fewer chains, of one network each if there are several networks."""
        chains = min(_PILOT_CHAINS, self.n_chains)
        several = self.networks > 1
        return replace(self, networks=chains if several else 1, chains=1 if several else chains, draws=_PILOT_DRAWS)

    def with_more_chains(self, minutes: float, net: pn.Network, rows: Rows, settings: Settings) -> Candidate:
        """Return the candidate with twice as many chains of half the length, if its noise has a variance of each row.

        Four such chains rarely converge within the budget, and a chain whose noise variance vanishes near an unseen row
        dominates the score; eight, from eight networks, dilute it (docs/performance.md, Predictive quality). Each must
        still get `_MANY_CHAINS_STEPS` steps of the minutes. Numbers that the settings give stay.
        """
        given = (settings.chains, settings.draws, settings.thin) != (None, None, None)
        if given or not self.starts_at_networks or not self.likelihood.noise_by_row:
            return self
        more = replace(self, chains=2 * self.chains, draws=self.draws // 2)
        return more if more.steps_within(minutes, net, rows, settings) >= _MANY_CHAINS_STEPS else self

    def __str__(self) -> str:
        of_networks = f" of {self.networks} networks" if self.networks > 1 else ""
        noise = ", heteroscedastic noise" if self.likelihood.noise_by_row else ""
        return f"{self.architecture.label()}{of_networks}, {self.prior} prior{noise}"

    def posteriors(self, nets: Sequence[pn.Network], rows: Rows, settings: Settings) -> list[pn.Posterior]:
        """Return the posterior of each network."""
        return [
            pn.Posterior(
                net,
                self.architecture,
                self._prior(net, settings.prior_alpha),
                self.likelihood,
                rows.X,
                rows.y,
                sample_weight=rows.sample_weight,
                offset=rows.offset,
                dtype=settings.dtype,
            )
            for net in nets[: self.networks]
        ]

    def _prior(self, net: pn.Network, alpha: float | None) -> Prior:
        """Return the prior of a network's posterior."""
        if self.prior == "gaussian":
            # Where the kernel integrates output weights out, their scale does not hold the chain back.
            integrates = self.likelihood.integrates_outputs(net.layer_sizes[-1])
            return pn.GaussianPrior(scales=pn.SampledScales(interweave=not integrates))
        with pn.Note.collect("decay"):  # `describe_prior` says so in the words of a fit
            return pn.TraceClassPrior.fit(net, alpha=alpha)

    def steps_within(self, minutes: float, net: pn.Network, rows: Rows, settings: Settings) -> int:
        """Return the number of steps of each chain for which so many minutes pay; of the network, only sizes count."""
        post = self.posteriors([net], rows, settings)[0]
        return steps_within(minutes, post, self.n_chains, settings.kernel)

    def first_share(self, post: pn.Posterior, settings: Settings, minutes: float) -> float:
        """Return the share of the minutes for the replicates with which a fit begins; one unless it has a precision.

        The rest pays for the replicates that bring an error of 5% to the precision, and for four times as many in any
        case, unless chains would have fewer than `MIN_STEPS` steps.
        """
        if settings.precision is None:
            return 1.0
        share = min(_FIRST_SHARE, (settings.precision / _FIRST_ERROR) ** 2)
        steps = steps_within(minutes, post, self.n_chains, settings.kernel)
        return min(1.0, max(share, MIN_STEPS / max(1, steps)))

    def pilot_minutes(self, minutes: float, net: pn.Network, rows: Rows, settings: Settings) -> float:
        """Return the minutes of a pilot run with as many steps as the final run would have, of so many minutes."""
        post = self.posteriors([net], rows, settings)[0]
        return minutes * self.first_share(post, settings, minutes) * pilot_cost(self, self.pilot_runs(len(rows.X)))

    def pilot_runs(self, rows: int) -> int:
        """Return how many pilot runs it has if so many rows are trained on."""
        return pilot_runs(rows, by_class=self.likelihood.has_classes)

    def schedule(self, post: pn.Posterior, settings: Settings, minutes: float) -> Schedule:
        """Return the lengths of the chains, which the settings give or which take so many minutes.

        With a precision they take the first share of the minutes.
        """
        minutes *= self.first_share(post, settings, minutes)
        given = settings.given_warmup()
        warmup = given.steps if isinstance(given, pn.Warmup) else given
        if post.plan(settings.kernel).is_independent:
            return Schedule(settings.thin or 1, 0)
        # Half as many steps as are given are warm-up; of a budget, a quarter.
        if settings.thin is None:
            steps = steps_within(minutes, post, self.n_chains, settings.kernel)
            default = max(_WARMUP_MULTIPLE, int(_WARMUP_SHARE * steps) // _WARMUP_MULTIPLE * _WARMUP_MULTIPLE)
            warmup = default if warmup is None else warmup
            return Schedule(max(1, (steps - warmup) // self.draws), warmup)
        half = settings.thin * self.draws // 2 // _WARMUP_MULTIPLE * _WARMUP_MULTIPLE
        return Schedule(settings.thin, int(np.clip(half, *_WARMUP_BOUNDS)) if warmup is None else warmup)

    def warmup(self, post: pn.Posterior, schedule: Schedule, settings: Settings) -> pn.Warmup:
        """Return the warm-up of the chains."""
        return settings.warmup_of(schedule.warmup, post.plan(settings.kernel).kernel)

    def least_draws(self, *, leaves_one_out: bool) -> int:
        """Return the smallest number of draws of a chain that can be scored, by held-out rows or by leaving one out."""
        return max(_SCORED_DRAWS, math.ceil(_LOO_DRAWS / self.chains)) if leaves_one_out else _SCORED_DRAWS

    def sample(
        self,
        posts: Sequence[pn.Posterior],
        nets: Sequence[pn.Network],
        schedule: Schedule,
        settings: Settings,
        *,
        until: Callable[[pn.Draws], bool] | None = None,
        least_draws: int = _SCORED_DRAWS,
        say: Callable[[str], None] = print,
    ) -> pn.Draws | pn.DrawsMixture:
        """Sample the posteriors; several give a mixture. Raises RunInterrupted for fewer than `least_draws` of a chain.

        `until` ends the run of a single posterior early, as in `pn.sample`.
        """
        arguments = self._arguments(posts[0], schedule, settings)
        if len(posts) == 1:
            arguments["init"] = self._starts(posts[0], nets) if self.starts_at_networks else "auto"
        with pn.Note.collect(*_NOTES_OF_VERDICT):
            found = settings.pieces.sample(posts, chains=self.chains, until=until, **arguments)
        usable = [draws for draws in found if draws.n_draws >= least_draws]
        if not usable:
            raise RunInterrupted(
                f"the run was interrupted before there were {least_draws} draws of each chain; nothing was fitted."
            )
        if len(posts) == 1:
            return usable[0]
        if len(usable) < len(posts):
            say(f"  the run was interrupted: {len(usable)} of {len(posts)} networks have enough draws")
        # After an interrupt, networks may differ in their numbers of draws.
        common = min(draws.n_draws for draws in usable)
        return pn.DrawsMixture([draws[:, :common] for draws in usable])

    def sample_more(
        self,
        draws: pn.Draws | pn.DrawsMixture,
        posts: Sequence[pn.Posterior],
        nets: Sequence[pn.Network],
        schedule: Schedule,
        settings: Settings,
    ) -> pn.Draws | pn.DrawsMixture:
        """Return the draws with those of so many more replicates; raise RunInterrupted if their run is interrupted.

        The candidate's numbers are of what is added: `networks`, with their posteriors, to a mixture; `chains` to the
        draws of one posterior, which start at networks or around the posterior's own.
        """
        arguments, before = {**self._arguments(posts[0], schedule, settings), "chains": self.chains}, draws.n_chains
        with pn.Note.collect(*_NOTES_OF_VERDICT):
            if isinstance(draws, pn.DrawsMixture):
                # As if the run had had as many networks from the beginning.
                arguments["seed"] = (settings.seed + len(draws.members)) % 2**64
            else:
                # Far from the seeds of other fits.
                arguments["seed"] = (settings.seed + before * 2**32) % 2**64
                arguments["init"] = self._starts(posts[0], nets) if self.starts_at_networks else "auto"
            found = settings.pieces.sample(posts, **arguments)
        if len(found) < len(posts) or any(one.n_draws < self.draws for one in found):
            raise RunInterrupted("the run of more replicates was interrupted.")
        if isinstance(draws, pn.DrawsMixture):
            return pn.DrawsMixture([*draws.members, *found])
        return draws + found[0]

    def minutes_of(self, draws: pn.Draws | pn.DrawsMixture, post: pn.Posterior, settings: Settings) -> float:
        """Return the minutes that the chains of draws took on the nominal machine, all of them at a time."""
        runs = [one.settings for one in members_of(draws)]
        steps = sum(run["warmup_steps"] + run["thin"] * draws.n_draws for run in runs) / len(runs)
        return minutes_of(steps, post, draws.n_chains, settings.kernel)

    def _arguments(self, post: pn.Posterior, schedule: Schedule, settings: Settings) -> dict[str, Any]:
        """Return the arguments of a run that do not depend on its number of chains."""
        return {
            "draws": self.draws,
            "thin": schedule.thin,
            "warmup": self.warmup(post, schedule, settings),
            "seed": settings.seed,
            "threads": settings.n_jobs,
            "kernel": settings.kernel,
            "device": settings.device,
            "progress": settings.progress,
        }

    def _starts(self, post: pn.Posterior, nets: Sequence[pn.Network]) -> npt.NDArray[Any]:
        """Return the parameters of a network for each chain; each network is ranked by itself."""
        prior, likelihood, dtype = post.network.prior, post.likelihood, post.network.dtype.name
        X, y = post.data.X[:1], post.data.y[:1]  # theta_map does not depend on the rows
        ranked = [
            pn.Posterior(net, self.architecture, prior, likelihood, X, y, dtype=dtype) for net in nets[: self.chains]
        ]
        return np.stack([one.theta_map for one in ranked])


def possible_candidates(settings: Settings, likelihoods: Sequence[Likelihood]) -> list[Candidate]:
    """Return the posteriors to choose from, in the order in which they are tried; one if the settings leave no choice.

    The last likelihood is that of a given architecture, and of all architectures where there is a choice; the others
    are tried with Full.
    """
    *others, likelihood = likelihoods
    given = settings.given_architecture()
    if given is not None:
        return [_candidate(likelihood, given, settings)]
    if likelihood.has_classes:
        # On digits, Full of one network was measured to be worse than the network under every prior tried.
        last = pn.Out(settings.hidden_layer_sizes[-1])
        return [_candidate(likelihood, last, settings, _CLASS_NETWORKS), _candidate(likelihood, pn.Full(), settings)]
    found = [_candidate(other, pn.Full(), settings) for other in others]
    found += [_candidate(likelihood, pn.Full(), settings, prior=prior) for prior in ("gaussian", "trace-class")]
    nodes = [min(_MIN_NODES, width) for width in settings.hidden_layer_sizes]
    if nodes != list(settings.hidden_layer_sizes):
        found.append(_candidate(likelihood, _mix(nodes), settings, _MIX_NETWORKS))
    return list(dict.fromkeys(found))


def have_converged(grid: FloatArray, draws: pn.Draws, *, rhat: float, ess: float, is_independent: bool = False) -> bool:
    """Return whether f, of classes their probability, at `grid` has at most this R-hat and this bulk ESS or more.

    A log-likelihood that disagrees says no at once.
    """
    if not convergence(draws.stats["log_likelihood"]).max_rhat <= RHAT_USABLE:
        return False
    f = draws.distribution(grid).outputs().reshape(draws.n_chains, draws.n_draws, len(grid), -1)
    found = convergence(draws.likelihood.identified(f))
    return bool((is_independent or found.max_rhat <= rhat) and found.min_ess_bulk >= ess)


def fewer_parameters(candidate: Candidate, settings: Settings, trained: int) -> list[Candidate]:
    """Return posteriors of the candidate's likelihood that stay closer to their networks, the smallest last.

    They are of several networks, of so many trained ones: the last layer of one alone would lack what these differ in.
    """
    networks = min(trained, _CLASS_NETWORKS if candidate.likelihood.has_classes else _MIX_NETWORKS)
    width = settings.hidden_layer_sizes[-1]
    return [_candidate(candidate.likelihood, pn.Out(k), settings, networks) for k in (10, 1) if k < width]


def affordable_candidates(
    possible: Sequence[Candidate], net: pn.Network, rows: Rows, settings: Settings, minutes: float
) -> tuple[list[Candidate], str]:
    """Return the posteriors of one likelihood for which the budget pays, and in words why if there is one.

    They are those that get `MIN_STEPS` with what the choice leaves of `minutes`, if the first is among them; the first
    alone, if `thin` takes the place of the budget; otherwise the first, if it gets `_LEAST_STEPS` of all minutes
    or has classes, else the largest Mix that does.
    """
    if settings.given_architecture() is not None:
        return list(possible), "as asked"

    def steps_of(candidate: Candidate, minutes: float) -> int:
        return candidate.steps_within(minutes, net, rows, settings)

    runs = possible[0].pilot_runs(len(rows.X))
    final = minutes * final_share(possible, runs) if len(possible) > 1 else minutes
    steps = steps_of(possible[0], final)
    if steps >= MIN_STEPS:
        if settings.thin is not None:
            return [possible[0]], "the default, without a choice, because thin takes the place of the budget"
        others = [candidate for candidate in possible[1:] if steps_of(candidate, final) >= MIN_STEPS]
        if others:
            return [possible[0], *others], ""
        steps = steps_of(possible[0], minutes)
        if len(possible) == 1:
            return [possible[0]], _describe_steps(steps, settings.minutes)
        return [possible[0]], f"the only one that the budget pays for: about {_two_digits(steps):,} steps a chain"
    if possible[0].likelihood.has_classes:
        rounded = _two_digits(steps_of(possible[0], minutes))
        return [
            possible[0]
        ], f"the default, as {settings.minutes:.2g} minutes pay for only about {rounded:,} steps a chain"
    smaller = _smaller(settings.hidden_layer_sizes)
    for candidate in [possible[0], *(replace(possible[-1], architecture=architecture) for architecture in smaller)]:
        steps = steps_of(candidate, minutes)
        if steps >= _LEAST_STEPS:
            break
    return [candidate], _describe_steps(steps, settings.minutes)


def final_share(candidates: Sequence[Candidate], runs: int = 1) -> float:
    """Return the share of the budget that is left for the final run if all candidates have so many pilot runs.

    A pilot run of each candidate then has as many steps as the final run, on fewer rows and with fewer chains.
    """
    return 1.0 / (1.0 + sum(pilot_cost(one, runs) for one in candidates))


def pilot_cost(candidate: Candidate, runs: int = 1) -> float:
    """Return the operations of so many pilot runs relative to those of a final run with as many steps."""
    return runs * (1 - PILOT_FRACTION) * candidate.pilot().n_chains / candidate.n_chains


def _candidate(
    likelihood: Likelihood, architecture: Architecture, settings: Settings, networks: int = 1, prior: str = "auto"
) -> Candidate:
    """Return the candidate of an architecture, with what the settings give in place of the defaults."""
    networks = networks if settings.networks is None else settings.networks
    if settings.prior != "auto":
        prior = settings.prior
    elif settings.prior_alpha is not None:
        prior = "trace-class"
    elif prior == "auto":
        # The nodes of Full are exchangeable. Under a prior that does not depend on their rank, whose variances of each
        # layer the data choose, its chains were measured to mix better, and to predict no worse, on four UCI sets. A
        # confident classifier has output weights far larger than the paper's prior allows, which doubled the NLL on
        # digits.
        prior = "gaussian" if not architecture.fixes_nodes or likelihood.has_classes else "trace-class"
    several = networks > 1
    chains, draws = settings.chains or CHAINS[several], settings.draws or DRAWS[several]
    return Candidate(likelihood, architecture, prior, networks, chains, draws)


def _smaller(hidden: Sequence[int]) -> Iterator[Architecture]:
    """Yield Mix with the hidden widths divided by 2, 4 and so on; at least one."""
    nodes = np.asarray(hidden)
    while True:
        nodes = np.maximum(np.minimum(nodes, _MIN_NODES), nodes // 2)
        yield _mix(nodes.tolist())
        if (nodes <= _MIN_NODES).all():
            return


def _mix(nodes: Sequence[int]) -> Architecture:
    """Return Mix with one number of nodes for all layers, if they agree."""
    return pn.Mix(nodes[0] if len(set(nodes)) == 1 else nodes)


def _describe_steps(steps: int, minutes: float) -> str:
    """Return in words why an architecture was chosen by its number of steps."""
    rounded = _two_digits(steps)
    if steps >= _LEAST_STEPS:
        return f"the largest that gets {_LEAST_STEPS:,} steps a chain: about {rounded:,} in {minutes:.2g} minutes"
    return f"the smallest, though {minutes:.2g} minutes pay for only about {rounded:,} steps a chain"


def _two_digits(value: int) -> int:
    """Round to two significant digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return int(round(value / size) * size)
