"""The finished pieces of a study on disk: an interrupted study goes on from them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.network.network import Network
from patrac_native.studies.baselines import Baseline, NetworkScores
from patrac_native.studies.experiment import Outcome, Record

_IDENTITY = "settings.json"


@dataclass(frozen=True)
class Trained:
    """The trained network of a replicate, with its scores and those of its Laplace approximations."""

    network: Network
    scores: NetworkScores
    baselines: list[Baseline]


class Pieces:
    """A folder with the finished pieces of one study.

    A piece is its JSON file, which is written last and replaces nothing half-written: a study that is killed leaves
    whole pieces.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    identity : mapping
        JSON-able: whatever determines a piece beside its numbers.

    Raises
    ------
    ValueError
        If the folder holds pieces of another identity.
    OSError
        If the folder cannot be made or read.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _IDENTITY
        wanted = json.loads(json.dumps(identity))
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            differs = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            if differs:
                name = differs[0]
                raise ValueError(
                    f"{folder} holds pieces of a study with other settings ({name}: {found.get(name)!r} there, "
                    f"{wanted.get(name)!r} here); give another --out, or delete that folder."
                )
        else:
            self.write(_IDENTITY, wanted)

    def load_trained(self, replicate: int) -> Trained | None:
        """Return the network of a replicate, or None if it has not been trained."""
        content = self.read(f"trained-{replicate}.json")
        if content is None:
            return None
        return Trained(
            Network.load(self._folder / f"trained-{replicate}.npz"),
            NetworkScores(**content["scores"]),
            [Baseline(**one) for one in content["baselines"]],
        )

    def save_trained(self, replicate: int, trained: Trained) -> None:
        """Write the network of a replicate."""
        trained.network.save(self._folder / f"trained-{replicate}.npz", overwrite=True)
        content = {"scores": asdict(trained.scores), "baselines": [asdict(one) for one in trained.baselines]}
        self.write(f"trained-{replicate}.json", content)

    def load_run(self, replicate: int, label: str) -> Outcome | Record | None:
        """Return a run as it was kept, or None if there is none."""
        name = f"run-{replicate}-{label}"
        content = self.read(f"{name}.json")
        if content is None:
            return None
        record = Record(**content)
        if not (self._folder / f"{name}-draws.npz").exists():
            return record
        with np.load(self._folder / f"{name}-arrays.npz", allow_pickle=False) as arrays:
            return Outcome(record, Draws.load(self._folder / f"{name}-draws.npz"), **arrays)

    def save_run(self, replicate: int, label: str, run: Outcome | Record) -> None:
        """Write a run, with its draws if it has them."""
        name = f"run-{replicate}-{label}"
        if isinstance(run, Outcome):
            run.draws.save(self._folder / f"{name}-draws.npz", overwrite=True)
            arrays = {key: getattr(run, key) for key in ("f_test", "autocorrelation", "pit_f", "pit_y")}
            np.savez(self._folder / f"{name}-arrays.npz", **arrays)
        record = run.record if isinstance(run, Outcome) else run
        self.write(f"{name}.json", record.to_dict())

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file, None if there is none."""
        path = self._folder / name
        if not path.exists():
            return None
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        path, partial = self._folder / name, self._folder / f"{name}.part"
        partial.write_text(json.dumps(content), encoding="utf-8")
        os.replace(partial, path)
