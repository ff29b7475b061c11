"""Fixtures: one real PostgreSQL a test run (a worker), a database of its own for each module.

`ETT_PG_BIN=/usr/lib/postgresql/15/bin pytest` runs everything on an installed PostgreSQL; with `ETT_TEST_CITUS=1` that
one has Citus, and databases are distributed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from tests import citus
from tests.servers import reachable_folder, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from fleet_ett.postgres.server import EmbeddedServer


@pytest.fixture(scope="session")
def servers() -> Iterator[list[EmbeddedServer]]:
    """Running servers in a folder that their unprivileged user can reach: one, but with Citus."""
    with (
        reachable_folder() as folder,
        citus.started(folder) if citus.IS_ASKED_FOR else started(folder, 1) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def postgres(servers: list[EmbeddedServer]) -> EmbeddedServer:
    """The server that the tests' databases are on."""
    return servers[0]


@pytest.fixture(scope="module")
def database_url(postgres: EmbeddedServer, servers: list[EmbeddedServer]) -> Iterator[str]:
    """An empty database at the newest migration, for one module."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    url = make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
    if citus.IS_ASKED_FOR:
        with citus.distributed(servers, name):
            migrate(url)
            citus.spread(url)
            yield url
    else:
        migrate(url)
        yield url
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def engine(database_url: str) -> Iterator[Engine]:
    """A pool on the module's database."""
    pool = open_pool(database_url)
    yield pool
    pool.dispose()
