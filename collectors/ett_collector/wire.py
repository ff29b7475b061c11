"""The wire, version 1: the one `Event` type that collectors send and the service books.

Everything that crosses the network is checked here, field by field, from one table (`fields.py`), so
that the agent's dead-letter file, the service's quarantine and the offline reader refuse the same events
with the same words. Standard library only.

Units: stamps are integer nanoseconds since the epoch in UTC, durations integer nanoseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.coding import CODING, DICTIONARY, DICTIONARY_ID, HAS_DICTIONARY, HEADER_BYTES, deflate
from ett_collector.fields import (
    DAY_NS,
    FAULT_KINDS,
    FIELDS,
    INT_END,
    MAX_ATTRS,
    MAX_ATTRS_SIZE,
    MAX_BODY,
    MAX_EVENTS,
    MAX_GPUS,
    MAX_LIST,
    MAX_NAME,
    MAX_RANK,
    MAX_TEXT,
    OUTCOMES,
    YEAR_2000_NS,
    Rejected,
    attrs_of,
    integer,
    kind_of,
    name_of,
    rank_of,
    storable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WIRE_VERSION = 1
__all__ = [
    "CODING",
    "DAY_NS",
    "DICTIONARY",
    "DICTIONARY_ID",
    "FAULT_KINDS",
    "FIELDS",
    "HAS_DICTIONARY",
    "HEADER_BYTES",
    "INT_END",
    "MAX_ATTRS",
    "MAX_ATTRS_SIZE",
    "MAX_BODY",
    "MAX_EVENTS",
    "MAX_GPUS",
    "MAX_LIST",
    "MAX_NAME",
    "MAX_RANK",
    "MAX_TEXT",
    "OUTCOMES",
    "WIRE_VERSION",
    "YEAR_2000_NS",
    "Event",
    "Rejected",
    "canonical",
    "decode_event",
    "deflate",
    "expand",
    "to_wire",
]


class Event(NamedTuple):
    """One checked event.

    `start` is the event's own time (`ts` of a point event), `end` the end of a span or None; both
    are as the node's clock said it: `at(event)` subtracts `clock_offset_ns` (node minus service).
    `body` holds the other fields of the type under their wire names, and unknown fields as they
    came. `body["cut"]` lists the fields that were too long and were cut.
    """

    type: str
    node: str
    incarnation: str
    seq: int
    clock_offset_ns: int
    job: str | None
    attempt: str | None
    rank: int | None
    start: int | None
    end: int | None
    body: Mapping[str, Any]


_ENVELOPE = frozenset(
    {
        "type",
        "node",
        "incarnation",
        "seq",
        "clock_offset_ns",
        "job",
        "attempt",
        "rank",
        "ts",
        "start",
        "end",
    }
)


def decode_event(
    raw: object,
    *,
    node: str,
    incarnation: str,
    clock_offset_ns: int = 0,
    now: int | None = None,
) -> Event:
    """Check one event of the wire (a parsed JSON or msgpack object) and return it.

    `now` (ns) is the service's time, for stamps that lie more than a day ahead of it; None checks
    nothing ahead (offline). Raises `Rejected` with the reason; never anything else.
    """
    if type(raw) is not dict:
        msg = f"an event must be an object, not {kind_of(raw)}"
        raise Rejected(msg)
    kind = raw.get("type")
    if type(kind) is not str or kind not in FIELDS:
        msg = f"unknown type {kind!r:.60}"
        raise Rejected(msg)
    required, optional = FIELDS[kind]
    for name in required:
        if raw.get(name) is None:
            msg = f"{kind} needs {name}"
            raise Rejected(msg)
    cut: list[str] = []
    body: dict[str, Any] = {}
    unknown: dict[str, object] = {}
    for name, value in raw.items():
        if name in _ENVELOPE or value is None:
            continue
        check = optional.get(name)
        if check is None:
            unknown[name] = value
        else:
            body[name] = check(name, value, cut)
    if unknown:
        _set_aside(unknown, body, cut)
    point = "ts" in required
    start = raw.get("ts" if point else "start")
    end = None if point or kind in ("job", "phase_open") else raw.get("end")
    event = Event(
        kind,
        name_of("node", node, cut),
        name_of("incarnation", raw.get("incarnation", incarnation), cut),
        integer("seq", raw.get("seq")),
        integer("clock_offset_ns", clock_offset_ns, -(2**62), 2**62),
        _optional(name_of, "job", raw, cut),
        _optional(name_of, "attempt", raw, cut),
        _optional(rank_of, "rank", raw, cut),
        None if start is None else _stamp("ts" if point else "start", start, clock_offset_ns, now),
        None if end is None else _stamp("end", end, clock_offset_ns, now),
        body,
    )
    _consistent(event)
    if cut:
        body["cut"] = sorted(set(cut))
    return event


def _set_aside(unknown: dict[str, object], body: dict[str, Any], cut: list[str]) -> None:
    """Keep fields that this version does not know; `cut` is our own mark on an event cut before."""
    marked = unknown.pop("cut", None)
    if type(marked) is list and all(type(one) is str and len(one) <= MAX_NAME for one in marked):
        cut.extend(storable(one) for one in marked[:MAX_ATTRS])
    for name, value in attrs_of("unknown fields", unknown, cut).items():
        if value is not None:
            body.setdefault(name, value)


def _optional(
    check: Callable[[str, object, list[str]], Any],
    name: str,
    raw: dict[str, Any],
    cut: list[str],
) -> Any:
    value = raw.get(name)
    return None if value is None else check(name, value, cut)


def _stamp(name: str, value: object, offset: int, now: int | None) -> int:
    stamp = integer(name, value)
    if stamp - offset >= INT_END:
        msg = f"{name} is out of range once the clock offset is taken off: {stamp - offset}"
        raise Rejected(msg)
    if stamp - offset < YEAR_2000_NS:
        msg = f"{name} lies before the year 2000: stamps are nanoseconds since the epoch"
        raise Rejected(msg)
    if now is not None and stamp - offset > now + DAY_NS:
        msg = f"{name} lies more than a day ahead of the service's time"
        raise Rejected(msg)
    return stamp


def _consistent(event: Event) -> None:
    body = event.body
    if event.start is not None and event.end is not None and event.end < event.start:
        msg = "end lies before start"
        raise Rejected(msg)
    if event.type == "steps":
        if body["last"] < body["first"]:
            msg = "last lies before first"
            raise Rejected(msg)
        if body.get("cursor_end", INT_END) < body.get("cursor_start", 0):
            msg = "cursor_end lies before cursor_start"
            raise Rejected(msg)


def to_wire(event: Event) -> dict[str, Any]:
    """The event as the object that `decode_event` took (without node, incarnation and offset)."""
    out: dict[str, Any] = {"seq": event.seq, "type": event.type}
    known = (("job", event.job), ("attempt", event.attempt), ("rank", event.rank))
    out |= {name: value for name, value in known if value is not None}
    if event.start is not None:
        out["ts" if "ts" in FIELDS[event.type][0] else "start"] = event.start
    if event.end is not None:
        out["end"] = event.end
    out.update(event.body)
    return out


def canonical(event: Event) -> bytes:
    """The bytes that decide between two events of one identity: sorted compact JSON with the node.

    The clock offset is left out: the same event re-sent with a newer estimate is a duplicate.
    """
    fields = to_wire(event)
    fields["node"] = event.node
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def expand(batch: object) -> Iterator[dict[str, Any]]:
    """The rows of a bulk batch: constants once, `columns` for what varies. Raises `Rejected`."""
    if type(batch) is not dict or type(batch.get("columns")) is not dict or not batch["columns"]:
        msg = "a batch must be an object with columns"
        raise Rejected(msg)
    columns: dict[str, list[Any]] = batch["columns"]
    sizes = {len(column) if type(column) is list else -1 for column in columns.values()}
    if len(sizes) != 1 or -1 in sizes:
        msg = "the columns of a batch must be lists of one length"
        raise Rejected(msg)
    constants = {name: value for name, value in batch.items() if name != "columns"}
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield {**constants, **dict(zip(names, values, strict=True))}
