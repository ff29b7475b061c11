"""Records of a spool: whole ones come back, torn ones are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.tail import Position, list_spools, read_spool
from ett_collector.frames import frame, pack, unframe
from ett_collector.spool import segment_name

if TYPE_CHECKING:
    from pathlib import Path

NAME = "trainer-7-" + "0" * 32


def test_record_comes_back() -> None:
    """What is packed is unpacked, line breaks and all."""
    record = {"t": "end", "error": "Traceback:\n  line \u00fc\x00"}

    assert record == unframe(pack(record))


@pytest.mark.parametrize("cut", range(1, 30))
def test_torn_record_is_no_record(cut: int) -> None:
    """A record that lost its last bytes is recognised by its checksum."""
    line = frame(b'{"t":"step","n":12345678}')

    assert unframe(line[:-cut]) is None or cut == 1  # only the newline is missing


def test_damaged_record_is_no_record() -> None:
    """One flipped bit is enough."""
    line = bytearray(frame(b'{"t":"step","n":12345678}'))
    line[20] ^= 1

    assert unframe(bytes(line)) is None


def test_a_tail_without_its_end_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """A record that is being written is left for the next read; a torn one before it is counted and skipped."""
    path = tmp_path / segment_name(NAME, 1)
    path.write_bytes(frame(b'{"n":1}') + b'1234abcd {"n":\n' + frame(b'{"n":2}')[:-4])

    first = read_spool(str(tmp_path), NAME, [1], Position())
    path.write_bytes(frame(b'{"n":1}') + b'1234abcd {"n":\n' + frame(b'{"n":2}'))
    second = read_spool(str(tmp_path), NAME, [1], first.position)

    assert ([{"n": 1}], 1) == (first.records, first.torn)
    assert ([{"n": 2}], 0) == (second.records, second.torn)


def test_segments_are_read_in_order_and_torn_ends_counted(tmp_path: Path) -> None:
    """A segment with a later one beside it is complete: what is torn at its end stays torn."""
    (tmp_path / segment_name(NAME, 2)).write_bytes(frame(b'{"n":1}') + b"12")
    (tmp_path / segment_name(NAME, 10)).write_bytes(frame(b'{"n":2}'))
    (tmp_path / "unrelated.spool").write_bytes(b"x")

    spools = list_spools(str(tmp_path))
    first = read_spool(str(tmp_path), NAME, spools[NAME], Position())
    second = read_spool(str(tmp_path), NAME, spools[NAME], first.position)

    assert {NAME: [2, 10]} == spools
    assert ([{"n": 1}], 1, True) == (first.records, first.torn, first.more)
    assert ([{"n": 2}], 0, False) == (second.records, second.torn, second.more)
