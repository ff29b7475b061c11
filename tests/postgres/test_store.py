"""Batches stored: once each, whatever is sent again, and by whom (K4)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.postgres.store import PostgresStore
from tests.postgres.agents import Agent, S

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    Rows = Callable[[str], list[tuple[Any, ...]]]

T = time.time_ns() // S * S - 3600 * S


def window(agent: Agent, step: int, **more: Any) -> dict[str, Any]:
    at = T + step * 10 * S
    told = {
        "job": "j",
        "attempt": "a",
        "rank": 0,
        "first": step,
        "last": step,
        "start": at,
        "end": at + 10 * S,
    }
    return agent.say("steps", **{**told, **more})


def counts(rows: Rows) -> dict[str, int]:
    return {result: int(n) for result, n in rows("SELECT result, sum(n) FROM ingest_counts GROUP BY 1")}


def stored(rows: Rows) -> int:
    return int(rows("SELECT count(*) FROM events")[0][0])


def test_a_batch_sent_again_has_no_effect(store: PostgresStore, rows: Rows) -> None:
    """B30: the key is the event, not the batch."""
    agent = Agent()
    events = [window(agent, step) for step in range(4)]
    assert {"accepted": 3, "duplicates": 0} == outcome(agent.hand_in(store, events[:3]))
    assert {"accepted": 0, "duplicates": 3} == outcome(agent.hand_in(store, events[:3]))
    assert {"accepted": 1, "duplicates": 2} == outcome(agent.hand_in(store, events[1:]))
    assert 4 == stored(rows)
    assert {"accepted": 4, "duplicate": 5} == counts(rows)


def outcome(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("accepted", "duplicates")}


def test_another_process_of_the_service_knows_it_too(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    events = [window(agent, step) for step in range(4)]
    agent.hand_in(store, events)
    assert {"accepted": 0, "duplicates": 4} == outcome(agent.hand_in(PostgresStore(engine), events))
    assert 4 == stored(rows)


def test_batches_that_arrive_in_another_order_are_all_taken(store: PostgresStore, rows: Rows) -> None:
    """Numbers below the highest one are looked up, not taken for repeats."""
    agent = Agent()
    events = [window(agent, step) for step in range(9)]
    for part in (events[6:], events[:3], events[3:6]):
        assert {"accepted": 3, "duplicates": 0} == outcome(agent.hand_in(store, part))
    assert 9 == stored(rows)


def test_the_same_batch_posted_by_many_at_once_is_stored_once(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    events = [window(agent, step) for step in range(50)]
    agent.say("heartbeat", ts=T, jobs=[{"job": "j", "attempt": "a", "ranks": [0]}])
    agent.say("job", job="j", cluster="c")
    stores = [store, *(PostgresStore(engine) for _ in range(3))]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: agent.hand_in(stores[n % 4]), range(16)))
    assert 52 == sum(answer["accepted"] for answer in answers)
    assert 52 * 15 == sum(answer["duplicates"] for answer in answers)
    assert len(events) + 1 == stored(rows)
    assert [(1,)] == rows("SELECT count(*) FROM job_facts")


def test_many_nodes_of_one_new_job_meet_without_a_deadlock(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    def speak(number: int) -> dict[str, Any]:
        agent = Agent(node=f"n{number}", incarnation=f"life-{number}")
        order = [f"a{n}" for n in range(6)]
        for attempt in order if number % 2 else reversed(order):
            window(agent, number, attempt=attempt, job=f"j-{attempt}")
        return agent.hand_in(stores[number % 3])

    stores = [store, PostgresStore(engine), PostgresStore(engine)]
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(speak, range(27)))
    assert [6] * 27 == [answer["accepted"] for answer in answers]
    assert [(6, 6, 162)] == rows(
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM attempts), (SELECT count(*) FROM attempt_nodes)"
    )


def test_twice_in_one_batch_is_a_duplicate(store: PostgresStore, rows: Rows) -> None:
    agent = Agent()
    event = window(agent, 1)
    assert {"accepted": 1, "duplicates": 2} == outcome(agent.hand_in(store, [event, event, dict(event)]))
    assert 1 == stored(rows)


def test_two_events_of_one_identity_are_both_kept_and_counted(store: PostgresStore, rows: Rows) -> None:
    """The core decides which one is booked, whatever came first."""
    agent = Agent()
    event = window(agent, 1)
    other = {**event, "last": 2}
    agent.hand_in(store, [event])
    for _ in range(2):
        agent.hand_in(store, [other])
    assert 2 == stored(rows)
    assert {"accepted": 1, "conflict": 1, "duplicate": 1} == counts(rows)


def test_a_newer_estimate_of_the_clock_makes_no_new_event(store: PostgresStore, rows: Rows) -> None:
    """Both are kept, for the smaller offset wins, but the sender hears of a duplicate."""
    agent = Agent()
    event = window(agent, 1)
    agent.hand_in(store, [event], clock_offset_ns=1000)
    assert {"accepted": 0, "duplicates": 1} == outcome(agent.hand_in(store, [event], clock_offset_ns=2000))
    assert [(T + 10 * S - 1000,), (T + 10 * S - 2000,)] == rows("SELECT start_ns FROM events ORDER BY 1 DESC")


def test_an_event_of_an_earlier_life_keeps_its_identity(store: PostgresStore, rows: Rows) -> None:
    """The spool outlives the agent: what was sent before the restart is not stored again after it."""
    before, after = Agent(), Agent(incarnation="life-2")
    events = [window(before, step) for step in range(3)]
    before.hand_in(store, events[:2])
    spooled = [{**event, "incarnation": "life-1"} for event in events]
    fresh = window(after, 9)
    assert {"accepted": 2, "duplicates": 2} == outcome(after.hand_in(store, [*spooled, fresh]))
    assert 4 == stored(rows)


def test_rows_and_columns_mean_the_same(store: PostgresStore) -> None:
    agent = Agent()
    events = [window(agent, step) for step in range(3)]
    names = ("seq", "first", "last", "start", "end")
    columns = {name: [event[name] for event in events] for name in names}
    bulk = {"type": "steps", "job": "j", "attempt": "a", "rank": 0, "columns": columns}
    assert {"accepted": 3, "duplicates": 0} == outcome(agent.hand_in(store, events[:0], batches=[bulk]))
    assert {"accepted": 0, "duplicates": 3} == outcome(agent.hand_in(store, events))


def test_one_bad_event_never_sinks_its_batch(store: PostgresStore, rows: Rows) -> None:
    """B34: its neighbours are stored, it is named by its place, and a repeat of the request changes nothing."""
    agent = Agent()
    window(agent, 1)
    agent.say("phase", job="j", attempt="a", rank=0, phase="x", start="yesterday", end=T)
    window(agent, 2)
    bad = {"index": 1, "seq": 2, "reason": "start must be an integer, not a string"}
    first, again = agent.hand_in(store), agent.hand_in(store)
    assert ({"accepted": 2, "duplicates": 0}, [bad]) == (outcome(first), first["quarantined"])
    assert ({"accepted": 0, "duplicates": 2}, [bad]) == (outcome(again), again["quarantined"])
    assert 2 == stored(rows)
    assert [("n1", "life-1", 2, 1, bad["reason"])] == rows(
        "SELECT node, incarnation, seq, position, reason FROM quarantine"
    )
    assert {"accepted": 2, "quarantined": 1, "duplicate": 3} == counts(rows)


@pytest.mark.parametrize(
    "stamp",
    [
        1772452800,
        1772452800000,
        1772452800000000,
        0,
        -5,
        pytest.param(time.time_ns() + 2 * 86400 * S, id="the day after tomorrow"),
        1e18,
        True,
        "1772452800",
    ],
)
def test_a_stamp_in_another_unit_leaves_no_trace(store: PostgresStore, rows: Rows, stamp: Any) -> None:
    """B44: no partition is made for it, and no node's last word moves."""
    before = rows("SELECT count(*) FROM pg_inherits")
    agent = Agent()
    if stamp == "in two days":
        stamp = time.time_ns() + 2 * 86_400 * S
    agent.say("checkpoint", job="j", attempt="a", step=1, ts=stamp, kind="save")
    answer = agent.hand_in(store)
    assert {"accepted": 0, "duplicates": 0} == outcome(answer)
    assert "ts" in answer["quarantined"][0]["reason"]
    assert before == rows("SELECT count(*) FROM pg_inherits")
    for table in ("nodes", "jobs", "attempts", "sources", "marks"):
        assert [] == rows(f"SELECT 1 FROM {table}")


