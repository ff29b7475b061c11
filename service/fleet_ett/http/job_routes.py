"""Jobs: the list, one job's detail, its ledger, timeline and goodput view.

A job key may hold slashes; `job_paths.py` hands it over as one encoded segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet_ett.errors import Invalid, NotFound
from fleet_ett.http.answers import answer, cut, page_of, unasked
from fleet_ett.http.books import Books
from fleet_ett.http.figures import job_figures
from fleet_ett.http.job_detail import job_detail, job_ledger
from fleet_ett.http.job_paths import decode_key
from fleet_ett.http.job_schemas import (
    JobDetail,
    JobGoodput,
    JobLedger,
    JobRow,
    LedgerGroups,
    SegmentRow,
    Timeline,
)
from fleet_ett.http.openapi import READS, READS_ONE
from fleet_ett.http.questions import LedgerQuery, PagedQuery, TimelineQuery, parse_by
from fleet_ett.http.schemas import Listing
from fleet_ett.reads import LEDGER_BY, Filters, Page, Scope

if TYPE_CHECKING:
    from fleet_ett.reads import Reads, Row

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
JobKey = Annotated[
    str,
    Path(
        description="The job's key. Slashes may stay; where the key ends in /ledger, /timeline or /goodput, "
        "encode them as %2F.",
        examples=["prod-a/8812/1772452800"],
    ),
]


@router.get("", response_model=Listing[JobRow], responses=READS, summary="Jobs")
def list_jobs(request: Request, open_books: Books, query: Annotated[PagedQuery, Query()]) -> Response:
    """Jobs with their ETT, those first that the service heard of last.

    With a window: jobs that have time in it, and their figures in it. A job that holds hardware without
    any event is listed with ETT 0; one that no event gave any time, with null.
    """
    page = page_of(request, query.limit, query.cursor, (int,))
    with open_books() as books:
        rows, following = cut(request, books.jobs(query.scope(), page), query.limit)
    items = [JobRow.model_validate(job_figures(row)) for row in rows]
    return answer(request, Listing[JobRow](items=items, next=following), items)


@router.get("/{job}/ledger", response_model=JobLedger, responses=READS_ONE, summary="A job's ledger")
def get_ledger(
    request: Request, open_books: Books, job: JobKey, query: Annotated[LedgerQuery, Query()]
) -> Response:
    """Every nanosecond of the job under exactly one heading, settled and provisional.

    `by` (default heading): attempt, heading, phase, component, repeated, hour, day. A window that cuts an
    hour is exact. Filters narrow what is added up, so that `ett` is then of that part only.
    """
    key = decode_key(job)
    by = parse_by(query.by, LEDGER_BY) or ("heading",)
    scope = query.scope()
    with open_books() as books:
        found = find_job(books, key)
        cells = books.ledger(key, scope, ("heading", "phase", "component"))
        rows = books.ledger(key, scope, by)
        induced = books.lost_time(
            Scope(scope.window, Filters(job=(key,), component=scope.filters.component)),
            ("component",),
            Page(1000),
        )
    body = job_ledger(found, cells, induced, rows, by)
    return answer(request, body, body.items, hidden=unasked(LedgerGroups, by))


@router.get("/{job}/timeline", response_model=Timeline, responses=READS_ONE, summary="A job's timeline")
def get_timeline(
    request: Request, open_books: Books, job: JobKey, query: Annotated[TimelineQuery, Query()]
) -> Response:
    """The job's segments in order of time, clipped to the window, with who held the job up.

    Retention drops segments after a time (`kept_from`); the ledger keeps their sums by the hour.
    """
    key = decode_key(job)
    page = page_of(request, query.limit, query.cursor, (int,))
    scope = query.scope()
    with open_books() as books:
        found = find_job(books, key)
        rows, following = cut(request, books.timeline(key, scope, page), query.limit)
        since = books.segments_since(key)
    items = [SegmentRow.model_validate(row) for row in rows]
    begin = max(int(str(found["start"] or since)), scope.window.start or 0)
    kept_from = since if begin < since else None
    return answer(request, Timeline(items=items, next=following, kept_from=kept_from), items)


@router.get("/{job}/goodput", response_model=JobGoodput, responses=READS_ONE, summary="A job's goodput view")
def get_goodput(request: Request, open_books: Books, job: JobKey) -> Response:
    """The other convention: a step that a later attempt began again at or below was lost when it ran first.

    ETT books the first execution as productive and the second as replay; here the surviving one is
    productive. Seconds by bucket, which add up to `total_s`; `lost_progress_s` is what of `repeated_work_s`
    no later attempt has made up yet. Worked out from the raw events: 409 once retention has dropped them.
    """
    key = decode_key(job)
    with open_books() as books:
        find_job(books, key)
        found = books.goodput(key)
    return answer(request, JobGoodput.of(key, found))


@router.get("/{job}", response_model=JobDetail, responses=READS_ONE, summary="One job")
def get_job(request: Request, open_books: Books, job: JobKey) -> Response:
    """Sub-metrics, attempts, incidents, the two-level framework and the quality of the data: the whole job's."""
    key = decode_key(job)
    if request.query_params:
        msg = "a job's detail is of the whole job and takes no parameters: its ledger and timeline take a window"
        raise Invalid(msg)
    with open_books() as books:
        found = find_job(books, key)
        cells = books.ledger(key, Scope(), ("heading",))
        attempts = books.attempts(key)
        incidents = books.incidents(Scope(filters=Filters(job=(key,))), (), Page(100_000))
    return answer(request, job_detail(found, cells, attempts, incidents))


def find_job(books: Reads, key: str) -> Row:
    """The job's row. Raises `NotFound`."""
    found = None if "\0" in key else books.job(key)
    if found is None:
        msg = f"no event has ever named a job {key[:200]!r}"
        raise NotFound(msg)
    return found
