"""Liveness, readiness, the Prometheus page and the front door."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from fleet_ett import __version__
from fleet_ett.http.door import grant_of
from fleet_ett.http.openapi import PROBLEMS
from fleet_ett.http.schemas import Health, Readiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet_ett.http.probe import Probe

router = APIRouter()
LINKS = {
    "fleet_ett": "/v1/fleet/ett?by=cluster",
    "lost_time": "/v1/fleet/lost-time?by=component",
    "repeated_work": "/v1/fleet/repeated-work",
    "jobs": "/v1/jobs",
    "incidents": "/v1/incidents",
    "components": "/v1/components",
    "nodes": "/v1/nodes",
    "quarantine": "/v1/quarantine",
    "openapi": "/openapi.json",
    "docs": "/docs",
    "metrics": "/metrics",
    "health": "/healthz",
    "readiness": "/readyz",
}


@router.get("/", include_in_schema=False)
def get_root(request: Request) -> Response:
    """What is here: links, as a page for browsers and as JSON for the rest."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"service": "fleet-ett", "version": __version__, "links": LINKS})
    items = "".join(
        f'<li><a href="{html.escape(path)}">{name.replace("_", " ")}</a></li>' for name, path in LINKS.items()
    )
    return HTMLResponse(
        f'<!doctype html><html lang="en"><title>fleet-ett</title><h1>fleet-ett {__version__}</h1>'
        f"<p>Effective training time of a fleet.</p><ul>{items}</ul></html>"
    )


@router.get("/healthz", response_model=Health, tags=["service"], summary="Liveness")
async def get_health() -> Health:
    """The process lives. It asks nobody else: a database that is away, or hangs, must not restart the service."""
    return Health(status="ok", version=__version__)


@router.get("/readyz", response_model=Readiness, responses=PROBLEMS, tags=["service"], summary="Readiness")
async def get_readiness(request: Request) -> Readiness:
    """The database is at the newest migration and takes writes, now; otherwise 503 that says what is not so.

    Of a fleet of several servers it is the home, and `away` tells what is wrong with others: their jobs' events get
    503, and so do questions about all jobs.
    """
    current, away = await cast("Probe[tuple[str, list[str]]]", request.app.state.ready)()
    return Readiness(status="partly" if away else "ready", migration=current, head=current, away=away)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **PROBLEMS},
    tags=["service"],
    summary="Prometheus",
)
def get_metrics(request: Request) -> Response:
    """Counters and gauges of the whole fleet from the database: the same from every process."""
    grant = grant_of(request)
    if grant is not None:
        grant.may_scrape()
    expose = cast("Callable[[str], tuple[bytes, str]]", request.app.state.expose_metrics)
    body, media_type = expose(request.headers.get("accept", ""))
    return Response(body, 200, {"Cache-Control": "no-store"}, media_type)
