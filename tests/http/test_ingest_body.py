"""Bodies: unpacked within the limit, parsed or refused, never more memory than the limit (K9)."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zstandard

from ett_collector.wire import CODING, DICTIONARY, DICTIONARY_ID, deflate
from fleet_ett.errors import Invalid, TooLarge, Unsupported
from fleet_ett.http.body import media_type, parse, unpacker

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1 << 20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    CODING: deflate,
}
both = pytest.mark.parametrize("encoding", ["gzip", "zstd"])
all_three = pytest.mark.parametrize("encoding", list(PACKERS))


@all_three
@pytest.mark.parametrize("size", [0, 1, 100, LIMIT])
def test_what_was_packed_comes_out(encoding: str, size: int) -> None:
    body = os.urandom(size)
    assert body == unpacker(encoding)(PACKERS[encoding](body), LIMIT)


@both
def test_streams_in_a_row_are_one_body(encoding: str) -> None:
    pack = PACKERS[encoding]
    assert b"one two" == unpacker(encoding)(pack(b"one ") + pack(b"") + pack(b"two"), LIMIT)


@all_three
@pytest.mark.parametrize("left", [0, 1, 3, 10, -1, -4])
def test_a_body_that_was_cut_off_is_refused(encoding: str, left: int) -> None:
    packed = PACKERS[encoding](b"a body of some length" * 20)
    with pytest.raises(Invalid, match=encoding):
        unpacker(encoding)(packed[:left], LIMIT)


@all_three
@pytest.mark.parametrize("junk", [b"junk", b"{}", b"\x1f\x8b\x08junk", b"\x28\xb5\x2f\xfdjunk"])
def test_anything_else_is_refused(encoding: str, junk: bytes) -> None:
    for body in (junk, PACKERS[encoding](b"good") + junk):
        with pytest.raises(Invalid, match=encoding):
            unpacker(encoding)(body, LIMIT)


@all_three
def test_one_byte_more_than_the_limit_is_too_large(encoding: str) -> None:
    body = b"x" * LIMIT
    assert body == unpacker(encoding)(PACKERS[encoding](body), LIMIT)
    with pytest.raises(TooLarge):
        unpacker(encoding)(PACKERS[encoding](body + b"x"), LIMIT)


@all_three
def test_a_bomb_never_grows_memory(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(200 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            unpacker(encoding)(bomb, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * LIMIT


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=3, write_content_size=0)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = frame.compress(b"small") + frame.flush()
    with pytest.raises(Invalid, match="zstd"):
        unpacker("zstd")(body, LIMIT)


@both
def test_thousands_of_empty_streams_are_refused(encoding: str) -> None:
    with pytest.raises(Invalid, match="streams"):
        unpacker(encoding)(PACKERS[encoding](b"") * 5000, LIMIT)


def test_streams_of_our_own_coding_do_not_follow_each_other() -> None:
    for more in (deflate(b"two"), b"\0", b"\0" * 100_000):
        with pytest.raises(Invalid, match="goes on"):
            unpacker(CODING)(deflate(b"one") + more, LIMIT)


def test_a_dictionary_that_is_not_known_is_no_fault_of_the_body() -> None:
    """415: a newer agent goes back to gzip. Without any dictionary a stream is plain zlib."""
    assert b"body" == unpacker(CODING)(zlib.compress(b"body"), LIMIT)
    packer = zlib.compressobj(zdict=b"another")
    with pytest.raises(Unsupported, match=zlib.adler32(b"another").to_bytes(4, "big").hex()):
        unpacker(CODING)(packer.compress(b"body") + packer.flush(), LIMIT)


def test_the_dictionary_is_the_one_that_agents_were_sent_out_with() -> None:
    """It never changes: an agent of any age packs with it. Another one needs another name in the stream."""
    assert "8b503373" == DICTIONARY_ID.hex() == f"{zlib.adler32(DICTIONARY):08x}"


@pytest.mark.parametrize("header", ["br", "deflate", "gzip, gzip", "GZIP2"])
def test_another_encoding_is_not_spoken(header: str) -> None:
    with pytest.raises(Unsupported, match="gzip, zstd or ett-zlib"):
        unpacker(header)


def test_types_are_told_apart_by_their_name_alone() -> None:
    assert "json" == media_type(None) == media_type("application/json; charset=utf-8")
    assert "msgpack" == media_type("application/msgpack") == media_type("Application/X-MsgPack")
    for header in ("text/plain", "application/xml", "", "json"):
        if header:
            with pytest.raises(Unsupported, match="application/json"):
                media_type(header)


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"nope", b"{", b'{"a": 1} x', b"'a'", b"\xff\xfe{}", b'{"a": "\xff"}', b"[" * 100_000,
        b'{"a":' * 100_000, "{}".encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        parse(body, "json")


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x92\x01", b"\xa5ab", b"\xa1\xff", b"\x91" * 100_000, b"\x01\x01"]
)
def test_what_is_no_msgpack_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        parse(body, "msgpack")


def test_json_and_msgpack_say_the_same() -> None:
    said: dict[str, Any] = {
        "events": [{"seq": 2**63 - 1, "f": 0.1, "t": "\u2028 \U0001f600", "n": None, "b": True}]
    }
    assert said == parse(json.dumps(said).encode(), "json") == parse(msgspec.msgpack.encode(said), "msgpack")


@pytest.mark.parametrize(
    ("literal", "type_"),
    [
        ("NaN", float),
        ("1e999", float),
        ("-Infinity", float),
        ('"\\ud800"', str),
        ("9" * 300, int),
        ("9" * 9000, float),
    ],
)
def test_what_only_one_event_is_to_blame_for_is_left_to_its_checks(literal: str, type_: type) -> None:
    """B80, B81: a value that no field takes sinks its event, not its batch."""
    found = parse(f'{{"good": 1, "bad": {literal}}}'.encode(), "json")
    assert 1 == found["good"]
    assert type_ is type(found["bad"])


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b'{"events": [' + b"{}," * 4_000_000 + b"{}]}", "json"),
        (b"[" + b"[[[[[[]]]]]]," * 800_000 + b"1]", "json"),
        (b"\x81\xa6events\xdd\x00\x40\x00\x00" + b"\x80" * 0x400000, "msgpack"),
    ],
)
def test_values_that_take_memory_are_bounded_in_number(body: bytes, media: str) -> None:
    """A byte may become a hundred: what holds millions of nothing is not read at all."""
    with pytest.raises(TooLarge, match="at most 4000000 values"):
        parse(body, media)


def test_a_full_body_of_sound_events_has_few_values() -> None:
    event = {"type": "phase", "seq": 1, "attrs": {f"k{number}": "\u4e2d" * 5 for number in range(30)}}
    for body, media in (
        (json.dumps({"events": [event] * 20_000}).encode(), "json"),
        (msgspec.msgpack.encode({"events": [event] * 20_000}), "msgpack"),
    ):
        assert len(body) > 4_000_000
        assert {"events": [event] * 20_000} == parse(body, media)
