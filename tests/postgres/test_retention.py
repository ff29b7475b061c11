"""Raw events are dropped by the day when they are old enough; the books stay, and go on."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fleet_ett.core.ledger import attribute
from fleet_ett.core.policy import Policy
from fleet_ett.ingest import decode_batch
from fleet_ett.postgres.maintenance import drop_old_events, maintain
from fleet_ett.postgres.partitions import DAY_NS, days_ahead, partitions
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

    Rows = Callable[[str], list[tuple[Any, ...]]]

NOW = time.time_ns() // DAY_NS * DAY_NS + 12 * HOUR
KEEP = 14 * DAY_NS
POLICY = Policy()


def book(engine: Engine, now: int = NOW) -> None:
    book_due_jobs(engine, POLICY, clock=lambda: now)


def days(engine: Engine) -> list[int]:
    """How many days ago each partition begins."""
    with engine.connect() as conn:
        return [(NOW - low) // DAY_NS for low, _ in partitions(conn).values()]


def without_days(engine: Engine) -> None:
    with engine.begin() as conn:
        for name in partitions(conn):
            conn.exec_driver_sql(f"DROP TABLE {name}")


def test_old_days_go_and_books_stay(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    without_days(engine)
    agent = Agent()
    crashed_and_resumed(agent, "old", NOW - 20 * DAY_NS)
    crashed_and_resumed(agent, "new", NOW - 3 * DAY_NS)
    agent.hand_in(store, now=NOW)
    book(engine)
    before = rows("SELECT job, summary::text FROM jobs ORDER BY 1")
    assert [20, 3] == days(engine)
    assert 1 == len(drop_old_events(engine, keep_ns=KEEP, now=NOW))
    assert [3] == days(engine)
    assert [] == drop_old_events(engine, keep_ns=KEEP, now=NOW)
    assert before == rows("SELECT job, summary::text FROM jobs ORDER BY 1")
    rebuild(engine, POLICY, as_of=rows("SELECT max(as_of_ns) FROM jobs")[0][0])
    assert before == rows("SELECT job, summary::text FROM jobs ORDER BY 1")
    assert [(1000 * S,), (1000 * S,)] == rows("SELECT sum(wall_ns)::bigint FROM ledger GROUP BY job_id")


def test_an_attempt_keeps_its_events_together(store: PostgresStore, engine: Engine) -> None:
    """One that still speaks is booked from all of them, however long ago it began."""
    without_days(engine)
    agent = Agent()
    agent.say("attempt_start", job="long", attempt="a", ts=NOW - 40 * DAY_NS, gpus=8)
    for day in range(40, 0, -4):
        at = NOW - day * DAY_NS
        told = {"rank": 0, "first": 40 - day, "last": 40 - day, "start": at, "end": at + HOUR}
        agent.say("steps", job="long", attempt="a", **told)
    crashed_and_resumed(agent, "old", NOW - 60 * DAY_NS)
    agent.hand_in(store, now=NOW)
    book(engine)
    assert [60, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4] == days(engine)
    assert 1 == len(drop_old_events(engine, keep_ns=KEEP, now=NOW))
    assert 40 == days(engine)[0]


def test_what_is_not_booked_yet_is_kept(store: PostgresStore, engine: Engine) -> None:
    without_days(engine)
    agent = Agent()
    crashed_and_resumed(agent, "old", NOW - 30 * DAY_NS)
    agent.hand_in(store, now=NOW)
    assert [] == drop_old_events(engine, keep_ns=KEEP, now=NOW)
    book(engine)
    assert 1 == len(drop_old_events(engine, keep_ns=KEEP, now=NOW))


def test_events_of_a_dropped_day_are_refused(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    without_days(engine)
    drop_old_events(engine, keep_ns=KEEP, now=NOW)
    agent = Agent()
    agent.say("checkpoint", job="j", attempt="a", step=1, ts=NOW - 15 * DAY_NS, kind="save")
    agent.say("checkpoint", job="j", attempt="a", step=2, ts=NOW - 13 * DAY_NS, kind="save")
    answer = agent.hand_in(store, now=NOW)
    assert 1 == answer["accepted"]
    assert [(0, 1)] == [(one["index"], one["seq"]) for one in answer["quarantined"]]
    assert "retention" in answer["quarantined"][0]["reason"]
    assert [13] == days(engine)
    assert [(1,)] == rows("SELECT count(*) FROM quarantine")


def test_a_job_resumed_after_its_events_are_gone_gets_its_gap(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """The same books as if nothing had been dropped."""
    without_days(engine)
    agent = Agent()
    crashed_and_resumed(agent, "j", NOW - 20 * DAY_NS)
    agent.said[-1]["outcome"] = "preempted"
    end = agent.said[-1]["ts"]
    agent.hand_in(store, now=NOW)
    book(engine)
    assert 1 == len(drop_old_events(engine, keep_ns=KEEP, now=NOW))
    told = {"rank": 0, "first": 45, "last": 49, "start": NOW - HOUR, "end": NOW - HOUR + 50 * S}
    agent.say("attempt_start", job="j", attempt="a2", ts=NOW - HOUR, gpus=8)
    agent.say("steps", job="j", attempt="a2", **told)
    agent.say("attempt_end", job="j", attempt="a2", ts=NOW - HOUR + 50 * S, outcome="completed")
    agent.hand_in(store, agent.said[-3:], now=NOW)
    book(engine, NOW + HOUR)
    as_of = rows("SELECT as_of_ns FROM jobs")[0][0]
    expected = attribute(decode_batch(agent.body(), now=None).singly().events, now=as_of)
    assert [(None, json.loads(json.dumps(expected.summary.sums_to_json())))] == rows(
        "SELECT error, summary FROM jobs"
    )
    gap = NOW - HOUR - end
    assert gap == expected.attempts[1].summary.gap[0]
    assert [(200 * S + gap,)] == rows("SELECT sum(wall_ns)::bigint FROM ledger WHERE heading = 'gap'")
    cells = sum(cell.wall_ns for books in expected.attempts for cell in books.cells)
    assert [(cells, cells)] == rows(
        "SELECT (SELECT sum(wall_ns)::bigint FROM ledger), (SELECT sum(end_ns - start_ns)::bigint FROM segments)"
    )
    before = rows("SELECT * FROM segments ORDER BY start_ns")
    rebuild(engine, POLICY, as_of=as_of)
    assert before == rows("SELECT * FROM segments ORDER BY start_ns")


def test_maintenance_may_run_anywhere_at_once(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    without_days(engine)
    agent = Agent()
    crashed_and_resumed(agent, "old", NOW - 20 * DAY_NS)
    agent.hand_in(store, now=NOW)
    book(engine)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: maintain(engine, retention_days=14, segment_days=90, now=NOW), range(4)))
    assert [0, -1, -2] == days(engine)
    assert 3 == len(days_ahead(NOW))
    assert [(None,)] == rows("SELECT error FROM jobs")
