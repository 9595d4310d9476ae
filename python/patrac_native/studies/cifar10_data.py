"""The binary version of CIFAR-10 (Krizhevsky 2009, Learning multiple layers of features from tiny images)."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CLASSES = 10
PIXELS = 3 * 32 * 32
# A record is a byte for the label and one for each channel of each pixel.
_RECORD = 1 + PIXELS
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = "test_batch.bin"
_FOLDER, _ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"
# Rows that are converted at a time, so that float64 copies stay small.
_BLOCK = 2_000


class Images(NamedTuple):
    """Images as bytes divided by 255, standardised by the training rows, float32 (n, 3072), with labels 0..9 (n,)."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]


def load_images(data: Path, rows: int | None = None) -> Images:
    """Read the training images, or the first `rows`, and the test images; raise ValueError for other files.

    `data` is the archive cifar-10-binary.tar.gz, or a folder that holds it, its folder cifar-10-batches-bin or the
    batches, each plain or compressed (.bin.xz). Batches that are not needed are not read: their order is random.
    """
    parts: list[npt.NDArray[np.uint8]] = []
    for name in _TRAIN:
        parts.append(_records(data, name))
        if rows is not None and sum(map(len, parts)) >= rows:
            break
    train, test = np.concatenate(parts), _records(data, _TEST)
    if rows is not None and not 1 <= rows <= len(train):
        raise ValueError(f"--rows must be from 1 to {len(train)}, the number of training images; got {rows}.")
    train = train[:rows]
    pixels, n = train[:, 1:], len(train)
    # Sums of bytes and of their squares are exact in 64 bits.
    first, second = pixels.sum(axis=0, dtype=np.int64), np.einsum("ij,ij->j", pixels, pixels, dtype=np.int64)
    spread = np.sqrt((n * second - first**2).astype(np.float64)) / n
    center, spread = first / n / 255, np.where(spread > 0, spread, 255.0) / 255
    X, X_test = (_standardised(part[:, 1:], center, spread) for part in (train, test))
    return Images(X, train[:, 0].astype(np.int64), X_test, test[:, 0].astype(np.int64))


def _batch(data: Path, name: str) -> bytes:
    """Read a batch by its name from a folder, plain or compressed, or from the archive."""
    for folder in (data, data / _FOLDER):
        if (plain := folder / name).is_file():
            return plain.read_bytes()
        if (compressed := folder / f"{name}.xz").is_file():
            return lzma.decompress(compressed.read_bytes())
    archive = data if data.is_file() else data / _ARCHIVE
    if not archive.is_file():
        raise FileNotFoundError(
            f"--data: there is no {name}, {name}.xz or {_ARCHIVE} in {data}; give the folder of the binary version of "
            "CIFAR-10."
        )
    try:
        with tarfile.open(archive) as content:
            stream = content.extractfile(f"{_FOLDER}/{name}")
            assert stream is not None  # a batch is a file
            return stream.read()
    except KeyError:
        raise FileNotFoundError(f"--data: there is no {_FOLDER}/{name} in {archive}.") from None
    except tarfile.ReadError as error:
        raise ValueError(f"--data {archive} is no tar archive: {error}.") from error


def _records(data: Path, name: str) -> npt.NDArray[np.uint8]:
    """Return the records of a batch, shape (n, 3073)."""
    content = _batch(data, name)
    if not content or len(content) % _RECORD:
        raise ValueError(f"--data: {name} has {len(content)} bytes; batches of CIFAR-10 have {_RECORD} for each image.")
    found = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    if found[:, 0].max() >= CLASSES:
        raise ValueError(f"--data: {name} has the label {found[:, 0].max()}; those of CIFAR-10 are 0 to 9.")
    return found


def _standardised(
    pixels: npt.NDArray[np.uint8], center: npt.NDArray[np.float64], spread: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the bytes divided by 255, less `center`, over `spread`."""
    found = np.empty(pixels.shape, np.float32)
    for start in range(0, len(pixels), _BLOCK):
        found[start : start + _BLOCK] = (pixels[start : start + _BLOCK] / 255 - center) / spread
    return found
