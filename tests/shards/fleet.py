"""Several real servers for tests, and the service over them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import uvicorn

from fleet_ett.app import create_app
from fleet_ett.core.policy import Policy
from fleet_ett.postgres.shards.servers import Fleet, check_fleet, open_fleet
from fleet_ett.postgres.shards.setup import set_up
from fleet_ett.postgres.shards.store import FleetStore
from fleet_ett.postgres.tables import metadata
from fleet_ett.settings import Settings
from fleet_ett.worker import book_due_jobs
from tests.http.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

SERVERS = 3


@dataclass(frozen=True, slots=True)
class FleetService(Service):
    """The service over several servers; `engine` is that of the joined view."""

    fleet: Fleet

    @property
    def engines(self) -> list[Engine]:
        """The servers that own jobs."""
        return [server.engine for server in self.fleet.servers]

    def forget(self) -> None:
        """Have never heard of anything."""
        # not TRUNCATE, which makes files anew: most tables are empty
        rows = "; ".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))
        for engine in (self.fleet.home, *self.engines):
            with engine.begin() as conn:
                conn.exec_driver_sql(rows)
        self.app.state.store = FleetStore(self.fleet)  # the old one remembers ids

    def make_books(self, now: int) -> None:
        """Have every server make its books as of `now` (ns)."""
        for engine in self.engines:
            while book_due_jobs(engine, Policy(), clock=lambda: now):
                pass


@contextmanager
def fleet_service(home: str, urls: Sequence[str]) -> Iterator[FleetService]:
    """The service over a fleet that is set up here."""
    assert list(set_up(home, urls))
    with open_fleet(home, urls, size=10) as fleet:
        check_fleet(fleet)
        app = create_app(Settings(), fleet.home, fleet)
        with (
            serving(uvicorn.Config(app, port=0, log_config=None, lifespan="off")) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            yield FleetService(client, fleet.joined, app, fleet)
