"""Work done again: replay, repeated startup, and work keys that were seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, case, exists, func, literal, select, true, union_all

from fleet_ett.postgres.queries_booked import inside, job_passes, row_passes, total
from fleet_ett.postgres.queries_sums import cells
from fleet_ett.postgres.queries_windows import Lives
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, jobs, ledger, work, work_lives
from fleet_ett.postgres.work_lives import SUMS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, Subquery

    from fleet_ett.reads import Page, Row, Scope

KEYED = (
    "keyed_ns",
    "keyed_gpu_ns",
    "cacheable_in_job_ns",
    "cacheable_in_job_gpu_ns",
    "cacheable_ns",
    "cacheable_gpu_ns",
)
SUMMED = KEYED[:4]  # what rows add up to; the rest is what keys come to
SHOWN = {
    "phase": "phase",
    "work_key": "work_key",
    "times": "times",
    "jobs": "jobs",
    "keyed_ns": "wall_ns",
    "keyed_gpu_ns": "gpu_ns",
    "cacheable_ns": "cacheable_ns",
    "cacheable_gpu_ns": "cacheable_gpu_ns",
}


def sum_repeated_work(conn: Connection, scope: Scope) -> Row:
    """Sums of replay, repeated startup and keyed work; `replayed_steps` is null where a job's is."""
    rows = cells(scope, (), rows_have=("component", "phase"))
    replay, startup = rows.c.heading == "replay", and_(rows.c.heading == "startup", rows.c.repeated)
    booked_sums = select(
        total(rows.c.wall_ns, replay).label("replay_ns"),
        total(rows.c.gpu_ns, replay).label("replay_gpu_ns"),
        total(rows.c.wall_ns, startup).label("repeated_startup_ns"),
        total(rows.c.gpu_ns, startup).label("repeated_startup_gpu_ns"),
    )
    of_keys = _of_keys(scope)
    keyed_sums = select(*(total(of_keys.c[name]).label(name) for name in KEYED))
    steps = attempts.c.steps_replayed
    replayed = case((func.count(steps) == func.count(), total(steps)), else_=None)
    steps_sum = (
        select(replayed.label("replayed_steps"))
        .where(attempts.c.summary.is_not(None), *inside(attempts.c.start_ns, scope.window))
        .select_from(attempts)
    )
    passing = job_passes(scope.filters, scope.window)
    if passing:
        steps_sum = steps_sum.join(jobs, jobs.c.job_id == attempts.c.job_id).where(*passing)
    out: Row = {}
    for query in (booked_sums, keyed_sums, steps_sum):
        out |= exact_rows(conn, query)[0]
    return out


def sum_repeated_phases(conn: Connection, scope: Scope) -> list[Row]:
    """Repeated startup by phase and its component, the dearest first."""
    rows = cells(scope, (), rows_have=("component", "phase"))
    wall, gpu = total(rows.c.wall_ns).label("repeated_ns"), total(rows.c.gpu_ns).label("repeated_gpu_ns")
    query = (
        select(rows.c.phase, rows.c.component, wall, gpu)
        .where(rows.c.heading == "startup", rows.c.repeated)
        .group_by(rows.c.phase, rows.c.component)
        .having(func.sum(rows.c.wall_ns) > 0)
        .order_by(gpu.desc(), rows.c.phase, rows.c.component)
    )
    return exact_rows(conn, query)


def list_work_keys(conn: Connection, scope: Scope, page: Page) -> list[Row]:
    """Keys of which something was cacheable, by what a cache would have saved (GPU-ns), falling."""
    sums = _of_keys(scope)
    keys = [sums.c.cacheable_gpu_ns, sums.c.phase, sums.c.work_key]
    query = (
        select(*(sums.c[name].label(shown) for name, shown in SHOWN.items()))
        .where(sums.c.cacheable_times > 0, *after_key(keys, page.after, falling=(True, False, False)))
        .order_by(keys[0].desc(), *keys[1:])
        .limit(page.limit)
    )
    return exact_rows(conn, query, key=("cacheable_gpu_ns", "phase", "work_key"))


