"""The wire, version 1: the one `Event` type that collectors send and the service books.

Everything that crosses the network is checked here, field by field, from one table of fields
(`FIELDS`), so that the agent's dead-letter file, the service's quarantine and the offline reader
refuse the same events with the same words. Standard library only.

Units: stamps are integer nanoseconds since the epoch in UTC, durations integer nanoseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WIRE_VERSION = 1
MAX_EVENTS = 20_000  # events in one batch
MAX_BODY = 16 * 1024 * 1024  # bytes of one batch, unpacked
MAX_NAME = 200  # characters of job, attempt, node, phase, work_key, labels
MAX_TEXT = 64 * 1024  # characters of error text
MAX_ATTRS = 64  # keys of attrs and labels
MAX_ATTRS_SIZE = 16 * 1024  # bytes of attrs as JSON
MAX_RANK = 100_000
MAX_LIST = 100_000  # nodes, heartbeat jobs, ranks
YEAR_2000_NS = 946_684_800_000_000_000
DAY_NS = 86_400_000_000_000
INT_END = 2**63

OUTCOMES = ("completed", "failed", "cancelled", "preempted", "resized", "unknown")
FAULT_KINDS = (
    "xid",
    "ecc",
    "oom",
    "nccl",
    "link",
    "thermal",
    "filesystem",
    "exception",
    "preemption",
    "maintenance",
    "controller",
    "other",
)


class Rejected(ValueError):
    """An event or batch that the wire refuses; `str()` is the reason shown in the quarantine."""


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


def _integer(name: str, value: object, low: int = 0, end: int = INT_END) -> int:
    if type(value) is not int:
        msg = f"{name} must be an integer, not {_kind(value)}"
        raise Rejected(msg)
    if not low <= value < end:
        msg = f"{name} is out of range: {value}"
        raise Rejected(msg)
    return value


def _kind(value: object) -> str:
    names = {
        str: "a string",
        float: "a float",
        bool: "a boolean",
        int: "an integer",
        type(None): "null",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _string(name: str, value: object) -> str:
    if type(value) is not str:
        msg = f"{name} must be a string, not {_kind(value)}"
        raise Rejected(msg)
    return value


def _name(name: str, value: object, cut: list[str]) -> str:
    text = _string(name, value)
    if not text:
        msg = f"{name} must not be empty"
        raise Rejected(msg)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            msg = f"{name} holds a lone surrogate"
            raise Rejected(msg) from None
    if "\0" in text:
        msg = f"{name} holds a NUL character"
        raise Rejected(msg)
    if len(text) > MAX_NAME:
        cut.append(name)
        return text[:MAX_NAME]
    return text


def _free(text: str) -> str:
    """Free text made storable: NUL and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode(errors="surrogatepass").decode(errors="replace")


def _text(name: str, value: object, cut: list[str]) -> str:
    text = _string(name, value)
    if len(text) > MAX_TEXT:
        cut.append(name)
        text = text[:MAX_TEXT]
    return _free(text)


def _bool(name: str, value: object, _cut: list[str]) -> bool:
    if type(value) is not bool:
        msg = f"{name} must be true or false, not {_kind(value)}"
        raise Rejected(msg)
    return value


def _count(name: str, value: object, _cut: list[str]) -> int:
    return _integer(name, value)


def _positive(name: str, value: object, _cut: list[str]) -> int:
    return _integer(name, value, 1, 2**31)


def _signed(name: str, value: object, _cut: list[str]) -> int:
    return _integer(name, value, -(2**31), 2**31)


def _rank(name: str, value: object, _cut: list[str]) -> int:
    return _integer(name, value, 0, MAX_RANK)


def _code(name: str, value: object, cut: list[str]) -> int | str:
    return _name(name, value, cut) if type(value) is str else _integer(name, value, -(2**31), 2**31)


def _outcome(name: str, value: object, _cut: list[str]) -> str:
    if value not in OUTCOMES:
        msg = f"{name} must be one of {', '.join(OUTCOMES)}"
        raise Rejected(msg)
    return str(value)


def _fault_kind(name: str, value: object, _cut: list[str]) -> str:
    text = _string(name, value)
    return text if text in FAULT_KINDS else "other"


def _load_or_save(name: str, value: object, _cut: list[str]) -> str:
    if value not in ("save", "load"):
        msg = f"{name} must be save or load"
        raise Rejected(msg)
    return str(value)


def _mode(name: str, value: object, _cut: list[str]) -> str:
    if value not in ("sync", "async"):
        msg = f"{name} must be sync or async"
        raise Rejected(msg)
    return str(value)


def _items(name: str, value: object) -> dict[str, object]:
    if type(value) is not dict:
        msg = f"{name} must be an object, not {_kind(value)}"
        raise Rejected(msg)
    return value


def _labels(name: str, value: object, cut: list[str]) -> dict[str, str]:
    found = sorted(_items(name, value).items())
    if len(found) > MAX_ATTRS:
        cut.append(name)
    return {_free(k)[:MAX_NAME]: _free(_string(f"{name}.{k}", v))[:MAX_NAME] for k, v in found[:MAX_ATTRS]}


