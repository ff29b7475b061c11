"""The layout of a spool file: slots of 64 bytes, each written whole or not at all.

A slot is eight native 64-bit words: the kind of record first, `COMMIT` last. A new file is all zeros and no slot
is written twice, and one `pack_into` stores the words in order, so that a slot whose last word is not `COMMIT`
was cut off by a kill and is no record. Writer and reader share the machine: native byte order.

| kind | words 1 to 6 (stamps are the monotonic clock, ns; `NONE` where nothing was said) |
| STEP, BEGIN | mono, step, samples |
| OPEN | mono, span number, name number, step |
| CLOSE | mono, span number, name number, step, mono of the begin, number of the exception's name or 0 |
| WAIT, WAITED | mono, mono of the begin (WAITED) |
| ANCHOR | mono, wall minus mono |
| PIECE | a part of a note: a JSON object with a checksum (`frames.py`), for what is rare |
| VOID | nothing: its record could not be put into words |

Slot 0 is the file's header: MAGIC, VERSION, number of slots, 1 once the writer has gone on to the next file.
"""

from __future__ import annotations

import struct
import sys

VERSION = 2  # 1 was lines of JSON
SLOT = 64
MAGIC = int.from_bytes(b"ettslots", sys.byteorder)
COMMIT = 0x6574_7463_6F6D_6D74
NONE = -(2**63)
STEP, BEGIN, OPEN, CLOSE, WAIT, WAITED, ANCHOR, PIECE, VOID = range(1, 10)

WORDS = struct.Struct("@8q")
FLAG = struct.Struct("@q")
CLOSED_AT = 24  # offset of the header's last word in use
_PIECE = struct.Struct("@qIHH40sq")  # kind, note, index, pieces of the note, bytes, COMMIT
PIECE_BYTES = 40
MAX_NOTE = 60_000  # bytes: what is longer would fill a file, and is refused


def pieces(note: int, payload: bytes) -> list[tuple[int, ...]]:
    """The words of a note's slots, without the last one (`COMMIT`). Raises `ValueError` for an endless note."""
    if len(payload) > MAX_NOTE:
        msg = f"a note of {len(payload)} bytes"
        raise ValueError(msg)
    total = -(-len(payload) // PIECE_BYTES)
    cut = [payload[at : at + PIECE_BYTES] for at in range(0, len(payload), PIECE_BYTES)]
    return [
        WORDS.unpack(_PIECE.pack(PIECE, note & 0xFFFF_FFFF, index, total, part, COMMIT))[:-1]
        for index, part in enumerate(cut)
    ]


def piece(slot: bytes) -> tuple[int, int, int, bytes]:
    """(note, index, pieces of the note, bytes) of a PIECE's slot; the last bytes may be padding (zeros)."""
    _, note, index, total, part, _ = _PIECE.unpack(slot)
    return note, index, total, part
