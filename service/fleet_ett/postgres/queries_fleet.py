"""The fleet's ETT and its losses, in groups: sums only, ratios are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Float, Numeric, Select, and_, cast, func, literal_column, null, select, true, union_all

from fleet_ett.postgres.queries_booked import (
    AMOUNTS,
    JOB_NAMES,
    booked,
    inside,
    job_passes,
    period,
    row_passes,
    total,
)
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import incidents, jobs, owners
from fleet_ett.reads import DIRECT_BY, INDUCED_BY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Subquery

    from fleet_ett.reads import Page, Row, Scope

TIMES = ("hour", "day", "week")
DIRECT = ("direct_ns", "direct_gpu_ns", "direct_settled_ns", "direct_settled_gpu_ns")
INDUCED = ("induced_ns", "induced_gpu_ns", "incidents")
COST = ("stall_ns", "gap_ns", "restart_ns", "replay_ns")


def sum_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Sums for ETT in groups of `by`, in the order of the groups; without `by` always one row."""
    cells = _cells(scope, by)
    sums, headings = _ett_by_group(cells, by), _headings_by_group(cells, by)
    same = and_(true(), *(sums.c[name] == headings.c[name] for name in by))
    keys = [sums.c[name] for name in by]
    shown = [column for column in sums.c if column.name not in by]
    parts = (headings.c.headings, headings.c.gpu_headings)
    query = select(*keys, *shown, *parts).join_from(sums, headings, same, isouter=not by)
    query = query.where(*after_key(keys, page.after)).order_by(*keys).limit(page.limit)
    found = exact_rows(conn, query, key=by)
    for row in found:
        row["headings"] = row["headings"] or {}
        row["gpu_headings"] = row["gpu_headings"] or {}
    return found


def sum_lost_time(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Direct and induced loss in groups of `by`; the view that does not know a group of `by` is null."""
    shows_direct = not set(by) & set(INDUCED_BY) and not scope.filters.cause
    shows_induced = not set(by) & set(DIRECT_BY) and not scope.filters.phase
    parts = []
    if shows_direct:
        parts.append(_direct(scope, by))
    if shows_induced:
        parts.append(_induced(scope, by))
    if not parts:
        return []
    losses = union_all(*parts).subquery("losses")
    keys = [losses.c[name] for name in by]
    sums = [total(losses.c[name]).label(name) for name in (*DIRECT, *INDUCED)]
    query = (
        select(*keys, *sums)
        .where(*after_key(keys, page.after))
        .group_by(*keys)
        .order_by(*keys)
        .limit(page.limit)
    )
    found = exact_rows(conn, query, key=by)
    hidden = (() if shows_direct else DIRECT) + (() if shows_induced else INDUCED)
    return [row | dict.fromkeys(hidden) for row in found]


def _cells(scope: Scope, by: Sequence[str]) -> FromClause:
    """Sums by group, job and heading."""
    rows = booked(scope.window)
    named = (
        select(*_dimensions(rows, by), rows.c.job_id, rows.c.heading, *(rows.c[name] for name in AMOUNTS))
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .where(*job_passes(scope.filters, scope.window))
        .subquery("named")
    )
    keys = [named.c[name] for name in (*by, *(n for n in ("job_id", "heading") if n not in by))]
    return select(*keys, *(total(named.c[name]).label(name) for name in AMOUNTS)).group_by(*keys).cte("cells")


def _ett_by_group(cells: FromClause, by: Sequence[str]) -> Subquery:
    keys = [cells.c[name] for name in by]
    productive = cells.c.heading == "productive"
    sums = {
        **{name: total(cells.c[name]) for name in AMOUNTS},
        **{f"productive_{name}": total(cells.c[name], productive) for name in AMOUNTS[:2]},
        "settled_productive_gpu_ns": total(cells.c.settled_gpu_ns, productive),
    }
    one = select(*keys, cells.c.job_id, *(column.label(name) for name, column in sums.items()))
    jobs_of = one.group_by(*keys, cells.c.job_id).subquery("jobs_of")
    held = jobs_of.c.wall_ns > 0
    ratio = func.avg(jobs_of.c.productive_wall_ns / func.nullif(jobs_of.c.wall_ns, 0))
    keys = [jobs_of.c[name] for name in by]
    query = select(
        *keys,
        func.count().filter(held).label("jobs"),
        cast(ratio, Float).label("ett_job_weighted"),
        *(total(jobs_of.c[name]).label(name) for name in sums),
    )
    return query.group_by(*keys).subquery("sums") if by else query.subquery("sums")


def _headings_by_group(cells: FromClause, by: Sequence[str]) -> Subquery:
    keys = [cells.c[name] for name in by]
    amounts = [total(cells.c[name]).label(name) for name in ("wall_ns", "gpu_ns")]
    one = select(*keys, cells.c.heading, *amounts).group_by(*keys, cells.c.heading).subquery("heading_sums")
    keys = [one.c[name] for name in by]
    objects = [
        func.jsonb_object_agg(one.c.heading, one.c[name]).label(label)
        for name, label in (("wall_ns", "headings"), ("gpu_ns", "gpu_headings"))
    ]
    query = select(*keys, *objects)
    return query.group_by(*keys).subquery("headings") if by else query.subquery("headings")


def _direct(scope: Scope, by: Sequence[str]) -> Select[Any]:
    rows = booked(scope.window)
    amounts: list[ColumnElement[Any]] = [
        cast(rows.c[name], Numeric).label(label) for name, label in zip(AMOUNTS, DIRECT, strict=True)
    ]
    return (
        select(*_dimensions(rows, by), *amounts, *(cast(null(), Numeric).label(name) for name in INDUCED))
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .outerjoin(owners, owners.c.component == rows.c.component)
        .where(
            rows.c.heading != "productive",
            *job_passes(scope.filters, scope.window, rows_have=("component", "phase", "cause")),
            *row_passes(rows, scope.filters, "component", "phase"),
        )
    )


def _induced(scope: Scope, by: Sequence[str]) -> Select[Any]:
    cost = cast(sum((incidents.c[name] for name in COST[1:]), incidents.c[COST[0]]), Numeric)
    amounts: tuple[ColumnElement[Any], ...] = (
        cost,
        cast(incidents.c.gpu_ns, Numeric),
        literal_column("1::numeric"),
    )
    return (
        select(
            *_dimensions(incidents, by),
            *(cast(null(), Numeric).label(name) for name in DIRECT),
            *(amount.label(name) for amount, name in zip(amounts, INDUCED, strict=True)),
        )
        .join_from(incidents, jobs, jobs.c.job_id == incidents.c.job_id)
        .outerjoin(owners, owners.c.component == incidents.c.component)
        .where(
            *inside(incidents.c.at_ns, scope.window),
            *job_passes(scope.filters, scope.window, rows_have=("component", "phase", "cause")),
            *row_passes(incidents, scope.filters, "component", "cause"),
        )
    )


def _dimensions(rows: FromClause, by: Sequence[str]) -> list[ColumnElement[Any]]:
    """The columns of the groups, from the rows, their jobs and the owners of their components."""
    moment = rows.c.get("hour_ns")
    moment = rows.c.at_ns if moment is None else moment
    out: list[ColumnElement[Any]] = []
    for name in by:
        if name in TIMES:
            column: ColumnElement[Any] = period(moment, name)
        elif name in JOB_NAMES:
            column = jobs.c[name]
        elif name == "owner":
            column = func.coalesce(owners.c.owner, rows.c.component)
        else:
            column = rows.c[name]
        out.append(column.label(name))
    return out
