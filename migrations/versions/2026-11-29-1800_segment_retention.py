"""Segments are kept for some time only: until when they are gone, and an index by which old ones are found.

Revision: 2026_11_29_1800
Revises: 2026_11_29_1710
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1800"
down_revision = "2026_11_29_1710"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; all segments are there as yet."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE retention ADD COLUMN segments_ns bigint NOT NULL DEFAULT 0")
    op.execute("CREATE INDEX segments_end ON segments USING brin (end_ns)")


def downgrade() -> None:
    """Drop them; segments that are gone stay gone."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX segments_end")
    op.execute("ALTER TABLE retention DROP COLUMN segments_ns")
