"""Garbage in cycles is collected between answers, not in the middle of one.

A question to the database is a tree of thousands of objects that point at each other. By itself Python looks for such
garbage while the next question is put together: what is alive then grows old, and old objects are looked at all at
once, which takes a tenth of a second.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

YOUNG = 5_000  # new objects after which an answer is followed by a collection: one or two questions
UNASKED = 200_000  # new objects after which Python collects by itself: nothing was answered for long
OLDER = (20, 1_000)  # every so many collections the objects that outlived one, or several, are looked at, too


class Tidied:
    """An application, and a collection after answers that left much behind."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._collections = 0
        gc.collect()
        gc.freeze()  # what is there by now stays
        gc.set_threshold(UNASKED, 10, 10)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, then tidy up."""
        try:
            await self._app(scope, receive, send)
        finally:
            if gc.get_count()[0] > YOUNG:
                self._collections += 1
                gc.collect(sum(self._collections % every == 0 for every in OLDER))
