"""Lists as parameters, written in one go: psycopg's own way asks a dumper and a regular expression for each element.

Bookings hand whole columns over, thousands of elements a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.types.array import ListDumper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection
    from psycopg.abc import Buffer


class _Lists(ListDumper):
    """Flat lists of int or of str, with None among them; all others are left to psycopg."""

    def dump(self, obj: Sequence[Any]) -> Buffer | None:
        """The text of an array. Raises `psycopg.DataError` for a str with NUL, which the database does not take."""
        kinds = {type(one) for one in obj if one is not None}
        if kinds == {int}:
            return _braces(["NULL" if one is None else str(one) for one in obj])
        if kinds == {str} and not any("\0" in one for one in obj if one is not None):
            return _braces(["NULL" if one is None else _quoted(one) for one in obj])
        return super().dump(list(obj))


def take_lists(connection: Connection[Any]) -> None:
    """Have a connection write lists this way."""
    connection.adapters.register_dumper(list, _Lists)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _braces(elements: list[str]) -> bytes:
    return ("{" + ",".join(elements) + "}").encode()
