"""Which jobs spent time in a phase is found by the phase.

Revision: 2026_11_29_2205
Revises: 2026_11_29_2145
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_2205"
down_revision = "2026_11_29_2145"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE INDEX ledger_days_phase ON ledger_days (phase, job_id, day_ns)")
    op.execute("CREATE INDEX ledger_lives_phase ON ledger_lives (phase)")


def downgrade() -> None:
    """Drop them."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX ledger_days_phase, ledger_lives_phase")
