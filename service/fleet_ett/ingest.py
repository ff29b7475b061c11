"""The use case of `POST /v1/events`: a parsed body becomes checked events, and they are stored once.

One bad event never sinks its batch: it is refused by its position with a reason, and its neighbours are
stored. Who speaks is the envelope's node; an event cannot speak for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ett_collector.wire import INT_END, MAX_EVENTS, MAX_NAME, Event, Rejected, decode_event, expand
from fleet_ett.blocks import Block, alike, block_of
from fleet_ett.errors import Invalid, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_OFFSET_NS = 2**62
MAX_REASON = 500  # characters
_NO_COLUMNS: dict[str, list[object]] = {}


@dataclass(frozen=True, slots=True)
class Agent:
    """Who sent a batch: the node, this life of its agent, and the agent's version."""

    node: str
    incarnation: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """One event that was not taken. `position` counts from 0: the rows of `events`, then those of `batches`."""

    position: int
    seq: int | None
    reason: str
    event: object


@dataclass(frozen=True, slots=True)
class Batch:
    """One body, checked. `clock_offset_ns`: node minus service; `positions`: where each event stood.

    `blocks`: bulk batches that passed as a whole; their events are not among `events`.
    """

    agent: Agent
    clock_offset_ns: int
    events: list[Event] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def __len__(self) -> int:
        """How many events it holds, those that were refused included."""
        return len(self.events) + len(self.refused) + sum(map(len, self.blocks))

    def singly(self) -> Batch:
        """The same batch with the events of its blocks among the others, in the sender's order."""
        if not self.blocks:
            return self
        told = list(zip(self.positions, self.events, strict=True))
        for block in self.blocks:
            told += zip(block.positions, block.events(), strict=True)
        told.sort(key=lambda one: one[0])
        events, positions = [event for _, event in told], [position for position, _ in told]
        return Batch(self.agent, self.clock_offset_ns, events, positions, self.refused)


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a batch. `accepted` events are new; `conflicts` of them share another one's identity.

    `refused`: events that only the store could refuse (older than what it keeps).
    """

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    refused: tuple[Refused, ...] = ()


class Store(Protocol):
    """Stores a batch, once; durable when it returns."""

    def __call__(self, batch: Batch, *, now: int) -> Stored:
        """Raises `Unavailable` when the batch could not be stored: the sender keeps it."""
        ...


def take_in(
    batch: Batch, store: Store, *, now: int, narrowing: Callable[[Batch], Batch] | None = None
) -> dict[str, Any]:
    """Store one checked batch (`decode_batch`); the answer for its sender. `now` is the service's time in ns.

    `narrowing` gives the batch without what the sender may not say (see `speakers.py`). Raises what it and `store`
    raise.
    """
    if narrowing is not None:
        batch = narrowing(batch)
    stored = store(batch, now=now)
    refused = sorted((*batch.refused, *stored.refused), key=lambda one: one.position)
    return {
        "accepted": stored.accepted,
        "duplicates": stored.duplicates,
        "quarantined": [{"index": one.position, "seq": one.seq, "reason": one.reason} for one in refused],
        "server_time": now,
    }


def decode_batch(body: object, *, now: int | None) -> Batch:
    """Check a parsed body. Raises `Invalid` or `TooLarge` for what concerns the body as a whole."""
    envelope = _object("the body", body)
    rows, batches = _list("events", envelope), _list("batches", envelope)
    if len(rows) + sum(map(_size, batches)) > MAX_EVENTS:
        msg = f"a batch holds at most {MAX_EVENTS} events"
        raise TooLarge(msg)
    batch = Batch(_agent(envelope.get("agent")), _offset(envelope.get("clock_offset_ns")))
    checks = partial(
        block_of,
        node=batch.agent.node,
        incarnation=batch.agent.incarnation,
        clock_offset_ns=batch.clock_offset_ns,
        now=now,
    )
    done: set[int] = set()
    for bulk, places in alike(rows):
        block = checks(bulk, positions=places)
        if block is not None:
            batch.blocks.append(block)
            done.update(places)
    _check_singly(batch, ((at, row) for at, row in enumerate(rows) if at not in done), now)
    position = len(rows)
    for one in batches:
        size = _size(one)
        block = checks(one, positions=range(position, position + size))
        if block is None:
            position += _check_singly(batch, enumerate(_rows(one), position), now)
        else:
            batch.blocks.append(block)
            position += size
    return batch


def _check_singly(batch: Batch, raws: Iterable[tuple[int, object]], now: int | None) -> int:
    """Check events one by one, each with its position; returns how many there were."""
    count = 0
    for position, raw in raws:
        count += 1
        try:
            batch.events.append(_event(raw, batch, now))
            batch.positions.append(position)
        except Rejected as reason:
            batch.refused.append(Refused(position, _seq(raw), _told(reason), _shown(raw)))
    return count


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A bulk batch whose rows cannot be told apart."""

    batch: object
    reason: str


