"""Housekeeping: partitions ahead, bounds on what is kept, and books dropped to be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres import partitions
from fleet_ett.postgres.ledgers import DERIVED
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.quarantine import prune_quarantine
from fleet_ett.postgres.tables import incidents

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_FORGET = text(
    "UPDATE attempts SET dirty = true, link_digest = NULL, carry = NULL, summary = NULL WHERE job_id = :job_id"
)


def maintain(engine: Engine, *, retention_days: int, now: int) -> None:
    """Do what has to be done about once an hour; harmless when done twice or by several at once."""
    with transaction(engine) as conn:
        partitions.add_partitions(conn, partitions.days_ahead(now), now=now)
    with transaction(engine) as conn:
        prune_quarantine(conn, now=now)


def drop_books(conn: Connection, job_id: int) -> None:
    """Drop what is derived of a held job."""
    for table in (*DERIVED, incidents):
        conn.execute(table.delete().where(table.c.job_id == job_id))
    conn.execute(_FORGET, {"job_id": job_id})