def _by_node(name: str, value: object, cut: list[str]) -> dict[str, int]:
    found = _items(name, value)
    if not 0 < len(found) <= MAX_LIST:
        msg = f"{name} must name 1 to {MAX_LIST} nodes"
        raise Rejected(msg)
    return {_name(name, node, cut): _integer(f"{name}.{node}", n, 1, 2**31) for node, n in found.items()}


def _list(name: str, value: object) -> list[object]:
    if type(value) is not list or len(value) > MAX_LIST:
        msg = f"{name} must be a list of at most {MAX_LIST}"
        raise Rejected(msg)
    return value


def _names(name: str, value: object, cut: list[str]) -> list[str]:
    return [_name(name, one, cut) for one in _list(name, value)]


def _beats(name: str, value: object, cut: list[str]) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for one in _list(name, value):
        entry = _items(name, one)
        ranks = [_rank(f"{name}.ranks", r, cut) for r in _list(f"{name}.ranks", entry.get("ranks", []))]
        job = _name(f"{name}.job", entry.get("job"), cut)
        out.append(
            {
                "job": job,
                "attempt": _name(f"{name}.attempt", entry.get("attempt"), cut),
                "ranks": ranks,
            }
        )
    return out


def _clean(value: object, depth: int = 0) -> object:
    """Any JSON value made storable; what JSON cannot carry (NaN, infinity, too deep) becomes null."""
    if type(value) is str:
        return _free(value)
    if type(value) is float:
        return value if value - value == 0 else None
    if type(value) is int:
        return value if -INT_END <= value < INT_END else None
    if type(value) is list and depth < 4:
        return [_clean(v, depth + 1) for v in value]
    if type(value) is dict and depth < 4:
        return {_free(str(k)): _clean(v, depth + 1) for k, v in value.items()}
    return value if type(value) is bool else None


def _attrs(name: str, value: object, cut: list[str]) -> dict[str, object]:
    found = _items(name, value)
    kept: dict[str, object] = {}
    size = 2
    for key in sorted(found):
        one = _clean(found[key])
        size += len(key.encode(errors="replace")) + len(json.dumps(one)) + 6
        if len(kept) == MAX_ATTRS or size > MAX_ATTRS_SIZE:
            cut.append(name)
            break
        kept[_free(key)[:MAX_NAME]] = one
    return kept


_Check = "Callable[[str, object, list[str]], object]"
_PHASE: dict[str, Callable[[str, object, list[str]], object]] = {
    "phase": _name,
    "work_key": _name,
    "overlapped": _bool,
    "aborted": _bool,
    "step": _count,
    "span": _name,
    "attrs": _attrs,
}
# type -> (required, optional fields of the body with their check). Identity and stamps are checked apart.
FIELDS: dict[str, tuple[tuple[str, ...], dict[str, Callable[[str, object, list[str]], object]]]] = {
    "job": (
        ("job",),
        {
            "name": _name,
            "cluster": _name,
            "team": _name,
            "model": _name,
            "framework": _name,
            "labels": _labels,
        },
    ),
    "attempt_start": (
        ("job", "attempt", "ts"),
        {
            "gpus": _positive,
            "gpus_by_node": _by_node,
            "nodes": _names,
            "world_size": _positive,
            "released_between": _bool,
            "labels": _labels,
        },
    ),
    "attempt_end": (
        ("job", "attempt", "ts", "outcome"),
        {
            "outcome": _outcome,
            "exit_code": _signed,
            "signal": _count,
            "scheduler_state": _name,
            "error": _text,
            "failed_rank": _rank,
            "failed_node": _name,
        },
    ),
    "phase": (("job", "attempt", "rank", "phase", "start", "end"), _PHASE),
    "phase_open": (("job", "attempt", "rank", "phase", "start", "span"), _PHASE),
    "steps": (
        ("job", "attempt", "rank", "first", "last", "start", "end"),
        {
            "first": _count,
            "last": _count,
            "cursor_start": _count,
            "cursor_end": _count,
            "unit": _name,
            "per_optimizer_step": _positive,
            "data_wait": _count,
            "slowest": _count,
        },
    ),
    "checkpoint": (
        ("job", "attempt", "step", "ts", "kind"),
        {
            "step": _count,
            "kind": _load_or_save,
            "cursor": _count,
            "mode": _mode,
            "bytes": _count,
        },
    ),
    "heartbeat": (("ts",), {"jobs": _beats}),
    "fault": (
        ("ts", "kind"),
        {"kind": _fault_kind, "code": _code, "gpu": _count, "text": _text},
    ),
}
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
        msg = f"an event must be an object, not {_kind(raw)}"
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
        _name("node", node, cut),
        _name("incarnation", raw.get("incarnation", incarnation), cut),
        _integer("seq", raw.get("seq")),
        _integer("clock_offset_ns", clock_offset_ns, -(2**62), 2**62),
        _optional(_name, "job", raw, cut),
        _optional(_name, "attempt", raw, cut),
        _optional(_rank, "rank", raw, cut),
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
        cut.extend(_free(one) for one in marked[:MAX_ATTRS])
    for name, value in _attrs("unknown fields", unknown, cut).items():
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
    stamp = _integer(name, value)
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
    for name, value in (
        ("job", event.job),
        ("attempt", event.attempt),
        ("rank", event.rank),
    ):
        if value is not None:
            out[name] = value
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
