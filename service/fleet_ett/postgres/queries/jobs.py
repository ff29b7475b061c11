"""Jobs: the list with sums, one job, its attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from fleet_ett.postgres.queries.booked import inside, job_passes
from fleet_ett.postgres.queries.job_sums import job_sums
from fleet_ett.postgres.queries.lives import Lives
from fleet_ett.postgres.queries.pages import overlaps
from fleet_ett.postgres.queries.windows import Pieces
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, incidents, jobs
from fleet_ett.postgres.tables.rollups import JOB_AMOUNTS
from fleet_ett.reads import Window

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select, Subquery, Table

    from fleet_ett.postgres.queries.windows import Chosen
    from fleet_ett.reads import Page, Row, Scope

UNSHOWN = ("settled_productive_gpu_ns", "unknown_gpu_ns")
NAMES = ("job", "name", "cluster", "team", "model", "framework")


def list_jobs(conn: Connection, scope: Scope, page: Page) -> list[Row]:
    """Jobs and their sums in the window, the job that was heard of last first."""
    wanted = (
        select(jobs.c.job_id)
        .where(
            *job_passes(scope.filters, scope.window),
            *overlaps(scope.window),
            *after_key([jobs.c.job_id], page.after, falling=(True,)),
        )
        .order_by(jobs.c.job_id.desc())
        .limit(page.limit)
    )
    query = _with_sums(scope.window, jobs.c.job_id.in_(wanted.scalar_subquery())).order_by(
        jobs.c.job_id.desc()
    )
    rows = exact_rows(conn, query, key=("job_id",))
    for row in rows:
        del row["job_id"]
    return rows


def find_job(conn: Connection, job: str) -> Row | None:
    """One job with its labels, summary and sums; None when there is none of that key."""
    query = _with_sums(Window(), jobs.c.job == job).add_columns(jobs.c.labels, jobs.c.summary, jobs.c.late_ns)
    rows = exact_rows(conn, query)
    for row in rows:
        del row["job_id"]
        row["labels"] = row["labels"] or {}
    return rows[0] if rows else None


def list_attempts(conn: Connection, job: str) -> list[Row]:
    """The attempts of a job that are in the books, in the order of their start."""
    query = (
        select(attempts.c.attempt, attempts.c.summary)
        .join_from(attempts, jobs, jobs.c.job_id == attempts.c.job_id)
        .where(jobs.c.job == job, attempts.c.summary.is_not(None), attempts.c.index.is_not(None))
        .order_by(attempts.c.index)
    )
    return exact_rows(conn, query)


def _with_sums(window: Window, chosen: ColumnElement[bool]) -> Select[Any]:
    wanted = select(jobs.c.job_id).where(chosen).cte("wanted")
    those: Chosen = (lambda job_id: job_id.in_(select(wanted.c.job_id)),)
    rows = job_sums(Pieces.of(window, chosen=those), Lives.of(window), those)
    names = [name for name in JOB_AMOUNTS if name not in UNSHOWN]
    sums = (
        select(rows.c.job_id, *(func.sum(rows.c[name]).label(name) for name in names))
        .group_by(rows.c.job_id)
        .subquery("sums")
    )
    amounts = [func.coalesce(sums.c[name], 0).label(name) for name in names]
    begun = _number(attempts, those, attempts.c.index.is_not(None))
    ended = _number(incidents, those, *inside(incidents.c.at_ns, window))
    return (
        select(
            jobs.c.job_id,
            *(jobs.c[name] for name in NAMES),
            jobs.c.start_ns.label("start"),
            jobs.c.end_ns.label("end"),
            jobs.c.live,
            jobs.c.as_of_ns.label("as_of"),
            jobs.c.error,
            func.coalesce(begun.c.number, 0).label("num_attempts"),
            func.coalesce(ended.c.number, 0).label("num_incidents"),
            *amounts,
        )
        .join_from(jobs, wanted, wanted.c.job_id == jobs.c.job_id)
        .outerjoin(sums, sums.c.job_id == jobs.c.job_id)
        .outerjoin(begun, begun.c.job_id == jobs.c.job_id)
        .outerjoin(ended, ended.c.job_id == jobs.c.job_id)
    )


def _number(table: Table, those: Chosen, *which: ColumnElement[bool]) -> Subquery:
    """How many rows of a table each of those jobs has."""
    job_id = table.c.job_id
    query = select(job_id, func.count().label("number")).where(*(one(job_id) for one in those), *which)
    return query.group_by(job_id).subquery()
