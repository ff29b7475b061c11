"""Incidents with the job and attempt that they ended and the owner who pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select

from fleet_ett.postgres.queries.booked import inside, job_passes, row_passes
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.rows import after_key, exact_rows
from fleet_ett.postgres.tables import attempts, incidents, jobs, owners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from fleet_ett.reads import Page, Row, Scope

SHOWN = (
    "outcome",
    "cause",
    "kind",
    "component",
    "status",
    "evidence",
    "node",
    "rank",
    "stall_ns",
    "gap_ns",
    "restart_ns",
    "replay_ns",
    "gpu_ns",
    "detection_ns",
    "replayed_steps",
    "rolled_back_to",
)


def list_incidents(conn: Connection, scope: Scope, kinds: Sequence[str], page: Page) -> list[Row]:
    """Incidents by the time of the end, the newest first; `kinds` empty: all kinds."""
    order = ("at_ns", "job_id", "attempt_id")
    keys = [incidents.c[name] for name in order]
    passing = job_passes(scope.filters, scope.window, rows_have=("component", "cause"))
    chosen = select(incidents)
    if passing:
        chosen = chosen.join(jobs, jobs.c.job_id == incidents.c.job_id).where(*passing)
    found = (
        chosen.where(
            *inside(incidents.c.at_ns, scope.window),
            *row_passes(incidents, scope.filters, "component", "cause"),
            *([is_one_of(incidents.c.kind, kinds)] if kinds else []),
            *after_key(keys, page.after, falling=[True] * len(keys)),
        )
        .order_by(*(key.desc() for key in keys))
        .limit(page.limit)
        .subquery("found")
    )
    same = and_(attempts.c.job_id == found.c.job_id, attempts.c.attempt_id == found.c.attempt_id)
    query = (
        select(
            jobs.c.job,
            attempts.c.attempt,
            attempts.c.index.label("attempt_index"),
            jobs.c.cluster,
            jobs.c.team,
            jobs.c.model,
            found.c.at_ns.label("at"),
            func.coalesce(owners.c.owner, found.c.component).label("owner"),
            *(found.c[name] for name in SHOWN),
            found.c.job_id,
            found.c.attempt_id,
        )
        .join_from(found, jobs, jobs.c.job_id == found.c.job_id)
        .join(attempts, same)
        .outerjoin(owners, owners.c.component == found.c.component)
        .order_by(*(found.c[name].desc() for name in order))
    )
    rows = exact_rows(conn, query, key=("at", "job_id", "attempt_id"))
    for row in rows:
        del row["job_id"], row["attempt_id"]
    return rows
