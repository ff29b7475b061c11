"""Which job is booked when, and by whom: due jobs, jobs that cannot be booked, several workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett import worker
from fleet_ett.errors import EttError
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed
from tests.postgres.stored import LONG_AGO, NOW, POLICY, Clock, book, books, check, said, summary_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

    Rows = Callable[[str], list[tuple[Any, ...]]]


def test_a_job_that_cannot_be_booked_says_so_and_stops_nobody(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """Two billion GPUs for an hour are more GPU time than a cell holds: an error with a name, not a figure.

    The wire refuses them; they can only come from a damaged row.
    """
    agent = Agent()
    crashed_and_resumed(agent, "good", LONG_AGO)
    agent.say("attempt_start", job="poison", attempt="a", ts=LONG_AGO, gpus=8)
    agent.say("attempt_end", job="poison", attempt="a", ts=LONG_AGO + 5 * HOUR, outcome="completed")
    agent.hand_in(store)
    with engine.begin() as conn:
        conn.exec_driver_sql(
            "UPDATE events SET body = jsonb_set(CAST(body AS jsonb), '{gpus}', '2147483647')"
            " WHERE job_id = (SELECT job_id FROM jobs WHERE job = 'poison') AND body ->> 'gpus' = '8'"
        )
    book(engine)
    (error, due), *_ = rows("SELECT error, due_ns FROM jobs WHERE job = 'poison'")
    assert error
    assert due > NOW
    assert [(None,)] == rows("SELECT error FROM jobs WHERE job = 'good'")
    assert [] == rows("SELECT 1 FROM ledger JOIN jobs USING (job_id) WHERE job = 'poison'")
    assert 0 == book(engine, NOW + 5 * S)
    check(
        rows, "good", said(agent, now=rows("SELECT as_of_ns FROM jobs WHERE job = 'good'")[0][0], job="good")
    )
    with pytest.raises(EttError, match="1 of 2 jobs could not be booked: 'poison'"):
        rebuild(engine, POLICY, as_of=NOW + HOUR)
    check(rows, "good", said(agent, now=NOW + HOUR, job="good"))
    assert rows("SELECT error FROM jobs WHERE job = 'poison'")[0][0]


def test_a_job_that_could_not_be_booked_recovers(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store)
    book(engine)
    good = summary_of(rows, "j")
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE attempts SET carry = '{}' WHERE attempt = 'a0'")
    agent.hand_in(
        store, [agent.say("checkpoint", job="j", attempt="a1", step=1, ts=LONG_AGO + 900 * S, kind="save")]
    )
    book(engine, NOW + HOUR)
    assert rows("SELECT error FROM jobs")[0][0].startswith("KeyError")
    assert good == summary_of(rows, "j")
    rebuild(engine, POLICY, as_of=NOW + HOUR)
    assert [(None,)] == rows("SELECT error FROM jobs")
    check(rows, "j", said(agent, now=NOW + HOUR))


@pytest.mark.parametrize(
    ("jobs", "took_s", "pause_s"),
    [(1, 4, 8), (2, 4, 10), (4, 4, 5), (1, 0, 1), (2, 0, 1), (1, 600, 30), (2, 600, 30)],
)
def test_what_took_long_is_booked_less_often(
    store: PostgresStore,
    engine: Engine,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    took_s: int,
    pause_s: int,
) -> None:
    """A job that waits alone may take half of a worker's time; a fifth where others wait, by its part of the cost.

    None is booked more often than each second, and none has to wait for more than half a minute.
    """
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic_ns=count(0, took_s * S).__next__))
    agent = Agent()
    for number in range(jobs):
        crashed_and_resumed(agent, f"j{number}", LONG_AGO)
    agent.hand_in(store)
    assert jobs == book_due_jobs(engine, POLICY, clock=lambda: NOW)
    assert [(NOW + pause_s * S,)] == rows("SELECT DISTINCT not_before_ns FROM jobs")
    late = {"attempt": "a1", "step": 1, "ts": LONG_AGO + 900 * S, "kind": "save"}
    agent.hand_in(store, [agent.say("checkpoint", job=f"j{number}", **late) for number in range(jobs)])
    assert 0 == book_due_jobs(engine, POLICY, clock=lambda: NOW + pause_s * S - 1)
    assert jobs == book_due_jobs(engine, POLICY, clock=lambda: NOW + pause_s * S)


def test_a_live_job_is_due_again_soon(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    agent.say("attempt_start", job="j", attempt="a", ts=NOW - 100 * S, gpus=8)
    agent.say("steps", job="j", attempt="a", rank=0, first=0, last=0, start=NOW - 90 * S, end=NOW - S)
    agent.hand_in(store)
    book(engine, NOW)
    ((live, due, as_of),) = rows("SELECT live, due_ns, as_of_ns FROM jobs")
    assert (True, 15 * S) == (live, due - as_of)
    assert 0 == book(engine, NOW + 14 * S)
    assert 1 == book(engine, NOW + 60 * S)
    assert 160 * S == summary_of(rows, "j")["wall_ns"] // S * S


def test_a_job_of_which_nobody_speaks_any_more_is_looked_at_rarely(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    agent = Agent()
    agent.say("attempt_start", job="j", attempt="a", ts=NOW - 100 * HOUR, gpus=8)
    agent.hand_in(store)
    book(engine)
    ((due, as_of),) = rows("SELECT due_ns, as_of_ns FROM jobs")
    assert HOUR == due - as_of


def test_an_attempt_that_begins_later_is_booked_then(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """A clock of a node that is ahead by less than a day is no error."""
    agent = Agent()
    agent.say("attempt_start", job="j", attempt="a", ts=NOW + 2 * HOUR, gpus=8)
    agent.hand_in(store)
    book(engine)
    assert [(None, NOW + 2 * HOUR)] == rows("SELECT start_ns, due_ns FROM jobs")
    book(engine, NOW + 3 * HOUR)
    assert [(NOW + 2 * HOUR, True)] == rows("SELECT start_ns, live FROM jobs")


def test_workers_in_several_processes_share_the_jobs(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """Posted and booked by many at once; no job is booked by two at a time, and none is left out."""
    agents = [Agent(node=f"n{n}", incarnation=f"life-{n}") for n in range(6)]
    for number, agent in enumerate(agents):
        crashed_and_resumed(agent, f"j{number % 3}", LONG_AGO)

    def post(agent: Agent) -> None:
        for low in range(0, len(agent.said), 7):
            agent.hand_in(store, agent.said[low : low + 7])

    def work(number: int) -> None:
        for turn in range(15):
            book_due_jobs(engine, POLICY, clock=Clock(NOW + number * S + turn * 200 * S))

    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(post, agent) for agent in agents] + [pool.submit(work, n) for n in range(3)]
        for one in waiting:
            one.result()
    book(engine, NOW + 4 * HOUR)
    assert [] == rows("SELECT * FROM marks")
    assert [] == rows("SELECT error FROM jobs WHERE error IS NOT NULL")
    rebuild(engine, POLICY, as_of=NOW + 5 * HOUR)
    before = books(rows)
    for number in range(3):
        mine = [agent for n, agent in enumerate(agents) if n % 3 == number]
        check(rows, f"j{number}", said(*mine, now=NOW + 5 * HOUR, job=f"j{number}"))
    assert before == books(rows)


def test_an_attempt_whose_mark_comes_later_is_booked_then(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """A batch may commit between a look at the marks and one at the attempts: what it tells is booked at the next."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, agent.said[:3])
    with engine.begin() as conn:
        conn.exec_driver_sql("INSERT INTO retention (horizon_ns) VALUES (1)")
        conn.exec_driver_sql("INSERT INTO attempts (job_id, attempt) SELECT job_id, 'a1' FROM jobs")
    assert 1 == book(engine)
    assert [("a1", None)] == rows("SELECT attempt, first_ns FROM attempts WHERE index IS NULL")
    agent.hand_in(store)
    book(engine, NOW + 60 * S)  # past the pace of a job that took long
    check(rows, "j", said(agent, now=rows("SELECT as_of_ns FROM jobs")[0][0]))
