"""The fleet's ETT and its losses, in groups: sums only, ratios are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
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
    choose,
    inside,
    job_passes,
    period,
    row_passes,
    total,
)
from fleet_ett.postgres.queries_pages import of_page
from fleet_ett.postgres.queries_sums import OF_JOBS, TIMES, Source, cells, job_sums, lives_of, pieces_of
from fleet_ett.postgres.queries_weights import weights as weights_of
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import incidents, jobs, owners
from fleet_ett.reads import DIRECT_BY, INDUCED_BY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Subquery

    from fleet_ett.postgres.queries_windows import Pieces
    from fleet_ett.reads import Page, Row, Scope

DIRECT = ("direct_ns", "direct_gpu_ns", "direct_settled_ns", "direct_settled_gpu_ns")
INDUCED = ("induced_ns", "induced_gpu_ns", "incidents")
COST = ("stall_ns", "gap_ns", "restart_ns", "replay_ns")


def sum_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Sums for ETT in groups of `by`, in the order of the groups; without `by` always one row."""
    scope = choose(conn, scope)
    part = of_page(conn, scope, by, page)
    found = _page_of_ett(conn, scope if part is None else part, by, page)
    if part is not None and len(found) < page.limit:  # bookings emptied some of these groups just now
        found = _page_of_ett(conn, scope, by, page)
    for row in found:
        row["headings"] = row["headings"] or {}
        row["gpu_headings"] = row["gpu_headings"] or {}
    return found


def _page_of_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    pieces = pieces_of(scope, by)
    booked = _by_heading(scope, by, pieces)
    sums, headings, weights = _sums(booked, by), _headings_by_group(booked, by), weights_of(scope, by, pieces)
    same, of_group = (
        and_(true(), *(sums.c[name] == part.c[name] for name in by)) for part in (headings, weights)
    )
    jobs_held = func.coalesce(weights.c.jobs, 0).label("jobs")
    ratios = func.coalesce(weights.c.ratios, 0).label("ratios")
    parts = (headings.c.headings, headings.c.gpu_headings, jobs_held, weights.c.ett_job_weighted, ratios)
    keys = [sums.c[name] for name in by]
    query = (
        select(*sums.c, *parts)
        .join_from(sums, headings, same, isouter=not by)
        .outerjoin(weights, of_group)
        .where(*after_key(keys, page.after))
        .order_by(*keys)
        .limit(page.limit)
    )
    return exact_rows(conn, query, key=by)


def sum_held(conn: Connection, scope: Scope, by: Sequence[str]) -> list[Row]:
    """What was held and what of it was productive (GPU-ns) in groups of `by`; without `by` always one row."""
    source = Source(scope, tuple(name for name in OF_JOBS if name in by))
    by_job = source.of_single_jobs or len(source.names) > 1
    rows = job_sums(pieces_of(scope, by), lives_of(scope, by)) if by_job else cells(scope, by)
    productive = (
        total(rows.c.productive_gpu_ns) if by_job else total(rows.c.gpu_ns, rows.c.heading == "productive")
    )
    keys = _dimensions(rows, by)
    query = select(*keys, total(rows.c.gpu_ns).label("gpu_ns"), productive.label("productive_gpu_ns"))
    if by_job:
        passing = job_passes(scope.filters, scope.window)
        query = query.join_from(rows, jobs, jobs.c.job_id == rows.c.job_id).where(*passing)
    return exact_rows(conn, query.group_by(*keys) if by else query)


