"""Job keys in paths: a key may hold slashes, so the last segment decides what is asked of it.

`/v1/jobs/a/b` is the job `a/b`, `/v1/jobs/a/b/ledger` the ledger of `a/b`. A key that itself ends in
`/ledger`, `/timeline` or `/goodput` is reached with its slashes percent-encoded (`/v1/jobs/a%2Fledger`): what the
client encoded is part of the key, what it wrote plainly may be a sub-path. Servers hand over the
decoded path, in which the two look the same; so this middleware reads the raw one and passes the key
on as a single, encoded segment that the routes decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/v1/jobs/"
SUB_PATHS = ("ledger", "timeline", "goodput")


class JobPaths:
    """ASGI middleware that makes the job key of a path one segment."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, its path rewritten where it names a job."""
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            scope = {**scope, "path": one_segment(raw.partition(b"?")[0].decode("ascii", "replace"))}
        await self.app(scope, receive, send)


def one_segment(raw_path: str) -> str:
    """The path with the job key as one percent-encoded segment."""
    rest = raw_path.partition("/jobs/")[2]
    head, slash, tail = rest.rpartition("/")
    if slash and head and tail in SUB_PATHS:
        return f"{PREFIX}{_encoded(head)}/{tail}"
    return f"{PREFIX}{_encoded(rest)}"


def decode_key(segment: str) -> str:
    """The job key that a path's segment stands for; bytes that are no text become U+FFFD."""
    return unquote_to_bytes(segment).decode(errors="replace")


def _encoded(raw: str) -> str:
    return quote(unquote_to_bytes(raw), safe="")
