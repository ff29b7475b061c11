"""`fleet-ett stats`: counted rows, measured bytes, and what they come to."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet_ett.__main__ import main
from fleet_ett.postgres import rollups, storage
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.settings import Settings
from fleet_ett.stats_command import figures, lines
from fleet_ett.worker import book_due_jobs, policy_of
from tests.postgres.agents import HOUR, Agent, crashed_and_resumed

if TYPE_CHECKING:
    from sqlalchemy import Engine

DAY = 24 * HOUR
NOW = time.time_ns() // DAY * DAY + 12 * HOUR


@pytest.fixture(scope="module", autouse=True)
def books(engine: Engine) -> None:
    """Three jobs on three of the last days."""
    agent = Agent()
    for days in (1, 2, 4):
        crashed_and_resumed(agent, f"j{days}", NOW - days * DAY)
    agent.hand_in(PostgresStore(engine), now=NOW)
    while book_due_jobs(engine, policy_of(Settings()), clock=lambda: NOW):
        pass
    rollups.fold(engine)


def test_rows_are_counted_and_bytes_measured(engine: Engine) -> None:
    with engine.connect() as conn:
        found = storage.measure(conn, now=NOW)
        events = conn.exec_driver_sql("SELECT count(*) FROM events").scalar_one()
        size = conn.exec_driver_sql("SELECT pg_total_relation_size('ledger')").scalar_one()
    assert (events, events) == (found.table("events").rows, sum(day.events for day in found.days))
    assert (3, 3, 3) == (len(found.days), found.job_days, found.job_days_with_segments)
    assert [1, 1, 1] == [day.jobs for day in found.days]
    assert size == found.table("ledger").bytes
    assert 4 * DAY == (found.events_to or 0) - (found.events_from or 0)


def test_the_projection_is_a_day_times_the_days_kept(engine: Engine) -> None:
    with engine.connect() as conn:
        found = storage.measure(conn, now=NOW)
    told = figures(found, Settings(retention_days=14, segment_days=90))
    day, year = told["growth_bytes_per_day"], told["projection_bytes"]
    assert sum(one.event_bytes for one in found.days) / 3 == day["events"]
    assert found.table("segments").bytes / 3 == told["bytes_per_job_day"]["segments"] == day["segments"]
    assert (14 * day["events"], 90 * day["segments"], 365 * day["ledger"]) == tuple(
        year["after_a_year"][name] for name in ("events", "segments", "ledger")
    )
    assert (0, 0, 365 * day["ledger"]) == tuple(
        year["each_year_more"][name] for name in ("events", "segments", "ledger")
    )
    for_ever = figures(found, Settings(retention_days=0, segment_days=0))["projection_bytes"]
    assert 365 * day["events"] == for_ever["after_a_year"]["events"] == for_ever["each_year_more"]["events"]


def test_nothing_stored_has_no_size(engine: Engine) -> None:
    """No division by nothing, in figures and in words."""
    with engine.connect() as conn:
        found = storage.measure(conn, now=NOW)
    empty = replace(found, tables=[replace(one, rows=0) for one in found.tables], days=[], job_days=0)
    told = figures(replace(empty, job_days_with_segments=0, events_from=None, events_to=None), Settings())
    assert told["bytes_per_event"] is None
    assert told["growth_bytes_per_day"]["ledger"] is None
    assert "a raw event takes -" in "\n".join(lines(told))


def test_the_command(
    engine: Engine, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables for people, JSON for programs; `--check` finds a roll-up that is not its ledger."""
    monkeypatch.setenv("ETT_DATABASE_URL", database_url)
    assert 0 == main(["stats", "--check"])
    shown = capsys.readouterr().out
    assert "a raw event takes" in shown
    assert shown.endswith("the roll-ups add up to the ledger\n")
    assert 0 == main(["stats", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"events", "segments", "ledger", "jobs"} < {one["name"] for one in told["tables"]}
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE fleet_days SET wall_ns = wall_ns + 1")
    assert 1 == main(["stats", "--json", "--check"])
    assert ["fleet_days: "] == [one[:12] for one in json.loads(capsys.readouterr().out)["check"]]
    assert 1 == main(["stats", "--check"])
    assert "`fleet-ett rebuild --sums` makes those of the ledger anew" in capsys.readouterr().out
    assert 0 == main(["rebuild", "--sums"])
    assert "made the sums anew from the books\n" == capsys.readouterr().out
    assert 0 == main(["stats", "--check"])
    capsys.readouterr()
    for more in (["--job", "j"], ["--as-of", "1"]):
        assert 2 == main(["rebuild", "--sums", *more])
        assert "leave out --job and --as-of" in capsys.readouterr().err
