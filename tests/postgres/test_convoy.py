"""Batches that arrive at once share a transaction, and nothing else."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text

from fleet_ett.errors import Unavailable
from fleet_ett.postgres import convoy as module
from fleet_ett.postgres import store as store_module
from fleet_ett.postgres.convoy import Convoy
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.store import PostgresStore
from tests.postgres.agents import Agent, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    Rows = Callable[[str], list[tuple[Any, ...]]]

T = time.time_ns() // S * S - 3600 * S


class Gate:
    """Runs groups of numbers: each becomes its negative. The first group waits until the gate is opened."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, group: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(group))
        self.entered.set()
        assert self.opened.wait(30)
        if 13 in group:
            raise KeyError(13)
        return [ValueError(one) if one % 10 == 7 else -one for one in group]


def travel(numbers: Sequence[int], weigh: Callable[[int], int] = lambda _: 1) -> tuple[list[Any], Gate]:
    """What became of the first number, sent alone, and of the rest, which waits meanwhile, in this order."""
    gate = Gate()
    convoy = Convoy(gate, weigh, places=1)

    def send(number: int) -> object:
        try:
            return convoy(number)
        except Exception as error:  # noqa: BLE001
            return type(error)

    with ThreadPoolExecutor(len(numbers)) as pool:
        sent = []
        for at, number in enumerate(numbers):
            sent.append(pool.submit(send, number))
            assert gate.entered.wait(30)
            while len(convoy._waiting) < at:
                time.sleep(0.001)
        gate.opened.set()
        return [one.result() for one in sent], gate


def test_who_waits_travels_together() -> None:
    """The first is not kept waiting for company; each hears of its own."""
    outcomes, gate = travel([1, 2, 17, 4])
    assert [[1], [2, 17, 4]] == gate.groups
    assert [-1, -2, ValueError, -4] == outcomes


def test_a_group_is_bounded_by_number_and_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    monkeypatch.setattr(module, "HEAVIEST", 10)
    outcomes, gate = travel([1, 2, 2, 2, 2, 9, 50, 1], weigh=lambda one: one)
    assert [[1], [2, 2, 2], [2], [9], [50], [1]] == gate.groups
    assert [-1, -2, -2, -2, -2, -9, -50, -1] == outcomes


def test_a_group_that_breaks_stops_nobody_behind_it() -> None:
    outcomes, gate = travel([1, 2, 13])
    assert [-1, KeyError, Unavailable] == outcomes
    assert [[1], [2, 13]] == gate.groups


@pytest.fixture
def commits(engine: Engine) -> Iterator[list[object]]:
    """What was committed, as it is."""
    told: list[object] = []

    def note(conn: object) -> None:
        told.append(conn)

    event.listen(engine, "commit", note)
    yield told
    event.remove(engine, "commit", note)


def agents(count: int) -> list[Agent]:
    """Agents of nodes of their own with a few events of one job each."""
    out = [Agent(node=f"n{number}", incarnation=f"life-{number}") for number in range(count)]
    for rank, agent in enumerate(out):
        agent.say("phase", job="j", attempt="a", rank=rank, phase="compile_cold", start=T, end=T + S)
        agent.say("heartbeat", ts=T, jobs=[{"job": "j", "attempt": "a", "ranks": [rank]}])
    return out


def all_at_once(store: PostgresStore, engine: Engine, hand_in: list[Callable[[], object]]) -> list[object]:
    """What became of each, when all wait for the same two transactions that cannot end yet."""

    def hear(one: Callable[[], object]) -> object:
        try:
            return one()
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(len(hand_in)) as pool, engine.connect() as conn:
        conn.exec_driver_sql("LOCK TABLE retention IN ACCESS EXCLUSIVE MODE")
        sent = [pool.submit(hear, one) for one in hand_in]
        while len(store._together._waiting) < len(hand_in) - module.PLACES:
            time.sleep(0.005)
        conn.rollback()
        return [one.result() for one in sent]


def test_a_burst_of_small_batches_takes_few_commits(
    store: PostgresStore, engine: Engine, rows: Rows, commits: list[object]
) -> None:
    """Everybody is answered by its own counts; events, marks, nodes and counts are those of single batches."""
    agents(1)[0].hand_in(store)  # so that the partition is there
    commits.clear()
    told = agents(22)
    answers = all_at_once(store, engine, [lambda one=one: one.hand_in(store) for one in told])  # type: ignore[misc]
    assert [(0, 2)] + [(2, 0)] * 21 == [(one["accepted"], one["duplicates"]) for one in answers]  # type: ignore[index]
    assert len(commits) <= 4
    assert [(44,)] == rows("SELECT count(*) FROM events")
    assert [(22, 22, 22)] == rows(
        "SELECT (SELECT count(*) FROM nodes), (SELECT count(*) FROM sources), (SELECT count(*) FROM attempt_nodes)"
    )
    assert {("accepted", 44), ("duplicate", 2)} == set(
        rows("SELECT result, sum(n)::int FROM ingest_counts GROUP BY 1")
    )
    assert [(T, T)] == rows("SELECT min(first_ns), max(last_ns) FROM marks")


