"""Segments are dropped when they are old enough; their hours stay, and nobody is told half of one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.core.policy import Policy
from fleet_ett.errors import Conflict
from fleet_ett.postgres import maintenance, rollups
from fleet_ett.postgres.partitions import DAY_NS
from fleet_ett.postgres.reads import open_books
from fleet_ett.reads import HOUR_NS, Filters, Page, Scope, Window
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import Agent, S, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

    Rows = Callable[[str], list[tuple[Any, ...]]]

NOW = time.time_ns() // DAY_NS * DAY_NS + 12 * HOUR_NS
KEEP = 90 * DAY_NS
HORIZON = NOW // DAY_NS * DAY_NS - KEEP
OLD, NEW = HORIZON - 2 * DAY_NS, HORIZON + 2 * DAY_NS
POLICY = Policy()
COUNT = "SELECT count(*) FROM segments"


@pytest.fixture(autouse=True)
def two_jobs(store: PostgresStore, engine: Engine) -> None:
    """One job of before, one of after the horizon, booked."""
    agent = Agent()
    crashed_and_resumed(agent, "old", OLD)
    crashed_and_resumed(agent, "new", NEW)
    agent.hand_in(store, now=NOW)
    while book_due_jobs(engine, POLICY, clock=lambda: NOW):
        pass


def held(engine: Engine, start: int | None, end: int | None, **filters: tuple[str, ...]) -> object:
    with open_books(engine, POLICY) as books:
        return books.ett(Scope(Window(start, end), Filters(**filters)), (), Page(1))[0]["wall_ns"]


def test_old_segments_go_in_batches_and_their_hours_stay(
    engine: Engine, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 3)
    cells = rows("SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5")
    of_old = rows("SELECT count(*) FROM segments s JOIN jobs USING (job_id) WHERE job = 'old'")[0][0]
    assert of_old == maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW)
    assert 0 == maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW)
    assert [("new",)] == rows("SELECT DISTINCT job FROM segments JOIN jobs USING (job_id)")
    assert cells == rows("SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5")
    with engine.connect() as conn:
        assert [] == rollups.differences(conn)


def test_several_may_drop_at_once(engine: Engine, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 2)
    before = rows(COUNT)[0][0]
    with ThreadPoolExecutor(4) as pool:
        gone = list(
            pool.map(lambda _: maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW), range(4))
        )
    assert before - rows(COUNT)[0][0] == sum(gone) > 0
    assert [(0,)] == rows(f"{COUNT} WHERE end_ns <= {HORIZON}")


def test_a_window_cuts_no_hour_of_which_only_the_whole_is_kept(engine: Engine) -> None:
    """Full hours are exact for ever; half of one is told while its segments are there, and then refused."""
    hour = OLD // HOUR_NS * HOUR_NS
    whole = held(engine, hour, hour + HOUR_NS)
    assert 0 < int(str(held(engine, hour + 60 * S, hour + HOUR_NS))) < int(str(whole))
    maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW)
    assert whole == held(engine, hour, hour + HOUR_NS)
    assert held(engine, None, None) == held(engine, hour - 7 * DAY_NS, NOW)
    for start, end in ((hour + 1, None), (None, hour + 5), (hour + 1, hour + 2), (hour + 1, NEW + 1)):
        with pytest.raises(Conflict, match="full hours"):
            held(engine, start, end)
    # nothing happened in those hours: nothing is missing
    assert held(engine, None, None) == held(engine, hour - 9 * DAY_NS + 1, None)
    assert held(engine, NEW, NEW + HOUR_NS) == held(engine, HORIZON - 7, NEW + HOUR_NS)
    # after the horizon any moment will do
    assert 60 * S == held(engine, NEW + 60 * S, NEW + 120 * S)


def test_the_ledger_of_a_job_is_refused_by_its_own_hours(engine: Engine) -> None:
    maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW)
    with open_books(engine, POLICY) as books:
        assert HORIZON == books.segments_since()
        assert books.ledger("new", Scope(Window(OLD + 1, None)), ("heading",))
        with pytest.raises(Conflict, match="full hours"):
            books.ledger("old", Scope(Window(OLD + 1, None)), ("heading",))


def test_no_booking_brings_them_back(engine: Engine, rows: Rows) -> None:
    """The raw events are still there: books made anew from them are the same, without the old segments."""
    maintenance.drop_old_segments(engine, keep_ns=KEEP, now=NOW)
    before = rows("SELECT * FROM segments ORDER BY 1, 3")
    cells = rows("SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5")
    late = rows("SELECT job, late_ns FROM jobs ORDER BY 1")
    rebuild(engine, POLICY, as_of=NOW)
    assert before == rows("SELECT * FROM segments ORDER BY 1, 3")
    assert cells == rows("SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5")
    assert late == rows("SELECT job, late_ns FROM jobs ORDER BY 1")