def test_an_agent_speaks_for_its_own_node(store: PostgresStore, rows: Rows) -> None:
    """B84: who sends is the envelope's node; an event of another node is refused, and nothing of it changes."""
    agent = Agent(node="n1")
    agent.say("fault", ts=T, kind="xid", node="n9")
    agent.say("fault", ts=T, kind="xid", node="n1")
    answer = agent.hand_in(store)
    assert {"accepted": 1, "duplicates": 0} == outcome(answer)
    assert [(0, 1)] == [(one["index"], one["seq"]) for one in answer["quarantined"]]
    assert [("n1",)] == rows("SELECT node FROM nodes")
    assert [("n1",)] == rows("SELECT node FROM sources")


def test_the_quarantine_is_bounded(store: PostgresStore, rows: Rows) -> None:
    agent = Agent()
    for _ in range(1200):
        agent.say("nonsense", text="x" * 10_000)
    answer = agent.hand_in(store)
    assert 1200 == len(answer["quarantined"])
    assert [(1000, 4096)] == rows("SELECT count(*), max(length(event)) FROM quarantine")
    last = rows("SELECT reason FROM quarantine ORDER BY id DESC LIMIT 1")[0][0]
    assert "and 200 more events of this batch were refused" in last
    assert {"quarantined": 1200} == counts(rows)


def test_what_a_node_says_beside_all_jobs_stands_apart(store: PostgresStore, rows: Rows) -> None:
    agent = Agent()
    agent.say("heartbeat", ts=T)
    agent.say("fault", ts=T + S, kind="xid", code=79)
    agent.say(
        "heartbeat", ts=T + 2 * S, jobs=[{"job": "j", "attempt": name, "ranks": [0]} for name in ("a", "b")]
    )
    agent.say("fault", ts=T + 3 * S, kind="oom", job="j")
    assert {"accepted": 4, "duplicates": 0} == outcome(agent.hand_in(store))
    assert {"accepted": 0, "duplicates": 4} == outcome(agent.hand_in(store))
    assert [(-1, 1), (0, 1), (rows("SELECT job_id FROM jobs")[0][0], 3)] == rows(
        "SELECT job_id, count(*) FROM events GROUP BY 1 ORDER BY 1"
    )


def test_a_lost_connection_is_no_error_of_the_sender(store: PostgresStore, engine: Engine) -> None:
    """Sessions that were ended from outside are replaced: the next batch is stored."""
    agent = Agent()
    agent.hand_in(store, [window(agent, 1)])
    with engine.connect() as conn:
        own = "pid <> pg_backend_pid() AND datname = current_database()"
        conn.exec_driver_sql(
            f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {own}"
        ).all()
    assert {"accepted": 1, "duplicates": 0} == outcome(agent.hand_in(store, [window(agent, 2)]))
