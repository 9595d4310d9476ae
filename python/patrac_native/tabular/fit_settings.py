"""The settings of a fit to a table, and their checks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from patrac_native.model.architectures import Architecture, Full, Mix, Out, Sep
from patrac_native.sampling.warmup import Warmup, paper_warmup

REPORT, SUMMARY, DRAWS, PREPROCESSING = "report.html", "summary.json", "draws.npz", "preprocessing.json"
# The values of --architecture.
ARCHITECTURES = ("auto", "full", "mix", "out", "sep")
# The values of --prior.
PRIORS = ("auto", "gaussian", "trace-class")
# The default of --minutes, and those of --chains and --draws for one network and for several.
MINUTES = 2.0
CHAINS, DRAWS_OF_CHAIN = (4, 2), (500, 250)


@dataclass(frozen=True)
class FitSettings:
    """The settings of `fit_table`; error messages name a setting by its option of `patrac fit`.

    Attributes
    ----------
    data : str
        Path of the table.
    target : str
        The column to predict, by its name or by its number from 0.
    task : {"regression", "classification"}, optional
        By default the target's values decide.
    header : bool, optional
        Whether the first line holds the names of the columns. By default it must, and a first line that looks like
        data is an error.
    separator : str, optional
        The separator of fields; by default it is found from the first lines.
    drop, categorical : sequence of str
        Columns to leave out, and numeric columns that hold codes; default none.
    impute : {"mean", "median"}, optional
        How missing values are imputed; by default they are an error.
    architecture : {"auto", "full", "mix", "out", "sep"}
        Default "auto": for a regression the best of "full" under either prior and of "mix", by short runs that are
        scored on validation rows, or the largest "mix" that is cheap enough if the budget does not pay for "full"; for
        classes "out" with all nodes of the last hidden layer; with `k` it is "mix".
    k : sequence of int, optional
        Number of Bayesian nodes of each hidden layer, or one number for all; by default 5 for "mix" and "sep", 45 for
        "out", and at most the width.
    hidden : sequence of int
        Widths of the hidden layers, at least 1; default (50, 50).
    activation : str
        Default "tanh".
    l2 : float, optional
        Penalty of the training, >= 0; by default chosen on validation rows.
    epochs : int, optional
        Maximum number of training epochs, >= 1; the default depends on the number of rows.
    noise_variance : float, optional
        Noise variance in the target's units squared, > 0; by default it is sampled, under a prior that is worth four
        residuals of validation rows.
    test_fraction : float
        Share of the rows that are held out, in [0, 1); default 0.3. With 0 all rows are used for the fit, which is then
        scored by leave-one-out predictions.
    prior : {"auto", "gaussian", "trace-class"}
        "gaussian": independent normal parameters, whose variances in each layer are sampled; "trace-class": the
        paper's prior, fitted to the network. Default "auto": chosen with the architecture, else "gaussian" for Full
        and for classes; "trace-class" if `alpha` is given.
    alpha : float, optional
        Rate of decay of the trace-class prior, > 1; by default fitted to the network's weights.
    networks : int, optional
        Number of networks, >= 1, which are trained alike from other random weights and whose posteriors predict as an
        equally weighted mixture. Default 1, and where the architecture is chosen 4 for "mix" and 5 for classes.
    chains : int, optional
        Number of chains of each network's posterior, >= 1; default 4 for one network, 2 for several.
    draws : int, optional
        Number of draws of each chain, >= 4; default 500 for one network, 250 for several.
    minutes : float, optional
        Budget of the fit on a nominal machine of two cores, > 0; default 2. It determines the number of steps through
        the number of operations of a step and never through a clock, so that a seed gives the same draws everywhere.
    thin : int, optional
        Number of steps for each draw, >= 1, in place of `minutes`.
    warmup : str, optional
        A number of steps or "paper"; by default a quarter of the steps that `minutes` pays for, and with `thin` half
        the number of steps after the warm-up, from 4,000 to 20,000.
    seed : int
        Seed of the split, the training and the chains, >= 0; default 0.
    dtype : {"float32", "float64"}
        The dtype of the chains; default "float32".
    threads : int, optional
        Number of native threads, >= 1; by default the number of processors that this process may use.
    out : str
        Folder of the results; default "patrac-fit".
    overwrite : bool
        Whether the results of an earlier run may be replaced; default False.
    """

    data: str
    target: str
    task: str | None = None
    header: bool | None = None
    separator: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    impute: str | None = None
    architecture: str = "auto"
    k: Sequence[int] | None = None
    hidden: Sequence[int] = (50, 50)
    activation: str = "tanh"
    l2: float | None = None
    epochs: int | None = None
    noise_variance: float | None = None
    test_fraction: float = 0.3
    prior: str = "auto"
    alpha: float | None = None
    networks: int | None = None
    chains: int | None = None
    draws: int | None = None
    minutes: float | None = None
    thin: int | None = None
    warmup: str | None = None
    seed: int = 0
    dtype: str = "float32"
    threads: int | None = None
    out: str = "patrac-fit"
    overwrite: bool = False

    def check(self) -> None:
        """Check everything that does not need the table, because a fit takes minutes.

        Raises
        ------
        ValueError
            If a setting is outside its range.
        OSError
            If there is no such table, the folder of the results cannot be written, or it holds results that may not be
            replaced.
        """
        if not 0 <= self.test_fraction < 1:
            raise ValueError(f"--test-fraction must be at least 0 and below 1; got {self.test_fraction}.")
        if self.minutes is not None:
            if not 0 < self.minutes < float("inf"):
                raise ValueError(f"--minutes must be positive; got {self.minutes}.")
            if self.thin is not None:
                raise ValueError("--minutes and --thin both set the number of steps; give one of them.")
        least = {"networks": 1, "chains": 1, "draws": 4, "thin": 1, "epochs": 1, "seed": 0, "threads": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"--{name} must be at least {minimum}; got {value}.")
        if min(self.hidden) < 1:
            raise ValueError(f"--hidden must hold positive widths; got {self.hidden}.")
        if self.l2 is not None and not 0 <= self.l2 < float("inf"):
            raise ValueError(f"--l2 must be at least 0; got {self.l2}.")
        if self.prior not in PRIORS:
            raise ValueError(f"--prior must be one of {', '.join(PRIORS)}; got {self.prior!r}.")
        if self.prior == "gaussian" and self.alpha is not None:
            raise ValueError("--alpha is a parameter of --prior trace-class; leave it out with --prior gaussian.")
        if self.alpha is not None and not 1 < self.alpha < float("inf"):
            raise ValueError(f"--alpha must be greater than 1; got {self.alpha}.")
        if self.noise_variance is not None and not 0 < self.noise_variance < float("inf"):
            raise ValueError(f"--noise-variance must be positive; got {self.noise_variance}.")
        self.bayesian()
        self.warmup_of(0)
        if os.path.isdir(self.data):
            raise IsADirectoryError(f"DATA must be a file of rows and columns; {self.data!r} is a folder.")
        if not os.path.isfile(self.data):
            raise FileNotFoundError(f"there is no file {self.data!r}.")
        _check_folder(self.out)
        existing = [
            name for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING) if os.path.exists(os.path.join(self.out, name))
        ]
        if existing and not self.overwrite:
            raise FileExistsError(
                f"{self.out} holds the results of an earlier run ({', '.join(existing)}); pass --overwrite or another "
                "--out."
            )

    def bayesian(self) -> Architecture | None:
        """Return the architecture given by `architecture` and `k`, None for the automatic choice.

        Raises
        ------
        ValueError
            If they do not fit `hidden`.
        """
        name, k = self.architecture, self.k
        if name == "auto":
            if k is None:
                return None
            name = "mix"
        if name not in ARCHITECTURES:
            raise ValueError(f"--architecture must be one of {', '.join(ARCHITECTURES)}; got {name!r}.")
        if name == "full":
            if k is not None:
                raise ValueError(
                    "--k has no meaning for --architecture full, where all nodes are Bayesian; leave it out."
                )
            return Full()
        if name == "out":
            if k is not None and len(k) != 1:
                raise ValueError(f"--k must be one number for --architecture out; got {k}.")
            _check_k(k or [], self.hidden[-1:])
            return Out(min(45, self.hidden[-1]) if k is None else k[0])
        nodes: Sequence[int] = [min(5, width) for width in self.hidden] if k is None else k
        if len(nodes) not in (1, len(self.hidden)):
            raise ValueError(
                f"--k must be one number, or one for each of the {len(self.hidden)} widths of --hidden; got {k}."
            )
        _check_k(nodes, self.hidden)
        chosen = nodes[0] if len(set(nodes)) == 1 else nodes
        return {"mix": Mix, "sep": Sep}[name](chosen)

    def warmup_of(self, default: int) -> Warmup | int:
        """Return the warm-up, of `default` steps unless `warmup` is given; raise ValueError if that is invalid."""
        text = self.warmup
        if text is None:
            return default
        if text == "paper":
            return paper_warmup()
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f'--warmup must be a number of steps or "paper"; got {text!r}.')
        return int(text)


def _check_folder(path: str) -> None:
    """Raise OSError if the folder --out cannot be written; it is created only when there are results."""
    at = os.path.abspath(path)
    while not os.path.exists(at):
        at = os.path.dirname(at)
    if not os.path.isdir(at):
        raise NotADirectoryError(f"--out must be a folder or a new one; {at!r} is a file.")
    if not os.access(at, os.W_OK | os.X_OK):
        raise PermissionError(f"--out {path!r} cannot be written: no permission for {at!r}.")


def _check_k(nodes: Sequence[int], widths: Sequence[int]) -> None:
    """Raise ValueError unless each number of nodes, or the one for all layers, is from 1 to its layer's width."""
    for layer, width in enumerate(widths):
        count = nodes[layer if len(nodes) > 1 else 0] if nodes else 1
        if not 1 <= count <= width:
            raise ValueError(
                f"--k must be from 1 to the width of the layer; got {count} for a hidden layer of {width} nodes. Give "
                "a smaller --k or a larger --hidden."
            )
