"""The tables, as the migrations make them (a test compares the two).

Times are bigint ns since the epoch in UTC, so that nothing depends on a session's time zone; wall amounts
are ns, `gpu_ns` GPU-ns. One hour's GPU-ns of a job fit a bigint, sums do not: they are numeric everywhere.

Raw: `events`, `job_facts`, `sources`, `quarantine`. Derived, and rebuilt to the same rows from the raw ones:
`ledger`, `segments`, `held_up`, `work`, `incidents`, and the summaries in `jobs` and `attempts`. Kept for ever
and only rising: `counters` (one job each) and `counter_totals` (their sums, for scrapes).
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

EMPTY = text("''")
FALSE = text("false")
ZERO = text("0")

# A job exists from its first event on. `summary` is the core's JobSummary; `error` why the job could not be
# booked, with the figures of its last good booking beside it. `due_ns`: when time alone changes the books;
# `not_before_ns`: the worker's pace. `late_ns`: settled wall time that later events changed.
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
    Index("jobs_due", "due_ns", postgresql_where=text("due_ns IS NOT NULL")),
    Index("jobs_cluster_team", "cluster", "team"),
)

# An attempt exists from its first event on; `index` is null until it is booked. `first_ns`, `last_ns`: bounds of
# its events' stamps, which say in which partitions to look. `alloc_ns` puts a job's attempts in order. `carry`: what
# it leaves to the next one. `link_digest`: of what its books depended on. `dirty`: events came since.
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
    PrimaryKeyConstraint("job_id", "attempt_id"),
    UniqueConstraint("job_id", "attempt"),
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

# Who speaks. `last_seq`: an event beyond it cannot be a repeat, which makes ingest cheap.
sources = Table(
    "sources",
    metadata,
    Column("source_id", BigInteger, Identity(always=True), primary_key=True),
    Column("incarnation", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("last_seq", BigInteger, nullable=False, server_default=text("-1")),
    UniqueConstraint("incarnation", "node"),
    Index("sources_node", "node"),
)

# `last_seen_ns`: when the service last took an event of the node, by the service's clock.
nodes = Table(
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("last_seen_ns", BigInteger, nullable=False),
    Column("clock_offset_ns", BigInteger, nullable=False),
    Column("agent_version", Text),
)

# Raw and immutable, partitioned by RANGE (start_ns) at UTC days. `start_ns`, `end_ns` are corrected (stamp minus
# clock_offset_ns). `digest` is of the canonical bytes: two events of one identity that differ are both kept, and
# the core decides. A heartbeat stands once under each attempt that it names; one that names none under job 0, a
# fault without a job under job -1. `unit`: 1 optimizer_step, 2 micro_batch; another is named in `body`.
# `body`: the fields that have no column here, compact JSON text.
events = Table(
    "events",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("source_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("start_ns", BigInteger, nullable=False),
    Column("digest", BigInteger, nullable=False),
    Column("end_ns", BigInteger),
    Column("clock_offset_ns", BigInteger, nullable=False),
    Column("first_step", BigInteger),
    Column("last_step", BigInteger),
    Column("cursor_start", BigInteger),
    Column("cursor_end", BigInteger),
    Column("data_wait_ns", BigInteger),
    Column("attempt_id", Integer),
    Column("rank", Integer),
    Column("type", SmallInteger, nullable=False),
    Column("unit", SmallInteger),
    Column("per_step", Integer),
    Column("phase", Text),
    Column("body", JSON),
    Column("slowest_ns", BigInteger),
    PrimaryKeyConstraint("job_id", "source_id", "seq", "start_ns", "digest"),
    Index("events_start", "start_ns", postgresql_using="brin"),
    # who reported faults (`/v1/nodes`): they are few, so the index is small and costs other events nothing
    Index("events_faults", "source_id", "start_ns", postgresql_where=text("type = 8")),
    postgresql_partition_by="RANGE (start_ns)",
)

# `job` events, which have no stamp.
job_facts = Table(
    "job_facts",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("source_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("digest", BigInteger, nullable=False),
    Column("body", JSON, nullable=False),
    PrimaryKeyConstraint("job_id", "source_id", "seq", "digest"),
)

# What came and is not booked yet: appended by ingest, consumed by the worker, so that ingest never waits for it.
# With `node` (and job 0): whatever that node worked for at `first_ns`. With a job alone: the job as a whole, and
# those of its attempts that `first_ns` concerns. The oldest `marked_ns` (service clock) is the books' lag.
marks = Table(
    "marks",
    metadata,
    Column("mark_id", BigInteger, Identity(always=True), primary_key=True),
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer),
    Column("node", Text),
    Column("first_ns", BigInteger),
    Column("last_ns", BigInteger),
    Column("marked_ns", BigInteger, nullable=False),
    Index("marks_job", "job_id"),
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
    Index("ledger_hour", "hour_ns"),
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
)

held_up = Table(
    "held_up",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    Column("node", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("gpu_ns", BigInteger, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt_id", "hour_ns", "node", "rank"),
    Index("held_up_hour", "hour_ns"),
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
)

# Settled amounts of one job by metric (`readings.Count`: times in ns). `labels` hold cluster and team as they were
# when the amount was added, so that no series ever falls when a job's own description changes.
counters = Table(
    "counters",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Numeric, nullable=False),
    PrimaryKeyConstraint("job_id", "name", "labels"),
)

# The sums of `counters` over all jobs: add the slots up (writers spread over them).
counter_totals = Table(
    "counter_totals",
    metadata,
    Column("slot", SmallInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("value", Numeric, nullable=False),
    PrimaryKeyConstraint("slot", "name", "labels"),
)

# What was refused, by position in its batch. `event` is the sender's own text, cut; `digest` makes a repeat one row.
quarantine = Table(
    "quarantine",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("received_ns", BigInteger, nullable=False),
    Column("node", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("seq", BigInteger),
    Column("position", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("digest", BigInteger, nullable=False, unique=True),
    Index("quarantine_received", "received_ns"),
)

# Events by what became of them: accepted, duplicate, conflict, quarantined, rejected (bodies). Add the slots up.
ingest_counts = Table(
    "ingest_counts",
    metadata,
    Column("slot", SmallInteger, nullable=False),
    Column("result", Text, nullable=False),
    Column("n", BigInteger, nullable=False),
    PrimaryKeyConstraint("slot", "result"),
)

# Who owns a component; without a row it owns itself.
owners = Table(
    "owners",
    metadata,
    Column("component", Text, primary_key=True),
    Column("owner", Text, nullable=False),
)

# One row: raw events before `horizon_ns` are gone, and refused when they come.
retention = Table(
    "retention",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("horizon_ns", BigInteger, nullable=False),
)

# Who may what. Rows stay for ever: a service that ever had a token never opens again. Of a secret only its SHA-256
# is here; `old_hash` is good until `old_until_ns` after a rotation. `rate`: requests/s, 0 for no limit.
tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    *(Column(name, Text, nullable=False) for name in ("name", "scope")),
    *(Column(name, ARRAY(Text), nullable=False) for name in ("clusters", "nodes", "teams")),
    Column("rate", Integer, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("old_hash", LargeBinary),
    Column("old_until_ns", BigInteger),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger),
    Column("revoked_ns", BigInteger),
)

# Whose a job or a node is: the cluster whose token named it first (`kind`: job, node).
claims = Table(
    "claims",
    metadata,
    *(Column(name, Text, primary_key=True) for name in ("kind", "name")),
    Column("cluster", Text, nullable=False),
)

# What was done to tokens, and who tried to speak for another.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at_ns", BigInteger, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("who", "what")),
    Column("detail", JSONB, nullable=False),
)
