"""The fields of the wire: what each may hold, checked one by one, and the limits on everything.

`FIELDS` is the table: an event's type -> what it must have, and the check of each field of its body.
A check takes (name, value, cut) and returns the value to keep or raises `Rejected`; where it had to cut
something too long it adds the name to `cut`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_EVENTS = 20_000  # events in one batch
MAX_BODY = 16 * 1024 * 1024  # bytes of one batch, unpacked
MAX_NAME = 200  # characters of job, attempt, node, phase, work_key, labels
MAX_TEXT = 64 * 1024  # characters of error text
MAX_ATTRS = 64  # keys of attrs and labels
MAX_ATTRS_SIZE = 16 * 1024  # bytes of attrs as JSON
MAX_RANK = 100_000
MAX_GPUS = 2_000_000  # of one attempt; GPU-ns of an hour then still fit 64 bits
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


class Rejected(ValueError):  # noqa: N818 - a verdict on an event, not a fault of the program
    """An event or batch that the wire refuses; `str()` is the reason shown in the quarantine."""


def integer(name: str, value: object, low: int = 0, end: int = INT_END) -> int:
    """An integer (never a boolean or a float) of low <= value < end."""
    if type(value) is not int:
        msg = f"{name} must be an integer, not {kind_of(value)}"
        raise Rejected(msg)
    if not low <= value < end:
        msg = f"{name} is out of range: {value}"
        raise Rejected(msg)
    return value


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
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
        msg = f"{name} must be a string, not {kind_of(value)}"
        raise Rejected(msg)
    return value


def name_of(name: str, value: object, cut: list[str]) -> str:
    """A name of at most MAX_NAME characters; longer ones are cut and marked."""
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


def storable(text: str) -> str:
    """Free text made storable: NUL and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode(errors="surrogatepass").decode(errors="replace")


def _text(name: str, value: object, cut: list[str]) -> str:
    text = _string(name, value)
    if len(text) > MAX_TEXT:
        cut.append(name)
        text = text[:MAX_TEXT]
    return storable(text)


def _bool(name: str, value: object, _cut: list[str]) -> bool:
    if type(value) is not bool:
        msg = f"{name} must be true or false, not {kind_of(value)}"
        raise Rejected(msg)
    return value


def _count(name: str, value: object, _cut: list[str]) -> int:
    return integer(name, value)


def _positive(name: str, value: object, _cut: list[str]) -> int:
    return integer(name, value, 1, 2**31)


def _signed(name: str, value: object, _cut: list[str]) -> int:
    return integer(name, value, -(2**31), 2**31)


def rank_of(name: str, value: object, _cut: list[str]) -> int:
    """A global rank."""
    return integer(name, value, 0, MAX_RANK)


def _code(name: str, value: object, cut: list[str]) -> int | str:
    return name_of(name, value, cut) if type(value) is str else integer(name, value, -(2**31), 2**31)


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
        msg = f"{name} must be an object, not {kind_of(value)}"
        raise Rejected(msg)
    return value


def _labels(name: str, value: object, cut: list[str]) -> dict[str, str]:
    found = sorted(_items(name, value).items())
    if len(found) > MAX_ATTRS:
        cut.append(name)
    return {
        storable(k)[:MAX_NAME]: storable(_string(f"{name}.{k}", v))[:MAX_NAME] for k, v in found[:MAX_ATTRS]
    }


def _gpus(name: str, value: object, _cut: list[str]) -> int:
    return integer(name, value, 1, MAX_GPUS + 1)


def _by_node(name: str, value: object, cut: list[str]) -> dict[str, int]:
    found = _items(name, value)
    if not 0 < len(found) <= MAX_LIST:
        msg = f"{name} must name 1 to {MAX_LIST} nodes"
        raise Rejected(msg)
    return {
        name_of(name, node, cut): integer(f"{name}.{node}", n, 1, MAX_GPUS + 1) for node, n in found.items()
    }


def _list(name: str, value: object) -> list[object]:
    if type(value) is not list or len(value) > MAX_LIST:
        msg = f"{name} must be a list of at most {MAX_LIST}"
        raise Rejected(msg)
    return value


def _names(name: str, value: object, cut: list[str]) -> list[str]:
    return [name_of(name, one, cut) for one in _list(name, value)]


def _beats(name: str, value: object, cut: list[str]) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for one in _list(name, value):
        entry = _items(name, one)
        ranks = [rank_of(f"{name}.ranks", r, cut) for r in _list(f"{name}.ranks", entry.get("ranks", []))]
        job = name_of(f"{name}.job", entry.get("job"), cut)
        out.append(
            {
                "job": job,
                "attempt": name_of(f"{name}.attempt", entry.get("attempt"), cut),
                "ranks": ranks,
            }
        )
    return out


def _clean(value: object, depth: int = 0) -> object:
    """Any JSON value made storable; what JSON cannot carry (NaN, infinity, too deep) becomes null."""
    if type(value) is str:
        return storable(value)
    if type(value) is float:
        return value if value - value == 0 else None
    if type(value) is int:
        return value if -INT_END <= value < INT_END else None
    if type(value) is list and depth < 4:
        return [_clean(v, depth + 1) for v in value]
    if type(value) is dict and depth < 4:
        return {storable(str(k)): _clean(v, depth + 1) for k, v in value.items()}
    return value if type(value) is bool else None


def attrs_of(name: str, value: object, cut: list[str]) -> dict[str, object]:
    """Free attributes within MAX_ATTRS keys and MAX_ATTRS_SIZE bytes; the rest is cut and marked."""
    found = _items(name, value)
    kept: dict[str, object] = {}
    size = 2
    for key in sorted(found):
        one = _clean(found[key])
        size += len(key.encode(errors="replace")) + len(json.dumps(one)) + 6
        if len(kept) == MAX_ATTRS or size > MAX_ATTRS_SIZE:
            cut.append(name)
            break
        kept[storable(key)[:MAX_NAME]] = one
    return kept


_PHASE: dict[str, Callable[[str, object, list[str]], object]] = {
    "phase": name_of,
    "work_key": name_of,
    "overlapped": _bool,
    "aborted": _bool,
    "step": _count,
    "span": name_of,
    "attrs": attrs_of,
}
# type -> (required, optional fields of the body with their check). Identity and stamps are checked apart.
FIELDS: dict[str, tuple[tuple[str, ...], dict[str, Callable[[str, object, list[str]], object]]]] = {
    "job": (
        ("job",),
        {
            "name": name_of,
            "cluster": name_of,
            "team": name_of,
            "model": name_of,
            "framework": name_of,
            "labels": _labels,
        },
    ),
    "attempt_start": (
        ("job", "attempt", "ts"),
        {
            "gpus": _gpus,
            "gpus_by_node": _by_node,
            "nodes": _names,
            "world_size": _gpus,
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
            "scheduler_state": name_of,
            "error": _text,
            "failed_rank": rank_of,
            "failed_node": name_of,
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
            "unit": name_of,
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
