"""Principal components of the inputs: taken where many or collinear columns predict left-out rows worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import mean_with_error
from patrac_native.files import check_entries

FloatArray = npt.NDArray[np.float64]

# Numbers of components that are compared.
_NUMBERS = (10, 20, 40, 100)
# Rows from which components are computed, by which they are compared, and without which they are not.
_ROWS, _COMPARED_ROWS, _FEWEST_ROWS = 2_000, 500, 50
# Columns are collinear where half as many components as there are columns have this share of the variance; components
# whose standard deviation is less than this share of the first one's are rounding errors of the columns.
_VARIANCE, _ROUNDING = 0.99, 1e-6
# The processes that are compared: lengths of their kernels, as multiples of the median squared distance of two rows,
# and variances of the noise, as multiples of that of the function.
_LENGTHS, _NOISES = 4.0 ** np.arange(-1, 4), 10.0 ** np.arange(-4, 1.1, 0.5)


@dataclass(frozen=True)
class Components:
    """The first k principal components of d inputs, each divided by the square root of its standard deviation.

    That is half-way between components as they are, of which the network sees the first few alone, and whitened ones,
    of which the last count as much as the first. Their variances have the mean one.

    Attributes
    ----------
    mean : ndarray of float64, shape (d,)
        Of the inputs.
    directions : ndarray of float64, shape (d, k)
        Orthonormal columns.
    scale : ndarray of float64, shape (k,)
        What the projections on the directions are divided by.
    """

    mean: FloatArray
    directions: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, inputs: FloatArray, weights: FloatArray | None) -> Components:
        """Compute all components of inputs (n, d) with row weights (n,)."""
        rows = _spread(len(inputs), _ROWS)
        few, of_few = inputs[rows], None if weights is None else weights[rows]
        mean = np.average(few, axis=0, weights=of_few)
        share = np.full(len(few), 1.0 / len(few)) if of_few is None else of_few / of_few.sum()
        _, sd, directions = np.linalg.svd((few - mean) * np.sqrt(share)[:, None], full_matrices=False)
        used = sd > _ROUNDING * sd[0]
        directions, sd = directions[used].T, sd[used]
        # The sign of a direction is arbitrary: its largest entry is positive. Numbers of float32 are the same for any
        # number of threads of the decomposition.
        directions *= np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(len(sd))])
        return cls(*(part.astype(np.float32).astype(np.float64) for part in (mean, directions, np.sqrt(sd))))

    def first(self, count: int) -> Components:
        """Return the first components, scaled to a mean variance of one."""
        scale = self.scale[:count]
        return Components(self.mean, self.directions[:, :count], scale * np.sqrt(np.mean(scale**2)))

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.scale)

    def transform(self, inputs: FloatArray) -> FloatArray:
        """Return the components (n, k) of inputs (n, d), those of a row whatever the others are."""
        return np.ascontiguousarray(np.einsum("nd,dk->nk", inputs - self.mean, self.directions) / self.scale)

    def inverse(self, components: FloatArray) -> FloatArray:
        """Return inputs (n, d) that have the components (n, k), and nothing of the others."""
        return np.asarray((components * self.scale) @ self.directions.T + self.mean)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        return {name: values.tolist() for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], inputs: int) -> Components:
        """Rebuild from what `to_dict` returned, of so many inputs; raise ValueError if it is damaged."""
        check_entries(content, dict.fromkeys(("mean", "directions", "scale"), list), "its components")
        made = cls(*(np.array(content[name], dtype=np.float64) for name in ("mean", "directions", "scale")))
        shapes = (made.mean.shape, made.directions.shape, made.scale.shape)
        is_whole = all(np.isfinite(part).all() for part in (made.mean, made.directions, made.scale))
        if shapes != ((inputs,), (inputs, made.number), (made.number,)) or not is_whole or not (made.scale > 0).all():
            raise ValueError("its components are not those of its inputs")
        return made


def choose_components(
    inputs: FloatArray, targets: npt.NDArray[Any], weights: FloatArray | None, pca: int | str
) -> tuple[Components | None, str]:
    """Return the components that are taken in place of inputs (n, d), None for the inputs, and why in words.

    `pca` is a number of components, 0 for none, or "auto": components are compared with the inputs where these are
    collinear or more than the rows, by the NLPD of rows that a Gaussian process leaves out one at a time. It takes
    seconds, and is what a wide network is like. Components are taken where they are better by more than two standard
    errors or, where there are more inputs than rows, no worse.

    Parameters
    ----------
    inputs : ndarray, shape (n, d)
    targets : ndarray of float64, shape (n, t), or of int64, shape (n,)
        Numbers, or classes.
    weights : ndarray, shape (n,), optional
        Of the rows.
    pca : int or "auto"
    """
    n, d = inputs.shape
    if pca == 0 or d == 1 or (pca == "auto" and n < _FEWEST_ROWS):
        return None, ""
    every = Components.fit(inputs, weights)
    if pca != "auto":
        made = every.first(int(pca))
        return made, f"the first {made.number} of {every.number} principal components of the inputs are taken, as asked"
    variance = np.cumsum(every.scale**4)  # the scale is the root of the standard deviation
    if d <= n and 2 * (np.searchsorted(variance, _VARIANCE * variance[-1]) + 1) > d:
        return None, ""
    # A copy of a row would be predicted by the row.
    rows = np.sort(np.unique(inputs, axis=0, return_index=True)[1])
    rows = rows[_spread(len(rows), _COMPARED_ROWS)]
    y = _standardised(targets[rows])
    of_columns = left_out_nlpd(inputs[rows], y)
    found = {
        count: left_out_nlpd(every.first(count).transform(inputs[rows]), y)
        for count in sorted({min(count, every.number) for count in _NUMBERS})
    }
    of_rows = None if weights is None else weights[rows]
    gains = {count: mean_with_error(of_columns - nlpd, of_rows) for count, nlpd in found.items()}
    best = max(gains, key=lambda count: gains[count][0])
    gain, error = gains[best]
    text = (
        f"principal components: a Gaussian process predicts {len(rows)} left-out rows with an NLPD "
        f"{'lower' if gain > 0 else 'higher'} by {abs(gain):.3f} (standard error {error:.3f}) by the first {best} of "
        f"{every.number} than by all {d} inputs, and "
    )
    if gain > 2 * error:
        return every.first(best), f"{text}they are taken"
    if d > n and gain > -2 * error:
        return every.first(best), f"{text}they are taken, because there are more inputs than rows"
    return None, f"{text}they are not taken"


def left_out_nlpd(inputs: FloatArray, y: FloatArray) -> FloatArray:
    """Return the NLPD (n,) of standardised targets y (n, t) by a Gaussian process that leaves out each row in turn.

    The kernel is exp(-|x - x'|^2 / 2l), and l, the noise and the variance of the function are the best for these rows.
    With C = K + noise, the residual of a row that is left out is [C^-1 y]_i / [C^-1]_ii, and its variance
    a / [C^-1]_ii, a that of the function (Rasmussen & Williams 2006, section 5.4.2).
    """
    squares = np.einsum("nd,nd->n", inputs, inputs)
    distances = np.maximum(squares[:, None] + squares - 2 * inputs @ inputs.T, 0.0)
    typical = float(np.median(distances[np.triu_indices(len(y), 1)]))
    best = np.full(len(y), np.inf)
    for length in _LENGTHS * typical:
        values, vectors = np.linalg.eigh(np.exp(-distances / (2 * length)))
        turned, squared = vectors.T @ y, vectors**2
        for noise in _NOISES:
            precision = 1.0 / (np.maximum(values, 0.0) + noise)
            diagonal = (squared @ precision)[:, None]
            misfit = (vectors @ (precision[:, None] * turned)) ** 2 / diagonal  # squared residual times [C^-1]_ii
            variance = misfit.mean(axis=0)
            nlpd = 0.5 * (np.log(2 * np.pi * variance / diagonal) + misfit / variance).sum(axis=1)
            if nlpd.mean() < best.mean():
                best = nlpd
    return best


def _standardised(targets: npt.NDArray[Any]) -> FloatArray:
    """Return numbers (n, t), or indicators of all classes but the first, with mean zero and variance one."""
    y = targets if targets.ndim > 1 else (targets[:, None] == np.unique(targets)[1:]).astype(np.float64)
    y = y[:, y.std(axis=0) > 0]
    return np.asarray((y - y.mean(axis=0)) / y.std(axis=0))


def _spread(n: int, most: int) -> npt.NDArray[np.intp]:
    """Return at most so many of n positions, evenly spread."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.intp)
