"""What readers' questions have in common: one job's booked time, filters, periods, exact sums.

Everything here builds SQL and asks nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    func,
    select,
    union_all,
)

from fleet_ett.postgres.queries.lives import Lives
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.queries.windows import Pieces, between
from fleet_ett.postgres.tables import (
    incidents,
    jobs,
    ledger,
    ledger_days,
    ledger_deltas,
    ledger_lives,
    owners,
)
from fleet_ett.reads import DAY_NS, HOUR_NS, WEEK_NS, WEEK_SHIFT_NS, Filters, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CTE, FromClause, Table


AMOUNTS = ("wall_ns", "gpu_ns", "settled_wall_ns", "settled_gpu_ns")
JOB_NAMES = ("cluster", "team", "model", "framework", "job")
TIMES = ("hour", "day", "week")


def booked_of(job: str, window: Window) -> Subquery:
    """A job's cells in the window: job_id, attempt_id, hour_ns, the labels and the four amounts."""
    own = select(jobs.c.job_id).where(jobs.c.job == job).scalar_subquery()
    pieces = Pieces.of(window, by_hour=True, chosen=(lambda job_id: job_id == own,))
    names = ("job_id", "attempt_id", "hour_ns", "heading", "phase", "component", "repeated", *AMOUNTS)
    parts = [
        select(*(ledger.c[name] for name in names)).where(
            ledger.c.job_id == own, *between(ledger.c.hour_ns, span.low, span.high)
        )
        for span in pieces.hours
    ]
    parts += [select(*(rows.c[name] for name in names)) for rows in pieces.edges]
    if not parts:
        parts = [select(*(ledger.c[name] for name in names)).where(ledger.c.job_id < 0)]
    return union_all(*parts).subquery("booked")


def job_passes(
    filters: Filters, window: Window, *, rows_have: tuple[str, ...] = ()
) -> list[ColumnElement[bool]]:
    """Conditions on `jobs`. Filters that the rows themselves have (`rows_have`) are left to them."""
    out: list[ColumnElement[bool]] = []
    for name in ("cluster", "team", "model", "job"):
        values = getattr(filters, name)
        if values:
            out.append(is_one_of(jobs.c[name], values))
    booking = tuple(
        name for name in ("component", "phase") if getattr(filters, name) and name not in rows_have
    )
    if booking:
        only_lost = "phase" not in rows_have and not filters.phase
        booked = _that_booked(filters, window, booking, only_lost=only_lost)
        out.append(jobs.c.job_id.in_(select(booked.c.job_id)))
    if filters.cause and "cause" not in rows_have:
        had = select(incidents.c.job_id).where(
            is_one_of(incidents.c.cause, filters.cause), *inside(incidents.c.at_ns, window)
        )
        out.append(jobs.c.job_id.in_(had))
    return out


@lru_cache(
    maxsize=64
)  # one object for one question: a statement that needs it in several places asks it once
def _that_booked(filters: Filters, window: Window, names: tuple[str, ...], *, only_lost: bool) -> CTE:
    """The ids of jobs with such a cell in an hour that the window touches."""
    low = None if window.start is None else window.start // HOUR_NS * HOUR_NS
    high = None if window.end is None else -(-window.end // HOUR_NS) * HOUR_NS
    pieces, lives = Pieces.of(Window(low, high), beyond=True, prefix="booked_"), Lives.of(window)

    def booked(table: Table) -> Select[Any]:
        lost = [table.c.heading != "productive"] if only_lost else []
        chosen = [is_one_of(table.c[name], getattr(filters, name)) for name in names]
        return select(table.c.job_id, table.c.wall_ns).where(*chosen, *lost)

    parts = [lives.only_whole(booked(ledger_lives), ledger_lives)] if lives.used else []
    if not lives.are_all:
        for table, spans, moment in (
            (ledger_days, pieces.days, ledger_days.c.day_ns),
            (ledger, pieces.hours, ledger.c.hour_ns),
        ):
            for span in spans:
                rows = lives.only_cut(booked(table).where(*span.holds(moment)), table)
                parts.append(signed(rows, span.sign, ("wall_ns",)))
    parts.append(lives.late(booked(ledger_deltas), pieces.late(hours=False)))
    found = union_all(*parts).subquery("found")
    grouped = select(found.c.job_id).group_by(found.c.job_id).having(func.sum(found.c.wall_ns) > 0)
    return grouped.cte(f"that_booked_{'_'.join(names)}_{only_lost:d}")


def row_passes(rows: Any, filters: Filters, *names: str) -> list[ColumnElement[bool]]:
    """Conditions on rows that have a column of the filter's name."""
    return [is_one_of(rows.c[name], getattr(filters, name)) for name in names if getattr(filters, name)]


def inside(column: ColumnElement[int], window: Window) -> list[ColumnElement[bool]]:
    """Whether a moment lies in [start, end)."""
    return between(column, window.start, window.end)


def period(hour: ColumnElement[int], name: str) -> ColumnElement[int]:
    """The start (ns) of the hour, day or week (from Monday, UTC) that an hour lies in."""
    if name == "day":
        return hour - hour % DAY_NS
    if name == "week":
        return hour - (hour + WEEK_SHIFT_NS) % WEEK_NS
    return hour - hour % HOUR_NS


def dimensions(rows: FromClause, by: Sequence[str]) -> list[ColumnElement[Any]]:
    """The columns of the groups, from the rows, their jobs and the owners of their components."""
    moment = rows.c.get("hour_ns")
    moment = rows.c.at_ns if moment is None else moment
    out: list[ColumnElement[Any]] = []
    for name in by:
        if name in TIMES:
            column: ColumnElement[Any] = period(moment, name)
        elif name in JOB_NAMES:
            column = rows.c[name] if name in rows.c else jobs.c[name]
        elif name == "owner":
            column = func.coalesce(owners.c.owner, rows.c.component)
        else:
            column = rows.c[name]
        out.append(column.label(name))
    return out


def total(column: ColumnElement[Any], where: ColumnElement[bool] | None = None) -> ColumnElement[Any]:
    """An exact sum, 0 of nothing: Postgres adds bigints up as `numeric`, beyond 64 bits where it must."""
    added = func.sum(column) if where is None else func.sum(column).filter(where)
    return func.coalesce(added, 0)


def signed(part: Select[Any], sign: int, amounts: Sequence[str]) -> Select[Any]:
    """The rows, their amounts taken away where the sign says so."""
    if sign == 1:
        return part
    rows = part.subquery()
    return select(*((-one).label(one.name) if one.name in amounts else one for one in rows.c))
