"""The booked timeline of one attempt as columns, and its sums.

Columns are int64; strings are interned per attempt. GPU time is wall time x GPUs held; a single hour's
product fits 64 bits, sums do not, so every sum is a Python integer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.policy import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Label = tuple[str, str, str, bool]  # heading, phase, component, repeated


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the job's time under one heading. Times ns; `gpus` held during it."""

    start: int
    end: int
    heading: str
    phase: str
    component: str
    rank: int | None
    node: str | None
    repeated: bool
    gpus: int
    settled: bool


@dataclass(slots=True)
class Segments:
    """The segments of one attempt and the gap after it, in order, as columns of one length.

    `label` is a code into `labels`, `node` into `nodes`, `key` into `keys`; -1 stands for none. `ahead`:
    some other rank had got further. What ends by `settled_until` (ns) is settled.
    """

    start: Ints
    end: Ints
    label: Ints
    rank: Ints
    node: Ints
    key: Ints
    gpus: Ints
    ahead: NDArray[np.bool_]
    labels: list[Label]
    nodes: list[str]
    keys: list[str]
    settled_until: int

    def __len__(self) -> int:
        return len(self.start)

    def _pieces(self, rows: Ints, start: Ints, end: Ints) -> Segments:
        """The segments of those rows with new bounds."""
        return replace(
            self,
            start=start,
            end=end,
            label=self.label[rows],
            rank=self.rank[rows],
            node=self.node[rows],
            key=self.key[rows],
            gpus=self.gpus[rows],
            ahead=self.ahead[rows],
        )

    def joined(self) -> Segments:
        """Neighbours of one label and one holder made one segment."""
        if len(self) < 2:
            return self
        differs = self.end[:-1] != self.start[1:]
        for column in (self.label, self.rank, self.node, self.key, self.gpus):
            differs |= column[:-1] != column[1:]
        differs |= self.ahead[:-1] != self.ahead[1:]
        first = np.append(0, np.flatnonzero(differs) + 1)
        last = np.append(first[1:] - 1, len(self) - 1)
        return self._pieces(first, self.start[first], self.end[last])

    def cut_at(self, moment: int) -> Segments:
        """The same segments with none reaching over `moment` (ns)."""
        inside = np.flatnonzero((self.start < moment) & (self.end > moment))
        if not len(inside):
            return self
        row = int(inside[0])
        rows = np.insert(np.arange(len(self)), row, row)
        return self._pieces(
            rows,
            np.insert(self.start, row + 1, moment),
            np.insert(self.end, row, moment),
        )

    def by_hour(self) -> tuple[Segments, Ints]:
        """The segments cut at full UTC hours, and each piece's hour (ns)."""
        first = self.start // HOUR
        counts = (self.end - 1) // HOUR - first + 1
        rows = np.repeat(np.arange(len(self)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        hour = (first[rows] + nth) * HOUR
        start, end = (
            np.maximum(self.start[rows], hour),
            np.minimum(self.end[rows], hour + HOUR),
        )
        return self._pieces(rows, start, end), hour

    def rows(self) -> Iterator[Segment]:
        """The segments one by one, cut where settled time ends."""
        cut = self.cut_at(self.settled_until)
        columns = (cut.start, cut.end, cut.label, cut.rank, cut.node, cut.gpus)
        for start, end, label, rank, node, gpus in zip(*(c.tolist() for c in columns), strict=True):
            heading, phase, component, repeated = self.labels[label]
            yield Segment(
                start=start,
                end=end,
                heading=heading,
                phase=phase,
                component=component,
                rank=None if rank < 0 else rank,
                node=None if node < 0 else self.nodes[node],
                repeated=repeated,
                gpus=gpus,
                settled=end <= self.settled_until,
            )

    def sums(self) -> dict[Label, tuple[int, int]]:
        """(wall ns, GPU-ns) by label, exact."""
        out: dict[Label, tuple[int, int]] = {}
        for gpus in np.unique(self.gpus).tolist():
            here = self.gpus == gpus
            wall = np.zeros(len(self.labels), dtype=np.int64)
            np.add.at(wall, self.label[here], (self.end - self.start)[here])
            for code in np.flatnonzero(wall).tolist():
                old_wall, old_gpu = out.get(self.labels[code], (0, 0))
                out[self.labels[code]] = (
                    old_wall + int(wall[code]),
                    old_gpu + int(wall[code]) * gpus,
                )
        return out

    def blamed(self) -> dict[tuple[str, int], int]:
        """Wall ns of lost time by the (node, rank) that was furthest behind, ties included."""
        out: dict[tuple[str, int], int] = defaultdict(int)
        lost = np.array([label[0] not in ("productive", "replay") for label in self.labels] or [False])
        for row in np.flatnonzero((self.rank >= 0) & lost[self.label]).tolist():
            out[self.nodes[int(self.node[row])], int(self.rank[row])] += int(self.end[row] - self.start[row])
        return dict(out)
