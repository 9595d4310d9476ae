"""The command `patrac`: demo, fit, resume, show, predict, study, bench, info."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from patrac_native.cli.options import TRACEBACK
from patrac_native.files import say

# The module and the help text of each command. A module is imported when its command is called; it has the functions
# configure(parser) and run(args) -> exit code.
COMMANDS = {
    "demo": (
        "patrac_native.cli.demo",
        "the paper's sine problem: train, sample, report; under two minutes, installation aside",
    ),
    "fit": ("patrac_native.cli.fit", "train and sample on a table of data, and score held-out rows"),
    "resume": ("patrac_native.cli.resume", "complete or lengthen what was kept in a folder, a fit or a run of chains"),
    "show": ("patrac_native.cli.show", "summary, verdict and figures of what is kept in a folder, finished or not"),
    "predict": ("patrac_native.cli.predict", "predict new rows with what fit has stored"),
    "study": ("patrac_native.cli.study", "the paper's experiments"),
    "bench": ("patrac_native.cli.bench", "microseconds a step on this machine, beside the floor; under a minute"),
    "info": ("patrac_native.cli.info", "versions, compiler, flags, SIMD level, CUDA"),
}
USAGE_ERRORS = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ArithmeticError)
ERROR_CODE = 2
INTERRUPTED_CODE, TERMINATED_CODE = 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 after success, 2 after an error, 130 after Ctrl-C, 143 after SIGTERM. An error is printed as
        one line on stderr, after its traceback if `--traceback` is given; several problems of a table are printed as
        one line each.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # with ASCII, say, names of columns are printed as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        parser = _parser(arguments)
    except ImportError as error:
        say(f"patrac: error: this command cannot be loaded: {error}", is_error=True)
        return ERROR_CODE
    except KeyboardInterrupt:
        say("patrac: interrupted", is_error=True)
        return INTERRUPTED_CODE
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:
        # argparse ends the process after --help, --version and its own errors.
        return stop.code if isinstance(stop.code, int) else ERROR_CODE
    run: Callable[[argparse.Namespace], int] = args.run
    words: str = args.words
    with _terminations() as terminated:
        try:
            _check_text(args)
            with _plain_warnings(words):
                return run(args)
        except USAGE_ERRORS as error:
            if args.traceback:
                say(traceback.format_exc(), is_error=True)
            say(f"{words}: error: {_message(error)}", is_error=True)
            return ERROR_CODE
        except KeyboardInterrupt as interrupt:
            say(f"{words}: {' '.join(['interrupted', str(interrupt)]).strip()}", is_error=True)
            return TERMINATED_CODE if terminated else INTERRUPTED_CODE


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of the called command only."""
    parser = argparse.ArgumentParser(
        prog="patrac", description="Markov chain Monte Carlo for partially Bayesian neural networks."
    )
    parser.add_argument("--version", action="version", version=f"patrac_native {version('patrac_native')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module_name, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=_sentence(text))
        if name != called:
            continue
        module: Any = import_module(module_name)
        module.configure(command)
        # A command with subcommands has no `run`; it has set these defaults for each of its subcommands.
        if hasattr(module, "run"):
            command.add_argument("--traceback", action="store_true", help=TRACEBACK)
            command.set_defaults(run=module.run, words=command.prog)
    return parser


def _check_text(args: argparse.Namespace) -> None:
    """Raise ValueError that names an argument with a NUL character, which no file and no column has in its name."""
    for name, value in vars(args).items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and "\0" in one:
                raise ValueError(f"{name} must not hold a NUL character; got {one!r}.")


def _sentence(text: str) -> str:
    """Return a help text as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def _message(error: BaseException) -> str:
    """Return the message of an error, of one line for each problem; of the operating system with the file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename is not None else error.strerror
    lines = [" ".join(line.split()) for line in str(error).split("\n") if line.strip()]
    return "\n  ".join(lines) or type(error).__name__


@contextmanager
def _terminations() -> Iterator[list[int]]:
    """Treat SIGTERM, which schedulers send before they kill, as Ctrl-C; yields a list of those that came."""
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    # Only the main thread can set handlers; one that another program has set, or SIG_IGN, stays.
    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _plain_warnings(words: str) -> Iterator[None]:
    """Print each warning as one line on stderr, without its location in the code."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        say(f"{words}: warning: {' '.join(str(message).split())}", is_error=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for quiet in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", quiet)
        warnings.showwarning = show
        yield


if __name__ == "__main__":
    sys.exit(main())
