"""Books follow events: what the worker writes is what the core says, however the events came (K4)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.errors import NotFound
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.readings import HELD
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed
from tests.postgres.stored import (
    LONG_AGO,
    NOW,
    POLICY,
    Clock,
    attempts_of,
    book,
    books,
    check,
    said,
    summary_of,
)

TOTALS = (
    "(SELECT name, labels, value FROM counter_totals"
    " UNION ALL SELECT name, labels, value FROM counter_deltas) AS t"
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    Rows = Callable[[str], list[tuple[Any, ...]]]


def test_what_is_stored_is_what_the_core_says(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store)
    assert 1 == book(engine)
    ledger = said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0])
    assert {"productive": 500 * S, "replay": 100 * S} == {
        name: ledger.summary.headings[name][0] for name in ("productive", "replay")
    }
    check(rows, "j", ledger)
    assert [("c1", "t1", "dlrm", None, False)] == rows("SELECT cluster, team, model, error, live FROM jobs")
    assert [] == rows("SELECT * FROM marks")
    assert 0 == book(engine)


def test_order_batches_and_repeats_do_not_matter(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """B35: every way to deliver gives the same books, also when they are made anew in between."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    dealer = random.Random(4)
    cards = [*agent.said, *dealer.sample(agent.said, 10)]
    dealer.shuffle(cards)
    now = Clock()
    while cards:
        agent.hand_in(store, [cards.pop() for _ in range(min(len(cards), dealer.randint(1, 15)))])
        now.now += 200 * S  # past the pace of a job that took long
        book_due_jobs(engine, POLICY, clock=now)
    check(rows, "j", said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0]))


def test_rebuilt_books_are_the_same_bytes(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    for number in range(3):
        crashed_and_resumed(agent, f"j{number}", LONG_AGO + number * HOUR)
    half = len(agent.said) // 2
    agent.hand_in(store, agent.said[:half])
    book(engine)
    agent.hand_in(store, agent.said[half:])
    book(engine, NOW + HOUR)
    as_of = NOW + 2 * HOUR
    assert 3 == rebuild(engine, POLICY, as_of=as_of)
    before = books(rows)
    assert 1 == rebuild(engine, POLICY, job="j1", as_of=as_of)
    assert before == books(rows)
    with engine.begin() as conn:
        conn.exec_driver_sql("DELETE FROM ledger")
        conn.exec_driver_sql("DELETE FROM segments")
    rebuild(engine, POLICY, as_of=as_of)
    assert before == books(rows)
    with pytest.raises(NotFound):
        rebuild(engine, POLICY, job="nobody")


def test_incremental_books_are_the_rebuilt_ones(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """Settled books do not depend on when they were made."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, agent.said[:30])
    book(engine)
    agent.hand_in(store, agent.said[30:])
    book(engine, NOW + HOUR)
    as_of = rows("SELECT as_of_ns FROM jobs")[0][0]
    before = books(rows)
    rebuild(engine, POLICY, as_of=as_of)
    assert before == books(rows)


def test_only_attempts_that_can_have_changed_are_booked(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store)
    book(engine)
    first = rows("SELECT as_of_ns FROM jobs")[0][0]
    late = agent.say("checkpoint", job="j", attempt="a1", step=3, ts=LONG_AGO + 1000 * S, kind="save")
    agent.hand_in(store, [late])
    book(engine, NOW + HOUR)
    second = rows("SELECT as_of_ns FROM jobs")[0][0]
    assert second > first
    assert [("a0", first), ("a1", second)] == rows("SELECT attempt, as_of_ns FROM attempts ORDER BY 1")
    check(rows, "j", said(agent, now=second))


def test_old_attempts_are_folded_and_unfolded_when_something_comes_late(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """A job of many attempts has but its last ones at hand; the books are those of all, whatever comes."""
    agent = Agent()

    def tell(attempt: int, at: int) -> list[dict[str, Any]]:
        place = len(agent.said)
        told = {"job": "j", "attempt": f"a{attempt:02}"}
        agent.say("attempt_start", **told, ts=at, gpus=8)
        agent.say(
            "steps", **told, rank=0, first=4 * attempt, last=4 * attempt + 5, start=at + S, end=at + 61 * S
        )
        agent.say("attempt_end", **told, ts=at + 70 * S, outcome="failed", exit_code=1)
        return agent.said[place:]

    def booked(now: int, folded: int) -> None:
        book(engine, now)
        check(rows, "j", said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0]))
        assert [(folded,)] == rows("SELECT count(*) FROM attempts WHERE folded")
        counted = "SELECT sum(value)::bigint FROM counters WHERE name = "
        assert [(folded + 1,)] == rows(f"{counted}'attempts'")
        assert rows("SELECT sum(wall_ns)::bigint FROM ledger") == rows(f"{counted}'wall_seconds'")

    for number in range(4):
        agent.hand_in(store, tell(2 * number, LONG_AGO + number * HOUR))
        booked(LONG_AGO + number * HOUR + HOUR // 2, number)
    step = {"first": 100, "last": 101, "start": LONG_AGO + HOUR + 62 * S, "end": LONG_AGO + HOUR + 65 * S}
    agent.hand_in(store, [agent.say("steps", job="j", attempt="a02", rank=0, **step)])
    booked(NOW, 3)
    agent.hand_in(store, [agent.say("fault", ts=LONG_AGO + 60 * S, kind="xid", code=79)])
    booked(NOW + HOUR, 3)
    agent.hand_in(store, tell(1, LONG_AGO + HOUR // 2))
    booked(NOW + 2 * HOUR, 4)
    step = {
        "first": 102,
        "last": 103,
        "start": LONG_AGO + 3 * HOUR + 62 * S,
        "end": LONG_AGO + 3 * HOUR + 65 * S,
    }
    agent.hand_in(store, [agent.say("steps", job="j", attempt="a06", rank=0, **step)])
    booked(NOW + 3 * HOUR, 4)
    before = books(rows)
    rebuild(engine, POLICY, as_of=rows("SELECT as_of_ns FROM jobs")[0][0])
    assert before == books(rows)


def test_an_attempt_that_comes_to_light_late_changes_those_around_it(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """Its steps were first booked as new in the attempt after it."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    of_first = [event for event in agent.said if event.get("attempt") == "a0"]
    agent.hand_in(store, [event for event in agent.said if event not in of_first])
    book(engine)
    assert "replay" not in summary_of(rows, "j")["headings"]
    agent.hand_in(store, of_first)
    book(engine, NOW + HOUR)
    assert 100 * S == summary_of(rows, "j")["headings"]["replay"][0]
    check(rows, "j", said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0]))
    assert rows("SELECT late_ns FROM jobs")[0][0] >= 100 * S


