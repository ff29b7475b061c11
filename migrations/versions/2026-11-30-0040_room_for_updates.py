"""Sums of the running hour and day are updated every second: room beside each row keeps that out of the indexes.

Revision: 2026_11_30_0040
Revises: 2026_11_30_0020
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0040"
down_revision = "2026_11_30_0020"
branch_labels = None
depends_on = None

TABLES = (
    "ledger_days", "tenant_days", "fleet_days", "fleet_hours", "job_days", "job_hours", "team_days", "team_hours",
    "weight_days", "weight_hours",
)  # fmt: skip


def upgrade() -> None:
    """Leave room in new pages."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 80)")


def downgrade() -> None:
    """Fill pages up."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
