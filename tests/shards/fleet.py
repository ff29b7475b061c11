"""Several real servers for tests, and the service over them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import uvicorn

from fleet_ett.app import create_app
from fleet_ett.core.policy import Policy
from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.server import EmbeddedServer
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
def started(folder: Path, servers: int) -> Iterator[list[EmbeddedServer]]:
    """So many real PostgreSQL servers, each with data of its own."""
    bin_dir = find_bin_dir(os.environ)
    with ExitStack() as stack:
        yield [
            stack.enter_context(EmbeddedServer.start(folder / f"server{number}", bin_dir=bin_dir))
            for number in range(servers)
        ]


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A folder that the servers' unprivileged user can reach."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    yield parent
    shutil.rmtree(parent)


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
