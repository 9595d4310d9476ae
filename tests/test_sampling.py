"""`sample`: the native chain against a NumPy chain step by step, what its draws may depend on, and bad arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from patrac_native.engine import _core
from patrac_native.sampling.warmup import Phase
from problems import ARCHITECTURES, Problem
from replay import accepts, proposal_normals, proposed
from rounding import assert_log_priors

FloatArray = npt.NDArray[np.float64]


def small(dtype: str = "float64", architecture: str = "mix") -> pn.Posterior:
    rng = problems.rng_of("sampling", architecture)
    return problems.problem(rng, (2, 5, 4, 2), 17, architecture, dtype=dtype).post


# The chain itself


def numpy_chain(problem: Problem, kernel: Any, u: FloatArray, chain: int, steps: int, seed: int) -> tuple[Any, ...]:
    """States, acceptances and log-likelihoods of a chain written from docs/method.md, sections 6 and 9."""
    C = problem.partial.prior_variances(problems.PRIOR, problem.post.network.net.layer_sizes)
    # A chain on sufficient statistics draws its noise in the eigenbasis: here it is rotated back.
    form = problem.post.sampled.quadratic
    rotation = np.eye(len(u)) if form is None else form.to_theta / np.sqrt(C)[:, None]

    def value_and_slope(theta: FloatArray) -> tuple[float, FloatArray]:
        return problem.reference_value(theta), problem.reference_gradient(theta)

    states, moves, values = [], [], []
    for step in range(steps):
        w = rotation @ proposal_normals(problem.post, seed, chain, step, len(u))
        v, _, log_ratio = proposed(
            kernel, u, C, w, lambda x: (problem.reference_value(x), problem.reference_gradient(x))
        )
        accepted = accepts(seed, chain, step, log_ratio)
        u = v if accepted else u
        states.append(u)
        moves.append(accepted)
        values.append(problem.reference_value(u))
    return np.array(states), np.array(moves), np.array(values)


@pytest.mark.parametrize("seed", [7, 2**45 + 3])
@pytest.mark.parametrize("kernel", [pn.PCNL(0.03), pn.PCNL(0.05), pn.PCN(0.3)], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_native_steps_are_the_reference_steps(architecture: str, kernel: Any, seed: int) -> None:
    """40 steps, rejections included.

    Each step adds some 100 roundings of numbers of order one, 1e-14, and a step may stretch earlier differences by its
    Lipschitz constant; where the chain contracts on average they stay near that: 1e-9 leaves five orders for stretches.
    """
    rng = problems.rng_of("chain", architecture, kernel, seed)
    problem = problems.problem(rng, (2, 5, 4, 2), 9, architecture)
    start = np.stack([problem.theta, problem.theta + 0.1])
    draws = pn.sample(problem.post, kernel, chains=2, draws=40, warmup=None, init=start, seed=seed)
    for chain in range(2):
        states, moves, values = numpy_chain(problem, kernel, start[chain], chain, 40, seed)
        np.testing.assert_array_equal(draws.stats["acceptance_rate"][chain], moves)
        np.testing.assert_allclose(draws.theta[chain], states, rtol=0, atol=1e-9)
        np.testing.assert_allclose(draws.stats["log_likelihood"][chain], values, rtol=1e-8)
    rate = draws.stats["acceptance_rate"].mean()
    assert 0 < rate < 1, "both outcomes must have been seen"


def test_step_words_of_the_noise_run_on_from_warmup_into_sampling() -> None:
    """Warm-up and sampling are one stream: a run is the tail of a longer one without warm-up."""
    post = small()
    split = pn.sample(post, pn.PCNL(0.2), chains=2, draws=30, warmup=pn.Warmup((Phase(50), Phase(20))), seed=3)
    whole = pn.sample(post, pn.PCNL(0.2), chains=2, draws=100, warmup=None, seed=3)
    np.testing.assert_array_equal(split.theta, whole.theta[:, 70:])


@pytest.mark.parametrize("kernel", [pn.PCNL(1.5), pn.PCN(0.9)], ids=str)
def test_a_flat_likelihood_always_accepts(kernel: Any) -> None:
    net = problems.random_network(problems.rng_of("flat"), (1, 3, 1))
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1e40), [[1.0], [2.0]], [0.0, 1.0], dtype="float64")
    draws = pn.sample(post, kernel, chains=2, draws=500, warmup=None, seed=1)
    assert (draws.stats["acceptance_rate"] == 1).all()


# What draws depend on


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["auto", pn.PCN()], ids=str)
def test_draws_are_the_same_for_any_number_of_threads(kernel: Any, dtype: str) -> None:
    post = small(dtype)
    runs = [
        pn.sample(post, kernel, chains=5, draws=50, thin=3, warmup=600, seed=9, threads=threads)
        for threads in (1, 2, 5)
    ]
    for other in runs[1:]:
        assert_same_draws(other, runs[0])


def test_a_chain_does_not_depend_on_how_many_others_there_are() -> None:
    post = small()
    few, many = (pn.sample(post, chains=chains, draws=20, warmup=400, seed=9) for chains in (2, 6))
    np.testing.assert_array_equal(few.theta, many.theta[:2])


@pytest.mark.parametrize("seed", [9, 2**50])
def test_chains_and_seeds_differ(seed: int) -> None:
    post = small()
    a, b = (pn.sample(post, pn.PCNL(0.01), chains=3, draws=9, warmup=None, seed=s) for s in (seed, seed + 1))
    firsts = [*a.theta[:, -1], *b.theta[:, -1]]
    for index, first in enumerate(firsts):
        for other in firsts[:index]:
            assert not np.isin(first, other).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thinned_draws_are_every_tenth_state(dtype: str) -> None:
    post = small(dtype)
    every = pn.sample(post, pn.PCNL(0.05), chains=2, draws=1000, thin=1, warmup=200, seed=2)
    tenth = pn.sample(post, pn.PCNL(0.05), chains=2, draws=100, thin=10, warmup=200, seed=2)
    np.testing.assert_array_equal(tenth.theta, every.theta[:, 9::10])
    for name in ("log_likelihood", "log_prior", "step_size"):
        np.testing.assert_array_equal(tenth.stats[name], every.stats[name][:, 9::10])
    # The rate is over the ten steps that end in the draw.
    moved = every.stats["acceptance_rate"].reshape(2, 100, 10)
    np.testing.assert_allclose(tenth.stats["acceptance_rate"], moved.mean(axis=-1), rtol=10 * 2.3e-16)
    assert 0 < moved.mean() < 1
    thinned = every[:, 9::10]
    np.testing.assert_array_equal(thinned.theta, tenth.theta)
    np.testing.assert_allclose(thinned.stats["acceptance_rate"], tenth.stats["acceptance_rate"], rtol=10 * 2.3e-16)
    assert thinned.settings["thin"] == 10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stats_are_those_of_the_kept_states(dtype: str) -> None:
    post = small(dtype)
    draws = pn.sample(post, pn.PCNL(0.05), chains=2, draws=60, thin=2, warmup=None, seed=2)
    for chain in range(2):
        # The same evaluation of the same state, so the same bits.
        np.testing.assert_array_equal(draws.stats["log_likelihood"][chain], post.log_likelihood(draws.theta[chain]))
    assert_log_priors(draws, post)
    assert draws.theta.dtype == np.dtype(dtype)
    assert (draws.stats["step_size"] == 0.05).all()
    assert draws.stats["nonfinite"].tolist() == [0, 0]


def test_without_a_seed_one_is_drawn_and_recorded() -> None:
    post = small()
    arguments: dict[str, Any] = {"kernel": pn.PCNL(0.05), "chains": 1, "draws": 5, "warmup": None}
    first = pn.sample(post, **arguments)
    again = pn.sample(post, **arguments, seed=first.settings["seed"])
    np.testing.assert_array_equal(first.theta, again.theta)
    assert pn.sample(post, **arguments).settings["seed"] != first.settings["seed"]


def test_the_default_kernel_is_the_one_that_describe_names_with_its_default_warmup() -> None:
    post = small()
    auto = pn.sample(post, chains=1, draws=5, seed=1)
    kernel = pn.MGrad(collapse=True, persistence=0.9)
    named = pn.sample(post, kernel, chains=1, draws=5, warmup=pn.Warmup.default(kernel), seed=1)
    np.testing.assert_array_equal(auto.theta, named.theta)
    assert auto.settings["kernel"] == kernel.to_dict()
    assert (
        "MGrad(collapse=True, persistence=0.9)" in post.describe() and auto.settings["kernel_reason"] in post.describe()
    )
    assert auto.settings["device"] == "cpu" and auto.settings["completed"]


@pytest.mark.parametrize("level", _core.testing.levels())
def test_levels_propose_the_same_noise(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of pCN on two levels agree to rounding while their accept decisions agree."""
    runs = []
    for name in (_core.testing.levels()[0], level):
        monkeypatch.setenv("PATRAC_SIMD", name)
        post = small()
        assert post.network.level == name
        runs.append(pn.sample(post, pn.PCN(0.2), chains=2, draws=30, warmup=None, seed=4))
    # pCN's states are linear in the noise, whose bits agree: the same states exactly if l only rounds differently.
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)


