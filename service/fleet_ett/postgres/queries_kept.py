"""Statements kept to be asked again of other windows: putting one together takes as long as many an answer.

A statement knows the moments of its window by names (`Moment`), so that those of windows of one shape differ in values
alone: `now - 30 days` is the same statement all day long.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql

from fleet_ett.postgres.queries_chosen import ChosenJobs
from fleet_ett.postgres.queries_sums import lives_of, pieces_of
from fleet_ett.postgres.queries_windows import named, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import Any

    from sqlalchemy import Select

    from fleet_ett.reads import Scope

    Values = dict[str, object]

MOST = 256
STAMP = 10**17  # what is larger is a moment: of 1973 or later

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


class _Question:
    """What a statement is known by, and how it is made."""

    def __init__(self, key: Hashable, make: Callable[[], Select[Any]], values: Values) -> None:
        self.key = key
        self.make = make
        self.values = values

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key


def statement(
    make: Callable[..., Select[Any]], scope: Scope, by: Sequence[str], *more: Hashable
) -> tuple[Select[Any], Values]:
    """What `make(scope, by, *more)` asks, and the values to ask it with.

    `make` takes the moments of its window from the scope, or from its pieces, and what it makes must follow from its
    arguments alone.
    """
    own = replace(scope, window=named(scope.window))
    pieces = pieces_of(own, by)
    values = values_of(own.window, pieces)

    def made() -> Select[Any]:
        return make(own, by, *more)

    if isinstance(scope.filters, ChosenJobs):
        return made(), values
    shape = (tuple(values), lives_of(scope, by).used, bool(pieces.days), len(pieces.hours))
    found = _kept(_Question((make, shape, scope.filters, tuple(by), more), made, values))
    return made() if found is None else found, values


@lru_cache(maxsize=MOST)
def _kept(question: _Question) -> Select[Any] | None:
    """The statement; None where it holds a moment that has no name, and cannot be asked of others."""
    query = question.make()
    told = query.compile(dialect=_DIALECT).params
    nameless = (one for name, one in told.items() if name not in question.values)
    return None if any(isinstance(one, int) and one > STAMP for one in nameless) else query
