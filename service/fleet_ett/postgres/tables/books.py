"""What is derived from the events, and rebuilt to the same rows from them: jobs, attempts and their books."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Computed,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from fleet_ett.postgres.tables.metadata import EMPTY, FALSE, ZERO, metadata

# A job exists from its first event on. `summary` is the core's JobSummary; `error` why the job could not be
# booked, with the figures of its last good booking beside it. `due_ns`: when time alone changes the books;
# `not_before_ns`: the worker's pace. `late_ns`: settled wall time that later events changed. `state`: what the
# worker keeps of a job besides (settled sums). `folded`: the sums of its first attempts, which nothing changes any
# more. `summary` holds what does not grow with the number of attempts; incidents and flags are with the attempts.
jobs = Table(
    "jobs",
    metadata,
    Column("job_id", BigInteger, Identity(always=True), primary_key=True),
    Column("job", Text, nullable=False, unique=True),
    Column("name", Text),
    Column("cluster", Text, nullable=False, server_default=EMPTY),
    Column("team", Text, nullable=False, server_default=EMPTY),
    Column("model", Text, nullable=False, server_default=EMPTY),
    Column("framework", Text, nullable=False, server_default=EMPTY),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'")),
    Column("start_ns", BigInteger),
    Column("end_ns", BigInteger),
    Column("live", Boolean, nullable=False, server_default=FALSE),
    Column("as_of_ns", BigInteger),
    Column("due_ns", BigInteger),
    Column("not_before_ns", BigInteger, nullable=False, server_default=ZERO),
    Column("late_ns", BigInteger, nullable=False, server_default=ZERO),
    Column("error", Text),
    Column("summary", JSONB),
    # `due_ns` changes with each booking and is in no index, so that a booking rewrites the row in its page
    Column("waits", Boolean, Computed("due_ns IS NOT NULL", persisted=True), nullable=False),
    Column("state", JSONB),
    Column("folded", JSONB),
    Index("jobs_waiting", "job_id", postgresql_where=text("waits")),
    Index("jobs_cluster_team", "cluster", "team", "job_id"),
    Index("jobs_end", "end_ns"),
    # which jobs lie whole in a window, and all that groups need of them
    Index(
        "jobs_span",
        "start_ns",
        "end_ns",
        postgresql_include=["job_id", "cluster", "team", "model", "framework"],
    ),
)

# An attempt exists from its first event on; `index` is null until it is booked. `first_ns`, `last_ns`: bounds of
# its events' stamps, which say in which partitions to look. `alloc_ns` puts a job's attempts in order. `carry`: what
# it leaves to the next one. `link_digest`: of what its books depended on. `dirty`: events came since.
# `folded`: its sums are in the job's `folded`. `resume`: where its books may go on (`core.resume`).
attempts = Table(
    "attempts",
    metadata,
    Column("job_id", BigInteger, ForeignKey("jobs.job_id"), nullable=False),
    Column("attempt_id", Integer, Identity(always=True), nullable=False),
    Column("attempt", Text, nullable=False),
    Column("first_ns", BigInteger),
    Column("last_ns", BigInteger),
    Column("alloc_ns", BigInteger),
    Column("released", Boolean, nullable=False, server_default=text("true")),
    Column("dirty", Boolean, nullable=False, server_default=text("true")),
    Column("index", Integer),
    Column("start_ns", BigInteger),
    Column("end_ns", BigInteger),
    Column("live", Boolean, nullable=False, server_default=FALSE),
    Column("outcome", Text),
    Column("gpus", BigInteger),
    Column("link_digest", Text),
    Column("as_of_ns", BigInteger),
    Column("carry", JSONB),
    Column("summary", JSONB),
    Column("steps_replayed", BigInteger, Computed("(summary ->> 'steps_replayed')::bigint", persisted=True)),
    Column("carry_digest", Text),
    Column("resume", JSON),
    Column("folded", Boolean, nullable=False, server_default=FALSE),
    Index("attempts_open", "job_id", postgresql_where=text("NOT folded")),
    PrimaryKeyConstraint("job_id", "attempt_id"),
    UniqueConstraint("job_id", "attempt"),
    Index(
        "attempts_start",
        "start_ns",
        postgresql_include=["job_id", "steps_replayed"],
        postgresql_where=text("summary IS NOT NULL"),
    ),
)

# Which attempts a node worked for: whom a fault without a job concerns.
attempt_nodes = Table(
    "attempt_nodes",
    metadata,
    Column("node", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    PrimaryKeyConstraint("node", "job_id", "attempt_id"),
    Index("attempt_nodes_attempt", "job_id", "attempt_id"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    Column("heading", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("repeated", Boolean, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("gpu_ns", BigInteger, nullable=False),
    Column("settled_wall_ns", BigInteger, nullable=False),
    Column("settled_gpu_ns", BigInteger, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt_id", "hour_ns", "heading", "phase", "component", "repeated"),
    Index("ledger_hour", "hour_ns", "component"),
)

segments = Table(
    "segments",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("start_ns", BigInteger, nullable=False),
    Column("end_ns", BigInteger, nullable=False),
    Column("heading", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("rank", Integer),
    Column("node", Text),
    Column("repeated", Boolean, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("settled", Boolean, nullable=False),
    # a job's segments never overlap; the attempt stands in the key for the moment in which two are written anew
    PrimaryKeyConstraint("job_id", "start_ns", "attempt_id"),
    Index("segments_end", "end_ns", postgresql_using="brin"),
)

# Whom others waited for, by the phase and component of that time; both empty where that is not known any more.
held_up = Table(
    "held_up",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    Column("node", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("gpu_ns", BigInteger, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt_id", "hour_ns", "node", "rank", "phase", "component"),
    Index("held_up_hour", "hour_ns"),
    Index("held_up_node", "node", "hour_ns"),
    Index("held_up_component", "component", "hour_ns"),
)

work = Table(
    "work",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("work_key", Text, nullable=False),
    Column("start_ns", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("gpu_ns", Numeric, nullable=False),
    Column("seen_in_job", Boolean, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt_id", "phase", "work_key"),
    Index("work_keys", "phase", "work_key", "start_ns"),
    Index("work_start", "start_ns"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    Column("node", Text),
    Column("rank", Integer),
    Column("stall_ns", BigInteger, nullable=False),
    Column("gap_ns", BigInteger, nullable=False),
    Column("restart_ns", BigInteger, nullable=False),
    Column("replay_ns", BigInteger, nullable=False),
    Column("gpu_ns", Numeric, nullable=False),
    Column("detection_ns", BigInteger),
    Column("rolled_back_to", BigInteger),
    Column("replayed_steps", BigInteger),
    PrimaryKeyConstraint("job_id", "attempt_id"),
    Index("incidents_at", "at_ns"),
    Index("incidents_component", "component", "at_ns"),
)

# Settled amounts of one job by metric (`readings.Count`: times in ns). `labels` are from closed sets, with cluster and
# team as they were when the amount was added: no series falls when a job's description or the taxonomy changes.
# Beside them what the job holds now (`readings.HELD`).
counters = Table(
    "counters",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Numeric, nullable=False),
    PrimaryKeyConstraint("job_id", "name", "labels"),
)

# The sums of `counters` over all jobs, as many rows as there are series; add `counter_deltas` to them.
counter_totals = Table(
    "counter_totals",
    metadata,
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Numeric, nullable=False),
    PrimaryKeyConstraint("name", "labels"),
)

# What bookings added since the totals were last added up: appended, so that no booking waits for another.
counter_deltas = Table(
    "counter_deltas",
    metadata,
    Column("delta_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Numeric, nullable=False),
)

# Clusters and teams that counters have labels for, at most `readings.MAX_TENANTS`, and since when.
tenants = Table(
    "tenants",
    metadata,
    Column("cluster", Text, nullable=False),
    Column("team", Text, nullable=False),
    Column("since_ns", BigInteger, nullable=False),
    PrimaryKeyConstraint("cluster", "team"),
)

# Who owns a component; without a row it owns itself.
owners = Table(
    "owners",
    metadata,
    Column("component", Text, primary_key=True),
    Column("owner", Text, nullable=False),
)
