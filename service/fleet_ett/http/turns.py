"""Whose turn it is: a bounded line in which who wants little does not wait for who wants much.

After an outage every agent brings an hour of spool, while others report what happens now, in small bodies. A body's
place in the line is that of one that came later, the larger the later: so it is overtaken, but not for ever. Nobody
stands in line longer than senders wait for an answer: what they send again meanwhile would be done twice.
"""

from __future__ import annotations

import heapq
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import anyio

from fleet_ett.errors import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_S = 10.0  # in line; an agent gives a request up after 30 s
BYTES_PER_S = 1024  # a body of so many bytes stands where one stands that came a second later
LONGEST_S = 5.0
RETRY_S = 2


@dataclass(order=True, slots=True)
class _Waiting:
    due: float
    number: int
    called: anyio.Event = field(default_factory=anyio.Event, compare=False)
    has_turn: bool = field(default=False, compare=False)


class Turns:
    """`at_once` places and a line of at most `waiting`. Lives in one event loop."""

    def __init__(self, *, at_once: int, waiting: int, patience_s: float = PATIENCE_S) -> None:
        self._free = at_once
        self._most = waiting
        self._patience_s = patience_s
        self._line: list[_Waiting] = []
        self._number = count()

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """A place for the time of the block; `size` (bytes) is what is to be done in it.

        Raises `Busy` where the line is full of those that stand before it, or moves too slowly.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(size)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, size: int) -> None:
        own = _Waiting(anyio.current_time() + min(size / BYTES_PER_S, LONGEST_S), next(self._number))
        if len(self._line) >= self._most:
            self._send_away_the_last(own)
        heapq.heappush(self._line, own)
        try:
            with anyio.move_on_after(self._patience_s):
                await own.called.wait()
        except BaseException:
            if own.has_turn:
                self._pass_on()
            raise
        finally:
            self._leave(own)
        if not own.has_turn:
            raise _busy()

    def _send_away_the_last(self, newcomer: _Waiting) -> None:
        last = max(self._line, default=newcomer)
        if last <= newcomer:
            raise _busy()
        self._leave(last)
        last.called.set()

    def _leave(self, one: _Waiting) -> None:
        if one in self._line:
            self._line.remove(one)
            heapq.heapify(self._line)

    def _pass_on(self) -> None:
        if self._line:
            following = heapq.heappop(self._line)
            following.has_turn = True
            following.called.set()
        else:
            self._free += 1


def _busy() -> Busy:
    return Busy("too many batches wait to be stored", retry_after_s=RETRY_S)
