"""The fleet's ETT, and what it held, in groups: sums only, ratios are the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Float, Numeric, Select, Text, cast, func, null, select, union_all

from fleet_ett.postgres.queries.booked import AMOUNTS, dimensions, job_passes, total
from fleet_ett.postgres.queries.chosen import Jobs, choose, only
from fleet_ett.postgres.queries.headings import sums_by_heading
from fleet_ett.postgres.queries.job_sums import job_sums
from fleet_ett.postgres.queries.kept import statement
from fleet_ett.postgres.queries.pages import of_page
from fleet_ett.postgres.queries.sums import Source, cells, lives_of, pieces_of
from fleet_ett.postgres.queries.weights import WEIGHTS
from fleet_ett.postgres.queries.weights import weights as weights_of
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import jobs
from fleet_ett.reads import RATIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause

    from fleet_ett.postgres.queries.headings import Signed
    from fleet_ett.reads import Page, Row, Scope


def sum_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Sums for ETT in groups of `by`, in the order of the groups; without `by` always one row."""
    part = of_page(conn, scope, by, page)
    found = _page_of_ett(conn, scope if part is None else part, by, page)
    if part is not None and len(found) < page.limit:  # bookings emptied some of these groups just now
        found = _page_of_ett(conn, scope, by, page)
    for row in found:
        row["headings"] = row["headings"] or {}
        row["gpu_headings"] = row["gpu_headings"] or {}
    return found


def sum_weights(conn: Connection, scope: Scope) -> Row:
    """How many jobs held something, and the sum of their ratios: what groups of times do not add up to."""
    chosen = choose(conn, scope, lives_of(scope, ()))
    if chosen is None:
        query, values = statement(_weights, scope, ())
    else:
        query, values = statement(_weights_of_jobs, scope, (), also=chosen[0].values())
    return exact_rows(conn, query, values)[0]


def _weights(scope: Scope, by: Sequence[str]) -> Select[Any]:
    rows = weights_of([(1, scope)], by, pieces_of(scope, by))
    return select(*(total(rows.c[name]).label(name) for name in WEIGHTS))


def _weights_of_jobs(scope: Scope, by: Sequence[str]) -> Select[Any]:
    return _weights(only(scope, Jobs.named()), by)


def _page_of_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    chosen = choose(conn, scope, lives_of(scope, by))
    if chosen is None:
        query, values = statement(_ett, scope, by, page)
    else:
        meant, others = chosen
        but_others = len(others) < len(meant) and _is_summed_up(scope, by)
        ids = others if but_others else meant
        query, values = statement(_ett_of_jobs, scope, by, page, but_others, also=ids.values())
    return exact_rows(conn, query, values, key=by)


def _ett(scope: Scope, by: Sequence[str], page: Page) -> Select[Any]:
    return _ett_of([(1, scope)], by, page)


def _ett_of_jobs(scope: Scope, by: Sequence[str], page: Page, but_others: bool) -> Select[Any]:  # noqa: FBT001
    """Of chosen jobs; or of all jobs but those, where they are fewer."""
    chosen = only(scope, Jobs.named())
    return _ett_of([(1, scope.by_names()), (-1, chosen)] if but_others else [(1, chosen)], by, page)


def _is_summed_up(scope: Scope, by: Sequence[str]) -> bool:
    """Whether the fleet's sums do without its jobs, but for the filters by what happened."""
    source = Source.of(scope.by_names(), by)
    return not source.of_single_jobs and len(source.names) <= 1


def _ett_of(scopes: Sequence[Signed], by: Sequence[str], page: Page) -> Select[Any]:
    """Rows by heading and rows of weights as one table, grouped once: joined groups are planned for as too few."""
    pieces = pieces_of(scopes[0][1], by)
    booked, weights = sums_by_heading(scopes, by, pieces), weights_of(scopes, by, pieces)
    no_weights = [cast(null(), Numeric).label(name) for name in WEIGHTS]
    no_cells = [cast(null(), Text).label("heading"), *(cast(null(), Numeric).label(name) for name in AMOUNTS)]
    rows = union_all(
        select(*booked.c, *no_weights),
        select(*(weights.c[name] for name in by), *no_cells, *(weights.c[name] for name in WEIGHTS)),
    ).subquery("rows")
    keys = [rows.c[name] for name in by]
    return (
        select(*keys, *(column.label(name) for name, column in _figures(rows).items()))
        .where(*after_key(keys, page.after))
        .group_by(*keys)
        .having(*([func.count(rows.c.heading).filter(rows.c.wall_ns > 0) > 0] if by else []))
        .order_by(*keys)
        .limit(page.limit)
    )


def sum_held(conn: Connection, scope: Scope, by: Sequence[str]) -> list[Row]:
    """What was held and what of it was productive (GPU-ns) in groups of `by`; without `by` always one row."""
    query, values = statement(held, scope, by)
    return exact_rows(conn, query, values)


def held(scope: Scope, by: Sequence[str]) -> Select[Any]:
    """The statement of `sum_held`."""
    source = Source.of(scope, by)
    by_job = source.of_single_jobs or len(source.names) > 1
    rows = job_sums(pieces_of(scope, by), lives_of(scope, by)) if by_job else cells(scope, by)
    productive = (
        total(rows.c.productive_gpu_ns) if by_job else total(rows.c.gpu_ns, rows.c.heading == "productive")
    )
    keys = dimensions(rows, by)
    query = select(*keys, total(rows.c.gpu_ns).label("gpu_ns"), productive.label("productive_gpu_ns"))
    if by_job:
        passing = job_passes(scope.filters, scope.window)
        query = query.join_from(rows, jobs, jobs.c.job_id == rows.c.job_id).where(*passing)
    return query.group_by(*keys) if by else query


def _figures(rows: FromClause) -> dict[str, ColumnElement[Any]]:
    """What a group comes to, of rows that are either cells of a heading or weights."""
    productive = rows.c.heading == "productive"
    told = rows.c.heading.is_not(None) & (rows.c.wall_ns > 0)
    jobs_held, ratios = (total(rows.c[name]) for name in WEIGHTS)
    return {
        **{name: total(rows.c[name]) for name in AMOUNTS},
        **{f"productive_{name}": total(rows.c[name], productive) for name in AMOUNTS[:2]},
        "settled_productive_gpu_ns": total(rows.c.settled_gpu_ns, productive),
        "headings": func.jsonb_object_agg(rows.c.heading, rows.c.wall_ns).filter(told),
        "gpu_headings": func.jsonb_object_agg(rows.c.heading, rows.c.gpu_ns).filter(told),
        "jobs": jobs_held,
        "ett_job_weighted": cast(ratios, Float) / func.nullif(cast(jobs_held, Float), 0, type_=Float) * RATIO,
        "ratios": ratios,
    }
