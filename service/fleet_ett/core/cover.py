"""The smallest key at each instant among intervals that cover it: the one sweep of the core.

It answers both questions of the flattening: which of a rank's spans is innermost, and which rank is
furthest behind. A sparse table filled backwards keeps it a handful of numpy passes, however many
intervals overlap: O((n + m) log m) for n intervals and m bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NOTHING = np.iinfo(np.int64).max


def smallest(starts: Ints, ends: Ints, keys: Ints) -> tuple[Ints, Ints]:
    """The smallest key over time.

    Takes n half-open intervals with a key each (0 <= key < NOTHING). Returns `(bounds, low)`: `low[i]`
    is the smallest key among the intervals that cover [bounds[i], bounds[i + 1]), NOTHING where none
    does; len(bounds) == len(low) + 1, or both empty.
    """
    bounds = np.unique(np.concatenate((starts, ends)))
    cells = len(bounds) - 1
    if cells < 1:
        return bounds[:0], bounds[:0]
    first = np.searchsorted(bounds, starts)
    length = np.searchsorted(bounds, ends) - first
    level = np.frexp(np.maximum(length, 1).astype(np.float64))[1] - 1
    low = np.full(cells, NOTHING, dtype=np.int64)
    for step in range(int(level.max(initial=0)), -1, -1):
        width = 1 << step
        here = np.flatnonzero((level == step) & (length > 0))
        if len(here):
            begin = first[here]
            np.minimum.at(low, begin, keys[here])
            np.minimum.at(low, begin + length[here] - width, keys[here])
        if step:  # an entry covers `width` cells from its own: hand it to its two halves
            half = width >> 1
            shifted = np.full(cells, NOTHING, dtype=np.int64)
            shifted[half:] = low[: cells - half]
            # an entry at i reaches i + width - 1 < cells by construction
            low = np.minimum(low, shifted)
    return bounds, low


def runs(bounds: Ints, values: Ints) -> tuple[Ints, Ints, Ints]:
    """Neighbouring cells of one value joined: `(starts, ends, values)`, cells of NOTHING left out."""
    if not len(values):
        return bounds[:0], bounds[:0], values
    change = np.flatnonzero(values[1:] != values[:-1]) + 1
    first = np.concatenate(([0], change))
    last = np.concatenate((change, [len(values)]))
    joined = values[first]
    kept = joined != NOTHING
    return bounds[first[kept]], bounds[last[kept]], joined[kept]
