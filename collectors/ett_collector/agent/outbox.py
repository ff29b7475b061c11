"""The agent's durable outbox: events wait here from the spool until the service has taken them.

One record holds the events of a cycle, their sequence numbers and the state of what was read (positions, open
windows, attempts): a kill -9 leaves all of it or nothing, so an event is neither lost nor numbered twice.
Nothing is sent before it is durable here. The incarnation of an agent is written with its events, so that a
later one sends them again under the same identity. Safe from two threads (the reader and the shipper).
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ett_collector.agent.journal import Journal, Place

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_BYTES = 4 * 1024 * 1024
LIMIT_BYTES = 1024 * 1024 * 1024
State = dict[str, dict[str, Any]]


class Full(Exception):  # noqa: N818 - a state of the disk, not a fault of the program
    """The outbox holds as much as it may: reading goes on when the service has taken some of it."""


@dataclass
class Waiting:
    """The events of one commit (`at` wall ns) that wait. `offset` is node minus service (ns), None: not known yet."""

    place: Place
    first: int
    count: int
    offset: int | None
    at: int


@dataclass
class Outgoing:
    """Events to send: `(position, incarnation, event)`, all with one clock offset."""

    items: list[tuple[int, str, dict[str, Any]]]
    offset: int | None


class Outbox:
    """`state` is what the last commits said, by section and key. `damaged` counts events that could not be read."""

    def __init__(self, folder: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.incarnation = uuid.uuid4().hex
        self.state: State = {}
        self.damaged = 0
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._journal = Journal(folder)
        self._waiting: deque[Waiting] = deque()
        self._position = 0  # events ever committed
        self._acked = 0  # events ever taken by the service
        self._seq = 0
        for place, record in self._journal.records():
            self._replay(place, record)
        self._journal.begin(self._snapshot())
        self._drop()

    @property
    def backlog(self) -> int:
        """Events that the service has not taken yet."""
        return self._position - self._acked

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._journal.size

    @property
    def oldest(self) -> int | None:
        """When the oldest event that waits was committed (wall ns); None where none waits."""
        with self._lock:
            return self._waiting[0].at if self._waiting else None

    def commit(
        self, events: list[dict[str, Any]], changes: Mapping[str, Mapping[str, Any]], offset: int | None
    ) -> None:
        """Keep events and changes of the state (None deletes a key), durable when this returns.

        Numbers the events. Raises `Full` or `OSError`; then nothing of it happened.
        """
        with self._lock:
            if self._journal.size > self.limit_bytes and events:
                msg = f"the outbox holds {self._journal.size} bytes"
                raise Full(msg)
            if self._journal.size_of_newest() > FILE_BYTES:
                self._journal.begin(self._snapshot())
                self._drop()
            numbered = [{**event, "seq": self._seq + i} for i, event in enumerate(events)]
            record = {
                "k": "commit",
                "at": time.time_ns(),
                "incarnation": self.incarnation,
                "offset": offset,
                "events": numbered,
                "changes": copy.deepcopy(changes),  # what is kept must not change with the living objects
            }
            place = self._journal.append(record, durable=True)
            self._seq += len(events)
            self._apply(place, record)

    def seal(self, offset: int) -> None:
        """Give the clock offset to all events that wait without one; they keep it however often sent."""
        with self._lock:
            if any(one.offset is None for one in self._waiting):
                self._journal.append({"k": "seal", "offset": offset}, durable=False)
                self._sealed(offset)

    def unsent(self, limit: int) -> Outgoing | None:
        """The oldest events that wait, at most about `limit`; None where none do. They stay until `ack`."""
        with self._lock:
            chosen: list[Waiting] = []
            for one in self._waiting:
                if chosen and (sum(c.count for c in chosen) >= limit or one.offset != chosen[0].offset):
                    break
                chosen.append(one)
            acked = self._acked
        items: list[tuple[int, str, dict[str, Any]]] = []
        for one in chosen:
            record = self._journal.read(one.place) or {"events": [], "incarnation": ""}
            numbered = enumerate(record["events"], start=one.first)
            items += [(i, record["incarnation"], event) for i, event in numbered if i >= acked]
        if not chosen:
            return None
        if not items:  # a damaged record: nothing in it can be sent any more
            self.damaged += sum(one.count for one in chosen)
            self.ack(chosen[-1].first + chosen[-1].count)
            return self.unsent(limit)
        return Outgoing(items[:limit], chosen[0].offset)

    def ack(self, position: int) -> None:
        """The service has taken all events before a position."""
        with self._lock:
            self._take(position)
            self._journal.append({"k": "ack", "position": position}, durable=False)
            self._drop()

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._journal.close()

    def _replay(self, place: Place, record: dict[str, Any]) -> None:
        kind = record.get("k")
        if kind == "snapshot":
            self.state = record["state"]
            self._position, self._acked = record["position"], max(self._acked, record["acked"])
        elif kind == "commit":
            self._apply(place, record)
        elif kind == "seal":
            self._sealed(record["offset"])
        elif kind == "ack":
            self._take(record["position"])

    def _apply(self, place: Place, record: dict[str, Any]) -> None:
        count = len(record["events"])
        if count:
            at = record.get("at") or time.time_ns()  # older agents did not say
            self._waiting.append(Waiting(place, self._position, count, record["offset"], at))
            self._position += count
        for section, changes in record["changes"].items():
            kept = self.state.setdefault(section, {})
            for key, value in changes.items():
                if value is None:
                    kept.pop(key, None)
                else:
                    kept[key] = value

    def _sealed(self, offset: int) -> None:
        for one in self._waiting:
            if one.offset is None:
                one.offset = offset

    def _take(self, position: int) -> None:
        self._acked = max(self._acked, position)
        while self._waiting and self._waiting[0].first + self._waiting[0].count <= self._acked:
            self._waiting.popleft()

    def _snapshot(self) -> dict[str, Any]:
        return {"k": "snapshot", "state": self.state, "position": self._position, "acked": self._acked}

    def _drop(self) -> None:
        self._journal.drop_before(self._waiting[0].place.number if self._waiting else self._journal.number)
