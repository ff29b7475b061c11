"""Whether the database takes events now: asked by doing what a batch needs, on a small scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres.migrate import check_revision, current_revision
from fleet_ett.postgres.pool import transaction

if TYPE_CHECKING:
    from sqlalchemy import Engine

ANSWER_S = 5.0
_LIMITS = "SET LOCAL statement_timeout = '4s'; SET LOCAL lock_timeout = '2s'; SET LOCAL work_mem = '64kB'"
# A record that only the write-ahead log sees: a standby refuses it, and its commit waits for the disk.
_WRITE = text("SELECT pg_logical_emit_message(true, 'fleet-ett', 'ready?')")
# More than `work_mem`: a temporary file of some hundred kB, which a full disk refuses.
_FILL = text("SELECT count(*) FROM generate_series(1, 20000)")


def check_ready(engine: Engine) -> str:
    """The migration that the database is at, and this version needs. Raises `Unavailable` that says what is not so."""
    with transaction(engine, answer_s=ANSWER_S) as conn:
        conn.exec_driver_sql(_LIMITS)
        current = current_revision(conn)
        check_revision(current)
        conn.execute(_WRITE)
        conn.execute(_FILL)
    assert current is not None
    return current
