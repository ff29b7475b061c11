"""Nodes by what they cost others, and the quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Numeric, case, cast, func, literal, literal_column, null, select, tuple_, union_all

from fleet_ett.postgres.event_rows import FAULT
from fleet_ett.postgres.queries_booked import inside, job_passes, row_passes, total
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import events, held_up, incidents, jobs, nodes, quarantine, sources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sqlalchemy import Connection, Select

    from fleet_ett.reads import Page, Row, Scope, Window

SHOWN = ("id", "node", "incarnation", "seq", "position", "reason", "event")
SUMS = ("held_ns", "held_gpu_ns", "failures", "infra_failures", "induced_gpu_ns")


def list_nodes(conn: Connection, scope: Scope, page: Page) -> list[Row]:
    """Nodes by the GPU time for which others waited for them, falling.

    Without filters the list also holds nodes that cost nobody anything.
    """
    parts = union_all(_held(scope), _failed(scope), *([] if _is_filtered(scope) else [_known()])).subquery(
        "parts"
    )
    sums = (
        select(
            parts.c.node,
            *(total(parts.c[name]).label(name) for name in SUMS),
            func.count(parts.c.job_id.distinct()).label("jobs"),
        )
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
    rows = exact_rows(conn, query, key=("held_gpu_ns", "node"))
    faults = _count_faults(conn, scope, [str(row["node"]) for row in rows])
    for row in rows:
        row["faults"] = faults.get(str(row["node"]), 0)
    return rows


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


def _count_faults(conn: Connection, scope: Scope, names: Sequence[str]) -> dict[str, int]:
    """Faults that the nodes reported in the window, each once; with filters, those that name a job of theirs."""
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
    if _is_filtered(scope):
        concerned = select(jobs.c.job_id).where(*job_passes(scope.filters, scope.window))
        query = query.where(events.c.job_id.in_(concerned))
    return {row.node: row.faults for row in conn.execute(query)}


def _held(scope: Scope) -> Select[Any]:
    zero = literal(0, Numeric)
    return (
        select(
            held_up.c.node,
            held_up.c.job_id,
            cast(held_up.c.wall_ns, Numeric).label("held_ns"),
            cast(held_up.c.gpu_ns, Numeric).label("held_gpu_ns"),
            *(zero.label(name) for name in SUMS[2:]),
        )
        .join_from(held_up, jobs, jobs.c.job_id == held_up.c.job_id)
        .where(*inside(held_up.c.hour_ns, scope.window), *job_passes(scope.filters, scope.window))
    )


def _failed(scope: Scope) -> Select[Any]:
    zero = literal(0, Numeric)
    is_infra = case((incidents.c.kind == "infra", literal(1, Numeric)), else_=zero)
    return (
        select(
            incidents.c.node,
            null().label("job_id"),
            zero.label("held_ns"),
            zero.label("held_gpu_ns"),
            literal(1, Numeric).label("failures"),
            is_infra.label("infra_failures"),
            cast(incidents.c.gpu_ns, Numeric).label("induced_gpu_ns"),
        )
        .join_from(incidents, jobs, jobs.c.job_id == incidents.c.job_id)
        .where(
            incidents.c.node.is_not(None),
            incidents.c.kind != "planned",
            *inside(incidents.c.at_ns, scope.window),
            *job_passes(scope.filters, scope.window, rows_have=("component", "cause")),
            *row_passes(incidents, scope.filters, "component", "cause"),
        )
    )


def _known() -> Select[Any]:
    zero = literal(0, Numeric)
    return select(nodes.c.node, null().label("job_id"), *(zero.label(name) for name in SUMS))


def _is_filtered(scope: Scope) -> bool:
    filters = scope.filters
    return any(getattr(filters, name) for name in type(filters).__dataclass_fields__)
