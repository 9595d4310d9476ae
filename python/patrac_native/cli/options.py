"""Options that several commands share."""

from __future__ import annotations

import argparse


def add_traceback(parser: argparse.ArgumentParser) -> None:
    """Add what every command has."""
    parser.add_argument("--traceback", action="store_true", help="after an error, show where it came from")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how a table is laid out, for `fit` and `predict` alike."""
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="whether the first line holds the columns' names"
    )
    parser.add_argument(
        "--sep",
        dest="separator",
        metavar="S",
        help="comma, semicolon, tab, bar, whitespace or one character; default: found",
    )
