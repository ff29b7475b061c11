"""Connections to Postgres, and what a lost one means.

A dead connection is found before it is used (pre-ping) or thrown away when it breaks, so a server that comes
back, or another one in its place, is used without a restart. Only a server that takes writes is connected to. No wait
for an answer is without end: a server that hangs is a server that is away. Whoever asks while there is none gets
`Unavailable`, never a bug's error.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors
from sqlalchemy import create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fleet_ett.errors import Busy, Invalid, Unavailable
from fleet_ett.postgres.lists import take_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeVar

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import ExceptionContext

    T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 5
RECYCLE_S = 1800
PING_S = 5.0  # for the ping before a connection is used
ANSWER_S = 35.0  # for one statement, where its transaction does not say otherwise
LONG_S = 900.0  # for one of a booking
UNBOUNDED_S = float("inf")  # of a migration
# A peer that vanished without a word is given up after 10 + 3 x 5 s, with data in flight after 20 s.
LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# The same on the server's side: the locks of a service that vanished, or was frozen in a transaction, are let go.
SERVER_SIDE = (
    # nothing depends on the zone; it only keeps what people see in psql the same everywhere
    "-c timezone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
    " -c idle_in_transaction_session_timeout=900000"
)
# SQLSTATE classes that another try can cure: connection, resources, intervention, serialization, locks, shutdown.
TRANSIENT = ("08", "40", "53", "55", "57", "58")
READ_ONLY = "25006"  # a standby, or a primary that was made one
# What is the matter: SQLSTATE, a phrase of a server that lets nobody in (which has no state), and our words.
REASONS = (
    (READ_ONLY, "session is read-only", "the database is read-only: it is not, or not any more, the primary"),
    ("53100", "No space left on device", "the disk of the database is full"),
    ("53300", "too many clients", "the database takes no more connections"),
    ("53300", "connection slots", "the database takes no more connections"),
    ("55P03", None, "somebody else holds what this needs locked"),
    ("57014", None, "the database did not finish in time"),
    ("57P03", "the database system is", "the database is starting, stopping or recovering"),
    (
        None,
        "password authentication failed",
        "the database does not let the service in: check ETT_DATABASE_URL",
    ),
    (None, "does not exist", "the database does not let the service in: check ETT_DATABASE_URL"),
)
SCHEMA = ("42P01", "42703", "3F000")  # no such table, column, schema
STALE_PLAN = (
    "cached plan must not change result type"  # 0A000: the tables were migrated under this connection
)


class _Patient(psycopg.Connection[Any]):
    """A connection that waits only so long for an answer, and is broken afterwards: nobody knows what was done."""

    patience_s: float = PING_S

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **more: Any) -> T:
        """See `psycopg.Connection`; every question goes through here."""
        return super().wait(self._bounded(gen), *args, **more)

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        until = monotonic() + self.patience_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and monotonic() > until:  # nothing came in the interval of the wait
                    self.pgconn.finish()
                    msg = f"the server did not answer within {self.patience_s:g} s"
                    raise errors.OperationalError(msg)
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def open_pool(
    url: str, *, size: int = 10, name: str = "fleet-ett", options: str = "", answer_s: float = ANSWER_S
) -> Engine:
    """A pool of at most `size` connections; opens none. Raises `Invalid` for a URL that cannot be read.

    `options`: further settings of the server for these connections, `-c name=value`. `answer_s`: how long one
    statement may take.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        msg = "the database URL cannot be read: postgresql://user:password@host/database"
        raise Invalid(msg) from error
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        msg = "the database URL must start with postgresql://"
        raise Invalid(msg)
    own = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": name,
        "target_session_attrs": "read-write",
        **LIVENESS,
    }
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        pool_recycle=RECYCLE_S,
        connect_args={
            **{key: value for key, value in own.items() if key not in parsed.query},
            "options": f"{SERVER_SIDE} {options}".rstrip(),
        },
    )
    _wait_in_bounds(engine, answer_s)
    event.listen(engine, "handle_error", _renew)
    return engine


def _wait_in_bounds(engine: Engine, answer_s: float) -> None:
    """Connections of `engine` wait `PING_S` in the pool and `answer_s` once they are somebody's."""

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, words: list[Any], named: dict[str, Any]) -> _Patient:
        made = _Patient.connect(*words, **named)
        take_lists(made)
        return made

    @event.listens_for(engine, "checkout")
    def check_out(driver: _Patient, _record: object, _proxy: object) -> None:
        driver.patience_s = answer_s

    @event.listens_for(engine, "checkin")
    def check_in(driver: _Patient | None, _record: object) -> None:
        if driver is not None:
            driver.patience_s = PING_S


def on_connect(engine: Engine, forget: Callable[[], None]) -> None:
    """Call `forget` at each new connection: it may lead to another server, or to this one set back to an earlier day.

    Whatever was learned over connections of before need not be true of it.
    """
    event.listen(engine, "connect", lambda _driver, _record: forget())


def bound(conn: Connection, answer_s: float) -> None:
    """No wait for an answer on this connection is longer, until it goes back to the pool."""
    driver = conn.connection.driver_connection
    assert isinstance(driver, _Patient)
    driver.patience_s = answer_s


def _renew(context: ExceptionContext) -> None:
    """Throw connections away that answer but are of no use any more; those to come reach the right server."""
    error = context.original_exception
    if getattr(error, "sqlstate", None) == READ_ONLY or STALE_PLAN in str(error):
        context.is_disconnect = True


@contextmanager
def driver_errors() -> Iterator[None]:
    """Have what the driver raises by itself (COPY) look like what SQLAlchemy raises."""
    try:
        yield
    except psycopg.Error as error:
        statement = "COPY"
        raise DBAPIError.instance(statement, None, error, psycopg.Error) from error


@contextmanager
def transaction(engine: Engine, *, answer_s: float | None = None) -> Iterator[Connection]:
    """One transaction: committed at the end of the block, rolled back when it raises.

    `answer_s`: how long one statement of it may take. Raises `Unavailable` where the database is not there (or goes
    away), `Busy` when all connections are taken.
    """
    with told_unavailable(), engine.begin() as conn:
        if answer_s is not None:
            bound(conn, answer_s)
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
        state = getattr(error.orig, "sqlstate", None)
        if state in SCHEMA:
            msg = "the database is not at the migration of this version: run fleet-ett migrate"
        elif is_transient(error):
            msg = _reason(str(state), str(error.orig))
        else:
            raise
        raise Unavailable(msg) from error


def _reason(state: str, said: str) -> str:
    """What is the matter. A server that lets nobody in says so in words alone."""
    for code, phrase, reason in REASONS:
        if state == code or (phrase is not None and phrase in said):
            return reason
    return "the database cannot be reached, or is busy"


def is_transient(error: DBAPIError) -> bool:
    """Whether the same statement may succeed later."""
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, OperationalError)  # no answer from a server at all
    return str(state)[:2] in TRANSIENT or state == READ_ONLY or STALE_PLAN in str(error.orig)
