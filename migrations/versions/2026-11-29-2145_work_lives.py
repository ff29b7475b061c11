"""Keyed work summed up by job, for the work that was done twice.

Revision: 2026_11_29_2145
Revises: 2026_11_29_2110
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_2145"
down_revision = "2026_11_29_2110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; `migrate` fills it when it has come to the newest."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        "CREATE TABLE work_lives (job_id bigint NOT NULL, phase text NOT NULL, work_key text NOT NULL,"
        " times bigint NOT NULL, wall_ns bigint NOT NULL, gpu_ns numeric NOT NULL, seen_wall_ns bigint NOT NULL,"
        " seen_gpu_ns numeric NOT NULL, PRIMARY KEY (job_id, phase, work_key))"
    )


def downgrade() -> None:
    """Drop it; `work` has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE work_lives")
