"""Sums over a job's whole life, and how many jobs held something in each hour and day: what long windows ask.

Revision: 2026_11_29_2110
Revises: 2026_11_29_2100
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_2110"
down_revision = "2026_11_29_2100"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE ledger_lives (
    job_id bigint NOT NULL,
    heading text NOT NULL,
    phase text NOT NULL,
    component text NOT NULL,
    repeated boolean NOT NULL,
    wall_ns bigint NOT NULL,
    gpu_ns numeric NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns numeric NOT NULL,
    PRIMARY KEY (job_id, heading, phase, component, repeated)
) WITH (fillfactor = 80);
CREATE INDEX ledger_lives_component ON ledger_lives (component, phase);
CREATE TABLE job_lives (
    job_id bigint PRIMARY KEY,
    wall_ns bigint NOT NULL,
    gpu_ns numeric NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns numeric NOT NULL,
    productive_wall_ns bigint NOT NULL,
    productive_gpu_ns numeric NOT NULL,
    settled_productive_wall_ns bigint NOT NULL,
    settled_productive_gpu_ns numeric NOT NULL,
    unknown_wall_ns bigint NOT NULL,
    unknown_gpu_ns numeric NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE weight_hours (
    slice text NOT NULL,
    name text NOT NULL,
    hour_ns bigint NOT NULL,
    jobs bigint NOT NULL,
    ratios numeric NOT NULL,
    PRIMARY KEY (slice, hour_ns, name)
);
CREATE TABLE weight_days (
    slice text NOT NULL,
    name text NOT NULL,
    day_ns bigint NOT NULL,
    jobs bigint NOT NULL,
    ratios numeric NOT NULL,
    PRIMARY KEY (slice, day_ns, name)
);
CREATE INDEX ledger_days_component ON ledger_days (component, job_id, day_ns);
CREATE INDEX jobs_span ON jobs (start_ns, end_ns) INCLUDE (job_id, cluster, team, model, framework);
DROP INDEX jobs_live, attempts_live;
"""
BACK = """
DROP TABLE ledger_lives, job_lives, weight_hours, weight_days;
DROP INDEX jobs_span, ledger_days_component;
CREATE INDEX jobs_live ON jobs (job_id) WHERE live;
CREATE INDEX attempts_live ON attempts (job_id) INCLUDE (gpus) WHERE live;
"""


def upgrade() -> None:
    """Make the tables; `migrate` fills them when it has come to the newest."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    """Drop them; the ledger has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(BACK)
