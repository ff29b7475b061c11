"""Partitions of raw events: days in UTC, made when needed, never by the session's clock (B42)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from fleet_ett.postgres.partitions import DAY_NS, add_partitions, days_ahead, partitions
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.store import PostgresStore
from tests.postgres.agents import HOUR, Agent, S

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Engine


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * S


NOW = ns("2026-11-20T12:00:00")


@pytest.fixture
def no_partitions(store: PostgresStore, engine: Engine) -> Engine:
    """The database without any partition."""
    with engine.begin() as conn:
        for name in partitions(conn):
            conn.exec_driver_sql(f"DROP TABLE {name}")
    del store  # for its empty tables
    return engine


def day(text: str) -> int:
    return ns(text) // DAY_NS


def test_a_day_is_a_utc_day(no_partitions: Engine) -> None:
    with no_partitions.begin() as conn:
        add_partitions(conn, [day("2026-11-20")], now=NOW)
        assert {"events_20261120": (ns("2026-11-20"), ns("2026-11-21"))} == partitions(conn)


def test_a_day_long_past_gets_its_month_around_what_is_there(no_partitions: Engine) -> None:
    """A sender of nonsense stamps cannot make a table a day."""
    with no_partitions.begin() as conn:
        add_partitions(conn, [day("2001-02-10")], now=NOW)
        add_partitions(conn, [day("2001-02-28"), day("2001-02-01")], now=NOW)
        assert {"events_20010201_28": (ns("2001-02-01"), ns("2001-03-01"))} == partitions(conn)
        add_partitions(conn, [day("2026-09-25")], now=NOW)
        add_partitions(conn, [day("2026-09-02"), day("2026-09-30")], now=NOW)
        assert {
            "events_20010201_28": (ns("2001-02-01"), ns("2001-03-01")),
            "events_20260901_24": (ns("2026-09-01"), ns("2026-09-25")),
            "events_20260925": (ns("2026-09-25"), ns("2026-09-26")),
            "events_20260930": (ns("2026-09-30"), ns("2026-10-01")),
        } == partitions(conn)


def test_there_is_always_a_day_ahead() -> None:
    assert [day("2026-11-20"), day("2026-11-21"), day("2026-11-22")] == days_ahead(NOW)


def test_several_may_make_the_same_days_at_once(no_partitions: Engine) -> None:
    days = [day("2026-11-18"), day("2026-11-19"), day("2026-11-20")]

    def make(_: int) -> None:
        with no_partitions.begin() as conn:
            add_partitions(conn, days, now=NOW)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, range(6)))
    with no_partitions.begin() as conn:
        assert 3 == len(partitions(conn))


@pytest.mark.usefixtures("no_partitions")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "UTC"])
def test_the_zone_of_a_session_has_no_say(database_url: str, zone: str) -> None:
    """B42: no hour is without a partition when clocks change, and a day's rows lie under its UTC date."""
    abroad = open_pool(database_url)

    @event.listens_for(abroad, "connect")
    def _(connection: psycopg.Connection[tuple[object, ...]], _record: object) -> None:
        connection.execute(f"SET timezone = '{zone}'")
        connection.commit()

    agent = Agent()
    moments = ["2026-10-25T00:30:00", "2026-10-25T00:59:59", "2026-10-25T01:00:00", "2026-10-25T01:30:00"]
    for moment in moments:
        agent.say("checkpoint", job="j", attempt="a", step=1, ts=ns(moment), kind="save")
    agent.say(
        "phase", job="j", attempt="a", rank=0, phase="evaluation",
        start=ns("2026-10-24T23:50:00"), end=ns("2026-10-25T00:20:00"),
    )  # fmt: skip
    assert 5 == agent.hand_in(PostgresStore(abroad), now=NOW)["accepted"]
    with abroad.connect() as conn:
        assert zone == conn.exec_driver_sql("SHOW timezone").scalar_one()
        found = dict(
            conn.exec_driver_sql("SELECT tableoid::regclass::text, count(*) FROM events GROUP BY 1").all()
        )
        bounds = partitions(conn)
    abroad.dispose()
    assert {"events_20261024": 1, "events_20261025": 4} == found
    assert (ns("2026-10-25"), ns("2026-10-26")) == bounds["events_20261025"]
    assert 24 * HOUR == bounds["events_20261025"][1] - bounds["events_20261025"][0]
