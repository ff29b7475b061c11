"""The laws of the accounting, on random jobs: conservation, delivery, additivity, increments."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fleet_ett.core.ledger import Books, Ledger, attribute
from fleet_ett.core.policy import Policy
from tests.core.strategies import JOB, T0, jobs

if TYPE_CHECKING:
    from ett_collector.wire import Event

# Thresholds of the size of the small times, so that each ruling is met.
POLICY = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=40)
NOW = T0 + 700


def booked(ledger: Ledger) -> str:
    """Everything that a ledger says, as one comparable string."""
    rows = [[repr(row) for row in books.segments.rows()] for books in ledger.attempts]
    cells = [[repr(cell) for cell in books.cells] for books in ledger.attempts]
    told = [ledger.summary.to_json(), rows, cells, ledger.goodput().to_json()]
    return json.dumps(told, sort_keys=True, default=str)


@given(jobs())
def test_every_second_has_one_heading(events: list[Event]) -> None:
    """Segments follow each other without hole or overlap, and every view adds up to the wall time."""
    ledger = attribute(events, now=NOW, policy=POLICY)
    for books in ledger.attempts:
        rows = list(books.segments.rows())
        assert all(row.end > row.start for row in rows)
        assert all(a.end == b.start for a, b in pairwise(rows))
    summary = ledger.summary
    starts = [books.summary.start for books in ledger.attempts]
    if starts:
        end = max([NOW if summary.live else 0, *(b.summary.end or 0 for b in ledger.attempts)])
        assert summary.wall_ns == end - min(starts)
    for view in (summary.headings, summary.phases, summary.l2):
        assert sum(wall for wall, _ in view.values()) == summary.wall_ns
        assert sum(gpu for _, gpu in view.values()) == summary.gpu_ns
        assert all(wall >= 0 and gpu >= 0 for wall, gpu in view.values())
    lost = sum(wall for wall, _ in summary.components.values())
    assert lost + summary.headings.get("productive", [0, 0])[0] == summary.wall_ns
    assert ledger.goodput().total == summary.wall_ns


@given(jobs(), st.data())
def test_delivery_never_changes_the_ledger(events: list[Event], data: st.DataObject) -> None:
    """Any order and any repeats give the same books."""
    again = data.draw(st.lists(st.sampled_from(events), max_size=8))
    shuffled = data.draw(st.permutations(events + again))
    assert booked(attribute(shuffled, now=NOW, policy=POLICY)) == booked(
        attribute(events, now=NOW, policy=POLICY)
    )


@given(jobs(), st.data())
def test_batches_book_as_the_whole(events: list[Event], data: st.DataObject) -> None:
    """Events taken in pieces, with ledgers asked for in between, end at the books of one delivery."""
    shuffled = data.draw(st.permutations(events))
    books = Books(POLICY)
    at = 0
    while at < len(shuffled):
        size = data.draw(st.integers(1, len(shuffled) - at))
        books.add(shuffled[at : at + size])
        at += size
        for job in books.jobs():
            books.ledger(job, now=NOW)
    assert booked(books.ledger(JOB, now=NOW)) == booked(attribute(events, now=NOW, policy=POLICY))


@given(jobs(), st.integers(0, 700), st.integers(0, 700))
def test_windows_add_up(events: list[Event], one: int, other: int) -> None:
    """What is booked in [a, c) is what is booked in [a, b) and in [b, c): exclusion takes out just that."""
    low, high = T0 + min(one, other), T0 + max(one, other)
    whole = attribute(events, now=NOW, policy=POLICY).summary.wall_ns
    spans = ((0, low), (low, high), (high, NOW + 1000))
    parts = [
        attribute(
            events,
            now=NOW,
            policy=Policy(hang_ns=25, heartbeat_ns=12, exclude=tuple(s for s in spans if s != kept)),
        ).summary.wall_ns
        for kept in spans
    ]
    assert sum(parts) == whole


@given(jobs())
def test_settled_time_is_never_taken_back(events: list[Event]) -> None:
    """As time goes on without events, what was settled stays booked as it was."""
    earlier = attribute(events, now=NOW, policy=POLICY)
    later = attribute(events, now=NOW + 300, policy=POLICY)
    for before, after in zip(earlier.attempts, later.attempts, strict=True):
        grown = {(c.hour, c.heading, c.phase): c.settled_wall_ns for c in after.cells}
        for cell in before.cells:
            assert grown.get((cell.hour, cell.heading, cell.phase), 0) >= cell.settled_wall_ns
