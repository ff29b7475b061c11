"""Cursors: opaque, bound to the question they belong to and to what its asker may see, stable under inserts.

A cursor holds the sort key of the last row that was given out; the next page begins after that key,
so that a row which arrives in between is neither skipped nor given twice where keys do not change.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fleet_ett.errors import Invalid
from fleet_ett.http.door import grant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

Key = tuple["str | int | bool", ...]
UNBOUND = ("cursor", "limit")  # a question stays the same question on another page, or with longer pages
MAX_CURSOR = 4096
REFUSED = "cursor must be one that the page before gave for this same question"


def encode_cursor(request: Request, key: Key) -> str:
    """The cursor that continues the request's question after the row with `key`."""
    text = json.dumps([_question(request), *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(request: Request, text: str, shape: Sequence[type]) -> Key:
    """The key in a cursor, whose parts have the types of `shape`. Raises `Invalid` for anything else."""
    if len(text) > MAX_CURSOR:
        raise Invalid(REFUSED)
    try:
        question, *key = json.loads(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise Invalid(REFUSED) from None
    fits = len(key) == len(shape) and all(type(part) is kind for part, kind in zip(key, shape, strict=True))
    if question != _question(request) or not fits or not all(map(_is_storable, key)):
        raise Invalid(REFUSED)
    return tuple(key)


def next_link(request: Request, cursor: str) -> str:
    """The value of the `Link` header that leads to the next page."""
    pairs = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return f'<{request.url.path}?{urlencode([*pairs, ("cursor", cursor)])}>; rel="next"'


def _question(request: Request) -> str:
    pairs = sorted(pair for pair in request.query_params.multi_items() if pair[0] not in UNBOUND)
    grant = grant_of(request)
    asked = [request.url.path, pairs, *(grant.teams if grant else ())]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _is_storable(part: object) -> bool:
    if isinstance(part, str):
        return "\0" not in part and not any("\ud800" <= character <= "\udfff" for character in part)
    return not isinstance(part, int) or abs(part) < 2**126
