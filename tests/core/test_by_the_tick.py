"""The core's sweep against the slow reading of the same rules, nanosecond by nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from fleet_ett.core.ledger import attribute
from fleet_ett.core.policy import Policy
from tests.core.by_the_tick import Attempt, critical_path
from tests.core.strategies import T0, jobs

if TYPE_CHECKING:
    from ett_collector.wire import Event

POLICY = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=40)
NOW = T0 + 700
STEP = "step_new_data"
STEP_PHASES = (STEP, "step_replayed")


@given(jobs())
def test_the_sweep_agrees_with_the_rules_at_each_instant(events: list[Event]) -> None:
    """Phase and blamed rank at every nanosecond of every attempt."""
    ledger = attribute(events, now=NOW, policy=POLICY)
    ordered = [books.summary for books in ledger.attempts]
    for index, books in enumerate(ledger.attempts):
        following = ordered[index + 1].start if index + 1 < len(ordered) else None
        slow = Attempt(books.summary.attempt, events, following, NOW, POLICY)
        told = critical_path(slow)
        expected = [(phase, None if phase == STEP else rank) for phase, rank, _ in told]
        actual: list[tuple[str, int | None]] = []
        for row in books.segments.rows():
            if row.heading != "gap":
                stepping = row.phase in STEP_PHASES  # whose step it is, and what is replay, the judge tells
                one = (STEP, None) if stepping else (row.phase, row.rank)
                actual += [one] * (row.end - row.start)
        assert actual == expected
