"""Views that readers ask as if they were tables."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, PrimaryKeyConstraint, Table, Text

views = MetaData()

# The segments of an hour, whole, of the jobs that have time in it; the function `edge_segments(hour, low, high)` has
# those of a part of an hour. A server looks them up job by job; the joined view of several could only do so from afar.
hour_segments = Table(
    "hour_segments",
    views,
    Column("job_id", BigInteger, nullable=False),
    Column("attempt_id", Integer, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    Column("start_ns", BigInteger, nullable=False),
    Column("end_ns", BigInteger, nullable=False),
    Column("heading", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("repeated", Boolean, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("settled", Boolean, nullable=False),
    PrimaryKeyConstraint("job_id", "hour_ns", "start_ns", "attempt_id"),
)
