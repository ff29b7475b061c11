"""Books follow events: what the worker writes is what the core says, however the events came (K4)."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.core.ledger import attribute
from fleet_ett.core.policy import Policy
from fleet_ett.errors import EttError, NotFound
from fleet_ett.ingest import decode_batch
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.core.ledger import Ledger

    Rows = Callable[[str], list[tuple[Any, ...]]]

NOW = time.time_ns()
LONG_AGO = NOW - 48 * HOUR
POLICY = Policy()
BOOKS = {
    "ledger": "SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5, 6, 7",
    "segments": "SELECT * FROM segments ORDER BY 1, 3",
    "held_up": "SELECT * FROM held_up ORDER BY 1, 2, 3, 4, 5",
    "work": "SELECT * FROM work ORDER BY 1, 2, 3, 4",
    "incidents": "SELECT * FROM incidents ORDER BY 1, 2",
    "attempts": "SELECT attempt, index, start_ns, end_ns, live, outcome, gpus, carry::text, summary::text"
    " FROM attempts ORDER BY job_id, index",
    "jobs": "SELECT job, name, cluster, team, start_ns, end_ns, live, error, summary::text FROM jobs ORDER BY job",
}


class Clock:
    """The service's time in a test; it goes a little further each time it is asked."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def book(engine: Engine, now: int = NOW) -> int:
    """Book all that is due at about `now`."""
    return book_due_jobs(engine, POLICY, clock=Clock(now))


def books(rows: Rows) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows(query) for name, query in BOOKS.items()}


def said(*agents: Agent, now: int, job: str | None = None) -> Ledger:
    """What the core says of everything that the agents said."""
    events = [event for agent in agents for event in decode_batch(agent.body(), now=None).singly().events]
    return attribute([event for event in events if job is None or event.job in (job, None)], now=now)


def summary_of(rows: Rows, job: str) -> dict[str, Any]:
    (found,) = rows(f"SELECT summary FROM jobs WHERE job = '{job}'")
    assert found[0] is not None
    return dict(found[0])


def attempts_of(rows: Rows, job: str) -> list[dict[str, Any]]:
    query = "SELECT a.summary FROM attempts a JOIN jobs USING (job_id)"
    return [dict(one) for (one,) in rows(f"{query} WHERE job = '{job}' AND index IS NOT NULL ORDER BY index")]


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))


def check(rows: Rows, job: str, ledger: Ledger) -> None:
    """The stored books of a job are the core's, row by row."""
    assert plain(ledger.summary.sums_to_json()) == summary_of(rows, job)
    assert [plain(books.summary.to_json()) for books in ledger.attempts] == attempts_of(rows, job)
    incidents = [(one.attempt, one.at, one.cause, one.gpu_ns) for one in ledger.summary.incidents]
    of_job = (
        f"FROM {{}} JOIN jobs USING (job_id) JOIN attempts USING (job_id, attempt_id) WHERE job = '{job}'"
    )
    assert incidents == rows(f"SELECT attempt, at_ns, cause, gpu_ns {of_job.format('incidents')} ORDER BY 2")
    cells = [
        (
            books.summary.attempt,
            cell.hour,
            cell.heading,
            cell.phase,
            cell.component,
            cell.repeated,
            cell.wall_ns,
            cell.gpu_ns,
        )
        for books in ledger.attempts
        for cell in books.cells
    ]
    columns = "attempt, hour_ns, heading, phase, component, repeated, wall_ns, gpu_ns"
    assert sorted(cells) == sorted(rows(f"SELECT {columns} {of_job.format('ledger')}"))
    segments = [
        (one.start, one.end, one.heading, one.rank, one.node, one.gpus, one.settled)
        for books in ledger.attempts
        for one in books.segments.rows()
    ]
    columns = "segments.start_ns, segments.end_ns, heading, rank, node, segments.gpus, settled"
    assert segments == rows(f"SELECT {columns} {of_job.format('segments')} ORDER BY 1")


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


def test_a_live_job_is_due_again_within_seconds(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    agent = Agent()
    agent.say("attempt_start", job="j", attempt="a", ts=NOW - 100 * S, gpus=8)
    agent.say("steps", job="j", attempt="a", rank=0, first=0, last=0, start=NOW - 90 * S, end=NOW - S)
    agent.hand_in(store)
    book(engine, NOW)
    ((live, due, as_of),) = rows("SELECT live, due_ns, as_of_ns FROM jobs")
    assert (True, 5 * S) == (live, due - as_of)
    assert 0 == book(engine, NOW + 4 * S)
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


def test_counters_only_rise(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """Events that come late take settled time from one heading to another: counted once, told as late."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, [event for event in agent.said if event["type"] != "phase"])
    totals: list[dict[tuple[str, str], int]] = []
    for number, part in enumerate(([], [e for e in agent.said if e["type"] == "phase"])):
        agent.hand_in(store, part)
        book(engine, NOW + number * HOUR)
        query = "SELECT name, labels::text, sum(value) FROM counter_totals GROUP BY 1, 2"
        totals.append({(name, labels): int(value) for name, labels, value in rows(query)})
    assert all(totals[1][key] >= value for key, value in totals[0].items())
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
    query = "SELECT labels->>'cluster', sum(value) FROM counter_totals WHERE name = 'wall_seconds' GROUP BY 1"
    assert [("", 1000 * S)] == rows(query)


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
