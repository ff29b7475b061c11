"""Work done again: replay, repeated startup, and work keys that were seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, exists, func, literal, or_, select, true, union_all

from fleet_ett.postgres.queries.booked import inside, job_passes, row_passes, total
from fleet_ett.postgres.queries.kept import statement
from fleet_ett.postgres.queries.lives import Lives
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.queries.sums import cells
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, jobs, ledger, work, work_lives
from fleet_ett.postgres.work_lives import SUMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Subquery

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


def read_repeated_work(conn: Connection, scope: Scope, page: Page) -> tuple[Row, list[Row]]:
    """Sums of replay, repeated startup (`phases`: by phase, the dearest first) and keyed work, and a page of the keys.

    The keys are those of which something was cacheable, by what a cache would have saved (GPU-ns), falling.
    `replayed_steps` is null where a job's is.
    """
    keyed, keys = _keyed(conn, scope, page)
    return _booked(conn, scope) | keyed | _steps(conn, scope), keys


def _booked(conn: Connection, scope: Scope) -> Row:
    sums = dict.fromkeys(("replay_ns", "replay_gpu_ns", "repeated_startup_ns", "repeated_startup_gpu_ns"), 0)
    phases: list[Row] = []
    query, values = statement(_again, scope, ())
    for row in conn.execute(query, values):
        what = "replay" if row.heading == "replay" else "repeated_startup"
        for unit, amount in (("ns", int(row.wall_ns)), ("gpu_ns", int(row.gpu_ns))):
            sums[f"{what}_{unit}"] += amount
        if row.heading != "replay" and row.wall_ns:
            told = {"repeated_ns": int(row.wall_ns), "repeated_gpu_ns": int(row.gpu_ns)}
            phases.append({"phase": row.phase, "component": row.component, **told})
    return {**sums, "phases": phases}


def _again(scope: Scope, by: Sequence[str]) -> Select[Any]:
    rows = cells(scope, by, rows_have=("component", "phase"))
    labels = (rows.c.heading, rows.c.phase, rows.c.component)
    wall, gpu = total(rows.c.wall_ns).label("wall_ns"), total(rows.c.gpu_ns).label("gpu_ns")
    again = or_(rows.c.heading == "replay", and_(rows.c.heading == "startup", rows.c.repeated))
    return select(*labels, wall, gpu).where(again).group_by(*labels).order_by(gpu.desc(), *labels)


def _keyed(conn: Connection, scope: Scope, page: Page) -> tuple[Row, list[Row]]:
    query, values = statement(_keys, scope, (), page)
    rows = exact_rows(conn, query, values, key=("cacheable_gpu_ns", "phase", "work_key"))
    keys = [{name: value for name, value in row.items() if not name.startswith("all_")} for row in rows]
    return {name: rows[0][f"all_{name}"] for name in KEYED}, [row for row in keys if row["phase"] is not None]


def _keys(scope: Scope, by: Sequence[str], page: Page) -> Select[Any]:
    """The sums of all keys, and a page of them: put together once."""
    del by
    of_keys = select(_of_keys(scope)).cte("of_keys")
    sums = select(*(total(of_keys.c[name]).label(f"all_{name}") for name in KEYED)).subquery("sums")
    order = [of_keys.c.cacheable_gpu_ns, of_keys.c.phase, of_keys.c.work_key]
    shown = (
        select(*(of_keys.c[name].label(told) for name, told in SHOWN.items()))
        .where(of_keys.c.cacheable_times > 0, *after_key(order, page.after, falling=(True, False, False)))
        .order_by(order[0].desc(), *order[1:])
        .limit(page.limit)
        .subquery("shown")
    )
    return (
        select(*sums.c, *shown.c)
        .join_from(sums, shown, true(), isouter=True)
        .order_by(shown.c.cacheable_gpu_ns.desc(), shown.c.phase, shown.c.work_key)
    )


def _steps(conn: Connection, scope: Scope) -> Row:
    query, values = statement(_replayed, scope, ())
    return exact_rows(conn, query, values)[0]


def _replayed(scope: Scope, by: Sequence[str]) -> Select[Any]:
    del by
    steps = attempts.c.steps_replayed
    replayed = case((func.count(steps) == func.count(), total(steps)), else_=None)
    query = (
        select(replayed.label("replayed_steps"))
        .where(attempts.c.summary.is_not(None), *inside(attempts.c.start_ns, scope.window))
        .select_from(attempts)
    )
    passing = job_passes(scope.filters, scope.window)
    if passing:
        query = query.join(jobs, jobs.c.job_id == attempts.c.job_id).where(*passing)
    return query


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
                is_one_of(ledger.c.component, scope.filters.component),
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
