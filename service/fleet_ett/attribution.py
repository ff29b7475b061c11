"""The use case of the worker: book a job again, but only those of its attempts that can have changed.

The chain of attempts is causal. An attempt is booked again when it has new events, when what the attempts
around it left it (`Link`) is another than before, or while time alone changes it: it is live or not settled.
All others keep their books and the `Carry` that they left.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleet_ett.core.ledger import Carry, JobMeta, JobSummary, Link, assemble, attribute_attempt
from fleet_ett.frozen import with_gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch
    from fleet_ett.core.summary import AttemptSummary

log = logging.getLogger(__name__)

SECOND_NS = 1_000_000_000
LIVE_NS = 5 * SECOND_NS  # a live job's books are never older
SETTLING_NS = 30 * SECOND_NS
# A live job that nobody speaks of is looked at after a hundredth of its silence, at least once an hour.
SILENCE_SHARE = 100
LONGEST_NS = 3600 * SECOND_NS


@dataclass(slots=True)
class Attempt:
    """An attempt as the books have it. Times ns.

    `start`, `released`: when its hardware was allocated, and whether it had been given back before (None until
    they were looked up). `newest`: its newest stamp. `dirty`: events came since it was booked. `frozen`: its raw
    events are not all kept any more. `summary`, `carry`: None until it is booked.
    """

    attempt_id: int
    attempt: str
    start: int | None
    released: bool
    newest: int
    dirty: bool
    frozen: bool
    link_digest: str | None
    summary: AttemptSummary | None
    carry: Carry | None


class Job(Protocol):
    """One job's books, held by nobody else meanwhile."""

    @property
    def job(self) -> str:
        """The job's key."""
        ...

    def attempts(self) -> list[Attempt]:
        """All attempts that events have named."""
        ...

    def started(self, attempt: Attempt) -> tuple[int, bool]:
        """When an attempt's hardware was allocated (ns) and whether it had been released before."""
        ...

    def events(self, attempt: Attempt, link: Link, *, now: int) -> Iterable[Event | StepBatch]:
        """Everything that concerns an attempt."""
        ...

    def meta(self) -> JobMeta:
        """What the job says of itself."""
        ...

    def book(self, attempt: Attempt, books: AttemptBooks, *, link_digest: str, now: int) -> None:
        """Replace the books of an attempt."""
        ...

    def book_gap(
        self, attempt: Attempt, summary: AttemptSummary, gap: Segments, *, link_digest: str, now: int
    ) -> None:
        """Replace the gap after an attempt, and its summary; the rest of its books stays."""
        ...

    def unbook(self, attempt: Attempt) -> None:
        """Drop the books of an attempt that had not begun yet."""
        ...

    def close(self, summary: JobSummary, attempts: Sequence[Attempt], *, due: int | None) -> None:
        """Write the job's summary, its incidents and what is counted; `due`: when time changes the books (ns)."""
        ...


def attribute_job(job: Job, *, now: int, policy: Policy) -> int:
    """Bring a job's books up to `now` (ns); returns how many attempts had to be booked again.

    Raises what the core raises: the caller then keeps the books as they were, and says so.
    """
    attempts = job.attempts()
    for attempt in attempts:
        if (attempt.dirty and not attempt.frozen) or attempt.start is None:
            attempt.start, attempt.released = job.started(attempt)
    in_order = sorted(attempts, key=lambda one: (one.start or 0, one.released, one.attempt))
    begun = [one for one in in_order if (one.start or 0) <= now]
    to_come = in_order[len(begun) :]
    for attempt in to_come:
        if attempt.summary is not None:
            job.unbook(attempt)
    booked = 0
    carry = Carry.empty()
    for index, attempt in enumerate(begun):
        after = begun[index + 1] if index + 1 < len(begun) else None
        link = Link(index, carry, after.start if after else None, after.released if after else True)
        link_digest = link.digest()
        if attempt.frozen:
            booked += _book_frozen(job, attempt, link, link_digest, now=now, policy=policy)
        elif _has_changed(attempt, link_digest):
            events = job.events(attempt, link, now=now)
            books = attribute_attempt(job.job, attempt.attempt, events, link, now=now, policy=policy)
            job.book(attempt, books, link_digest=link_digest, now=now)
            attempt.summary, attempt.carry = books.summary, books.carry
            booked += 1
        assert attempt.carry is not None
        carry = attempt.carry
    summaries = [one.summary for one in begun if one.summary is not None]
    summary = assemble(job.job, job.meta(), summaries, now=now, policy=policy)
    job.close(summary, begun, due=_due(begun, to_come, now, policy))
    return booked


def _book_frozen(
    job: Job, attempt: Attempt, link: Link, link_digest: str, *, now: int, policy: Policy
) -> bool:
    """Book the gap after an attempt whose events are gone, if what follows it is another than before."""
    assert attempt.summary is not None
    if attempt.dirty:
        log.warning(
            "job %r, attempt %r: events came that can no longer be booked (retention)",
            job.job,
            attempt.attempt,
        )
    if attempt.link_digest == link_digest and not attempt.dirty:
        return False
    attempt.summary, gap = with_gap(attempt.summary, link, policy)
    job.book_gap(attempt, attempt.summary, gap, link_digest=link_digest, now=now)
    return True


def _has_changed(attempt: Attempt, link_digest: str) -> bool:
    summary = attempt.summary
    if attempt.dirty or summary is None or attempt.carry is None or attempt.link_digest != link_digest:
        return True
    return summary.live or summary.provisional_ns > 0


def _due(begun: Sequence[Attempt], to_come: Sequence[Attempt], now: int, policy: Policy) -> int | None:
    """When the books change although nothing comes; None: never."""
    moments = [one.start for one in to_come if one.start is not None]
    newest = max((one.newest for one in begun), default=now)
    for attempt in begun:
        summary = None if attempt.frozen else attempt.summary
        if summary is not None and summary.live:
            moments.append(now + min(max(LIVE_NS, (now - newest) // SILENCE_SHARE), LONGEST_NS))
        elif summary is not None and summary.provisional_ns:
            left = summary.start + summary.wall_ns + policy.lateness_ns - now
            moments.append(now + min(max(left, SECOND_NS), SETTLING_NS))
    return min(moments, default=None)
