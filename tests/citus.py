"""Three real servers with Citus: databases whose tables are distributed by job.

Citus is no part of PostgreSQL. `make test-citus` runs the service's tests on it where `ETT_PG_BIN` names the programs
of a PostgreSQL that has it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from fleet_ett.postgres.embedded.folder import PORT
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.shards.citus import distribute
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fleet_ett.postgres.server import EmbeddedServer

SERVERS = 3
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
    with servers.started(folder, SERVERS) as found:
        for server in found:
            with connected(server) as admin:
                for setting, value in SETTINGS.items():
                    admin.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(setting), value))
    with servers.started(folder, SERVERS) as found:  # again, as they are set now
        yield found


@contextmanager
def distributed(found: Sequence[EmbeddedServer], database: str) -> Iterator[None]:
    """A database of the coordinator that the workers have, too."""
    for server in found[1:]:
        with connected(server) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    for server in found:
        with connected(server, database) as admin:
            admin.execute("CREATE EXTENSION citus")
    with connected(found[0], database) as admin:
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET citus.shard_count = {}").format(sql.Identifier(database), SHARDS)
        )
        admin.execute("SELECT citus_set_coordinator_host(%s, %s)", (host(found[0]), PORT))
        for server in found[1:]:
            admin.execute("SELECT citus_add_node(%s, %s)", (host(server), PORT))
    yield
    for server in found[1:]:
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
