"""The joined view of all servers: a schema in the home's database with the tables of the books under their names.

What is keyed by job is a partitioned table whose partitions are foreign tables, one a server, by ranges of job ids:
Postgres prunes and pushes joins and sums down by itself, and readers' SQL runs unchanged. What has no job is the
servers' rows together. The schema holds no rows, so it is dropped and made anew whenever anything changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql

from fleet_ett.postgres.tables import metadata, views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Table

SCHEMA = "fleet"
IDS = 2**48  # job ids, and source ids, of one server: server i has [i x IDS, (i + 1) x IDS)
MOST_SERVERS = 2**15
# Said once in a fleet, and kept at home alone.
AT_HOME = ("tokens", "token_changes", "claims", "audit", "owners", "quarantine")
# The views of the schema `report` whose rows are on the servers; the others stand on tables of AT_HOME.
REPORTS = ("jobs", "attempts", "incidents", "ledger", "job_hours", "segments", "held_up", "work", "nodes")
# What a partitioned table is divided by: the first of these that it has.
KEYS = ("job_id", "source_id")
# Of a table: a fetch of 10,000 rows is one round trip; async: the servers work at once.
OPTIONS = {
    "async_capable": "true",
    "fetch_size": "10000",
    "use_remote_estimate": "true",
    "updatable": "false",
}
LIVENESS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


def key_of(table: Table) -> str | None:
    """The column that says on which server a row is; None where any server may have it."""
    return next((name for name in KEYS if name in table.primary_key.columns), None)


def joined_schema(servers: int) -> Iterator[str]:
    """The statements that make the schema anew over the foreign servers `ett_0` to `ett_<n-1>`."""
    yield f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"
    yield f"CREATE SCHEMA {SCHEMA}"
    for table in (*metadata.sorted_tables, *views.sorted_tables):
        if table.name in AT_HOME:
            continue
        key = key_of(table)
        if key is None:
            yield from _together(table, servers)
        else:
            yield from _partitioned(table, key, servers)
    yield (
        f"CREATE FUNCTION {SCHEMA}.edge_segments(hour bigint, low bigint, high bigint)"  # noqa: S608 - our own names
        f" RETURNS SETOF {SCHEMA}.hour_segments LANGUAGE sql STABLE AS $$SELECT * FROM {SCHEMA}.hour_segments"
        " WHERE hour_ns = hour AND start_ns < high AND end_ns > low$$"
    )


def joined_reports(servers: int) -> Iterator[str]:
    """The statements that have the home's reports show what the servers' reports show.

    A report is made on each server, of its own jobs, so that only the rows that were asked for travel.
    """
    for number in range(servers):
        schema = f"{SCHEMA}_report_{number}"
        yield f"DROP SCHEMA IF EXISTS {schema} CASCADE"
        yield f"CREATE SCHEMA {schema}"
        yield f"IMPORT FOREIGN SCHEMA report LIMIT TO ({', '.join(REPORTS)}) FROM SERVER ett_{number} INTO {schema}"
    for name in REPORTS:
        parts = [f"{SCHEMA}_report_{number}.{name}" for number in range(servers)]
        rows = " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts)  # noqa: S608 - names of ours
        if name == "nodes":  # a node that several know
            rows = f"SELECT DISTINCT ON (node) * FROM ({rows}) n ORDER BY node, last_seen_ns DESC"  # noqa: S608
        yield f"DROP VIEW IF EXISTS report.{name}"
        yield f"CREATE VIEW report.{name} AS {rows}"


def foreign_server(number: int, options: Mapping[str, str]) -> Iterator[str]:
    """The statements that tell the home how to reach a server; `options` are those of libpq."""
    name = f"ett_{number}"
    secret = {"user", "password", "passfile", "sslcert", "sslkey", "sslpassword"}
    open_to_all = {
        **LIVENESS,
        **OPTIONS,
        **{name: one for name, one in options.items() if name not in secret},
    }
    mapped = {name: one for name, one in options.items() if name in secret}
    yield f"DROP SERVER IF EXISTS {name} CASCADE"
    yield f"CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw {_options(open_to_all)}"
    yield f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} {_options(mapped)}"


def _partitioned(table: Table, key: str, servers: int) -> Iterator[str]:
    yield f"CREATE TABLE {SCHEMA}.{table.name} ({_columns(table)}) PARTITION BY RANGE ({key})"
    for number in range(servers):
        # below the first range lie the ids of what nodes say beside all jobs
        low = "MINVALUE" if number == 0 else number * IDS
        yield (
            f"CREATE FOREIGN TABLE {SCHEMA}.{table.name}_{number} PARTITION OF {SCHEMA}.{table.name}"
            f" FOR VALUES FROM ({low}) TO ({(number + 1) * IDS}) SERVER ett_{number} {_place(table)}"
        )


def _together(table: Table, servers: int) -> Iterator[str]:
    """A view of the rows of all servers; of a node that several know, what was heard last."""
    for number in range(servers):
        yield (
            f"CREATE FOREIGN TABLE {SCHEMA}.{table.name}_{number} ({_columns(table)})"
            f" SERVER ett_{number} {_place(table)}"
        )
    names = ", ".join(map(_quote, table.columns.keys()))
    parts = [f"{SCHEMA}.{table.name}_{number}" for number in range(servers)]
    if table.name == "ingest_counts":
        parts.append("public.ingest_counts")  # what was refused is counted at home
    rows = " UNION ALL ".join(f"SELECT {names} FROM {part}" for part in parts)  # noqa: S608 - names of ours
    if table.name == "nodes":
        rows = f"SELECT DISTINCT ON (node) {names} FROM ({rows}) n ORDER BY node, last_seen_ns DESC"  # noqa: S608
    yield f"CREATE VIEW {SCHEMA}.{table.name} AS {rows}"


def _columns(table: Table) -> str:
    return ", ".join(
        f"{_quote(column.name)} {column.type.compile(dialect=_DIALECT)}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    )


def _place(table: Table) -> str:
    return f"OPTIONS (schema_name 'public', table_name '{table.name}')"


def _options(told: Mapping[str, str]) -> str:
    quoted = (f"{_quote(name)} {_literal(value)}" for name, value in told.items())
    return f"OPTIONS ({', '.join(quoted)})"


def _quote(name: str) -> str:
    return str(_DIALECT.identifier_preparer.quote(name))


def _literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"{'E' if chr(92) in value else ''}'{escaped}'"