def test_a_fault_of_a_node_finds_the_attempts_that_it_ended(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """Also when it is delivered long after the attempt was closed and booked."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store)
    book(engine)
    (before,) = rows("SELECT cause FROM incidents")
    assert before[0] != "gpu_unavailable"
    fault = agent.say("fault", ts=LONG_AGO + 310 * S, kind="xid", code=79)
    elsewhere = Agent(node="n2", incarnation="other")
    elsewhere.say("fault", ts=LONG_AGO + 305 * S, kind="xid", code=48)
    elsewhere.hand_in(store)
    agent.hand_in(store, [fault])
    book(engine, NOW + HOUR)
    ledger = said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0])
    assert [(ledger.summary.incidents[0].cause, "n1")] == rows("SELECT cause, node FROM incidents")
    assert before != rows("SELECT cause FROM incidents")[0]
    check(rows, "j", ledger)
    assert [] == rows("SELECT * FROM marks")


def test_a_fault_of_a_whole_job_finds_its_attempts(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store)
    book(engine)
    agent.hand_in(store, [agent.say("fault", ts=LONG_AGO + 310 * S, kind="preemption", job="j")])
    book(engine, NOW + HOUR)
    ledger = said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0])
    assert [(ledger.summary.incidents[0].cause,)] == rows("SELECT cause FROM incidents")
    check(rows, "j", ledger)


def test_two_events_of_one_identity_are_booked_alike_in_any_order(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    other = {**agent.said[4], "end": agent.said[4]["end"] + 3 * S, "slowest": 7}
    agent.hand_in(store)
    agent.hand_in(store, [other])
    book(engine)
    first = attempts_of(rows, "j")
    assert "conflict" in [flag["flag"] for one in first for flag in one["flags"]]
    with engine.begin() as conn:
        conn.exec_driver_sql("TRUNCATE events, sources, jobs, attempts, job_facts, ledger, segments CASCADE")
    store = PostgresStore(engine)
    agent.hand_in(store, [other])
    agent.hand_in(store)
    book(engine)
    assert first == attempts_of(rows, "j")


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_service_whose_clock_is_wrong_for_a_while(
    store: PostgresStore, engine: Engine, rows: Rows, ahead: int
) -> None:
    """What was booked then is booked anew with what comes next, at once, and in the end nothing is to be seen of it."""
    agent = Agent()
    crashed_and_resumed(agent, "j", NOW - 2000 * S)
    agent.hand_in(store, agent.said[:30], now=NOW + ahead)
    assert 1 == book_due_jobs(engine, POLICY, clock=lambda: NOW + ahead)
    agent.hand_in(store, agent.said[30:], now=NOW)
    now = Clock()
    now.now = NOW + 2 * S
    assert 1 == book_due_jobs(engine, POLICY, clock=now)
    now.now = NOW + 24 * HOUR
    book_due_jobs(engine, POLICY, clock=now)
    check(rows, "j", said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0]))


def test_counters_only_rise(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """Events that come late take settled time from one heading to another: counted once, told as late."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, [event for event in agent.said if event["type"] != "phase"])
    totals: list[dict[tuple[str, str], int]] = []
    for number, part in enumerate(([], [e for e in agent.said if e["type"] == "phase"])):
        agent.hand_in(store, part)
        book(engine, NOW + number * HOUR)
        query = f"SELECT name, labels::text, sum(value) FROM {TOTALS} GROUP BY 1, 2"
        totals.append({(name, labels): int(value) for name, labels, value in rows(query)})
    assert all(totals[1][key] >= value for key, value in totals[0].items() if key[0] not in HELD)
    wall = ("wall_seconds", '{"team": "t1", "cluster": "c1"}')
    startup = ("gpu_seconds", '{"team": "t1", "cluster": "c1", "heading": "startup"}')
    assert [1000 * S] * 2 == [total[wall] for total in totals]
    assert [0, 150 * S * 8] == [total.get(startup, 0) for total in totals]
    assert [(150 * S,)] == rows("SELECT late_ns FROM jobs")
    rebuild(engine, POLICY, as_of=NOW + 2 * HOUR)
    assert totals[1] == {(n, text): int(v) for n, text, v in rows(query)}


def test_a_job_that_changes_its_name_moves_no_counter(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, agent.said[1:])
    book(engine)
    agent.hand_in(store, agent.said)
    book(engine, NOW + HOUR)
    assert [("c1",)] == rows("SELECT cluster FROM jobs")
    query = f"SELECT labels->>'cluster', sum(value) FROM {TOTALS} WHERE name = 'wall_seconds' GROUP BY 1"
    assert [("", 1000 * S)] == rows(query)
