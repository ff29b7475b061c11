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

ANSWERED_S = 20.0  # from the line to the answer; an agent gives a request up after 30 s
SHORTEST_S = 0.5  # in line, however long the work takes
BYTES_PER_S = 1024  # a body of so many bytes stands where one stands that came a second later
LONGEST_S = 5.0
RETRY_S = 2


@dataclass(eq=False, slots=True)
class _Waiting:
    called: anyio.Event = field(default_factory=anyio.Event)
    has_turn: bool = False


class Turns:
    """`at_once` places and a line of at most `waiting`. Lives in one event loop."""

    def __init__(self, *, at_once: int, waiting: int, answered_s: float = ANSWERED_S) -> None:
        self._free = at_once
        self._most = waiting
        self._answered_s = answered_s
        self._work_s = 0.0  # how long a turn takes, of late
        self._line: list[tuple[float, int, _Waiting]] = []  # a heap: whose turn is next, when it came
        self._number = count()

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """A place for the time of the block; `size` (bytes) is what is to be done in it.

        Raises `Busy` where the line is full of those that stand before it, or moves so slowly that the sender would not
        wait for the answer.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(size)
        began = anyio.current_time()
        try:
            yield
        finally:
            self._work_s += (anyio.current_time() - began - self._work_s) / 8
            self._pass_on()

    async def _wait(self, size: int) -> None:
        own = _Waiting()
        place = (anyio.current_time() + min(size / BYTES_PER_S, LONGEST_S), next(self._number), own)
        if len(self._line) >= self._most:
            self._send_away_the_last(place)
        heapq.heappush(self._line, place)
        try:
            with anyio.move_on_after(max(self._answered_s - self._work_s, SHORTEST_S)):
                await own.called.wait()
        except BaseException:
            if own.has_turn:
                self._pass_on()
            else:
                self._leave(place)
            raise
        if not own.has_turn:
            self._leave(place)
            raise _busy()

    def _send_away_the_last(self, newcomer: tuple[float, int, _Waiting]) -> None:
        last = max(self._line, default=newcomer)
        if last <= newcomer:
            raise _busy()
        self._leave(last)
        last[2].called.set()

    def _leave(self, place: tuple[float, int, _Waiting]) -> None:
        if place in self._line:
            self._line.remove(place)
            heapq.heapify(self._line)

    def _pass_on(self) -> None:
        if self._line:
            _, _, following = heapq.heappop(self._line)
            following.has_turn = True
            following.called.set()
        else:
            self._free += 1


def _busy() -> Busy:
    return Busy("too many batches wait to be stored", retry_after_s=RETRY_S)
