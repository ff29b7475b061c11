"""The first schema: raw events by UTC day, the books derived from them, counters.

Revision: 2026_11_29_1400
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_1400"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE jobs (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job text NOT NULL UNIQUE,
    name text,
    cluster text NOT NULL DEFAULT '',
    team text NOT NULL DEFAULT '',
    model text NOT NULL DEFAULT '',
    framework text NOT NULL DEFAULT '',
    labels jsonb NOT NULL DEFAULT '{}',
    start_ns bigint,
    end_ns bigint,
    live boolean NOT NULL DEFAULT false,
    as_of_ns bigint,
    due_ns bigint,
    not_before_ns bigint NOT NULL DEFAULT 0,
    late_ns bigint NOT NULL DEFAULT 0,
    error text,
    summary jsonb
);
CREATE INDEX jobs_due ON jobs (due_ns) WHERE due_ns IS NOT NULL;
CREATE INDEX jobs_cluster_team ON jobs (cluster, team);

CREATE TABLE attempts (
    job_id bigint NOT NULL REFERENCES jobs (job_id),
    attempt_id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    attempt text NOT NULL,
    first_ns bigint,
    last_ns bigint,
    alloc_ns bigint,
    released boolean NOT NULL DEFAULT true,
    dirty boolean NOT NULL DEFAULT true,
    index integer,
    start_ns bigint,
    end_ns bigint,
    live boolean NOT NULL DEFAULT false,
    outcome text,
    gpus bigint,
    link_digest text,
    as_of_ns bigint,
    carry jsonb,
    summary jsonb,
    PRIMARY KEY (job_id, attempt_id),
    UNIQUE (job_id, attempt)
);

CREATE TABLE attempt_nodes (
    node text NOT NULL,
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    PRIMARY KEY (node, job_id, attempt_id)
);
CREATE INDEX attempt_nodes_attempt ON attempt_nodes (job_id, attempt_id);

CREATE TABLE sources (
    source_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incarnation text NOT NULL,
    node text NOT NULL,
    last_seq bigint NOT NULL DEFAULT -1,
    UNIQUE (incarnation, node)
);
CREATE INDEX sources_node ON sources (node);

CREATE TABLE nodes (
    node text PRIMARY KEY,
    last_seen_ns bigint NOT NULL,
    clock_offset_ns bigint NOT NULL,
    agent_version text
);

CREATE TABLE events (
    job_id bigint NOT NULL,
    source_id bigint NOT NULL,
    seq bigint NOT NULL,
    start_ns bigint NOT NULL,
    digest bigint NOT NULL,
    end_ns bigint,
    clock_offset_ns bigint NOT NULL,
    first_step bigint,
    last_step bigint,
    cursor_start bigint,
    cursor_end bigint,
    data_wait_ns bigint,
    attempt_id integer,
    rank integer,
    type smallint NOT NULL,
    unit smallint,
    per_step integer,
    phase text,
    body json,
    PRIMARY KEY (job_id, source_id, seq, start_ns, digest)
) PARTITION BY RANGE (start_ns);
CREATE INDEX events_start ON events USING brin (start_ns);

CREATE TABLE job_facts (
    job_id bigint NOT NULL,
    source_id bigint NOT NULL,
    seq bigint NOT NULL,
    digest bigint NOT NULL,
    body json NOT NULL,
    PRIMARY KEY (job_id, source_id, seq, digest)
);

CREATE TABLE marks (
    mark_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    attempt_id integer,
    node text,
    first_ns bigint,
    last_ns bigint,
    marked_ns bigint NOT NULL
);
CREATE INDEX marks_job ON marks (job_id);

CREATE TABLE ledger (
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    hour_ns bigint NOT NULL,
    heading text NOT NULL,
    phase text NOT NULL,
    component text NOT NULL,
    repeated boolean NOT NULL,
    wall_ns bigint NOT NULL,
    gpu_ns bigint NOT NULL,
    settled_wall_ns bigint NOT NULL,
    settled_gpu_ns bigint NOT NULL,
    PRIMARY KEY (job_id, attempt_id, hour_ns, heading, phase, component, repeated)
);
CREATE INDEX ledger_hour ON ledger (hour_ns);

CREATE TABLE segments (
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    start_ns bigint NOT NULL,
    end_ns bigint NOT NULL,
    heading text NOT NULL,
    phase text NOT NULL,
    component text NOT NULL,
    rank integer,
    node text,
    repeated boolean NOT NULL,
    gpus bigint NOT NULL,
    settled boolean NOT NULL,
    PRIMARY KEY (job_id, start_ns, attempt_id)
);

CREATE TABLE held_up (
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    hour_ns bigint NOT NULL,
    node text NOT NULL,
    rank integer NOT NULL,
    wall_ns bigint NOT NULL,
    gpu_ns bigint NOT NULL,
    PRIMARY KEY (job_id, attempt_id, hour_ns, node, rank)
);
CREATE INDEX held_up_hour ON held_up (hour_ns);

CREATE TABLE work (
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    phase text NOT NULL,
    work_key text NOT NULL,
    start_ns bigint NOT NULL,
    wall_ns bigint NOT NULL,
    gpu_ns numeric NOT NULL,
    seen_in_job boolean NOT NULL,
    PRIMARY KEY (job_id, attempt_id, phase, work_key)
);
CREATE INDEX work_keys ON work (phase, work_key, start_ns);
CREATE INDEX work_start ON work (start_ns);

CREATE TABLE incidents (
    job_id bigint NOT NULL,
    attempt_id integer NOT NULL,
    at_ns bigint NOT NULL,
    outcome text NOT NULL,
    cause text NOT NULL,
    kind text NOT NULL,
    component text NOT NULL,
    status text NOT NULL,
    evidence jsonb NOT NULL,
    node text,
    rank integer,
    stall_ns bigint NOT NULL,
    gap_ns bigint NOT NULL,
    restart_ns bigint NOT NULL,
    replay_ns bigint NOT NULL,
    gpu_ns numeric NOT NULL,
    detection_ns bigint,
    rolled_back_to bigint,
    replayed_steps bigint,
    PRIMARY KEY (job_id, attempt_id)
);
CREATE INDEX incidents_at ON incidents (at_ns);

CREATE TABLE counters (
    job_id bigint NOT NULL,
    name text NOT NULL,
    labels jsonb NOT NULL,
    value numeric NOT NULL,
    PRIMARY KEY (job_id, name, labels)
);

CREATE TABLE counter_totals (
    slot smallint NOT NULL,
    name text NOT NULL,
    labels jsonb NOT NULL,
    value numeric NOT NULL,
    PRIMARY KEY (slot, name, labels)
);

CREATE TABLE quarantine (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_ns bigint NOT NULL,
    node text NOT NULL,
    incarnation text NOT NULL,
    seq bigint,
    position integer NOT NULL,
    reason text NOT NULL,
    event text NOT NULL,
    digest bigint NOT NULL UNIQUE
);
CREATE INDEX quarantine_received ON quarantine (received_ns);

CREATE TABLE ingest_counts (
    slot smallint NOT NULL,
    result text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (slot, result)
);

CREATE TABLE owners (
    component text PRIMARY KEY,
    owner text NOT NULL
);

CREATE TABLE retention (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    horizon_ns bigint NOT NULL
);
"""
NAMES = (
    "attempts", "jobs", "attempt_nodes", "sources", "nodes", "events", "job_facts", "marks", "ledger", "segments",
    "held_up", "work", "incidents", "counters", "counter_totals", "quarantine", "ingest_counts", "owners", "retention",
)  # fmt: skip


def upgrade() -> None:
    """Make the tables."""
    # a migration that cannot have its locks gives up instead of stopping everybody behind it
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TABLES)


def downgrade() -> None:
    """Drop them with what they hold."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in NAMES:
        op.execute(f"DROP TABLE {name}")
