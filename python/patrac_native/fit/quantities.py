"""Text that is a number with a unit, such as "3.5 kg", "5k" or "US$5", told from codes such as "3A" and "Q1"."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.fit.number_columns import CODES, CURRENCIES

# Units and multipliers by themselves; any other word is a unit where it stands behind this many different numbers:
# "2WD" and "4WD" are codes.
_FEWEST_NUMBERS = 6
_KNOWN = frozenset(
    "% ‰ ° °c °f ' \" k m g l t h s w v x bn mn mm cm dm km m2 m3 m² m³ km² ha mg kg ml cl hl kw kwh kj mj min hr hrs "
    "lb oz ft in mi kb mb gb tb hz khz mhz ghz mg/l g/l km/h m/s mph kr rs z\u0142 k\u010d".split()
)
# Endings of ordinal numbers, which name ranks.
_ORDINALS = frozenset({"st", "nd", "rd", "th"})
_QUANTITY = re.compile(
    rf"\(?\s*[-+~\u2212]?\s*(?P<money>[a-z]{{0,3}}[{CURRENCIES}]|(?:{CODES}|rs|kr)\b\.?)?\s*[-+\u2212]?"
    r"(?P<number>\d[\d.,'\u00a0\u202f]*(?:\s\d{3})*(?:[.,]\d+)?|[.,]\d+)"
    r"\s*(?P<word>[^\d\s<>=:;*_+(),.-][^\d<>=:;*_+()]{0,14}(?:(?<!\s)[23])?)?\s*\)?",
    re.IGNORECASE,
)
_MONEY = re.compile(rf"[{CURRENCIES}]|{CODES}", re.IGNORECASE)


class Quantities(NamedTuple):
    """Which entries of a column are numbers, with or without a unit, and the position of the first that has a unit."""

    mask: npt.NDArray[np.bool_]
    first: int


def numbers_with_units(texts: Sequence[str]) -> Quantities | None:
    """Return which entries of a column of text are numbers, with or without a unit, if most are and some have one.

    Currencies, common units and multipliers count, and so does any other word of at least two letters that stands
    behind six different numbers; the endings of ordinal numbers do not. So "3A", "2WD" and "1st" are codes.

    Parameters
    ----------
    texts : sequence of str
        The n entries that are not missing.

    Returns
    -------
    Quantities or None
        None if at most half of the entries are numbers, or none has a unit. The mask has the shape (n,).

    Examples
    --------
    >>> numbers_with_units(["3", "4 kg", "none"])
    Quantities(mask=array([ True,  True, False]), first=1)
    >>> numbers_with_units(["3A", "4A", "Q1"]) is None
    True
    """
    if not len(texts):
        return None
    distinct, at = np.unique(np.asarray(texts, dtype=object), return_inverse=True)
    found = [_QUANTITY.fullmatch(text.strip()) for text in distinct]
    words = ["" if quantity is None else _singular(quantity["word"] or "") for quantity in found]
    behind = defaultdict(set)
    for quantity, word in zip(found, words, strict=True):
        if quantity is not None and len(word) > 1 and word not in _ORDINALS:
            behind[word].add(quantity["number"])
    units = _KNOWN | {word for word, numbers in behind.items() if len(numbers) >= _FEWEST_NUMBERS}
    has_unit, plain = np.zeros((2, len(distinct)), dtype=bool)
    for index, (quantity, word) in enumerate(zip(found, words, strict=True)):
        if quantity is not None:
            has_unit[index] = quantity["money"] is not None or word in units or _MONEY.fullmatch(word) is not None
            plain[index] = not word
    marked, mask = has_unit[at], (has_unit | plain)[at]
    return Quantities(mask, int(np.argmax(marked))) if marked.any() and 2 * mask.sum() > len(mask) else None


def _singular(word: str) -> str:
    """Return a word in lower case, without the s of a plural."""
    word = word.strip().casefold()
    return word[:-1] if len(word) > 2 and word.endswith("s") else word
