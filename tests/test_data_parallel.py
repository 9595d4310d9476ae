"""Rows that are shared out among two processes: values, gradients, equal draws, the posterior, messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing

import patrac_native as pn

CHAINS, DRAWS, THIN, WARMUP = 4, 400, 5, 500
KERNEL = pn.MGrad(persistence=0.9)
GRID = np.linspace(-2, 2, 5)[:, None]
POINTS = np.random.default_rng(1).normal(size=(6, 10))


def data() -> tuple[pn.Network, npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (30, 1))
    y = np.sin(1.5 * X[:, 0]) + 0.9 * rng.standard_normal(30)
    net = pn.Network([[[1.2], [-0.8], [0.5]], [[1.0, -0.7, 0.4]]], [[0.1, 0.4, -0.3], [0.0]])
    return net, X, y


def posterior(rows: slice = slice(None), **changes: Any) -> pn.Posterior:
    net, X, y = data()
    parts: dict[str, Any] = {"likelihood": pn.Gaussian(0.8), "prior": pn.TraceClassPrior(1.5, 2.0, 1.0)} | changes
    return pn.Posterior(
        net, pn.Full(), parts["prior"], parts["likelihood"], X[rows], y[rows], dtype=parts.get("dtype", "float64")
    )


def of_rank(rank: int) -> slice:
    """20 rows and 10."""
    return slice(0, 20) if rank == 0 else slice(20, None)


def initialise(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)


def work(rank: int, folder: str) -> None:
    """What each process does; process 0 writes what it found to a file."""
    initialise(rank, folder)
    shared = pn.Target.data_parallel(posterior(of_rank(rank)))
    if rank:
        shared.serve()
    else:
        with shared as target:
            value, gradient = target.log_likelihood_and_grad(POINTS)
            settings: dict[str, Any] = {"chains": CHAINS, "draws": DRAWS, "thin": THIN, "warmup": WARMUP, "seed": 3}
            draws = pn.sample(target, KERNEL, **settings, progress=False)
            again = pn.sample(target, KERNEL, **settings | {"draws": 20}, progress=False, threads=1)
        np.savez(
            Path(folder) / "found.npz",
            value=value,
            gradient=gradient,
            theta=draws.theta,
            again=again.theta,
            f=draws.predict(GRID),
        )
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(work, (str(folder),), nprocs=2)
    return np.load(folder / "found.npz")


@pytest.mark.slow
def test_sums_are_those_of_one_process(found: Any) -> None:
    """Sums over 30 rows in another order: some hundred roundings."""
    value, gradient = posterior().log_likelihood_and_grad(POINTS)
    np.testing.assert_allclose(found["value"], value, rtol=1e-13)
    np.testing.assert_allclose(found["gradient"], gradient, rtol=0, atol=1e-13 * np.abs(gradient).max())


@pytest.mark.slow
def test_draws_depend_on_the_seed_alone(found: Any) -> None:
    np.testing.assert_array_equal(found["theta"][:, :20], found["again"])
    assert found["theta"].shape == (CHAINS, DRAWS, 10)
    assert len(np.unique(found["theta"][:, :, 0])) > DRAWS


@pytest.mark.slow
def test_the_posterior_is_that_of_one_process(found: Any) -> None:
    """Means of f in Monte Carlo standard errors; half of the rows give another posterior."""

    def estimate(f: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        # 20 batches of 400 steps, some twenty autocorrelation times.
        batches = f[..., 0].reshape(CHAINS * 5, DRAWS // 5, -1).mean(axis=1)
        return batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))

    def run(post: pn.Posterior) -> npt.NDArray[Any]:
        settings: dict[str, Any] = {"chains": CHAINS, "draws": DRAWS, "thin": THIN, "warmup": WARMUP, "seed": 8}
        return pn.sample(post, KERNEL, **settings, progress=False).predict(GRID)

    def largest_z(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
        (a, sa), (b, sb) = estimate(one), estimate(other)
        return float((np.abs(a - b) / np.hypot(sa, sb)).max())

    # |t| with 19 degrees of freedom of five comparisons exceeds 5.5 with probability 1e-4.
    assert largest_z(found["f"], run(posterior())) < 5.5
    assert largest_z(found["f"], run(posterior(of_rank(0)))) > 5.5


def fail(rank: int, folder: str) -> None:
    """A different likelihood, misuse, and an evaluation that fails in process 1: messages go to a file."""
    initialise(rank, folder)
    messages = []

    def note(call: Any) -> None:
        try:
            call()
        except Exception as error:
            messages.append(f"{type(error).__name__}: {error}")

    note(lambda: pn.Target.data_parallel(posterior(of_rank(rank), likelihood=pn.Gaussian(0.8 + rank))))
    shared = pn.Target.data_parallel(posterior(of_rank(rank)))
    note(shared.__enter__ if rank else shared.serve)
    if rank:
        shared._post = None  # type: ignore[assignment]
        note(shared.serve)
    else:
        with shared as target:
            note(lambda: pn.sample(target, KERNEL, chains=2, draws=5, warmup=20, progress=False))
            # The other process still answers.
            note(lambda: target.log_likelihood_and_grad(POINTS))
    (Path(folder) / f"messages{rank}.txt").write_text("\n".join(messages))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_differences_misuse_and_failures_are_named(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(fail, (str(tmp_path),), nprocs=2)
    first, second = ((tmp_path / f"messages{rank}.txt").read_text().splitlines() for rank in range(2))
    assert "likelihood of process 1 differs: Gaussian(variance=1.8) there, Gaussian(variance=0.8) here" in first[0]
    assert "likelihood of process 0 differs" in second[0]
    assert first[1] == "RuntimeError: process 0 samples, in a with block; the others serve."
    assert second[1] == "RuntimeError: only process 0 samples; this is process 1, which must call serve()."
    assert (
        first[2:]
        == ["RuntimeError: the evaluation of another process failed; it raises the error when sampling ends."] * 2
    )
    assert second[2].startswith("AttributeError")


def test_refused_posteriors() -> None:
    with pytest.raises(RuntimeError, match="data_parallel needs a process group: call torch"):
        pn.Target.data_parallel(posterior())
    with pytest.raises(ValueError, match="post must have fixed variances; its noise variance is sampled"):
        pn.Target.data_parallel(posterior(likelihood=pn.Gaussian("sampled", a=2.0, b=1.0)))
    with pytest.raises(ValueError, match="its scales of the prior are sampled"):
        pn.Target.data_parallel(posterior(prior=pn.GaussianPrior(scales="sampled")))
    with pytest.raises(TypeError, match="post must be a Posterior; got str"):
        pn.Target.data_parallel("x")  # type: ignore[arg-type]
    net = pn.Network([np.ones((2, 1))], [np.zeros(2)])
    classes = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Categorical(scale=10.0), GRID, [0, 1, 0, 1, 1])
    with pytest.raises(ValueError, match=r"must have a likelihood that is a sum over rows; Categorical\(scale=10"):
        pn.Target.data_parallel(classes)
