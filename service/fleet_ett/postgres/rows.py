"""Rows as the reader's port wants them: plain dicts, exact integers, the sort key beside."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, or_

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Executable

    from fleet_ett.reads import Row


def exact_rows(
    conn: Connection,
    query: Executable,
    values: Mapping[str, object] | None = None,
    *,
    key: Sequence[str] | None = None,
) -> list[Row]:
    """The rows with whole numerics as integers; with `key`, each row's sort key under `"_key"`.

    `values`: those of the query's parameters that have names.
    """
    out: list[Row] = []
    for found in conn.execute(query, values or {}).mappings():
        row: Row = {name: _exact(value) for name, value in found.items()}
        if key is not None:
            row["_key"] = tuple(row[name] for name in key)
        out.append(row)
    return out


def after_key(
    columns: Sequence[ColumnElement[Any]],
    after: Sequence[object] | None,
    *,
    falling: Sequence[bool] | None = None,
) -> list[ColumnElement[bool]]:
    """Rows that sort after a key, lexicographically; `falling` tells the columns that sort downwards."""
    if after is None or not columns:
        return []
    falls = falling or [False] * len(columns)
    ways = []
    for place, (column, value) in enumerate(zip(columns, after, strict=True)):
        equal = [c == v for c, v in zip(columns[:place], after[:place], strict=True)]
        ways.append(and_(*equal, column < value if falls[place] else column > value))
    return [or_(*ways)]


def _exact(value: object) -> object:
    if isinstance(value, Decimal):
        whole = int(value)
        if whole != value:
            msg = f"a sum of integers came back as {value}"
            raise ValueError(msg)
        return whole
    return value
