"""What the tests of the database share: a store on its tables, looks into them, a folder for a server of their own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.postgres.embedded.leftovers import processes_in
from fleet_ett.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

TABLES = (
    "jobs, attempts, attempt_nodes, sources, nodes, events, job_facts, marks, ledger, segments, held_up, work,"
    " incidents, counters, counter_totals, counter_deltas, tenants, quarantine, ingest_counts, owners, retention,"
    " ledger_deltas, fleet_hours,"
    " fleet_days, tenant_days, ledger_days, job_hours, job_days, team_hours, team_days,"
    " ledger_lives, job_lives, weight_hours, weight_days, work_lives,"
    " job_totals, custom_totals"
)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that the server's user can reach, which pytest's own temporary folders are not for root."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    yield parent / "data"
    assert [] == processes_in(parent / "data" / "postgres")
    shutil.rmtree(parent)


@pytest.fixture
def store(engine: Engine) -> PostgresStore:
    """A store on empty tables."""
    with engine.begin() as conn:
        conn.exec_driver_sql(f"TRUNCATE {TABLES} RESTART IDENTITY")
    return PostgresStore(engine)


@pytest.fixture
def rows(engine: Engine) -> Callable[[str], list[tuple[Any, ...]]]:
    """Asks the database a question."""

    def ask(query: str) -> list[tuple[Any, ...]]:
        with engine.connect() as conn:
            return [tuple(row) for row in conn.exec_driver_sql(query)]

    return ask
