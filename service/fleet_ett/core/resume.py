"""Where the books of an attempt may go on: what is settled stays, and only what came later is booked again.

A long attempt is booked every few seconds. What it had reported before `read_from` is reduced to a `Past`, and its
books before `books_from` never change; between the two lies a warm-up, booked again and thrown away. Who keeps
the books stores the `Resume` that a booking returns, and next time

* reads the attempt's events stamped (corrected) at or after `read_from`, and those of the types in `ALWAYS` of any
  time; more does no harm,
* keeps the segments that end by `books_from`, the cells and held of earlier hours than `from_hour`, and replaces
  the others and all of `work` by what the booking returns,
* drops the `Resume` and books the whole when anything new is stamped before `books_from`, when an identity comes
  again, or when the booking raises `Stale`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fleet_ett.core.cells import Cell, Held, Work
from fleet_ett.core.facts import at
from fleet_ett.core.past import Past, Stale
from fleet_ett.core.path import FirstStep
from fleet_ett.core.policy import HOUR
from fleet_ett.core.steps import OPTIONAL
from fleet_ett.core.summary import AttemptSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ett_collector.wire import Event
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.identity import Delivered
    from fleet_ett.core.link import Link
    from fleet_ett.core.steps import StepBatch
    from fleet_ett.core.tiles import Bounds

# Few, and needed as a whole whenever an attempt is booked.
ALWAYS = frozenset({"attempt_start", "attempt_end", "fault", "job"})


@dataclass(frozen=True, slots=True)
class Resume:
    """The state of an attempt's books at a seam. Times ns.

    `index`, `carry`: place and digest of what the attempt before left: with others the books are others.
    `sums`: an attempt summary's sums up to the seam; `cells`, `held`: rows of the seam's hour up to it; `work`: all.
    """

    read_from: int
    books_from: int
    index: int
    carry: str
    first: FirstStep
    sums: AttemptSummary
    cells: tuple[Cell, ...]
    held: tuple[Held, ...]
    work: tuple[Work, ...]
    past: Past

    @property
    def from_hour(self) -> int:
        """The hour (ns) of the seam: cells and held of earlier ones stay."""
        return self.books_from // HOUR * HOUR

    def later(self, delivered: Delivered) -> Delivered:
        """What has to be booked again of what was delivered."""
        batches = [taken(one, one.start - one.clock_offset_ns >= self.read_from) for one in delivered.batches]
        return replace(
            delivered,
            events=[one for one in delivered.events if is_later(one, self.read_from)],
            batches=[one for one in batches if len(one)],
            conflicted=[one for one in delivered.conflicted if is_later(one, self.read_from)],
        )

    def check(self, link: Link, told: Facts, bounds: Bounds) -> None:
        """Raises `Stale` where the settled books may be others by now."""
        same = (self.index, self.carry, self.past.start, self.past.gpus)
        if same != (link.index, link.carry.digest(), told.start, told.gpus) or bounds.end <= self.books_from:
            raise Stale

    def summary(self, **known: Any) -> AttemptSummary:
        """A summary that begins with the sums of the settled part."""
        return replace(deepcopy(self.sums), **known)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "read_from": self.read_from,
            "books_from": self.books_from,
            "index": self.index,
            "carry": self.carry,
            "first": [self.first.start, self.first.end],
            "sums": self.sums.to_json(),
            "cells": [asdict(one) for one in self.cells],
            "held": [asdict(one) for one in self.held],
            "work": [asdict(one) for one in self.work],
            "past": self.past.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resume:
        """The state that `to_json` wrote."""
        told = dict(data)
        told["first"] = FirstStep(*told["first"])
        told["sums"] = AttemptSummary.from_json(told["sums"])
        for name, kind in (("cells", Cell), ("held", Held), ("work", Work)):
            told[name] = tuple(kind(**one) for one in told[name])
        told["past"] = Past.from_json(told["past"])
        return cls(**told)


def is_later(event: Event, moment: int) -> bool:
    """Whether a booking that goes on from `moment` (ns) needs the event."""
    return event.type in ALWAYS or at(event) >= moment


def taken(batch: StepBatch, rows: NDArray[np.bool_]) -> StepBatch:
    """The rows of a batch where the mask is true."""
    if rows.all():
        return batch
    columns: dict[str, Any] = {}
    for name in ("seq", "first", "last", "start", "end", *OPTIONAL):
        column = getattr(batch, name)
        columns[name] = None if column is None else column[rows]
    return replace(batch, **columns)
