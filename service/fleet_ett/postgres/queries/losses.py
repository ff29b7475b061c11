"""What was lost, in groups: direct (whose phase it was) and induced (who ended the attempt)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Numeric,
    Select,
    case,
    cast,
    false,
    func,
    literal_column,
    null,
    or_,
    select,
    union_all,
)

from fleet_ett.postgres.queries.booked import (
    AMOUNTS,
    JOB_NAMES,
    TIMES,
    dimensions,
    inside,
    job_passes,
    row_passes,
    total,
)
from fleet_ett.postgres.queries.job_sums import job_sums
from fleet_ett.postgres.queries.kept import statement
from fleet_ett.postgres.queries.pages import of_component, of_page
from fleet_ett.postgres.queries.sums import Source, cells, lives_of, pieces_of
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import incidents, jobs, owners
from fleet_ett.reads import DIRECT_BY, INDUCED_BY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Subquery

    from fleet_ett.postgres.queries.lives import Lives
    from fleet_ett.reads import Page, Row, Scope

DIRECT = ("direct_ns", "direct_gpu_ns", "direct_settled_ns", "direct_settled_gpu_ns")
INDUCED = ("induced_ns", "induced_gpu_ns", "incidents")
JOB_ID = ("job_id",)
LOST_HAVE = ("component", "phase", "cause")  # filters that are left to the rows
COST = ("stall_ns", "gap_ns", "restart_ns", "replay_ns")


def sum_lost_time(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """Direct and induced loss in groups of `by`; the view that does not know a group of `by` is null."""
    of_part = of_page if by[:1] == ("job",) else of_component
    part = of_part(conn, scope, by, page)
    found = page_of_losses(conn, scope if part is None else part, by, page)
    # some of these jobs lost nothing, or the next component comes in
    if part is not None and len(found) < page.limit:
        found = page_of_losses(conn, scope, by, page)
    return [row | unknown_to(scope, by) for row in found]


def page_of_losses(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
    """The same, whatever part of the scope the page is of."""
    if not is_shown(scope, by):
        return []
    query, values = statement(lost, scope, by, page)
    return exact_rows(conn, query, values, key=by)


def lost(scope: Scope, by: Sequence[str], page: Page) -> Select[Any]:
    """The statement of `sum_lost_time`, where there is anything to be shown."""
    sums = _losses(scope, by)
    keys = [sums.c[name] for name in by]
    return select(sums).where(*after_key(keys, page.after)).order_by(*keys).limit(page.limit)


def _losses(scope: Scope, by: Sequence[str]) -> Subquery:
    """Of at least one of the two views."""
    parts = []
    if _shows_direct(scope, by):
        parts.append(_direct(scope, by))
    if _shows_induced(scope, by):
        parts.append(_induced(scope, by))
    losses = union_all(*parts).subquery("losses")
    keys = [losses.c[name] for name in by]
    sums = {name: total(losses.c[name]) for name in (*DIRECT, *INDUCED)}
    query = select(*keys, *(one.label(name) for name, one in sums.items())).group_by(*keys)
    # what is taken away again may leave nothing of a group
    return (query.having(or_(sums["direct_ns"] > 0, sums["incidents"] > 0)) if by else query).subquery("sums")


def worst_jobs(scope: Scope, most: int) -> Select[Any]:
    """The statement of the jobs among which those are that lost most, by whichever view is larger.

    Where the window cuts lives, a job is there for all that it ever lost, unless so many that lie whole in the window
    lost more.
    """
    lives = lives_of(scope, ())
    if lives.are_all or not lives.used:
        sums = _losses(scope, ("job_id",))
        amount = func.greatest(sums.c.direct_gpu_ns, sums.c.induced_gpu_ns)
        worst = select(sums.c.job_id).order_by(amount.desc(), sums.c.job_id).limit(most).subquery("worst")
        return select(jobs.c.job).join_from(worst, jobs, jobs.c.job_id == worst.c.job_id)
    ranked = _ranked(scope, lives).cte("ranked")
    enough = select(ranked.c.amount).where(ranked.c.whole, ranked.c.place == most).scalar_subquery()
    asked = case((ranked.c.whole, ranked.c.place <= most), else_=ranked.c.amount >= func.coalesce(enough, 0))
    return select(jobs.c.job).join_from(ranked, jobs, jobs.c.job_id == ranked.c.job_id).where(asked)


def _ranked(scope: Scope, lives: Lives) -> Select[Any]:
    """Jobs with time in the window, whether that is all of theirs, and what all of it lost: GPU-ns, and its place."""
    parts = []
    if _shows_direct(scope, JOB_ID):
        rows = union_all(*Source.of(scope, JOB_ID, LOST_HAVE).whole_lives(lives)).subquery("rows")
        lost_ns = rows.c.gpu_ns.label("direct_gpu_ns")
        of_rows = select(rows.c.job_id, rows.c.whole, lost_ns, *_nothing(("induced_gpu_ns",)))
        parts.append(of_rows.where(rows.c.heading != "productive"))
    if _shows_induced(scope, JOB_ID):
        cost = _induced(scope, JOB_ID).subquery("cost")
        whole = func.coalesce(lives.whole(), false()).label("whole")
        of_cost = select(cost.c.job_id, whole, cost.c.direct_gpu_ns, cost.c.induced_gpu_ns)
        parts.append(of_cost.join_from(cost, jobs, jobs.c.job_id == cost.c.job_id))
    rows = union_all(*parts).subquery("lost")
    amount = func.greatest(total(rows.c.direct_gpu_ns), total(rows.c.induced_gpu_ns)).label("amount")
    sums = select(rows.c.job_id, rows.c.whole, amount).group_by(rows.c.job_id, rows.c.whole).subquery("sums")
    place = func.row_number().over(partition_by=sums.c.whole, order_by=sums.c.amount.desc())
    return select(*sums.c, place.label("place"))


def is_shown(scope: Scope, by: Sequence[str]) -> bool:
    """Whether one of the views knows these groups."""
    return _shows_direct(scope, by) or _shows_induced(scope, by)


def _shows_direct(scope: Scope, by: Sequence[str]) -> bool:
    return not set(by) & set(INDUCED_BY) and not scope.filters.cause


def _shows_induced(scope: Scope, by: Sequence[str]) -> bool:
    return not set(by) & set(DIRECT_BY) and not scope.filters.phase


def unknown_to(scope: Scope, by: Sequence[str]) -> Row:
    """The columns of the view that cannot answer: null, not 0."""
    hidden = () if _shows_direct(scope, by) else DIRECT
    return dict.fromkeys(hidden if _shows_induced(scope, by) else (*hidden, *INDUCED))


def _direct(scope: Scope, by: Sequence[str]) -> Select[Any]:
    if not set(by) - {*JOB_NAMES, *TIMES} and not (scope.filters.component or scope.filters.phase):
        source = Source.of(scope, by, ("cause",))
        if source.of_single_jobs or len(source.names) > 1:
            return _direct_of_jobs(scope, by)
    rows = cells(scope, by, rows_have=LOST_HAVE)
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
            *job_passes(scope.filters, scope.window, rows_have=LOST_HAVE),
            *row_passes(incidents, scope.filters, "component", "cause"),
        )
    )


def _nothing(names: Sequence[str]) -> list[ColumnElement[Any]]:
    """Columns of the view that has nothing to say; an incident's GPU-ns exceed a bigint."""
    return [cast(null(), Numeric if name == "induced_gpu_ns" else BigInteger).label(name) for name in names]
