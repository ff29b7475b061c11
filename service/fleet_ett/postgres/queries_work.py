"""Work done again: replay, repeated startup, and work keys that were seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, and_, case, cast, exists, func, or_, select

from fleet_ett.postgres.queries_booked import booked, inside, job_passes, row_passes, total
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, jobs, ledger, work

if TYPE_CHECKING:
    from sqlalchemy import Connection, Subquery

    from fleet_ett.reads import Page, Row, Scope


def sum_repeated_work(conn: Connection, scope: Scope) -> Row:
    """Sums of replay, repeated startup and keyed work; `replayed_steps` is null where a job's is."""
    rows = _rows(scope)
    replay, startup = rows.c.heading == "replay", and_(rows.c.heading == "startup", rows.c.repeated)
    booked_sums = select(
        total(rows.c.wall_ns, replay).label("replay_ns"),
        total(rows.c.gpu_ns, replay).label("replay_gpu_ns"),
        total(rows.c.wall_ns, startup).label("repeated_startup_ns"),
        total(rows.c.gpu_ns, startup).label("repeated_startup_gpu_ns"),
    )
    keyed = _keyed(scope)
    keyed_sums = select(
        total(keyed.c.wall_ns).label("keyed_ns"),
        total(keyed.c.gpu_ns).label("keyed_gpu_ns"),
        total(keyed.c.wall_ns, keyed.c.seen_in_job).label("cacheable_in_job_ns"),
        total(keyed.c.gpu_ns, keyed.c.seen_in_job).label("cacheable_in_job_gpu_ns"),
        total(keyed.c.wall_ns, keyed.c.cacheable).label("cacheable_ns"),
        total(keyed.c.gpu_ns, keyed.c.cacheable).label("cacheable_gpu_ns"),
    )
    steps = cast(attempts.c.summary["steps_replayed"].astext, BigInteger)
    replayed = case((func.count(steps) == func.count(), total(steps)), else_=None)
    steps_sum = (
        select(replayed.label("replayed_steps"))
        .join_from(attempts, jobs, jobs.c.job_id == attempts.c.job_id)
        .where(
            attempts.c.summary.is_not(None),
            *inside(attempts.c.start_ns, scope.window),
            *job_passes(scope.filters, scope.window),
        )
    )
    out: Row = {}
    for query in (booked_sums, keyed_sums, steps_sum):
        out |= exact_rows(conn, query)[0]
    return out


def sum_repeated_phases(conn: Connection, scope: Scope) -> list[Row]:
    """Repeated startup by phase and its component, the dearest first."""
    rows = _rows(scope)
    wall, gpu = total(rows.c.wall_ns).label("repeated_ns"), total(rows.c.gpu_ns).label("repeated_gpu_ns")
    query = (
        select(rows.c.phase, rows.c.component, wall, gpu)
        .where(rows.c.heading == "startup", rows.c.repeated)
        .group_by(rows.c.phase, rows.c.component)
        .order_by(gpu.desc(), rows.c.phase, rows.c.component)
    )
    return exact_rows(conn, query)


def list_work_keys(conn: Connection, scope: Scope, page: Page) -> list[Row]:
    """Keys of which something was cacheable, by what a cache would have saved (GPU-ns), falling."""
    keyed = _keyed(scope)
    sums = (
        select(
            keyed.c.phase,
            keyed.c.work_key,
            func.count().label("times"),
            func.count(keyed.c.job_id.distinct()).label("jobs"),
            total(keyed.c.wall_ns).label("wall_ns"),
            total(keyed.c.gpu_ns).label("gpu_ns"),
            total(keyed.c.wall_ns, keyed.c.cacheable).label("cacheable_ns"),
            total(keyed.c.gpu_ns, keyed.c.cacheable).label("cacheable_gpu_ns"),
        )
        .group_by(keyed.c.phase, keyed.c.work_key)
        .having(func.bool_or(keyed.c.cacheable))
        .subquery("sums")
    )
    keys = [sums.c.cacheable_gpu_ns, sums.c.phase, sums.c.work_key]
    query = (
        select(sums)
        .where(*after_key(keys, page.after, falling=(True, False, False)))
        .order_by(keys[0].desc(), *keys[1:])
        .limit(page.limit)
    )
    return exact_rows(conn, query, key=("cacheable_gpu_ns", "phase", "work_key"))


def _rows(scope: Scope) -> Subquery:
    rows = booked(scope.window)
    return (
        select(rows)
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .where(
            *job_passes(scope.filters, scope.window, rows_have=("component", "phase")),
            *row_passes(rows, scope.filters, "component", "phase"),
        )
        .subquery("rows")
    )


def _keyed(scope: Scope) -> Subquery:
    """Keyed work begun in the window; `cacheable`: any job of the fleet had done it before."""
    before = work.alias("before")
    # the row itself breaks a tie: of two that begin at once one is the first
    earlier = or_(
        before.c.start_ns < work.c.start_ns,
        and_(before.c.start_ns == work.c.start_ns, before.c.job_id < work.c.job_id),
        and_(
            before.c.start_ns == work.c.start_ns,
            before.c.job_id == work.c.job_id,
            before.c.attempt_id < work.c.attempt_id,
        ),
    )
    same = and_(
        before.c.phase == work.c.phase,
        before.c.work_key == work.c.work_key,
        before.c.start_ns <= work.c.start_ns,
    )
    owned = []
    if scope.filters.component:
        owned.append(
            exists().where(
                ledger.c.job_id == work.c.job_id,
                ledger.c.attempt_id == work.c.attempt_id,
                ledger.c.phase == work.c.phase,
                ledger.c.component.in_(scope.filters.component),
            )
        )
    return (
        select(work, or_(work.c.seen_in_job, exists().where(same, earlier)).label("cacheable"))
        .join_from(work, jobs, jobs.c.job_id == work.c.job_id)
        .where(
            *inside(work.c.start_ns, scope.window),
            *job_passes(scope.filters, scope.window, rows_have=("component", "phase")),
            *row_passes(work, scope.filters, "phase"),
            *owned,
        )
        .subquery("keyed")
    )
