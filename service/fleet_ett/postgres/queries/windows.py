"""Windows in pieces: whole UTC days, the whole hours around them, and at most two edges within an hour.

Sums are kept by day and by hour, edges come from the segments, clipped: any window is exact to the nanosecond, and
neighbouring ones add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    and_,
    any_,
    bindparam,
    case,
    func,
    not_,
    or_,
    select,
    true,
)

from fleet_ett.postgres.queries.named import Moment
from fleet_ett.postgres.tables import hour_segments, ledger_deltas
from fleet_ett.reads import DAY_NS, HOUR_NS, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import CTE

    Chosen = tuple[Callable[[ColumnElement[int]], ColumnElement[bool]], ...]

HALF_NS = DAY_NS // 2
MOST_LISTED = 400  # periods that are named one by one, so that an index is used to the end of its key


@dataclass(frozen=True, slots=True)
class Span:
    """[low, high) in ns at full periods of `step` ns; None is unbounded. `sign`: -1 where it is taken away."""

    low: Moment | None
    high: Moment | None
    step: int
    sign: int = 1

    @classmethod
    def of(cls, name: str, low: int | None, high: int | None, step: int, sign: int = 1) -> Span:
        """`name`: what a statement calls it."""
        return cls(Moment.of(f"{name}_low", low), Moment.of(f"{name}_high", high), step, sign)

    @property
    def periods(self) -> list[int] | None:
        """The starts of all its periods, where they are few."""
        if self.low is None or self.high is None or self.high - self.low > MOST_LISTED * self.step:
            return None
        return list(range(self.low, self.high, self.step))

    def holds(self, period: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """Whether a period, given by its start, lies in it."""
        if self.periods is None or self.low is None:
            return between(period, self.low, self.high)
        return [period == any_(bindparam(f"{self.low.name}_all", self.periods, ARRAY(BigInteger)))]

    def values(self) -> dict[str, object]:
        """What a statement is told of it."""
        out: dict[str, object] = {one.name: int(one) for one in (self.low, self.high) if one is not None}
        if self.periods is not None and self.low is not None:
            out[f"{self.low.name}_all"] = self.periods
        return out


@dataclass(frozen=True, slots=True)
class Edge:
    """[low, high) in ns, within one hour."""

    low: int
    high: int

    def moments(self, place: int) -> tuple[Moment, Moment, Moment]:
        """Its hour and its bounds as a statement knows them that has several edges."""
        told = {"hour": self.low // HOUR_NS * HOUR_NS, "low": self.low, "high": self.high}
        hour, low, high = (Moment.of(f"edge_{place}_{name}", value) for name, value in told.items())
        assert hour is not None
        assert low is not None
        assert high is not None
        return hour, low, high


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a window consists of.

    Days may reach beyond the window, and hours be taken away again: of a day that is cut, the fewer are read.
    """

    days: tuple[Span, ...]
    hours: tuple[Span, ...]
    parts: tuple[Edge, ...]
    chosen: Chosen = ()

    @classmethod
    def of(
        cls,
        window: Window,
        *,
        by_hour: bool = False,
        beyond: bool = False,
        chosen: Chosen = (),
        prefix: str = "",
    ) -> Pieces:
        """The pieces of a window; `by_hour`: hours instead of days; `chosen`: of which jobs the edges are.

        `beyond`: days may reach beyond the window. `prefix`: of names, where a statement has the pieces of two windows;
        the edges are of one.
        """
        start, end = window.start, window.end
        if start is not None and end is not None and (start >= end or start // HOUR_NS == end // HOUR_NS):
            return cls((), (), (Edge(start, end),) if start < end else (), chosen)
        low, high = full_hours(window)
        edges = [Edge(start, low)] if start is not None and low is not None and start < low else []
        if end is not None and high is not None and high < end:
            edges.append(Edge(high, end))
        first = None if low is None else -(-low // DAY_NS) * DAY_NS
        last = None if high is None else high // DAY_NS * DAY_NS
        if by_hour or (first is not None and last is not None and first >= last):
            empty = low is not None and low == high
            whole = Span.of(f"{prefix}hours", low, high, HOUR_NS)
            return cls((), () if empty else (whole,), tuple(edges), chosen)
        hours = []
        if low is not None and first is not None and low != first:
            if beyond and first - low > HALF_NS:
                first, prefix = first - DAY_NS, f"{prefix}from_"
                hours.append(Span.of(f"{prefix}before", first, low, HOUR_NS, -1))
            else:
                hours.append(Span.of(f"{prefix}before", low, first, HOUR_NS))
        if high is not None and last is not None and high != last:
            if beyond and high - last > HALF_NS:
                last, prefix = last + DAY_NS, f"{prefix}to_"
                hours.append(Span.of(f"{prefix}after", high, last, HOUR_NS, -1))
            else:
                hours.append(Span.of(f"{prefix}after", last, high, HOUR_NS))
        return cls((Span.of(f"{prefix}days", first, last, DAY_NS),), tuple(hours), tuple(edges), chosen)

    @property
    def edges(self) -> tuple[CTE, ...]:
        """Rows of segments, cut at the bounds of each edge."""
        return tuple(_edge(place, one, self.chosen) for place, one in enumerate(self.parts))

    def values(self) -> dict[str, object]:
        """What a statement is told of them."""
        out = {name: value for span in (*self.days, *self.hours) for name, value in span.values().items()}
        moments = (one for place, edge in enumerate(self.parts) for one in edge.moments(place))
        return out | {one.name: int(one) for one in moments}

    def late(self, *, hours: bool = True, without: Sequence[Span] = ()) -> list[ColumnElement[bool]]:
        """Whether a delta lies in the days (and in the whole hours), but not in the spans left out."""
        hour = ledger_deltas.c.hour_ns
        spans = [one for one in (*self.days, *(self.hours if hours else ())) if one not in without]
        ways = [and_(true(), *between(hour, one.low, one.high)) for one in spans if one.sign > 0]
        taken = [not_(and_(*between(hour, one.low, one.high))) for one in spans if one.sign < 0]
        if not ways:
            return [hour < 0]  # none, in words that Citus takes beside outer joins
        return [or_(*ways), *taken]


def between(column: ColumnElement[int], low: int | None, high: int | None) -> list[ColumnElement[bool]]:
    """Whether it lies in [low, high)."""
    out: list[ColumnElement[bool]] = []
    if low is not None:
        out.append(column >= low)
    if high is not None:
        out.append(column < high)
    return out


def full_hours(window: Window) -> tuple[int | None, int | None]:
    """Where its full hours begin and end (ns)."""
    low = None if window.start is None else -(-window.start // HOUR_NS) * HOUR_NS
    return low, None if window.end is None else window.end // HOUR_NS * HOUR_NS


@lru_cache(maxsize=128)  # one object for one edge: the questions of one page have one window
def _edge(place: int, edge: Edge, chosen: Chosen) -> CTE:
    """Cells of the segments clipped to an edge.

    Only of jobs with time in that hour, and of those for whose id all conditions of `chosen` hold.
    """
    hour, low, high = edge.moments(place)
    own = func.edge_segments(hour, low, high).table_valued(*hour_segments.c.keys(), name="own").c
    wall = func.least(own.end_ns, high) - func.greatest(own.start_ns, low)
    gpu = wall * own.gpus  # at most the ledger's cell of this hour, which is a bigint
    names = ("job_id", "attempt_id", "hour_ns", "heading", "phase", "component", "repeated")
    rows = select(
        *(own[name] for name in names),
        wall.label("wall_ns"),
        gpu.label("gpu_ns"),
        case((own.settled, wall), else_=0).label("settled_wall_ns"),
        case((own.settled, gpu), else_=0).label("settled_gpu_ns"),
    ).where(*(one(own.job_id) for one in chosen))
    return rows.cte(f"edge_{place}")


def hours_cut_before(window: Window, since: int) -> list[int]:
    """The hours that a bound of the window cuts and that begin before `since` (ns)."""
    cut = [bound for bound in (window.start, window.end) if bound is not None and bound % HOUR_NS]
    return [hour for hour in (bound // HOUR_NS * HOUR_NS for bound in cut) if hour < since]
