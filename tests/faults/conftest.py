"""Fixtures of the fault tests: servers that may be ill-treated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet_ett.postgres.migrate import migrate
from tests.faults.server import Server, servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[..., Server]]:
    """Makes servers for a module: `make(name, *options)`."""
    with servers() as made:
        yield made


@pytest.fixture(scope="module")
def server(make: Callable[..., Server]) -> Server:
    """A server with the newest migration, for a module; tests leave it running."""
    made = make("first", "max_connections=30").create()
    migrate(made.url)
    return made
