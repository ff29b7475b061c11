"""The slowest step of a window gets a column, so that nearly all step windows have no body to parse.

Revision: 2026_11_29_1515
Revises: 2026_11_29_1500
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1515"
down_revision = "2026_11_29_1500"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; windows stored before keep it in their body."""
    # a migration that cannot have its locks gives up instead of stopping everybody behind it
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE events ADD COLUMN slowest_ns bigint")


def downgrade() -> None:
    """Drop the column with what it holds."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE events DROP COLUMN slowest_ns")
