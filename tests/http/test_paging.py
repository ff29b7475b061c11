"""Cursors are opaque and belong to one question."""

from __future__ import annotations

import base64
import json

import pytest
from starlette.requests import Request

from fleet_ett.errors import Invalid
from fleet_ett.http.paging import decode_cursor, encode_cursor, next_link


def request(path: str = "/v1/jobs", query: str = "team=a") -> Request:
    """A request for `path?query`."""
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "server": ("localhost", 80),
            "scheme": "http",
        }
    )


def test_a_cursor_gives_its_key_back() -> None:
    """Also integers beyond 64 bits, and with another page length."""
    key = (2**70, "node \u2603", True)
    cursor = encode_cursor(request(), key)
    assert key == decode_cursor(request(query="limit=7&team=a&cursor=x"), cursor, (int, str, bool))


@pytest.mark.parametrize("other", [request(query="team=b"), request(path="/v1/incidents"), request(query="")])
def test_a_cursor_of_another_question_is_refused(other: Request) -> None:
    """A cursor that was taken to other filters would skip rows in silence."""
    with pytest.raises(Invalid, match="cursor must be"):
        decode_cursor(other, encode_cursor(request(), (1,)), (int,))


def forged(*parts: object) -> str:
    """A cursor with the right question and any key."""
    question = json.loads(base64.urlsafe_b64decode(encode_cursor(request(), ()) + "=="))
    return base64.urlsafe_b64encode(json.dumps([*question, *parts]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!!!",
        "bnVsbA",
        "W10",
        "A" * 5000,
        forged(),
        forged("1"),
        forged(1.5),
        forged(True),
        forged(None),
        forged(2**200),
        forged(1, 2),
    ],
)
def test_a_forged_cursor_is_refused(cursor: str) -> None:
    """Whatever is not a key of the right shape never reaches the database."""
    with pytest.raises(Invalid, match="cursor must be"):
        decode_cursor(request(), cursor, (int,))


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_key_that_the_database_cannot_hold_is_refused(text: str) -> None:
    """NUL and lone surrogates."""
    with pytest.raises(Invalid, match="cursor must be"):
        decode_cursor(request(), forged(text), (str,))


def test_the_link_to_the_next_page_keeps_the_question() -> None:
    """All parameters but the cursor stay."""
    link = next_link(request(query="team=a&team=b&limit=2&cursor=old"), "new")
    assert '</v1/jobs?team=a&team=b&limit=2&cursor=new>; rel="next"' == link
