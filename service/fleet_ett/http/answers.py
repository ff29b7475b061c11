"""How an answer leaves: JSON, or CSV when the client prefers it, with the way to the next page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

from fleet_ett.http.paging import decode_cursor, encode_cursor, next_link
from fleet_ett.http.tables import MEDIA_TYPE, as_csv, wants_csv
from fleet_ett.reads import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel
    from starlette.requests import Request

    from fleet_ett.reads import Row

Item = TypeVar("Item", bound="BaseModel")


def page_of(request: Request, limit: int, cursor: str | None, shape: Sequence[type]) -> Page:
    """The page asked for, plus one row that tells whether there is another. Raises `Invalid`."""
    after = None if cursor is None else decode_cursor(request, cursor, shape)
    return Page(limit + 1, after)


def cut(request: Request, rows: list[Row], limit: int) -> tuple[list[Row], str | None]:
    """The rows of the page without their sort keys, and the cursor of the next page."""
    more = len(rows) > limit
    rows = rows[:limit]
    keys = [row.pop("_key") for row in rows]
    if not more:
        return rows, None
    key = keys[-1]
    assert isinstance(key, tuple)
    return rows, encode_cursor(request, key)


def answer(
    request: Request, body: BaseModel, rows: Sequence[BaseModel] | None = None, *, hidden: Sequence[str] = ()
) -> Response:
    """`body` as JSON, or `rows` (default: the body as one row) as CSV; without the fields `hidden`."""
    headers = {"Vary": "Accept", "Cache-Control": "no-store"}
    following = getattr(body, "next", None)
    if following is not None:
        headers["Link"] = next_link(request, following)
    if not wants_csv(request.headers.get("accept", "")):
        left_out: dict[str, Any] = dict.fromkeys(hidden, True) | {"items": {"__all__": set(hidden)}}
        return Response(body.model_dump_json(exclude=left_out), 200, headers, "application/json")
    rows = [body] if rows is None else rows
    columns = [name for name in _columns(body, rows) if name not in hidden]
    return Response(as_csv(columns, [row.model_dump() for row in rows]), 200, headers, MEDIA_TYPE)


def unasked(groups: type[BaseModel], by: Sequence[str]) -> list[str]:
    """The fields of `groups` that the question did not group by."""
    return [name for name in groups.model_fields if name not in by]


def _columns(body: BaseModel, rows: Sequence[BaseModel]) -> list[str]:
    """The columns, also of a page without rows: its type says what they would be."""
    if rows:
        return list(type(rows[0]).model_fields)
    items = type(body).model_fields.get("items")
    kinds = getattr(items.annotation, "__args__", ()) if items is not None else ()
    return list(kinds[0].model_fields) if kinds else []
