"""`POST /v1/events`: a batch of events from an agent, answered once it is durable."""

from __future__ import annotations

import logging
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from ett_collector.wire import MAX_BODY
from fleet_ett.errors import EttError, Invalid, Unavailable
from fleet_ett.http.body import media_type, parse, unpacker
from fleet_ett.http.door import grant_of
from fleet_ett.ingest import decode_batch, take_in
from fleet_ett.speakers import narrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet_ett.access import Note
    from fleet_ett.http.pressure import Bench, Pressure
    from fleet_ett.ingest import Batch, Store
    from fleet_ett.speakers import Claims

log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1", tags=["ingest"])

EXAMPLE = {
    "agent": {"node": "gpu-0017", "incarnation": "0f3c9a", "version": "1.2.0"},
    "clock_offset_ns": -1_250_000,
    "sent_at": 1_764_400_000_000_000_000,
    "events": [
        {
            "seq": 1,
            "type": "phase",
            "job": "dlrm-7",
            "attempt": "slurm:8812:1",
            "rank": 0,
            "phase": "compile",
            "start": 1_764_399_000_000_000_000,
            "end": 1_764_399_120_000_000_000,
        }
    ],
    "batches": [
        {
            "type": "steps",
            "job": "dlrm-7",
            "attempt": "slurm:8812:1",
            "rank": 0,
            "columns": {
                "seq": [7, 8],
                "first": [100, 120],
                "last": [119, 139],
                "start": [1_764_399_120_000_000_000, 1_764_399_180_000_000_000],
                "end": [1_764_399_180_000_000_000, 1_764_399_240_000_000_000],
            },
        }
    ],
}
ANSWER = {
    "accepted": 3,
    "duplicates": 0,
    "quarantined": [{"index": 4, "seq": 9, "reason": "end lies before start"}],
    "server_time": 1_764_400_000_100_000_000,
}
_PROBLEM = {"content": {"application/problem+json": {"schema": {"type": "object"}}}}
DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "At most 20,000 events and 16 MiB unpacked; gzip, zstd or ett-zlib by Content-Encoding.",
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": EXAMPLE},
            "application/msgpack": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Everything accepted is durable. Refused events are named with a reason.",
        "content": {"application/json": {"example": ANSWER}},
    },
    400: {"description": "The body cannot be read.", **_PROBLEM},
    401: {"description": "No token, or not a good one.", **_PROBLEM},
    403: {"description": "The token does not speak for this node.", **_PROBLEM},
    413: {"description": "Too large, or too many events.", **_PROBLEM},
    415: {"description": "Not a Content-Type or Content-Encoding that is spoken here.", **_PROBLEM},
    429: {"description": "Too much at once: keep the batch, come back after Retry-After.", **_PROBLEM},
    503: {"description": "Not now: keep the batch, come back after Retry-After.", **_PROBLEM},
}


@router.post("/events", summary="Send events", openapi_extra=DOCS, responses=RESPONSES)
async def post_events(request: Request) -> dict[str, Any]:
    """Store a batch of events. A repeat is counted and changes nothing; a bad event is refused by itself."""
    pressure = cast("Pressure", request.app.state.pressure)
    store = cast("Store", request.app.state.store)
    try:
        media = media_type(request.headers.get("content-type"))
        unpack = unpacker(request.headers.get("content-encoding"))
        told = request.headers.get("content-length", "")
        size = int(told) if told.isascii() and told.isdigit() else 0
        async with pressure.body(request.stream(), MAX_BODY, size) as raw:
            take = partial(_take, raw, unpack, media, store, _narrowing(request), pressure.bench)
            return await pressure.run(take, size=len(raw), is_gone=request.is_disconnected)
    except Unavailable:
        raise
    except ClientDisconnect:
        msg = "the connection ended before the body did"
        raise Invalid(msg) from None
    except EttError:
        await run_in_threadpool(_count_rejected, request)
        raise


def _take(
    raw: bytes,
    unpack: Callable[[bytes, int], bytes],
    media: str,
    store: Store,
    narrowing: Callable[[Batch], Batch] | None,
    bench: Bench,
) -> dict[str, Any]:
    now = time_ns()
    with bench.opened(
        partial(unpack, raw, MAX_BODY), lambda body: decode_batch(parse(body, media), now=now)
    ) as batch:
        return take_in(batch, store, now=now, narrowing=narrowing)


def _narrowing(request: Request) -> Callable[[Batch], Batch] | None:
    """What the sender's token leaves of a batch; None where it is not narrowed."""
    grant = grant_of(request)
    if grant is None or not (grant.nodes or grant.clusters):
        return None
    state = request.app.state
    return partial(narrow, grant=grant, claims=cast("Claims", state.claims), note=cast("Note", state.note))


def _count_rejected(request: Request) -> None:
    """Count a body that was refused; the sender hears why also where it cannot be counted."""
    try:
        cast("Callable[[], None]", request.app.state.count_rejected)()
    except EttError as error:
        log.warning("a refused body was not counted: %s", error.message)
