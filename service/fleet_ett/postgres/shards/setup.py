"""Sets several servers up as one fleet, and brings them to the newest migration; safe to run again at any time.

The order is home, servers, joined view, so that what was interrupted is completed by the next run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from sqlalchemy import make_url, text

from fleet_ett.errors import Invalid, Unavailable
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import UNBOUNDED_S, open_pool, transaction
from fleet_ett.postgres.shards.schema import (
    IDS,
    MOST_SERVERS,
    foreign_server,
    joined_reports,
    joined_schema,
)
from fleet_ett.postgres.shards.servers import Member, read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

LOCKS = "SET LOCAL lock_timeout = '5s'"
LOCK = 0x6574_7403
# Columns whose ids must differ between servers.
IDENTITIES = (("jobs", "job_id"), ("sources", "source_id"))

_KNOW_OURSELVES = """
CREATE SCHEMA IF NOT EXISTS shards;
CREATE TABLE IF NOT EXISTS shards.member (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    fleet uuid NOT NULL,
    number integer,
    total integer NOT NULL
)
"""
_JOIN = text(
    "INSERT INTO shards.member (fleet, number, total) VALUES (CAST(:fleet AS uuid), :number, :total)"
)
_LOCALE = text(
    "SELECT datlocprovider, datcollate, pg_encoding_to_char(encoding) FROM pg_database"
    " WHERE datname = current_database()"
)


class _Found(NamedTuple):
    """What a database was before: its member row and how its text sorts."""

    member: Member
    locale: tuple[str, ...]


def set_up(home: str, urls: Sequence[str]) -> Iterator[str]:
    """Make a fleet of these databases or bring it along; says what was done, line by line, as it is done.

    Raises `Invalid` for databases that cannot be of one fleet, `Unavailable` for one that cannot be reached.
    """
    if not 0 < len(urls) <= MOST_SERVERS or len({home, *urls}) != len(urls) + 1:
        msg = "a fleet has a home and at least one server, each a database of its own"
        raise Invalid(msg)
    revision = migrate(home)
    found = _claim(home, None, len(urls), fleet=None)
    yield f"home: migration {revision}, fleet {found.member.fleet}"
    for number, url in enumerate(urls):
        name = f"server {number} of {len(urls)}"
        try:
            revision = migrate(url)
            there = _claim(url, number, len(urls), fleet=found.member.fleet)
        except Unavailable as error:
            msg = f"{name}: {error.message}"
            raise Unavailable(msg) from error
        if there.locale != found.locale:
            ours, theirs = " ".join(found.locale), " ".join(there.locale)
            msg = f"{name} sorts text as {theirs}, the home as {ours}: create them alike"
            raise Invalid(msg)
        yield f"{name}: migration {revision}, job ids from {number * IDS}"
    _join(home, urls)
    yield f"home: joined view of {len(urls)} servers made"


def statements(urls: Sequence[str], *, shown: bool) -> Iterator[str]:
    """The SQL of the joined view; `shown`: with the passwords left out, for people."""
    yield "CREATE EXTENSION IF NOT EXISTS postgres_fdw"
    for number, url in enumerate(urls):
        options = _libpq(url)
        if shown:
            options = {key: "..." if "password" in key else value for key, value in options.items()}
        yield from foreign_server(number, options)
    yield from joined_schema(len(urls))
    yield from joined_reports(len(urls))


def _claim(url: str, number: int | None, total: int, *, fleet: str | None) -> _Found:
    """Have a database know which one it is; it must be that already, or empty."""
    name = "the home" if number is None else f"server {number} of {total}"
    engine = open_pool(url, size=1, answer_s=UNBOUNDED_S)
    try:
        with transaction(engine) as conn:
            conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            locale = tuple(map(str, conn.execute(_LOCALE).one()))
            member = read_member(conn)
            if member is None:
                if conn.scalar(text("SELECT EXISTS (SELECT 1 FROM jobs)")):
                    msg = f"{name} holds jobs already: a fleet of several servers starts empty"
                    raise Invalid(msg)
                member = Member(fleet or str(uuid4()), number, total)
                conn.exec_driver_sql(_KNOW_OURSELVES)
                conn.execute(_JOIN, member._asdict())
                if number is not None:
                    _number(conn, number)
            wanted = Member(fleet or member.fleet, number, total)
            if member != wanted:
                msg = f"{name} is {_told(member)}: name all servers, in the order in which they were set up"
                raise Invalid(msg)
            return _Found(member, locale)
    finally:
        engine.dispose()


def _number(conn: Connection, number: int) -> None:
    """Have the server number its rows in its own range."""
    conn.exec_driver_sql(LOCKS)
    low, high = max(number * IDS, 1), (number + 1) * IDS - 1
    for table, column in IDENTITIES:
        conn.exec_driver_sql(
            f"ALTER TABLE {table} ALTER COLUMN {column}"
            f" SET MAXVALUE {high} SET MINVALUE {low} SET START WITH {low} RESTART"
        )


def _join(home: str, urls: Sequence[str]) -> None:
    engine = open_pool(home, size=1, answer_s=UNBOUNDED_S)
    try:
        with transaction(engine) as conn:
            conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            conn.exec_driver_sql(LOCKS)
            for statement in statements(urls, shown=False):
                conn.exec_driver_sql(statement.replace("%", "%%"))
    finally:
        engine.dispose()


def _libpq(url: str) -> dict[str, str]:
    """A URL as libpq's options."""
    parsed = make_url(url)
    told: dict[str, object] = dict(parsed.translate_connect_args(database="dbname", username="user"))
    for name, value in parsed.query.items():
        told[name] = value if isinstance(value, str) else ",".join(value)
    return {name: str(value) for name, value in told.items()}


def _told(member: Member) -> str:
    place = "the home" if member.number is None else f"server {member.number}"
    return f"{place} of fleet {member.fleet} of {member.total}"
