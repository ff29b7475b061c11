"""Which jobs lie whole in a window, which ones it cuts, and what is added up of their lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, and_, false, or_, true

from fleet_ett.postgres.queries.named import Moment
from fleet_ett.postgres.queries.windows import full_hours
from fleet_ett.postgres.tables import job_lives, jobs, ledger_deltas
from fleet_ett.reads import DAY_NS, HOUR_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CTE, FromClause

    from fleet_ett.postgres.queries.windows import Pieces
    from fleet_ett.reads import Window

LONG_NS = 3 * DAY_NS  # of shorter windows most jobs stick out


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
        told = zip(("mark_low", "mark_high"), full_hours(self.window), strict=True)
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
        return or_(self.begun(), self.going_on())

    def begun(self) -> ColumnElement[bool]:
        """Whether a job of `jobs` has time before the window, and may have some in it."""
        return false() if self.window.start is None else _spans(self.window.start)

    def going_on(self) -> ColumnElement[bool]:
        """Whether it may have time after the window, and has begun before that is over."""
        return false() if self.window.end is None else _spans(self.window.end)

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

    def edges(self, pieces: Pieces) -> list[tuple[CTE, ColumnElement[bool]]]:
        """Each edge, and which jobs have time in it that is not in their lives and running totals."""
        start = self.window.start
        whose = [self.begun() if one.low == start else self.going_on() for one in pieces.parts]
        return list(zip(pieces.edges, whose, strict=True))

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
        return query if self.are_all else beside_jobs(query, table).where(self.whole())

    def only_cut(self, query: Select[Any], table: FromClause) -> Select[Any]:
        """The rows of the other jobs."""
        return beside_jobs(query, table).where(self.cut()) if self.used else query

    def late(self, query: Select[Any], of_others: Sequence[ColumnElement[bool]]) -> Select[Any]:
        """Deltas: all of a job that lies whole in the window, those of others where `of_others` holds."""
        joined = self.used and not self.are_all
        return (beside_jobs(query, ledger_deltas) if joined else query).where(*self.late_where(of_others))

    def late_where(self, of_others: Sequence[ColumnElement[bool]]) -> list[ColumnElement[bool]]:
        """The condition of `late`."""
        if self.are_all:
            return []
        return [or_(self.whole(), and_(true(), *of_others))] if self.used else list(of_others)


def _spans(moment: int) -> ColumnElement[bool]:
    """Whether a job may have time on both sides of a moment."""
    return and_(jobs.c.start_ns < moment, or_(jobs.c.end_ns > moment, jobs.c.end_ns.is_(None)))


def beside_jobs(query: Select[Any], table: FromClause) -> Select[Any]:
    """The rows of a table with job_id, each with its job."""
    return query.join_from(table, jobs, jobs.c.job_id == table.c.job_id)
