"""Long attempts go on from a seam: what a booking keeps for the next one, and indexes for reading what is new.

Revision: 2026_11_29_1810
Revises: 2026_11_29_1800
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1810"
down_revision = "2026_11_29_1800"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and indexes by job and time."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE attempts ADD COLUMN resume json")
    op.execute("CREATE INDEX events_job ON events (job_id, start_ns)")
    op.execute("CREATE INDEX events_rare ON events (job_id, start_ns) WHERE type IN (1, 2, 8)")


def downgrade() -> None:
    """Drop them."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX events_rare")
    op.execute("DROP INDEX events_job")
    op.execute("ALTER TABLE attempts DROP COLUMN resume")
