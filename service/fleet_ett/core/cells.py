"""The rows that a ledger is kept in: hourly cells, who held others up, work that could be cached.

All amounts are wall ns and GPU-ns (wall ns x GPUs held) as Python integers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from fleet_ett.core.segments import Label, Segments


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the ledger: an hour (ns, UTC) of one heading, phase and component."""

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
    """How long one rank held others up within an hour (ns, UTC), and in what: others had got further than it."""

    hour: int
    node: str
    rank: int
    phase: str
    component: str
    wall_ns: int
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class Work:
    """Work with a fingerprint: what a shared cache could save the next time it is seen."""

    phase: str
    work_key: str
    start: int
    wall_ns: int
    gpu_ns: int
    seen_in_job: bool


def cells(segments: Segments) -> list[Cell]:
    """The rows of the ledger, in order of hour and label."""
    pieces, hour = segments.cut_at(segments.settled_until).by_hour()
    if not len(pieces):
        return []
    settled = (pieces.end <= pieces.settled_until).astype(np.int64)
    order = np.lexsort((settled, pieces.gpus, pieces.label, hour))
    columns = [column[order] for column in (hour, pieces.label, pieces.gpus, settled)]
    fresh = np.zeros(len(order), dtype=bool)
    fresh[0] = True
    for column in columns:
        fresh[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(fresh)
    walls = np.add.reduceat((pieces.end - pieces.start)[order], first).tolist()
    totals: dict[tuple[int, Label], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for wall, at, label, gpus, is_settled in zip(walls, *(c[first].tolist() for c in columns), strict=True):
        total = totals[at, pieces.labels[label]]
        total[0] += wall
        total[1] += wall * gpus
        if is_settled:
            total[2] += wall
            total[3] += wall * gpus
    return [Cell(at, *label, *amounts) for (at, label), amounts in sorted(totals.items())]


def held(segments: Segments) -> list[Held]:
    """Who held others up and in what, by hour."""
    pieces, hour = segments.by_hour()
    totals: dict[tuple[int, str, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in np.flatnonzero(pieces.ahead & (pieces.rank >= 0)).tolist():
        wall = int(pieces.end[row] - pieces.start[row])
        _, phase, component, _ = pieces.labels[int(pieces.label[row])]
        node, rank = pieces.nodes[int(pieces.node[row])], int(pieces.rank[row])
        total = totals[int(hour[row]), node, rank, phase, component]
        total[0] += wall
        total[1] += wall * int(pieces.gpus[row])
    return [Held(*key, *amounts) for key, amounts in sorted(totals.items())]


def work(segments: Segments, seen: Container[str]) -> list[Work]:
    """Work with a key that the job waited for; `seen` holds the keys of its earlier attempts."""
    totals: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(segments.key >= 0).tolist():
        phase, key = (
            segments.labels[int(segments.label[row])][1],
            segments.keys[int(segments.key[row])],
        )
        wall = int(segments.end[row] - segments.start[row])
        total = totals.setdefault((phase, key), [int(segments.start[row]), 0, 0])
        total[1] += wall
        total[2] += wall * int(segments.gpus[row])
    return [
        Work(phase, key, start, wall, gpu, key in seen)
        for (phase, key), (start, wall, gpu) in sorted(totals.items())
    ]


def with_cells(before: Sequence[Cell], after: Sequence[Cell]) -> list[Cell]:
    """The rows of two stretches of time, those of one hour and label added up."""
    totals: dict[tuple[Any, ...], list[int]] = {}
    for one in (*before, *after):
        total = totals.setdefault(
            (one.hour, one.heading, one.phase, one.component, one.repeated), [0, 0, 0, 0]
        )
        for i, amount in enumerate((one.wall_ns, one.gpu_ns, one.settled_wall_ns, one.settled_gpu_ns)):
            total[i] += amount
    return [Cell(*key, *amounts) for key, amounts in sorted(totals.items())]


def with_held(before: Sequence[Held], after: Sequence[Held]) -> list[Held]:
    """The same for who held others up."""
    totals: dict[tuple[int, str, int, str, str], list[int]] = {}
    for one in (*before, *after):
        total = totals.setdefault((one.hour, one.node, one.rank, one.phase, one.component), [0, 0])
        total[0] += one.wall_ns
        total[1] += one.gpu_ns
    return [Held(*key, *amounts) for key, amounts in sorted(totals.items())]


def with_work(before: Sequence[Work], after: Sequence[Work]) -> list[Work]:
    """The same for work with a key, which is known from where it began first."""
    totals: dict[tuple[str, str], Work] = {}
    for one in (*before, *after):
        key = (one.phase, one.work_key)
        known = totals.get(key)
        totals[key] = (
            one
            if known is None
            else replace(known, wall_ns=known.wall_ns + one.wall_ns, gpu_ns=known.gpu_ns + one.gpu_ns)
        )
    return [one for _, one in sorted(totals.items())]
