"""Who waits for a turn, who goes first, and who is sent away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.errors import Busy
from fleet_ett.http import turns as module
from fleet_ett.http.pressure import Pressure
from fleet_ett.http.turns import BYTES_PER_S, Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

HOUR = 60 * BYTES_PER_S  # so large that its place is the last one


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class Line:
    """Who stands in line while the only place is taken: by name, with a size."""

    def __init__(self, turns: Turns) -> None:
        self.served: list[str] = []
        self.busy: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = turns
        self._done = asyncio.Event()

    async def come(self, *who: tuple[str, int]) -> None:
        """One after the other; the first one that ever comes takes the place."""
        for name, size in who:
            self.tasks[name] = asyncio.create_task(self._want(name, size))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def go_on(self) -> Sequence[str]:
        """Who had a turn, in order, when all is over."""
        self._done.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return self.served

    async def _want(self, name: str, size: int) -> None:
        try:
            async with self._turns.turn(size):
                self.served.append(name)
                await self._done.wait()
        except Busy as error:
            self.busy.append(name if error.retry_after_s else "for ever")


def test_a_small_one_overtakes_a_large_one_but_not_its_like() -> None:
    async def test() -> None:
        line = Line(Turns(at_once=1, waiting=9))
        await line.come(("first", 0), ("large 1", HOUR), ("small 1", 9), ("large 2", HOUR), ("small 2", 9))
        assert ["first", "small 1", "small 2", "large 1", "large 2"] == await line.go_on()

    run(test())


def test_in_a_full_line_a_small_one_takes_the_place_of_the_last() -> None:
    async def test() -> None:
        line = Line(Turns(at_once=1, waiting=2))
        await line.come(("first", 0), ("large 1", HOUR), ("large 2", HOUR), ("large 3", HOUR))
        assert ["large 3"] == line.busy
        await line.come(("small 1", 9), ("small 2", 9), ("small 3", 9))
        assert ["first", "small 1", "small 2"] == await line.go_on()
        assert ["large 3", "large 2", "large 1", "small 3"] == sorted(line.busy, key=line.busy.index)

    run(test())


def test_nobody_stands_in_line_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is sent away, or goes, leaves no gap: the place is free again at the end."""
    monkeypatch.setattr(module, "SHORTEST_S", 0.5)  # the other one has gone by then

    async def test() -> None:
        turns = Turns(at_once=1, waiting=5, answered_s=0)
        line = Line(turns)
        await line.come(("first", 0), ("gone", 9), ("slow", 9))
        line.tasks["gone"].cancel()
        await asyncio.wait([line.tasks["slow"]])
        assert ["slow"] == line.busy
        assert ["first"] == await line.go_on()
        async with turns.turn(0):
            pass

    run(test())


def test_the_longer_a_turn_takes_the_shorter_one_stands_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the answer comes while the sender still waits for it: here, it would not."""
    monkeypatch.setattr(module, "SHORTEST_S", 0.01)

    async def test() -> None:
        turns = Turns(at_once=1, waiting=5, answered_s=3600)
        turns._work_s = 3600
        line = Line(turns)
        await line.come(("first", 0), ("second", 0))
        await asyncio.wait([line.tasks["second"]])
        assert ["second"] == line.busy
        assert ["first"] == await line.go_on()

    run(test())


def test_who_goes_when_its_turn_comes_hands_it_on() -> None:
    async def test() -> None:
        line = Line(Turns(at_once=1, waiting=5))
        await line.come(("first", 0), ("gone", 9), ("next", 9))
        line._done.set()
        await asyncio.wait([line.tasks["first"]])
        line.tasks["gone"].cancel()
        await asyncio.wait(line.tasks.values())
        assert "next" in line.served

    run(test())


def test_nothing_is_done_for_a_sender_that_is_gone() -> None:
    """It sends the same again, and would find its own batch in its way."""

    async def gone() -> bool:
        return True

    async def test() -> None:
        done: list[int] = []
        pressure = Pressure(at_once=1)
        with pytest.raises(Busy):
            await pressure.run(lambda: done.append(1), is_gone=gone)
        await pressure.run(lambda: done.append(2))
        assert [2] == done

    run(test())
