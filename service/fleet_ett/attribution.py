"""The use case of the worker: book a job again, but only those of its attempts that can have changed.

The chain of attempts is causal. An attempt is booked again when it has new events, when what the attempts
around it left it (`Link`) is another than before, or while time alone changes it: it is live or not settled.
All others keep their books and the `Carry` that they left. The first attempts of a job, which nothing changes
any more, are folded into sums, so that a job of many attempts costs what one of few does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleet_ett.core.ledger import Carry, JobMeta, JobSummary, Link, assemble, attribute_attempt
from fleet_ett.core.link import link_digest
from fleet_ett.core.past import Stale
from fleet_ett.frozen import with_gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.resume import Resume
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch
    from fleet_ett.core.summary import AttemptSummary
    from fleet_ett.core.totals import Totals

log = logging.getLogger(__name__)

SECOND_NS = 1_000_000_000
LIVE_NS = 15 * SECOND_NS  # a live job's books are never older, though nothing comes; agents report every 10 s
SETTLING_NS = 30 * SECOND_NS
# A live job that nobody speaks of is looked at after a hundredth of its silence, at least once an hour.
SILENCE_SHARE = 100
LONGEST_NS = 3600 * SECOND_NS
NOTHING_LEFT = Carry.empty().digest()

Place = tuple[int, bool, str]  # where an attempt stands among a job's: its start (ns), released, its name


@dataclass(slots=True)
class Attempt:
    """An attempt as the books have it. Times ns.

    `start`, `released`: when its hardware was allocated, and whether it had been given back before (None until
    they were looked up). `newest`: its newest stamp. `dirty`: events came since it was booked. `frozen`: its raw
    events are not all kept any more. `summary`, `carry_digest`: None until it is booked. `carry`: None unless it
    is at hand. `resume`: where its books may go on, None: they are made from all its events.
    """

    attempt_id: int
    attempt: str
    start: int | None
    released: bool
    newest: int
    dirty: bool
    frozen: bool
    link_digest: str | None
    carry_digest: str | None
    summary: AttemptSummary | None
    carry: Carry | None = None
    resume: Resume | None = None

    @property
    def place(self) -> Place:
        """What attempts are put in order by."""
        return (self.start or 0, self.released, self.attempt)

    @property
    def changes(self) -> bool:
        """Whether it is to be booked whatever the attempts around it do: events came, or time changes it."""
        if self.frozen:
            return False
        summary = self.summary
        if self.dirty or summary is None or self.carry_digest is None:
            return True
        return summary.live or summary.provisional_ns > 0


@dataclass(frozen=True, slots=True)
class Folded:
    """The first attempts of a job, folded: their sums, and of the last its id, its place and what it left."""

    totals: Totals
    attempt_id: int
    place: Place
    carry_digest: str


class Job(Protocol):
    """One job's books, held by nobody else meanwhile."""

    @property
    def job(self) -> str:
        """The job's key."""
        ...

    @property
    def folded(self) -> Folded | None:
        """The job's first attempts, folded."""
        ...

    @property
    def attempts(self) -> Sequence[Attempt]:
        """All other attempts that events have named."""
        ...

    def unfold(self) -> None:
        """Have all attempts among `attempts` again."""
        ...

    def started(self, attempt: Attempt) -> tuple[int, bool]:
        """When an attempt's hardware was allocated (ns) and whether it had been released before."""
        ...

    def carry(self, attempt_id: int) -> Carry:
        """What an attempt left to the next one when it was booked."""
        ...

    def events(self, attempt: Attempt, next_start: int | None, *, now: int) -> Iterable[Event | StepBatch]:
        """Everything that concerns an attempt, as far as its `resume` asks for it.

        `next_start` (ns) is when the next one begins.
        """
        ...

    def meta(self) -> JobMeta:
        """What the job says of itself."""
        ...

    def book(self, attempt: Attempt, books: AttemptBooks, *, now: int) -> None:
        """Replace the books of an attempt from `books.resumed` on; it has its new summary, carry and digests."""
        ...

    def book_gap(self, attempt: Attempt, gap: Segments, *, now: int) -> None:
        """Replace the gap after an attempt, and its summary; the rest of its books stays."""
        ...

    def unbook(self, attempt: Attempt) -> None:
        """Drop the books of an attempt that had not begun yet."""
        ...

    def close(
        self, summary: JobSummary, attempts: Sequence[Attempt], *, foldable: int, due: int | None
    ) -> None:
        """Write the job's summary, its incidents and what is counted.

        `attempts`: those that have begun, without the folded ones; so many of the first can be folded, too.
        `due`: when time changes the books (ns).
        """
        ...


@dataclass(slots=True)
class Plan:
    """A job's attempts in order: those that have begun, and those that begin later."""

    begun: list[Attempt]
    to_come: list[Attempt]

    def after(self, place: int) -> tuple[int | None, bool]:
        """When the attempt after one of `begun` starts (ns; None for the last), and whether it was released."""
        if place + 1 == len(self.begun):
            return None, True
        return self.begun[place + 1].start, self.begun[place + 1].released

    def digest(self, place: int, index: int, left: str) -> str:
        """The digest of the link of one of `begun`, the job's attempt number `index`; `left`: of the carry before."""
        next_start, released = self.after(place)
        return link_digest(index, left, next_start, released=released)


