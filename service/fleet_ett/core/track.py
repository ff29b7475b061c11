"""The job's own timeline within one attempt: at each instant one state and who held it up.

A `Track` tiles [start, end) without hole or overlap. It is cut, never moved: later passes split it at
borders (first step, end of a window's replay, full hours, settled) and label the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class Track:
    """Pieces in order; columns of one length. -1 stands for none in rank, node, window, key.

    `phase` is a code into the attempt's names, `window` a row of its step windows, `ahead` whether some
    other rank had got further (so that the blamed rank held somebody up).
    """

    start: Ints
    end: Ints
    phase: Ints
    rank: Ints
    node: Ints
    window: Ints
    key: Ints
    ahead: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> Track:
        """The pieces of those row numbers."""
        return Track(*(getattr(self, name)[rows] for name in self.__slots__))

    def cut(self, points: Iterable[int]) -> Track:
        """The same track split wherever one of `points` (ns) lies inside a piece."""
        wanted = np.unique(np.array(list(points), dtype=np.int64))
        if not len(self) or not len(wanted):
            return self
        row = np.searchsorted(self.start, wanted, side="right") - 1
        inside = (row >= 0) & (wanted > self.start[row]) & (wanted < self.end[row])
        if not inside.any():
            return self
        wanted, row = wanted[inside], row[inside]
        out = self.take(np.sort(np.concatenate((np.arange(len(self)), row))))
        starts = np.sort(np.concatenate((self.start, wanted)))
        out.start, out.end = starts, np.append(starts[1:], out.end[-1:])
        gaps = np.flatnonzero(self.end[:-1] != self.start[1:])
        if len(gaps):  # pieces were taken out (exclusions): keep their ends
            out.end[np.searchsorted(starts, self.start[gaps + 1]) - 1] = self.end[gaps]
        return out

    def without(self, excluded: Iterable[tuple[int, int]]) -> Track:
        """The track with those intervals taken out."""
        track = self
        for low, high in excluded:
            if high > low:
                track = track.cut((low, high))
                kept = np.flatnonzero((track.end <= low) | (track.start >= high))
                track = track.take(kept)
        return track
