"""All sums that are kept beside the books, made anew from them: what an upgrade asks for, and what mends wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres import rollups, work_lives
from fleet_ett.postgres.pool import UNBOUNDED_S, bound, told_unavailable, transaction
from fleet_ett.postgres.storage import ROLLUPS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TABLES = ", ".join(ROLLUPS)


def make_sums_anew(engine: Engine) -> None:
    """As one transaction: bookings and readers wait meanwhile, for minutes where the ledger has millions of rows."""
    with transaction(engine, answer_s=UNBOUNDED_S) as conn:
        refill(conn)
    vacuum(engine)


def refill(conn: Connection) -> None:
    """The same within a transaction of the caller's, who calls `vacuum` when it has ended."""
    conn.exec_driver_sql("SET LOCAL work_mem = '256MB'")  # for the groups of a large fleet's years
    # as a fold, this lock first of all
    conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": rollups.LOCK})
    conn.exec_driver_sql("LOCK TABLE ledger, work, ledger_deltas IN SHARE ROW EXCLUSIVE MODE")
    conn.exec_driver_sql(f"TRUNCATE {TABLES}")
    rollups.backfill(conn)
    work_lives.backfill(conn)


def vacuum(engine: Engine) -> None:
    """Say which rows all can see: until then, or until autovacuum has passed, readers are slower."""
    with told_unavailable(), engine.connect() as conn:
        bound(conn, UNBOUNDED_S)
        alone = conn.execution_options(isolation_level="AUTOCOMMIT")
        alone.exec_driver_sql(f"VACUUM ANALYZE {TABLES}")
