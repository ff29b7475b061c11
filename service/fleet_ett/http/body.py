"""The body of a request: unpacked within a limit, and parsed into plain objects.

Unpacking stops at the limit, so a small body that unpacks into a huge one costs no more than the limit.
Everything that cannot be read raises an `EttError` that says why.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from ett_collector.wire import CODING, DICTIONARY, DICTIONARY_ID, HAS_DICTIONARY, HEADER_BYTES
from fleet_ett.errors import Invalid, TooLarge, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

JSON_TYPE, MSGPACK_TYPE = "application/json", "application/msgpack"
MEDIA_TYPES = {
    JSON_TYPE: "json",
    MSGPACK_TYPE: "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
}
GZIP_WINDOW = 31  # zlib's code for a gzip header with the largest window
ZSTD_WINDOW = 1 << 24
# So much of a body is unpacked at once: 256 bytes of zstd are at most 8 MiB.
GZIP_PIECE, ZSTD_PIECE = 64 * 1024, 256
MAX_STREAMS = 1000
# More than any sound body holds. A value may be one byte that takes a hundred in memory.
MOST_VALUES = 4_000_000
_CONTAINERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))  # of msgpack; counted wherever they stand
LONGEST_NUMBER = 400  # digits; longer ones become infinite, which no field takes


def media_type(header: str | None) -> str:
    """What a Content-Type asks for: json (also without a header) or msgpack. Raises `Unsupported`."""
    told = (header or JSON_TYPE).partition(";")[0].strip().lower()
    found = MEDIA_TYPES.get(told)
    if found is None:
        msg = f"Content-Type must be {JSON_TYPE} or {MSGPACK_TYPE}, not {told[:100]!r}"
        raise Unsupported(msg)
    return found


def unpacker(header: str | None) -> Callable[[bytes, int], bytes]:
    """The function that unpacks a body of that Content-Encoding. Raises `Unsupported`."""
    told = (header or "identity").strip().lower()
    found = _UNPACKERS.get(told)
    if found is None:
        msg = f"Content-Encoding must be gzip, zstd or {CODING}, not {told[:100]!r}"
        raise Unsupported(msg)
    return found


def parse(body: bytes, media: str) -> Any:
    """The objects of a body. Raises `Invalid`, `TooLarge` for more values than any sound body holds.

    JSON that only Python's own reader takes (NaN, numbers out of range, lone surrogates) is left to the checks
    of the single event: one of them must not sink its batch.
    """
    if len(body) > MOST_VALUES and _values(body, media) > MOST_VALUES:
        msg = f"a body holds at most {MOST_VALUES} values"
        raise TooLarge(msg)
    try:
        if media == "msgpack":
            return msgspec.msgpack.decode(body)
        try:
            return msgspec.json.decode(body)
        except msgspec.MsgspecError:
            return json.loads(body.decode(), parse_int=_integer)
    except RecursionError:
        msg = "the body is nested too deeply"
        raise Invalid(msg) from None
    except (msgspec.MsgspecError, ValueError) as error:
        msg = f"the body is not {media}: {str(error)[:200]}"
        raise Invalid(msg) from None


def _values(body: bytes, media: str) -> int:
    """Roughly how many values there are, and at least how many of those that take memory."""
    if media == "msgpack":
        return len(body) - len(body.translate(None, _CONTAINERS))
    return sum(map(body.count, (b",", b"[", b"{")))


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_NUMBER else float("inf")


def _as_it_is(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _gunzip(body: bytes, limit: int) -> bytes:
    out = _Unpacked(limit)
    member, members = zlib.decompressobj(GZIP_WINDOW), 1
    try:
        for at in range(0, len(body), GZIP_PIECE):
            piece = body[at : at + GZIP_PIECE]
            while piece:
                if member.eof:  # a gzip file may be several members in a row, and zeros after them
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    member, members = zlib.decompressobj(GZIP_WINDOW), _counted(members)
                out.add(member.decompress(piece, out.left))
                piece = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        msg = f"the body is not gzip: {error}"
        raise Invalid(msg) from None
    return out.whole("gzip", ended=member.eof)


def _unzstd(body: bytes, limit: int) -> bytes:
    out = _Unpacked(limit)
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    frame, frames = decompressor.decompressobj(), 1
    try:
        for at in range(0, len(body), ZSTD_PIECE):
            piece = body[at : at + ZSTD_PIECE]
            while piece:
                if frame.eof:
                    frame, frames = decompressor.decompressobj(), _counted(frames)
                out.add(frame.decompress(piece))
                piece = frame.unused_data if frame.eof else b""
    except zstandard.ZstdError as error:
        msg = f"the body is not zstd: {error}"
        raise Invalid(msg) from None
    return out.whole("zstd", ended=frame.eof)


def _inflate(body: bytes, limit: int) -> bytes:
    head = body[:HEADER_BYTES]
    if len(head) == HEADER_BYTES and head[1] & HAS_DICTIONARY and head[2:] != DICTIONARY_ID:
        msg = f"a body of {CODING} with the dictionary {head[2:].hex()}, which is not known here"
        raise Unsupported(msg)
    out = _Unpacked(limit)
    stream = zlib.decompressobj(zdict=DICTIONARY)
    try:
        for at in range(0, len(body), GZIP_PIECE):
            piece = body[at : at + GZIP_PIECE]
            while piece and not stream.eof:
                out.add(stream.decompress(piece, out.left))
                piece = stream.unconsumed_tail
            if piece or stream.unused_data:
                msg = f"the body goes on after its {CODING} data"
                raise Invalid(msg)
    except zlib.error as error:
        msg = f"the body is not {CODING}: {error}"
        raise Invalid(msg) from None
    return out.whole(CODING, ended=stream.eof)


class _Unpacked:
    """What came out so far; raises `TooLarge` as soon as it is more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def left(self) -> int:
        """How many bytes to ask for: one more than are allowed shows that there are too many."""
        return self._limit + 1 - self._size

    def add(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._limit:
            raise _too_large(self._limit)

    def whole(self, encoding: str, *, ended: bool) -> bytes:
        if not ended:
            msg = f"the body ends in the middle of its {encoding} data"
            raise Invalid(msg)
        return b"".join(self._parts)


def _counted(streams: int) -> int:
    """One more member or frame; a body of nothing but thousands of empty ones only burns time."""
    if streams == MAX_STREAMS:
        msg = f"the body consists of more than {MAX_STREAMS} compressed streams"
        raise Invalid(msg)
    return streams + 1


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"a body holds at most {limit} bytes, unpacked")


ENCODINGS = f"gzip, zstd, {CODING}"
_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "identity": _as_it_is,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
    CODING: _inflate,
}
