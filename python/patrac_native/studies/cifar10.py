"""The paper's CIFAR-10 study (its section 5.1, Table 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patrac_native.studies.tables import Row

if TYPE_CHECKING:
    from patrac_native.network.network import Network
    from patrac_native.studies.cifar10_data import Images
    from patrac_native.studies.pieces import Pieces

STUDY = "cifar10"
# The paper prints no network; this one has the hidden layers of its other studies.
HIDDEN = (50, 50)
_PAPER_ROWS = 50_000
# Table 3: NLL with its standard deviation over draws, and seconds for 500 draws.
PAPER = {
    "network": ("1.3028", ""),
    "Full": ("2.0850 (0.0280)", "26,192"),
    "Sep(4)": ("1.3399 (0.0312)", "4,831"),
    "Sep(10)": ("1.3382 (0.0311)", "5,296"),
    "Mix(4)": ("1.7736 (0.1361)", "25,584"),
    "Mix(10)": ("1.9595 (0.1855)", "24,922"),
    "Out(24)": ("1.3728 (0.0240)", "475"),
    "Out(90)": ("1.5392 (0.0267)", "471"),
}
_COLUMNS = {
    "NLPD": ("nlpd", 4),
    "accuracy": ("accuracy", 4),
    "Brier": ("brier", 4),
    "ECE": ("ece", 4),
    "entropy": ("entropy", 3),
    "aleatoric": ("aleatoric", 3),
    "epistemic": ("epistemic", 4),
}
_CHAIN_COLUMNS = {
    "K": ("dim", 0),
    "warm-up": ("warmup_steps", 0),
    "steps": ("steps", 0),
    "acceptance": ("acceptance_rate", 2),
    "ESS (Geyer)": ("ess", 0),
    "R-hat": ("max_rhat", 3),
}


@dataclass(frozen=True)
class CifarOptions:
    """The options of the study.

    Attributes
    ----------
    data : Path
        As for `load_images`.
    out : Path
        Folder for report.html, summary.json, results.csv and the finished pieces.
    models : sequence of str
        Labels of posteriors.
    hidden : sequence of int
        Widths of the hidden layers; default 50 and 50.
    rows : int, optional
        Number of training images; by default all.
    kernel : {"auto", "pcnl"}
        As for `SamplingChoice`.
    steps : int, optional
        Number of steps of each chain, a multiple of `draws`; by default that of each `Model`.
    draws : int
        Number of draws for the scores; default 500, the paper's.
    device : str
        As in `sample`; default "cpu".
    seed : int
        Of training and chains.
    threads : int
        Number of chains at the same time on this machine; default 1.
    scheduler : str
        As for `StudyOptions`.
    max_epochs : int, optional
        Maximum number of training epochs.
    """

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
        from patrac_native.studies.cifar10_models import MODELS

        content = hashlib.sha256()
        for part in (images.X, images.y, images.X_test, images.y_test):
            content.update(part.data)
        names = ("hidden", "kernel", "steps", "draws", "device", "seed", "max_epochs")
        values = {name: getattr(self, name) for name in names}
        if self.steps is None:
            values["steps"] = {label: model.steps for label, model in MODELS.items()}
        return {"study": STUDY, "data": content.hexdigest()[:8], "version": version("patrac_native"), **values}


Results = dict[str, dict[str, float]]


def run_cifar10(options: CifarOptions) -> None:
    """Run what is not finished, print the tables, and write report.html, summary.json and results.csv.

    Raises
    ------
    ValueError, FileNotFoundError
        If an option is invalid or the data are missing; before any work.
    """
    from patrac_native.plots.progress import progress_bar, shows_progress
    from patrac_native.studies.cifar10_data import load_images
    from patrac_native.studies.cifar10_models import MODELS, NETWORK, SamplingChoice, run_model
    from patrac_native.studies.experiment import derived_seed
    from patrac_native.studies.pieces import Pieces
    from patrac_native.studies.scheduling import check_scheduler, executor_of

    check_scheduler(options.scheduler)
    if options.steps is not None and options.steps % options.draws:
        raise ValueError(f"--steps must be a multiple of --draws; got {options.steps} and {options.draws}.")
    images = load_images(options.data, options.rows)
    pieces = Pieces(options.out / "pieces", options.identity(images))
    net, scores = _trained(images, options, pieces)
    found: Results = {NETWORK: scores}
    kept = {label: pieces.read(f"{label}.json") for label in options.models}
    left = [label for label, content in kept.items() if content is None]
    print(f"Trained on {len(images.y):,} images in {scores['seconds']:.0f} s. Sampling {', '.join(left)}.", flush=True)
    with executor_of(options.scheduler, options.threads) as executor:
        jobs: dict[Future[dict[str, float]], str] = {}
        for label in left:
            choice = SamplingChoice(
                options.kernel,
                options.steps,
                options.draws,
                derived_seed(options.seed, list(MODELS).index(label) + 1),
                options.device,
                threads=1,
            )
            jobs[executor.submit(run_model, images, net, MODELS[label], choice)] = label
        done = as_completed(list(jobs))
        hidden = not shows_progress(None)
        for job in progress_bar(iterable=done, total=len(jobs), desc="sampling", unit="run", disable=hidden):
            label = jobs.pop(job)
            kept[label] = job.result()
            pieces.write(f"{label}.json", job.result())
    for label in options.models:
        found[label] = {name: float(value) for name, value in (kept[label] or {}).items()}
    _write(found, len(images.y), len(images.y_test), options)


def _trained(images: Images, options: CifarOptions, pieces: Pieces) -> tuple[Network, dict[str, float]]:
    """Return the trained network and its scores, from the finished pieces if it is among them."""
    from patrac_native.network.network import Network
    from patrac_native.studies.cifar10_models import train_network
    from patrac_native.studies.experiment import derived_seed

    path = options.out / "pieces" / "network.npz"
    kept = pieces.read("network.json")
    if kept is not None:
        return Network.load(path), kept
    net, scores = train_network(images, options.hidden, derived_seed(options.seed, 0), options.max_epochs)
    net.save(path, overwrite=True)
    pieces.write("network.json", scores)
    return net, scores


def power_text(n: int, scale: float) -> str:
    """Return what a scale of the mean over n rows does to the likelihood.

    Examples
    --------
    >>> power_text(50_000, 1000)
    'A scale of 1000 on a mean over 50,000 rows is the likelihood to the power 0.02'
    """
    return f"A scale of {scale:g} on a mean over {n:,} rows is the likelihood to the power {scale / n:.3g}"


def scores_table(found: Mapping[str, Mapping[str, float]]) -> tuple[Row, list[Row]]:
    """Return Table 3 with further scores; the NLL has its standard deviation over draws in brackets."""
    rows = []
    for label, scores in found.items():
        nll = f"{scores['nll']:.4f}" + (f" ({scores['nll_sd']:.4f})" if scores["nll_sd"] else "")
        rows.append([label, nll, f"{scores['seconds']:,.0f}", *PAPER.get(label, ("", "")), *_cells(scores, _COLUMNS)])
    return ["model", "NLL", "seconds", "paper: NLL", "paper: s", *_COLUMNS], rows


def results(found: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return every number as rows with the columns study, replicate, model, metric and value."""
    return [
        {"study": STUDY, "replicate": 0, "model": model, "metric": metric, "value": value}
        for model, scores in found.items()
        for metric, value in scores.items()
    ]


