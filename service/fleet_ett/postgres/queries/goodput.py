"""The goodput view of one job: worked out from its raw events when asked for, kept nowhere.

It needs all attempts at once, since a later one decides what of an earlier one was lost; so it is as old as
the job's books and there only while the raw events are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from fleet_ett.core.goodput import goodput
from fleet_ett.core.ledger import AttemptBooks, Carry, Link, attribute_attempt
from fleet_ett.errors import Conflict
from fleet_ett.postgres.bookings import Bookings
from fleet_ett.postgres.tables import jobs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from fleet_ett.core.policy import Policy
    from fleet_ett.reads import Row


def read_goodput(conn: Connection, job: str, policy: Policy) -> Row | None:
    """Seconds by bucket (`productive_s` ... `total_s`, `lost_progress_s`); None for a job without books.

    Raises `Conflict` when retention has dropped raw events of the job.
    """
    found = conn.execute(select(jobs.c.job_id, jobs.c.as_of_ns).where(jobs.c.job == job)).one_or_none()
    if found is None or found.as_of_ns is None:
        return None
    _, books = Bookings.look(conn, policy, found.job_id, job)
    if any(one.frozen for one in books.attempts):
        msg = "raw events of this job are past their retention: its goodput view can no longer be worked out"
        raise Conflict(msg)
    for one in books.attempts:
        one.start, one.released = books.started(one)
    begun = sorted(
        (one for one in books.attempts if (one.start or 0) <= found.as_of_ns), key=lambda one: one.place
    )
    booked: list[AttemptBooks] = []
    carry = Carry.empty()
    for index, attempt in enumerate(begun):
        after = begun[index + 1] if index + 1 < len(begun) else None
        link = Link(index, carry, after.start if after else None, after.released if after else True)
        events = books.events(attempt, link.next_start, now=found.as_of_ns)
        booked.append(
            attribute_attempt(job, attempt.attempt, events, link, now=found.as_of_ns, policy=policy)
        )
        carry = booked[-1].carry
    return {"as_of": found.as_of_ns, **goodput(booked).to_json()}
