"""Incidents by the component that they are laid to: which components have any, and those of one in a window.

Revision: 2026_11_30_0710
Revises: 2026_11_30_0420
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0710"
down_revision = "2026_11_30_0420"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE INDEX incidents_component ON incidents (component, at_ns)")


def downgrade() -> None:
    """Drop it."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX incidents_component")
