"""The fleet's ETT and its losses, in groups: sums only, ratios are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Float,
    Numeric,
    Select,
    and_,
    cast,
    func,
    literal_column,
    null,
    select,
    true,
    union_all,
)

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
    sums = _losses(scope, by)
    if sums is None:
        return []
    keys = [sums.c[name] for name in by]
    query = select(sums).where(*after_key(keys, page.after)).order_by(*keys).limit(page.limit)
    return [row | _unknown_to(scope, by) for row in exact_rows(conn, query, key=by)]


def list_worst(conn: Connection, scope: Scope, by: Sequence[str], most: int) -> list[Row]:
    """The groups that lost most, by whichever of the two views is larger."""
    sums = _losses(scope, by)
    if sums is None:
        return []
    amount = func.greatest(sums.c.direct_gpu_ns, sums.c.induced_gpu_ns)
    query = select(sums).order_by(amount.desc(), *(sums.c[name] for name in by)).limit(most)
    return [row | _unknown_to(scope, by) for row in exact_rows(conn, query)]


def _losses(scope: Scope, by: Sequence[str]) -> Subquery | None:
    parts = []
    if _shows_direct(scope, by):
        parts.append(_direct(scope, by))
    if _shows_induced(scope, by):
        parts.append(_induced(scope, by))
    if not parts:
        return None
    losses = union_all(*parts).subquery("losses")
    keys = [losses.c[name] for name in by]
    sums = [total(losses.c[name]).label(name) for name in (*DIRECT, *INDUCED)]
    return select(*keys, *sums).group_by(*keys).subquery("sums")


def _shows_direct(scope: Scope, by: Sequence[str]) -> bool:
    return not set(by) & set(INDUCED_BY) and not scope.filters.cause


def _shows_induced(scope: Scope, by: Sequence[str]) -> bool:
    return not set(by) & set(DIRECT_BY) and not scope.filters.phase


def _unknown_to(scope: Scope, by: Sequence[str]) -> Row:
    """The columns of the view that cannot answer: null, not 0."""
    hidden = () if _shows_direct(scope, by) else DIRECT
    return dict.fromkeys(hidden if _shows_induced(scope, by) else (*hidden, *INDUCED))


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
    amounts = [rows.c[name].label(label) for name, label in zip(AMOUNTS, DIRECT, strict=True)]
    return (
        select(*_dimensions(rows, by), *amounts, *_nothing(INDUCED))
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .outerjoin(owners, owners.c.component == rows.c.component)
        .where(
            rows.c.heading != "productive",
            *job_passes(scope.filters, scope.window, rows_have=("component", "phase", "cause")),
            *row_passes(rows, scope.filters, "component", "phase"),
        )
    )


def _induced(scope: Scope, by: Sequence[str]) -> Select[Any]:
    cost = sum((incidents.c[name] for name in COST[1:]), incidents.c[COST[0]])
    amounts: tuple[ColumnElement[Any], ...] = (
        cost,
        incidents.c.gpu_ns,
        literal_column("1::bigint"),
    )
    return (
        select(
            *_dimensions(incidents, by),
            *_nothing(DIRECT),
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


def _nothing(names: Sequence[str]) -> list[ColumnElement[Any]]:
    """Columns of the view that has nothing to say; an incident's GPU-ns exceed a bigint."""
    return [cast(null(), Numeric if name == "induced_gpu_ns" else BigInteger).label(name) for name in names]


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
