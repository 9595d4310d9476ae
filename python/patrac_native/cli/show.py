"""`patrac show`: summary, verdict and figures of a fit or run that is kept in a folder, finished or not."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.cli import fit
from patrac_native.files import load_arrays, say
from patrac_native.fit.pieces import Pieces

# At most so many of a run's rows are looked at, and draws of which there is a summary.
_ROWS, _FEWEST_DRAWS = 100, 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac show`."""
    add = parser.add_argument
    add("store", metavar="DIR", help="the folder of `patrac fit --store DIR`, or of `sample(..., store=DIR)`")
    add("--figures", metavar="FILE", help="write the figures of the chains to this HTML file")


def run(args: argparse.Namespace) -> int:
    """Run `patrac show` with parsed arguments; return the exit code."""
    store = os.path.abspath(args.store)
    pieces, runs = Pieces(store), [store]
    if pieces.has_begun:
        command, all_runs = fit.read_command(store), pieces.runs()
        say(f"a fit, {'finished' if command.get('is_written') else _stage(store, all_runs)}")
        # Those of the last stage: one, or one of each network.
        runs = [path for path in all_runs if _piece(path) == _piece(all_runs[-1])]
    page = pn.report.Report(f"Chains of {os.path.basename(store)}")
    for path in runs:
        grid = pieces.grid() if pieces.has_begun else _rows_of(path)
        draws, name = pn.Draws.load(path), os.path.basename(path)
        so_far = "" if draws.settings["completed"] else " so far"
        say(f"{name}: {draws.n_draws} of {draws.settings['draws_asked']} draws of each chain{so_far}")
        if draws.n_draws < _FEWEST_DRAWS:
            say("too few draws for a summary yet")
            continue
        summary = draws.summary(grid, progress=False)
        say(str(summary))  # which ends with the verdict
        if args.figures:
            pn.report.add_run_sections(page, draws, grid, summary=summary, name=name)
    if args.figures:
        page.write(args.figures)
        say(f"wrote {args.figures}")
    return 0


def _piece(path: str) -> str:
    """Return the number of the piece of a fit to which a file belongs."""
    return os.path.basename(path).split("-")[0]


def _stage(store: str, runs: Sequence[str]) -> str:
    """Return in which stage an unfinished fit is: of the last piece that it has begun."""
    last = max((name for name in os.listdir(store) if name[0].isdigit()), default="")
    return (
        "unfinished: in its training"
        if "runs" not in last
        else f"unfinished: run {len({*map(_piece, runs)})} of chains"
    )


def _rows_of(path: str) -> Any:
    """Return inputs of a run at which it is looked at; ValueError if its folder has none."""
    if not os.path.exists(os.path.join(path, "run.npz")):
        raise ValueError(f"{path} holds neither a fit nor a run of chains.")
    _, arrays = load_arrays(os.path.join(path, "run.npz"), "a run")
    if "data_X" not in arrays:
        raise ValueError(f"{path} holds no data (store_data=False): in Python, Draws.load(path).summary(X).")
    X = arrays["data_X"]
    return X[np.linspace(0, len(X) - 1, min(_ROWS, len(X))).round().astype(int)]
