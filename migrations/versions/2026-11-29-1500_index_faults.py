"""An index of the faults: a node's page asks for them, and they are few among the events.

Revision: 2026_11_29_1500
Revises: 2026_11_29_1400
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1500"
down_revision = "2026_11_29_1400"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index faults by who reported them."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE INDEX events_faults ON events (source_id, start_ns) WHERE type = 8")


def downgrade() -> None:
    """Drop the index."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX events_faults")
