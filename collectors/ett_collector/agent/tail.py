"""Reading spools: whole records from where one left off, in the order in which their slots were taken.

A slot that is taken and not yet written holds everything behind it back, for a moment: its writer may be in the
middle of it. Once that cannot be (`patient=False`: the process is dead, or has had its time) it is passed over.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ett_collector.frames import unframe
from ett_collector.slots import COMMIT, MAGIC, PIECE, SLOT, VERSION, WORDS, piece
from ett_collector.spool import segment_name

FIRST_BYTES = 16 * 1024  # what is read where little is expected
CHUNK_BYTES = 256 * 1024
_NAME = re.compile(r"^([a-z]+-\d+-[0-9a-f]{32})\.(\d{6,})\.spool$")

Raw = tuple[int, ...] | dict[str, Any]  # the words of a slot, or a note


class Position(NamedTuple):
    """Up to where a spool has been read: segment number and byte offset in it."""

    segment: int = 0
    offset: int = 0


class Read(NamedTuple):
    """What a read gave.

    `torn` counts records cut short or damaged. `more` asks for another read at once. `held`: a slot without its
    record holds others back. `gap`: segments before these records are gone.
    """

    records: list[Raw]
    position: Position
    torn: int = 0
    more: bool = False
    held: bool = False
    gap: bool = False


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


def version_of(folder: str, name: str, number: int) -> int | None:
    """The version in which a segment is written (1: lines of JSON, or anything else); None: nothing is yet."""
    try:
        with open(os.path.join(folder, segment_name(name, number)), "rb", buffering=0) as file:
            header = file.read(SLOT)
    except OSError:
        return None
    if not header.rstrip(b"\0") or len(header) < SLOT:
        return 1 if header.rstrip(b"\0") else None
    words = WORDS.unpack(header)
    if words[0] != MAGIC:
        return 1
    return words[1] if words[-1] == COMMIT else None


def read_spool(
    folder: str, name: str, numbers: list[int], position: Position, *, patient: bool = True
) -> Read:
    """At most `CHUNK_BYTES` of records after `position`."""
    left = [number for number in numbers if number >= position.segment]
    if not left:
        return Read([], position)
    segment = left[0]
    gap = 0 < position.segment < segment
    offset = position.offset if segment == position.segment else SLOT
    offset = max(offset, SLOT)
    try:
        with open(os.path.join(folder, segment_name(name, segment)), "rb", buffering=0) as file:
            closed, slots = _header(file.read(SLOT))
            whole = max(slots * SLOT, CHUNK_BYTES)
            final = closed or not patient  # there will be no more: empty slots are passed over to look behind
            for most in (CHUNK_BYTES, whole) if final else (FIRST_BYTES, CHUNK_BYTES, whole):
                data, is_rest = _written(file.fileno(), offset, most, final=final)
                is_all = closed and is_rest and offset + len(data) >= slots * SLOT
                records, used, torn, held = _records(data, patient=patient, is_rest=is_rest, is_all=is_all)
                if used or is_rest:
                    break  # else the pieces of a note lie far apart: a thread was put aside in the middle of it
    except FileNotFoundError:  # dropped as the oldest, or about to be seen no more
        closed, slots, is_rest, records, used, torn, held = True, 0, True, [], 0, 0, False
    offset += used
    if used and not is_rest and not held:
        return Read(records, Position(segment, offset), torn, more=True, gap=gap)
    # A closed segment has no free slots: where it seems to have some, somebody is writing into them.
    held = held or (patient and closed and offset < slots * SLOT)
    if not held and (closed or (len(left) > 1 and not patient)):
        return Read(records, Position(segment + 1, SLOT), torn, more=len(left) > 1, gap=gap)
    return Read(records, Position(segment, offset), torn, held=held, gap=gap)


def _header(slot: bytes) -> tuple[bool, int]:
    """(whether the writer has gone on to the next segment, number of slots)."""
    if len(slot) < SLOT:
        return False, 0
    magic, version, slots, closed, *_, commit = WORDS.unpack(slot)
    if (magic, version, commit) != (MAGIC, VERSION, COMMIT):
        return False, 0
    return bool(closed), slots


def _written(fd: int, offset: int, most: int, *, final: bool) -> tuple[bytes, bool]:
    """(slots from an offset on, up to the last one with anything in it; whether there are no others behind)."""
    data = os.pread(fd, most, offset)
    whole = -(-len(data.rstrip(b"\0")) // SLOT) * SLOT
    # Once more: on machines with weak memory order a slot's last word may have been seen before its others.
    return os.pread(fd, whole, offset), len(data) < most or (not final and whole < most)


def _records(data: bytes, *, patient: bool, is_rest: bool, is_all: bool) -> tuple[list[Raw], int, int, bool]:
    """(records, bytes used, torn, whether a slot without its record is next).

    `is_rest`: nothing is behind `data` yet; `is_all`: and there is no room for more.
    """
    records: list[Raw] = []
    torn = 0
    rows = list(WORDS.iter_unpack(data[: len(data) // SLOT * SLOT]))
    for index, row in enumerate(rows):
        if row[-1] != COMMIT:
            if patient:
                return records, index * SLOT, torn, True
            torn += any(row)
        elif row[0] != PIECE:
            records.append(row[:-1])
        else:
            at = index * SLOT
            note, which, total, _ = piece(data[at : at + SLOT])
            if which:
                continue  # was read with its first piece
            payload = _gather(data, rows, index, note, total)
            if payload is not None:
                record = unframe(payload)
                torn += record is None
                records += [] if record is None else [record]
            elif is_all and all(later[-1] == COMMIT for later in rows[index:]):
                continue  # its file ended in the middle: the whole is in the next one
            elif not is_rest:
                return records, at, torn, False  # the rest was not read yet
            elif patient:
                return records, at, torn, True
            else:
                torn += 1  # its writer was killed in the middle
    return records, len(rows) * SLOT, torn, False


def _gather(data: bytes, rows: list[tuple[int, ...]], first: int, note: int, total: int) -> bytes | None:
    """The pieces of a note put together, None where some are missing."""
    parts: list[bytes] = []
    for index in range(first, len(rows)):
        if rows[index][0] == PIECE and rows[index][-1] == COMMIT:
            of, which, _, part = piece(data[index * SLOT : (index + 1) * SLOT])
            if of == note and which == len(parts):
                parts.append(part)
                if len(parts) == total:
                    return b"".join(parts).rstrip(b"\0")
    return None
