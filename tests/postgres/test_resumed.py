"""Books that go on from a seam, stored: the rows are those of the core, and those that `rebuild` makes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from fleet_ett.core.facts import at
from fleet_ett.core.ledger import Books
from fleet_ett.core.policy import MINUTE, SECOND, Policy
from fleet_ett.ingest import Agent, Batch
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.postgres.tables import metadata
from fleet_ett.replay.wire_file import WireFile
from fleet_ett.worker import book_due_jobs, rebuild
from tests.judge.fleet_plan import plan_fleet
from tests.judge.verdict import decoded
from tests.postgres.test_scenarios_stored import shown, stored
from tests.scenarios import Scenario, all_scenarios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from ett_collector.wire import Event

POLICY = Policy(lateness_ns=30 * SECOND, seam_ns=20 * SECOND, warm_up_ns=15 * SECOND)
OF_SCENARIOS = Policy(lateness_ns=MINUTE, seam_ns=30 * SECOND, warm_up_ns=20 * SECOND)
_SEAMS = "SELECT count(*) FROM attempts WHERE resume IS NOT NULL"


def test_books_of_random_fleets_go_on(engine: Engine) -> None:
    """Crashes, hangs, replays, late events, a conflict and a repeat with another clock; many go on from seams."""
    kept = [go_through(engine, decoded(plan_fleet(n, 1)), POLICY, 20, random.Random(n)) for n in range(8)]
    assert sum(kept) > 30


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda one: one.name)
def test_books_of_scenarios_go_on(scenario: Scenario, engine: Engine) -> None:
    events = [event for event in WireFile(scenario.lines).events() if event.type == "job" or event.start]
    if events:
        go_through(engine, events, OF_SCENARIOS, 7, random.Random(1))


def go_through(
    engine: Engine, events: Sequence[Event], policy: Policy, moments: int, dice: random.Random
) -> int:
    """Store the events as they come, some late, some again, and book at every moment; how often seams were kept."""
    with engine.begin() as conn:
        conn.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    store, books = PostgresStore(engine), Books(policy)
    told = [*events, *again(events, dice)]
    arrivals = sorted(
        (
            max(at(one), (one.end or 0) - one.clock_offset_ns)
            + int(dice.expovariate(8 / policy.lateness_ns)),
            n,
        )
        for n, one in enumerate(told)
    )
    first = min(at(one) for one in told if one.start is not None)
    last = arrivals[-1][0] + 2 * policy.lateness_ns
    kept = arrived = 0
    for k in range(1, moments + 1):
        now = first + (last - first) * k // moments
        due = [told[n] for when, n in arrivals[arrived:] if when <= now]
        arrived += len(due)
        deliver(store, due, now)
        books.add(due)
        while book_due_jobs(engine, policy, clock=lambda now=now: now):  # type: ignore[misc]
            pass
        with engine.connect() as conn:
            kept += conn.exec_driver_sql(_SEAMS).scalar_one()
        if k % 5 == 0 or k == moments:
            compare(engine, books, now)
    rebuild(engine, policy, as_of=now)
    compare(engine, books, now)
    return kept


def again(events: Sequence[Event], dice: random.Random) -> list[Event]:
    """Repeats: exact, with another clock offset, and with another end."""
    timed = [one for one in events if one.start is not None and one.end is not None]
    if not timed:
        return []
    exact, offset, other = dice.choices(timed, k=3)
    assert offset.start is not None
    assert offset.end is not None
    assert other.end is not None
    shift = {"start": offset.start + 5, "end": offset.end + 5, "clock_offset_ns": offset.clock_offset_ns + 5}
    return [exact, offset._replace(**shift), other._replace(end=other.end + 7)]


def deliver(store: PostgresStore, events: Sequence[Event], now: int) -> None:
    by_source: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        by_source.setdefault((event.node, event.clock_offset_ns), []).append(event)
    for (node, offset), told in by_source.items():
        store(Batch(Agent(node, "envelope", None), offset, told, list(range(len(told)))), now=now)


def compare(engine: Engine, books: Books, now: int) -> None:
    """What is stored against the core, for jobs that were booked at this very moment."""
    with engine.connect() as conn:
        fresh = set(conn.exec_driver_sql(f"SELECT job FROM jobs WHERE as_of_ns = {now}").scalars())
    found = stored(engine)
    for job in sorted(fresh):
        for part, told in shown(books.ledger(job, now=now)).items():
            assert told == found[job][part], (job, part)
