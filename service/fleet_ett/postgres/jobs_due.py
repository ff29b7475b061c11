"""Which jobs have to be booked, and one of them for oneself.

A job's row is the lock: who holds it books the job, others pass by. Marks become `dirty` attempts under that
lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

NODE_MARKS_AT_ONCE = 10_000
DAY_NS = 86_400_000_000_000

_DUE = text(
    "SELECT job_id FROM (SELECT job_id, min(marked_ns) AS since FROM marks WHERE job_id > 0 GROUP BY job_id"
    " UNION ALL SELECT job_id, due_ns FROM jobs WHERE due_ns <= :now) w JOIN jobs j USING (job_id)"
    " WHERE j.not_before_ns <= :now GROUP BY job_id ORDER BY min(w.since), job_id LIMIT :most"
)
_HOLD = text(
    "SELECT job FROM jobs WHERE job_id = :job_id AND not_before_ns <= :now"
    " AND (due_ns <= :now OR EXISTS (SELECT FROM marks m WHERE m.job_id = jobs.job_id))"
    " FOR NO KEY UPDATE SKIP LOCKED"
)
_HOLD_ANYWAY = text("SELECT job FROM jobs WHERE job_id = :job_id FOR NO KEY UPDATE")
_TAKE = text("DELETE FROM marks WHERE job_id = :job_id RETURNING attempt_id, first_ns, last_ns")
_SOIL = text(
    "UPDATE attempts a SET dirty = true, first_ns = least(a.first_ns, n.first_ns),"
    " last_ns = greatest(a.last_ns, n.last_ns)"
    " FROM unnest(CAST(:attempts AS integer[]), CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[]))"
    " AS n (attempt_id, first_ns, last_ns) WHERE a.job_id = :job_id AND a.attempt_id = n.attempt_id"
)
_SOIL_NEAR = text(
    "UPDATE attempts SET dirty = true WHERE job_id = :job_id AND first_ns <= :last + :before"
    " AND (end_ns IS NULL OR :first <= end_ns + :after)"
)
# Marks of a node become marks of what it worked for then. An attempt that is stored just now has a mark of its
# own, and whoever takes that one sees what this node's mark stands for.
_SPREAD = text(
    "WITH taken AS (DELETE FROM marks WHERE mark_id IN (SELECT mark_id FROM marks WHERE job_id = 0"
    " ORDER BY mark_id LIMIT :most FOR UPDATE SKIP LOCKED) RETURNING node, first_ns, last_ns, marked_ns)"
    " INSERT INTO marks (job_id, attempt_id, marked_ns)"
    " SELECT a.job_id, a.attempt_id, min(t.marked_ns) FROM taken t JOIN attempt_nodes n USING (node)"
    " JOIN attempts a ON a.job_id = n.job_id AND a.attempt_id = n.attempt_id"
    " WHERE a.first_ns IS NULL OR (a.first_ns <= t.last_ns + :before"
    " AND (a.end_ns IS NULL OR t.first_ns <= a.end_ns + :after)) GROUP BY a.job_id, a.attempt_id"
)
_PACE = text("UPDATE jobs SET not_before_ns = :not_before WHERE job_id = :job_id")
_FAILED = text(
    "UPDATE jobs SET error = :error, due_ns = :due, not_before_ns = :not_before WHERE job_id = :job_id"
)
_ALL = text("SELECT job_id FROM jobs ORDER BY job_id")
_ONE = text("SELECT job_id FROM jobs WHERE job = :job")


def due_jobs(conn: Connection, *, now: int, most: int) -> list[int]:
    """The ids of jobs to book at `now` (ns), those that wait the longest first."""
    return list(conn.execute(_DUE, {"now": now, "most": most}).scalars())


def hold_job(conn: Connection, job_id: int, *, now: int) -> str | None:
    """The job's key, and the job is held until the transaction ends; None: somebody else's, or done already."""
    found: str | None = conn.execute(_HOLD, {"job_id": job_id, "now": now}).scalar()
    return found


def wait_for_job(conn: Connection, job_id: int) -> str:
    """The job's key, once nobody else holds the job."""
    return str(conn.execute(_HOLD_ANYWAY, {"job_id": job_id}).scalar_one())


def take_marks(conn: Connection, job_id: int, *, before: int, after: int) -> None:
    """Turn the marks of a held job into dirty attempts.

    `before`, `after` (ns): how far a fault may lie from an attempt that it concerns.
    """
    spans: dict[int, tuple[int | None, int | None]] = {}
    near: list[int] = []
    for attempt_id, first, last in conn.execute(_TAKE, {"job_id": job_id}):
        if attempt_id is None:
            near += [stamp for stamp in (first, last) if stamp is not None]
            continue
        old_first, old_last = spans.get(attempt_id, (None, None))
        firsts = [stamp for stamp in (first, old_first) if stamp is not None]
        lasts = [stamp for stamp in (last, old_last) if stamp is not None]
        spans[attempt_id] = (min(firsts, default=None), max(lasts, default=None))
    if spans:
        firsts_of, lasts_of = zip(*spans.values(), strict=True)
        told = {"attempts": list(spans), "firsts": list(firsts_of), "lasts": list(lasts_of)}
        conn.execute(_SOIL, {"job_id": job_id, **told})
    if near:
        told_near = {"first": min(near), "last": max(near), "before": before, "after": after}
        conn.execute(_SOIL_NEAR, {"job_id": job_id, **told_near})


def spread_node_marks(conn: Connection, *, after: int) -> int:
    """Turn what nodes said beside all jobs into marks of the attempts it concerns; returns how many."""
    told = {"most": NODE_MARKS_AT_ONCE, "before": DAY_NS, "after": after}
    return conn.execute(_SPREAD, told).rowcount


def pace_job(conn: Connection, job_id: int, *, not_before: int) -> None:
    """Book a held job no sooner than that (ns) again."""
    conn.execute(_PACE, {"job_id": job_id, "not_before": not_before})


def note_error(conn: Connection, job_id: int, error: str, *, due: int, not_before: int) -> None:
    """Say why a held job could not be booked, and when to try again (ns): at `not_before` if something comes."""
    told = {"job_id": job_id, "error": error, "due": due, "not_before": not_before}
    conn.execute(_FAILED, told)


def job_ids(conn: Connection, job: str | None) -> list[int]:
    """The ids of all jobs, or of the one of that key."""
    return list(conn.execute(_ALL if job is None else _ONE, {} if job is None else {"job": job}).scalars())
