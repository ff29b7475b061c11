"""Which jobs have to be booked, and some of them for oneself.

A job's row is the lock: who holds it books the job, others pass by. Marks are taken under that lock, and what is
not booked at once becomes `dirty` attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    Span = tuple[int | None, int | None]

NODE_MARKS_AT_ONCE = 10_000
# A pause that ends later than this was begun by a clock that was ahead, and set back since.
LONGEST_PAUSE_NS = 120_000_000_000
DAY_NS = 86_400_000_000_000

_DUE = text(
    "SELECT job_id FROM (SELECT job_id, min(marked_ns) AS since FROM marks WHERE job_id > 0 GROUP BY job_id"
    " UNION ALL SELECT job_id, due_ns FROM jobs WHERE waits AND due_ns <= :now) w JOIN jobs j USING (job_id)"
    " WHERE (j.not_before_ns <= :now OR j.not_before_ns > :pause)"
    " GROUP BY job_id ORDER BY min(w.since), job_id LIMIT :most"
)
_SHOWN = "SELECT job_id, job, name, cluster, team, model, framework, labels, state, folded FROM jobs"
_HOLD = text(
    f"{_SHOWN} WHERE job_id = ANY(:jobs) AND (not_before_ns <= :now OR not_before_ns > :pause)"  # noqa: S608
    " AND (due_ns <= :now OR EXISTS (SELECT 1 FROM marks m WHERE m.job_id = jobs.job_id))"
    " FOR NO KEY UPDATE SKIP LOCKED"
)
_HOLD_ANYWAY = text(f"{_SHOWN} WHERE job_id = ANY(:jobs) ORDER BY job_id FOR NO KEY UPDATE")
_TAKE = text(
    "DELETE FROM marks WHERE job_id = ANY(:jobs) RETURNING job_id, attempt_id, node, first_ns, last_ns"
)
_SOIL = text(
    "UPDATE attempts a SET dirty = true, first_ns = least(a.first_ns, n.first_ns),"
    " last_ns = greatest(a.last_ns, n.last_ns), folded = false, resume = NULL"
    " FROM unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[]), CAST(:firsts AS bigint[]),"
    " CAST(:lasts AS bigint[])) AS n (job_id, attempt_id, first_ns, last_ns)"
    " WHERE a.job_id = n.job_id AND a.attempt_id = n.attempt_id"
)
_NEAR = text(
    "SELECT attempt_id FROM attempts WHERE job_id = :job_id AND first_ns <= :last + :before"
    " AND (end_ns IS NULL OR :first <= end_ns + :after)"
)
# Marks of a node become marks of what it worked for then. An attempt that is stored just now has a mark of its
# own, and whoever takes that one sees what this node's mark stands for.
_SPREAD = text(
    "WITH taken AS (DELETE FROM marks WHERE mark_id IN (SELECT mark_id FROM marks WHERE job_id = 0"
    " ORDER BY mark_id LIMIT :most FOR UPDATE SKIP LOCKED) RETURNING node, first_ns, last_ns, marked_ns)"
    " INSERT INTO marks (job_id, attempt_id, node, first_ns, last_ns, marked_ns)"
    " SELECT a.job_id, a.attempt_id, min(t.node), min(t.first_ns), max(t.last_ns), min(t.marked_ns)"
    " FROM taken t JOIN attempt_nodes n USING (node)"
    " JOIN attempts a ON a.job_id = n.job_id AND a.attempt_id = n.attempt_id"
    " WHERE a.first_ns IS NULL OR (a.first_ns <= t.last_ns + :before"
    " AND (a.end_ns IS NULL OR t.first_ns <= a.end_ns + :after)) GROUP BY a.job_id, a.attempt_id"
)
_FAILED = text(
    "UPDATE jobs SET error = :error, due_ns = :due, not_before_ns = :not_before, state = NULL"
    " WHERE job_id = :job_id"
)
_ALL = text("SELECT job_id, job FROM jobs ORDER BY job_id")
_ONE = text("SELECT job_id, job FROM jobs WHERE job = :job")


@dataclass(slots=True)
class Marked:
    """What came of a job.

    `spans`: stamps (first, last; ns) of an attempt's own events by attempt id; `since`: the least stamp of anything
    that concerns it, 0 where there is none; `facts`: the job said something of itself.
    """

    spans: dict[int, Span] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    facts: bool = False

    def add(self, attempt_id: int, first: int | None, last: int | None) -> None:
        """Events of an attempt with stamps in [first, last]."""
        old_first, old_last = self.spans.get(attempt_id, (None, None))
        self.spans[attempt_id] = (_least(first, old_first), _greatest(last, old_last))
        self._reach(attempt_id, first)

    def add_near(self, attempt_id: int, first: int | None) -> None:
        """Something beside an attempt's events that concerns it, from `first` on; None: anywhere."""
        self.spans.setdefault(attempt_id, (None, None))
        self._reach(attempt_id, first)

    def _reach(self, attempt_id: int, first: int | None) -> None:
        stamp = first or 0
        self.since[attempt_id] = min(stamp, self.since.get(attempt_id, stamp))


