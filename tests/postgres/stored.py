"""Books as they are stored, beside what the core says of the same events."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from fleet_ett.core.ledger import attribute
from fleet_ett.core.policy import Policy
from fleet_ett.ingest import decode_batch
from fleet_ett.worker import book_due_jobs
from tests.postgres.agents import HOUR, Agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from fleet_ett.core.ledger import Ledger

    Rows = Callable[[str], list[tuple[Any, ...]]]

NOW = time.time_ns()
LONG_AGO = NOW - 48 * HOUR
POLICY = Policy()
BOOKS = {
    "ledger": "SELECT * FROM ledger ORDER BY 1, 2, 3, 4, 5, 6, 7",
    "segments": "SELECT * FROM segments ORDER BY 1, 3",
    "held_up": "SELECT * FROM held_up ORDER BY 1, 2, 3, 4, 5, 8, 9",
    "work": "SELECT * FROM work ORDER BY 1, 2, 3, 4",
    "incidents": "SELECT * FROM incidents ORDER BY 1, 2",
    "attempts": "SELECT attempt, index, start_ns, end_ns, live, outcome, gpus, carry::text, summary::text"
    " FROM attempts ORDER BY job_id, index",
    "jobs": "SELECT job, name, cluster, team, start_ns, end_ns, live, error, summary::text FROM jobs ORDER BY job",
}


class Clock:
    """The service's time in a test; it goes a little further each time it is asked."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def book(engine: Engine, now: int = NOW) -> int:
    """Book all that is due at about `now`."""
    return book_due_jobs(engine, POLICY, clock=Clock(now))


def books(rows: Rows) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows(query) for name, query in BOOKS.items()}


def said(*agents: Agent, now: int, job: str | None = None) -> Ledger:
    """What the core says of everything that the agents said."""
    events = [event for agent in agents for event in decode_batch(agent.body(), now=None).singly().events]
    return attribute([event for event in events if job is None or event.job in (job, None)], now=now)


def summary_of(rows: Rows, job: str) -> dict[str, Any]:
    (found,) = rows(f"SELECT summary FROM jobs WHERE job = '{job}'")
    assert found[0] is not None
    return dict(found[0])


def attempts_of(rows: Rows, job: str) -> list[dict[str, Any]]:
    query = "SELECT a.summary FROM attempts a JOIN jobs USING (job_id)"
    return [dict(one) for (one,) in rows(f"{query} WHERE job = '{job}' AND index IS NOT NULL ORDER BY index")]


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))


def check(rows: Rows, job: str, ledger: Ledger) -> None:
    """The stored books of a job are the core's, row by row."""
    assert plain(ledger.summary.sums_to_json()) == summary_of(rows, job)
    assert [plain(books.summary.to_json()) for books in ledger.attempts] == attempts_of(rows, job)
    incidents = [(one.attempt, one.at, one.cause, one.gpu_ns) for one in ledger.summary.incidents]
    of_job = (
        f"FROM {{}} JOIN jobs USING (job_id) JOIN attempts USING (job_id, attempt_id) WHERE job = '{job}'"
    )
    assert incidents == rows(f"SELECT attempt, at_ns, cause, gpu_ns {of_job.format('incidents')} ORDER BY 2")
    cells = [
        (
            books.summary.attempt,
            cell.hour,
            cell.heading,
            cell.phase,
            cell.component,
            cell.repeated,
            cell.wall_ns,
            cell.gpu_ns,
        )
        for books in ledger.attempts
        for cell in books.cells
    ]
    columns = "attempt, hour_ns, heading, phase, component, repeated, wall_ns, gpu_ns"
    assert sorted(cells) == sorted(rows(f"SELECT {columns} {of_job.format('ledger')}"))
    segments = [
        (one.start, one.end, one.heading, one.rank, one.node, one.gpus, one.settled)
        for books in ledger.attempts
        for one in books.segments.rows()
    ]
    columns = "segments.start_ns, segments.end_ns, heading, rank, node, segments.gpus, settled"
    assert segments == rows(f"SELECT {columns} {of_job.format('segments')} ORDER BY 1")
