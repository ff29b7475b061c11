"""What the database must hold in the end: each acknowledged event once, and the books of an undisturbed run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

from fleet_ett.core.ledger import Books
from fleet_ett.core.policy import Policy
from fleet_ett.ingest import decode_batch

if TYPE_CHECKING:
    from tests.faults.senders import Sender

BOOKED_S = 60
_SINGLE = (
    "SELECT s.incarnation, e.seq, count(*) FROM (SELECT source_id, seq FROM events UNION ALL"
    " SELECT source_id, seq FROM job_facts) e JOIN sources s USING (source_id) GROUP BY 1, 2"
)
_SUMMARIES = "SELECT job, summary, error FROM jobs WHERE job = ANY(%s) ORDER BY job"
_LEDGERS = (
    "SELECT job, a.index, hour_ns, heading, phase, component, repeated, wall_ns, gpu_ns FROM ledger l"
    " JOIN attempts a USING (job_id, attempt_id) JOIN jobs j ON j.job_id = l.job_id WHERE job = ANY(%s)"
)
_COUNTERS = (
    "SELECT job, c.labels->>'heading', c.value FROM counters c JOIN jobs USING (job_id)"
    " WHERE c.name = 'gpu_seconds'"
)


def check_events(conninfo: str, senders: list[Sender]) -> None:
    """Every acknowledged event is there, and none twice."""
    with psycopg.connect(conninfo) as conn:
        found = {(incarnation, seq): count for incarnation, seq, count in conn.execute(_SINGLE)}
    assert {1} == set(found.values())
    acknowledged = {(one.agent.incarnation, seq) for one in senders for seq in one.acknowledged}
    assert set() == acknowledged - found.keys()


def check_books(conninfo: str, senders: list[Sender]) -> None:
    """The books become, and are, what the core says of everything that was said."""
    expected = _expected(senders)
    until = time.monotonic() + BOOKED_S
    jobs = [job for job, _, _ in expected["jobs"]]
    while (found := _found(conninfo, jobs)) != expected:
        assert time.monotonic() < until, _difference(expected, found)
        time.sleep(0.1)


def counters(conninfo: str) -> dict[tuple[str, str], int]:
    """Settled GPU-nanoseconds by job and heading, as Prometheus counts them."""
    with psycopg.connect(conninfo) as conn:
        return {(job, heading): int(value) for job, heading, value in conn.execute(_COUNTERS)}


def _expected(senders: list[Sender]) -> dict[str, Any]:
    books = Books(Policy())
    now = time.time_ns()
    for one in senders:
        books.add(decode_batch(one.agent.body(), now=now).singly().events)
    ledgers = {job: books.ledger(job, now=now) for job in books.jobs()}
    cells = sorted(
        (job, attempt.summary.index, c.hour, c.heading, c.phase, c.component, c.repeated, c.wall_ns, c.gpu_ns)
        for job, ledger in ledgers.items() for attempt in ledger.attempts for c in attempt.cells
    )  # fmt: skip
    return {
        "jobs": [(job, ledger.summary.wall_ns, None) for job, ledger in sorted(ledgers.items())],
        "cells": cells,
    }


def _found(conninfo: str, wanted: list[str]) -> dict[str, Any]:
    with psycopg.connect(conninfo) as conn:
        jobs = [
            (job, (summary or {}).get("wall_ns"), error)
            for job, summary, error in conn.execute(_SUMMARIES, [wanted])
        ]
        return {"jobs": jobs, "cells": sorted(conn.execute(_LEDGERS, [wanted]).fetchall())}


def _difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    missing = [one for one in expected["cells"] if one not in found["cells"]]
    more = [one for one in found["cells"] if one not in expected["cells"]]
    return (
        f"jobs {found['jobs']} for {expected['jobs']}; cells missing {missing[:5]}, cells too many {more[:5]}"
    )
