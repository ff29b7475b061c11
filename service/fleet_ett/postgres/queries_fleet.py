"""The fleet's ETT and its losses, in groups: sums only, ratios are the reader's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Float,
    Numeric,
    Select,
    Text,
    cast,
    func,
    literal_column,
    null,
    select,
    union_all,
)

from fleet_ett.postgres.queries_booked import (
    AMOUNTS,
    JOB_NAMES,
    TIMES,
    dimensions,
    inside,
    job_passes,
    row_passes,
    total,
)
from fleet_ett.postgres.queries_chosen import by_names, choose, only
from fleet_ett.postgres.queries_headings import sums_by_heading
from fleet_ett.postgres.queries_kept import statement
from fleet_ett.postgres.queries_pages import of_page
from fleet_ett.postgres.queries_sums import (
    Source,
    cells,
    job_sums,
    lives_of,
    pieces_of,
)
from fleet_ett.postgres.queries_weights import WEIGHTS
from fleet_ett.postgres.queries_weights import weights as weights_of
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import incidents, jobs, owners
from fleet_ett.reads import DIRECT_BY, INDUCED_BY, RATIO, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Subquery

    from fleet_ett.postgres.queries_chosen import Jobs
    from fleet_ett.postgres.queries_headings import Signed
    from fleet_ett.reads import Row, Scope

DIRECT = ("direct_ns", "direct_gpu_ns", "direct_settled_ns", "direct_settled_gpu_ns")
INDUCED = ("induced_ns", "induced_gpu_ns", "incidents")
COST = ("stall_ns", "gap_ns", "restart_ns", "replay_ns")


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


def _page_of_ett(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    chosen = choose(conn, scope, lives_of(scope, by))
    if chosen is None:
        query, values = statement(_ett, scope, by, page)
        return exact_rows(conn, query, values, key=by)
    return exact_rows(conn, _ett_of(_signed(scope, by, *chosen), by, page), key=by)


def _ett(scope: Scope, by: Sequence[str], page: Page) -> Select[Any]:
    return _ett_of([(1, scope)], by, page)


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
        .having(*([func.count(rows.c.heading) > 0] if by else []))
        .order_by(*keys)
        .limit(page.limit)
    )


def _signed(scope: Scope, by: Sequence[str], meant: Jobs, others: Jobs) -> list[Signed]:
    """The jobs that are meant; or all jobs but the others, where those are fewer and the fleet is summed up."""
    rest = by_names(scope)
    source = Source.of(rest, by)
    if others.size < meant.size and not source.of_single_jobs and len(source.names) <= 1:
        return [(1, rest), (-1, only(scope, others))]
    return [(1, only(scope, meant))]


def sum_held(conn: Connection, scope: Scope, by: Sequence[str]) -> list[Row]:
    """What was held and what of it was productive (GPU-ns) in groups of `by`; without `by` always one row."""
    query, values = statement(_held, scope, by)
    return exact_rows(conn, query, values)


def _held(scope: Scope, by: Sequence[str]) -> Select[Any]:
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


def sum_lost_time(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Direct and induced loss in groups of `by`; the view that does not know a group of `by` is null."""
    part = of_page(conn, scope, by, page) if by[:1] == ("job",) else None
    found = _page_of_losses(conn, scope if part is None else part, by, page)
    if part is not None and len(found) < page.limit:  # some of these jobs lost nothing
        found = _page_of_losses(conn, scope, by, page)
    return [row | _unknown_to(scope, by) for row in found]


def _page_of_losses(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    if not (_shows_direct(scope, by) or _shows_induced(scope, by)):
        return []
    query, values = statement(_lost, scope, by, page)
    return exact_rows(conn, query, values, key=by)


def _lost(scope: Scope, by: Sequence[str], page: Page) -> Select[Any]:
    sums = _losses(scope, by)
    keys = [sums.c[name] for name in by]
    return select(sums).where(*after_key(keys, page.after)).order_by(*keys).limit(page.limit)


def list_worst_jobs(conn: Connection, scope: Scope, most: int) -> list[Row]:
    """The jobs that lost most, by whichever of the two views is larger; what else they lost is asked of these alone."""
    if not (_shows_direct(scope, ("job",)) or _shows_induced(scope, ("job",))):
        return []
    query, values = statement(_worst, scope, ("job_id",), most)
    names = [str(name) for name in conn.scalars(query, values)]
    if not names:
        return []
    own = replace(scope, filters=replace(scope.filters, job=tuple(names)))
    rows = {str(row["job"]): row for row in _page_of_losses(conn, own, ("job",), Page(most))}
    return [rows[name] | _unknown_to(scope, ("job",)) for name in names]


def _worst(scope: Scope, by: Sequence[str], most: int) -> Select[Any]:
    sums = _losses(scope, by)
    amount = func.greatest(sums.c.direct_gpu_ns, sums.c.induced_gpu_ns).label("amount")
    worst = select(sums.c.job_id, amount).order_by(amount.desc(), sums.c.job_id).limit(most).subquery("worst")
    named = select(jobs.c.job).join_from(worst, jobs, jobs.c.job_id == worst.c.job_id)
    return named.order_by(worst.c.amount.desc(), jobs.c.job)


def _losses(scope: Scope, by: Sequence[str]) -> Subquery:
    """Of at least one of the two views."""
    parts = []
    if _shows_direct(scope, by):
        parts.append(_direct(scope, by))
    if _shows_induced(scope, by):
        parts.append(_induced(scope, by))
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


def _figures(rows: FromClause) -> dict[str, ColumnElement[Any]]:
    """What a group comes to, of rows that are either cells of a heading or weights."""
    productive, told = rows.c.heading == "productive", rows.c.heading.is_not(None)
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
        select(*dimensions(rows, by), *amounts, *_nothing(INDUCED))
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
        select(*dimensions(rows, by), *amounts, *_nothing(INDUCED))
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
            *dimensions(incidents, by),
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
