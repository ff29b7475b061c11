"""The cells that a fleet's figures are sums of, from as few rows as will do.

Days and hours come from the roll-ups by the names that a question needs, edges from the segments, and what is not
folded yet from `ledger_deltas`. Everything here builds SQL and asks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    any_,
    false,
    func,
    literal,
    or_,
    select,
    union_all,
)

from fleet_ett.postgres.queries.booked import TIMES, job_passes, row_passes, signed
from fleet_ett.postgres.queries.chosen import ChosenJobs, Jobs, is_listed, only_of
from fleet_ett.postgres.queries.lives import Lives
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.queries.windows import Pieces
from fleet_ett.postgres.tables import (
    fleet_days,
    fleet_hours,
    job_lives,
    jobs,
    ledger,
    ledger_days,
    ledger_deltas,
    ledger_lives,
    tenant_days,
)
from fleet_ett.postgres.tables.rollups import AMOUNTS, LABELS, NAMES
from fleet_ett.reads import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import FromClause, Subquery, Table

    from fleet_ett.postgres.queries.windows import Chosen
    from fleet_ett.reads import Filters, Scope

    Columns = dict[str, ColumnElement[Any]]

OF_JOBS = (*NAMES, "job", "job_id")
CELL = (*LABELS, *AMOUNTS)


def cells(
    scope: Scope, by: Sequence[str], *, rows_have: tuple[str, ...] = (), pieces: Pieces | None = None
) -> Subquery:
    """The names and the job of `by`, hour_ns, the labels and the amounts; several rows may be of one cell.

    `hour_ns` is the day of what is of a whole day. Filters of `rows_have` are left to the rows' own columns.
    `pieces`: those of the window, where the statement reads them elsewhere, too.
    """
    pieces = pieces or pieces_of(scope, by)
    source, lives = Source.of(scope, by, rows_have), lives_of(scope, by)
    if source.is_by_job(lives):
        return union_all(*source.by_job(pieces, lives)).subquery("cells")
    parts = source.by_tenant(pieces) if len(source.names) > 1 else source.by_slice(pieces)
    return union_all(*parts, *source.edges(pieces)).subquery("cells")


def pieces_of(scope: Scope, by: Sequence[str]) -> Pieces:
    """The pieces of the window for these groups; edges are looked up for the jobs that are asked for alone."""
    filters = scope.filters
    if filters.job:
        chosen = _called(filters.job)
    elif isinstance(filters, ChosenJobs):
        chosen = (is_listed,)
    else:
        chosen = _named(scope.by_names().filters)
    return Pieces.of(scope.window, by_hour="hour" in by, beyond="day" not in by, chosen=chosen)


@lru_cache(maxsize=64)
def _named(filters: Filters) -> Chosen:
    passing = job_passes(filters, Window())
    ids = select(jobs.c.job_id).where(*passing)
    return (lambda job_id: job_id.in_(ids),) if passing else ()


@lru_cache(maxsize=64, typed=True)  # one object for one question; `Names` are not what they are called
def _called(names: tuple[str, ...]) -> Chosen:
    asked = select(jobs.c.job_id).where(is_one_of(jobs.c.job, names)).scalar_subquery()
    return (lambda job_id: job_id == any_(func.array(asked)),)  # a list: each is looked up by its id


def lives_of(scope: Scope, by: Sequence[str]) -> Lives:
    """The jobs that are read as a whole for these groups."""
    return Lives.of(scope.window, by_time=bool(set(by) & set(TIMES)))


@dataclass(frozen=True, slots=True)
class Source:
    """What of the cells a question needs: the names that it shows, its filters, and those that the rows have."""

    scope: Scope
    shown: tuple[str, ...]
    rows_have: tuple[str, ...] = ()

    @classmethod
    def of(cls, scope: Scope, by: Sequence[str], rows_have: tuple[str, ...] = ()) -> Source:
        """What these groups need."""
        return cls(scope, tuple(name for name in OF_JOBS if name in by), rows_have)

    @property
    def names(self) -> list[str]:
        """The names that must be told apart."""
        return [name for name in NAMES if name in self.shown or self.wanted(name)]

    def wanted(self, name: str) -> tuple[str, ...]:
        """The values of a name that pass; empty: all."""
        return tuple(getattr(self.scope.filters, name)) if hasattr(self.scope.filters, name) else ()

    @property
    def of_single_jobs(self) -> bool:
        """Whether jobs must be told apart."""
        filters = self.scope.filters
        chosen = [name for name in ("component", "phase", "cause") if name not in self.rows_have]
        if self.jobs is not None:
            return True
        return bool({"job", "job_id"} & set(self.shown) or filters.job) or any(
            getattr(filters, name) for name in chosen
        )

    def is_by_job(self, lives: Lives) -> bool:
        """Whether the rows of jobs are read: those of their lives are fewer than those of several names by day."""
        return self.of_single_jobs or (lives.used and len(self.names) > 1)

    def by_slice(self, pieces: Pieces) -> Iterator[Select[Any]]:
        """The fleet by one name, or as a whole."""
        name = next(iter(self.names), "")
        for spans, table, period in (
            (pieces.days, fleet_days, fleet_days.c["day_ns"]),
            (pieces.hours, fleet_hours, fleet_hours.c["hour_ns"]),
        ):
            own: Columns = {name: table.c.name}
            for span in spans:
                rows = self._select(table, period, own)
                rows = rows.where(table.c.slice == name, *span.holds(period), *self._named(own))
                yield signed(rows, span.sign, AMOUNTS)
        yield self._late(pieces)

    def by_tenant(self, pieces: Pieces) -> Iterator[Select[Any]]:
        """The fleet by several names: days are kept, hours are those of the jobs."""
        own: Columns = {name: tenant_days.c[name] for name in NAMES}
        period = tenant_days.c.day_ns
        for span in pieces.days:
            yield self._select(tenant_days, period, own).where(*span.holds(period), *self._named(own))
        yield self._late(pieces, hours=False)
        yield from self._hours(pieces)

    def by_job(self, pieces: Pieces, lives: Lives) -> Iterator[Select[Any]]:
        """Job by job with all labels: as a whole, or by days and what lies around them."""
        if lives.used:
            whole = self._of_jobs(ledger_lives, literal(0, BigInteger), joined=not lives.are_all)
            yield self._only_whole(whole, ledger_lives, lives)
        if not lives.are_all:
            for one in self.by_days(pieces, ledger_days, CELL, joined=lives.used):
                yield self._only_cut(one, ledger_days, lives)
        yield from self.rest(pieces, lives)

    def whole_lives(self, lives: Lives) -> Iterator[Select[Any]]:
        """Jobs that have time in the window with all of theirs, and `whole`: whether that lies in it."""
        whole = func.coalesce(lives.whole(), false()).label("whole")
        for table in (ledger_lives, ledger_deltas):
            rows = self._of_jobs(table, literal(0, BigInteger), joined=True)
            yield rows.add_columns(whole).where(or_(lives.whole(), lives.cut()))

    def by_days(
        self, pieces: Pieces, table: Table, columns: Sequence[str], *, joined: bool = False
    ) -> Iterator[Select[Any]]:
        """Jobs by whole days."""
        for span in pieces.days:
            period = table.c["day_ns"]
            yield self._of_jobs(table, period, columns, joined=joined).where(*span.holds(period))

    def by_running(
        self, lives: Lives, tables: tuple[Table, Table], columns: Sequence[str]
    ) -> Iterator[Select[Any]]:
        """Jobs by their lives and, where the window cuts those, by running totals: from two `tables`."""
        of_lives, of_totals = tables
        nowhere, amounts = literal(0, BigInteger), [name for name in columns if name not in LABELS]
        whole = self._of_jobs(of_lives, nowhere, columns, joined=True)
        if of_lives is not job_lives:
            whole = whole.join(job_lives, job_lives.c.job_id == of_lives.c.job_id)
        yield self.only_chosen(whole.where(*lives.lives()), of_lives.c.job_id)
        for mark, whose, sign in lives.totals():
            rows = self._of_jobs(of_totals, nowhere, columns, joined=True)
            rows = self.only_chosen(rows.where(of_totals.c.hour_ns == mark, whose), of_totals.c.job_id)
            yield signed(rows, sign, amounts)

    def beside_running(self, pieces: Pieces, lives: Lives) -> Iterator[Select[Any]]:
        """Job by job what no lives and running totals hold: edges, and what is not folded yet."""
        for edge, whose in lives.edges(pieces):
            rows = self._of_jobs(edge, edge.c.hour_ns, joined=True).where(whose)
            yield self.only_chosen(rows, edge.c.job_id)
        late = self._of_jobs(ledger_deltas, ledger_deltas.c.hour_ns, joined=True)
        yield self.only_chosen(late.where(*lives.late_running()), ledger_deltas.c.job_id)

    def rest(self, pieces: Pieces, lives: Lives) -> Iterator[Select[Any]]:
        """Job by job what is of no whole day: hours, edges, and what is not folded yet."""
        if not lives.are_all:
            for span in pieces.hours:
                hour = ledger.c.hour_ns
                rows = self._of_jobs(ledger, hour, joined=lives.used).where(*span.holds(hour))
                yield signed(self._only_cut(rows, ledger, lives), span.sign, AMOUNTS)
            for edge in pieces.edges:
                rows = self._of_jobs(edge, edge.c.hour_ns, joined=lives.used)
                yield self._only_cut(rows, edge, lives)
        late = self._of_jobs(ledger_deltas, ledger_deltas.c.hour_ns, joined=lives.used)
        late = late.where(*lives.late_where(pieces.late(hours=False)))
        yield self.only_chosen(late, ledger_deltas.c.job_id)

    @property
    def jobs(self) -> Jobs | None:
        """The jobs that were chosen by what they booked or suffered."""
        return self.scope.filters.jobs if isinstance(self.scope.filters, ChosenJobs) else None

    @property
    def chosen(self) -> Chosen:
        """Whether a job is one of these."""
        if self.jobs is None:
            return ()
        every = self.jobs.every
        return (lambda job_id: job_id.in_(select(every.c.job_id)),)

    def only_chosen(self, query: Select[Any], job_id: ColumnElement[int]) -> Select[Any]:
        """The rows of these, where there are filters of that kind."""
        return query if self.jobs is None else only_of(query, job_id, self.jobs.every)

    def _only_whole(self, query: Select[Any], table: FromClause, lives: Lives) -> Select[Any]:
        if self.jobs is not None:
            return only_of(query, table.c.job_id, self.jobs.whole)
        return query if lives.are_all else query.where(lives.whole())

    def _only_cut(self, query: Select[Any], table: FromClause, lives: Lives) -> Select[Any]:
        if self.jobs is not None:
            return only_of(query, table.c.job_id, self.jobs.cut)
        return query.where(lives.cut()) if lives.used else query

    def edges(self, pieces: Pieces) -> Iterator[Select[Any]]:
        """What lies within an hour that the window cuts."""
        for rows in pieces.edges:
            yield self._of_jobs(rows, rows.c.hour_ns)

    def _hours(self, pieces: Pieces) -> Iterator[Select[Any]]:
        for span in pieces.hours:
            rows = self._of_jobs(ledger, ledger.c.hour_ns).where(*span.holds(ledger.c.hour_ns))
            yield signed(rows, span.sign, AMOUNTS)

    def _late(self, pieces: Pieces, *, hours: bool = True) -> Select[Any]:
        own: Columns = {name: ledger_deltas.c[name] for name in NAMES}
        rows = self._select(ledger_deltas, ledger_deltas.c.hour_ns, own)
        return rows.where(*pieces.late(hours=hours), *self._named(own))

    def _of_jobs(
        self,
        table: FromClause,
        period: ColumnElement[int],
        columns: Sequence[str] = CELL,
        *,
        joined: bool = False,
    ) -> Select[Any]:
        """Rows of jobs that pass; `joined`: with `jobs`, whether the question needs it or not."""
        own: Columns = {name: (table if name == "job_id" else jobs).c[name] for name in OF_JOBS}
        passing = job_passes(self.scope.filters, self.scope.window, rows_have=self.rows_have)
        called = _called(self.scope.filters.job) if self.scope.filters.job else ()
        rows = self._select(table, period, own, columns).where(*(one(table.c.job_id) for one in called))
        if not passing and not joined and set(self.shown) <= {"job_id"}:
            return rows
        return rows.join(jobs, jobs.c.job_id == table.c.job_id).where(*passing)

    def _named(self, own: Columns) -> list[ColumnElement[bool]]:
        return [is_one_of(own[name], self.wanted(name)) for name in NAMES if self.wanted(name)]

    def _select(
        self, table: FromClause, period: ColumnElement[int], own: Columns, columns: Sequence[str] = CELL
    ) -> Select[Any]:
        here = [name for name in ("component", "phase") if name in self.rows_have]
        return (
            select(
                *(own[name].label(name) for name in self.shown),
                period.label("hour_ns"),
                *(table.c[name] for name in columns),
            )
            .select_from(table)
            .where(*row_passes(table, self.scope.filters, *here))
        )
