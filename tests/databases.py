"""Fixtures: one real PostgreSQL a test run (a worker), a database of its own for each module.

`ETT_PG_BIN=/usr/lib/postgresql/15/bin pytest` runs everything on an installed PostgreSQL; with `ETT_TEST_CITUS=1` that
one has Citus, and databases are distributed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer
from tests import citus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture(scope="session")
def servers() -> Iterator[list[EmbeddedServer]]:
    """Running servers in a folder that their unprivileged user can reach: one, but with Citus."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    if citus.IS_ASKED_FOR:
        with citus.started(parent) as found:
            yield found
    else:
        with EmbeddedServer.start(parent / "data", bin_dir=find_bin_dir(os.environ)) as server:
            yield [server]
    shutil.rmtree(parent)


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
