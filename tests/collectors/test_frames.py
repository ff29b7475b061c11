"""Lines with a checksum: whole ones come back, torn ones are told apart."""

from __future__ import annotations

import pytest

from ett_collector.frames import frame, pack, unframe


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
