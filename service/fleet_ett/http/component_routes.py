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
from fleet_ett.http.losses import held_in, with_share
from fleet_ett.http.openapi import READS, READS_ONE
from fleet_ett.http.owner_schemas import ComponentPage, ComponentRow
from fleet_ett.http.questions import ComponentQuery, PagedQuery
from fleet_ett.http.schemas import Listing
from fleet_ett.reads import Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet_ett.reads import Reads, Row, Scope

router = APIRouter(prefix="/v1/components", tags=["components"])
ALL = Page(100_000)
MOST = 100  # phases and causes on a page
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
    scope, step = replace(whole, filters=replace(whole.filters, component=(name,))), query.trend
    with open_books() as books:
        owners = books.owners()
        found = books.component(scope, step, query.worst)
        every = [*found.phases, *found.causes]
        if not every and name not in {*DEFAULT.components, *owners}:
            msg = f"there is no component {name[:200]!r}; /v1/components lists them"
            raise NotFound(msg)
        nodes, _ = cut(request, books.nodes(scope, Page(query.worst)), query.worst)
    held = {number(row, step): number(row, "gpu_ns") for row in found.held}
    gpu_ns = sum(held.values())
    page = ComponentPage.model_validate(
        {
            **_row(name, owners, _added(every), gpu_ns),
            "phases": _parts(found.phases, "phase", gpu_ns),
            "causes": _parts(found.causes, "cause", gpu_ns),
            "trend": _trend(held, every, step),
            "worst_jobs": with_share(found.worst_jobs, gpu_ns),
            "worst_nodes": nodes,
        }
    )
    return answer(request, page)


def _components(books: Reads, scope: Scope, gpu_ns: int) -> dict[str, ComponentRow]:
    """Every component that the taxonomy, the owners or the books know."""
    owners = books.owners()
    lost = {str(row["component"]): row for row in books.lost_time(scope, ("component",), ALL)}
    return {
        name: ComponentRow.model_validate(_row(name, owners, lost.get(name, {}), gpu_ns))
        for name in {*DEFAULT.components, *owners, *lost}
    }


def _row(name: str, owners: Mapping[str, str], lost: Row, gpu_ns: int) -> Row:
    figures: Row = {column: _amount(lost, column) for column in COLUMNS}
    share = ett(_amount(figures, "direct_gpu_ns"), gpu_ns)
    return {"component": name, "owner": owners.get(name, name), **figures, "direct_share": share}


def _parts(rows: Sequence[Row], by: str, gpu_ns: int) -> list[Row]:
    """Loss by phase or cause in the whole window, the dearest first; the other view does not know them: null."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row[by]), []).append(row)
    out: list[Row] = []
    for name, own in groups.items():
        hidden = [column for column in COLUMNS if own[0][column] is None]
        out.append({by: name, **_added(own), **dict.fromkeys(hidden)})
    out.sort(key=lambda row: (-max(_amount(row, "direct_gpu_ns"), _amount(row, "induced_gpu_ns")), row[by]))
    return with_share(out[:MOST], gpu_ns)


def _added(rows: Sequence[Row]) -> Row:
    return {column: sum(_amount(row, column) for row in rows) for column in COLUMNS}


def _trend(held: Mapping[int, int], lost: Sequence[Row], step: str) -> list[Row]:
    """Loss by period, each as a share of what that period held; also periods in which nothing was lost."""
    by_start: dict[int, list[Row]] = {start: [] for start in held}
    for row in lost:
        by_start.setdefault(number(row, step), []).append(row)
    out: list[Row] = []
    for start, rows in sorted(by_start.items()):
        sums = _added(rows)
        share = ett(_amount(sums, "direct_gpu_ns"), held.get(start, 0))
        out.append({"start": start, **sums, "direct_share": share})
    return out


def _amount(row: Row, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0
