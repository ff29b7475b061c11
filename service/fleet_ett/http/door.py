"""The door: who asks, whether they may, and how often.

On loopback, without any token in the database, the door stands open. Else every request but the probes needs
`Authorization: Bearer ett_...`. A token that cannot be looked up is not let in.
"""

from __future__ import annotations

import math
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from fleet_ett.access import Grant, Tokens, check_token
from fleet_ett.errors import Busy, EttError, Unauthorized
from fleet_ett.http.errors import told

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

PROBES = ("/healthz", "/readyz")
INGEST = "/v1/events"
MOST_BUCKETS = 50_000


class Door:
    """ASGI middleware; leaves the bearer's grant in the request's state (None: everybody may).

    `is_local`: nobody but this machine can knock, so that without tokens everybody may come in.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, *, is_local: bool) -> None:
        self.app = app
        self._is_local = is_local
        self._tokens = tokens
        self._rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401, 403, 429 or 503 before its body is read."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        try:
            grant = await run_in_threadpool(self._grant, scope)
            if grant is not None:
                self._rates.take(grant)
                if scope["path"] == INGEST:
                    grant.may_ingest()
                else:
                    grant.may_read()
        except EttError as error:
            await told(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["grant"] = grant
        await self.app(scope, receive, send)

    def _grant(self, scope: Scope) -> Grant | None:
        if self._is_local and not self._tokens.any():
            return None
        said = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (said[0] if len(said) == 1 else b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            msg = "show a token: Authorization: Bearer ett_..."
            raise Unauthorized(msg)
        return check_token(self._tokens, token.strip(" "), now=time_ns())


class Rates:
    """Requests a second by token, in this process: as many at once as in one second."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, grant: Grant) -> None:
        """Count one request. Raises `Busy` beyond the token's rate."""
        if not grant.rate:
            return
        now = monotonic()
        left, since = self._left.get(grant.token_id, (float(grant.rate), now))
        left = min(float(grant.rate), left + (now - since) * grant.rate)
        if left < 1:
            msg = f"this token may ask {grant.rate} times a second"
            raise Busy(msg, retry_after_s=math.ceil((1 - left) / grant.rate))
        if len(self._left) >= MOST_BUCKETS:
            self._left = {}
        self._left[grant.token_id] = (left - 1, now)


def grant_of(request: Request) -> Grant | None:
    """What the bearer may do; None where no token is needed."""
    grant = getattr(request.state, "grant", None)
    assert grant is None or isinstance(grant, Grant)
    return grant
