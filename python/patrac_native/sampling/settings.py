"""The settings of a run: their only list of keywords, checked once, and a decorator for functions that accept them."""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy.typing as npt

from patrac_native.engine.machine import thread_count
from patrac_native.kernels import Kernel
from patrac_native.kernels.choice import check_kernel_argument
from patrac_native.sampling.warmup import Phase, Warmup
from patrac_native.validation.checks import as_real_array, check_count, check_seed
from patrac_native.validation.notes import Note

# Types of theta in a store that may have fewer digits than the posterior.
STORE_DTYPES = ("float16", "float32")
_WARMUPS = '"auto", a number of steps, a Warmup or None'


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run, as `patrac_native.sample` describes them, checked as far as no posterior is needed."""

    kernel: str | Kernel = "auto"
    _: KW_ONLY
    chains: int = 4
    draws: int = 1000
    thin: int = 1
    scales_every: int = 10
    warmup: str | int | Warmup | None = "auto"
    init: str | npt.ArrayLike = "auto"
    seed: int | None = None
    threads: int | None = None
    device: str = "auto"
    keep_on_device: bool = False
    variance_every: int | str = "auto"
    until: Callable[[Any], bool] | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_kernel_argument(self.kernel)
        self._check_warmup()
        if not (self.until is None or callable(self.until)):
            raise TypeError(f"until must be None or a function of the draws so far; got {type(self.until).__name__}.")
        for name in ("chains", "draws", "thin", "scales_every"):
            object.__setattr__(self, name, check_count(getattr(self, name), name))
        if isinstance(self.variance_every, str):
            if self.variance_every != "auto":
                raise ValueError(f'variance_every must be "auto" or a number of steps; got {self.variance_every!r}.')
        else:
            object.__setattr__(self, "variance_every", check_count(self.variance_every, "variance_every"))
        if self.seed is not None:
            object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "threads", thread_count(self.threads))
        if isinstance(self.init, str) and self.init not in ("auto", "map", "prior"):
            raise ValueError(
                f'init must be "auto", "map", "prior" or an array of shape (chains, K); got {self.init!r}.'
            )
        if not isinstance(self.init, str):
            object.__setattr__(self, "init", as_real_array(self.init, "init"))

    def _check_warmup(self) -> None:
        if self.warmup is None or isinstance(self.warmup, Warmup):
            return
        if isinstance(self.warmup, str):
            if self.warmup != "auto":
                raise ValueError(f"warmup must be {_WARMUPS}; got {self.warmup!r}.")
            return
        if isinstance(self.warmup, Phase | list | tuple):
            got = type(self.warmup).__name__
            raise TypeError(f"warmup must be {_WARMUPS}; got a {got}. Write Warmup((Warmup.Phase(...), ...)).")
        if isinstance(self.warmup, int) and not isinstance(self.warmup, bool) and self.warmup == 0:
            raise ValueError("warmup must be at least 1; got 0. None runs none.")
        object.__setattr__(self, "warmup", check_count(self.warmup, "warmup"))


@dataclass(frozen=True)
class OneRunSettings(RunSettings):
    """The settings of a run on one posterior."""

    store: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    store_data: bool = field(default=True, kw_only=True)
    store_dtype: str | None = field(default=None, kw_only=True)
    moments_at: npt.ArrayLike | None = field(default=None, kw_only=True)
    moments_every: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "moments_every", check_count(self.moments_every, "moments_every"))
        if self.moments_at is None and self.moments_every > 1:
            raise ValueError("moments_every needs moments_at, the inputs at which f is watched; give both.")
        if self.thin % self.moments_every:
            raise ValueError(f"moments_every must divide thin={self.thin}; got {self.moments_every}.")
        if self.store_dtype not in (None, *STORE_DTYPES):
            raise ValueError(f"store_dtype must be None or one of {', '.join(STORE_DTYPES)}; got {self.store_dtype!r}.")


@dataclass(frozen=True)
class ManyRunSettings(RunSettings):
    """The settings of runs on several posteriors; `patrac_native.sample_many` describes them."""

    chains: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.init, str):
            raise TypeError(f'init must be "auto", "map" or "prior"; got {type(self.init).__name__}.')
        super().__post_init__()


P = ParamSpec("P")
Subject = TypeVar("Subject")
Settings = TypeVar("Settings")
Result = TypeVar("Result")
Run = Callable[[Subject, Settings], Generator[Note, None, Result]]


def with_settings(
    make: Callable[P, Settings],
) -> Callable[
    [Callable[[Subject, Settings], Generator[Note, None, Result]]], Callable[Concatenate[Subject, P], Result]
]:
    """Decorate a generator of notes from (subject, settings): callers give the settings, of class `make`, as keywords.

    The caller receives what the generator returns; a note is given at the caller's line.
    """

    def decorate(
        run: Run[Subject, Settings, Result],
    ) -> Callable[Concatenate[Subject, P], Result]:
        first = next(iter(inspect.signature(run).parameters.values()))
        hints = typing.get_type_hints(run)
        result_type = typing.get_args(hints["return"])[2]
        # The signature keeps annotations as they are written, because evaluated ones are long.
        signature = inspect.Signature(
            [first, *inspect.signature(make).parameters.values()], return_annotation=result_type
        )
        evaluated = inspect.signature(make, eval_str=True).parameters

        @functools.wraps(run)
        def call(*args: Any, **keywords: Any) -> Result:
            try:
                bound = signature.bind(*args, **keywords)
            except TypeError as error:
                raise TypeError(f"{run.__name__}() {error}") from None
            subject = bound.arguments.pop(first.name)
            notes = run(subject, make(**bound.arguments))  # type: ignore[call-arg]
            while True:
                try:
                    note = next(notes)
                except StopIteration as finished:
                    result: Result = finished.value
                    return result
                note.give(stacklevel=2)

        call.__signature__ = signature  # type: ignore[attr-defined]
        settings = {name: parameter.annotation for name, parameter in evaluated.items()}
        call.__annotations__ = {first.name: hints[first.name], **settings, "return": result_type}
        return call

    return decorate
