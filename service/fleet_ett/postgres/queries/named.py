"""Values that a statement knows by a name: it may be asked again with others (`kept.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, BigInteger, BindParameter, ColumnElement, Text, any_, bindparam

if TYPE_CHECKING:
    from collections.abc import Sequence


class Moment(int):
    """Ns."""

    name: str

    @classmethod
    def of(cls, name: str, value: int | None) -> Moment | None:
        """None stays None."""
        if value is None:
            return None
        out = cls(value)
        out.name = name
        return out

    def __clause_element__(self) -> BindParameter[int]:
        return bindparam(self.name, int(self), BigInteger)


class Names(tuple[str, ...]):
    """Several names, as many as there are."""

    __slots__ = ()
    name = "names"


def is_one_of(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Whether it is one of the values, which are one parameter, however many."""
    name = values.name if isinstance(values, Names) else None
    return column == any_(bindparam(name, list(values), ARRAY(Text)))
