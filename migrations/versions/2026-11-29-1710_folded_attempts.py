"""Folded attempts: a booking costs what is new, whatever the job's history; rows are rewritten in their pages.

Books that exist are folded by their next booking.

Revision: 2026_11_29_1710
Revises: 2026_11_29_1700
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1710"
down_revision = "2026_11_29_1700"
branch_labels = None
depends_on = None

# Tables whose rows every booking rewrites, and how full their pages are made.
REWRITTEN = {"jobs": 50, "attempts": 50, "ledger": 80, "segments": 90, "counters": 80, "counter_totals": 50}


def upgrade() -> None:
    """Add what is kept of folded attempts, and leave room in the pages."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX jobs_due")
    op.execute(
        "ALTER TABLE jobs ADD COLUMN waits boolean NOT NULL GENERATED ALWAYS AS (due_ns IS NOT NULL) STORED,"
        " ADD COLUMN state jsonb, ADD COLUMN folded jsonb"
    )
    op.execute("CREATE INDEX jobs_waiting ON jobs (job_id) WHERE waits")
    op.execute(
        "ALTER TABLE attempts ADD COLUMN carry_digest text, ADD COLUMN folded boolean NOT NULL DEFAULT false"
    )
    op.execute("CREATE INDEX attempts_open ON attempts (job_id) WHERE NOT folded")
    for table, percent in REWRITTEN.items():
        op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")


def downgrade() -> None:
    """Take it away again. Every job is booked anew: its summary held more before."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in REWRITTEN:
        op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
    op.execute("DROP INDEX attempts_open")
    op.execute("ALTER TABLE attempts DROP COLUMN carry_digest, DROP COLUMN folded")
    op.execute("DROP INDEX jobs_waiting")
    op.execute("ALTER TABLE jobs DROP COLUMN waits, DROP COLUMN state, DROP COLUMN folded")
    op.execute("CREATE INDEX jobs_due ON jobs (due_ns) WHERE due_ns IS NOT NULL")
