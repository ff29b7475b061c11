"""Reading spools that are being written, that were cut off, and that are of another version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.tail import CHUNK_BYTES, Position, Read, list_spools, read_spool, version_of
from ett_collector.frames import frame
from ett_collector.segment import Segment
from ett_collector.slots import COMMIT, PIECE, SLOT, STEP, pieces
from ett_collector.spool import segment_name

if TYPE_CHECKING:
    from pathlib import Path

NAME = "trainer-7-" + "0" * 32
NOTE = frame(b'{"t":"end","error":"' + b"x" * 100 + b'"}')


class File:
    """A segment that a test writes slot by slot."""

    def __init__(self, folder: Path, number: int = 1, size: int = 16 * 1024) -> None:
        self.segment = Segment(str(folder / segment_name(NAME, number)), size, mapped=True)
        self.free = size // SLOT - 1

    def step(self, *numbers: int) -> None:
        """Write a STEP slot for each number."""
        for n in numbers:
            self.words((STEP, 1, n, 0, 0, 0, 0))

    def skip(self) -> int:
        """Take a slot and leave it empty; where it lies."""
        self.free -= 1
        return self.segment.full[2]()

    def words(self, words: tuple[int, ...], at: int | None = None) -> None:
        """Write a slot."""
        pack, view, _ = self.segment.full
        pack(view, self.skip() if at is None else at, *words, COMMIT)


def read(folder: Path, position: Position | None = None, *, patient: bool = True) -> Read:
    """One read."""
    return read_spool(
        str(folder), NAME, list_spools(str(folder))[NAME], position or Position(), patient=patient
    )


def steps(found: Read) -> list[int]:
    """The numbers of the steps that were read."""
    return [raw[2] for raw in found.records if isinstance(raw, tuple)]


def test_slots_come_back_in_order_and_once(tmp_path: Path) -> None:
    """What is written after a read is in the next one."""
    file = File(tmp_path)
    file.step(1, 2)
    first = read(tmp_path)
    file.step(3)
    second = read(tmp_path, first.position)

    assert ([1, 2], [3], []) == (steps(first), steps(second), steps(read(tmp_path, second.position)))


def test_a_slot_that_is_being_written_holds_the_others_back(tmp_path: Path) -> None:
    """Its writer may be in the middle: order is kept. Where that cannot be any more it is passed over."""
    file = File(tmp_path)
    file.step(1)
    late = file.skip()
    file.step(3)

    first = read(tmp_path)
    assert ([1], True, [1, 3]) == (steps(first), first.held, steps(read(tmp_path, patient=False)))
    file.words((STEP, 1, 2, 0, 0, 0, 0), late)
    assert [2, 3] == steps(read(tmp_path, first.position))


def test_a_torn_slot_is_no_record(tmp_path: Path) -> None:
    """A kill between two words of one slot: there are words, but not the last."""
    file = File(tmp_path)
    file.step(1)
    pack, view, take = file.segment.full
    pack(view, take(), STEP, 1, 2, 3, 0, 0, 0, 0)
    found = read(tmp_path, patient=False)

    assert ([1], 1) == (steps(found), found.torn)


def test_notes_are_put_together(tmp_path: Path) -> None:
    """Also where another thread wrote in between."""
    file = File(tmp_path)
    parts = pieces(5, NOTE)
    file.words(parts[0])
    file.step(1)
    for part in parts[1:]:
        file.words(part)
    found = read(tmp_path)

    assert {"t": "end", "error": "x" * 100} == found.records[0]
    assert [1] == steps(found)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_note_that_is_not_whole_is_waited_for(tmp_path: Path, written: int) -> None:
    """And given up where its writer is dead; nothing else is lost."""
    file = File(tmp_path)
    file.step(1)
    parts = pieces(5, NOTE)
    assert 4 == len(parts)
    for part in parts[:written]:
        file.words(part)
    file.step(2)

    first = read(tmp_path)
    given_up = read(tmp_path, patient=False)
    assert [1] == steps(first)[:1]
    assert (written > 0) == first.held
    assert ([1, 2], written > 0) == (steps(given_up), bool(given_up.torn))


def test_a_damaged_note_is_counted_and_passed_over(tmp_path: Path) -> None:
    """One flipped bit is enough for its checksum."""
    file = File(tmp_path)
    parts = pieces(5, NOTE)
    for kind, head, *rest in parts:
        file.words((kind, head, rest[0] ^ 1, *rest[1:]))
    file.step(1)
    found = read(tmp_path)

    assert PIECE == parts[0][0]
    assert ([1], 1, 1) == (steps(found), found.torn, len(found.records))


def test_segments_are_read_in_order(tmp_path: Path) -> None:
    """The next segment is made ahead: only the writer's word says that this one is over."""
    first, second = File(tmp_path, 2), File(tmp_path, 10)
    (tmp_path / "unrelated.spool").write_bytes(b"x")
    first.step(*range(first.free - 1))
    found = read(tmp_path)
    assert Position(2, found.position.offset) == found.position
    first.step(7)
    first.segment.finish()
    second.step(8)

    last = read(tmp_path, found.position)
    assert ([7], Position(3, SLOT), True) == (steps(last), last.position, last.more)
    later = read(tmp_path, last.position)
    assert ([8], True) == (steps(later), later.gap)  # 3 to 9 are missing


