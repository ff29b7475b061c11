"""What an attempt had reported before a moment, reduced to what its later books can still need.

Of each rank a row in a table of whole numbers, of each node its last words, of the rest names and sums: it does
not grow with the time that an attempt has run.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_ett.core.coverage import Coverage
from fleet_ett.core.intervals import EMPTY, IntervalSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


TOO_FAR = 2**40  # steps beyond are poisoned counters: what follows them is booked as a whole


class Stale(Exception):  # noqa: N818 - a state of the books, not a fault
    """What came does not go on where a `Past` ended: the attempt has to be booked from all its events."""


@dataclass(frozen=True, slots=True)
class RankTable:
    """The step windows of each rank in one row; columns int64, sorted by `rank`.

    Positions are samples where the windows have them, else steps on the coverage's axis, as `tail` and `jump`
    always are. `reach`: how far the rank came; `tail`: the end of its last window; `jump`: the longest stretch
    it left out; `first`, `last`: steps as reported; `loaded`: the checkpoint it began from, -1 for none;
    `total`, `again`, `fresh`: steps done, done before, and new; `samples`: samples done before.
    """

    rank: Ints
    reach: Ints
    tail: Ints
    jump: Ints
    first: Ints
    last: Ints
    loaded: Ints
    total: Ints
    again: Ints
    fresh: Ints
    samples: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def row(self, rank: int) -> dict[str, int] | None:
        """One rank's row as Python integers; None for a rank that had no windows."""
        at = int(np.searchsorted(self.rank, rank))
        if at == len(self.rank) or int(self.rank[at]) != rank:
            return None
        return {name: int(getattr(self, name)[at]) for name in self.__slots__}

    def total_of(self, rank: Ints) -> Ints:
        """`total` of those ranks, 0 where there is none."""
        return self._of(rank, self.total, 0)

    def reach_of(self, rank: Ints) -> Ints:
        """`reach` of those ranks, 0 where there is none."""
        return self._of(rank, self.reach, 0)

    def _of(self, rank: Ints, column: Ints, default: int) -> Ints:
        if not len(self.rank):
            return np.full(len(rank), default, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.rank, rank), len(self.rank) - 1)
        return np.where(self.rank[at] == rank, column[at], default)

    def followed_by(self, later: RankTable) -> RankTable:
        """The table of both stretches of time."""
        ranks = np.union1d(self.rank, later.rank)
        out = {name: np.zeros(len(ranks), dtype=np.int64) for name in self.__slots__}
        here, there = np.searchsorted(ranks, self.rank), np.searchsorted(ranks, later.rank)
        for name, column in out.items():
            column[there] = getattr(later, name)
        both = np.isin(ranks[here], later.rank)
        mine = here[both]
        for name in ("total", "again", "fresh", "samples"):
            out[name][here] += getattr(self, name)
        for name in ("reach", "last", "jump"):
            out[name][here] = np.maximum(out[name][here], getattr(self, name))
        for name in ("first", "loaded"):
            out[name][here] = getattr(self, name)
        out["tail"][here[~both]] = self.tail[~both]
        if len(mine):
            left_out = later.begins_at(self.rank[both]) - self.tail[both]
            out["jump"][mine] = np.maximum(out["jump"][mine], left_out)
        return RankTable(**{**out, "rank": ranks})

    def begins_at(self, rank: Ints) -> Ints:
        """Where (in steps of the axis) the first window of those ranks began."""
        return self._of(rank, self.first, 0)

    def to_json(self) -> dict[str, str]:
        """Columns as packed text."""
        return {name: packed(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> RankTable:
        """The table that `to_json` wrote."""
        return cls(**{name: unpacked(data[name]) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Past:
    """An attempt before a moment; by default nothing was before. Times ns on the service's clock.

    `table`, `coverage`: of its step windows; `sampled`: whether they have samples, `unit` whether they name a unit;
    `unsampled`: how many have none. `ranks`: all that reported anything. `last_word`, `beats`: by node, its last
    report and its last heartbeat. `flags`: of single events; `skews`: by node, its largest clock offset.
    `overlapped`: by phase and rank, ns of background work.
    """

    start: int | None = None
    gpus: int = 0
    table: RankTable = field(default_factory=lambda: RankTable(*(EMPTY,) * 11))
    coverage: Coverage = field(default_factory=Coverage)
    sampled: bool = False
    unit: bool = False
    unsampled: int = 0
    ranks: IntervalSet = field(default_factory=IntervalSet)
    nodes: tuple[str, ...] = ()
    last_word: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    flags: list[dict[str, Any]] = field(default_factory=list)
    skews: dict[str, int] = field(default_factory=dict)
    work_keys: tuple[str, ...] = ()
    saved: tuple[int, ...] = ()
    load: tuple[int, int] | None = None
    overlapped: dict[str, dict[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        plain = ("start", "gpus", "sampled", "unit", "unsampled", "last_word", "beats", "flags", "skews")
        return {
            **{name: getattr(self, name) for name in plain},
            "table": self.table.to_json(),
            "coverage": self.coverage.to_json(),
            "ranks": self.ranks.to_json(),
            "nodes": list(self.nodes),
            "work_keys": list(self.work_keys),
            "saved": packed(np.array(self.saved, dtype=np.int64)),
            "load": None if self.load is None else list(self.load),
            "overlapped": {
                name: [
                    packed(np.fromiter(column, dtype=np.int64, count=len(by_rank)))
                    for column in (by_rank.keys(), by_rank.values())
                ]
                for name, by_rank in self.overlapped.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Past:
        """The past that `to_json` wrote."""
        told = dict(data)
        told["table"] = RankTable.from_json(told["table"])
        told["coverage"] = Coverage.from_json(told["coverage"])
        told["ranks"] = IntervalSet.from_json(told["ranks"])
        told["nodes"], told["work_keys"] = tuple(told["nodes"]), tuple(told["work_keys"])
        told["saved"] = tuple(unpacked(told["saved"]).tolist())
        told["load"] = None if told["load"] is None else (told["load"][0], told["load"][1])
        told["overlapped"] = {
            name: dict(zip(unpacked(ranks).tolist(), unpacked(amounts).tolist(), strict=True))
            for name, (ranks, amounts) in told["overlapped"].items()
        }
        return cls(**told)


NOTHING = Past()


def packed(column: Ints) -> str:
    """Whole numbers as text: differences, deflated, base64."""
    steps = np.diff(column, prepend=np.int64(0)).astype("<i8")
    return base64.b64encode(zlib.compress(steps.tobytes(), 1)).decode()


def unpacked(text: str) -> Ints:
    """The numbers that `packed` wrote."""
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8")).astype(np.int64)
