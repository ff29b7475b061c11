"""Fixtures: one home and three servers a test run (a worker), databases of their own on them for each module."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from tests.servers import reachable_folder, started
from tests.shards.fleet import SERVERS, FleetService, fleet_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet_ett.postgres.server import EmbeddedServer


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Where the servers keep their data."""
    with reachable_folder() as found:
        yield found


@pytest.fixture(scope="session")
def postgres_servers(folder: Path) -> Iterator[list[EmbeddedServer]]:
    """The home's server and those of the jobs."""
    with started(folder, SERVERS + 1) as servers:
        yield servers


@pytest.fixture(scope="module")
def urls(postgres_servers: list[EmbeddedServer]) -> Iterator[list[str]]:
    """An empty database on each, the home first."""
    name = f"test_{uuid.uuid4().hex}"
    for server in postgres_servers:
        with psycopg.connect(server.conninfo, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")
    yield [
        make_url(server.url).set(database=name).render_as_string(hide_password=False)
        for server in postgres_servers
    ]
    for server in postgres_servers:
        with psycopg.connect(server.conninfo, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def spread(urls: list[str]) -> Iterator[FleetService]:
    """A running service over three servers whose books are empty at first."""
    with fleet_service(urls[0], urls[1:]) as service:
        yield service
