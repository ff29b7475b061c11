"""Incidents: one row an end of an attempt that was not its completion."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet_ett.core.causes import KINDS
from fleet_ett.errors import Invalid
from fleet_ett.http.answers import answer, cut, page_of
from fleet_ett.http.books import Books
from fleet_ett.http.incident_rows import incident_row
from fleet_ett.http.openapi import READS
from fleet_ett.http.owner_schemas import IncidentRow
from fleet_ett.http.questions import IncidentsQuery
from fleet_ett.http.schemas import Listing

router = APIRouter(prefix="/v1/incidents", tags=["incidents"])


@router.get("", response_model=Listing[IncidentRow], responses=READS, summary="Incidents")
def list_incidents(
    request: Request, open_books: Books, query: Annotated[IncidentsQuery, Query()]
) -> Response:
    """Incidents by the time of the end, the newest first: cause, evidence, and all that they cost.

    Planned ends (preemption, resize, time limit, a user's cancel) are among them, marked by `kind`.
    """
    for kind in query.kind:
        if kind not in KINDS:
            msg = f"kind must be of {', '.join(KINDS)}, not {kind[:60]!r}"
            raise Invalid(msg)
    page = page_of(request, query.limit, query.cursor, (int, int, int))
    with open_books() as books:
        rows, following = cut(request, books.incidents(query.scope(), query.kind, page), query.limit)
    items = [incident_row(row) for row in rows]
    return answer(request, Listing[IncidentRow](items=items, next=following), items)
