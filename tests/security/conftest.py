"""Fixtures of the security tests: a service with two teams' and two clusters' jobs, and tokens for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.http.service import Service, running
from tests.http.story import rollback
from tests.security.bearers import Tokens, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture(autouse=True)
def _no_test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line knows every ETT_* variable but the test run's own."""
    monkeypatch.delenv("ETT_TEST_EXAMPLES", raising=False)


@pytest.fixture(scope="module")
def service(engine: Engine) -> Iterator[Service]:
    """Two teams' and two clusters' jobs, told while there was no token."""
    with running(engine) as found:
        found.book(
            rollback("ads-1", node="n1", cluster="prod-a", team="ads"),
            rollback("search-1", node="n2", cluster="prod-b", team="search"),
        )
        yield found


@pytest.fixture
def tokens(service: Service, database_url: str, capsys: pytest.CaptureFixture[str]) -> Tokens:
    """The command line; an admin's token exists, and the service knows."""
    made = Tokens(database_url, capsys)
    made.create("--scope", "admin")
    until(401, service, "/v1/jobs")
    return made


@pytest.fixture(scope="module")
def open_service(engine: Engine) -> Iterator[Service]:
    """A service without tokens, whose books are empty at first."""
    with running(engine) as found:
        yield found
