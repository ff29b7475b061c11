"""Too much at once is told to the sender, and costs nothing that is already on its way."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.errors import Busy, EttError, Invalid, TooLarge
from fleet_ett.http import pressure as module
from fleet_ett.http.pressure import Bench, Pressure

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
        with pytest.raises(Invalid, match="too slowly"):
            await read(pressure, slow())
        assert 10 == len(await read(pressure, chunks(b"x" * 10)))

    run(test())


def test_a_sender_that_trickles_is_cut_off_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A steady one gets the time that its size needs."""
    monkeypatch.setattr(module, "FIRST_S", 0.2)
    monkeypatch.setattr(module, "SLOWEST", 100)

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b"x" * size
            await asyncio.sleep(0.05)

    async def test() -> None:
        with pytest.raises(Invalid, match="too slowly"):
            await read(Pressure(), pieces(1))
        assert 800 == len(await read(Pressure(), pieces(100), 1000))

    run(test())


def test_a_body_that_says_how_large_it_is_is_not_read_in_vain() -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    async def test() -> None:
        pressure = Pressure(bodies_bytes=100)
        for declared, error in ((201, TooLarge), (101, Busy)):
            with pytest.raises(error):
                async with pressure.body(never(), 200, declared):
                    pass
        assert 100 == len(await read(pressure, chunks(b"x" * 100)))

    run(test())


def test_bodies_that_trickle_in_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARRIVING", 2)

    async def test() -> None:
        pressure = Pressure()
        tasks = [asyncio.create_task(read(pressure, slow())) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await read(pressure, chunks(b"x"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert b"x" == await read(pressure, chunks(b"x"))

    run(test())


def test_who_finds_too_many_waiting_comes_back_later() -> None:
    async def test() -> None:
        pressure = Pressure(at_once=2, waiting=3)
        done = threading.Event()
        inside: list[int] = []

        def work(number: int) -> int:
            inside.append(number)
            done.wait(30)
            return number

        async def batch(number: int) -> int | EttError:
            try:
                return await pressure.run(partial(work, number))
            except Busy as error:
                return error

        tasks = [asyncio.create_task(batch(number)) for number in range(7)]
        while len(inside) < 2:  # noqa: ASYNC110 - threads set it
            await asyncio.sleep(0.01)
        assert [0, 1] == sorted(inside)
        assert [5, 6] == [number for number, task in enumerate(tasks) if task.done()]
        done.set()
        answers = await asyncio.gather(*tasks)
        assert [0, 1, 2, 3, 4] == answers[:5]
        assert all(isinstance(answer, Busy) for answer in answers[5:])
        assert 7 == await pressure.run(partial(work, 7))

    run(test())


def test_no_more_bodies_are_opened_than_there_is_room_for() -> None:
    """One that is larger than the room is opened alone; one that cannot be read takes none."""
    bench = Bench(at_once=1, room=10)
    stored, opened = threading.Event(), threading.Event()

    def unreadable(_: bytes) -> str:
        msg = "no"
        raise Invalid(msg)

    def keep() -> None:
        with bench.opened(lambda: bytes(99), str):
            opened.set()
            stored.wait(30)

    def follow() -> bool:
        with bench.opened(lambda: b"x", str):
            return stored.is_set()

    with pytest.raises(Invalid), bench.opened(lambda: bytes(9), unreadable):
        pass
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(keep)
        assert opened.wait(30)
        second = pool.submit(follow)
        stored.set()
        first.result()
        assert second.result()
