"""Nodes by what they cost others, and the quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Numeric,
    cast,
    func,
    literal,
    literal_column,
    select,
    tuple_,
    union_all,
)

from fleet_ett.postgres.event_rows import FAULT
from fleet_ett.postgres.queries.booked import inside, job_passes, row_passes, total
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import events, held_up, incidents, jobs, nodes, quarantine, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from sqlalchemy import ColumnElement, Connection, FromClause, Select

    from fleet_ett.reads import Page, Row, Scope, Window

    Chosen = Callable[[ColumnElement[int]], list[ColumnElement[bool]]]

SHOWN = ("id", "node", "incarnation", "seq", "position", "reason", "event")
SUMS = ("held_ns", "held_gpu_ns", "failures", "infra_failures", "induced_gpu_ns")


def list_nodes(conn: Connection, scope: Scope, page: Page) -> list[Row]:
    """Nodes by the GPU time for which others waited for them, falling.

    Filters by component and phase choose the time for which others waited, and a component or a cause the failures;
    other filters choose jobs: a cause those that had such an incident, a phase those whose failures count. Faults
    have none of these, so they are all counted unless jobs are chosen. Without filters the list also holds nodes
    that cost nobody anything.
    """
    chosen = _chosen(conn, scope)
    rows = _page(conn, scope, chosen, page, _first(conn, scope, chosen, page))
    names = [str(row["node"]) for row in rows]
    faults, held_jobs = _count_faults(conn, scope, chosen, names), _count_jobs(conn, scope, chosen, names)
    for row in rows:
        row["faults"] = faults.get(str(row["node"]), 0)
        row["jobs"] = held_jobs.get(str(row["node"]), 0)
    return rows


def _first(conn: Connection, scope: Scope, chosen: Chosen, page: Page) -> list[str] | None:
    """The page's nodes, where all of them cost others something: what else is known is asked of these alone."""
    held = _held(scope, chosen).subquery("held")
    keys = [held.c.held_gpu_ns, held.c.node]
    query = (
        select(held.c.node)
        .where(held.c.held_gpu_ns > 0, *after_key(keys, page.after, falling=(True, False)))
        .order_by(keys[0].desc(), keys[1])
        .limit(page.limit)
    )
    names = list(conn.execute(query).scalars())
    return names if len(names) == page.limit else None


def _page(
    conn: Connection, scope: Scope, chosen: Chosen, page: Page, names: Sequence[str] | None
) -> list[Row]:
    """The rows of a page; `names`: of these nodes, which are all of it."""
    held, failed = _held(scope, chosen, names), _failed(scope)
    known = [] if _is_filtered(scope) else [_known()]
    if names is not None:
        failed, known = failed.where(incidents.c.node.in_(names)), []
    parts = union_all(held, failed, *known).subquery("parts")
    sums = (
        select(parts.c.node, *(total(parts.c[name]).label(name) for name in SUMS))
        .group_by(parts.c.node)
        .subquery("sums")
    )
    keys = [sums.c.held_gpu_ns, sums.c.node]
    query = (
        select(
            sums,
            nodes.c.last_seen_ns.label("last_seen"),
            nodes.c.clock_offset_ns,
            nodes.c.agent_version,
        )
        .join_from(sums, nodes, nodes.c.node == sums.c.node, isouter=True)
        .where(*after_key(keys, page.after, falling=(True, False)))
        .order_by(keys[0].desc(), keys[1])
        .limit(page.limit)
    )
    return exact_rows(conn, query, key=("held_gpu_ns", "node"))


def list_quarantine(conn: Connection, window: Window, node: Sequence[str], page: Page) -> list[Row]:
    """Refused events, the newest first."""
    query = (
        select(*(quarantine.c[name] for name in SHOWN), quarantine.c.received_ns.label("received"))
        .where(
            *inside(quarantine.c.received_ns, window),
            *([quarantine.c.node.in_(node)] if node else []),
            *after_key([quarantine.c.id], page.after, falling=(True,)),
        )
        .order_by(quarantine.c.id.desc())
        .limit(page.limit)
    )
    return exact_rows(conn, query, key=("id",))


