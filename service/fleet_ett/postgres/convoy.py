"""Callers that arrive at once travel together: many small transactions become one, and nobody waits for company.

Whoever finds a free place goes at once, alone. Who comes while all places are taken waits; the next that gets a place
takes along those that wait by then. Each caller hears what became of its own item.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from fleet_ett.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 20  # items that travel together
HEAVIEST = 20_000  # and their weight, but for one that is heavier alone
PLACES = 2  # one group is packed while the other one is written


@dataclass(eq=False, slots=True)
class _Ticket(Generic[Item, Result]):
    """One caller. `called` is released when its outcome is there, or when it is to lead the next group."""

    item: Item
    weight: int
    outcome: Result | Exception | None = None
    called: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Convoy(Generic[Item, Result]):
    """Groups of items handed to `run`, which gives a result or an error for each. Safe for many threads.

    `weigh` tells an item's weight.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        weigh: Callable[[Item], int],
        *,
        places: int = PLACES,
    ) -> None:
        self._run = run
        self._weigh = weigh
        self._free = places
        self._waiting: deque[_Ticket[Item, Result]] = deque()
        self._lock = threading.Lock()

    def __call__(self, item: Item) -> Result:
        """The result for the item. Raises the error for it, or `Unavailable` where the whole group failed."""
        ticket = _Ticket[Item, Result](item, self._weigh(item))
        with self._lock:
            leads = self._free > 0
            if leads:
                self._free -= 1
            else:
                self._waiting.append(ticket)
        if not leads:
            ticket.called.acquire()
        if ticket.outcome is None:
            self._lead(ticket)
        outcome = ticket.outcome
        assert outcome is not None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _lead(self, leader: _Ticket[Item, Result]) -> None:
        with self._lock:
            group = [leader, *self._company(leader.weight)]
        try:
            outcomes = self._run([one.item for one in group])
            for one, outcome in zip(group, outcomes, strict=True):
                one.outcome = outcome
        finally:
            for one in group[1:]:
                if one.outcome is None:  # `run` raised: that is for the leader to tell
                    one.outcome = Unavailable("the batch could not be stored: another one stopped it")
                one.called.release()
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().called.release()
                else:
                    self._free += 1

    def _company(self, weight: int) -> list[_Ticket[Item, Result]]:
        out: list[_Ticket[Item, Result]] = []
        while self._waiting and len(out) + 1 < MOST and weight + self._waiting[0].weight <= HEAVIEST:
            ticket = self._waiting.popleft()
            weight += ticket.weight
            out.append(ticket)
        return out
