"""The folder of a fit, in which it keeps its work while it goes on: trained networks, and runs of chains.

A fit is a function of its rows, parameters and seed: budgets are counted operations. So a fit that was killed is done
again with a memory: a piece that is finished is read, a run of chains goes on from its last checkpoint, and what was
not begun is made. The pieces have the numbers of the order in which a fit asks for them, which is always the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

import patrac_native as pn
from patrac_native.files import load_arrays, replacing, save_arrays
from patrac_native.files.output import close_locked, held, lock
from patrac_native.fit.rows import FloatArray

_HEADER, _KIND = "fit.npz", "the header of a fit"
# The file of a run's last checkpoint (docs/stores.md), without which nothing of the run is lost.
_CHECKPOINT = "checkpoint.npz"


class Pieces:
    """The work of a fit, kept in a folder; without a folder, the default, it is only done.

    Attributes
    ----------
    seed : int or None
        That of the fit, None without a folder.
    first_draws : int or None
        `draws` of the fit with which the folder began, on which the length of its steps may depend.
    total : int or None
        Number of draws of each chain to which the final run is lengthened, if it is.
    """

    seed: int | None = None
    first_draws: int | None = None
    total: int | None = None

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._asked = 0

    @classmethod
    @contextmanager
    def opened(
        cls,
        store: str | os.PathLike[str],
        identity: Mapping[str, Any],
        grid: FloatArray,
        *,
        seed: int,
        is_given: bool,
        draws: int | None,
        lengthens: bool,
    ) -> Iterator[Self]:
        """Open the folder of a fit, new or begun, for this fit alone; ValueError if it holds another.

        `identity` is what determines a fit beside its seed and draws, by the names of parameters; `grid` are inputs at
        which others may look at the chains. A seed that is not given is that of the folder, and `lengthens` says
        whether more draws than before are a wish to lengthen the chains.
        """
        folder = os.path.abspath(os.fspath(store))
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if not lock(descriptor, wait=False):
                raise FileExistsError(f"another fit writes to store={folder!r}; wait for it, or give another folder.")
            made, path = cls(folder), os.path.join(folder, _HEADER)
            wanted: dict[str, Any] = json.loads(json.dumps(identity))
            wanted |= {"patrac_native": pn.__version__, "level": pn.build_info()["SIMD level in use"]}
            if not os.path.exists(path):
                if os.path.exists(os.path.join(folder, "run.npz")):
                    raise ValueError(f"store={folder!r} is the store of a run of chains; give a fit another folder.")
                header: dict[str, Any] = {"identity": wanted, "seed": seed, "first_draws": draws, "draws": draws}
                save_arrays(path, _KIND, header, {"grid": grid}, overwrite=False)
            header, arrays = load_arrays(path, _KIND)
            found = {**header["identity"], "random_state": header["seed"], "draws": header["draws"]}
            wanted |= {"random_state": seed if is_given else header["seed"], "draws": draws}
            if lengthens and draws is not None and draws != header["draws"]:
                made._check_longer(draws, header["draws"], wanted["precision"])
                header["draws"] = found["draws"] = draws
                save_arrays(path, _KIND, header, arrays, overwrite=True)
            different = [name for name in wanted if wanted[name] != found.get(name)]
            if different:
                listed = "; ".join(f"{name} {found.get(name)!r} there, {wanted[name]!r} here" for name in different)
                longer = ", or warm_start=True to lengthen its chains" if different == ["draws"] else ""
                raise ValueError(f"store={folder!r} holds another fit: {listed}. Give another folder{longer}.")
            made.seed, made.first_draws = header["seed"], header["first_draws"]
            made.total = None if header["draws"] == header["first_draws"] else header["draws"]
            with held(descriptor):
                yield made
        finally:
            close_locked(descriptor)

    def _check_longer(self, draws: int, before: int | None, precision: float | None) -> None:
        """Raise ValueError if chains cannot be lengthened to so many draws."""
        most = max([before or 0, *(self._so_far(name) for name in self.runs()[-1:])])
        if draws < most:
            raise ValueError(
                f"draws is the number of each chain in total, and store={self.folder!r} has {most}; got {draws}."
            )
        if precision is not None:
            raise ValueError(
                "a fit to a precision has replicates of their own lengths, which cannot be lengthened; leave draws."
            )

    # -- the pieces ------------------------------------------------------------------------------------------------

    def networks(self, train: Callable[[], list[pn.Network]]) -> list[pn.Network]:
        """Return networks that `train` trains, or those that it has trained, whose notes are given again."""
        if self.folder is None:
            return train()
        name = self._next("networks")
        done = os.path.join(self.folder, f"{name}.json")
        if not os.path.exists(done):
            with pn.Note.collect() as notes:
                nets = train()
            if any(net.history is not None and net.history.stopped == "interrupted" for net in nets):
                return nets
            for index, net in enumerate(nets):
                net.save(self._path(name, index, "npz"), overwrite=True)
            with replacing(done) as stream:  # last, so that it says that all are there
                content = {"networks": len(nets), "notes": [[note.kind, str(note)] for note in notes]}
                stream.write(json.dumps(content))
        with open(done, encoding="utf-8") as stream:
            content = json.load(stream)
        for kind, text in content["notes"]:
            pn.Note(kind, text).give(stacklevel=2)
        return [pn.Network.load(self._path(name, index, "npz")) for index in range(content["networks"])]

    def sample(
        self,
        posts: Sequence[pn.Posterior],
        *,
        seed: int,
        until: Callable[[pn.Draws], bool] | None = None,
        **arguments: Any,
    ) -> list[pn.Draws]:
        """Return the draws of posteriors, the first with the seed, the next with seed + 1 and so on.

        In a folder the runs on the CPU go on from where they were; those on a device are kept once they are finished.
        Ctrl-C leaves what there is, perhaps of fewer posteriors.
        """
        name = self._next("runs")
        if self.folder is None or arguments["device"] == "cuda":
            kept = [] if self.folder is None else [self._path(name, index, "npz") for index in range(len(posts))]
            if kept and all(map(os.path.exists, kept)):
                return [pn.Draws.load(path) for path in kept]
            if "init" in arguments:
                found = [pn.sample(posts[0], seed=seed, until=until, **arguments)]
            else:
                found = pn.sample_many(posts, seed=seed, **arguments)
            if len(found) == len(posts) and all(draws.settings["completed"] for draws in found):
                for path, draws in zip(kept, found, strict=False):
                    draws.save(path, overwrite=True)
            return found
        found = []
        for index, post in enumerate(posts):
            path, notes = self._path(name, index, "zarr"), list[pn.Note]()
            try:
                with pn.Note.collect() as notes:
                    found.append(_sample(path, post, (seed + index) % 2**64, until, **arguments))
            except KeyboardInterrupt:  # before the first checkpoint
                break
            finally:
                for note in notes:
                    note.give(stacklevel=2)
            if not found[-1].settings["completed"]:
                break
        return found

    def _next(self, what: str) -> str:
        """Return the name of the piece for which a fit asks now."""
        self._asked += 1
        return f"{self._asked:02}-{what}"

    def _path(self, name: str, index: int, end: str) -> str:
        """Return the path of a part of a piece."""
        assert self.folder is not None
        return os.path.join(self.folder, f"{name}-{index}.{end}")

    # -- for those who look ----------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """Return identity, seed and draws of the fit in the folder; FileNotFoundError without one."""
        return self._read()[0]

    def grid(self) -> FloatArray:
        """Return inputs of the networks, at which the chains may be looked at; FileNotFoundError without a fit."""
        return np.asarray(self._read()[1]["grid"])

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the folder says of the fit."""
        assert self.folder is not None
        return load_arrays(os.path.join(self.folder, _HEADER), _KIND)

    @property
    def has_begun(self) -> bool:
        """Whether there is a fit in the folder."""
        return self.folder is not None and os.path.exists(os.path.join(self.folder, _HEADER))

    def runs(self) -> list[str]:
        """Return the paths of the runs of chains in the folder that have a checkpoint, in the order of the fit."""
        assert self.folder is not None
        paths = [os.path.join(self.folder, name) for name in sorted(os.listdir(self.folder)) if name.endswith(".zarr")]
        return [path for path in paths if os.path.exists(os.path.join(path, _CHECKPOINT))]

    def _so_far(self, path: str) -> int:
        """Return the number of draws of each chain of a run."""
        return pn.Draws.load(path).n_draws


def _sample(
    path: str,
    post: pn.Posterior,
    seed: int,
    until: Callable[[pn.Draws], bool] | None,
    *,
    draws: int,
    threads: int | None,
    progress: bool | None,
    **arguments: Any,
) -> pn.Draws:
    """Return the draws of a run in a folder of its own, begun or not."""
    if os.path.exists(os.path.join(path, _CHECKPOINT)):
        return pn.resume(path, draws, post=post, until=until, threads=threads, progress=progress)
    shutil.rmtree(path, ignore_errors=True)  # of a run that was killed before it kept anything
    return pn.sample(
        post,
        seed=seed,
        store=path,
        store_data=False,
        draws=draws,
        until=until,
        threads=threads,
        progress=progress,
        **arguments,
    )
