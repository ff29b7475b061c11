"""A job's and a fleet's books: the public door of the core.

`attribute(events, now=, policy=)` works on a list in a notebook. `Books` takes events as they come and
books again only the attempts that they can have changed; the service does the same with its database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet_ett.core.attempt import (
    AttemptBooks,
    attempt_start,
    attribute_attempt,
    book_attempt,
)
from fleet_ett.core.booking import Unbalanced
from fleet_ett.core.deliveries import Deliveries
from fleet_ett.core.goodput import Goodput, goodput
from fleet_ett.core.identity import unique
from fleet_ett.core.incidents import Incident
from fleet_ett.core.job import JobMeta, JobSummary, assemble, job_meta
from fleet_ett.core.link import Carry, Link
from fleet_ett.core.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ett_collector.wire import Event
    from fleet_ett.core.steps import StepBatch

__all__ = [
    "AttemptBooks",
    "Books",
    "Carry",
    "FleetBooks",
    "Goodput",
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
    events: Iterable[Event | StepBatch],
    *,
    now: int | None = None,
    policy: Policy | None = None,
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
    events: Iterable[Event | StepBatch],
    *,
    now: int | None = None,
    policy: Policy | None = None,
) -> FleetBooks:
    """The ledgers of all jobs that `events` speak of (see `attribute`)."""
    books = Books(policy)
    books.add(events)
    return FleetBooks(
        {job: books.ledger(job, now=now) for job in books.jobs()},
        books.duplicates,
        books.conflicts,
    )


class Books:
    """The books of a fleet, kept as events come: each `ledger` costs what the new events can have changed."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.duplicates = 0
        self.conflicts = 0
        self._deliveries = Deliveries()
        self._booked: dict[tuple[str, str], tuple[str, AttemptBooks]] = {}

    def add(self, events: Iterable[Event | StepBatch]) -> None:
        """Take events of any jobs. Repeats of one `add` are counted; those of different ones only dropped."""
        delivered = unique(events)
        self.duplicates += delivered.duplicates
        self.conflicts += delivered.conflicts
        for job, attempt in self._deliveries.take(delivered):
            self._booked.pop((job, attempt), None)

    def jobs(self) -> list[str]:
        """The jobs that events have named, sorted."""
        return sorted(self._deliveries.jobs)

    def ledger(self, job: str, *, now: int | None = None) -> Ledger:
        """The job's ledger at `now` (ns; by default the newest stamp). KeyError for an unknown job."""
        moment = self._deliveries.newest if now is None else now
        ordered = self._deliveries.attempts(job, moment)
        booked: list[AttemptBooks] = []
        carry = Carry.empty()
        for index, (_, _, attempt) in enumerate(ordered):
            follower = ordered[index + 1] if index + 1 < len(ordered) else None
            link = Link(
                index,
                carry,
                follower[0] if follower else None,
                follower[1] if follower else True,
            )
            booked.append(self._attempt(job, attempt, link, moment))
            carry = booked[-1].carry
        meta = job_meta(self._deliveries.meta.get(job, []))
        summaries = [books.summary for books in booked]
        return Ledger(job, assemble(job, meta, summaries, now=moment), booked)

    def _attempt(self, job: str, attempt: str, link: Link, now: int) -> AttemptBooks:
        digest = link.digest()
        known = self._booked.get((job, attempt))
        if (
            known is not None
            and known[0] == digest
            and not known[1].summary.live
            and not known[1].summary.provisional_ns
        ):
            return known[1]
        delivered = self._deliveries.of(job, attempt)
        books = book_attempt(job, attempt, delivered, link, now=now, policy=self.policy)
        self._booked[job, attempt] = (digest, books)
        return books
