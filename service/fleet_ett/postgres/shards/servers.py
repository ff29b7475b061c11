"""The servers of one fleet: a home for what is said once, and the servers that own the jobs.

Each database knows which one it is (`shards.member`), so that URLs in another order, or of another fleet, are
refused before they can scatter a job over two servers.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from fleet_ett.errors import Busy, Invalid, Unavailable
from fleet_ett.pieces import server_of
from fleet_ett.postgres.pool import open_pool, transaction
from fleet_ett.postgres.shards.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

# A server that did not answer is not asked again for so long: whoever needs others must not wait for it.
REST_S = 1.0
READING = (
    f"-c search_path={SCHEMA},public -c jit=off"
    " -c enable_partitionwise_join=on -c enable_partitionwise_aggregate=on"
)

_MEMBER = text("SELECT CAST(fleet AS text) AS fleet, number, total FROM shards.member")


class Member(NamedTuple):
    """What a database says that it is: one of `total` servers of a fleet; `number` is None for the home."""

    fleet: str
    number: int | None
    total: int


@dataclass(slots=True)
class Server:
    """One server that owns jobs, counted from 0."""

    number: int
    total: int
    engine: Engine
    fleets: set[str]  # shared by all servers: the one fleet that they are of
    _checked: bool = False
    _rests_until: float = 0.0

    @property
    def name(self) -> str:
        """As people see it."""
        return f"database server {self.number} of {self.total}"

    @contextmanager
    def asked(self) -> Iterator[Engine]:
        """Its connections; what goes wrong with them names the server. Raises `Unavailable`, `Invalid`."""
        if time.monotonic() < self._rests_until:
            msg = f"{self.name} cannot be reached"
            raise Unavailable(msg)
        try:
            if not self._checked:
                with transaction(self.engine) as conn:
                    self.check(read_member(conn))
            yield self.engine
        except Busy:
            raise
        except Unavailable as error:
            if _is_away(error):
                self._rests_until = time.monotonic() + REST_S
            msg = f"{self.name}: {error.message}"
            raise Unavailable(msg, retry_after_s=error.retry_after_s) from error

    def check(self, member: Member | None) -> None:
        """Raises `Invalid` where this is not the database that its place in the list says."""
        if member is None or (member.number, member.total) != (self.number, self.total):
            msg = f"{self.name} is {_told(member)}: ETT_SHARD_URLS must name the servers as they were set up"
            raise Invalid(msg)
        if self.fleets - {member.fleet}:
            msg = (
                f"{self.name} is of another fleet than the rest: ETT_SHARD_URLS must name the servers of one"
            )
            raise Invalid(msg)
        self.fleets.add(member.fleet)
        self._checked = True


@dataclass(frozen=True, slots=True)
class Fleet:
    """All servers. `home` has tokens, claims, owners and refused events; `joined` sees all jobs and only reads."""

    home: Engine
    joined: Engine
    servers: tuple[Server, ...]

    def owner(self, job: str) -> Server:
        """The server of a job."""
        return self.servers[server_of(job, len(self.servers))]


@contextmanager
def open_fleet(home: str, urls: Sequence[str], *, size: int) -> Iterator[Fleet]:
    """Pools of at most `size` connections to each; none is opened yet."""
    pools = [
        open_pool(home, size=size),
        open_pool(home, size=size, options=READING),
        *(open_pool(url, size=size) for url in urls),
    ]
    fleets: set[str] = set()
    servers = tuple(Server(number, len(urls), engine, fleets) for number, engine in enumerate(pools[2:]))
    try:
        yield Fleet(pools[0], pools[1], servers)
    finally:
        for engine in pools:
            engine.dispose()


def read_member(conn: Connection) -> Member | None:
    """What the database says that it is; None for one that stands for itself."""
    if conn.scalar(text("SELECT to_regclass('shards.member')")) is None:
        return None
    row = conn.execute(_MEMBER).one_or_none()
    return None if row is None else Member(row.fleet, row.number, row.total)


def check_fleet(fleet: Fleet) -> None:
    """Raises `Invalid` where these are not one fleet's databases; one that is away is checked once it comes."""
    total = len(fleet.servers)
    with suppress(Unavailable):
        with transaction(fleet.home) as conn:
            member = read_member(conn)
        if member is None or (member.number, member.total) != (None, total):
            msg = f"ETT_DATABASE_URL names {_told(member)}, not the home of {total} servers: run fleet-ett db shard"
            raise Invalid(msg)
        fleet.servers[0].fleets.add(member.fleet)
    for server in fleet.servers:
        with suppress(Unavailable), server.asked():
            pass


def refuse_alone(engine: Engine) -> None:
    """Raises `Invalid` for the database of a fleet of several servers that is about to be used as if alone."""
    try:
        with transaction(engine) as conn:
            member = read_member(conn)
    except Unavailable:
        return
    if member is not None:
        msg = f"this database is {_told(member)}: set ETT_DATABASE_URL to its home and ETT_SHARD_URLS to its servers"
        raise Invalid(msg)


def _is_away(error: Unavailable) -> bool:
    """Whether there is no connection at all; a lock that somebody else holds is no reason to leave a server alone."""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError):
        return False
    state = getattr(cause.orig, "sqlstate", None)
    return cause.connection_invalidated or state is None or str(state).startswith(("08", "57P"))


def _told(member: Member | None) -> str:
    if member is None:
        return "a database that was never set up by fleet-ett db shard"
    if member.number is None:
        return f"the home of a fleet of {member.total} servers"
    return f"server {member.number} of a fleet of {member.total}"
