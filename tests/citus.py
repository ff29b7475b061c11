"""Three real servers with Citus: databases whose tables are distributed by job.

Citus is no part of PostgreSQL. `make test-citus` runs the service's tests on it where `ETT_PG_BIN` names the programs
of a PostgreSQL that has it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from fleet_ett.postgres.embedded.folder import PORT
from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.postgres.shards.citus import distribute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NAMES = ("coordinator", "worker-1", "worker-2")
# Loaded with the server; what spans servers is committed in two phases. Emptied tables are files made anew: not synced.
SETTINGS = {"shared_preload_libraries": "citus", "max_prepared_transactions": "200", "fsync": "off"}
SHARDS = 4  # of each table

IS_ASKED_FOR = bool(os.environ.get("ETT_TEST_CITUS"))  # databases are to be distributed
no_citus = pytest.mark.skipif(IS_ASKED_FOR, reason="Citus cannot plan it (deploy/SCALING.md)")
not_distributed = pytest.mark.skipif(
    IS_ASKED_FOR, reason="speaks of a database that Citus has not distributed"
)


@contextmanager
def started(folder: Path) -> Iterator[list[EmbeddedServer]]:
    """The servers, the coordinator first, in a folder that their user can reach."""
    bin_dir = find_bin_dir(os.environ)
    for name in NAMES:
        with EmbeddedServer.start(folder / name, bin_dir=bin_dir) as server, connected(server) as admin:
            for setting, value in SETTINGS.items():
                admin.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(setting), value))
    with ExitStack() as stack:
        yield [stack.enter_context(EmbeddedServer.start(folder / name, bin_dir=bin_dir)) for name in NAMES]


@contextmanager
def distributed(servers: Sequence[EmbeddedServer], database: str) -> Iterator[None]:
    """A database of the coordinator that the workers have, too."""
    for server in servers[1:]:
        with connected(server) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    for server in servers:
        with connected(server, database) as admin:
            admin.execute("CREATE EXTENSION citus")
    with connected(servers[0], database) as admin:
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET citus.shard_count = {}").format(sql.Identifier(database), SHARDS)
        )
        admin.execute("SELECT citus_set_coordinator_host(%s, %s)", (host(servers[0]), PORT))
        for server in servers[1:]:
            admin.execute("SELECT citus_add_node(%s, %s)", (host(server), PORT))
    yield
    for server in servers[1:]:
        with connected(server) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))


def spread(url: str) -> None:
    """What `fleet-ett db shard` does."""
    engine = open_pool(url)
    try:
        assert list(distribute(engine))
    finally:
        engine.dispose()


def host(server: EmbeddedServer) -> str:
    """The folder of its socket, which libpq takes for a host."""
    return psycopg.conninfo.conninfo_to_dict(server.conninfo)["host"]


@contextmanager
def connected(server: EmbeddedServer, database: str | None = None) -> Iterator[psycopg.Connection]:
    """A connection that commits each statement."""
    more = {} if database is None else {"dbname": database}
    with psycopg.connect(server.conninfo, autocommit=True, **more) as conn:
        yield conn