# Starting points


def first_states(post: pn.Posterior, **arguments: Any) -> npt.NDArray[Any]:
    """The starting points, to within a step so small that it cannot matter: beta sd <= 1e-12."""
    settings: dict[str, Any] = {"chains": 3, "seed": 6} | arguments
    return pn.sample(post, pn.PCN(1e-12), draws=1, warmup=None, **settings).theta[:, 0]


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if not name.startswith("sep")])
def test_init_auto_starts_at_the_trained_values_and_half_way_to_the_prior(architecture: str) -> None:
    post = small(architecture=architecture)
    expected = np.sqrt(0.75) * post.theta_map + 0.5 * first_states(post, init="prior")
    expected[0] = post.theta_map
    np.testing.assert_allclose(first_states(post), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(first_states(post, chains=1), post.theta_map[None], rtol=0, atol=1e-10)
    trained = np.tile(post.theta_map, (3, 1))
    np.testing.assert_allclose(first_states(post, init="map"), trained, rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", ["sep", "sep_by_layer"])
def test_init_auto_of_sep_is_a_prior_draw_for_each_chain(architecture: str) -> None:
    post = small(architecture=architecture)
    states = first_states(post)
    np.testing.assert_array_equal(states, first_states(post, init="prior"))
    assert not np.isclose(states[0], states[1]).any()


def test_init_prior_draws_from_the_prior_with_a_stream_of_its_own() -> None:
    post = small()
    scale = np.sqrt(post.prior_variance)
    expected = [
        scale
        * _core.standard_normals64(
            seed=6, chain=chain, step=0, purpose=_core.Purpose.init, steps=1, count=post.dim, level=post.network.level
        )[0]
        for chain in range(3)
    ]
    np.testing.assert_allclose(first_states(post, init="prior"), expected, rtol=0, atol=1e-10)


def test_init_takes_an_array() -> None:
    post = small()
    start = problems.rng_of("start").normal(size=(3, post.dim))
    np.testing.assert_allclose(first_states(post, init=start), start, rtol=0, atol=1e-10)
    assert pn.sample(post, pn.PCN(0.1), chains=3, draws=1, warmup=None, init=start).settings["init"] == "given"


# Adaptation while sampling


def test_adapt_always_warns_and_follows_the_papers_rule_while_sampling() -> None:
    post = small()
    with pytest.warns(UserWarning, match=r"step size adapts while sampling, so the chain is not exactly invariant"):
        draws = pn.sample(
            post, pn.PCNL(0.01, adapt="always"), chains=2, draws=40, thin=200, warmup=None, init="prior", seed=1
        )
    sizes, rates = draws.stats["step_size"], draws.stats["acceptance_rate"]
    assert (sizes[:, 0] == 0.01).all()
    for chain in range(2):
        for draw in range(39):
            # thin is the window: each draw's rate is what the rule looked at, and moves the size of the next draw.
            rate, size = rates[chain, draw], sizes[chain, draw]
            expected = size / 2 if rate <= 0.4 else min(4 * size / 3, 2.0) if rate >= 0.9 else size
            np.testing.assert_allclose(sizes[chain, draw + 1], expected, rtol=4 * 2.3e-16)
    assert len(np.unique(sizes)) > 3


def test_without_adapt_always_the_step_size_stands_while_sampling() -> None:
    draws = pn.sample(small(), chains=2, draws=10, thin=200, warmup=1000, seed=1)
    assert (np.ptp(draws.stats["step_size"], axis=1) == 0).all()


# Bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"post": 3}, TypeError, "post must be a Posterior or a Target; got int"),
        ({"kernel": "hmc"}, TypeError, r'kernel must be "auto", PCN\(\.\.\.\), .* got \'hmc\''),
        ({"kernel": pn.PCNL}, TypeError, "kernel must be"),
        ({"chains": 0}, ValueError, "chains must be at least 1; got 0"),
        ({"draws": 0}, ValueError, "draws must be at least 1; got 0"),
        ({"draws": 10.0}, TypeError, r"draws must be an integer; got 10\.0"),
        ({"thin": 0}, ValueError, "thin must be at least 1; got 0"),
        ({"threads": 0}, ValueError, "threads must be at least 1; got 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0; got -1"),
        ({"seed": 2**64}, ValueError, r"seed must be below 2\^64; got 18446744073709551616"),
        ({"seed": 1.5}, TypeError, r"seed must be an integer; got 1\.5"),
        (
            {"warmup": None},
            ValueError,
            r"warmup=None leaves nobody to find a step size; give one, such as MGrad\(0\.1\)",
        ),
        ({"warmup": "long"}, ValueError, "warmup must be \"auto\", a number of steps, a Warmup or None; got 'long'"),
        ({"warmup": 0}, ValueError, "warmup must be at least 1; got 0"),
        ({"warmup": Phase(100)}, TypeError, r"got a Phase\. Write Warmup\(\(Warmup\.Phase\(\.\.\.\), \.\.\.\)\)\."),
        ({"warmup": [Phase(100)]}, TypeError, r"got a list\. Write Warmup\(\(Warmup\.Phase\(\.\.\.\), \.\.\.\)\)\."),
        (
            {"init": "mean"},
            ValueError,
            r"init must be \"auto\", \"map\", \"prior\" or an array of shape \(chains, K\); got 'mean'",
        ),
        ({"init": np.zeros((2, 3))}, ValueError, r"init must have shape \(chains, K\) = \(4, \d+\); got \(2, 3\)"),
        ({"device": "tpu"}, ValueError, 'device must be "auto", "cpu" or "cuda"; got \'tpu\''),
    ],
)
def test_sample_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.sample(**({"post": small()} | arguments))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "init must be finite; column 2 has nan first at row 1 .*Rows count chains"),
        (np.inf, "init must be finite; column 2 has inf first at row 1"),
        (1e39, r'init must fit float32; got 1e\+39.*dtype="float64"'),
    ],
)
def test_bad_starting_points_are_refused(value: float, message: str) -> None:
    post = small("float32")
    start = np.zeros((4, post.dim))
    start[1, 2] = value
    with pytest.raises(ValueError, match=message):
        pn.sample(post, init=start)
