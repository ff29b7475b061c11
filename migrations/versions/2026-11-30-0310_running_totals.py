"""Running totals by job and hour: a job that a window cuts is one row, however long it ran.

Revision: 2026_11_30_0310
Revises: 2026_11_30_0040
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0310"
down_revision = "2026_11_30_0040"
branch_labels = None
depends_on = None

AMOUNTS = (
    "wall_ns", "gpu_ns", "settled_wall_ns", "settled_gpu_ns", "productive_wall_ns", "productive_gpu_ns",
    "settled_productive_wall_ns", "settled_productive_gpu_ns", "unknown_wall_ns", "unknown_gpu_ns",
)  # fmt: skip
HEADINGS = (
    "replay", "startup", "data_wait", "checkpoint", "compile", "evaluation", "publish", "shutdown", "stall", "gap",
    "aborted_step",
)  # fmt: skip


def upgrade() -> None:
    """Make the tables; `migrate` fills them when it has come to the newest."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE job_lives ADD COLUMN last_hour_ns bigint NOT NULL DEFAULT 0")
    names = (*AMOUNTS, *(f"{heading}_{unit}" for heading in HEADINGS for unit in ("wall_ns", "gpu_ns")))
    columns = ", ".join(f"{name} {'numeric' if 'gpu' in name else 'bigint'} NOT NULL" for name in names)
    op.execute(
        f"CREATE TABLE job_totals (job_id bigint NOT NULL, hour_ns bigint NOT NULL, {columns},"
        " PRIMARY KEY (job_id, hour_ns)) WITH (fillfactor = 80)"
    )
    op.execute(
        "CREATE TABLE custom_totals (job_id bigint NOT NULL, heading text NOT NULL, hour_ns bigint NOT NULL,"
        " wall_ns bigint NOT NULL, gpu_ns numeric NOT NULL, PRIMARY KEY (job_id, heading, hour_ns))"
        " WITH (fillfactor = 80)"
    )
    for table in ("job_totals", "custom_totals"):
        op.execute(f"CREATE INDEX {table}_hour ON {table} (hour_ns)")
    op.execute("CREATE INDEX jobs_end ON jobs (end_ns)")


def downgrade() -> None:
    """Drop them; the ledger has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX jobs_end")
    op.execute("DROP TABLE job_totals, custom_totals")
    op.execute("ALTER TABLE job_lives DROP COLUMN last_hour_ns")
