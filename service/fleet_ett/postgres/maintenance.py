"""Housekeeping: partitions ahead, bounds on what is kept, and books dropped to be made again.

Retention drops whole partitions of raw events. An attempt's events are kept together until the last of them is
old enough, and those of books that are not made yet longer; what is dropped once stays refused. Segments are older
detail of the ledger, which stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.errors import Unavailable
from fleet_ett.postgres import partitions, rollups, work_lives
from fleet_ett.postgres.audit import prune_audit
from fleet_ett.postgres.ledgers import DERIVED
from fleet_ett.postgres.pool import LONG_S, transaction
from fleet_ett.postgres.quarantine import prune_quarantine
from fleet_ett.postgres.tables import incidents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

log = logging.getLogger(__name__)

DAY_NS = partitions.DAY_NS
LOCK = 0x6574_7405
BATCH = 20_000  # rows that one transaction deletes, or a single job's
LOCKS = "SET LOCAL lock_timeout = '1s'"  # who waits for this lock has everybody else wait behind

_NEEDED = text(
    "SELECT min(first_ns) FROM attempts WHERE first_ns < :horizon AND (last_ns >= :horizon OR dirty OR summary IS NULL)"
)
_WAITING = text("SELECT min(first_ns) FROM marks")
_RAISE = text(
    "INSERT INTO retention (horizon_ns) VALUES (:horizon) ON CONFLICT (singleton) DO UPDATE"
    " SET horizon_ns = greatest(retention.horizon_ns, EXCLUDED.horizon_ns) RETURNING horizon_ns"
)
_RAISE_SEGMENTS = text(
    "INSERT INTO retention (horizon_ns, segments_ns) VALUES (0, :horizon) ON CONFLICT (singleton) DO UPDATE"
    " SET segments_ns = greatest(retention.segments_ns, EXCLUDED.segments_ns) RETURNING segments_ns"
)
_OLD_SEGMENTS = text(
    "SELECT job_id, count(*) FROM segments WHERE end_ns <= :horizon GROUP BY job_id ORDER BY job_id"
)
_ONE_DROPS = text("SELECT pg_advisory_xact_lock(:lock)")
_DELETE_SEGMENTS = text(
    "DELETE FROM segments WHERE job_id = ANY(:jobs) AND start_ns < :horizon AND end_ns <= :horizon"
)
_FORGET = text(
    "UPDATE attempts SET dirty = true, folded = false, link_digest = NULL, carry = NULL, carry_digest = NULL,"
    " summary = NULL, resume = NULL"
    " WHERE job_id = :job_id AND NOT coalesce(first_ns < (SELECT horizon_ns FROM retention), false)"
    " RETURNING attempt_id"
)


_UNFOLD = text("UPDATE attempts SET folded = false WHERE job_id = :job_id AND folded")
_NOTHING = text("UPDATE jobs SET state = NULL, folded = NULL WHERE job_id = :job_id")


def maintain(engine: Engine, *, retention_days: int, segment_days: int, now: int) -> None:
    """Do what has to be done about once an hour; harmless when done twice or by several at once.

    `retention_days` of raw events and `segment_days` of segments are kept, 0 for ever.
    """
    with transaction(engine, answer_s=LONG_S) as conn:
        partitions.add_partitions(conn, partitions.days_ahead(now), now=now)
    with transaction(engine, answer_s=LONG_S) as conn:
        prune_quarantine(conn, now=now)
        prune_audit(conn, now=now)
    if retention_days:
        drop_old_events(engine, keep_ns=retention_days * DAY_NS, now=now)
    if segment_days:
        drop_old_segments(engine, keep_ns=segment_days * DAY_NS, now=now)


def drop_old_segments(engine: Engine, *, keep_ns: int, now: int) -> int:
    """Delete the segments that ended before the oldest day that is kept; returns how many.

    Their hours stay in the ledger. The bound is raised first, so that readers never add up half of an hour, and
    bookings write none before it any more; then rows go in batches of jobs, by whoever comes first.
    """
    horizon = max((now - keep_ns) // DAY_NS * DAY_NS, 0)
    with transaction(engine, answer_s=LONG_S) as conn:
        horizon = conn.execute(_RAISE_SEGMENTS, {"horizon": horizon}).scalar_one()
        old = [(row[0], row[1]) for row in conn.execute(_OLD_SEGMENTS, {"horizon": horizon})]
    gone = 0
    for jobs in _batches(old):
        with transaction(engine, answer_s=LONG_S) as conn:
            conn.execute(_ONE_DROPS, {"lock": LOCK})
            gone += conn.execute(_DELETE_SEGMENTS, {"jobs": jobs, "horizon": horizon}).rowcount
    if gone:
        log.info("%d segments are dropped (retention); their hours stay in the ledger", gone)
    return gone


def _batches(rows: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Jobs in lists that have about BATCH rows; `rows`: how many each has."""
    jobs: list[int] = []
    some = 0
    for job_id, number in rows:
        jobs.append(job_id)
        some += number
        if some >= BATCH:
            yield jobs
            jobs, some = [], 0
    if jobs:
        yield jobs


def drop_old_events(engine: Engine, *, keep_ns: int, now: int) -> list[str]:
    """Drop the partitions of raw events that nobody needs; returns their names.

    From then on events of that time are refused. The books stay.
    """
    with transaction(engine, answer_s=LONG_S) as conn:
        wanted = (now - keep_ns) // DAY_NS * DAY_NS
        needed = [conn.execute(_NEEDED, {"horizon": wanted}).scalar(), conn.execute(_WAITING).scalar()]
        # a day before an attempt: faults and heartbeats of its nodes
        horizon = min([wanted, *(stamp // DAY_NS * DAY_NS - DAY_NS for stamp in needed if stamp is not None)])
        horizon = conn.execute(_RAISE, {"horizon": max(horizon, 0)}).scalar_one()
    with transaction(engine, answer_s=LONG_S) as conn:
        old = [name for name, (_, high) in partitions.partitions(conn).items() if high <= horizon]
    dropped = []
    try:
        for name in old:
            if _drop(engine, name):
                dropped.append(name)
                log.info("raw events of %s are dropped (retention)", name)
    except Unavailable:
        log.info("raw events are in use: the next hour drops what is left")
    return dropped


def _drop(engine: Engine, name: str) -> bool:
    with transaction(engine, answer_s=LONG_S) as conn:
        conn.exec_driver_sql(LOCKS)
        conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": partitions.LOCK})
        if name not in partitions.partitions(conn):
            return False
        conn.exec_driver_sql(f"ALTER TABLE events DETACH PARTITION {name}")
        conn.exec_driver_sql(f"DROP TABLE {name}")
    return True


def drop_books(conn: Connection, job_id: int) -> None:
    """Drop what is derived of a held job; attempts whose raw events are gone keep theirs."""
    conn.execute(_NOTHING, {"job_id": job_id})
    conn.execute(_UNFOLD, {"job_id": job_id})
    forgotten = conn.execute(_FORGET, {"job_id": job_id}).scalars().all()
    rollups.take_out(conn, job_id, forgotten)
    work_lives.take_out(conn, job_id, forgotten)
    for attempt_id in forgotten:
        for table in (*DERIVED, incidents):
            conn.execute(table.delete().where(table.c.job_id == job_id, table.c.attempt_id == attempt_id))
