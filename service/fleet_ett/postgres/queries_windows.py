"""Windows in pieces: whole UTC days, the whole hours around them, and at most two edges within an hour.

Sums are kept by day and by hour, edges come from the segments, clipped: any window is exact to the nanosecond, and
neighbouring ones add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, case, false, func, literal, or_, select, true

from fleet_ett.postgres.tables import job_hours, ledger_deltas, segments
from fleet_ett.reads import DAY_NS, HOUR_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import CTE

    from fleet_ett.reads import Window

    Chosen = Sequence[Callable[[ColumnElement[int]], ColumnElement[bool]]]

MOST_LISTED = 400  # periods that are named one by one, so that an index is used to the end of its key


@dataclass(frozen=True, slots=True)
class Span:
    """[low, high) in ns at full periods of `step` ns; None is unbounded."""

    low: int | None
    high: int | None
    step: int

    def holds(self, period: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """Whether a period, given by its start, lies in it."""
        if self.low is not None and self.high is not None and self.high - self.low <= MOST_LISTED * self.step:
            return [period.in_(range(self.low, self.high, self.step))]
        return between(period, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a window consists of. `edges` are rows of segments, within an hour each."""

    days: tuple[Span, ...]
    hours: tuple[Span, ...]
    edges: tuple[CTE, ...]

    @classmethod
    def of(cls, window: Window, *, by_hour: bool = False, chosen: Chosen = ()) -> Pieces:
        """The pieces of a window; `by_hour`: hours instead of days; `chosen`: of which jobs the edges are."""
        start, end = window.start, window.end
        if start is not None and end is not None and (start >= end or start // HOUR_NS == end // HOUR_NS):
            return cls((), (), _edges([(start, end)] if start < end else [], chosen))
        low = None if start is None else -(-start // HOUR_NS) * HOUR_NS
        high = None if end is None else end // HOUR_NS * HOUR_NS
        edges = [(start, low)] if start is not None and low is not None and start < low else []
        if end is not None and high is not None and high < end:
            edges.append((high, end))
        first = None if low is None else -(-low // DAY_NS) * DAY_NS
        last = None if high is None else high // DAY_NS * DAY_NS
        if by_hour or (first is not None and last is not None and first >= last):
            empty = low is not None and low == high
            return cls((), () if empty else (Span(low, high, HOUR_NS),), _edges(edges, chosen))
        around = [(low, first)] if low != first else []
        if high != last:
            around.append((last, high))
        hours = tuple(Span(one, other, HOUR_NS) for one, other in around)
        return cls((Span(first, last, DAY_NS),), hours, _edges(edges, chosen))

    def late(self, *, hours: bool = True, without: Sequence[Span] = ()) -> list[ColumnElement[bool]]:
        """Whether a delta lies in the days (and in the whole hours), but not in the spans left out."""
        spans = [one for one in (*self.days, *(self.hours if hours else ())) if one not in without]
        ways = [and_(true(), *between(ledger_deltas.c.hour_ns, one.low, one.high)) for one in spans]
        return [or_(*ways)] if ways else [false()]


def between(column: ColumnElement[int], low: int | None, high: int | None) -> list[ColumnElement[bool]]:
    """Whether it lies in [low, high)."""
    out: list[ColumnElement[bool]] = []
    if low is not None:
        out.append(column >= low)
    if high is not None:
        out.append(column < high)
    return out


def _edges(bounds: Sequence[tuple[int, int]], chosen: Chosen) -> tuple[CTE, ...]:
    return tuple(_edge(low, high, chosen).cte(f"edge_{place}") for place, (low, high) in enumerate(bounds))


def _edge(low: int, high: int, chosen: Chosen) -> Select[Any]:
    """Cells of the segments clipped to [low, high) ns, which lies within one hour.

    Only of jobs with time in that hour, and of those for whose id all conditions of `chosen` hold.
    """
    hour = low // HOUR_NS * HOUR_NS
    told, late = (
        select(table.c.job_id).where(table.c.hour_ns == hour, *(one(table.c.job_id) for one in chosen))
        for table in (job_hours, ledger_deltas)
    )
    held = told.union(late).subquery("held")
    earlier, own = segments.alias("earlier"), segments.alias("own")
    # a job's segments do not overlap: the first one of interest is the last that starts at or before `low`
    first = select(func.max(earlier.c.start_ns)).where(
        earlier.c.job_id == held.c.job_id, earlier.c.start_ns <= low
    )
    wall = func.least(own.c.end_ns, high) - func.greatest(own.c.start_ns, low)
    gpu = wall * own.c.gpus  # at most the ledger's cell of this hour, which is a bigint
    names = ("heading", "phase", "component", "repeated")
    clipped = (
        select(
            own.c.attempt_id,
            *(own.c[name] for name in names),
            wall.label("wall_ns"),
            gpu.label("gpu_ns"),
            case((own.c.settled, wall), else_=0).label("settled_wall_ns"),
            case((own.c.settled, gpu), else_=0).label("settled_gpu_ns"),
        )
        .where(
            own.c.job_id == held.c.job_id,
            own.c.start_ns >= func.coalesce(first.correlate(held).scalar_subquery(), low),
            own.c.start_ns < high,
            own.c.end_ns > low,
        )
        .correlate(held)
        .offset(0)  # job by job through the key, whatever the planner thinks of it
        .lateral("clipped")
    )
    columns = [column for column in clipped.c if column.name != "attempt_id"]
    hour_ns = literal(hour, BigInteger).label("hour_ns")
    return select(held.c.job_id, clipped.c.attempt_id, hour_ns, *columns).join_from(held, clipped, true())


def hours_cut_before(window: Window, since: int) -> list[int]:
    """The hours that a bound of the window cuts and that begin before `since` (ns)."""
    cut = [bound for bound in (window.start, window.end) if bound is not None and bound % HOUR_NS]
    return [hour for hour in (bound // HOUR_NS * HOUR_NS for bound in cut) if hour < since]
