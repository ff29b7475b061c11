"""What the tests of the database share: a store on the module's database, and looks into its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable

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
