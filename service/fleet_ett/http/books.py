"""The door of the routes to the books: `app.py` puts an opener into the application's state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from fleet_ett.reads import Reads

OpenBooks = Callable[[], AbstractContextManager[Reads]]


def books_of(request: Request) -> OpenBooks:
    """The opener: one `with open_books() as books:` is one consistent snapshot."""
    return cast("OpenBooks", request.app.state.open_books)


Books = Annotated[OpenBooks, Depends(books_of)]