def _cells(scores: Mapping[str, float], columns: Mapping[str, tuple[str, int]]) -> Row:
    return [f"{scores[name]:,.{decimals}f}" for name, decimals in columns.values()]


def _write(found: Results, n: int, n_test: int, options: CifarOptions) -> None:
    """Print the tables and write the report and the numbers."""
    from patrac_native.report.report import Report, write_json
    from patrac_native.studies.cifar10_models import NETWORK, SCALE
    from patrac_native.studies.study_output import print_table, write_csv
    from patrac_native.studies.tables import wrapped

    scores = scores_table(found)
    chains = [[label, *_cells(values, _CHAIN_COLUMNS)] for label, values in found.items() if label != NETWORK]
    sizes = "-".join(str(size) for size in (3072, *options.hidden, 10))
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
        f"{power_text(n, SCALE)}{of_paper}. The prior then outweighs the data where there are "
        "many weights, and such a posterior predicts worse than the network. Rows named full likelihood have the power "
        "1."
    )
    print_table("Table 3", scores)
    print_table("Chains", (["model", *_CHAIN_COLUMNS], chains))
    print(f"\n{wrapped(intro)}\n{wrapped(power)}")
    report = Report("patrac study cifar10")
    report.text(intro)
    report.text(power)
    report.heading("Table 3")
    report.table(
        *scores,
        caption="NLL: mean over test images and draws of -log p, standard deviation over draws in brackets; NLPD: of "
        "the mean probability. Entropies of the prediction in nats: aleatoric (the classes overlap) and epistemic (the "
        "parameters are uncertain). Seconds: of training for the network, else of the sampler, warm-up included; the "
        "paper's are from its authors' laptop.",
    )
    report.heading("Chains")
    report.table(
        ["model", *_CHAIN_COLUMNS],
        chains,
        caption="ESS and R-hat of f at 21 test images; R-hat compares parts of the one chain: 1.05 or less is wanted.",
    )
    report.write(options.out / "report.html")
    content = {name: value for name, value in asdict(options).items() if value is not None}
    content |= {"version": version("patrac_native"), "training_rows": n, "results": results(found)}
    write_json(options.out / "summary.json", {"command": "study cifar10", **content})
    write_csv(options.out / "results.csv", results(found))
    print(f"\nReport: {options.out / 'report.html'}; numbers: summary.json and results.csv beside it.", flush=True)
