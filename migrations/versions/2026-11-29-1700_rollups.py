"""Sums of the ledger by hour and day, so that readers of a large fleet need not add up millions of rows.

Revision: 2026_11_29_1700
Revises: 2026_11_29_1640
"""

from __future__ import annotations

from alembic import op

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
LESS = """
    wall_ns {wall} NOT NULL,
    gpu_ns {gpu} NOT NULL,
    settled_wall_ns {wall} NOT NULL,
    settled_gpu_ns {gpu} NOT NULL,
    productive_wall_ns {wall} NOT NULL,
    productive_gpu_ns {gpu} NOT NULL,
    settled_productive_wall_ns {wall} NOT NULL,
    settled_productive_gpu_ns {gpu} NOT NULL,
    unknown_wall_ns {wall} NOT NULL,
    unknown_gpu_ns {gpu} NOT NULL,
    PRIMARY KEY ({keys})
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
CREATE TABLE job_hours (
    job_id bigint NOT NULL,
    hour_ns bigint NOT NULL,
    {LESS.format(wall="bigint", gpu="bigint", keys="job_id, hour_ns")}
);
CREATE INDEX job_hours_hour ON job_hours (hour_ns);
CREATE TABLE job_days (
    job_id bigint NOT NULL,
    day_ns bigint NOT NULL,
    {LESS.format(wall="bigint", gpu="numeric", keys="job_id, day_ns")}
);
CREATE INDEX job_days_day ON job_days (day_ns);
CREATE TABLE team_hours (
    hour_ns bigint NOT NULL,
    cluster text NOT NULL,
    team text NOT NULL,
    {LESS.format(wall="numeric", gpu="numeric", keys="hour_ns, cluster, team")}
);
CREATE TABLE team_days (
    day_ns bigint NOT NULL,
    cluster text NOT NULL,
    team text NOT NULL,
    {LESS.format(wall="numeric", gpu="numeric", keys="day_ns, cluster, team")}
);
DROP INDEX ledger_hour;
CREATE INDEX ledger_hour ON ledger (hour_ns, component);
DROP INDEX jobs_cluster_team;
CREATE INDEX jobs_cluster_team ON jobs (cluster, team, job_id);
CREATE INDEX jobs_live ON jobs (job_id) WHERE live;
CREATE INDEX attempts_live ON attempts (job_id) INCLUDE (gpus) WHERE live;
ALTER TABLE attempts ADD COLUMN steps_replayed bigint
    GENERATED ALWAYS AS ((summary ->> 'steps_replayed')::bigint) STORED;
CREATE INDEX attempts_start ON attempts (start_ns) INCLUDE (job_id, steps_replayed) WHERE summary IS NOT NULL;
CREATE INDEX held_up_node ON held_up (node, hour_ns);
"""
BACK = """
DROP INDEX ledger_hour, jobs_cluster_team, jobs_live, attempts_live, attempts_start, held_up_node;
CREATE INDEX ledger_hour ON ledger (hour_ns);
CREATE INDEX jobs_cluster_team ON jobs (cluster, team);
ALTER TABLE attempts DROP COLUMN steps_replayed;
"""


def upgrade() -> None:
    """Make the tables; `migrate` fills them when it has come to the newest."""
    # a migration that cannot have its locks gives up instead of stopping everybody behind it
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    """Drop the sums; the ledger has everything."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        "DROP TABLE ledger_deltas, fleet_hours, fleet_days, tenant_days, ledger_days, job_hours, job_days,"
        " team_hours, team_days"
    )
    op.execute(BACK)
