"""Windows in pieces: whole UTC days, the whole hours around them, and at most two edges within an hour.

Sums are kept by day and by hour, edges come from the segments, clipped: any window is exact to the nanosecond, and
neighbouring ones add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    not_,
    or_,
    select,
    true,
)

from fleet_ett.postgres.queries_named import Moment
from fleet_ett.postgres.tables import job_hours, job_lives, jobs, ledger_deltas, segments
from fleet_ett.reads import DAY_NS, HOUR_NS, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import CTE, FromClause

    Chosen = Sequence[Callable[[ColumnElement[int]], ColumnElement[bool]]]

HALF_NS = DAY_NS // 2
LONG_NS = 3 * DAY_NS  # of shorter windows most jobs stick out
MOST_LISTED = 400  # periods that are named one by one, so that an index is used to the end of its key


def named(window: Window) -> Window:
    """The window with bounds that have names."""
    return Window(Moment.of("start", window.start), Moment.of("end", window.end))


def values_of(window: Window) -> dict[str, object]:
    """What a statement is told of a window whose bounds have names, and of its pieces by days and by hours."""
    bounds = (one for one in (window.start, window.end, *Lives.of(window).marks) if isinstance(one, Moment))
    ways = ((True, False), (False, False), (False, True))
    pieces = (Pieces.of(window, by_hour=by_hour, beyond=beyond).values() for by_hour, beyond in ways)
    return {one.name: int(one) for one in bounds} | {
        name: value for told in pieces for name, value in told.items()
    }


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
        return [period.in_(bindparam(f"{self.low.name}_all", self.periods, BigInteger, expanding=True))]

    def values(self) -> dict[str, object]:
        """What a statement is told of it."""
        out: dict[str, object] = {one.name: int(one) for one in (self.low, self.high) if one is not None}
        if self.periods is not None and self.low is not None:
            out[f"{self.low.name}_all"] = self.periods
        return out


@dataclass(frozen=True, slots=True)
class Edge:
    """[low, high) in ns, within one hour. `sign`: -1 where it is taken away."""

    low: int
    high: int
    sign: int = 1

    def name(self, place: int) -> str:
        """What a statement calls it that has several."""
        return f"{'edge' if self.sign > 0 else 'less'}_{place}"

    def moments(self, place: int) -> tuple[Moment, Moment, Moment]:
        """Its hour and its bounds as such a statement knows them."""
        name = self.name(place)
        told = {"hour": self.low // HOUR_NS * HOUR_NS, "low": self.low, "high": self.high}
        hour, low, high = (Moment.of(f"{name}_{one}", value) for one, value in told.items())
        assert hour is not None
        assert low is not None
        assert high is not None
        return hour, low, high


@dataclass(frozen=True, slots=True)
class Lives:
    """Which jobs are read as a whole: those that lie in a long window, unless their time has to be told apart.

    `used`: by their labels, with days and hours of the jobs that the window cuts. `running`: by their headings, with
    the running totals of those, in any window that lies in more than one hour.
    """

    window: Window
    used: bool
    running: bool

    @classmethod
    def of(cls, window: Window, *, by_time: bool = False) -> Lives:
        """Those of a window; `by_time`: none."""
        start, end = window.start, window.end
        if by_time or start is None or end is None:
            return cls(window, not by_time, not by_time)
        return cls(window, end - start >= LONG_NS, start < end and start // HOUR_NS < end // HOUR_NS)

    @property
    def marks(self) -> tuple[Moment | None, Moment | None]:
        """The hours whose running totals are what was held before the window's whole hours, and until they end."""
        told = zip(("mark_low", "mark_high"), _full_hours(self.window, beyond=True), strict=True)
        low, high = (Moment.of(name, None if one is None else one - HOUR_NS) for name, one in told)
        return low, high

    @property
    def are_all(self) -> bool:
        """Whether there are no other jobs."""
        return self.used and self.window.start is None and self.window.end is None

    def whole(self) -> ColumnElement[bool]:
        """Whether a job of `jobs` lies in the window with all its time. A live one may not end in it."""
        start, end = self.window.start, self.window.end
        ways = [] if start is None else [jobs.c.start_ns >= start]
        return and_(true(), *ways, *([] if end is None else [jobs.c.end_ns <= end]))

    def cut(self) -> ColumnElement[bool]:
        """Whether it may have time on both sides of a bound: the other jobs with time in the window."""
        bounds = [one for one in (self.window.start, self.window.end) if one is not None]
        ways = (
            and_(jobs.c.start_ns < one, or_(jobs.c.end_ns > one, jobs.c.end_ns.is_(None))) for one in bounds
        )
        return or_(false(), *ways)

    def begun(self) -> ColumnElement[bool]:
        """Whether a job of `jobs` has time before the window, and may have some in it."""
        start = self.window.start
        if start is None:
            return false()
        return and_(jobs.c.start_ns < start, or_(jobs.c.end_ns > start, jobs.c.end_ns.is_(None)))

    def going_on(self) -> ColumnElement[bool]:
        """Whether it may have time after the window, and has begun before that is over."""
        end = self.window.end
        if end is None:
            return false()
        return and_(jobs.c.start_ns < end, or_(jobs.c.end_ns > end, jobs.c.end_ns.is_(None)))

    def lives(self) -> list[ColumnElement[bool]]:
        """Whether a job's life counts in full, before its running totals are taken away; needs `job_lives` beside it.

        One that may go on after the window does if its last hour lies before the window's end, for it then has no total
        there.
        """
        last, (low, high) = job_lives.c.last_hour_ns, self.marks
        start, end, out = self.window.start, self.window.end, []
        if start is not None:
            begun = and_(or_(jobs.c.end_ns > start, jobs.c.end_ns.is_(None)), last >= low)
            out.append(or_(jobs.c.start_ns >= start, begun))
        if end is not None:
            out.append(or_(jobs.c.end_ns <= end, and_(jobs.c.start_ns < end, last < high)))
        return out

    def totals(self) -> list[tuple[Moment, ColumnElement[bool], int]]:
        """Which running totals of which jobs are added (1) or taken away (-1)."""
        low, high = self.marks
        told = ((high, self.going_on(), 1), (low, self.begun(), -1))
        return [(mark, whose, sign) for mark, whose, sign in told if mark is not None]

    def late_running(self) -> list[ColumnElement[bool]]:
        """Deltas that are not in the lives and running totals yet; needs `jobs` beside them."""
        (low, high), hour, out = self.marks, ledger_deltas.c.hour_ns, []
        if self.window.start is not None:
            out.append(or_(jobs.c.start_ns >= self.window.start, and_(self.begun(), hour > low)))
        if self.window.end is not None:
            out.append(or_(jobs.c.end_ns <= self.window.end, and_(self.going_on(), hour <= high)))
        return out

    def only_whole(self, query: Select[Any], table: FromClause) -> Select[Any]:
        """The rows of jobs that lie whole in the window, of a table with job_id."""
        return query if self.are_all else _beside_jobs(query, table).where(self.whole())

    def only_cut(self, query: Select[Any], table: FromClause) -> Select[Any]:
        """The rows of the other jobs."""
        return _beside_jobs(query, table).where(self.cut()) if self.used else query

    def late(self, query: Select[Any], of_others: Sequence[ColumnElement[bool]]) -> Select[Any]:
        """Deltas: all of a job that lies whole in the window, those of others where `of_others` holds."""
        joined = self.used and not self.are_all
        return (_beside_jobs(query, ledger_deltas) if joined else query).where(*self.late_where(of_others))

    def late_where(self, of_others: Sequence[ColumnElement[bool]]) -> list[ColumnElement[bool]]:
        """The condition of `late`."""
        if self.are_all:
            return []
        return [or_(self.whole(), and_(true(), *of_others))] if self.used else list(of_others)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a window consists of.

    Days may reach beyond the window, and hours be taken away again; so may hours, and parts of them: of what is cut,
    the smaller part is read.
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

        `beyond`: days and hours may reach beyond the window. `prefix`: of names, where a statement has the pieces of
        two windows; the edges are of one.
        """
        start, end = window.start, window.end
        if start is not None and end is not None and (start >= end or start // HOUR_NS == end // HOUR_NS):
            return cls((), (), (Edge(start, end),) if start < end else (), chosen)
        low, high = _full_hours(window, beyond=beyond)
        edges = []
        if start is not None and low is not None and start != low:
            edges.append(Edge(low, start, -1) if low < start else Edge(start, low))
            prefix += "down_" if low < start else ""
        if end is not None and high is not None and end != high:
            edges.append(Edge(end, high, -1) if end < high else Edge(high, end))
            prefix += "up_" if end < high else ""
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
        told = enumerate(self.parts)
        return tuple(
            _edge(place, one, self.chosen) if self.chosen else _edge_of_all(place, one) for place, one in told
        )

    def edges_of(self, lives: Lives) -> list[tuple[CTE, ColumnElement[bool]]]:
        """Each edge, and which jobs have time in it that is not in their lives and running totals."""
        start = lives.window.start
        whose = [lives.begun() if start in (one.low, one.high) else lives.going_on() for one in self.parts]
        return list(zip(self.edges, whose, strict=True))

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
        return [or_(*ways), *taken] if ways else [false()]


def _beside_jobs(query: Select[Any], table: FromClause) -> Select[Any]:
    return query.join_from(table, jobs, jobs.c.job_id == table.c.job_id)


def between(column: ColumnElement[int], low: int | None, high: int | None) -> list[ColumnElement[bool]]:
    """Whether it lies in [low, high)."""
    out: list[ColumnElement[bool]] = []
    if low is not None:
        out.append(column >= low)
    if high is not None:
        out.append(column < high)
    return out


def _full_hours(window: Window, *, beyond: bool) -> tuple[int | None, int | None]:
    """Where its full hours begin and end (ns); `beyond`: an hour of which more than half lies in it is one of them."""
    (low, over), (high, rest) = (
        (None, 0) if one is None else (one - one % HOUR_NS, one % HOUR_NS)
        for one in (window.start, window.end)
    )
    if low is not None and over and not (beyond and over < HOUR_NS // 2):
        low += HOUR_NS
    if high is not None and beyond and rest > HOUR_NS // 2:
        high += HOUR_NS
    return low, high


@lru_cache(maxsize=128)  # one object for one edge: the questions of one page have one window
def _edge_of_all(place: int, edge: Edge) -> CTE:
    return _edge(place, edge, ())


def _edge(place: int, edge: Edge, chosen: Chosen) -> CTE:
    """Cells of the segments clipped to an edge, times its sign.

    Only of jobs with time in that hour, and of those for whose id all conditions of `chosen` hold.
    """
    hour, low, high = edge.moments(place)
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
    first_ns, last_ns = func.greatest(own.c.start_ns, low), func.least(own.c.end_ns, high)
    wall = last_ns - first_ns if edge.sign > 0 else first_ns - last_ns
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
    hour_ns = hour.__clause_element__().label("hour_ns")
    rows = select(held.c.job_id, clipped.c.attempt_id, hour_ns, *columns).join_from(held, clipped, true())
    return rows.cte(edge.name(place))


def hours_cut_before(window: Window, since: int) -> list[int]:
    """The hours that a bound of the window cuts and that begin before `since` (ns)."""
    cut = [bound for bound in (window.start, window.end) if bound is not None and bound % HOUR_NS]
    return [hour for hour in (bound // HOUR_NS * HOUR_NS for bound in cut) if hour < since]
