"""Errors as RFC 9457 problem details; the only place that maps a code to a status.

Whatever goes wrong, the answer is `application/problem+json` with `type`, `title`, `status`, `detail`
and the stable `code` of `fleet_ett.errors`. An unexpected exception is logged with an id; the answer
carries the id and nothing of the exception.
"""

from __future__ import annotations

import json
import logging
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fleet_ett.errors import EttError, Unavailable, Unsupported
from fleet_ett.http.body import ENCODINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

STATUS: dict[str, int] = {
    "invalid": 400,
    "unsupported": 415,
    "unauthorized": 401,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "busy": 429,
    "unavailable": 503,
    "internal": 500,
}
CODES: dict[int, str] = {status: code for code, status in STATUS.items()} | {405: "method_not_allowed"}
CHALLENGES = {"unauthorized": "invalid_token", "denied": "insufficient_scope"}  # RFC 6750
MEDIA_TYPE = "application/problem+json"
MAX_ECHO = 200  # characters of a sender's own text that an answer repeats


def problem(
    status: int,
    detail: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """The answer for an error; `more` are extension members of the problem."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code or CODES.get(status, "invalid" if status < 500 else "internal"),
        **more,
    }
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA_TYPE)


def install_errors(app: FastAPI) -> None:
    """Have `app` answer every error as a problem."""
    app.add_exception_handler(EttError, _on_ett_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_middleware(UnexpectedErrors)


class UnexpectedErrors:
    """ASGI middleware: a bug becomes a 500 with an id that the log explains."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer for an exception that nobody handled."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            error_id = uuid.uuid4().hex
            log.exception("error %s: %s %r", error_id, scope["method"], scope["path"])
            if begun:  # too late for another answer: the connection must break, not look complete
                raise
            detail = f"Something broke on our side. The service's log explains error {error_id}."
            await problem(500, detail, error_id=error_id)(scope, receive, send)


def told(error: EttError) -> Response:
    """The answer for an error of ours."""
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, Unsupported):
        headers["Accept-Encoding"] = ENCODINGS  # RFC 9110, 15.5.16
    elif error.code in CHALLENGES:
        headers["WWW-Authenticate"] = f'Bearer realm="fleet-ett", error="{CHALLENGES[error.code]}"'
    return problem(STATUS[error.code], error.message, code=error.code, headers=headers)


async def _on_ett_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EttError)
    return told(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path[:MAX_ECHO]}. The paths are listed at /openapi.json."
    elif error.status_code == 405:
        detail = f"{request.method} is not a method of {request.url.path[:MAX_ECHO]}."
    return problem(error.status_code, detail, headers=error.headers)


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = _reasons(error.errors())
    detail = "; ".join(f"{one['where']}: {one['reason']}" for one in found[:5])
    return problem(400, detail, code="invalid", errors=found)


def _reasons(errors: Sequence[Mapping[str, object]]) -> list[dict[str, str]]:
    """Where and why, without the sender's value: it may be huge, or not representable."""
    out = []
    for one in errors[:100]:
        where = one["loc"]
        assert isinstance(where, tuple)
        place, *names = (str(part) for part in where)
        reason = "there is no such parameter here" if one["type"] == "extra_forbidden" else str(one["msg"])
        out.append({"where": ".".join(names)[:MAX_ECHO] or place, "in": place, "reason": reason[:MAX_ECHO]})
    return out
