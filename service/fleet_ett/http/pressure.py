"""What the service takes on at once: bounded bodies in memory, bounded batches in work, a bounded queue.

Beyond it a sender is told to come back (`Busy`), which costs nothing; it keeps its batch. Batches in work have threads
of their own, so that readers never wait for them.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from fleet_ett.errors import Busy, Invalid, TooLarge
from fleet_ett.http.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    T = TypeVar("T")

BODIES_BYTES = 64 * 1024 * 1024  # of all requests together, as they came
ARRIVING = 512  # bodies that are being read, however slowly
AT_ONCE = 32  # batches in work: most of them wait for the commit that they share
WAITING = 256
READ_S = 30  # for a whole body
FIRST_S = 5  # for the beginning of one, and then a second for each
SLOWEST = 4096  # bytes: whoever trickles must not hold a place among those that arrive
RETRY_S = 2
OPENED_AT_ONCE = 2  # bodies that are unpacked and parsed: more are not faster, and a body may grow tenfold
OPENED_BYTES = 24 * 1024 * 1024  # of all opened bodies that are not stored yet, as they were unpacked


class Pressure:
    """The bounds of one process. Lives in one event loop."""

    def __init__(
        self, *, at_once: int = AT_ONCE, waiting: int = WAITING, bodies_bytes: int = BODIES_BYTES
    ) -> None:
        self.bench = Bench()
        self._threads = anyio.CapacityLimiter(at_once)
        self._turns = Turns(at_once=at_once, waiting=waiting)
        self._arriving = 0
        self._budget = bodies_bytes

    @asynccontextmanager
    async def body(self, chunks: AsyncIterator[bytes], limit: int, declared: int = 0) -> AsyncIterator[bytes]:
        """A whole body, counted against the budget of all until the block ends. `declared`: its size, where told.

        Raises `TooLarge` beyond `limit` bytes, `Busy` where the budget is used up, `Invalid` for a sender that
        takes too long.
        """
        if declared > limit:
            raise _too_large(limit)
        if declared > self._budget or self._arriving >= ARRIVING:
            raise _too_many()
        parts: list[bytes] = []
        self._arriving += 1
        try:
            try:
                await self._read(chunks, parts, limit)
            finally:
                self._arriving -= 1
            size = sum(map(len, parts))
            whole = b"".join(parts)
            parts.clear()
        except BaseException:
            self._budget += sum(map(len, parts))
            raise
        try:
            yield whole
        finally:
            self._budget += size

    async def _read(self, chunks: AsyncIterator[bytes], parts: list[bytes], limit: int) -> None:
        size = 0
        began = anyio.current_time()
        with anyio.CancelScope(deadline=began + min(FIRST_S, READ_S)) as patience:
            async for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                self._budget -= len(chunk)
                if size > limit:
                    raise _too_large(limit)
                if self._budget < 0:
                    raise _too_many()
                patience.deadline = began + min(FIRST_S + size / SLOWEST, READ_S)
            return
        msg = f"the body came too slowly: it has {FIRST_S} s and one more for each {SLOWEST} bytes, at most {READ_S} s"
        raise Invalid(msg)

    async def run(
        self, work: Callable[[], T], *, size: int = 0, is_gone: Callable[[], Awaitable[bool]] | None = None
    ) -> T:
        """Do the work of a batch of `size` bytes in a thread, in its turn; not for a sender that is gone by then.

        Raises `Busy` where it is nobody's turn any more, or too many wait already (see `turns.py`).
        """
        async with self._turns.turn(size):
            if is_gone is not None and await is_gone():
                msg = "the sender did not wait for its turn"
                raise Busy(msg, retry_after_s=RETRY_S)
            return await anyio.to_thread.run_sync(work, limiter=self._threads)


class Bench:
    """Where bodies are opened: few at once, and no more than there is room for until others are stored.

    Safe for threads.
    """

    def __init__(self, *, at_once: int = OPENED_AT_ONCE, room: int = OPENED_BYTES) -> None:
        self._places = threading.Semaphore(at_once)
        self._room = room
        self._taken = 0
        self._left = threading.Condition()

    @contextmanager
    def opened(self, unpack: Callable[[], bytes], read: Callable[[bytes], T]) -> Iterator[T]:
        """What `read` makes of the unpacked body, kept until the block ends."""
        size = 0
        try:
            with self._places:  # held also while there is no room: nothing more is opened then
                body = unpack()
                wanted = len(body)
                with self._left:
                    self._left.wait_for(lambda: not self._taken or self._taken + wanted <= self._room)
                    self._taken += wanted
                    size = wanted
                found = read(body)
                del body
            yield found
        finally:
            with self._left:
                self._taken -= size
                self._left.notify_all()


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"a body holds at most {limit} bytes")


def _too_many() -> Busy:
    return Busy("too many bodies at once", retry_after_s=RETRY_S)
