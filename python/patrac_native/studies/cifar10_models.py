"""The rows of the CIFAR-10 study: the trained network and the posteriors of Table 3, with their scores."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.architectures import Architecture, Full, Mix, Out, Sep
from patrac_native.draws.draws import Draws
from patrac_native.kernels import PCNL, Kernel
from patrac_native.likelihoods import Categorical
from patrac_native.network.network import Network
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors import TraceClassPrior
from patrac_native.sampling.sampler import sample
from patrac_native.sampling.warmup import Warmup, paper_warmup
from patrac_native.studies.cifar10_data import CLASSES, PIXELS, Images

Scores = dict[str, float]

# The paper's factor of the mean log softmax.
SCALE = 1000.0
# The paper prints neither penalty nor training of this network. The weights of so many inputs need a penalty far above
# 1, and small mini-batches end before they overfit.
_L2, _LEARNING_RATE, _BATCH, _PATIENCE, _MAX_EPOCHS = 100.0, 3e-4, 100, 5, 60
# Test rows at which convergence of f is measured.
_GRID_ROWS = 21
# The paper's warm-up has 650,000 steps before 500,000 of sampling.
_PAPER_STEPS = 500_000


@dataclass(frozen=True)
class Model:
    """A row of the table: an architecture under a likelihood.

    Attributes
    ----------
    architecture : Architecture
    steps : int
        Default number of steps after the warm-up. A step of `Out` takes a thousandth of the time of one of `Full`.
    scale : float, optional
        Of `Categorical`; None is the likelihood itself.
    """

    architecture: Architecture
    steps: int
    scale: float | None = SCALE

    @property
    def label(self) -> str:
        """Such as "Out(90)" or "Out(90), full likelihood"."""
        return self.architecture.label() + (", full likelihood" if self.scale is None else "")

    def architecture_in(self, last_hidden: int) -> Architecture:
        """Return the architecture in a network with so many nodes in its last hidden layer.

        The paper's Out(90) needs a wider layer than the default network's 50 nodes; it then takes all of them.
        """
        return self.architecture.within(last_hidden)


MODELS = {
    model.label: model
    for model in (
        Model(Full(), 2_000),
        Model(Sep(4), 2_000),
        Model(Sep(10), 2_000),
        Model(Mix(4), 2_000),
        Model(Mix(10), 2_000),
        Model(Out(24), 20_000),
        Model(Out(90), 20_000),
        Model(Mix(10), 2_000, scale=None),
        Model(Out(90), 20_000, scale=None),
    )
}
NETWORK = "network"


@dataclass(frozen=True)
class SamplingChoice:
    """How each posterior is sampled.

    Attributes
    ----------
    kernel : {"auto", "pcnl"}
        "auto": the package's choice for the posterior. "pcnl": the paper's kernel and warm-up, shortened as the run is.
    steps : int, optional
        Number of steps after the warm-up, a multiple of `draws`; by default that of the `Model`.
    draws : int
        Number of draws for the scores.
    seed : int
    device : str
        As in `sample`.
    threads : int
        As in `sample`.
    """

    kernel: str
    steps: int | None
    draws: int
    seed: int
    device: str
    threads: int

    def steps_of(self, model: Model) -> int:
        """Return the number of steps of a model after its warm-up."""
        return model.steps if self.steps is None else self.steps

    def run(self, post: Posterior, steps: int) -> Draws:
        """Sample a posterior by one chain, as the paper does."""
        kernel: Kernel | str = PCNL() if self.kernel == "pcnl" else "auto"
        warmup: Warmup | int = paper_warmup().scaled(steps / _PAPER_STEPS) if self.kernel == "pcnl" else steps // 2
        return sample(
            post,
            kernel,
            chains=1,
            draws=self.draws,
            thin=steps // self.draws,
            warmup=warmup,
            seed=self.seed,
            threads=self.threads,
            device=self.device,
            progress=False,
        )


def train_network(
    images: Images, hidden: Sequence[int], seed: int, max_epochs: int | None = None
) -> tuple[Network, Scores]:
    """Train the network, with the number of epochs chosen on validation rows, and score it as one draw."""
    from patrac_native.training.training import train

    started = time.perf_counter()
    net = train(
        [PIXELS, *hidden, CLASSES],
        images.X,
        images.y,
        likelihood=Categorical(),
        l2=_L2,
        learning_rate=_LEARNING_RATE,
        batch_size=_BATCH,
        patience=_PATIENCE,
        max_epochs=max_epochs or _MAX_EPOCHS,
        seed=seed,
        progress=False,
    )
    seconds = time.perf_counter() - started
    if net.history is not None and net.history.stopped == "interrupted":
        raise KeyboardInterrupt  # `train` returns its best parameters so far, which are no finished piece
    f = net.predict(images.X_test)[None, None].astype(np.float32)
    return net, {**score_classes(f, images.y_test), "seconds": seconds, "dim": 0}


def run_model(images: Images, net: Network, model: Model, choice: SamplingChoice) -> Scores:
    """Sample the posterior of a row and score its draws on the test images.

    Raises
    ------
    KeyboardInterrupt
        If the run was interrupted.
    """
    steps = choice.steps_of(model)
    with warnings.catch_warnings():
        # Warnings about a run are about its use; this one is scored, its R-hat among the numbers.
        warnings.simplefilter("ignore", UserWarning)
        post = Posterior(
            net,
            model.architecture_in(net.layer_sizes[-2]),
            TraceClassPrior.fit(net),
            Categorical(model.scale),
            images.X,
            images.y,
        )
        draws = choice.run(post, steps)
    if not draws.settings["completed"]:
        raise KeyboardInterrupt
    f = np.empty((1, draws.n_draws, len(images.y_test), CLASSES), np.float32)
    for rows, block in draws.output_blocks(images.X_test, threads=choice.threads):
        f[:, :, rows] = block
    worst = diagnostics.convergence(f[:, :, :_GRID_ROWS]).worst()
    return {
        **score_classes(f, images.y_test),
        "dim": post.dim,
        "steps": steps,
        "warmup_steps": int(draws.settings["warmup_steps"]),
        "seconds": float(draws.settings["seconds"]),
        "acceptance_rate": float(draws.stats["acceptance_rate"].mean()),
        "ess": diagnostics.ess_geyer(f[:, :, :_GRID_ROWS]),
        "max_rhat": worst["max_rhat"],
    }


def score_classes(f: npt.NDArray[Any], y: npt.NDArray[np.int64]) -> Scores:
    """Return the scores of draws of the logits f (chain, draw, n, m) for labels y (n,); entropies are means in nats."""
    nll = diagnostics.class_nll(f, y, logits=True, per_draw=True)
    p = np.empty(f.shape, np.float32)
    likelihood = Categorical()
    for draw in range(f.shape[1]):  # one draw at a time, in float64
        p[:, draw] = likelihood.probabilities(f[:, draw])
    entropy = diagnostics.entropy_decomposition(p)
    return {
        "nll": float(nll.mean()),
        "nll_sd": float(nll.std(ddof=1)) if nll.size > 1 else 0.0,
        "nlpd": diagnostics.class_nlpd(f, y, logits=True),
        "accuracy": diagnostics.accuracy(p, y),
        "brier": diagnostics.brier(p, y),
        "ece": diagnostics.ece(p, y),
        "entropy": float(entropy.total.mean()),
        "aleatoric": float(entropy.aleatoric.mean()),
        "epistemic": float(entropy.epistemic.mean()),
    }
