"""What `POST /v1/events` does with the bytes of a body, up to the store: the target of the fuzzers."""

from __future__ import annotations

import contextlib
import gzip
import json
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from ett_collector.wire import CODING, MAX_BODY, canonical, deflate
from fleet_ett.errors import EttError
from fleet_ett.http.body import parse, unpacker
from fleet_ett.ingest import decode_batch
from fleet_ett.postgres.event_rows import digest
from fleet_ett.postgres.quarantine import _event_text

if TYPE_CHECKING:
    from fleet_ett.ingest import Batch

NOW = 1_772_452_800_000_000_000
MEDIA = ("json", "msgpack")
ENCODINGS = ("identity", "gzip", "zstd", CODING)
REFUSALS = frozenset({"invalid", "too_large", "unsupported"})
PACKERS = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    CODING: deflate,
}


def take(body: bytes, media: str, encoding: str) -> Batch | None:
    """The batch in a body, or None where it is refused with a documented code; anything else is an error.

    Of a batch, everything is said that the store says of it: each event's identity, each refused one's text.
    """
    try:
        batch = decode_batch(parse(unpacker(encoding)(body, MAX_BODY), media), now=NOW).singly()
    except EttError as error:
        if error.code not in REFUSALS:
            raise
        return None
    assert len(batch.events) == len(batch.positions)
    for event in batch.events:
        canonical(event)
        digest(event)
        msgspec.json.encode(event.body)
    for one in batch.refused:
        json.dumps({"index": one.position, "seq": one.seq, "reason": one.reason}).encode()
        _event_text(one.event).encode()
    return batch


def take_value(value: Any) -> None:
    """Take a value in every form, and have the same events and refusals of each that can say it."""
    told = [take(json.dumps(value).encode(), "json", "identity")]
    with contextlib.suppress(OverflowError, UnicodeEncodeError):  # msgpack has no such integer or text
        told.append(take(msgspec.msgpack.encode(value), "msgpack", "identity"))
    assert 1 == len({_shown(one) for one in told})


def _shown(batch: Batch | None) -> str:
    if batch is None:
        return "refused"
    events = [canonical(event).decode() for event in batch.events]
    return json.dumps([events, batch.positions, [one.position for one in batch.refused]])
