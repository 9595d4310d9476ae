"""Options that several commands share."""

from __future__ import annotations

import argparse


def add_traceback(parser: argparse.ArgumentParser) -> None:
    """Add the option `--traceback`, which every command has."""
    parser.add_argument("--traceback", action="store_true", help="after an error, print its traceback")


def add_table_arguments(parser: argparse.ArgumentParser, *, default: str, beside: str) -> None:
    """Add the options that describe the layout of a table, for `fit` and `predict`.

    Parameters
    ----------
    parser : ArgumentParser
    default : str
        What the separator is by default.
    beside : str
        Help text of --id.
    """
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="whether the first line holds the columns' names"
    )
    parser.add_argument(
        "--sep",
        dest="separator",
        metavar="S",
        help=f"comma, semicolon, tab, bar, whitespace or one character; default: {default}",
    )
    parser.add_argument("--id", dest="ids", nargs="+", default=[], metavar="COL", help=beside)
