"""What an answer leaves behind in cycles is gone before the next one, and nobody is held up for old objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett import garbage
from fleet_ett.garbage import YOUNG, Tidied

if TYPE_CHECKING:
    from collections.abc import Iterator


class Knot:
    """Garbage that only a look for cycles finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def answer(knots: int) -> tuple[Tidied, list[weakref.ref[Knot]]]:
    """An application that ties so many for each answer, and the first of each."""
    tied: list[weakref.ref[Knot]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send
        made = [Knot() for _ in range(knots)]
        tied.append(weakref.ref(made[0]))

    return Tidied(app), tied


def ask(app: Tidied, times: int) -> None:
    async def all_of_them() -> None:
        for _ in range(times):
            await app({}, None, None)  # type: ignore[arg-type]

    asyncio.run(all_of_them())


def test_what_an_answer_leaves_is_collected_after_it() -> None:
    app, tied = answer(knots=YOUNG + 100)
    ask(app, 3)
    assert [None] * 3 == [one() for one in tied]


def test_little_is_left_until_there_is_more() -> None:
    """Thousands of small requests a second are not followed by a collection each."""
    app, tied = answer(knots=YOUNG // 10)
    ask(app, 5)
    assert None not in [one() for one in tied]
    ask(app, 20)
    assert all(one() is None for one in tied[:5])


def test_also_when_the_application_fails() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send
        raise ValueError([Knot() for _ in range(YOUNG + 100)])

    tidied = Tidied(app)
    with pytest.raises(ValueError, match="Knot"):
        ask(tidied, 1)
    assert gc.get_count()[0] < YOUNG


def test_what_grew_old_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lived through a collection, since another question was still being answered, and is garbage now."""
    monkeypatch.setattr(garbage, "OLDER", (2, 4))
    app, _ = answer(knots=YOUNG + 100)
    old = Knot()
    gone = weakref.ref(old)
    ask(app, 1)
    del old
    assert gone() is not None
    ask(app, 4)
    assert gone() is None


def test_what_was_there_before_is_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "OLDER", (2, 4))
    kept = Knot()
    gone = weakref.ref(kept)
    app, _ = answer(knots=YOUNG + 100)
    del kept
    ask(app, 5)
    assert gone() is not None
