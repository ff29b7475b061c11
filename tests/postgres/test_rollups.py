"""The sums of the ledger are its sums, at every commit, folded or not."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from fleet_ett.core.policy import Policy
from fleet_ett.postgres import migrate as migrations
from fleet_ett.postgres import rollups, work_lives
from fleet_ett.postgres.refill import make_sums_anew, refill
from fleet_ett.worker import book_due_jobs, rebuild
from tests.citus import not_distributed
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

    Rows = Callable[[str], list[tuple[Any, ...]]]

T0 = 1_772_452_800_000_000_000  # 2026-03-02T12:00:00Z
POLICY = Policy()
SUMS = (
    "fleet_hours",
    "fleet_days",
    "tenant_days",
    "ledger_days",
    "ledger_lives",
    "job_lives",
    "job_hours",
    "job_days",
    "team_hours",
    "team_days",
    "job_totals",
    "custom_totals",
)
BEFORE_SUMS = "2026_11_29_1640"  # the newest migration before the first one with sums
WEIGHTS = ("weight_hours", "weight_days")
WAITING = text(
    "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
    " WHERE NOT l.granted AND d.datname = current_database())"
)


def book(engine: Engine, now: int) -> None:
    while book_due_jobs(engine, POLICY, clock=lambda: now):
        pass


def differences(engine: Engine) -> list[str]:
    with engine.connect() as conn:
        return [*rollups.differences(conn), *work_lives.differences(conn)]


def crashed(agent: Agent, job: str, start: int) -> None:
    """Crashed and resumed, with a phase of its own in the silence before the crash."""
    crashed_and_resumed(agent, job, start)
    at = start + 310 * S
    agent.say("phase", job=job, attempt="a0", rank=0, phase="log_sync", start=at, end=at + 30 * S)


def everything(rows: Rows) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: sorted(rows(f"SELECT * FROM {table}"), key=repr) for table in (*SUMS, *WEIGHTS, "work_lives")
    }


def test_every_booking_is_in_the_sums(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    """A job is told event by event; its last hours change their labels again and again; it names its team late."""
    agent = Agent()
    crashed(agent, "j", T0 + HOUR // 2)
    agent.say("job", job="j", cluster="c1", team="ads", model="dlrm")
    chance = random.Random(3)
    for step in range(len(agent.said)):
        agent.hand_in(store, [agent.said[step]], now=T0 + 2 * HOUR)
        book(engine, T0 + (10 + step) * 60 * S + HOUR)
        assert [] == differences(engine)
        if chance.random() < 0.5:
            rollups.fold(engine)
            assert [] == differences(engine)
            assert [(0,)] == rows("SELECT count(*) FROM ledger_deltas")
    book(engine, T0 + 24 * HOUR)
    rollups.fold(engine)
    assert [] == differences(engine)
    assert {("cluster", "c1"), ("team", "ads"), ("model", "dlrm"), ("framework", ""), ("", "")} == set(
        rows("SELECT slice, name FROM fleet_days")
    )
    folded = everything(rows)
    with engine.begin() as conn:
        for table in (*SUMS, *WEIGHTS, "work_lives"):
            conn.exec_driver_sql(
                f"UPDATE {table} SET {'jobs = jobs + 1' if table in WEIGHTS else 'wall_ns = 1'}"
            )
    assert len(everything(rows)) <= len(differences(engine))
    make_sums_anew(engine)
    assert folded == everything(rows)
    assert [] == differences(engine)


def three_booked(store: PostgresStore, engine: Engine, rows: Rows) -> dict[str, list[tuple[Any, ...]]]:
    """The sums of three jobs, folded; none of them is empty."""
    agent = Agent()
    for number in range(3):
        crashed(agent, f"j{number}", T0 + number * HOUR // 2)
    agent.hand_in(store, now=T0)
    book(engine, T0 + 24 * HOUR)
    rollups.fold(engine)
    sums = everything(rows)
    assert all(sums.values())
    return sums


def test_a_rebuild_leaves_them_as_they_were(store: PostgresStore, engine: Engine, rows: Rows) -> None:
    before = three_booked(store, engine, rows)
    rebuild(engine, POLICY, as_of=T0 + 24 * HOUR)
    assert before == everything(rows)
    assert [] == differences(engine)


@not_distributed
def test_an_upgrade_leaves_them_as_they_were(
    database_url: str, store: PostgresStore, engine: Engine, rows: Rows
) -> None:
    """From whatever version that had ledgers; also by steps."""
    before = three_booked(store, engine, rows)
    versions = [one.revision for one in ScriptDirectory.from_config(migrations._config()).walk_revisions()]
    older = versions[1 : versions.index(BEFORE_SUMS) + 1]
    assert migrations.SUMS in versions[: len(older)]
    for version in older:
        engine.dispose()
        migrations.downgrade(database_url, version)
        if version == BEFORE_SUMS:
            for step in reversed(older):
                migrations.migrate(database_url, step)
        migrations.migrate(database_url)
        assert before == everything(rows), version
        assert [] == differences(engine), version


def test_while_they_are_made_anew_events_are_taken_and_bookings_wait(
    store: PostgresStore, engine: Engine
) -> None:
    agent = Agent()
    crashed(agent, "j0", T0)
    agent.hand_in(store, now=T0)
    book(engine, T0 + HOUR)
    crashed(agent, "j1", T0 + HOUR // 2)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as conn:
            refill(conn)
            agent.hand_in(store, now=T0 + HOUR)
            assert not rollups.fold(engine)
            booking = pool.submit(book, engine, T0 + 24 * HOUR)
            while not booking.done() and not conn.scalar(WAITING):
                time.sleep(0.01)
            assert not booking.done()
        booking.result()
    assert [] == differences(engine)
    rollups.fold(engine)
    assert [] == differences(engine)


def test_many_fold_and_book_at_once(store: PostgresStore, engine: Engine) -> None:
    """Nothing is added twice, nothing is lost, and nobody waits for somebody else's fold."""
    agent = Agent()
    for number in range(8):
        crashed(agent, f"j{number}", T0 + number * 60 * S)
    agent.hand_in(store, now=T0)

    def work(number: int) -> None:
        for step in range(6):
            book(engine, T0 + step * 600 * S)
            if number % 2:
                rollups.fold(engine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [] == differences(engine)
    rollups.fold(engine)
    assert [] == differences(engine)


def stopped(agent: Agent, hours: int) -> None:
    """A job that trains for so many hours, stops for three seconds in every fourth, and says so each hour."""
    agent.say("job", job="j", cluster="c1", team="ads", model="dlrm")
    agent.say("attempt_start", job="j", attempt="a0", ts=T0, gpus=8, world_size=1)
    for hour in range(hours):
        at, told = T0 + hour * HOUR, {"job": "j", "attempt": "a0", "rank": 0}
        agent.say("steps", **told, first=10 * hour, last=10 * hour + 9, start=at, end=at + HOUR - 3 * S)
        if hour % 4 == 1:
            own = "log_sync" if hour % 8 == 1 else "upload"
            agent.say("phase", **told, phase=own, start=at + HOUR - 3 * S, end=at + HOUR)
    agent.say("attempt_end", job="j", attempt="a0", ts=T0 + hours * HOUR, outcome="completed", exit_code=0)


@pytest.mark.parametrize("seed", range(4))
def test_running_totals_do_not_depend_on_the_order(
    store: PostgresStore, engine: Engine, rows: Rows, seed: int
) -> None:
    """What is told late raises the totals of all later hours; what turns out to have ended earlier drops some."""
    agent, chance = Agent(), random.Random(seed)
    stopped(agent, 30)
    events = [*agent.said]
    chance.shuffle(events)
    while events:
        some, events = events[:7], events[7:]
        agent.hand_in(store, some, now=T0 + 31 * HOUR)
        book(engine, T0 + (32 if events else 64) * HOUR)
        if chance.random() < 0.7:
            rollups.fold(engine)
        assert [] == differences(engine)
    rollups.fold(engine)
    hours = [hour for (hour,) in rows("SELECT hour_ns FROM job_totals ORDER BY 1")]
    assert [T0 + hour * HOUR for hour in range(30)] == hours
    assert [(hours[-1],)] == rows("SELECT last_hour_ns FROM job_lives")
    held = dict(rows("SELECT heading, count(*) FROM custom_totals GROUP BY 1"))
    assert {"custom:log_sync": 29, "custom:upload": 25} == held
    last = rows(
        "SELECT heading, wall_ns FROM custom_totals WHERE hour_ns = (SELECT max(hour_ns) FROM job_totals)"
    )
    assert {("custom:log_sync", 12 * S), ("custom:upload", 12 * S)} == set(last)


@pytest.mark.parametrize(
    ("table", "column"),
    [*((one, "gpu_ns") for one in SUMS), *((one, "ratios") for one in WEIGHTS), ("work_lives", "times")],
)
def test_a_difference_is_found(store: PostgresStore, engine: Engine, table: str, column: str) -> None:
    agent = Agent()
    crashed(agent, "j", T0)
    agent.hand_in(store, now=T0)
    book(engine, T0 + 24 * HOUR)
    rollups.fold(engine)
    with engine.begin() as conn:
        conn.exec_driver_sql(f"UPDATE {table} SET {column} = {column} + 1")
    (told,) = differences(engine)
    assert told.startswith(f"{table}: ")
    assert " rows differ from the " in told
