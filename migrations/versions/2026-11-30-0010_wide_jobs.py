"""A job's life and days have every heading of the contract as columns: one row where readers added up a dozen.

Revision: 2026_11_30_0010
Revises: 2026_11_29_2205
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0010"
down_revision = "2026_11_29_2205"
branch_labels = None
depends_on = None

HEADINGS = (
    "replay",
    "startup",
    "data_wait",
    "checkpoint",
    "compile",
    "evaluation",
    "publish",
    "shutdown",
    "stall",
    "gap",
    "aborted_step",
)  # productive and unknown are there
TABLES = ("job_lives", "job_days")
CUSTOM = """
CREATE INDEX ledger_lives_custom ON ledger_lives (job_id) WHERE heading LIKE 'custom:%';
CREATE INDEX ledger_days_custom ON ledger_days (job_id, day_ns) WHERE heading LIKE 'custom:%';
"""


def upgrade() -> None:
    """Add the columns; `migrate` makes the sums anew when it has come to the newest."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(f"TRUNCATE {', '.join(TABLES)}")
    kinds = (("wall_ns", "bigint"), ("gpu_ns", "numeric"))
    added = (f"ADD COLUMN {heading}_{unit} {kind} NOT NULL" for heading in HEADINGS for unit, kind in kinds)
    columns = ", ".join(added)
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} {columns}")
    op.execute(CUSTOM)


def downgrade() -> None:
    """Drop them; the ledger has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX ledger_lives_custom, ledger_days_custom")
    dropped = ", ".join(
        f"DROP COLUMN {heading}_{unit}" for heading in HEADINGS for unit in ("wall_ns", "gpu_ns")
    )
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} {dropped}")