def test_a_closed_segment_has_no_empty_slots(tmp_path: Path) -> None:
    """A thread took the last one and has yet to write it: the next segment waits."""
    first, second = File(tmp_path, 1), File(tmp_path, 2)
    first.step(*range(first.free - 1))
    late = first.skip()
    first.segment.finish()
    second.step(8)
    found = read(tmp_path)
    assert (True, 1) == (found.held, found.position.segment)
    assert Position(2, SLOT) == read(tmp_path, found.position, patient=False).position
    first.words((STEP, 1, 7, 0, 0, 0, 0), late)

    last = read(tmp_path, found.position)
    assert ([7], Position(2, SLOT)) == (steps(last), last.position)


def test_a_note_that_its_file_cut_short_is_in_the_next_one(tmp_path: Path) -> None:
    """The part is no loss."""
    first, second = File(tmp_path, 1), File(tmp_path, 2)
    parts = pieces(5, NOTE)
    first.step(*range(first.free - 2))
    first.words(parts[0])
    first.words(parts[1])
    first.segment.finish()
    for part in parts:
        second.words(part)

    found = read(tmp_path)
    assert (0, Position(2, SLOT)) == (found.torn, found.position)
    assert 1 == len(read(tmp_path, found.position).records)


def test_more_than_a_read_takes(tmp_path: Path) -> None:
    """Notes that lie across the end of a read are whole, and nothing is read twice."""
    file = File(tmp_path, size=4 * CHUNK_BYTES)
    written = 0
    while file.free > 10:
        file.step(written)
        for part in pieces(written, NOTE):
            file.words(part)
        written += 1
    numbers: list[int] = []
    notes = 0
    position, more = Position(), True
    while more:
        found = read(tmp_path, position)
        numbers += steps(found)
        notes += sum(isinstance(raw, dict) for raw in found.records)
        position, more = found.position, found.more

    assert (list(range(written)), written) == (numbers, notes)


@pytest.mark.parametrize("patient", [True, False])
def test_a_note_whose_pieces_lie_far_apart(tmp_path: Path, *, patient: bool) -> None:
    """Its thread was put aside in the middle while others wrote more than a read takes."""
    file = File(tmp_path, size=4 * CHUNK_BYTES)
    parts = pieces(5, NOTE)
    file.words(parts[0])
    file.step(*range(CHUNK_BYTES // SLOT + 10))
    for part in parts[1:]:
        file.words(part)

    found = read(tmp_path, patient=patient)
    assert {"t": "end", "error": "x" * 100} == found.records[0]
    assert list(range(CHUNK_BYTES // SLOT + 10)) == steps(found)


def test_versions_are_told_apart(tmp_path: Path) -> None:
    """Lines of JSON, slots of a version to come, and a file that has only been created."""
    File(tmp_path, 1)
    newer = File(tmp_path, 2)
    newer.segment.full[0](newer.segment.full[1], 0, *_header_of(tmp_path, 1)[:1], 3, 4, 0, 0, 0, 0, COMMIT)
    (tmp_path / segment_name(NAME, 3)).write_bytes(frame(b'{"t":"head","v":1}'))
    (tmp_path / segment_name(NAME, 4)).write_bytes(b"")
    (tmp_path / segment_name(NAME, 5)).write_bytes(bytes(4096))

    expected = [2, 3, 1, None, None, None]
    assert expected == [version_of(str(tmp_path), NAME, number) for number in range(1, 7)]


def _header_of(folder: Path, number: int) -> tuple[int, ...]:
    from ett_collector.slots import WORDS

    return WORDS.unpack((folder / segment_name(NAME, number)).read_bytes()[:SLOT])