def _chosen(conn: Connection, scope: Scope) -> Callable[[ColumnElement[int]], list[ColumnElement[bool]]]:
    """Whether a job's id is one that the filters of jobs choose; asked once for all questions about nodes."""
    passing = job_passes(scope.filters, scope.window, rows_have=("component", "phase"))
    if not passing:
        return lambda _: []
    ids = list(conn.execute(select(jobs.c.job_id).where(*passing)).scalars())
    return lambda job_id: [job_id.in_(select(func.unnest(literal(ids, ARRAY(BigInteger)))))]


def _count_faults(conn: Connection, scope: Scope, chosen: Chosen, names: Sequence[str]) -> dict[str, int]:
    """Faults that the nodes reported in the window, each once; where jobs are chosen, those that name one of them."""
    # not by source id: of several servers each may have what a node says beside all jobs, under ids of its own
    told = tuple_(sources.c.incarnation, events.c.seq)
    query = (
        select(sources.c.node, func.count(told.distinct()).label("faults"))
        .join_from(sources, events, events.c.source_id == sources.c.source_id)
        .where(
            sources.c.node.in_(names),
            events.c.type == literal_column(str(FAULT)),
            *inside(events.c.start_ns, scope.window),
        )
        .group_by(sources.c.node)
    )
    query = query.where(*chosen(events.c.job_id))
    return {row.node: row.faults for row in conn.execute(query)}


def _count_jobs(conn: Connection, scope: Scope, chosen: Chosen, names: Sequence[str]) -> dict[str, int]:
    """How many jobs each of the nodes held up."""
    rows = _held_up(scope, names)
    query = (
        select(rows.c.node, func.count(rows.c.job_id.distinct()).label("jobs"))
        .where(*chosen(rows.c.job_id))
        .group_by(rows.c.node)
    )
    return {row.node: row.jobs for row in conn.execute(query)}


def _held(scope: Scope, chosen: Chosen, names: Sequence[str] | None = None) -> Select[Any]:
    """What was held by each node, or by these."""
    rows = _held_up(scope, names)
    zero = literal(0, Numeric)
    held_ns, held_gpu_ns = func.sum(rows.c.wall_ns), func.sum(rows.c.gpu_ns)
    sums = select(rows.c.node, held_ns.label("held_ns"), held_gpu_ns.label("held_gpu_ns"))
    return (
        sums.add_columns(*(zero.label(name) for name in SUMS[2:]))
        .where(*chosen(rows.c.job_id))
        .group_by(rows.c.node)
    )


def _held_up(scope: Scope, names: Sequence[str] | None) -> FromClause:
    """The rows of the window that pass; those of some nodes are found first, and only then asked for their jobs."""
    query = select(held_up).where(
        *inside(held_up.c.hour_ns, scope.window), *row_passes(held_up, scope.filters, "component", "phase")
    )
    return (query if names is None else query.where(held_up.c.node.in_(names)).offset(0)).subquery("held_up")


def _failed(scope: Scope) -> Select[Any]:
    zero = literal(0, Numeric)
    passing = job_passes(scope.filters, scope.window, rows_have=("component", "cause"))
    rows = select(
        incidents.c.node,
        zero.label("held_ns"),
        zero.label("held_gpu_ns"),
        cast(func.count(), Numeric).label("failures"),
        cast(func.count().filter(incidents.c.kind == "infra"), Numeric).label("infra_failures"),
        func.sum(incidents.c.gpu_ns).label("induced_gpu_ns"),
    ).where(
        incidents.c.node.is_not(None),
        incidents.c.kind != "planned",
        *inside(incidents.c.at_ns, scope.window),
        *row_passes(incidents, scope.filters, "component", "cause"),
    )
    if passing:
        rows = rows.join(jobs, jobs.c.job_id == incidents.c.job_id).where(*passing)
    return rows.group_by(incidents.c.node)


def _known() -> Select[Any]:
    zero = literal(0, Numeric)
    return select(nodes.c.node, *(zero.label(name) for name in SUMS))


def _is_filtered(scope: Scope) -> bool:
    filters = scope.filters
    return any(getattr(filters, name) for name in type(filters).__dataclass_fields__)