def test_the_same_batch_many_times_in_one_group_is_stored_once(
    store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """As events, as columns, and one that says something else under the same number."""
    (agent,) = agents(1)
    other = Agent(said=[{**agent.said[0], "end": T + 2 * S}], node=agent.node, incarnation=agent.incarnation)
    (phase, _) = agent.said
    columns = {name: [phase[name]] for name in ("seq", "start", "end")}
    bulk = {name: value for name, value in phase.items() if name not in columns} | {"columns": columns}
    hand_in: list[Callable[[], object]] = [
        *[lambda: agent.hand_in(store)] * 5,
        *[lambda: agent.hand_in(store, [], batches=[bulk])] * 5,
        lambda: other.hand_in(store),
    ]
    answers: list[Any] = all_at_once(store, engine, hand_in)
    assert 3 == sum(one["accepted"] for one in answers)
    assert 13 == sum(one["duplicates"] for one in answers)
    assert [(3,)] == rows("SELECT count(*) FROM events")
    counted = dict(rows("SELECT result, sum(n)::int FROM ingest_counts GROUP BY 1"))
    assert {"accepted": 2, "conflict": 1, "duplicate": 13} == counted


def test_a_batch_that_cannot_be_stored_fails_alone(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """Whatever the reason is: here the database refuses one rank."""
    with engine.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (rank IS DISTINCT FROM 5)")
    told = agents(12)
    told[3].say("nonsense")
    try:
        answers: list[Any] = all_at_once(
            store,
            engine,
            [lambda one=one: one.hand_in(store) for one in told],  # type: ignore[misc]
        )
    finally:
        with engine.begin() as conn:
            conn.exec_driver_sql("ALTER TABLE events DROP CONSTRAINT poison")
    assert [5] == [at for at, one in enumerate(answers) if isinstance(one, Exception)], answers
    assert [2] * 11 == [one["accepted"] for one in answers if not isinstance(one, Exception)]
    assert [2] == [one["index"] for one in answers[3]["quarantined"]]
    assert [(22, 11)] == rows("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM sources)")
    assert 2 == told[5].hand_in(store)["accepted"]  # once the reason is gone


def test_partitions_that_a_neighbour_forgets_cost_no_try(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever meets a refused event forgets which partitions there are, for all groups of its store."""
    add_days = store._add_days

    def add_and_be_forgotten(days: set[int], now: int) -> None:
        add_days(days, now)
        store._days = frozenset()

    monkeypatch.setattr(store, "_add_days", add_and_be_forgotten)
    (agent,) = agents(1)
    assert 2 == agent.hand_in(store)["accepted"]


def test_a_source_that_somebody_holds_keeps_nobody_else_waiting_for_ever(
    store: PostgresStore, engine: Engine, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TOGETHER", "SET LOCAL lock_timeout = '100ms'")
    # those that nobody holds up have so long for all that a busy machine has them wait for
    monkeypatch.setattr(store_module, "ALONE", "SET LOCAL lock_timeout = '4s'")
    told = agents(6)
    told[2].hand_in(store, told[2].said[:1])
    with engine.connect() as holder:
        holder.execute(text("SELECT 1 FROM sources WHERE node = 'n2' FOR UPDATE"))
        answers = all_at_once(store, engine, [lambda one=one: one.hand_in(store) for one in told])  # type: ignore[misc]
    assert [2] == [at for at, one in enumerate(answers) if isinstance(one, Unavailable)]
    assert [(11,)] == rows("SELECT count(*) FROM events")


def test_without_a_database_all_hear_of_it() -> None:
    """Each by an error of its own."""
    engine = open_pool("postgresql://nobody@127.0.0.1:1/nothing")
    store = PostgresStore(engine)

    def send(agent: Agent) -> Exception:
        with pytest.raises(Unavailable) as told:
            agent.hand_in(store)
        return told.value

    with ThreadPoolExecutor(30) as pool:
        errors = list(pool.map(send, agents(30)))
    assert 30 == len(set(map(id, errors)))
    engine.dispose()
