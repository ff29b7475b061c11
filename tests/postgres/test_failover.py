"""The database goes away, and comes back: nothing is lost, nobody hangs, everything heals by itself (K10)."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import httpx
import psycopg
import uvicorn

from fleet_ett.app import create_app
from fleet_ett.postgres import store as store_module
from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.settings import Settings
from fleet_ett.worker import Workers
from tests.http.service import serving
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed
from tests.postgres.embedded import DEADLINE_S, killed, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from sqlalchemy import Engine

START = time.time_ns() - 48 * HOUR


def test_a_killed_server_loses_nothing_and_is_used_again(data_dir: Path) -> None:
    """B32, B90: batches are refused with Retry-After meanwhile; what was answered 200 is there, once."""
    bin_dir = find_bin_dir(os.environ)
    with EmbeddedServer.start(data_dir, bin_dir=bin_dir) as first:
        migrate(first.url)
        engine = open_pool(first.url)
        settings = Settings()
        config = uvicorn.Config(create_app(settings, engine), port=0, log_config=None, lifespan="off")
        with (
            Workers(engine, settings),
            serving(config) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            agent = Agent()
            crashed_and_resumed(agent, "j", START)
            statuses: list[int] = []
            met, done = threading.Event(), threading.Event()

            def speak() -> None:
                spool = [agent.said[low : low + 5] for low in range(0, len(agent.said), 5)]
                while spool and not done.is_set():
                    if len(spool) == 1:
                        met.wait(
                            DEADLINE_S
                        )  # however slow the killing is, something is left to be said after it
                    answer = client.post("/v1/events", json=agent.body(spool[0]))
                    statuses.append(answer.status_code)
                    if answer.status_code == 200:
                        spool.pop(0)
                        time.sleep(0.05)
                    else:
                        assert int(answer.headers["retry-after"]) > 0
                        time.sleep(0.02)

            speaker = threading.Thread(target=speak)
            speaker.start()
            wait_until(lambda: len(statuses) > 2)
            with killed(data_dir):
                met.set()
                wait_until(lambda: 503 in statuses)
                assert 503 == client.get("/readyz").status_code
                assert 200 == client.get("/healthz").status_code
            with EmbeddedServer.start(data_dir, bin_dir=bin_dir):
                speaker.join(DEADLINE_S)
                done.set()
                speaker.join()
                assert {200, 503} == set(statuses)
                assert 200 == client.get("/readyz").status_code
                found = _counts(engine)
                assert (len(agent.said) - 1, 1, 0) == (found["events"], found["job_facts"], found["twice"])
                wait_until(lambda: _wall(engine) == 1000 * S)
        engine.dispose()


def _counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as conn:
        query = (
            "SELECT (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM job_facts) AS job_facts,"
            " (SELECT count(*) FROM (SELECT 1 FROM events GROUP BY source_id, seq HAVING count(*) > 1) t) AS twice"
        )
        return dict(conn.exec_driver_sql(query).mappings().one())


def _wall(engine: Engine) -> int | None:
    with engine.connect() as conn:
        found = conn.exec_driver_sql("SELECT summary->'wall_ns' FROM jobs WHERE NOT live").scalar()
        return None if found is None else int(found)


def test_a_locked_table_is_told_as_busy(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request hangs beyond its time: 503 with Retry-After, never 500."""
    monkeypatch.setattr(store_module, "ALONE", "SET LOCAL lock_timeout = '100ms'")
    config = uvicorn.Config(create_app(Settings(), engine), port=0, log_config=None, lifespan="off")
    agent = Agent()
    agent.say("heartbeat", ts=START)
    with serving(config) as url, httpx.Client(base_url=url, timeout=60) as client:
        with psycopg.connect(database_url.replace("+psycopg", "")) as other:
            other.execute("LOCK TABLE sources")
            answer = client.post("/v1/events", json=agent.body())
            assert (503, "unavailable") == (answer.status_code, answer.json()["code"])
            assert "retry-after" in answer.headers
        assert 200 == client.post("/v1/events", json=agent.body()).status_code
