"""Components: every owner's loss, and a page of its own for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from fleet_ett.core.ratios import ett
from fleet_ett.core.taxonomy import DEFAULT
from fleet_ett.errors import NotFound
from fleet_ett.http.answers import answer, cut, page_of
from fleet_ett.http.books import Books
from fleet_ett.http.figures import number
from fleet_ett.http.losses import held_in, held_scope, with_share
from fleet_ett.http.openapi import READS, READS_ONE
from fleet_ett.http.owner_schemas import ComponentPage, ComponentRow
from fleet_ett.http.questions import ComponentQuery, PagedQuery
from fleet_ett.http.schemas import Listing
from fleet_ett.reads import Page

if TYPE_CHECKING:
    from fleet_ett.reads import Reads, Row, Scope

router = APIRouter(prefix="/v1/components", tags=["components"])
ALL = Page(100_000)
MOST = 100  # phases, causes and jobs on a page
COLUMNS = (
    "direct_ns",
    "direct_gpu_ns",
    "direct_settled_ns",
    "direct_settled_gpu_ns",
    "induced_ns",
    "induced_gpu_ns",
    "incidents",
)


@router.get("", response_model=Listing[ComponentRow], responses=READS, summary="Components")
def list_components(request: Request, open_books: Books, query: Annotated[PagedQuery, Query()]) -> Response:
    """All components in the order of their names, with what they lost; also those that lost nothing."""
    page = page_of(request, query.limit, query.cursor, (str,))
    scope = query.scope()
    with open_books() as books:
        gpu_ns = number(held_in(books, scope), "gpu_ns")
        found = _components(books, scope, gpu_ns)
    after = page.after[0] if page.after else ""
    wanted = scope.filters.component
    names = [name for name in sorted(found) if name > str(after) and (not wanted or name in wanted)]
    rows: list[Row] = [{"_key": (name,), "name": name} for name in names[: page.limit]]
    rows, following = cut(request, rows, query.limit)
    items = [found[str(row["name"])] for row in rows]
    return answer(request, Listing[ComponentRow](items=items, next=following), items)


@router.get("/{name}", response_model=ComponentPage, responses=READS_ONE, summary="A component's page")
def get_component(
    request: Request,
    open_books: Books,
    name: Annotated[str, Path(examples=["compiler"])],
    query: Annotated[ComponentQuery, Query()],
) -> Response:
    """Direct and induced loss, its trend, and the jobs and nodes where it lost most."""
    whole = query.scope()
    scope = replace(whole, filters=replace(whole.filters, component=(name,)))
    groups = {"phases": "phase", "causes": "cause", "worst_jobs": "job"}
    with open_books() as books:
        gpu_ns = number(held_in(books, whole), "gpu_ns")
        found = _components(books, scope, gpu_ns).get(name)
        if found is None:
            msg = f"there is no component {name[:200]!r}; /v1/components lists them"
            raise NotFound(msg)
        lost = {part: with_share(books.worst(scope, (by,), MOST), gpu_ns) for part, by in groups.items()}
        trend = _trend(books, whole, scope, query.trend)
        nodes, _ = cut(request, books.nodes(scope, Page(query.worst)), query.worst)
    page = ComponentPage.model_validate(
        found.model_dump()
        | {
            **lost,
            "trend": trend,
            "worst_jobs": lost["worst_jobs"][: query.worst],
            "worst_nodes": nodes,
        }
    )
    return answer(request, page)


def _components(books: Reads, scope: Scope, gpu_ns: int) -> dict[str, ComponentRow]:
    """Every component that the taxonomy, the owners or the books know."""
    owners = books.owners()
    lost = {str(row["component"]): row for row in books.lost_time(scope, ("component",), ALL)}
    out = {}
    for name in {*DEFAULT.components, *owners, *lost}:
        figures: Row = {column: _amount(lost.get(name, {}), column) for column in COLUMNS}
        figures["direct_share"] = ett(_amount(figures, "direct_gpu_ns"), gpu_ns)
        out[name] = ComponentRow.model_validate(
            {"component": name, "owner": owners.get(name, name)} | figures
        )
    return out


def _trend(books: Reads, whole: Scope, scope: Scope, step: str) -> list[Row]:
    """Loss by period, each as a share of what that period held; also periods in which nothing was lost."""
    held = {number(row, step): number(row, "gpu_ns") for row in books.held(held_scope(whole), (step,))}
    lost = {number(row, step): row for row in books.lost_time(scope, (step,), ALL)}
    out: list[Row] = []
    for start in sorted({*held, *lost}):
        row: Row = {column: _amount(lost.get(start, {}), column) for column in COLUMNS}
        share = ett(_amount(row, "direct_gpu_ns"), held.get(start, 0))
        out.append(row | {"start": start, "direct_share": share})
    return out


def _amount(row: Row, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0
