"""The booked timeline of one attempt and what is summed from it: ledger cells, holders, repeatable work.

Columns are int64; strings are interned per attempt. GPU time is wall time x GPUs held; a single hour's
product fits 64 bits, sums do not, so every sum is a Python integer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.policy import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the ledger: an hour (ns, UTC) of one heading, phase, component. Amounts ns and GPU-ns."""

    hour: int
    heading: str
    phase: str
    component: str
    repeated: bool
    wall_ns: int
    gpu_ns: int
    settled_wall_ns: int
    settled_gpu_ns: int


@dataclass(frozen=True, slots=True)
class Held:
    """How long one rank held others up within an hour (ns, UTC): others had got further than it."""

    hour: int
    node: str
    rank: int
    wall_ns: int
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class Work:
    """Start-up work with a fingerprint: what a shared cache could save the next time it is seen."""

    phase: str
    work_key: str
    start: int
    wall_ns: int
    gpu_ns: int
    seen_in_job: bool


@dataclass(slots=True)
class Segments:
    """The segments of one attempt and the gap after it, in order, as columns.

    `label` is a code into `labels` of (heading, phase, component, repeated); `node` into `nodes`, `key`
    into `keys`; -1 stands for none.
    """

    start: Ints
    end: Ints
    label: Ints
    rank: Ints
    node: Ints
    key: Ints
    gpus: Ints
    ahead: NDArray[np.bool_]
    labels: list[tuple[str, str, str, bool]]
    nodes: list[str]
    keys: list[str]
    settled_until: int

    def __len__(self) -> int:
        return len(self.start)

    def joined(self) -> Segments:
        """Neighbours of one label and one holder made one segment."""
        if len(self) < 2:
            return self
        differs = self.end[:-1] != self.start[1:]
        for column in (
            self.label,
            self.rank,
            self.node,
            self.key,
            self.gpus,
            self.ahead,
        ):
            differs |= column[:-1] != column[1:]
        first = np.concatenate(([0], np.flatnonzero(differs) + 1))
        last = np.append(first[1:] - 1, len(self) - 1)
        return Segments(
            self.start[first],
            self.end[last],
            *(
                c[first]
                for c in (
                    self.label,
                    self.rank,
                    self.node,
                    self.key,
                    self.gpus,
                    self.ahead,
                )
            ),
            self.labels,
            self.nodes,
            self.keys,
            self.settled_until,
        )

    def cut_at(self, moment: int) -> Segments:
        """The same segments with none reaching over `moment` (ns)."""
        inside = np.flatnonzero((self.start < moment) & (self.end > moment))
        return (
            self
            if not len(inside)
            else self._split(
                np.ones(len(self), dtype=np.int64) + _at(inside, len(self)), moment
            )
        )

    def _split(self, counts: Ints, moment: int) -> Segments:
        rows = np.repeat(np.arange(len(self)), counts)
        starts, ends = self.start[rows], self.end[rows]
        again = np.flatnonzero(np.append(False, rows[1:] == rows[:-1]))
        starts[again], ends[again - 1] = moment, moment
        return self._like(rows, starts, ends)

    def _like(self, rows: Ints, starts: Ints, ends: Ints) -> Segments:
        columns = (
            c[rows]
            for c in (self.label, self.rank, self.node, self.key, self.gpus, self.ahead)
        )
        return Segments(
            starts,
            ends,
            *columns,
            self.labels,
            self.nodes,
            self.keys,
            self.settled_until,
        )

    def by_hour(self) -> tuple[Segments, Ints]:
        """The segments cut at full UTC hours, and each piece's hour (ns)."""
        first, last = self.start // HOUR, (self.end - 1) // HOUR
        counts = last - first + 1
        rows = np.repeat(np.arange(len(self)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        hour = (first[rows] + nth) * HOUR
        starts = np.maximum(self.start[rows], hour)
        return self._like(rows, starts, np.minimum(self.end[rows], hour + HOUR)), hour

    def rows(self) -> Iterator[Segment]:
        """The segments one by one, cut where settled time ends."""
        cut = self.cut_at(self.settled_until)
        columns = (cut.start, cut.end, cut.label, cut.rank, cut.node, cut.gpus)
        for start, end, label, rank, node, gpus in zip(
            *(c.tolist() for c in columns), strict=True
        ):
            heading, phase, component, repeated = self.labels[label]
            yield Segment(
                start,
                end,
                heading,
                phase,
                component,
                None if rank < 0 else rank,
                None if node < 0 else self.nodes[node],
                repeated,
                gpus,
                end <= self.settled_until,
            )

    def sums(self) -> dict[tuple[str, str, str, bool], tuple[int, int]]:
        """(wall ns, GPU-ns) by (heading, phase, component, repeated), exact."""
        out: dict[tuple[str, str, str, bool], tuple[int, int]] = {}
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

    def cells(self) -> list[Cell]:
        """The rows of the ledger, in order."""
        pieces, hour = self.cut_at(self.settled_until).by_hour()
        length = pieces.end - pieces.start
        totals: dict[tuple[int, tuple[str, str, str, bool]], list[int]] = defaultdict(
            lambda: [0, 0, 0, 0]
        )
        settled = pieces.end <= self.settled_until
        order = np.lexsort((settled, pieces.gpus, pieces.label, hour))
        if not len(order):
            return []
        columns = [
            c[order]
            for c in (hour, pieces.label, pieces.gpus, settled.astype(np.int64))
        ]
        fresh = np.zeros(len(order), dtype=bool)
        fresh[0] = True
        for column in columns:
            fresh[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(fresh)
        walls = np.add.reduceat(length[order], first).tolist()
        for wall, h, label, gpus, is_settled in zip(
            walls, *(c[first].tolist() for c in columns), strict=True
        ):
            total = totals[h, self.labels[label]]
            total[0] += wall
            total[1] += wall * gpus
            if is_settled:
                total[2] += wall
                total[3] += wall * gpus
        return [
            Cell(h, *label, *amounts) for (h, label), amounts in sorted(totals.items())
        ]

    def held(self) -> list[Held]:
        """Who held others up, by hour."""
        pieces, hour = self.by_hour()
        totals: dict[tuple[int, str, int], list[int]] = defaultdict(lambda: [0, 0])
        for row in np.flatnonzero(pieces.ahead & (pieces.rank >= 0)).tolist():
            wall = int(pieces.end[row] - pieces.start[row])
            total = totals[
                int(hour[row]), self.nodes[int(pieces.node[row])], int(pieces.rank[row])
            ]
            total[0] += wall
            total[1] += wall * int(pieces.gpus[row])
        return [Held(*key, *amounts) for key, amounts in sorted(totals.items())]

    def blamed(self) -> dict[tuple[str, int], int]:
        """Wall ns of lost time by the (node, rank) that was furthest behind, ties included."""
        out: dict[tuple[str, int], int] = defaultdict(int)
        lost = np.array(
            [heading not in ("productive", "replay") for heading, *_ in self.labels]
            or [False]
        )
        rows = np.flatnonzero((self.rank >= 0) & lost[self.label])
        for row in rows.tolist():
            out[self.nodes[int(self.node[row])], int(self.rank[row])] += int(
                self.end[row] - self.start[row]
            )
        return dict(out)

    def work(self, seen: frozenset[str]) -> list[Work]:
        """Start-up work with a key; `seen` are the keys of the job's earlier attempts."""
        totals: dict[tuple[str, str], list[int]] = {}
        for row in np.flatnonzero(self.key >= 0).tolist():
            phase, key = (
                self.labels[int(self.label[row])][1],
                self.keys[int(self.key[row])],
            )
            wall = int(self.end[row] - self.start[row])
            total = totals.setdefault((phase, key), [int(self.start[row]), 0, 0])
            total[1] += wall
            total[2] += wall * int(self.gpus[row])
        return [
            Work(*key, *amounts, key[1] in seen)
            for key, amounts in sorted(totals.items())
        ]


def _at(rows: Ints, size: int) -> Ints:
    out = np.zeros(size, dtype=np.int64)
    out[rows] = 1
    return out
