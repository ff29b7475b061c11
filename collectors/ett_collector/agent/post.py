"""One HTTP request to the service, by the standard library; a failure is a value, never an exception."""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ANSWER = 16 * 1024 * 1024


class Answer(NamedTuple):
    """`status` is 0 where no answer came (`error` says why). `body` is the JSON object, if it was one.

    Stamps: `sent` wall ns, `mono_sent` and `mono_received` monotonic ns. `retry_after` in seconds.
    """

    status: int
    body: dict[str, Any] | None
    error: str
    retry_after: float | None
    sent: int
    mono_sent: int
    mono_received: int


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow nothing: a redirected post would arrive as a GET, and a token somewhere else."""


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def opener_for(url: str, ca: str = "") -> urllib.request.OpenerDirector:
    """An opener for the service; a loopback address is never asked for through a proxy.

    TLS names the host and needs a signature of the machine's authorities, or of the one in the PEM file `ca` alone.
    Raises `OSError` for a file that cannot be read.
    """
    handlers: list[urllib.request.BaseHandler] = []
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    if ca:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    return urllib.request.build_opener(_Stay, *handlers)


def post(
    opener: urllib.request.OpenerDirector, url: str, data: bytes, headers: Mapping[str, str], timeout: float
) -> Answer:
    """Post a JSON body; `headers` say how it is packed."""
    said = {"Content-Type": "application/json", **headers}
    return _exchange(opener, urllib.request.Request(url, data=data, headers=said, method="POST"), timeout)  # noqa: S310


def get(
    opener: urllib.request.OpenerDirector, url: str, headers: Mapping[str, str], timeout: float
) -> Answer:
    """Get a JSON object."""
    return _exchange(opener, urllib.request.Request(url, headers=dict(headers)), timeout)  # noqa: S310


def _exchange(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout: float
) -> Answer:
    sent, mono = time.time_ns(), time.monotonic_ns()
    try:
        with opener.open(request, timeout=timeout) as response:
            raw, status, told = response.read(MAX_ANSWER), response.status, response.headers
    except urllib.error.HTTPError as error:
        with error:
            raw, status, told = _rest(error), error.code, error.headers
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(
            0, None, str(getattr(error, "reason", error) or error), None, sent, mono, time.monotonic_ns()
        )
    received = time.monotonic_ns()
    found = _object(raw)
    text = (
        "" if found is not None and status < http.client.BAD_REQUEST else raw[:500].decode(errors="replace")
    )
    return Answer(status, found, text, _seconds(told.get("Retry-After"), time.time()), sent, mono, received)


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(MAX_ANSWER)
    except (OSError, http.client.HTTPException):
        return b""


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _seconds(text: str | None, now: float) -> float | None:
    """`Retry-After`: seconds or a date."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError):
        return None
