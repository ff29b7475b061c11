"""A running service for tests: real HTTP over loopback, a real database, books of real events."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import uvicorn

from ett_collector.wire import to_wire
from fleet_ett.app import create_app
from fleet_ett.core.policy import Policy
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.postgres.tables import metadata
from fleet_ett.settings import Settings
from fleet_ett.worker import book_due_jobs
from tests.http.story import HOUR, T0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from sqlalchemy import Engine

    from ett_collector.wire import Event
    from tests.http.story import Job

CSV = {"Accept": "text/csv"}


@dataclass(frozen=True, slots=True)
class Service:
    """The service's address and database."""

    client: httpx.Client
    engine: Engine
    app: FastAPI

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of a path that must answer 200; `from_` stands for `from`."""
        answer = self.ask(path, **params)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    def ask(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> httpx.Response:
        """Whatever a path answers."""
        params = {name.rstrip("_"): value for name, value in params.items()}
        return self.client.get(path, params=params or None, headers=headers)

    def pages(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """All rows of a list, page by page."""
        rows: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.get(path, **params, **cursor)
            rows += page["items"]
            if page["next"] is None:
                return rows
            cursor = {"cursor": page["next"]}

    def forget(self) -> None:
        """Have never heard of anything."""
        with self.engine.begin() as conn:
            conn.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
        self.app.state.store = PostgresStore(self.engine)  # the old one remembers ids

    def book(self, *jobs: Job, now: int = T0 + 24 * HOUR) -> None:
        """Have the jobs in the books as of `now` (ns)."""
        self.book_events([event for job in jobs for event in job.events()], now)

    def book_events(self, events: list[Event], now: int = T0 + 24 * HOUR) -> None:
        """Have the events in the books as of `now` (ns)."""
        for (node, incarnation), told in groupby(sorted(events, key=_speaker), key=_speaker):
            agent = {"node": node, "incarnation": incarnation, "version": "1.0"}
            answer = self.client.post(
                "/v1/events", json={"agent": agent, "events": [to_wire(one) for one in told]}
            )
            assert [] == answer.json()["quarantined"]
        while book_due_jobs(self.engine, Policy(), clock=lambda: now):
            pass

    def job(self, key: str, part: str = "", **params: Any) -> Any:
        """A job's detail, or its ledger or timeline."""
        return self.get(f"/v1/jobs/{quote(key, safe='')}{part}", **params)


def _speaker(event: Event) -> tuple[str, str]:
    return event.node, event.incarnation


@contextmanager
def running(engine: Engine) -> Iterator[Service]:
    """The service on a free port of loopback until the block ends."""
    app = create_app(Settings(), engine)
    with (
        serving(uvicorn.Config(app, port=0, log_config=None, lifespan="off")) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield Service(client, engine, app)


@contextmanager
def serving(config: uvicorn.Config) -> Iterator[str]:
    """The address of a server that runs in a thread until the block ends."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
