"""The role that dashboards read with: it may see the views of the schema `report`, and no table.

A migration makes the views. In a fleet of several servers those of the home show the rows of all
(`shards.schema.joined_reports`).
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from fleet_ett.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

MARK = "reads the reports of fleet-ett"
ANSWER_S = 30
CONNECTIONS = 20
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_THERE = text("SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = :name")
_DATABASE = text("SELECT quote_ident(current_database())")


def make_reader(conn: Connection, name: str) -> str:
    """Make the role, or give it a new password; returns the password, which the server itself is not told.

    Raises `Invalid` for a name that another role has, and where the connection's own role may not make roles.
    """
    check_name(name)
    there = list(conn.scalars(_THERE, {"name": name}))
    if there and there != [MARK]:
        msg = f"there is a role {name} already, which was not made by this command: take another name"
        raise Invalid(msg)
    password = secrets.token_urlsafe(24)
    server = conn.connection.driver_connection
    assert server is not None
    hashed = server.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    database = conn.scalars(_DATABASE).one()
    try:
        for statement in statements(name, hashed, database, new=not there):
            conn.exec_driver_sql(statement)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "42501":  # insufficient_privilege
            raise
        msg = f"the database's user may not make a role ({error.orig}); --print shows what somebody who may can run"
        raise Invalid(msg) from error
    return password


def statements(name: str, password: str, database: str, *, new: bool = True) -> Iterator[str]:
    """The SQL that makes a reader; `password` as the server is to keep it. Raises `Invalid` for a strange name."""
    check_name(name)
    if new:
        yield f"CREATE ROLE {name} CONNECTION LIMIT {CONNECTIONS}"
        yield f"COMMENT ON ROLE {name} IS '{MARK}'"
    yield f"ALTER ROLE {name} LOGIN PASSWORD '{password}'"
    for setting, value in (
        ("search_path", "report"),
        ("default_transaction_read_only", "on"),
        ("statement_timeout", f"'{ANSWER_S}s'"),
        ("idle_in_transaction_session_timeout", f"'{ANSWER_S}s'"),
    ):
        yield f"ALTER ROLE {name} IN DATABASE {database} SET {setting} = {value}"
    yield f"GRANT CONNECT ON DATABASE {database} TO {name}"
    yield f"GRANT USAGE ON SCHEMA report TO {name}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA report TO {name}"
    yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO {name}"


def check_name(name: str) -> None:
    """Raises `Invalid` for what would need quotes wherever it is written."""
    if not _NAME.fullmatch(name):
        msg = f"a role's name is of a-z, 0-9 and _, and begins with no digit, not {name[:80]!r}"
        raise Invalid(msg)
