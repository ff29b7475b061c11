"""The door of the routes to the books: `app.py` puts an opener into the application's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from fleet_ett.http.door import grant_of
from fleet_ett.limited import TeamReads
from fleet_ett.reads import Reads

OpenBooks = Callable[[], AbstractContextManager[Reads]]


def books_of(request: Request) -> OpenBooks:
    """The opener: one `with open_books() as books:` is one consistent snapshot, of what the bearer may see."""
    opener = cast("OpenBooks", request.app.state.open_books)
    grant = grant_of(request)
    if grant is None or not grant.teams:
        return opener

    @contextmanager
    def open_teams() -> Iterator[Reads]:
        with opener() as books:
            yield TeamReads(books, grant.teams)

    return open_teams


Books = Annotated[OpenBooks, Depends(books_of)]
