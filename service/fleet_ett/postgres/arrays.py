"""Rows as parameters of a statement: one array a column, so that any number of rows is one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON, BigInteger, Boolean, Integer, Numeric, SmallInteger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Table

_TYPES = {
    SmallInteger: "smallint",
    BigInteger: "bigint",
    Integer: "integer",
    Boolean: "boolean",
    Numeric: "numeric",
    JSONB: "jsonb",
    JSON: "json",
}


def rows_of(table: Table, names: Iterable[str]) -> str:
    """SQL of a table `n` with columns of those names and the types that they have in `table`."""
    chosen = list(names)
    arrays = ", ".join(
        f"CAST(:{name} AS {_TYPES.get(type(table.columns[name].type), 'text')}[])" for name in chosen
    )
    return f"unnest({arrays}) AS n ({', '.join(chosen)})"


def same(names: Iterable[str]) -> str:
    """SQL: the row `t` is the row `n`, by those columns."""
    return " AND ".join(f"t.{name} = n.{name}" for name in names)


def update(
    table: Table, keys: Sequence[str], names: Sequence[str], special: Mapping[str, str] | None = None
) -> str:
    """SQL that sets columns of rows `t` of a table to those of `n`, or to what `special` says."""
    values = ", ".join(f"{name} = {(special or {}).get(name, f'n.{name}')}" for name in names)
    return f"UPDATE {table.name} t SET {values} FROM {rows_of(table, (*keys, *names))} WHERE {same(keys)}"  # noqa: S608


def told(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """The parameters of `rows_of` for these rows; what a row has beyond the names is left out."""
    columns: list[list[Any]] = [[] for _ in names]
    for row in rows:
        for column, value in zip(columns, row, strict=False):
            column.append(value)
    return dict(zip(names, columns, strict=True))
