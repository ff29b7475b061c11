"""Lists as parameters come back from the database as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from fleet_ett.postgres.pool import open_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection


@pytest.fixture(scope="module")
def conn(database_url: str) -> Iterator[Connection]:
    engine = open_pool(database_url)
    with engine.connect() as found:
        yield found
    engine.dispose()


def echoed(conn: Connection, kind: str, values: list[Any]) -> list[Any]:
    query = text(f"SELECT CAST(:values AS {kind}[])")
    found: list[Any] = conn.execute(query, {"values": values}).scalar_one()
    return found


ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(values=st.lists(st.none() | ANY_TEXT))
def test_texts(conn: Connection, values: list[str | None]) -> None:
    """Also those that look like syntax of an array, or like nothing."""
    assert values == echoed(conn, "text", values)


@given(values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers(conn: Connection, values: list[int | None]) -> None:
    assert values == echoed(conn, "bigint", values)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "text",
            ["NULL", "null", None, "", "{}", "a,b", '"', "\\", "\\\\N", " padded ", "\n", "é\U0001f600"],
        ),
        ("boolean", [True, None, False]),
        ("numeric", [2**70, -1]),
        ("bytea", [b"\0\xff", b""]),
        ("jsonb", ['{"a": "\\\\\\""}', "null"]),
        ("text", [["a", "b"], ["c", "d,e"]]),
    ],
)
def test_what_else_there_is(conn: Connection, kind: str, values: list[Any]) -> None:
    expected = [{"a": '\\"'}, None] if kind == "jsonb" else values
    assert expected == echoed(conn, kind, values)


def test_nul_is_refused_as_in_a_single_text(conn: Connection) -> None:
    with pytest.raises(Exception, match="NUL") as refused:
        echoed(conn, "text", ["a\0b"])
    assert isinstance(refused.value.__cause__, psycopg.DataError)
