"""What the service takes on at once: bounded bodies in memory, bounded batches in work, a bounded queue.

Beyond it a sender is told to come back (`Busy`), which costs nothing; it keeps its batch.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fleet_ett.errors import Busy, Invalid, TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODIES_BYTES = 256 * 1024 * 1024  # of all requests together, as they came
AT_ONCE = 4  # batches that are unpacked and stored
WAITING = 256
READ_S = 30  # for a whole body
RETRY_S = 2


class Pressure:
    """The bounds of one process. Lives in one event loop."""

    def __init__(
        self, *, at_once: int = AT_ONCE, waiting: int = WAITING, bodies_bytes: int = BODIES_BYTES
    ) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0
        self._budget = bodies_bytes

    @asynccontextmanager
    async def body(self, chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
        """A whole body, counted against the budget of all until the block ends.

        Raises `TooLarge` beyond `limit` bytes, `Busy` where the budget is used up, `Invalid` for a sender that
        takes too long.
        """
        parts: list[bytes] = []
        try:
            try:
                await asyncio.wait_for(self._read(chunks, parts, limit), READ_S)
            except asyncio.TimeoutError:
                msg = f"the body did not arrive within {READ_S} s"
                raise Invalid(msg) from None
            yield b"".join(parts)
        finally:
            self._budget += sum(map(len, parts))

    async def _read(self, chunks: AsyncIterator[bytes], parts: list[bytes], limit: int) -> None:
        size = 0
        async for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            self._budget -= len(chunk)
            if size > limit:
                msg = f"a body holds at most {limit} bytes"
                raise TooLarge(msg)
            if self._budget < 0:
                msg = "too many bodies at once"
                raise Busy(msg, retry_after_s=RETRY_S)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A place among the batches in work. Raises `Busy` where too many wait already."""
        if self._inside >= self._most:
            msg = "too many batches wait to be stored"
            raise Busy(msg, retry_after_s=RETRY_S)
        self._inside += 1
        try:
            async with self._slots:
                yield
        finally:
            self._inside -= 1
