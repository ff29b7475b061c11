"""One job's books: cells in groups, and its segments in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, select

from fleet_ett.postgres.queries.booked import AMOUNTS, booked_of, period, row_passes, total
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, jobs, segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from fleet_ett.reads import Page, Row, Scope

SHOWN = ("heading", "phase", "component", "node", "rank", "gpus", "repeated", "settled")


def sum_ledger(conn: Connection, job: str, scope: Scope, by: Sequence[str]) -> list[Row]:
    """A job's cells in the window, in groups of `by` and in their order."""
    rows = booked_of(job, scope.window)
    same = and_(attempts.c.job_id == rows.c.job_id, attempts.c.attempt_id == rows.c.attempt_id)
    dimensions: list[ColumnElement[Any]] = []
    for name in by:
        if name in ("hour", "day"):
            dimensions.append(period(rows.c.hour_ns, name).label(name))
        else:
            dimensions.append((attempts.c.attempt if name == "attempt" else rows.c[name]).label(name))
    order = [attempts.c.index] if "attempt" in by else []
    named = (
        select(*dimensions, *(column.label("place") for column in order), *(rows.c[name] for name in AMOUNTS))
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .join(attempts, same)
        .where(jobs.c.job == job, *row_passes(rows, scope.filters, "component", "phase"))
        .subquery("named")
    )
    keys = [named.c[name] for name in by]
    places = [named.c.place] if order else []
    query = select(*keys, *(total(named.c[name]).label(name) for name in AMOUNTS))
    return exact_rows(conn, query.group_by(*places, *keys).order_by(*places, *keys))


def list_segments(conn: Connection, job: str, scope: Scope, page: Page) -> list[Row]:
    """A job's segments in order of time, clipped to the window; the sort key is the whole segment's start."""
    window = scope.window
    start, end = segments.c.start_ns, segments.c.end_ns
    first = start if window.start is None else func.greatest(start, window.start)
    last = end if window.end is None else func.least(end, window.end)
    same = and_(attempts.c.job_id == segments.c.job_id, attempts.c.attempt_id == segments.c.attempt_id)
    query = (
        select(
            start.label("whole_start"),
            first.label("start"),
            last.label("end"),
            attempts.c.attempt,
            *(segments.c[name] for name in SHOWN),
        )
        .join_from(segments, jobs, jobs.c.job_id == segments.c.job_id)
        .join(attempts, same)
        .where(
            jobs.c.job == job,
            *([end > window.start] if window.start is not None else []),
            *([start < window.end] if window.end is not None else []),
            *row_passes(segments, scope.filters, "component", "phase"),
            *after_key([start], page.after),
        )
        .order_by(start)
        .limit(page.limit)
    )
    rows = exact_rows(conn, query, key=("whole_start",))
    for row in rows:
        del row["whole_start"]
    return rows
