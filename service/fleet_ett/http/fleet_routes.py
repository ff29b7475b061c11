"""The fleet's figures: ETT, lost time, repeated work. Sums first, then ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet_ett.core.ratios import ett
from fleet_ett.errors import Invalid
from fleet_ett.http.answers import answer, cut, page_of, unasked
from fleet_ett.http.books import Books
from fleet_ett.http.figures import added_up, fleet_figures, number
from fleet_ett.http.losses import held_in, with_share
from fleet_ett.http.openapi import READS
from fleet_ett.http.questions import GroupedQuery, PagedQuery, parse_by
from fleet_ett.http.schemas import (
    Ett,
    EttRow,
    FleetEtt,
    Groups,
    KeyRow,
    LostGroups,
    LostRow,
    LostTime,
    RepeatedWork,
)
from fleet_ett.reads import DIRECT_BY, ETT_BY, INDUCED_BY, LOST_BY, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.reads import Row

router = APIRouter(prefix="/v1/fleet", tags=["fleet"])
NAMES = {"cluster", "team", "model", "framework"}
KEY_TYPES: dict[str, type] = {"hour": int, "day": int, "week": int, "repeated": bool}


@router.get("/ett", response_model=FleetEtt, responses=READS, summary="ETT and its parts")
def get_ett(request: Request, open_books: Books, query: Annotated[GroupedQuery, Query()]) -> Response:
    """ETT of the fleet, GPU-weighted, wall-weighted and job-weighted, in total and in groups.

    `by`: cluster, team, model, framework, job, hour, day, week (UTC, weeks from Monday; a group's time
    is its start in ns). A window that cuts an hour is exact: neighbouring windows add up to the ns.
    """
    by = parse_by(query.by, ETT_BY)
    scope = query.scope()
    page = page_of(request, query.limit, query.cursor, key_shape(by))
    with open_books() as books:
        found = books.ett(scope, by, page) if by else []
        if not found or page.after is not None or len(found) > query.limit or "job" in by:
            total = fleet_figures(books.ett(scope, (), Page(1))[0])
        else:  # all groups are there; in those of such names every job is once
            total = fleet_figures(added_up(found, None if set(by) <= NAMES else books.weights(scope)))
    rows, following = cut(request, found, query.limit)
    total.pop("_key", None)
    items = [EttRow.model_validate(fleet_figures(row)) for row in rows]
    body = FleetEtt.model_validate(total | {"by": list(by), "items": items, "next": following})
    return answer(request, body, items if by else [Ett.model_validate(total)], hidden=unasked(Groups, by))


@router.get("/lost-time", response_model=LostTime, responses=READS, summary="Lost time and its owners")
def get_lost_time(request: Request, open_books: Books, query: Annotated[GroupedQuery, Query()]) -> Response:
    """Everything that was not productive, by owner: direct (whose phase it was) and induced (who ended the attempt).

    `by` (default component): component, owner, phase, heading, repeated, cause, kind, and the groups of
    `/v1/fleet/ett`. Bookings have no cause and incidents no phase, so the two cannot be combined.
    """
    by = parse_by(query.by, LOST_BY) or ("component",)
    if set(by) & set(DIRECT_BY) and set(by) & set(INDUCED_BY):
        msg = f"by cannot combine {', '.join(DIRECT_BY)} (bookings) with {', '.join(INDUCED_BY)} (incidents)"
        raise Invalid(msg)
    scope = query.scope()
    if scope.filters.cause and (scope.filters.phase or set(by) & set(DIRECT_BY)):
        msg = "cause filters incidents, which have no phase or heading"
        raise Invalid(msg)
    page = page_of(request, query.limit, query.cursor, key_shape(by))
    with open_books() as books:
        held = held_in(books, scope)
        rows, following = cut(request, books.lost_time(scope, by, page), query.limit)
    gpu_ns, productive = number(held, "gpu_ns"), number(held, "productive_gpu_ns")
    items = [LostRow.model_validate(row) for row in with_share(rows, gpu_ns)]
    body = LostTime(
        by=list(by),
        items=items,
        next=following,
        gpu_ns=gpu_ns,
        productive_gpu_ns=productive,
        lost_gpu_ns=gpu_ns - productive,
    )
    return answer(request, body, items, hidden=unasked(LostGroups, by))


@router.get("/repeated-work", response_model=RepeatedWork, responses=READS, summary="What was done twice")
def get_repeated_work(request: Request, open_books: Books, query: Annotated[PagedQuery, Query()]) -> Response:
    """Steps trained again, startup done again, and the part that a shared cache would have saved.

    `items` are the work keys that were done more than once, the dearest first, across jobs.
    """
    scope = query.scope()
    page = page_of(request, query.limit, query.cursor, (int, str, str))
    with open_books() as books:
        sums, found = books.repeated_work(scope, page)
    rows, following = cut(request, found, query.limit)
    items = [KeyRow.model_validate(row) for row in rows]
    share = ett(number(sums, "cacheable_gpu_ns"), number(sums, "keyed_gpu_ns"))
    more: Row = {"cacheable_share": share, "items": items, "next": following}
    return answer(request, RepeatedWork.model_validate(sums | more), items)


def key_shape(by: Sequence[str]) -> tuple[type, ...]:
    """The types of a group's sort key."""
    return tuple(KEY_TYPES.get(name, str) for name in by)
