"""The paper's CIFAR-10 study (its section 5.1, Table 3)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native import diagnostics
from patrac_native.report import Report
from patrac_native.studies import output
from patrac_native.studies.cifar10_data import CLASSES, PIXELS, Images, load_images
from patrac_native.studies.experiment import Architecture, Scores, derived_seed
from patrac_native.studies.pieces import Piece, Pieces, check_scheduler, executor_of, run_pieces, sample_kept
from patrac_native.studies.tables import Columns, print_table, score_table, wrapped

STUDY, NETWORK = "cifar10", "network"
# The paper prints no network; this one has the hidden layers of its other studies.
HIDDEN = (50, 50)
# The paper's factor of the mean log softmax, and its number of images.
SCALE, _PAPER_ROWS = 1000.0, 50_000
# Table 3: NLL with its standard deviation over draws, and seconds for 500 draws.
PAPER = {
    "paper: NLL": {
        "network": "1.3028",
        "Full": "2.0850 (0.0280)",
        "Sep(4)": "1.3399 (0.0312)",
        "Sep(10)": "1.3382 (0.0311)",
        "Mix(4)": "1.7736 (0.1361)",
        "Mix(10)": "1.9595 (0.1855)",
        "Out(24)": "1.3728 (0.0240)",
        "Out(90)": "1.5392 (0.0267)",
    },
    "paper: s": {
        "Full": "26,192",
        "Sep(4)": "4,831",
        "Sep(10)": "5,296",
        "Mix(4)": "25,584",
        "Mix(10)": "24,922",
        "Out(24)": "475",
        "Out(90)": "471",
    },
}
_SCORES: Columns = {
    "NLL": ("nll", 4),
    "sd over draws": ("nll_sd", 4),
    "seconds": ("seconds", 0),
    "NLPD": ("nlpd", 4),
    "accuracy": ("accuracy", 4),
    "Brier": ("brier", 4),
    "ECE": ("ece", 4),
    "entropy": ("entropy", 3),
    "aleatoric": ("aleatoric", 3),
    "epistemic": ("epistemic", 4),
}
_CHAINS: Columns = {
    "K": ("dim", 0),
    "warm-up": ("warmup_steps", 0),
    "steps": ("steps", 0),
    "acceptance": ("acceptance_rate", 2),
    "ESS (Geyer)": ("ess", 0),
    "R-hat": ("max_rhat", 3),
}
# The paper prints neither penalty nor training of this network. The weights of so many inputs need a penalty far above
# 1, and small mini-batches end before they overfit.
_TRAINING: dict[str, Any] = {"l2": 100.0, "learning_rate": 3e-4, "batch_size": 100, "patience": 5}
_MAX_EPOCHS = 60
# Test rows at which convergence of f is measured.
_GRID_ROWS = 21
# The paper's warm-up has 650,000 steps before 500,000 of sampling.
_PAPER_STEPS = 500_000


@dataclass(frozen=True)
class Model:
    """A row of the table: an architecture under a likelihood."""

    architecture: Architecture
    steps: int  # after the warm-up, by default: a step of Out takes a thousandth of the time of one of Full
    scale: float | None = SCALE  # of `Categorical`; None is the likelihood itself

    @property
    def label(self) -> str:
        """Such as "Out(90)" or "Out(90), full likelihood"."""
        return f"{self.architecture.label()}{', full likelihood' if self.scale is None else ''}"


MODELS = {
    model.label: model
    for model in (
        Model(pn.Full(), 2_000),
        Model(pn.Sep(4), 2_000),
        Model(pn.Sep(10), 2_000),
        Model(pn.Mix(4), 2_000),
        Model(pn.Mix(10), 2_000),
        Model(pn.Out(24), 20_000),
        Model(pn.Out(90), 20_000),
        Model(pn.Mix(10), 2_000, scale=None),
        Model(pn.Out(90), 20_000, scale=None),
    )
}


@dataclass(frozen=True)
class CifarOptions:
    """The options of the study, each the option of the command line of the same name, which documents it."""

    data: Path
    out: Path
    models: Sequence[str]
    hidden: Sequence[int] = HIDDEN
    rows: int | None = None
    kernel: str = "auto"
    steps: int | None = None
    draws: int = 500
    device: str = "cpu"
    seed: int = 0
    threads: int = 1
    scheduler: str = "threads"
    max_epochs: int | None = None

    def identity(self, images: Images) -> dict[str, Any]:
        """Return what determines a finished piece beside its model, as JSON-able values."""
        content = hashlib.sha256()
        for part in images:
            content.update(part.data)
        names = ("hidden", "kernel", "steps", "draws", "device", "seed", "max_epochs")
        values = {name: getattr(self, name) for name in names}
        if self.steps is None:
            values["steps"] = {label: model.steps for label, model in MODELS.items()}
        return {"study": STUDY, "data": content.hexdigest()[:8], **values}


def run_cifar10(options: CifarOptions) -> None:
    """Run what is not finished, print the tables and write the files."""
    check_scheduler(options.scheduler)
    if options.steps is not None and options.steps % options.draws:
        raise ValueError(f"--steps must be a multiple of --draws; got {options.steps} and {options.draws}.")
    images = load_images(options.data, options.rows)
    pieces = Pieces(options.out / "pieces", options.identity(images))
    found, _ = run_pieces({NETWORK: partial(train_network, images, options)}, pieces, None, "training")
    net = found[NETWORK].kept
    assert isinstance(net, pn.Network)
    seconds = found[NETWORK].values["seconds"]
    print(f"Trained on {len(images.y):,} images in {seconds:.0f} s. Sampling {', '.join(options.models)}.", flush=True)
    with executor_of(options.scheduler, options.threads) as executor:
        jobs = {
            label: partial(
                run_model,
                images,
                net,
                MODELS[label],
                options,
                pieces.store_of(label, options.scheduler) if options.device == "cpu" else None,
            )
            for label in options.models
        }
        runs, interrupted = run_pieces(jobs, pieces, executor, "sampling")
    if interrupted:
        raise KeyboardInterrupt
    scores = {NETWORK: found[NETWORK].values, **{label: runs[label].values for label in options.models}}
    _write(scores, len(images.y), len(images.y_test), options)


def train_network(images: Images, options: CifarOptions) -> Piece:
    """Train the network, with the number of epochs chosen on validation rows, and score it as one draw."""
    started = time.perf_counter()
    net = pn.train(
        [PIXELS, *options.hidden, CLASSES],
        images.X,
        images.y,
        likelihood=pn.Categorical(),
        max_epochs=options.max_epochs or _MAX_EPOCHS,
        seed=derived_seed(options.seed, 0),
        progress=False,
        **_TRAINING,
    )
    seconds = time.perf_counter() - started
    if net.history is not None and net.history.stopped == "interrupted":
        raise KeyboardInterrupt  # `train` returns its best parameters so far, which are no finished piece
    f = net.predict(images.X_test)[None, None].astype(np.float32)
    return Piece({**score_classes(f, images.y_test), "seconds": seconds, "dim": 0}, net)


def run_model(images: Images, net: pn.Network, model: Model, options: CifarOptions, store: Path | None = None) -> Piece:
    """Sample the posterior of a row by one chain, as the paper does, and score its draws on the test images."""
    steps = model.steps if options.steps is None else options.steps
    # The paper's Out(90) needs a wider layer than the default network's 50 nodes; it then takes all of them.
    architecture = model.architecture.within(net.layer_sizes[-2])
    with pn.Note.collect():  # notes on a run are about its use; this one is scored, its R-hat among the numbers
        prior, likelihood = pn.TraceClassPrior.fit(net), pn.Categorical(model.scale)
        post = pn.Posterior(net, architecture, prior, likelihood, images.X, images.y)
        paper = options.kernel == "pcnl"
        draws = sample_kept(
            store,
            post,
            kernel=pn.PCNL() if paper else "auto",
            chains=1,
            draws=options.draws,
            thin=steps // options.draws,
            warmup=pn.paper_warmup().scaled(steps / _PAPER_STEPS) if paper else steps // 2,
            seed=derived_seed(options.seed, list(MODELS).index(model.label) + 1),
            threads=1,
            device=options.device,
            progress=False,
        )
    if not draws.settings["completed"]:
        raise KeyboardInterrupt
    f = draws.predict(images.X_test, threads=1)
    return Piece(
        {
            **score_classes(f, images.y_test),
            "dim": post.dim,
            "steps": steps,
            "warmup_steps": int(draws.settings["warmup_steps"]),
            "seconds": float(draws.settings["seconds"]),
            "acceptance_rate": float(draws.stats["acceptance_rate"].mean()),
            "ess": diagnostics.ess_geyer(f[:, :, :_GRID_ROWS]),
            "max_rhat": diagnostics.convergence(f[:, :, :_GRID_ROWS]).worst()["max_rhat"],
        }
    )


def score_classes(f: npt.NDArray[Any], y: npt.NDArray[np.int64]) -> Scores:
    """Return the scores of draws of the logits f (chain, draw, n, m) for labels y (n,); entropies are means in nats."""
    nll = diagnostics.class_nll(f, y, logits=True, per_draw=True)
    p = np.empty(f.shape, np.float32)
    likelihood = pn.Categorical()
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


def _write(found: Mapping[str, Scores], n: int, n_test: int, options: CifarOptions) -> None:
    """Print the tables and write the report and the numbers."""
    models = {label: [scores] for label, scores in found.items()}
    scores = score_table(models, _SCORES, PAPER)
    chains = score_table({label: of for label, of in models.items() if label != NETWORK}, _CHAINS)
    sizes = "-".join(str(size) for size in (PIXELS, *options.hidden, CLASSES))
    intro = (
        f"The CIFAR-10 study of Partial Trace-Class Bayesian Neural Networks (Carter & Sell 2025), section 5.1: {n:,} "
        f"training and {n_test:,} test images, bytes divided by 255 and standardised by the training rows; a {sizes} "
        "tanh network (the paper prints none), one chain."
    )
    if options.hidden[-1] < 90:
        intro += (
            f" The paper's Out(90) shows that its last hidden layer had at least 90 nodes; here Out(90) takes all "
            f"{options.hidden[-1]} (--hidden 100 100 has room for it)."
        )
    of_paper = "" if n == _PAPER_ROWS else f"; on the paper's {_PAPER_ROWS:,} it is {SCALE / _PAPER_ROWS:g}"
    power = (
        f"A scale of {SCALE:g} on a mean over {n:,} rows is the likelihood to the power {SCALE / n:.3g}{of_paper}. The "
        "prior then outweighs the data where there are many weights, and such a posterior predicts worse than the "
        "network. Rows named full likelihood have the power 1."
    )
    print_table("Table 3", scores)
    print_table("Chains", chains)
    print(f"\n{wrapped(intro)}\n{wrapped(power)}")
    report = Report("patrac study cifar10")
    report.text(intro)
    report.text(power)
    report.heading("Table 3")
    report.table(
        *scores,
        caption="NLL: mean over test images and draws of -log p, the paper's with its standard deviation over draws; "
        "NLPD: of the mean probability. Entropies of the prediction in nats: aleatoric (the classes overlap) and "
        "epistemic (the parameters are uncertain). Seconds: of training for the network, else of the sampler, warm-up "
        "included; the paper's are from its authors' laptop.",
    )
    report.heading("Chains")
    report.table(
        *chains,
        caption="ESS and R-hat of f at 21 test images; R-hat compares parts of the one chain: 1.05 or less is wanted.",
    )
    rows = output.results(models, STUDY)
    content = {name: value for name, value in asdict(options).items() if value is not None}
    content |= {"version": version("patrac_native"), "training_rows": n, "results": rows}
    output.write_files(options.out, report, {"command": "study cifar10", **content}, rows)
