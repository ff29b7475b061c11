"""What came: events, who sent them, and what is still to be booked."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from fleet_ett.postgres.tables.metadata import ZERO, metadata

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
    # a booking reads what is new of a job, and the few events that it needs of any time
    Index("events_job", "job_id", "start_ns"),
    Index("events_rare", "job_id", "start_ns", postgresql_where=text("type IN (1, 2, 8)")),
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
# `last_ns`: when the service last counted some (its clock).
ingest_counts = Table(
    "ingest_counts",
    metadata,
    Column("slot", SmallInteger, nullable=False),
    Column("result", Text, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("last_ns", BigInteger),
    PrimaryKeyConstraint("slot", "result"),
)

# One row: raw events before `horizon_ns` are gone, and refused when they come; segments that ended at `segments_ns`
# or before are gone.
retention = Table(
    "retention",
    metadata,
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("horizon_ns", BigInteger, nullable=False),
    Column("segments_ns", BigInteger, nullable=False, server_default=ZERO),
)
