"""Reading spools: whole records from where one left off, torn ones skipped, segments in order."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ett_collector.frames import unframe
from ett_collector.spool import segment_name

CHUNK_BYTES = 256 * 1024
_NAME = re.compile(r"^([a-z]+-\d+-[0-9a-f]{32})\.(\d{6,})\.spool$")


class Position(NamedTuple):
    """Up to where a spool has been read: segment number and byte offset in it."""

    segment: int = 0
    offset: int = 0


class Read(NamedTuple):
    """What a read gave. `torn` counts records cut short or damaged; `more` asks for another read."""

    records: list[dict[str, Any]]
    position: Position
    torn: int
    more: bool


def list_spools(folder: str) -> dict[str, list[int]]:
    """The spools of a folder with the numbers of their segments in order; empty where there is no folder."""
    found: dict[str, list[int]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        match = _NAME.match(name)
        if match is not None:
            found.setdefault(match[1], []).append(int(match[2]))
    for numbers in found.values():
        numbers.sort()
    return found


def read_spool(folder: str, name: str, numbers: list[int], position: Position) -> Read:
    """At most `CHUNK_BYTES` of records after `position`.

    `numbers` must have been listed before: a segment that has a later one beside it is complete.
    """
    left = [number for number in numbers if number >= position.segment]
    if not left:
        return Read([], position, 0, more=False)
    segment = left[0]
    offset = position.offset if segment == position.segment else 0
    last = len(left) == 1
    try:
        with open(os.path.join(folder, segment_name(name, segment)), "rb") as file:
            file.seek(offset)
            data = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        data = b""  # the recorder dropped it as its oldest, or it is about to be seen no more
    whole = data[: data.rfind(b"\n") + 1]
    if not whole and len(data) == CHUNK_BYTES:
        return Read([], Position(segment, offset + len(data)), 1, more=True)
    records, torn = [], 0
    for line in whole.splitlines():
        record = unframe(line)
        if record is not None:
            records.append(record)
        elif line:
            torn += 1
    if len(data) == CHUNK_BYTES or last:
        return Read(records, Position(segment, offset + len(whole)), torn, more=len(data) == CHUNK_BYTES)
    torn += len(whole) < len(data)
    return Read(records, Position(left[1], 0), torn, more=True)
