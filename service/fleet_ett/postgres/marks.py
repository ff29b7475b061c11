"""What came and is not booked yet: ingest appends a mark, the worker takes it.

A mark tells which attempt new events concern and where their stamps lie. One that names a node as well as an
attempt is of what lies beside the attempt's own events, and without a stamp may lie anywhere. Marks are only ever
added and removed, so neither side waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ADD = text(
    "INSERT INTO marks (job_id, attempt_id, node, first_ns, last_ns, marked_ns)"
    " SELECT n.job_id, n.attempt_id, n.node, n.first_ns, n.last_ns, :now"
    " FROM unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[]), CAST(:nodes AS text[]),"
    " CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[])) AS n (job_id, attempt_id, node, first_ns, last_ns)"
)


@dataclass(slots=True)
class Marks:
    """The marks of one batch: stamps by (job id, attempt id or None, node or None)."""

    spans: dict[tuple[int, int | None, str | None], tuple[int | None, int | None]] = field(
        default_factory=dict
    )

    def add(self, job_id: int, attempt_id: int | None, stamp: int | None, node: str | None = None) -> None:
        """New events of an attempt, of a job as a whole, or of a node (job 0) at a stamp (ns); see above."""
        key = (job_id, attempt_id, node)
        first, last = self.spans.get(key, (stamp, stamp))
        if stamp is not None:
            first = stamp if first is None else min(first, stamp)
            last = stamp if last is None else max(last, stamp)
        self.spans[key] = (first, last)


def add_marks(conn: Connection, marks: Marks, *, now: int) -> None:
    """Store the marks; `now` (ns) is when they were made."""
    if marks.spans:
        jobs, attempts, nodes = zip(*marks.spans, strict=True)
        firsts, lasts = zip(*marks.spans.values(), strict=True)
        told = {"jobs": jobs, "attempts": attempts, "nodes": nodes, "firsts": firsts, "lasts": lasts}
        conn.execute(_ADD, {"now": now, **{name: list(values) for name, values in told.items()}})
