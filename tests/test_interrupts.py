"""Ctrl-C in evaluations: KeyboardInterrupt soon, and later calls unharmed."""

from __future__ import annotations

import textwrap

import pytest

from scripts import process

SCRIPT = """
    import signal, threading, time
    import numpy as np
    import patrac_native as pn

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background leaves it ignored
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(50, 3)), rng.normal(size=(50, 50)), rng.normal(size=(1, 50))],
                     [rng.normal(size=50), rng.normal(size=50), rng.normal(size=1)])
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)

    def posterior(n, architecture=pn.Full(), likelihood=pn.Gaussian(1.0), **settings):
        return pn.Posterior(net, architecture, prior, likelihood, rng.normal(size=(n, 3)), rng.normal(size=n),
                            **settings)

    def many_draws():
        post = posterior(100, pn.Mix(2))
        noise = 0.1 * rng.normal(size=(4, 25_000, post.dim))
        return pn.Draws.from_array(post, post.theta_map + noise, sampler="noise")

    X_many, X_few = rng.normal(size=(20_000, 3)), rng.normal(size=(5, 3))
    y_many, y_few = X_many[:, 0], X_few[:, 0]

    def interrupted(call):
        before = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        begin = time.perf_counter()
        before.start()
        try:
            call()
        except KeyboardInterrupt:
            return time.perf_counter() - begin
        raise AssertionError("not interrupted")

    small = posterior(1000)
    wanted = small.log_likelihood_and_grad(small.theta_map)[1]
    {setting}
    seconds = interrupted(lambda: {call})
    assert np.array_equal(small.log_likelihood_and_grad(small.theta_map)[1], wanted)
    print(seconds)
"""
# Preparation, and a single call of the core that takes a minute.
CALLS = {
    "points": ("post = posterior(20_000); thetas = np.tile(post.theta_map, (6_000, 1))", "post.log_likelihood(thetas)"),
    "points, threads": (
        "post = posterior(20_000); thetas = np.tile(post.theta_map, (6_000, 1))",
        "post.log_likelihood_and_grad(thetas, threads=3)",
    ),
    "rows": (
        "post = posterior(400_000, dtype='float64'); thetas = np.tile(post.theta_map, (100, 1))",
        "post.log_likelihood_and_grad(thetas, threads=1)",
    ),
    "predictions": (
        "thetas, X = np.tile(small.theta_map, (2_000, 1)), rng.normal(size=(100_000, 3))",
        "small.network.predict(thetas, X, threads=1)",
    ),
    "collapsed": (
        "density = posterior(20_000).density('collapsed'); points = np.tile(density.start, (3_000, 1))",
        "density.value(points)",
    ),
    "function": (
        "target = pn.Target(lambda x: (time.sleep(0.01), (0.0, -x))[1], np.ones(3))",
        "target.log_likelihood_and_grad(np.ones((10_000, 3)))",
    ),
    **{
        name: (
            f"draws = many_draws(); X, y = X_few, y_few; draws[:, :100].{call}; X, y = X_many, y_many",
            f"draws.{call}",
        )
        for name, call in {
            "summary": "summary(X)",
            "rerun error": "rerun_error(X)",
            "quantiles": "quantiles(X)",
            "scores": "distribution(X).crps(y)",
            "left out": "loo(X, y)",
        }.items()
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_an_evaluation(name: str) -> None:
    setting, call = CALLS[name]
    script = textwrap.dedent(SCRIPT).format(setting=setting, call=call)
    done = process("-c", script, timeout=120)
    assert done.returncode == 0, done.stderr
    # 0.3 s to the signal, 50 ms to the next question, and the pieces of work that have begun, on a busy machine.
    assert 0.3 <= float(done.stdout) < 5.0
