"""Statements kept to be asked again of other windows: putting one together takes as long as many an answer.

A statement knows the moments of its window by names (`Moment`), and the jobs of a page by one (`Names`), so that those
of windows of one shape differ in values alone: `now - 30 days` is the same statement all day long.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql

from fleet_ett.postgres.queries.lives import Lives
from fleet_ett.postgres.queries.named import Moment, Names
from fleet_ett.postgres.queries.sums import lives_of
from fleet_ett.postgres.queries.windows import Pieces
from fleet_ett.reads import HOUR_NS, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import Any

    from sqlalchemy import CompoundSelect, Select

    from fleet_ett.reads import Scope

    AnySelect = Select[Any] | CompoundSelect[Any]
    Values = dict[str, object]

MOST = 64  # a megabyte each
STAMP = 10**17  # what is larger is a moment: of 1973 or later

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


class _Question:
    """What a statement is known by, and how it is made."""

    def __init__(self, key: Hashable, make: Callable[[], AnySelect], values: Values) -> None:
        self.key = key
        self.make = make
        self.values = values

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key


def statement(
    make: Callable[..., AnySelect],
    scope: Scope,
    by: Sequence[str],
    *more: Hashable,
    also: Values | None = None,
) -> tuple[AnySelect, Values]:
    """What `make(scope, by, *more)` asks, and the values to ask it with, those of `also` among them.

    `make` takes the moments of its window from the scope, or from its pieces, and what it makes must follow from its
    arguments alone.
    """
    own, key = replace(scope, window=_named(scope.window)), scope.filters
    values = _values_of(own.window) | (also or {})
    if len(key.job) > 1:  # a page of jobs: the next one has others
        several = Names(key.job)
        own, key = replace(own, filters=replace(key, job=several)), replace(key, job=(several.name,) * 2)
        values[several.name] = [*several]

    def made() -> AnySelect:
        return make(own, by, *more)

    lives, bounds = lives_of(scope, ()), (scope.window.start, scope.window.end)
    shape = (*values, lives.used, lives.running, *(one is None or one % HOUR_NS > 0 for one in bounds))
    found = _kept(_Question((make, shape, key, tuple(by), more), made, values))
    return made() if found is None else found, values


@lru_cache(maxsize=MOST)
def _kept(question: _Question) -> AnySelect | None:
    """The statement; None where it holds a moment that has no name, and cannot be asked of others."""
    query = question.make()
    told = query.compile(dialect=_DIALECT).params
    nameless = (one for name, one in told.items() if name not in question.values)
    return None if any(isinstance(one, int) and one > STAMP for one in nameless) else query


def _named(window: Window) -> Window:
    """The window with bounds that have names."""
    return Window(Moment.of("start", window.start), Moment.of("end", window.end))


def _values_of(window: Window) -> dict[str, object]:
    """What a statement is told of a window whose bounds have names, and of its pieces by days and by hours."""
    bounds = (one for one in (window.start, window.end, *Lives.of(window).marks) if isinstance(one, Moment))
    ways = ((True, False), (False, False), (False, True))
    pieces = (Pieces.of(window, by_hour=by_hour, beyond=beyond).values() for by_hour, beyond in ways)
    return {one.name: int(one) for one in bounds} | {
        name: value for told in pieces for name, value in told.items()
    }
