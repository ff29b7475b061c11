"""The door: who asks, whether they may, and how often.

On loopback, without any token in the database, the door stands open to this machine, but not to what a web page has its
browser ask. Else every request but the probes needs `Authorization: Bearer ett_...`. A token that cannot be looked up
is not let in.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import partial
from http import HTTPStatus
from time import monotonic, time_ns
from typing import TYPE_CHECKING

import anyio
from starlette.concurrency import run_in_threadpool

from fleet_ett.access import FRESH_S, REFUSAL_S, Grant, Note, Refused, Tokens, check_token, is_token
from fleet_ett.errors import Denied, EttError, Unauthorized
from fleet_ett.http.errors import told

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fleet_ett.rates import Rates

PROBES = ("/healthz", "/readyz")
INGEST, METRICS = "/v1/events", "/metrics"
DOCS = ("/docs", "/docs/oauth2-redirect")
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
POLICY = b"content-security-policy"
# Nothing here is a page with scripts, but the documentation: its scripts come from elsewhere, and may ask nobody else.
NO_SCRIPTS = (POLICY, b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
DOCS_SCRIPTS = (
    POLICY,
    b"; ".join(
        (
            b"default-src 'none'",
            b"script-src 'unsafe-inline' https://cdn.jsdelivr.net",
            b"style-src 'unsafe-inline' https://cdn.jsdelivr.net",
            b"img-src 'self' data: https://fastapi.tiangolo.com",
            b"connect-src 'self'",
            b"frame-ancestors 'none'",
            b"base-uri 'none'",
        )
    ),
)


class Door:
    """ASGI middleware; leaves the bearer's grant in the request's state (None: everybody may).

    `is_local`: nobody but this machine can knock, so that without tokens everybody may come in.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, rates: Rates, note: Note, *, is_local: bool) -> None:
        self.app = app
        self._is_local = is_local
        self._tokens = tokens
        self._rates = rates
        self._note = note
        self._asking = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401, 403, 429 or 503 before its body is read."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = [*HEADERS, DOCS_SCRIPTS if scope["path"] in DOCS else NO_SCRIPTS]
        grant: Grant | None = None

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
                if (
                    grant is not None
                    and message["status"] == HTTPStatus.FORBIDDEN
                    and scope["path"] != INGEST
                ):
                    # before it is answered, as every refusal: who was told no finds it in the log
                    await self._write_down(grant.who, "refused: beyond its teams", scope)
            await send(message)

        try:
            grant = None if scope["path"] in PROBES else await self._grant(scope)
        except EttError as error:
            await told(error)(scope, receive, guarded)
            return
        scope.setdefault("state", {})["grant"] = grant
        await self.app(scope, receive, guarded)

    async def _grant(self, scope: Scope) -> Grant | None:
        token = None if self._is_local else _bearer(scope)  # which needs no database
        oldest = monotonic() - FRESH_S
        if self._tokens.asked() < oldest:
            async with self._asking:  # one asks for all: who waits needs no thread meanwhile
                if self._tokens.asked() < oldest:
                    await run_in_threadpool(partial(self._tokens.refresh, not_before=oldest))
        if self._is_local and not self._tokens.any():
            _check_neighbour(scope)
            return None
        try:
            grant = await self._checked(token or _bearer(scope))
        except Refused as refused:
            await self._write_down(refused.who, f"refused: the token is {refused.state}", scope)
            raise
        self._rates.take(grant)
        try:
            if scope["path"] == INGEST:
                grant.may_ingest()
            elif scope["path"] == METRICS:
                grant.may_scrape()
            else:
                grant.may_read()
        except Denied:
            await self._write_down(grant.who, f"refused: beyond the scope {grant.scope}", scope)
            raise
        return grant

    async def _checked(self, token: str) -> Grant:
        """The token's grant; one that was made a moment ago is good, so a stranger waits for the next look."""
        came = monotonic()
        try:
            return check_token(self._tokens, token, now=time_ns())
        except Refused:
            raise
        except Unauthorized:
            if not is_token(token):
                raise
        await asyncio.sleep(self._tokens.asked() + REFUSAL_S - came)
        await run_in_threadpool(partial(self._tokens.refresh, not_before=came))
        return check_token(self._tokens, token, now=time_ns())

    async def _write_down(self, who: str, what: str, scope: Scope) -> None:
        client = scope.get("client") or ("?", 0)
        await run_in_threadpool(self._note, who, what, {"path": scope["path"][:200], "from": client[0]})


def _bearer(scope: Scope) -> str:
    said = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, token = (said[0] if len(said) == 1 else b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        msg = "show a token: Authorization: Bearer ett_..."
        raise Unauthorized(msg)
    return token.strip(" ")


def _check_neighbour(scope: Scope) -> None:
    """Refuse what a page of another site asks through this machine's browser, also under a name of its own."""
    said = dict(scope["headers"])
    host = said.get(b"host", b"localhost").decode("latin-1").lower()
    site = said.get(b"sec-fetch-site", b"none")
    origin = said.get(b"origin", b"").decode("latin-1").lower()
    if not _is_loopback(host) or site not in (b"none", b"same-origin"):
        msg = "without access tokens only this machine is answered, under a loopback address"
        raise Denied(msg)
    if origin and not _is_loopback(origin.partition("://")[2]):
        msg = "without access tokens no page of another site is answered"
        raise Denied(msg)


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def grant_of(request: Request) -> Grant | None:
    """What the bearer may do; None where no token is needed."""
    grant = getattr(request.state, "grant", None)
    assert grant is None or isinstance(grant, Grant)
    return grant