def _of_keys(scope: Scope) -> Subquery:
    """Keyed work begun in the window, by key; `cacheable`: what of it any job of the fleet had done before.

    That is all of a key but the fleet's first: one look into an index a key, and none a row.
    """
    key = ("phase", "work_key")
    in_jobs = _in_jobs(scope)
    keys = (
        select(
            *(in_jobs.c[name] for name in key),
            func.sum(in_jobs.c.times).label("times"),
            func.count().label("jobs"),
            *(total(in_jobs.c[name]).label(name) for name in SUMMED),
        )
        .group_by(*(in_jobs.c[name] for name in key))
        .subquery("keys")
    )
    first = _first(scope, keys)
    saved = {"cacheable_ns": first.c.wall_ns, "cacheable_gpu_ns": first.c.gpu_ns}
    return (
        select(
            *keys.c,
            (keys.c.times - func.coalesce(first.c.times, 0)).label("cacheable_times"),
            *(
                (keys.c[name.replace("cacheable", "keyed")] - func.coalesce(column, 0)).label(name)
                for name, column in saved.items()
            ),
        )
        .join_from(keys, first, true(), isouter=True)
        .subquery("of_keys")
    )


def _in_jobs(scope: Scope) -> Subquery:
    """Keyed work by key and job: of the jobs that lie whole in the window as it is kept, of others row by row."""
    lives, parts = Lives.of(scope.window), []
    if lives.used and not scope.filters.component:
        of_lives = [
            work_lives.c[name].label(told) for name, told in zip(SUMS, ("times", *SUMMED), strict=True)
        ]
        whole = select(work_lives.c.job_id, work_lives.c.phase, work_lives.c.work_key, *of_lives)
        parts.append(lives.only_whole(whole.where(*_of_scope(work_lives, scope)), work_lives))
    if not parts or not lives.are_all:
        chosen = select(work).where(*_in_scope(work, scope))
        rows = (lives.only_cut(chosen, work) if parts else chosen).subquery("keyed")
        key = [rows.c[name] for name in ("job_id", "phase", "work_key")]
        amounts = (rows.c.wall_ns, rows.c.gpu_ns)
        sums = (*map(total, amounts), *(total(one, rows.c.seen_in_job) for one in amounts))
        of_rows = [one.label(name) for name, one in zip(SUMMED, sums, strict=True)]
        parts.append(select(*key, func.count().label("times"), *of_rows).group_by(*key))
    return union_all(*parts).subquery("in_jobs")


def _first(scope: Scope, keys: Subquery) -> FromClause:
    """The fleet's first time of a key, where that is in the scope."""
    earliest = work.alias("earliest")
    row = (
        select(earliest)
        .where(earliest.c.phase == keys.c.phase, earliest.c.work_key == keys.c.work_key)
        .order_by(earliest.c.start_ns, earliest.c.job_id, earliest.c.attempt_id)
        .limit(1)
        .correlate(keys)
        .subquery("earliest_row")
    )
    query = select(row.c.wall_ns, row.c.gpu_ns, literal(1).label("times")).where(
        ~row.c.seen_in_job, *_in_scope(row, scope)
    )
    return query.correlate(keys).lateral("first")


def _in_scope(rows: FromClause, scope: Scope) -> list[ColumnElement[bool]]:
    """Whether a row of `work` is asked about."""
    out = [*inside(rows.c.start_ns, scope.window), *_of_scope(rows, scope)]
    if scope.filters.component:
        out.append(
            exists().where(
                ledger.c.job_id == rows.c.job_id,
                ledger.c.attempt_id == rows.c.attempt_id,
                ledger.c.phase == rows.c.phase,
                ledger.c.component.in_(scope.filters.component),
            )
        )
    return out


def _of_scope(rows: FromClause, scope: Scope) -> list[ColumnElement[bool]]:
    """Whether its phase and its job are asked about."""
    out = row_passes(rows, scope.filters, "phase")
    passing = job_passes(scope.filters, scope.window, rows_have=("component", "phase"))
    if passing:
        out.append(rows.c.job_id.in_(select(jobs.c.job_id).where(*passing)))
    return out
