"""Too much at once is told to the sender, and costs nothing that is already on its way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.errors import Busy, EttError, Invalid, TooLarge
from fleet_ett.http import pressure as module
from fleet_ett.http.pressure import Pressure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def slow() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(3600)


async def read(pressure: Pressure, parts: AsyncIterator[bytes], limit: int = 100) -> bytes:
    async with pressure.body(parts, limit) as body:
        return body


def test_a_body_is_whole() -> None:
    async def test() -> None:
        assert b"one two" == await read(Pressure(), chunks(b"one ", b"", b"two"))

    run(test())


def test_a_body_beyond_the_limit_is_not_read_to_its_end() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 30

    async def test() -> None:
        with pytest.raises(TooLarge):
            await read(Pressure(), endless())

    run(test())


def test_all_bodies_together_stay_within_the_budget() -> None:
    """Whatever happens to a body, its share of the budget comes back."""

    async def test() -> None:
        pressure = Pressure(bodies_bytes=100)
        async with pressure.body(chunks(b"x" * 60), 100):
            with pytest.raises(Busy) as told:
                await read(pressure, chunks(b"x" * 60))
            assert told.value.retry_after_s > 0
            assert 40 == len(await read(pressure, chunks(b"x" * 40)))
        for _ in range(3):
            with pytest.raises(TooLarge):
                await read(pressure, chunks(b"x" * 101), 100)
        assert 100 == len(await read(pressure, chunks(b"x" * 100)))

    run(test())


def test_a_sender_that_takes_for_ever_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_S", 0.05)

    async def test() -> None:
        pressure = Pressure(bodies_bytes=10)
        with pytest.raises(Invalid, match="did not arrive"):
            await read(pressure, slow())
        assert 10 == len(await read(pressure, chunks(b"x" * 10)))

    run(test())


def test_who_finds_too_many_waiting_comes_back_later() -> None:
    async def test() -> None:
        pressure = Pressure(at_once=2, waiting=3)
        done = asyncio.Event()
        inside: list[int] = []

        async def batch(number: int) -> int | EttError:
            try:
                async with pressure.turn():
                    inside.append(number)
                    await done.wait()
                    return number
            except Busy as error:
                return error

        tasks = [asyncio.create_task(batch(number)) for number in range(7)]
        await asyncio.sleep(0.01)
        assert [0, 1] == inside
        assert [5, 6] == [number for number, task in enumerate(tasks) if task.done()]
        done.set()
        answers = await asyncio.gather(*tasks)
        assert [0, 1, 2, 3, 4] == answers[:5]
        assert all(isinstance(answer, Busy) for answer in answers[5:])
        async with pressure.turn():
            pass

    run(test())
