"""One record a line, with a checksum: what the agent's outbox holds, and a note in a spool.

A line is `crc32 (8 hex digits) + space + compact JSON object + newline`. JSON escapes line breaks, so a
newline always ends a record, and a record that was torn by a kill or a full disk is told from a whole one.
"""

from __future__ import annotations

import json
from binascii import crc32
from typing import Any


def encode(record: dict[str, Any]) -> bytes:
    """A record as a JSON object. What JSON does not know becomes an integer if it is one, else text."""
    return json.dumps(record, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> int | str:
    try:
        return int(value.__index__())  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - any object may stand here, with any methods
        return str(value)[:200]


def frame(payload: bytes) -> bytes:
    """The line of a record; `payload` is a JSON object without raw line breaks."""
    return b"%08x %s\n" % (crc32(payload), payload)


def pack(record: dict[str, Any]) -> bytes:
    """The line of a record given as an object of JSON values."""
    return frame(encode(record))


def unframe(line: bytes) -> dict[str, Any] | None:
    """The record of a line (with or without its newline); None where it is torn or not a record."""
    payload = line[9:].rstrip(b"\n")
    try:
        if line[8:9] != b" " or int(line[:8], 16) != crc32(payload):
            return None
        record = json.loads(payload)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
