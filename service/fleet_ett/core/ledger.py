"""A job's and a fleet's books put together from attempts: the public door of the core.

`attribute(events, now=, policy=)` works on a list in a notebook; the service books attempt by attempt with
`attempt.attribute_attempt` and uses `job.assemble` for the rest. Both give the same numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleet_ett.core.attempt import AttemptBooks, Carry, Link, Unbalanced, attempt_start, attribute_attempt, book_attempt
from fleet_ett.core.facts import at, beats_of
from fleet_ett.core.goodput import Goodput, goodput
from fleet_ett.core.identity import Delivered, unique
from fleet_ett.core.job import Incident, JobMeta, JobSummary, assemble, job_meta
from fleet_ett.core.policy import Policy
from fleet_ett.core.steps import StepBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ett_collector.wire import Event

__all__ = [
    "AttemptBooks",
    "Carry",
    "FleetBooks",
    "Incident",
    "JobMeta",
    "JobSummary",
    "Ledger",
    "Link",
    "Unbalanced",
    "assemble",
    "attempt_start",
    "attribute",
    "attribute_attempt",
    "attribute_fleet",
    "job_meta",
]


@dataclass(slots=True)
class Ledger:
    """The books of one job: its summary and the attempts in order."""

    job: str
    summary: JobSummary
    attempts: list[AttemptBooks]

    def goodput(self) -> Goodput:
        """The other convention, in which a lost execution is discounted afterwards (`goodput.py`)."""
        return goodput(self.attempts)


@dataclass(slots=True)
class FleetBooks:
    """The books of many jobs, and what delivery did."""

    jobs: dict[str, Ledger] = field(default_factory=dict)
    duplicates: int = 0
    conflicts: int = 0


def attribute(
    events: Iterable[Event | StepBatch], *, now: int | None = None, policy: Policy | None = None
) -> Ledger:
    """The ledger of the one job that `events` speak of.

    `now` (ns) is the time of the question, by default the newest stamp. Order and repeats of the events do
    not matter. Raises ValueError when the events name no job or several, `Unbalanced` on a bug.
    """
    books = attribute_fleet(events, now=now, policy=policy)
    if len(books.jobs) != 1:
        msg = f"expected the events of one job, got {len(books.jobs)}: use attribute_fleet"
        raise ValueError(msg)
    return next(iter(books.jobs.values()))


def attribute_fleet(
    events: Iterable[Event | StepBatch], *, now: int | None = None, policy: Policy | None = None
) -> FleetBooks:
    """The ledgers of all jobs that `events` speak of (see `attribute`)."""
    policy = policy or Policy()
    delivered = unique(events)
    out = FleetBooks(duplicates=delivered.duplicates, conflicts=delivered.conflicts)
    split = _by_job(delivered)
    now = _newest(delivered) if now is None else now
    for job, mine in sorted(split.jobs.items()):
        ordered = _attempts(job, mine, split, now)
        books: list[AttemptBooks] = []
        carry = Carry.empty()
        for index, (_, _, attempt) in enumerate(ordered):
            follower = ordered[index + 1] if index + 1 < len(ordered) else None
            link = Link(index, carry, follower[0] if follower else None, follower[1] if follower else True)
            books.append(book_attempt(job, attempt, mine[attempt], link, now=now, policy=policy))
            carry = books[-1].carry
        meta = job_meta(split.meta.get(job, []))
        summary = assemble(job, meta, [b.summary for b in books], now=now, policy=policy)
        out.jobs[job] = Ledger(job, summary, books)
    return out


@dataclass(slots=True)
class _Split:
    jobs: dict[str, dict[str, Delivered]] = field(default_factory=dict)
    meta: dict[str, list[Event]] = field(default_factory=dict)
    beats: list[Event] = field(default_factory=list)
    faults: list[Event] = field(default_factory=list)

    def place(self, job: str, attempt: str) -> Delivered:
        attempts = self.jobs.setdefault(job, {})
        if attempt not in attempts:
            attempts[attempt] = Delivered([], [])
        return attempts[attempt]


def _by_job(delivered: Delivered) -> _Split:
    split = _Split()
    for batch in delivered.batches:
        split.place(batch.job, batch.attempt).batches.append(batch)
    for event in delivered.events:
        if event.type == "heartbeat":
            split.beats.append(event)
        elif event.type == "job":
            split.meta.setdefault(event.job or "", []).append(event)
            split.jobs.setdefault(event.job or "", {})
        elif event.job is not None and event.attempt is not None:
            split.place(event.job, event.attempt).events.append(event)
        elif event.type == "fault":
            split.faults.append(event)
    for event in split.beats:
        for one in event.body.get("jobs", ()):
            place = split.place(one["job"], one["attempt"])
            if not place.events or place.events[-1] is not event:
                place.events.append(event)
    for event in delivered.conflicted:
        if event.job in split.jobs and event.attempt in split.jobs[event.job]:
            split.jobs[event.job][event.attempt].conflicted.append(event)
    return split


def _attempts(
    job: str, mine: dict[str, Delivered], split: _Split, now: int
) -> list[tuple[int, bool, str]]:
    """The job's attempts that had begun by `now`, by start; node faults and beats handed to each."""
    ordered: list[tuple[int, bool, str]] = []
    for attempt, delivered in mine.items():
        own = [e for e in delivered.events if e.attempt == attempt or beats_of(e, job, attempt)]
        own += [event for batch in delivered.batches for event in _first(batch)]
        begin, released = attempt_start(own)
        if begin <= now:
            ordered.append((begin, released, attempt))
    ordered.sort()
    if split.faults or split.beats:
        for _, _, attempt in ordered:
            _hand_out(job, mine[attempt], split)
    return ordered


def _first(batch: StepBatch) -> Iterable[Event]:
    row = int(batch.start.argmin())
    for event in batch.events() if len(batch) < 2 else ():  # noqa: PLR2004
        yield event
    if len(batch) > 1:
        one = slice(row, row + 1)
        yield from StepBatch(
            batch.job,
            batch.attempt,
            batch.rank,
            batch.node,
            batch.incarnation,
            batch.seq[one],
            batch.first[one],
            batch.last[one],
            batch.start[one],
            batch.end[one],
            batch.clock_offset_ns,
        ).events()


def _hand_out(job: str, delivered: Delivered, split: _Split) -> None:
    """Give an attempt the faults and heartbeats of its nodes that name no attempt."""
    nodes = {event.node for event in delivered.events} | {batch.node for batch in delivered.batches}
    for event in delivered.events:
        if event.type == "attempt_start":
            nodes.update(event.body.get("nodes", ()))
            nodes.update(event.body.get("gpus_by_node", ()))
    delivered.events += [e for e in split.faults if e.job == job or (e.job is None and e.node in nodes)]
    have = {id(event) for event in delivered.events}
    delivered.events += [e for e in split.beats if e.node in nodes and id(e) not in have]


def _newest(delivered: Delivered) -> int:
    stamps: list[int] = [int(batch.end.max()) - batch.clock_offset_ns for batch in delivered.batches]
    for event in delivered.events:
        stamp = event.end if event.end is not None else event.start
        if stamp is not None:
            stamps.append(stamp - event.clock_offset_ns)
    return max(stamps, default=0)
