"""The tables of one database distributed by the extension Citus, by job.

Citus asks that every primary and unique key of a distributed table holds its distribution column, and that foreign
keys hold it too or lead to reference tables (copied to every server). `jobs` is unique by its key as well as by its
id, so it is a reference table; so are the other names that events are joined with, and keyed work, whose first time in
the fleet is looked for across jobs. The rest stays on the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    ForeignKeyConstraint,
    Identity,
    Index,
    PrimaryKeyConstraint,
    UniqueConstraint,
    text,
)

from fleet_ett.errors import Invalid
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Engine, MetaData, Table

BY = "job_id"
REFERENCES = frozenset({"jobs", "sources", "nodes", "owners", "retention", "work", "work_lives"})
# What jobs came to in all is added up from row to row, and that is done in one place.
ADDED_UP = frozenset({"job_lives", "ledger_lives", "job_totals", "custom_totals"})
# A transaction that has written the rows of jobs on several servers at once may not write a reference table.
ONE_BY_ONE = "citus.multi_shard_modify_mode TO 'sequential'"
DISTRIBUTED, REFERENCE, LOCAL = "distributed", "reference", "local"

_DO = "DO $do$ BEGIN EXECUTE {}; END $do$"
_OF_DATABASE = _DO.format(f"'ALTER DATABASE ' || quote_ident(current_database()) || $$ SET {ONE_BY_ONE}$$")
# Citus cannot plan an SQL function that is told values; what is asked in PL/pgSQL it plans with the values in place.
_EDGES = "edge_segments(hour bigint, low bigint, high bigint)"
_EDGES_APART = _DO.format(
    f"'CREATE OR REPLACE FUNCTION {_EDGES} RETURNS SETOF hour_segments LANGUAGE plpgsql STABLE AS '"  # noqa: S608 - our own names
    " || quote_literal('BEGIN RETURN QUERY '"
    " || (SELECT prosrc FROM pg_proc WHERE oid = 'edge_segments(bigint, bigint, bigint)'::regprocedure) || '; END')"
)
_THERE = text("SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'citus')")


def placement(table: Table) -> str:
    """Where a table lives: distributed by job, a reference table on every server, or local to the coordinator."""
    if table.name in REFERENCES:
        return REFERENCE
    return DISTRIBUTED if BY in table.primary_key.columns and table.name not in ADDED_UP else LOCAL


def broken_rules(schema: MetaData) -> list[str]:
    """What Citus would refuse of a schema's distributed tables, in words."""
    return [
        problem
        for table in schema.sorted_tables
        if placement(table) == DISTRIBUTED
        for problem in _problems(table)
    ]


def statements(schema: MetaData = metadata) -> Iterator[str]:
    """The SQL that distributes the tables, each once: reference tables first, for others lead to them."""
    yield "CREATE EXTENSION IF NOT EXISTS citus"
    yield f"SET LOCAL {ONE_BY_ONE}"
    yield _OF_DATABASE
    tables = schema.sorted_tables
    for table in tables:
        for column in table.columns:
            if column.identity is not None and placement(table) != LOCAL:
                yield from _numbered(table, column)
    for table in tables:
        if placement(table) == REFERENCE:
            yield f"SELECT create_reference_table('{table.name}')"
    first = None
    for table in tables:
        if placement(table) == DISTRIBUTED:
            together = "" if first is None else f", colocate_with => '{first}'"
            first = first or table.name
            yield f"SELECT create_distributed_table('{table.name}', '{BY}'{together})"
    yield _EDGES_APART


def distribute(engine: Engine) -> Iterator[str]:
    """Distribute the tables of a database; says what was done. Raises `Invalid` where Citus is not installed."""
    with transaction(engine) as conn:
        if not conn.scalar(_THERE):
            msg = (
                "this PostgreSQL has no extension citus: install it and set shared_preload_libraries = 'citus', "
                "or name plain PostgreSQL servers with --servers; --print shows what would be run"
            )
            raise Invalid(msg)
        for statement in statements():
            conn.exec_driver_sql(statement)
            yield statement


def _numbered(table: Table, column: Column[int]) -> Iterator[str]:
    """A sequence in place of the identity: Citus cannot change tables with identities, least of integers."""
    sequence = f"{table.name}_{column.name}_numbers"
    width = "bigint" if isinstance(column.type, BigInteger) else "integer"
    change = f"ALTER TABLE {table.name} ALTER COLUMN {column.name}"
    yield f"CREATE SEQUENCE {sequence} AS {width} OWNED BY {table.name}.{column.name}"
    yield (
        f"SELECT setval('{sequence}', coalesce(max({column.name}), 0) + 1, false) FROM {table.name}"  # noqa: S608
    )
    yield f"{change} DROP IDENTITY, ALTER COLUMN {column.name} SET DEFAULT nextval('{sequence}')"


def _problems(table: Table) -> Iterator[str]:
    keys = [one for one in table.constraints if isinstance(one, PrimaryKeyConstraint | UniqueConstraint)]
    for columns in (*(key.columns for key in keys), *(one.columns for one in _unique_indexes(table))):
        if BY not in columns:
            yield f"{table.name}: the key ({', '.join(columns.keys())}) does not hold {BY}"
    for foreign in table.constraints:
        if isinstance(foreign, ForeignKeyConstraint):
            where = placement(foreign.referred_table)
            paired = {one.parent.name: one.column.name for one in foreign.elements}
            if where == LOCAL or (where == DISTRIBUTED and paired.get(BY) != BY):
                yield f"{table.name}: the foreign key to {foreign.referred_table.name} does not go through {BY}"
    if isinstance(table.columns[BY].server_default, Identity):
        yield f"{table.name}: {BY} is numbered by the table itself"


def _unique_indexes(table: Table) -> Iterator[Index]:
    yield from (index for index in table.indexes if index.unique)
