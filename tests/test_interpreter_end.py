"""The end of the interpreter: the process ends with the main thread's exit code, whatever daemon threads do."""

from __future__ import annotations

import subprocess
import textwrap

import pytest

from scripts import process

SCRIPT = """
    import sys, threading, time, warnings
    import numpy as np
    import patrac_native as pn

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(50, 3)), rng.normal(size=(50, 50)), rng.normal(size=(1, 50))],
                     [rng.normal(size=50), rng.normal(size=50), rng.normal(size=1)])
    X, y = rng.normal(size=(5000, 3)), rng.normal(size=5000)
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 2.0, 0.5), pn.Gaussian(1.0), X, y)
    thetas = np.tile(post.theta_map, (2000, 1))

    def target(seconds=0.0, batched=False):
        def function(theta):
            begun.set()
            time.sleep(seconds)
            return -0.5 * (theta**2).sum(axis=-1), -theta
        return pn.Target(function, np.ones(3), batched=batched)

    def sample(post, **settings):
        return pn.sample(post, pn.MGrad(1e-3), chains=3, draws=10_000, thin=10_000, warmup=None, seed=1, **settings)

    def forever():
        while True:
            {work}
            begun.set()

    begun = threading.Event()
    for _ in range(2):
        threading.Thread(target=forever, daemon=True).start()
    begun.wait({begin})
    time.sleep(0.3)
    {end}
"""
# What daemon threads do without end. The last function does not return in the time that it is given.
WORK = {
    "sample": "sample(post)",
    "progress": "sample(post, progress=True)",
    "early end": "sample(target(), until=lambda draws: False)",
    "target": "sample(target())",
    "batched target": "sample(target(batched=True))",
    "slow target": "sample(target(0.05))",
    "function": "target(0.01).log_likelihood_and_grad(np.ones((10**5, 3)))",
    "evaluation": "post.log_likelihood_and_grad(thetas)",
    "prediction": "post.network.predict(thetas, X)",
    "one function that sleeps": "sample(target(5.5))",
}


def end_of(work: str, end: str, begin: float = 1.0) -> subprocess.CompletedProcess[str]:
    """Return how a process ends that does `end` while daemon threads do `work`."""
    script = textwrap.dedent(SCRIPT).format(work=WORK[work], end=end, begin=begin)
    return process("-c", script, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_the_exit_code_is_the_main_threads(work: str) -> None:
    done = end_of(work, "sys.exit(7)")
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr and "terminate" not in done.stderr


def test_an_exception_of_the_main_thread_is_reported_as_ever() -> None:
    done = end_of("target", "raise ValueError('the reason')")
    assert done.returncode == 1 and done.stderr.endswith("ValueError: the reason\n")


def test_a_thread_that_is_no_daemon_ends_its_run() -> None:
    script = (
        textwrap.dedent(SCRIPT)
        .format(
            work="return",
            end="threading.Thread(target=lambda: print(sample(target()).settings['completed'])).start()",
            begin=0.0,
        )
        .replace("10_000", "50")
    )
    done = process("-c", script, timeout=60)
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
