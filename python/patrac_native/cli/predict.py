"""`patrac predict`: predictions for new rows from the files that `patrac fit` wrote."""

from __future__ import annotations

import argparse

from patrac_native.cli.options import add_table_arguments
from patrac_native.fit.predict import predict_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac predict`."""
    add = parser.add_argument
    add("directory", metavar="DIR", help="where `patrac fit` wrote its results")
    add(
        "data",
        metavar="NEW",
        help="text file of new rows, laid out as the fitted one; it may lack the target; - is standard input",
    )
    add_table_arguments(
        parser, default="that of the fitted table", beside="further columns of NEW that stand beside the predictions"
    )
    add("--out", default="predictions.csv", metavar="FILE", help="default ./predictions.csv")
    add("--coverage", type=float, default=0.95, help="of the intervals of y, noise included; default 0.95")
    add("--scores", metavar="FILE", help="score the predictions, where NEW holds the target: printed, and as JSON here")
    add("--overwrite", action="store_true", help="replace existing files")


def run(args: argparse.Namespace) -> int:
    """Run `patrac predict` with parsed arguments; return the exit code."""
    predict_table(
        args.directory,
        args.data,
        header=args.header,
        separator=args.separator,
        ids=args.ids,
        out=args.out,
        coverage=args.coverage,
        scores=args.scores,
        overwrite=args.overwrite,
    )
    return 0
