"""A booking that goes on from a seam gives the books of a booking of the whole, to the nanosecond.

`Seams` keeps books as a service does: of each attempt the rows and the last `Resume`, which it drops when something
comes that is stamped before it. Every booking is done both ways and compared.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_ett.core.attempt import AttemptBooks, attribute_attempt, book_attempt
from fleet_ett.core.facts import at
from fleet_ett.core.goodput import goodput
from fleet_ett.core.ledger import Books
from fleet_ett.core.link import Link
from fleet_ett.core.past import Stale
from fleet_ett.core.policy import MINUTE, SECOND, Policy
from fleet_ett.core.resume import Resume
from fleet_ett.replay.wire_file import WireFile
from tests.core.long_attempts import long_job
from tests.core.strategies import T0, event, jobs
from tests.judge.fleet_plan import plan_fleet
from tests.judge.verdict import decoded
from tests.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.segments import Segment


class Seams(Books):
    """Books whose every attempt is booked as a whole and from its last seam. `used`: how often from a seam."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.used = 0
        self.stale = 0
        self._kept: dict[tuple[str, str], tuple[str, list[Any], list[Any], list[Any]]] = {}
        self._seen: dict[tuple[str, str], dict[tuple[str, int], Event]] = {}

    def _attempt(self, job: str, attempt: str, link: Link, now: int) -> AttemptBooks:
        delivered = self._deliveries.of(job, attempt)
        whole = book_attempt(job, attempt, delivered, link, now=now, policy=self.policy)
        key = (job, attempt)
        seen = self._seen.get(key, {})
        told = {(one.incarnation, one.seq): one for one in delivered.events}
        assert not delivered.batches
        news = [one for name, one in told.items() if seen.get(name) != one]
        self._seen[key] = told
        again = whole
        kept = self._kept.pop(key, None)
        resume = None if kept is None else Resume.from_json(json.loads(kept[0]))
        if kept is not None and resume is not None and _fits(resume, news, seen):
            needed = resume.later(delivered)
            try:
                again = book_attempt(job, attempt, needed, link, now=now, policy=self.policy, resume=resume)
            except Stale:
                self.stale += 1
                kept = None
            else:
                self.used += 1
        else:
            kept = None
        rows, cells, held = list(again.segments.rows()), again.cells, again.held
        if kept is not None and resume is not None:
            rows = [one for one in kept[1] if one.end <= resume.books_from] + rows
            cells = [one for one in kept[2] if one.hour < resume.from_hour] + cells
            held = [one for one in kept[3] if one.hour < resume.from_hour] + held
        assert _joined(whole.segments.rows()) == _joined(rows)
        assert whole.cells == cells
        assert whole.held == held
        assert whole.work == again.work
        assert whole.summary == again.summary
        assert whole.carry.to_json() == again.carry.to_json()
        if again.resume is not None:
            self._kept[key] = (json.dumps(again.resume.to_json()), rows, cells, held)
        return whole


def _joined(rows: Iterable[Segment]) -> list[Segment]:
    """Neighbours that say the same made one: a seam may cut what a later report makes one piece."""
    out: list[Segment] = []
    for row in rows:
        if out and replace(out[-1], end=row.end) == replace(row, start=out[-1].start):
            out[-1] = replace(out[-1], end=row.end)
        else:
            out.append(row)
    return out


def _fits(resume: Resume, news: Iterable[Event], seen: dict[tuple[str, int], Event]) -> bool:
    return all(at(one) >= resume.books_from and (one.incarnation, one.seq) not in seen for one in news)


def kept_books(events: Sequence[Event], policy: Policy, moments: int, dice: random.Random) -> Seams:
    """The events as they come, some of them late, with books made at every one of so many moments."""
    arrivals = sorted(
        (
            max(at(one), (one.end or 0) - one.clock_offset_ns)
            + int(dice.expovariate(8 / policy.lateness_ns)),
            n,
            one,
        )
        for n, one in enumerate(events)
    )
    first = min((at(one) for one in events if one.start is not None), default=0)
    last = arrivals[-1][0] + 2 * policy.lateness_ns
    books = Seams(policy)
    arrived = 0
    for k in range(1, moments + 1):
        now = first + (last - first) * k // moments
        due = [one for when, _, one in arrivals[arrived:] if when <= now]
        arrived += len(due)
        books.add(due)
        for job in books.jobs():
            books.ledger(job, now=now)
    return books


def test_books_of_random_fleets_go_on() -> None:
    """Fleets of the judge: crashes, hangs, replays, late ranks, elastic sizes; most bookings go on from seams."""
    policy = Policy(lateness_ns=30 * SECOND, seam_ns=20 * SECOND, warm_up_ns=15 * SECOND)
    used = 0
    for seed in range(40):
        plan = plan_fleet(seed, 1)
        used += kept_books(decoded(plan), policy, 25, random.Random(seed)).used
    assert used > 500


