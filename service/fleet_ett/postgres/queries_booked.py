"""Booked time in a window, exact to the nanosecond: the rows that every figure is a sum of.

The ledger holds cells by the hour. A window that cuts an hour takes the whole hours from the ledger and
its edge hours from the segments, clipped; neighbouring windows therefore add up exactly. Everything
here builds SQL and asks nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Subquery,
    and_,
    case,
    exists,
    func,
    lateral,
    literal,
    select,
    true,
    union_all,
)

from fleet_ett.postgres.tables import incidents, jobs, ledger, segments
from fleet_ett.reads import DAY_NS, HOUR_NS, WEEK_NS, WEEK_SHIFT_NS

if TYPE_CHECKING:
    from fleet_ett.reads import Filters, Window

AMOUNTS = ("wall_ns", "gpu_ns", "settled_wall_ns", "settled_gpu_ns")
JOB_NAMES = ("cluster", "team", "model", "framework", "job")


def booked(window: Window, job: str | None = None) -> Subquery:
    """job_id, attempt_id, hour_ns, heading, phase, component, repeated and the four amounts, in the window.

    `job` is the key of the only job that is asked about.
    """
    start, end = window.start, window.end
    first = None if start is None else -(-start // HOUR_NS) * HOUR_NS
    last = None if end is None else end // HOUR_NS * HOUR_NS
    if start is not None and end is not None and end // HOUR_NS == start // HOUR_NS:
        return _edge(start, end, job).subquery("booked")  # within one hour
    parts = [_whole_hours(first, last, job)]
    if start is not None and first is not None and start < first:
        parts.append(_edge(start, first, job))
    if end is not None and last is not None and last < end:
        parts.append(_edge(last, end, job))
    return union_all(*parts).subquery("booked")


def job_passes(
    filters: Filters, window: Window, *, rows_have: tuple[str, ...] = ()
) -> list[ColumnElement[bool]]:
    """Conditions on `jobs`. Filters that the rows themselves have (`rows_have`) are left to them."""
    out: list[ColumnElement[bool]] = []
    for name in ("cluster", "team", "model", "job"):
        values = getattr(filters, name)
        if values:
            out.append(jobs.c[name].in_(values))
    booking = [
        ledger.c[name].in_(values)
        for name in ("component", "phase")
        if (values := getattr(filters, name)) and name not in rows_have
    ]
    if booking:
        lost = [] if "phase" in rows_have or filters.phase else [ledger.c.heading != "productive"]
        hours = _between(ledger.c.hour_ns, _hour_of(window.start), window.end)
        out.append(exists().where(ledger.c.job_id == jobs.c.job_id, *booking, *lost, *hours))
    if filters.cause and "cause" not in rows_have:
        inside = _between(incidents.c.at_ns, window.start, window.end)
        out.append(
            exists().where(incidents.c.job_id == jobs.c.job_id, incidents.c.cause.in_(filters.cause), *inside)
        )
    return out


def row_passes(rows: Any, filters: Filters, *names: str) -> list[ColumnElement[bool]]:
    """Conditions on rows that have a column of the filter's name."""
    return [rows.c[name].in_(getattr(filters, name)) for name in names if getattr(filters, name)]


def inside(column: ColumnElement[int], window: Window) -> list[ColumnElement[bool]]:
    """Whether a moment lies in [start, end)."""
    return _between(column, window.start, window.end)


def period(hour: ColumnElement[int], name: str) -> ColumnElement[int]:
    """The start (ns) of the hour, day or week (from Monday, UTC) that an hour lies in."""
    if name == "day":
        return hour - hour % DAY_NS
    if name == "week":
        return hour - (hour + WEEK_SHIFT_NS) % WEEK_NS
    return hour - hour % HOUR_NS


def total(column: ColumnElement[Any], where: ColumnElement[bool] | None = None) -> ColumnElement[Any]:
    """An exact sum, 0 of nothing: Postgres adds bigints up as `numeric`, beyond 64 bits where it must."""
    added = func.sum(column) if where is None else func.sum(column).filter(where)
    return func.coalesce(added, 0)


def _whole_hours(first: int | None, last: int | None, job: str | None) -> Select[Any]:
    named = (
        ledger.c[name]
        for name in ("job_id", "attempt_id", "hour_ns", "heading", "phase", "component", "repeated")
    )
    amounts = (ledger.c[name] for name in AMOUNTS)
    return select(*named, *amounts).where(*_between(ledger.c.hour_ns, first, last), *_of_job(job))


def _edge(low: int, high: int, job: str | None) -> Select[Any]:
    """Segments clipped to [low, high), which lies within one hour; only of jobs with time in that hour."""
    hour = _hour_of(low)
    held = select(ledger.c.job_id).where(ledger.c.hour_ns == hour, *_of_job(job)).distinct().subquery("held")
    other = segments.alias("before")
    # a job's segments do not overlap: the first one of interest is the last that starts at or before `low`
    before = lateral(
        select(func.max(other.c.start_ns).label("start_ns")).where(
            other.c.job_id == held.c.job_id, other.c.start_ns <= low
        )
    )
    wall = func.least(segments.c.end_ns, high) - func.greatest(segments.c.start_ns, low)
    gpu = wall * segments.c.gpus  # at most the ledger's cell of this hour, which is a bigint
    settled = segments.c.settled
    names = ("heading", "phase", "component", "repeated")
    return (
        select(
            segments.c.job_id,
            segments.c.attempt_id,
            literal(hour, BigInteger).label("hour_ns"),
            *(segments.c[name] for name in names),
            wall.label("wall_ns"),
            gpu.label("gpu_ns"),
            case((settled, wall), else_=0).label("settled_wall_ns"),
            case((settled, gpu), else_=0).label("settled_gpu_ns"),
        )
        .select_from(held)
        .join(before, true())
        .join(
            segments,
            and_(
                segments.c.job_id == held.c.job_id,
                segments.c.start_ns >= func.coalesce(before.c.start_ns, low),
                segments.c.start_ns < high,
                segments.c.end_ns > low,
            ),
        )
    )


def _of_job(job: str | None) -> list[ColumnElement[bool]]:
    if job is None:
        return []
    return [ledger.c.job_id == select(jobs.c.job_id).where(jobs.c.job == job).scalar_subquery()]


def _between(column: ColumnElement[int], low: int | None, high: int | None) -> list[ColumnElement[bool]]:
    out: list[ColumnElement[bool]] = []
    if low is not None:
        out.append(column >= low)
    if high is not None:
        out.append(column < high)
    return out


def _hour_of(moment: int | None) -> int | None:
    return None if moment is None else moment // HOUR_NS * HOUR_NS
