"""Every scenario stored and booked by the worker: what the database holds is what the core says.

Delivered twice, in small batches out of order, and booked in between: the books are those of one clean delivery.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.core.ledger import Books, Ledger
from fleet_ett.core.policy import Policy
from fleet_ett.ingest import Agent, Batch
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.postgres.tables import metadata
from fleet_ett.replay.wire_file import WireFile
from fleet_ett.worker import book_due_jobs, rebuild
from tests.judge.fleet_plan import plan_fleet
from tests.judge.verdict import decoded
from tests.scenarios import Scenario, all_scenarios

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ett_collector.wire import Event

POLICY = Policy()
MINUTE, DAY = 60_000_000_000, 86_400_000_000_000


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda one: one.name)
def test_stored_books_are_the_cores(scenario: Scenario, engine: Engine) -> None:
    events = list(WireFile(scenario.lines).events())
    compare(engine, events, newest(events) if scenario.as_of is None else scenario.as_of)


@pytest.mark.parametrize("seed", range(int(os.environ.get("ETT_TEST_FLEETS", "12"))))
def test_stored_books_of_a_random_fleet_are_the_cores(seed: int, engine: Engine) -> None:
    """`ETT_TEST_FLEETS=500` looks harder."""
    plan = plan_fleet(seed, 1 + seed % 3)
    compare(engine, decoded(plan), plan.now)


def newest(events: list[Event]) -> int:
    stamps = [e.start - e.clock_offset_ns for e in events if e.start is not None]
    stamps += [e.end - e.clock_offset_ns for e in events if e.end is not None]
    return max(stamps, default=0)


def compare(engine: Engine, events: list[Event], as_of: int) -> None:
    """Store, book and book anew; the tables against the core."""
    with engine.begin() as conn:
        conn.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    deliver(engine, events, now=max(newest(events), as_of) + MINUTE, as_of=as_of)
    book_due_jobs(engine, POLICY, clock=lambda: as_of + DAY)  # past every pace
    rebuild(engine, POLICY, as_of=as_of)
    books = Books(POLICY)
    books.add(events)
    expected = {job: shown(books.ledger(job, now=as_of)) for job in books.jobs()}
    found = stored(engine)
    assert expected.keys() == found.keys()
    for job, ledger in expected.items():
        for part, told in ledger.items():
            assert told == found[job][part], (job, part)


def deliver(engine: Engine, events: list[Event], *, now: int, as_of: int) -> None:
    """Everything at least once, out of order, in batches of one source; booked from time to time."""
    store = PostgresStore(engine)
    chance = random.Random(len(events))
    cards = [*events, *chance.choices(events, k=len(events) // 3)]
    chance.shuffle(cards)
    for low in range(0, len(cards), 40):
        by_source: dict[tuple[str, int], list[Event]] = {}
        for event in cards[low : low + 40]:
            by_source.setdefault((event.node, event.clock_offset_ns), []).append(event)
        for (node, offset), told in by_source.items():
            store(Batch(Agent(node, "envelope", None), offset, told, list(range(len(told)))), now=now)
        if chance.random() < 0.2:
            book_due_jobs(engine, POLICY, clock=lambda: as_of)


def shown(ledger: Ledger) -> dict[str, Any]:
    """A job's books as plain values."""
    return {
        "summary": plain(ledger.summary.sums_to_json()),
        "incidents": [
            (i.index, i.at, i.outcome, i.cause, i.component, list(i.evidence), i.stall_ns, i.gap_ns, i.restart_ns,
             i.replay_ns, i.gpu_ns, i.detection_ns, i.rolled_back_to, i.replayed_steps)
            for i in ledger.summary.incidents
        ],
        "attempts": [plain(books.summary.to_json()) for books in ledger.attempts],
        "carries": [plain(books.carry.to_json()) for books in ledger.attempts],
        "cells": sorted(
            (books.summary.index, c.hour, c.heading, c.phase, c.component, c.repeated, c.wall_ns, c.gpu_ns,
             c.settled_wall_ns, c.settled_gpu_ns)
            for books in ledger.attempts for c in books.cells
        ),
        "segments": [
            (books.summary.index, s.start, s.end, s.heading, s.phase, s.component, s.rank, s.node, s.repeated, s.gpus,
             s.settled)
            for books in ledger.attempts for s in books.segments.rows()
        ],
        "held": sorted(
            (books.summary.index, h.hour, h.node, h.rank, h.phase, h.component, h.wall_ns, h.gpu_ns)
            for books in ledger.attempts for h in books.held
        ),
        "work": sorted(
            (books.summary.index, w.phase, w.work_key, w.start, w.wall_ns, w.gpu_ns, w.seen_in_job)
            for books in ledger.attempts for w in books.work
        ),
    }  # fmt: skip


def stored(engine: Engine) -> dict[str, dict[str, Any]]:
    """The same from the tables."""
    queries = {
        "cells": "SELECT a.index, hour_ns, heading, phase, component, repeated, wall_ns, gpu_ns, settled_wall_ns,"
        " settled_gpu_ns FROM ledger t",
        "segments": "SELECT a.index, t.start_ns, t.end_ns, heading, phase, component, rank, node, repeated, t.gpus,"
        " settled FROM segments t",
        "held": "SELECT a.index, hour_ns, node, rank, phase, component, wall_ns, gpu_ns FROM held_up t",
        "incidents": "SELECT a.index, at_ns, t.outcome, cause, component, evidence, stall_ns, gap_ns, restart_ns,"
        " replay_ns, t.gpu_ns, detection_ns, rolled_back_to, replayed_steps FROM incidents t",
        "work": "SELECT a.index, phase, work_key, t.start_ns, wall_ns, gpu_ns, seen_in_job FROM work t",
    }
    out: dict[str, dict[str, Any]] = {}
    with engine.connect() as conn:
        for job_id, job, summary, error in conn.exec_driver_sql(
            "SELECT job_id, job, summary, error FROM jobs"
        ).all():
            assert error is None
            booked = f"FROM attempts WHERE job_id = {job_id} AND index IS NOT NULL ORDER BY index"
            found: dict[str, Any] = {
                "summary": summary,
                "attempts": list(conn.exec_driver_sql(f"SELECT summary {booked}").scalars()),
                "carries": list(conn.exec_driver_sql(f"SELECT carry {booked}").scalars()),
            }
            for name, query in queries.items():
                joined = f"{query} JOIN attempts a USING (job_id, attempt_id) WHERE t.job_id = {job_id}"
                rows = (
                    sorted(tuple(row) for row in conn.exec_driver_sql(joined))
                    if name != "segments"
                    else [
                        tuple(row) for row in conn.exec_driver_sql(f"{joined} ORDER BY a.index, t.start_ns")
                    ]
                )
                found[name] = rows
            out[job] = found
    return out


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))
