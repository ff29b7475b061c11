"""The segments of a part of an hour: looked up job by job, on each of several servers by itself.

Revision: 2026_11_30_0420
Revises: 2026_11_30_0310
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0420"
down_revision = "2026_11_30_0310"
branch_labels = None
depends_on = None

# A job's segments do not overlap: the first one of interest is the last that starts at or before the part. OFFSET has
# them looked up through the key, whatever the planner thinks of it.
SEGMENTS = """
SELECT h.job_id, s.attempt_id, h.hour_ns, s.start_ns, s.end_ns, s.heading, s.phase, s.component, s.repeated, s.gpus,
    s.settled
FROM (SELECT job_id, hour_ns FROM job_hours {of_hour} UNION SELECT job_id, hour_ns FROM ledger_deltas {of_hour}) h
CROSS JOIN LATERAL (
    SELECT begun.* FROM (
        SELECT * FROM segments WHERE job_id = h.job_id AND start_ns <= {low} ORDER BY start_ns DESC LIMIT 1
    ) begun WHERE begun.end_ns > {low}
    UNION ALL SELECT * FROM segments WHERE job_id = h.job_id AND start_ns > {low} AND start_ns < {high}
    OFFSET 0
) s
"""
# A view for those who can hand over no values: what another server is asked. The function is inlined.
VIEW = SEGMENTS.format(of_hour="", low="h.hour_ns", high="h.hour_ns + 3600000000000")
FUNCTION = SEGMENTS.format(
    of_hour="WHERE hour_ns = edge_segments.hour", low="edge_segments.low", high="edge_segments.high"
)


def upgrade() -> None:
    """Make both."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(f"CREATE VIEW hour_segments AS {VIEW}")
    op.execute(
        "CREATE FUNCTION edge_segments(hour bigint, low bigint, high bigint) RETURNS SETOF hour_segments"
        f" LANGUAGE sql STABLE AS $${FUNCTION}$$"
    )


def downgrade() -> None:
    """Drop them."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP FUNCTION edge_segments")
    op.execute("DROP VIEW hour_segments")
