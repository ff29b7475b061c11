"""Connections to Postgres, and what a lost one means.

A dead connection is found before it is used (pre-ping) or thrown away when it breaks, so a server that comes
back is used again without a restart. Whoever asks while there is none gets `Unavailable`, never a bug's error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fleet_ett.errors import Busy, Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 5
RECYCLE_S = 1800
# A peer that vanished without a word is given up after 10 + 3 x 5 s, with data in flight after 20 s.
LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# SQLSTATE classes that another try can cure: connection, resources, intervention, serialization, locks, shutdown.
TRANSIENT = ("08", "40", "53", "55", "57", "58")


def open_pool(url: str, *, size: int = 10, name: str = "fleet-ett", options: str = "") -> Engine:
    """A pool of at most `size` connections; opens none. Raises `Invalid` for a URL that cannot be read.

    `options`: further settings of the server for these connections, `-c name=value`.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        msg = "the database URL cannot be read: postgresql://user:password@host/database"
        raise Invalid(msg) from error
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        msg = "the database URL must start with postgresql://"
        raise Invalid(msg)
    return create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        pool_recycle=RECYCLE_S,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": name,
            # nothing depends on the zone; it only keeps what people see in psql the same everywhere
            "options": f"-c timezone=UTC {options}".rstrip(),
            **LIVENESS,
        },
    )


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction: committed at the end of the block, rolled back when it raises.

    Raises `Unavailable` where the database is not there (or goes away), `Busy` when all connections are taken.
    """
    with told_unavailable(), engine.begin() as conn:
        yield conn


@contextmanager
def told_unavailable() -> Iterator[None]:
    """Turn what a database does that is away, full or shutting down into `Unavailable`."""
    try:
        yield
    except PoolTimeout as error:
        msg = "all database connections are in use"
        raise Busy(msg, retry_after_s=2) from error
    except DBAPIError as error:
        if is_transient(error):
            msg = "the database cannot be reached, or is busy"
            raise Unavailable(msg) from error
        raise


def is_transient(error: DBAPIError) -> bool:
    """Whether the same statement may succeed later."""
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, OperationalError)  # no answer from a server at all
    return str(state)[:2] in TRANSIENT
