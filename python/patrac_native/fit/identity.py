"""The identity of a fit, which its draws and its preprocessing have in common."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.fit_settings import DRAWS, PREPROCESSING

# Entry of `Draws.settings` and of the file of the preprocessing.
IDENTITY = "identity"
# Entry of the file of the preprocessing, and the version of its format from which on the file has one.
DIGEST, DIGEST_SINCE = "digest", 4


def fit_identity(draws: Draws | DrawsMixture, preprocessor: Mapping[str, Any]) -> str:
    """Return a digest of the draws and of what `Preprocessor.to_dict` returned: no other fit has it."""
    digest = hashlib.sha256(json.dumps(preprocessor, sort_keys=True).encode())
    for member in draws.members:
        digest.update(np.ascontiguousarray(member.theta).data)
    return digest.hexdigest()[:32]


def content_digest(content: Mapping[str, Any]) -> str:
    """Return a digest of what the file of the preprocessing holds, itself left out."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:32]


def check_unchanged(content: Mapping[str, Any], path: str) -> None:
    """Raise ValueError if the content of the file of the preprocessing is not what a fit wrote.

    Files of versions before `DIGEST_SINCE` of the format have no digest.
    """
    has_digest = content["preprocessor"]["format"] >= DIGEST_SINCE
    if has_digest and content.get(DIGEST) != content_digest(content):
        raise ValueError(
            f"{path} is damaged or was edited: it does not hold what `patrac fit` wrote, so predictions would be "
            "wrong; restore the file, or fit again."
        )


def check_identity(draws: Draws | DrawsMixture, directory: str) -> None:
    """Raise ValueError if draws do not belong to the preprocessing in a folder; fits of earlier versions have none."""
    with open(os.path.join(directory, PREPROCESSING), encoding="utf-8") as stream:
        wanted = json.load(stream).get(IDENTITY)
    if {member.settings.get(IDENTITY) for member in draws.members} != {wanted}:
        raise ValueError(different_fits(directory))


def different_fits(directory: str) -> str:
    """Return the message on files that do not belong together."""
    return (
        f"{DRAWS} and {PREPROCESSING} in {directory} are of different fits, so predictions would be wrong; restore the "
        "files of one fit, or fit again."
    )