def sum_lost_time(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Direct and induced loss in groups of `by`; the view that does not know a group of `by` is null."""
    part = of_page(conn, scope, by, page) if by[:1] == ("job",) else None
    found = _page_of_losses(conn, scope if part is None else part, by, page)
    if part is not None and len(found) < page.limit:  # some of these jobs lost nothing
        found = _page_of_losses(conn, scope, by, page)
    return [row | _unknown_to(scope, by) for row in found]


def _page_of_losses(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    sums = _losses(scope, by)
    if sums is None:
        return []
    keys = [sums.c[name] for name in by]
    query = select(sums).where(*after_key(keys, page.after)).order_by(*keys).limit(page.limit)
    return exact_rows(conn, query, key=by)


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


def _by_heading(scope: Scope, by: Sequence[str], pieces: Pieces) -> FromClause:
    """Sums by group and heading."""
    rows = cells(scope, by, pieces=pieces)
    named = select(*_dimensions(rows, by), rows.c.heading, *(rows.c[name] for name in AMOUNTS)).subquery(
        "named"
    )
    keys = [named.c[name] for name in (*by, "heading")]
    summed = select(*keys, *(total(named.c[name]).label(name) for name in AMOUNTS)).group_by(*keys)
    return summed.having(func.sum(named.c.wall_ns) > 0).cte("by_heading")


def _sums(booked: FromClause, by: Sequence[str]) -> Subquery:
    keys = [booked.c[name] for name in by]
    productive = booked.c.heading == "productive"
    sums = {
        **{name: total(booked.c[name]) for name in AMOUNTS},
        **{f"productive_{name}": total(booked.c[name], productive) for name in AMOUNTS[:2]},
        "settled_productive_gpu_ns": total(booked.c.settled_gpu_ns, productive),
    }
    query = select(*keys, *(column.label(name) for name, column in sums.items()))
    return query.group_by(*keys).subquery("sums") if by else query.subquery("sums")


def _headings_by_group(booked: FromClause, by: Sequence[str]) -> Subquery:
    keys = [booked.c[name] for name in by]
    amounts = [total(booked.c[name]).label(name) for name in ("wall_ns", "gpu_ns")]
    one = select(*keys, booked.c.heading, *amounts).group_by(*keys, booked.c.heading).subquery("heading_sums")
    keys = [one.c[name] for name in by]
    objects = [
        func.jsonb_object_agg(one.c.heading, one.c[name]).label(label)
        for name, label in (("wall_ns", "headings"), ("gpu_ns", "gpu_headings"))
    ]
    query = select(*keys, *objects)
    return query.group_by(*keys).subquery("headings") if by else query.subquery("headings")


def _direct(scope: Scope, by: Sequence[str]) -> Select[Any]:
    if (
        "job" in by
        and not set(by) - {*JOB_NAMES, *TIMES}
        and not (scope.filters.component or scope.filters.phase)
    ):
        return _direct_of_jobs(scope, by)
    rows = cells(scope, by, rows_have=("component", "phase", "cause"))
    amounts = [rows.c[name].label(label) for name, label in zip(AMOUNTS, DIRECT, strict=True)]
    return (
        select(*_dimensions(rows, by), *amounts, *_nothing(INDUCED))
        .select_from(rows)
        .outerjoin(owners, owners.c.component == rows.c.component)
        .where(rows.c.heading != "productive")
    )


def _direct_of_jobs(scope: Scope, by: Sequence[str]) -> Select[Any]:
    """What a job held and did not use, without asking whose it was."""
    rows = job_sums(pieces_of(scope, by), lives_of(scope, by))
    parts = (rows.c.wall_ns - rows.c.productive_wall_ns, rows.c.gpu_ns - rows.c.productive_gpu_ns)
    settled = (
        rows.c.settled_wall_ns - rows.c.settled_productive_wall_ns,
        rows.c.settled_gpu_ns - rows.c.settled_productive_gpu_ns,
    )
    amounts = [part.label(label) for part, label in zip((*parts, *settled), DIRECT, strict=True)]
    return (
        select(*_dimensions(rows, by), *amounts, *_nothing(INDUCED))
        .join_from(rows, jobs, jobs.c.job_id == rows.c.job_id)
        .where(parts[0] != 0, *job_passes(scope.filters, scope.window))
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
            column = rows.c[name] if name in rows.c else jobs.c[name]
        elif name == "owner":
            column = func.coalesce(owners.c.owner, rows.c.component)
        else:
            column = rows.c[name]
        out.append(column.label(name))
    return out
