"""`patrac resume`: completes a fit that was killed, or lengthens the chains of a fit or of a run."""

from __future__ import annotations

import argparse
import os

import patrac_native as pn
from patrac_native.cli import fit
from patrac_native.files import say
from patrac_native.fit.pieces import Pieces


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac resume`."""
    add = parser.add_argument
    add("store", metavar="DIR", help="the folder of `patrac fit --store DIR`, or of `sample(..., store=DIR)`")
    add("--draws", type=int, metavar="N", help="number of draws of each chain in total; a run of chains needs it")
    add("--overwrite", action="store_true", help="replace results in the fit's --out that are not its own")


def run(args: argparse.Namespace) -> int:
    """Run `patrac resume` with parsed arguments; return the exit code."""
    store = os.path.abspath(args.store)
    pieces = Pieces(store)
    command = fit.read_command(store)
    if command:
        given = argparse.Namespace(**command["arguments"], is_resumed=True)
        if fit.file_hash(given.data) != command["table"]:
            raise ValueError(f"{given.data} is no longer the table of the fit in {store}; put that file back.")
        # Without --draws, a lengthening that was killed is completed.
        draws = args.draws if args.draws is not None or not pieces.has_begun else pieces.header()["draws"]
        if draws is not None:
            given.draws, given.warm_start = draws, True
        given.overwrite = given.overwrite or args.overwrite or command["is_written"]
        return fit.run(given)
    if pieces.has_begun:
        raise ValueError(
            f"{store} holds a fit that was made in Python, without its rows: call fit of the same estimator with them."
        )
    if args.draws is None:
        raise ValueError(f"draws must be given for a run of chains, such as {store}: --draws N, in total.")
    draws = pn.resume(store, args.draws)
    say(f"{draws!r}: patrac show {args.store} summarises it")
    if not draws.settings["completed"]:
        raise KeyboardInterrupt(f"after {draws.n_draws} of {args.draws} draws of each chain")
    return 0
