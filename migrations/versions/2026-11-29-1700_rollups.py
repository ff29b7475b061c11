"""Sums of the ledger by hour and day, so that readers of a large fleet need not add up millions of rows.

Revision: 2026_11_29_1700
Revises: 2026_11_29_1640
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from fleet_ett.postgres import rollups

revision = "2026_11_29_1700"
down_revision = "2026_11_29_1640"
branch_labels = None
depends_on = None

LABELS = "heading text NOT NULL, phase text NOT NULL, component text NOT NULL, repeated boolean NOT NULL"
NAMES = "cluster text NOT NULL, team text NOT NULL, model text NOT NULL, framework text NOT NULL"
EXACT = (
    "wall_ns numeric NOT NULL, gpu_ns numeric NOT NULL,"
    " settled_wall_ns numeric NOT NULL, settled_gpu_ns numeric NOT NULL"
)
OF_A_JOB = """
    job_id bigint NOT NULL,
    {period} bigint NOT NULL,
    wall_ns bigint NOT NULL,
    gpu_ns {gpu} NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns {gpu} NOT NULL,
    productive_wall_ns bigint NOT NULL,
    productive_gpu_ns {gpu} NOT NULL,
    settled_productive_wall_ns bigint NOT NULL,
    settled_productive_gpu_ns {gpu} NOT NULL,
    unknown_wall_ns bigint NOT NULL,
    PRIMARY KEY (job_id, {period})
"""
TABLES = f"""
CREATE TABLE ledger_deltas (
    job_id bigint NOT NULL,
    delta_id bigint GENERATED ALWAYS AS IDENTITY,
    {NAMES},
    hour_ns bigint NOT NULL,
    {LABELS},
    wall_ns bigint NOT NULL,
    gpu_ns bigint NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns bigint NOT NULL,
    PRIMARY KEY (job_id, delta_id)
);
CREATE TABLE fleet_hours (
    slice text NOT NULL,
    name text NOT NULL,
    hour_ns bigint NOT NULL,
    {LABELS},
    {EXACT},
    PRIMARY KEY (slice, hour_ns, name, heading, phase, component, repeated)
);
CREATE TABLE fleet_days (
    slice text NOT NULL,
    name text NOT NULL,
    day_ns bigint NOT NULL,
    {LABELS},
    {EXACT},
    PRIMARY KEY (slice, day_ns, name, heading, phase, component, repeated)
);
CREATE TABLE tenant_days (
    day_ns bigint NOT NULL,
    {NAMES},
    {LABELS},
    {EXACT},
    PRIMARY KEY (day_ns, cluster, team, model, framework, heading, phase, component, repeated)
);
CREATE TABLE ledger_days (
    job_id bigint NOT NULL,
    day_ns bigint NOT NULL,
    {LABELS},
    wall_ns bigint NOT NULL,
    gpu_ns numeric NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns numeric NOT NULL,
    PRIMARY KEY (job_id, day_ns, heading, phase, component, repeated)
);
CREATE INDEX ledger_days_day ON ledger_days (day_ns, component);
CREATE TABLE job_hours ({OF_A_JOB.format(period="hour_ns", gpu="bigint")});
CREATE INDEX job_hours_hour ON job_hours (hour_ns);
CREATE TABLE job_days ({OF_A_JOB.format(period="day_ns", gpu="numeric")});
CREATE INDEX job_days_day ON job_days (day_ns);
DROP INDEX ledger_hour;
CREATE INDEX ledger_hour ON ledger (hour_ns, component);
"""


def upgrade() -> None:
    """Make the tables, and add up what is booked: about a minute for ten million rows of the ledger."""
    # a migration that cannot have its locks gives up instead of stopping everybody behind it
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)
    conn = op.get_bind()
    if conn.scalar(text("SELECT EXISTS (SELECT FROM ledger)")):
        rollups.backfill(conn)


def downgrade() -> None:
    """Drop the sums; the ledger has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        "DROP TABLE ledger_deltas, fleet_hours, fleet_days, tenant_days, ledger_days, job_hours, job_days"
    )
    op.execute("DROP INDEX ledger_hour")
    op.execute("CREATE INDEX ledger_hour ON ledger (hour_ns)")
