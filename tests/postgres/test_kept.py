"""A statement is put together once for all windows of its shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from fleet_ett.postgres.queries import kept
from fleet_ett.postgres.queries.components import _together
from fleet_ett.postgres.queries.fleet import _ett, held
from fleet_ett.postgres.queries.kept import statement
from fleet_ett.postgres.queries.losses import lost
from fleet_ett.postgres.queries.work import _again, _keys, _replayed
from fleet_ett.postgres.tables import jobs
from fleet_ett.reads import DAY_NS, HOUR_NS, Filters, Page, Scope, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Select

MIDNIGHT = 1_772_409_600_000_000_000  # 2026-03-02
PAGE = Page(10)
QUESTIONS = [
    *((_ett, by, PAGE) for by in ((), ("team",), ("cluster", "team"), ("job",), ("day",), ("team", "hour"))),
    *((held, by) for by in ((), ("hour",), ("week",))),
    *((lost, by, PAGE) for by in (("component",), ("cause",), ("phase", "day"), ("job",))),
    *((one, ()) for one in (_again, _replayed)),
    (_keys, (), PAGE),
    *((_together, (step,), 10) for step in ("hour", "day", "week")),
]
# from and to: how far after a midnight; each is a shape of its own
SHAPES = {
    "days": (0, 3 * DAY_NS),
    "many hours": (5 * HOUR_NS, 20 * DAY_NS),
    "cut hours": (5, 20 * DAY_NS - 7),
    "most of a day": (HOUR_NS - 5, 20 * DAY_NS + 2),
    "most of the last day": (5, 20 * DAY_NS + 20 * HOUR_NS),
    "most of both": (5 * HOUR_NS, 20 * DAY_NS + 20 * HOUR_NS),
    "cut at its start": (5 * HOUR_NS + 1, 15 * HOUR_NS),
    "cut at its end": (5 * HOUR_NS, 15 * HOUR_NS + 1),
    "days, cut at the start": (5, 20 * DAY_NS),
    "days, cut at the end": (0, 20 * DAY_NS + 5),
    "the end of an hour": (5, HOUR_NS),
    "parts of two hours": (5, HOUR_NS + 5),
    "within an hour": (5, 77),
    "since": (HOUR_NS + 1, None),
    "until": (None, HOUR_NS + 1),
    "always": (None, None),
}


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    kept._kept.cache_clear()
    yield
    kept._kept.cache_clear()


def scope(shape: str, days: int, **filters: tuple[str, ...]) -> Scope:
    start, end = (None if one is None else MIDNIGHT + days * DAY_NS + one for one in SHAPES[shape])
    return Scope(Window(start, end), Filters(**filters))


def moments(query: Select[Any], values: dict[str, object]) -> set[int]:
    """Those that it is asked with."""
    compiled = query.compile(dialect=kept._DIALECT)
    told = [one for value in compiled.construct_params(values).values() for one in _flat(value)]
    return {one for one in told if isinstance(one, int) and one > kept.STAMP}


def text(query: Select[Any]) -> str:
    """What is asked, with whatever values."""
    return re.sub(r":\w+", "?", str(query.compile()))


def _flat(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("make", "by", "more"), [(one[0], one[1], one[2:]) for one in QUESTIONS])
def test_another_day_is_the_same_statement(
    make: Callable[..., Select[Any]],
    by: tuple[str, ...],
    more: tuple[Any, ...],
    shape: str,
) -> None:
    first, values = statement(make, scope(shape, 0), by, *more)
    second, later = statement(make, scope(shape, 7), by, *more)
    assert first is second
    alone = make(scope(shape, 7), by, *more)
    assert moments(alone, {}) == moments(second, later)
    assert text(alone) == text(second)
    if shape != "always":
        assert moments(first, values) != moments(second, later)


@pytest.mark.parametrize(("make", "by", "more"), [(one[0], one[1], one[2:]) for one in QUESTIONS])
def test_every_shape_is_answered_by_its_own_statement(
    make: Callable[..., Select[Any]], by: tuple[str, ...], more: tuple[Any, ...]
) -> None:
    for shape in SHAPES:
        asked = scope(shape, 0, team=("ads",))
        kept, _ = statement(make, asked, by, *more)
        assert text(make(asked, by, *more)) == text(kept), shape


def test_other_questions_are_other_statements() -> None:
    asked = [
        statement(_ett, one, by, Page(limit))[0]
        for one in (scope("days", 0), scope("cut hours", 0), scope("days", 0, team=("ads",)))
        for by in ((), ("team",))
        for limit in (10, 11)
    ]
    assert len(asked) == len({id(one) for one in asked})


@pytest.mark.parametrize(("make", "by", "more"), [(one[0], one[1], one[2:]) for one in QUESTIONS])
def test_a_page_of_jobs_is_the_same_statement_as_the_next(
    make: Callable[..., Select[Any]], by: tuple[str, ...], more: tuple[Any, ...]
) -> None:
    """Whatever they are called, and however many they are."""
    pages = [("a", "b"), ("c", "d", "e"), ("a",)]
    asked = [statement(make, scope("cut hours", 0, job=names), by, *more) for names in pages]
    assert asked[0][0] is asked[1][0]
    assert asked[0][0] is not asked[2][0]
    for names, (query, values) in zip(pages, asked, strict=True):
        compiled = query.compile(dialect=kept._DIALECT)
        told = [one for value in compiled.construct_params(values).values() for one in _flat(value)]
        assert set(names) == {one for one in told if one in ("a", "b", "c", "d", "e")}


def test_a_moment_without_a_name_is_not_kept() -> None:
    """It would be that of the first who asked."""

    def make(asked: Scope, by: tuple[str, ...]) -> Select[Any]:
        del by
        assert asked.window.start is not None
        return select(jobs.c.job).where(jobs.c.start_ns > asked.window.start + 1)

    for days in (0, 7):
        query, values = statement(make, scope("days", days), ())
        assert {MIDNIGHT + days * DAY_NS + 1} == moments(query, values)
