"""A batch that the database refuses for what is in it is halved until the events are found that it is about.

They are refused with the reason, as the decoder's refusals are; their neighbours are stored. Otherwise one such event
would have its agent send the same batch for ever, and keep everything behind it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ett_collector.wire import to_wire
from fleet_ett.errors import Unstorable
from fleet_ett.ingest import Batch, Refused, Stored

if TYPE_CHECKING:
    from fleet_ett.ingest import Store

log = logging.getLogger(__name__)
MOST = 100  # of one batch; more is no accident of an event but a fault of ours, and the sender shall keep its batch


class Sieve:
    """`fleet_ett.ingest.Store` over another one that raises `Unstorable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, batch: Batch, *, now: int) -> Stored:
        """Store a batch; see `Store`. Raises `Unstorable` where nearly nothing of it can be stored."""
        try:
            return self._store(batch, now=now)
        except Unstorable:
            if not (batch.events or batch.blocks):
                raise
        bad: list[Refused] = []
        stored = self._sift(_part(batch.singly(), slice(None)), now, bad)
        for one in bad:
            log.warning("an event of node %s was refused: %s", batch.agent.node, one.reason)
        self._store(Batch(batch.agent, batch.clock_offset_ns, refused=[*batch.refused, *bad]), now=now)
        return Stored(
            sum(one.accepted for one in stored),
            sum(one.duplicates for one in stored),
            sum(one.conflicts for one in stored),
            (*bad, *(refused for one in stored for refused in one.refused)),
        )

    def _sift(self, batch: Batch, now: int, bad: list[Refused]) -> list[Stored]:
        """Store the events; those that cannot be are added to `bad`."""
        try:
            return [self._store(batch, now=now)]
        except Unstorable as error:
            if len(batch.events) == 1:
                bad.append(
                    Refused(batch.positions[0], batch.events[0].seq, error.message, to_wire(batch.events[0]))
                )
                if len(bad) > MOST:
                    raise
                return []
        half = len(batch.events) // 2
        return [
            *self._sift(_part(batch, slice(half)), now, bad),
            *self._sift(_part(batch, slice(half, None)), now, bad),
        ]


def _part(batch: Batch, places: slice) -> Batch:
    """Some of the events, without what was refused."""
    return Batch(batch.agent, batch.clock_offset_ns, batch.events[places], batch.positions[places])
