"""One job's books in one transaction, held by nobody else: `fleet_ett.attribution.Job` on a connection."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from ett_collector.wire import Event
from fleet_ett.attribution import Attempt
from fleet_ett.core.identity import unique
from fleet_ett.core.ledger import Carry, JobMeta, attempt_start, job_meta
from fleet_ett.core.summary import AttemptSummary
from fleet_ett.postgres import counters, ledgers, rollups
from fleet_ett.postgres.event_reads import EventReads, Place
from fleet_ett.postgres.tables import ledger, segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.job import Incident, JobSummary
    from fleet_ett.core.ledger import Link
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch

DAY_NS = 86_400_000_000_000

_ATTEMPTS = text(
    "SELECT attempt_id, attempt, first_ns, last_ns, alloc_ns, released, dirty, link_digest, summary, carry,"
    " summary IS NOT NULL AND first_ns < (SELECT horizon_ns FROM retention) AS frozen"
    " FROM attempts WHERE job_id = :job_id"
)
_BOOK = text(
    "UPDATE attempts SET alloc_ns = :alloc, released = :released, dirty = false, index = :index, start_ns = :start,"
    " end_ns = :end, live = :live, outcome = :outcome, gpus = :gpus, link_digest = :link_digest, as_of_ns = :now,"
    " carry = CAST(:carry AS jsonb), summary = CAST(:summary AS jsonb)"
    " WHERE job_id = :job_id AND attempt_id = :attempt_id"
)
_UNBOOK = text(
    "UPDATE attempts SET alloc_ns = NULL, dirty = true, index = NULL, start_ns = NULL, end_ns = NULL, live = false,"
    " outcome = NULL, gpus = NULL, link_digest = NULL, as_of_ns = NULL, carry = NULL, summary = NULL"
    " WHERE job_id = :job_id AND attempt_id = :attempt_id"
)
_FACTS = text(
    "SELECT s.node, s.incarnation, f.seq, f.body FROM job_facts f JOIN sources s USING (source_id)"
    " WHERE f.job_id = :job_id"
)
_CLOSE = text(
    "UPDATE jobs SET name = :name, cluster = :cluster, team = :team, model = :model, framework = :framework,"
    " labels = CAST(:labels AS jsonb), start_ns = :start, end_ns = :end, live = :live, as_of_ns = :now,"
    " due_ns = :due, error = NULL, late_ns = late_ns + :late, summary = CAST(:summary AS jsonb)"
    " WHERE job_id = :job_id"
)


@dataclass(slots=True)
class JobBooks:
    """The books of a job whose row this transaction has locked."""

    conn: Connection
    job_id: int
    job: str
    policy: Policy
    reads: EventReads = field(init=False)
    places: dict[int, Place] = field(default_factory=dict)
    deltas: rollups.Deltas = field(default_factory=rollups.Deltas)
    late_ns: int = 0

    def __post_init__(self) -> None:
        self.reads = EventReads(self.conn)

    def attempts(self) -> list[Attempt]:
        """See `fleet_ett.attribution.Job`."""
        out = []
        for row in self.conn.execute(_ATTEMPTS, {"job_id": self.job_id}):
            first, last = row.first_ns or 0, row.last_ns or 0
            place = Place(self.job_id, row.attempt_id, self.job, row.attempt, first, last)
            self.places[row.attempt_id] = place
            out.append(
                Attempt(
                    row.attempt_id,
                    row.attempt,
                    row.alloc_ns,
                    row.released,
                    last,
                    row.dirty,
                    bool(row.frozen),
                    row.link_digest,
                    None if row.summary is None else AttemptSummary.from_json(row.summary),
                    None if row.carry is None else Carry.from_json(row.carry),
                )
            )
        return out

    def started(self, attempt: Attempt) -> tuple[int, bool]:
        """See `fleet_ett.attribution.Job`."""
        place = self.places[attempt.attempt_id]
        starts = unique(self.reads.starts(place)).events
        if starts:
            return attempt_start(starts)
        return self.reads.first_stamp(place) or 0, True

    def events(self, attempt: Attempt, link: Link, *, now: int) -> Iterable[Event | StepBatch]:
        """See `fleet_ett.attribution.Job`."""
        place = self.places[attempt.attempt_id]
        own = self.reads.own(place)
        ends = [(one.start or 0) - one.clock_offset_ns for one in own if one.type == "attempt_end"]
        known = [moment for moment in (max(ends, default=None), link.next_start, now) if moment is not None]
        end = min(known)
        low, late = place.first - self.policy.before_ns, self.policy.lateness_ns
        near = self.reads.faults(place, low=low, high=end + self.policy.after_ns)
        beats = self.reads.beats(place, low=place.first - DAY_NS, end=end, high=end + late)
        return [*own, *near, *beats, *self.reads.steps(place, own)]

    def meta(self) -> JobMeta:
        """See `fleet_ett.attribution.Job`."""
        found = self.conn.execute(_FACTS, {"job_id": self.job_id})
        told = [
            Event("job", row.node, row.incarnation, row.seq, 0, self.job, None, None, None, None, row.body)
            for row in found
        ]
        return job_meta(unique(told).events)

    def book(self, attempt: Attempt, books: AttemptBooks, *, link_digest: str, now: int) -> None:
        """See `fleet_ett.attribution.Job`."""
        for table, rows in ledgers.attempt_rows(self.job_id, attempt.attempt_id, books).items():
            before = ledgers.replace_rows(self.conn, table, self.job_id, attempt.attempt_id, rows)
            if table is ledger:
                self.deltas.change(before, rows)
            if table is segments:
                self.late_ns += ledgers.changed_ns(ledgers.settled_rows(before), rows)
        self._write(attempt, books.summary, books.carry, link_digest, now)

    def book_gap(
        self, attempt: Attempt, summary: AttemptSummary, gap: Segments, *, link_digest: str, now: int
    ) -> None:
        """See `fleet_ett.attribution.Job`."""
        assert attempt.carry is not None
        self.deltas.change(*ledgers.replace_gap(self.conn, self.job_id, attempt.attempt_id, gap))
        self._write(attempt, summary, attempt.carry, link_digest, now)

    def _write(
        self, attempt: Attempt, summary: AttemptSummary, carry: Carry, link_digest: str, now: int
    ) -> None:
        self.conn.execute(
            _BOOK,
            {
                "job_id": self.job_id,
                "attempt_id": attempt.attempt_id,
                "alloc": attempt.start,
                "released": attempt.released,
                "index": summary.index,
                "start": summary.start,
                "end": summary.end,
                "live": summary.live,
                "outcome": summary.outcome,
                "gpus": summary.gpus,
                "link_digest": link_digest,
                "now": now,
                "carry": _json(carry.to_json()),
                "summary": _json(summary.to_json()),
            },
        )

    def unbook(self, attempt: Attempt) -> None:
        """See `fleet_ett.attribution.Job`."""
        rollups.take_out(self.conn, self.job_id, [attempt.attempt_id])
        ledgers.drop_attempt(self.conn, self.job_id, attempt.attempt_id)
        self.conn.execute(_UNBOOK, {"job_id": self.job_id, "attempt_id": attempt.attempt_id})

    def close(self, summary: JobSummary, attempts: Sequence[Attempt], *, due: int | None) -> None:
        """See `fleet_ett.attribution.Job`."""
        ids = {one.attempt: one.attempt_id for one in attempts}
        rows = [_incident(ids[one.attempt], one) for one in summary.incidents]
        ledgers.replace_incidents(self.conn, self.job_id, rows)
        meta = summary.meta
        self.deltas.note(self.conn, self.job_id, meta)
        self.conn.execute(
            _CLOSE,
            {
                "job_id": self.job_id,
                "name": meta.name,
                "cluster": meta.cluster,
                "team": meta.team,
                "model": meta.model,
                "framework": meta.framework,
                "labels": _json(meta.labels),
                "start": summary.start,
                "end": summary.end,
                "live": summary.live,
                "now": summary.as_of,
                "due": due,
                "late": self.late_ns,
                "summary": _json(summary.to_json()),
            },
        )
        settled = counters.settled_amounts(
            ledgers.settled_sums(self.conn, self.job_id),
            summary,
            [one.summary for one in attempts if one.summary is not None],
            now=summary.as_of,
            evidence_ns=self.policy.after_ns,
        )
        counters.raise_counters(self.conn, self.job_id, meta.cluster, meta.team, settled)


def _incident(attempt_id: int, one: Incident) -> dict[str, Any]:
    return {
        "attempt_id": attempt_id,
        "at_ns": one.at,
        "outcome": one.outcome,
        "cause": one.cause,
        "kind": one.kind,
        "component": one.component,
        "status": one.status,
        "evidence": list(one.evidence),
        "node": one.node,
        "rank": one.rank,
        "stall_ns": one.stall_ns,
        "gap_ns": one.gap_ns,
        "restart_ns": one.restart_ns,
        "replay_ns": one.replay_ns,
        "gpu_ns": one.gpu_ns,
        "detection_ns": one.detection_ns,
        "rolled_back_to": one.rolled_back_to,
        "replayed_steps": one.replayed_steps,
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
