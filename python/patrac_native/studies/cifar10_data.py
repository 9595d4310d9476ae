"""The binary version of CIFAR-10 (Krizhevsky 2009, Learning multiple layers of features from tiny images)."""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
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
    read = _reader(data)
    parts: list[npt.NDArray[np.uint8]] = []
    for name in _TRAIN:
        parts.append(_records(read(name), name))
        if rows is not None and sum(map(len, parts)) >= rows:
            break
    train, test = np.concatenate(parts), _records(read(_TEST), _TEST)
    if rows is not None and not 1 <= rows <= len(train):
        raise ValueError(f"--rows must be from 1 to {len(train)}, the number of training images; got {rows}.")
    train = train[:rows]
    center, spread = _moments(train[:, 1:])
    X, X_test = (_standardised(part[:, 1:], center, spread) for part in (train, test))
    return Images(X, train[:, 0].astype(np.int64), X_test, test[:, 0].astype(np.int64))


def _reader(data: Path) -> Callable[[str], bytes]:
    """Return the function that reads a batch by its name."""
    archive = data if data.is_file() else data / _ARCHIVE
    for folder in (data, data / _FOLDER):
        if any((folder / f"{_TEST}{end}").is_file() for end in ("", ".xz")):
            return lambda name: _read(folder, name)
    if archive.is_file():
        return lambda name: _extract(archive, name)
    raise FileNotFoundError(
        f"--data: there is no {_TEST}, {_TEST}.xz or {_ARCHIVE} in {data}; give the folder of the binary version of "
        "CIFAR-10."
    )


def _read(folder: Path, name: str) -> bytes:
    """Read a batch from a folder, plain or compressed."""
    plain, compressed = folder / name, folder / f"{name}.xz"
    if plain.is_file():
        return plain.read_bytes()
    if compressed.is_file():
        with lzma.open(compressed) as stream:
            return stream.read()
    raise FileNotFoundError(f"--data: there is no {name} or {name}.xz in {folder}.")


def _extract(archive: Path, name: str) -> bytes:
    """Read a batch from the archive."""
    try:
        with tarfile.open(archive) as content:
            stream = content.extractfile(f"{_FOLDER}/{name}")
            if stream is not None:
                return stream.read()
    except KeyError:
        pass
    except tarfile.ReadError as error:
        raise ValueError(f"--data {archive} is no tar archive: {error}.") from error
    raise FileNotFoundError(f"--data: there is no {_FOLDER}/{name} in {archive}.")


def _records(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Return the records of a batch, shape (n, 3073)."""
    if not content or len(content) % _RECORD:
        raise ValueError(f"--data: {name} has {len(content)} bytes; batches of CIFAR-10 have {_RECORD} for each image.")
    found = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    if found[:, 0].max() >= CLASSES:
        raise ValueError(f"--data: {name} has the label {found[:, 0].max()}; those of CIFAR-10 are 0 to 9.")
    return found


def _moments(pixels: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return means and standard deviations of the columns divided by 255; 1 for a column that is constant."""
    # Sums of bytes and of their squares are exact in 64 bits.
    first, second = np.zeros(pixels.shape[1], np.int64), np.zeros(pixels.shape[1], np.int64)
    for start in range(0, len(pixels), _BLOCK):
        block = pixels[start : start + _BLOCK].astype(np.int64)
        first += block.sum(axis=0)
        second += (block**2).sum(axis=0)
    n = len(pixels)
    spread = np.sqrt((n * second - first**2).astype(np.float64)) / n
    return first / n / 255, np.where(spread > 0, spread, 255.0) / 255


def _standardised(
    pixels: npt.NDArray[np.uint8], center: npt.NDArray[np.float64], spread: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the bytes divided by 255, less `center`, over `spread`."""
    found = np.empty(pixels.shape, np.float32)
    for start in range(0, len(pixels), _BLOCK):
        found[start : start + _BLOCK] = (pixels[start : start + _BLOCK] / 255 - center) / spread
    return found
