"""Nodes that hold others up, and the events of nodes that were refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet_ett.http.answers import answer, cut, page_of
from fleet_ett.http.books import Books
from fleet_ett.http.openapi import READS
from fleet_ett.http.owner_schemas import NodeRow, QuarantineRow
from fleet_ett.http.questions import PagedQuery, QuarantineQuery
from fleet_ett.http.schemas import Listing

router = APIRouter(prefix="/v1", tags=["nodes"])


@router.get("/nodes", response_model=Listing[NodeRow], responses=READS, summary="Nodes, lemons first")
def list_nodes(request: Request, open_books: Books, query: Annotated[PagedQuery, Query()]) -> Response:
    """Nodes by the GPU time for which they held others up, with the failures and faults on them.

    Holding up is booked by the hour: a window counts the hours that begin in it. `component` and `phase` choose the
    time for which others waited, `component` and `cause` the failures. A fault is of no component, phase or cause.
    """
    page = page_of(request, query.limit, query.cursor, (int, str))
    with open_books() as books:
        rows, following = cut(request, books.nodes(query.scope(), page), query.limit)
    items = [NodeRow.model_validate(row) for row in rows]
    return answer(request, Listing[NodeRow](items=items, next=following), items)


@router.get("/quarantine", response_model=Listing[QuarantineRow], responses=READS, summary="Refused events")
def list_quarantine(
    request: Request, open_books: Books, query: Annotated[QuarantineQuery, Query()]
) -> Response:
    """Events that were refused, with the reason, the newest first. The window is of when they were received."""
    page = page_of(request, query.limit, query.cursor, (int,))
    with open_books() as books:
        rows, following = cut(request, books.quarantine(query.window(), query.node, page), query.limit)
    items = [QuarantineRow.model_validate(row) for row in rows]
    return answer(request, Listing[QuarantineRow](items=items, next=following), items)