def put_in_order(job: Job, *, now: int) -> Plan:
    """Look up when attempts started that were not booked yet or have new events, and put them in order."""
    plan = _plan(job, now)
    if job.folded is not None and _reaches(job.folded, plan):
        job.unfold()
        plan = _plan(job, now)
    return plan


def attribute_job(job: Job, plan: Plan, *, now: int, policy: Policy) -> int:
    """Bring a job's books up to `now` (ns); returns how many attempts had to be booked again.

    Raises what the core raises: the caller then keeps the books as they were, and says so.
    """
    for attempt in plan.to_come:
        if attempt.summary is not None:
            job.unbook(attempt)
    booked = 0
    folded = job.folded
    first = folded.totals.attempts if folded else 0
    left_by, left = (folded.attempt_id, folded.carry_digest) if folded else (None, NOTHING_LEFT)
    before: Attempt | None = None
    for place, attempt in enumerate(plan.begun):
        digest = plan.digest(place, first + place, left)
        if attempt.changes or attempt.link_digest != digest or attempt.dirty:
            carry = before.carry if before is not None else None
            if carry is None and not attempt.frozen:
                carry = Carry.empty() if left_by is None else job.carry(left_by)
            link = Link(first + place, carry or Carry.empty(), *plan.after(place))
            attempt.link_digest = digest
            _book(job, attempt, link, now=now, policy=policy)
            booked += 1
        assert attempt.carry_digest is not None
        before, left_by, left = attempt, attempt.attempt_id, attempt.carry_digest
    summaries = [one.summary for one in plan.begun if one.summary is not None]
    summary = assemble(
        job.job, job.meta(), summaries, now=now, before=job.folded.totals if job.folded else None
    )
    job.close(summary, plan.begun, foldable=_foldable(plan.begun, now, policy), due=_due(plan, now, policy))
    return booked


def _plan(job: Job, now: int) -> Plan:
    for attempt in job.attempts:
        if (attempt.dirty and not attempt.frozen) or attempt.start is None:
            attempt.start, attempt.released = job.started(attempt)
    in_order = sorted(job.attempts, key=lambda one: one.place)
    begun = [one for one in in_order if (one.start or 0) <= now]
    return Plan(begun, in_order[len(begun) :])


def _reaches(folded: Folded, plan: Plan) -> bool:
    """Whether what is new changes folded attempts: it stands among them, or is of the attempt that follows them."""
    if not plan.begun:
        return True
    first = plan.begun[0]
    if first.place <= folded.place or first.changes or first.dirty:
        return True
    return first.link_digest != plan.digest(0, folded.totals.attempts, folded.carry_digest)


def _book(job: Job, attempt: Attempt, link: Link, *, now: int, policy: Policy) -> None:
    if attempt.frozen:
        _book_frozen(job, attempt, link, now=now, policy=policy)
        return
    try:
        books = _attribute(job, attempt, link, now=now, policy=policy)
    except Stale:
        attempt.resume = None
        books = _attribute(job, attempt, link, now=now, policy=policy)
    attempt.summary, attempt.carry = books.summary, books.carry
    attempt.carry_digest = books.carry.digest()
    attempt.dirty = False
    job.book(attempt, books, now=now)


def _attribute(job: Job, attempt: Attempt, link: Link, *, now: int, policy: Policy) -> AttemptBooks:
    events = job.events(attempt, link.next_start, now=now)
    return attribute_attempt(
        job.job, attempt.attempt, events, link, now=now, policy=policy, resume=attempt.resume
    )


def _book_frozen(job: Job, attempt: Attempt, link: Link, *, now: int, policy: Policy) -> None:
    """Book the gap after an attempt whose events are gone."""
    assert attempt.summary is not None
    if attempt.dirty:
        log.warning(
            "job %r, attempt %r: events came that can no longer be booked (retention)",
            job.job,
            attempt.attempt,
        )
    attempt.summary, gap = with_gap(attempt.summary, link, policy)
    attempt.dirty = False
    job.book_gap(attempt, gap, now=now)


def _foldable(begun: Sequence[Attempt], now: int, policy: Policy) -> int:
    """How many of the first attempts nothing changes any more, the incidents that they ended with included."""
    final = 0
    for attempt in begun:
        summary = attempt.summary
        if summary is None or summary.end is None or summary.live or summary.provisional_ns:
            break
        if summary.end + policy.after_ns > now:  # evidence of why it ended may still come
            break
        final += 1
    return max(final - 1, 0)  # what the incident of the last one costs is said by the attempt after it


def _due(plan: Plan, now: int, policy: Policy) -> int | None:
    """When the books change although nothing comes; None: never."""
    moments = [one.start for one in plan.to_come if one.start is not None]
    newest = max((one.newest for one in plan.begun), default=now)
    for attempt in plan.begun:
        summary = None if attempt.frozen else attempt.summary
        if summary is not None and summary.live:
            moments.append(now + min(max(LIVE_NS, (now - newest) // SILENCE_SHARE), LONGEST_NS))
        elif summary is not None and summary.provisional_ns:
            left = summary.start + summary.wall_ns + policy.lateness_ns - now
            moments.append(now + min(max(left, SECOND_NS), SETTLING_NS))
    return min(moments, default=None)
