"""Step windows that follow each other without a hole, taken as one stretch of time.

A job reports thousands of windows that differ in nothing the timeline cares about. Joined into chains the
sweep works on a handful of rows; a window that is split, waited, or stands alone keeps a row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.nesting import overlapping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.steps import Steps

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class Chains:
    """Chains in order of (rank, start): `row` of the first window, `count` of windows, bounds in ns."""

    row: Ints
    count: Ints
    rank: Ints
    node: Ints
    start: Ints
    end: Ints
    verdict: Ints
    wait: Ints | None

    def __len__(self) -> int:
        return len(self.row)

    def rows_of(self, chain: Ints) -> Ints:
        """The row of each chain's first window; -1 stays none."""
        return np.where(chain >= 0, self.row[chain], -1) if len(self) else chain

    def counts_of(self, window: Ints) -> Ints:
        """How many windows the chain that begins with each of `window` holds; 0 for none (-1)."""
        if not len(self):
            return np.zeros(len(window), dtype=np.int64)
        chain = np.searchsorted(self.row, np.maximum(window, 0))
        return np.where(window >= 0, self.count[np.minimum(chain, len(self) - 1)], 0)


def chained(steps: Steps, verdict: Ints, alone: int) -> Chains:
    """The chains of windows of one rank, node and verdict; windows of the verdict `alone` stay single."""
    n = len(steps)
    if not n:
        none = np.empty(0, dtype=np.int64)
        return Chains(none, none, none, none, none, none, none, None)
    follows = (steps.start[1:] == steps.end[:-1]) & (verdict[1:] == verdict[:-1]) & (verdict[1:] != alone)
    for column in (steps.rank, steps.node):
        if column.strides != (0,):
            follows &= column[1:] == column[:-1]
    if steps.wait is not None:
        follows &= (steps.wait[1:] <= 0) & (steps.wait[:-1] <= 0)
    touching = overlapping(steps.rank, steps.start, steps.end)
    if touching is not None:  # which of two overlapping windows is inner depends on their own bounds
        follows &= ~touching[1:] & ~touching[:-1]
    first = np.append(0, np.flatnonzero(~follows) + 1)
    last = np.append(first[1:], n) - 1
    wait = None if steps.wait is None else steps.wait[first]
    return Chains(
        first,
        last - first + 1,
        steps.rank[first],
        steps.node[first],
        steps.start[first],
        steps.end[last],
        verdict[first],
        wait,
    )