@given(jobs(), st.integers(0, 10**6))
def test_books_of_small_jobs_go_on(events: list[Event], seed: int) -> None:
    """Events that meet, nest and cross within nanoseconds."""
    policy = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=10, seam_ns=5, warm_up_ns=8)
    if events:
        kept_books(events, policy, 20, random.Random(seed))


def test_a_span_that_a_later_report_closes_is_not_open_before_a_seam() -> None:
    """Its end came with a start of its own, beyond the seam: background work that was taken back stays so."""
    policy = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=10, seam_ns=5, warm_up_ns=8)
    who, span = {"attempt": "a1", "rank": 0}, {"phase": "image_pull", "span": "s1"}
    told: list[dict[str, Any]] = [
        {**who, **span, "type": "phase_open", "start": 30, "overlapped": True},
        {**who, **span, "type": "phase", "start": 94, "end": 94},
        {**who, **span, "type": "phase_open", "start": 30},
        {**who, "type": "phase", "phase": "step_new_data", "aborted": True, "start": 30, "end": 30},
    ]
    for step, (start, end) in enumerate(((30, 30), (30, 43), (43, 44), (44, 50))):
        window = {"first": step, "last": step, "start": start, "end": end, "data_wait": int(step == 2)}
        told.append({**who, "type": "steps", **window, "cursor_start": 3 * step, "cursor_end": 3 * step + 3})
    events = [event(seq, "n0", fields, 0) for seq, fields in enumerate(told)]
    assert sum(kept_books(events, policy, 20, random.Random(seed)).used for seed in range(60)) > 0


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda one: one.name)
def test_books_of_scenarios_go_on(scenario: Any) -> None:
    """The scenarios of the contract, at small seams."""
    events = list(WireFile(scenario.lines).events())
    policy = Policy(lateness_ns=MINUTE, seam_ns=30 * SECOND, warm_up_ns=20 * SECOND)
    if events:
        kept_books(events, policy, 12, random.Random(1))


def test_books_of_long_attempts_go_on() -> None:
    """Waits, saves, rollbacks, pauses, deaths, conflicts, late reports: what happens to jobs that run for long."""
    used = 0
    for seed in range(30):
        policy = Policy(
            hang_ns=25, heartbeat_ns=12, lateness_ns=15, seam_ns=(10, 20, 40)[seed % 3], warm_up_ns=18
        )
        used += kept_books(long_job(seed), policy, 15, random.Random(seed)).used
    assert used > 100


def _steady(first: int) -> list[Event]:
    """Windows of 10 ns from `first` on, a save after each four, in an attempt from 0 to 400."""
    told: list[dict[str, Any]] = [{"type": "attempt_start", "ts": 0, "gpus": 8}]
    starts = [n * 10 + first for n in range(30) if n % 5 != 4]
    for step, start in enumerate(starts):
        told.append(
            {"type": "steps", "rank": 0, "first": step, "last": step, "start": start, "end": start + 10}
        )
    told += [
        {"type": "phase", "rank": 0, "phase": "checkpoint_save_block", "start": end, "end": end + 10}
        for end in range(first + 40, first + 300, 50)
    ]
    told.append({"type": "attempt_end", "ts": 400, "outcome": "completed"})
    return [event(seq, "n0", {"attempt": "a0", **one}) for seq, one in enumerate(told)]


@pytest.mark.parametrize("first", [5, -5])
def test_what_was_cut_to_the_attempt_stays_flagged(first: int) -> None:
    """A window that begins before its attempt is flagged when it ends, from a seam as in the whole."""
    policy = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=8, seam_ns=20, warm_up_ns=18)
    books = kept_books(_steady(first), policy, 40, random.Random(1))
    flags = {one["flag"] for one in books.ledger("job-a", now=T0 + 500).summary.flags}
    assert ("clipped" in flags) == (first < 0)
    assert (books.used > 0) == (first > 0)


@pytest.mark.parametrize("seed", [6, 22])
def test_a_seam_may_follow_without_a_window(seed: int) -> None:
    """Seams closer than the warm-up is long: between two of them no window may have begun."""
    policy = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=15, seam_ns=5, warm_up_ns=40)
    assert kept_books(long_job(seed), policy, 30, random.Random(seed)).used > 0


def test_the_goodput_view_asks_for_whole_books() -> None:
    """Books that went on from a seam have not seen all windows, and say so."""
    policy = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=8, seam_ns=20, warm_up_ns=18)
    told, link = _steady(5), Link()
    live = [one for one in told if one.type != "attempt_end"]
    whole = attribute_attempt("job-a", "a0", live, link, now=T0 + 300, policy=policy)
    assert whole.resume is not None
    later = attribute_attempt("job-a", "a0", told, link, now=T0 + 400, policy=policy, resume=whole.resume)
    with pytest.raises(ValueError, match="'a0' went on from a seam"):
        goodput([later])
