"""One job's books in a transaction that holds the job: `fleet_ett.attribution.Job`, read with those of other jobs.

What is written is gathered, and told to the database with that of other jobs (`bookings.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fleet_ett.attribution import Attempt, Folded
from fleet_ett.core.ledger import Carry, JobMeta
from fleet_ett.core.resume import Resume
from fleet_ett.core.summary import AttemptSummary
from fleet_ett.core.totals import Totals
from fleet_ett.postgres import counters, ledgers
from fleet_ett.postgres.event_reads import Place
from fleet_ett.postgres.tables import held_up, ledger, segments, work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Table

    from ett_collector.wire import Event
    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.incidents import Incident
    from fleet_ett.core.job import JobSummary
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch
    from fleet_ett.postgres.bookings import Bookings
    from fleet_ett.postgres.counters import Name
    from fleet_ett.postgres.jobs_due import Marked
    from fleet_ett.postgres.ledgers import Cells

DERIVED: tuple[Table, ...] = (ledger, segments, held_up, work)


@dataclass(slots=True)
class JobBooks:
    """The books of a job whose row the transaction of `bookings` has locked.

    `told_of`: what the job said of itself; None: it has to be asked. `settled`: settled (wall ns, GPU-ns) by
    (heading, phase, component, repeated). `names`: cluster, team and so on, as its ledger is noted. `counted`: what
    the counters had of the folded attempts. What is to be written: `changes` of derived rows, `written` rows of
    attempts, `resumes` of them that are others than they had (`had_resume`; `had_start`: when they were booked to
    start), `incidents_now` instead of `incidents`, `closing` of the job's row, `amounts` of its counters, what
    it holds (`held`).
    """

    bookings: Bookings
    job_id: int
    job: str
    told_of: JobMeta | None
    settled: dict[Cells, list[int]]
    names: dict[str, str]
    folded: Folded | None = None
    counted: dict[Name, int] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    places: dict[int, Place] = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    changes: ledgers.Changes = field(default_factory=ledgers.Changes)
    written: list[dict[str, Any]] = field(default_factory=list)
    resumes: list[dict[str, Any]] = field(default_factory=list)
    had_resume: dict[int, Resume | None] = field(default_factory=dict)
    had_start: dict[int, int | None] = field(default_factory=dict)
    unfolded: bool = False
    late_ns: int = 0
    closing: dict[str, Any] | None = None
    incidents_now: list[dict[str, Any]] = field(default_factory=list)
    amounts: dict[Name, int] = field(default_factory=dict)
    held: tuple[int, int, int] = (0, 0, 0)

    def take(self, row: Any) -> None:
        """One more attempt, as its row tells it."""
        first, last = row.first_ns or 0, row.last_ns or 0
        self.places[row.attempt_id] = Place(self.job_id, row.attempt_id, self.job, row.attempt, first, last)
        carry = None if row.carry is None else Carry.from_json(row.carry)
        resume = None if row.resume is None else Resume.from_json(row.resume)
        self.had_resume[row.attempt_id], self.had_start[row.attempt_id] = resume, row.start_ns
        self.attempts.append(
            Attempt(
                row.attempt_id,
                row.attempt,
                row.alloc_ns,
                row.released,
                last,
                row.dirty,
                bool(row.frozen),
                row.link_digest,
                row.carry_digest if carry is None else carry.digest(),
                None if row.summary is None else AttemptSummary.from_json(row.summary),
                carry,
                resume,
            )
        )

    def place(self, attempt: Attempt) -> Place:
        """Where the events are that have to be read of an attempt."""
        since = 0 if attempt.resume is None else attempt.resume.read_from
        return replace(self.places[attempt.attempt_id], since=since)

    def since(self, attempt: Attempt, resume: Resume | None) -> int:
        """From when on (ns) the rows lie that a booking replaces: one from a seam on, or of all of the attempt."""
        return (self.had_start[attempt.attempt_id] or 0) if resume is None else resume.books_from

    def soil(self, attempt: Attempt, marked: Marked) -> None:
        """Let an attempt know what came of it, if anything did."""
        if attempt.attempt_id not in marked.spans:
            return
        attempt.dirty = True
        first, last = marked.spans[attempt.attempt_id]
        if attempt.resume is not None and marked.since[attempt.attempt_id] < attempt.resume.books_from:
            attempt.resume = None
        place = self.places[attempt.attempt_id]
        if first is not None and last is not None:
            place = replace(place, first=min(place.first or first, first), last=max(place.last, last))
            self.places[attempt.attempt_id] = place
            attempt.newest = place.last

    def unfold(self) -> None:
        """See `fleet_ett.attribution.Job`."""
        self.folded, self.counted, self.unfolded = None, {}, True
        self.bookings.unfold(self)

    def started(self, attempt: Attempt) -> tuple[int, bool]:
        """See `fleet_ett.attribution.Job`."""
        return self.bookings.started(self.place(attempt))

    def carry(self, attempt_id: int) -> Carry:
        """See `fleet_ett.attribution.Job`."""
        return self.bookings.carry(self.job_id, attempt_id)

    def events(self, attempt: Attempt, next_start: int | None, *, now: int) -> Iterable[Event | StepBatch]:
        """See `fleet_ett.attribution.Job`."""
        return self.bookings.events(self.place(attempt), next_start, now=now)

    def meta(self) -> JobMeta:
        """See `fleet_ett.attribution.Job`."""
        if self.told_of is None:
            self.told_of = self.bookings.meta(self.job_id)
        return self.told_of

    def book(self, attempt: Attempt, books: AttemptBooks, *, now: int) -> None:
        """See `fleet_ett.attribution.Job`."""
        place, since = self.places[attempt.attempt_id], self.since(attempt, books.resumed)
        kept = self.bookings.segments_since
        for table, rows in ledgers.attempt_rows(self.job_id, attempt.attempt_id, books, since=kept).items():
            before = self.bookings.rows(table, place, since)
            self.changes.replace(table, before, rows)
            if table is segments:
                self.late_ns += ledgers.changed_ns(ledgers.settled_rows(before, since=kept), rows)
        if books.resume is not self.had_resume[attempt.attempt_id]:
            resume = None if books.resume is None else counters.packed(books.resume.to_json())
            self.resumes.append({"job_id": self.job_id, "attempt_id": attempt.attempt_id, "resume": resume})
            attempt.resume = books.resume
        self._write(attempt, now)

    def book_gap(self, attempt: Attempt, gap: Segments, *, now: int) -> None:
        """See `fleet_ett.attribution.Job`."""
        place = self.places[attempt.attempt_id]
        since, kept = self.since(attempt, None), self.bookings.segments_since
        for table, rows in ledgers.gap_rows(self.job_id, attempt.attempt_id, gap, since=kept).items():
            self.changes.replace(table, self.bookings.gap(table, place, since), rows)
        self._write(attempt, now)

    def unbook(self, attempt: Attempt) -> None:
        """See `fleet_ett.attribution.Job`."""
        for table in DERIVED:
            self.changes.replace(
                table,
                self.bookings.rows(table, self.places[attempt.attempt_id], self.since(attempt, None)),
                [],
            )
        attempt.summary = attempt.carry = attempt.link_digest = attempt.carry_digest = None
        self._write(attempt, None)

    def _write(self, attempt: Attempt, now: int | None) -> None:
        summary, place = attempt.summary, self.places[attempt.attempt_id]
        self.written.append(
            {
                "job_id": self.job_id,
                "attempt_id": attempt.attempt_id,
                "first_ns": place.first,
                "last_ns": place.last,
                "alloc_ns": None if summary is None else attempt.start,
                "released": attempt.released,
                "dirty": summary is None,
                "index": summary and summary.index,
                "start_ns": summary and summary.start,
                "end_ns": summary and summary.end,
                "live": summary is not None and summary.live,
                "outcome": summary and summary.outcome,
                "gpus": summary and summary.gpus,
                "link_digest": attempt.link_digest,
                "as_of_ns": now,
                "carry": None if attempt.carry is None else counters.packed(attempt.carry.to_json()),
                "summary": summary and counters.packed(summary.to_json()),
                "carry_digest": attempt.carry_digest,
            }
        )

    def close(
        self, summary: JobSummary, attempts: Sequence[Attempt], *, foldable: int, due: int | None
    ) -> None:
        """See `fleet_ett.attribution.Job`."""
        ids = {one.attempt: one.attempt_id for one in attempts}
        self.incidents_now = [_incident(self.job_id, ids[one.attempt], one) for one in summary.incidents]
        self.settled = ledgers.add_settled(self.settled, self.changes.cells)
        summaries = [one.summary for one in attempts if one.summary is not None]
        told = {"now": summary.as_of, "evidence_ns": self.bookings.policy.after_ns}
        amounts = counters.settled_amounts(self.settled)
        counters.add_amounts(amounts, counters.attempt_amounts(summaries, len(summaries), **told))
        counters.add_amounts(amounts, self.counted)
        self.amounts = amounts
        live = [one for one in summaries if one.live] if summary.live else []
        stuck = [one.gpus for one in live if one.silent_since is not None]
        self.held = (int(summary.live), sum(one.gpus for one in live), sum(stuck))
        if foldable:
            counters.add_amounts(self.counted, counters.attempt_amounts(summaries, foldable, **told))
            self._fold(attempts, foldable)
        meta = summary.meta
        self.closing = {
            "job_id": self.job_id,
            "name": meta.name,
            "cluster": meta.cluster,
            "team": meta.team,
            "model": meta.model,
            "framework": meta.framework,
            "labels": counters.packed(meta.labels),
            "start_ns": summary.start,
            "end_ns": summary.end,
            "live": summary.live,
            "as_of_ns": summary.as_of,
            "due_ns": due,
            "late_ns": self.late_ns,
            "summary": counters.packed(summary.sums_to_json()),
            "state": counters.packed(
                {"settled": [[*label, *amounts] for label, amounts in sorted(self.settled.items())],
                 "conflict": meta.conflict}
            ),
            "folded": self._folded_json() if foldable or self.unfolded else None,
            "folds": bool(foldable or self.unfolded),
        }  # fmt: skip

    def _fold(self, attempts: Sequence[Attempt], count: int) -> None:
        totals = Totals() if self.folded is None else self.folded.totals.copy()
        for one, after in pairwise(attempts[: count + 1]):
            assert one.summary is not None
            totals.add(one.summary, after.summary)
        last = attempts[count - 1]
        assert last.carry_digest is not None
        self.folded = Folded(totals, last.attempt_id, last.place, last.carry_digest)
        self.bookings.folded += [(self.job_id, one.attempt_id) for one in attempts[:count]]

    def _folded_json(self) -> str | None:
        if self.folded is None:
            return None
        one = self.folded
        return counters.packed(
            {
                "totals": one.totals.to_json(),
                "attempt_id": one.attempt_id,
                "place": list(one.place),
                "carry_digest": one.carry_digest,
                "counted": [[name, own, amount] for (name, own), amount in sorted(self.counted.items())],
            }
        )


def unpacked_folded(told: Mapping[str, Any]) -> tuple[Folded, dict[Name, int]]:
    """What `jobs.folded` holds: the folded attempts, and what the counters had of them."""
    start, released, name = told["place"]
    folded = Folded(
        Totals.from_json(told["totals"]), told["attempt_id"], (start, released, name), told["carry_digest"]
    )
    counted = {(name, tuple((key, value) for key, value in own)): n for name, own, n in told["counted"]}
    return folded, counted


def _incident(job_id: int, attempt_id: int, one: Incident) -> dict[str, Any]:
    return {
        "job_id": job_id,
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
