"""Fixtures of the HTTP tests: one service for each module, on a database of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.http.service import Service, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture(scope="module")
def service(engine: Engine) -> Iterator[Service]:
    """A running service whose books are empty at first."""
    with running(engine) as found:
        yield found