def _rows(batch: object) -> Iterator[object]:
    try:
        yield from expand(batch)
    except Rejected as reason:
        yield _Unreadable(batch, str(reason))


def _event(raw: object, batch: Batch, now: int | None) -> Event:
    if isinstance(raw, _Unreadable):
        raise Rejected(raw.reason)
    agent = batch.agent
    if type(raw) is dict:
        _check_names(raw)
        if raw.get("node", agent.node) != agent.node:
            msg = "node is not the one that sends: an agent speaks for its own node"
            raise Rejected(msg)
    return decode_event(
        raw,
        node=agent.node,
        incarnation=agent.incarnation,
        clock_offset_ns=batch.clock_offset_ns,
        now=now,
    )


def _check_names(event: dict[Any, Any]) -> None:
    """Names of fields are text: msgpack would allow any value. Not by recursion: a body may be nested deeply."""
    inside: list[Any] = [event]
    while inside:
        value = inside.pop()
        if type(value) is dict:
            for name in value:
                if type(name) is not str:
                    msg = f"the names of fields must be strings, not {type(name).__name__}"
                    raise Rejected(msg)
            value = value.values()
        inside += [one for one in value if type(one) is dict or type(one) is list]


def _told(reason: Rejected) -> str:
    """The reason, in characters that an answer and the database can hold: it may cite the sender's own."""
    return str(reason)[:MAX_REASON].replace("\0", "\ufffd").encode(errors="replace").decode()


def _shown(raw: object) -> object:
    return raw.batch if isinstance(raw, _Unreadable) else raw


def _seq(raw: object) -> int | None:
    seq = raw.get("seq") if isinstance(raw, dict) else None
    return seq if type(seq) is int and 0 <= seq < INT_END else None


def _size(batch: object) -> int:
    """How many events a bulk batch holds, before anything is made of it."""
    columns = batch.get("columns") if isinstance(batch, dict) else None
    columns = columns if isinstance(columns, dict) else _NO_COLUMNS
    return max((len(column) for column in columns.values() if isinstance(column, list)), default=1)


def _agent(said: object) -> Agent:
    agent = _object("agent", said)
    version = agent.get("version")
    return Agent(
        _identity("agent.node", agent.get("node")),
        _identity("agent.incarnation", agent.get("incarnation")),
        None if version is None else _identity("agent.version", version),
    )


def _identity(name: str, value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= MAX_NAME:
        msg = f"{name} must be a string of 1 to {MAX_NAME} characters"
        raise Invalid(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"{name} holds a lone surrogate"
        raise Invalid(msg) from None
    if "\0" in value:
        msg = f"{name} holds a NUL character"
        raise Invalid(msg)
    return value


def _offset(value: object) -> int:
    if value is None:
        return 0
    if type(value) is not int or abs(value) > MAX_OFFSET_NS:
        msg = "clock_offset_ns must be an integer number of nanoseconds"
        raise Invalid(msg)
    return value


def _object(name: str, value: object) -> dict[str, Any]:
    if type(value) is not dict:
        msg = f"{name} must be an object"
        raise Invalid(msg)
    return value


def _list(name: str, envelope: dict[str, Any]) -> list[object]:
    value = envelope.get(name)
    if value is None:
        return []
    if type(value) is not list:
        msg = f"{name} must be a list"
        raise Invalid(msg)
    return value
