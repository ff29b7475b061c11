"""Whatever bytes come: a batch, or a documented refusal. Never another exception, in no form of the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.security.decoder import ENCODINGS, MEDIA, PACKERS, take, take_value
from tests.security.sound import NAMES, SEEDS, SOUND, places_of

TEXT = st.text(max_size=8) | st.sampled_from(
    ["\0", "\ud800", "\u202e", "dlrm-7", "phase", "steps", "heartbeat"]
)
NUMBERS = st.integers() | st.integers(2**63 - 2, 2**64 + 1) | st.floats() | st.just(1_764_399_000_000_000_000)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
BODIES = [body for _, body in SEEDS]
ODD = [*BODIES, b"\x81\x80\x01", b"\xd6\xff\x00\x00\x00\x00"]
CHANGES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=5)


@given(st.binary(max_size=200) | st.sampled_from(ODD), st.sampled_from(MEDIA), st.sampled_from(ENCODINGS))
def test_any_bytes_are_taken_or_refused(body: bytes, media: str, encoding: str) -> None:
    take(body, media, encoding)
    take(PACKERS[encoding](body), media, encoding)


@given(
    st.sampled_from(BODIES),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=5),
    st.integers(0),
)
def test_a_damaged_body_is_taken_or_refused(seed: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    """Bytes of a sound body are changed, before it is packed and after."""
    for encoding in ENCODINGS:
        for pack_first in (False, True):
            body = bytearray(PACKERS[encoding](seed) if pack_first else seed)
            for at, value in changes:
                body[at % len(body)] = value
            told = bytes(body[: cut % len(body)] if cut % 3 == 0 else body)
            take(told if pack_first else PACKERS[encoding](told), MEDIA[BODIES.index(seed)], encoding)


@given(VALUES)
def test_any_value_is_taken_or_refused_alike_in_json_and_msgpack(value: Any) -> None:
    take_value(value)


@given(st.lists(st.tuples(st.integers(0, 15), st.sampled_from(NAMES), VALUES), max_size=4))
@example([(0, "nodes", 5)])
def test_a_changed_field_is_taken_or_refused_alike_in_json_and_msgpack(
    changes: list[tuple[int, str, Any]],
) -> None:
    """In the envelope, in single events and in columns."""
    body = json.loads(json.dumps(SOUND))
    for at, name, value in changes:
        places = places_of(body)
        places[at % len(places)][name] = value
    take_value(body)


@pytest.mark.parametrize("media", MEDIA)
def test_a_deeply_nested_body_is_refused(media: str) -> None:
    deep = {"json": b"[" * 100_000 + b"]" * 100_000, "msgpack": b"\x91" * 100_000 + b"\xc0"}[media]
    assert take(deep, media, "identity") is None
    inside = {"json": b'{"agent":{"node":"n","incarnation":"i"},"events":[%s]}', "msgpack": b""}[media]
    if inside:
        take(
            inside % (b'{"seq":1,"type":"phase","attrs":' + b"[" * 900 + b"]" * 900 + b"}"), media, "identity"
        )