def due_jobs(conn: Connection, *, now: int, most: int) -> list[int]:
    """The ids of jobs to book at `now` (ns), those that wait the longest first."""
    told = {"now": now, "pause": now + LONGEST_PAUSE_NS, "most": most}
    return list(conn.execute(_DUE, told).scalars())


def hold_jobs(conn: Connection, job_ids: Sequence[int], *, now: int | None) -> Sequence[Row[Any]]:
    """Those of the jobs that are due and held by nobody else, held until the transaction ends.

    With `now` None: all of them, once nobody else holds them.
    """
    query, told = (
        (_HOLD_ANYWAY, {}) if now is None else (_HOLD, {"now": now, "pause": now + LONGEST_PAUSE_NS})
    )
    return conn.execute(query, {"jobs": list(job_ids), **told}).all()


def take_marks(conn: Connection, job_ids: Sequence[int], *, before: int, after: int) -> dict[int, Marked]:
    """The marks of held jobs by job id; they are gone with the transaction, and have to be kept elsewhere.

    `before`, `after` (ns): how far a fault may lie from an attempt that it concerns.
    """
    out = {job_id: Marked() for job_id in job_ids}
    near: dict[int, list[int]] = {}
    for job_id, attempt_id, node, first, last in conn.execute(_TAKE, {"jobs": list(job_ids)}):
        if attempt_id is not None and node is not None:
            out[job_id].add_near(attempt_id, first)
        elif attempt_id is not None:
            out[job_id].add(attempt_id, first, last)
        elif first is None:
            out[job_id].facts = True
        else:
            near.setdefault(job_id, []).extend((first, last))
    for job_id, stamps in near.items():
        told = {"first": min(stamps), "last": max(stamps), "before": before, "after": after}
        for attempt_id in conn.execute(_NEAR, {"job_id": job_id, **told}).scalars():
            out[job_id].add_near(attempt_id, min(stamps))
    return out


def soil_attempts(conn: Connection, spans: Sequence[tuple[int, int, int | None, int | None]]) -> None:
    """Keep marks with the attempts, to be booked later: (job id, attempt id, first and last stamp in ns)."""
    if spans:
        jobs, attempts, firsts, lasts = (list(column) for column in zip(*spans, strict=True))
        conn.execute(_SOIL, {"jobs": jobs, "attempts": attempts, "firsts": firsts, "lasts": lasts})


def spread_node_marks(conn: Connection, *, after: int) -> int:
    """Turn what nodes said beside all jobs into marks of the attempts it concerns; returns how many."""
    told = {"most": NODE_MARKS_AT_ONCE, "before": DAY_NS, "after": after}
    return conn.execute(_SPREAD, told).rowcount


@dataclass(frozen=True, slots=True)
class Retry:
    """Why a job could not be booked, and when to try again (ns): at `not_before` if something comes."""

    error: str
    due: int
    not_before: int


def give_up(conn: Connection, job_id: int, marked: Marked, retry: Retry) -> None:
    """Leave a held job's books as they are, say why, and keep its marks, which were taken."""
    soil_attempts(conn, [(job_id, attempt_id, *span) for attempt_id, span in marked.spans.items()])
    told = {"error": retry.error, "due": retry.due, "not_before": retry.not_before}
    conn.execute(_FAILED, {"job_id": job_id, **told})


def job_ids(conn: Connection, job: str | None) -> dict[int, str]:
    """The ids of all jobs, or of the one of that key, with their keys."""
    found = conn.execute(_ALL if job is None else _ONE, {} if job is None else {"job": job})
    return {row.job_id: row.job for row in found}


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
