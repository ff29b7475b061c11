"""A question whose answer a probe must have soon, however long it takes: asked once at a time, in a thread of its own.

The threads that serve requests may all hang on the same thing that the probe shall tell of.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from fleet_ett.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PATIENCE_S = 2.0


class Probe(Generic[T]):
    """`await probe()`: what `ask` says; who comes meanwhile hears the same. Lives in one event loop."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[T] | None = None
        self._since = 0.0

    async def __call__(self) -> T:
        """Raises what `ask` raises, and `Unavailable` where no answer comes within `PATIENCE_S`."""
        asked = self._asked
        if asked is None or asked.done():
            self._since = monotonic()
            self._asked = asked = asyncio.ensure_future(asyncio.to_thread(self._ask))
            asked.add_done_callback(_look)
        done, _ = await asyncio.wait([asked], timeout=PATIENCE_S)
        if not done:
            msg = f"the database has not answered for {monotonic() - self._since:.0f} s"
            raise Unavailable(msg)
        return asked.result()


def _look(done: asyncio.Future[T]) -> None:
    """An answer that comes when nobody waits any more is no accident to be reported."""
    if not done.cancelled():
        done.exception()
