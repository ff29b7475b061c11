"""What a database says of some jobs, without what depends on who heard it when."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import namedtuple_row

from fleet_ett.postgres.event_rows import CODES

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOKED_S = 60
_ATTEMPTS = (
    "SELECT job, attempt, a.index, a.start_ns, a.end_ns, a.live, a.outcome, a.gpus, a.summary"
    " FROM attempts a JOIN jobs USING (job_id) ORDER BY 1, 2"
)
_LEDGER = (
    "SELECT job, a.index, hour_ns, heading, phase, component, repeated, wall_ns, gpu_ns FROM ledger l"
    " JOIN attempts a USING (job_id, attempt_id) JOIN jobs j ON j.job_id = l.job_id"
)
_SENT = (
    "SELECT node, incarnation, seq, count(DISTINCT digest) FROM (SELECT source_id, seq, digest FROM events"
    " UNION ALL SELECT source_id, seq, digest FROM job_facts) e JOIN sources USING (source_id) GROUP BY 1, 2, 3"
)
_BEATS = "SELECT start_ns, e.body FROM events e WHERE type = %s ORDER BY 1"
_WAITING = "SELECT job, error, live FROM jobs"
# What trainers said and how attempts ended. Not who lived when and what was shown as open meanwhile; starts are united.
_FACTS = (
    "SELECT job, attempt, rank, type, phase, e.start_ns, e.end_ns, first_step, last_step, cursor_start, cursor_end,"
    " coalesce(data_wait_ns, 0) AS wait_ns, slowest_ns, e.body::jsonb::text FROM events e JOIN jobs USING (job_id)"
    " JOIN attempts USING (job_id, attempt_id) WHERE type <> ALL(%s) ORDER BY job, attempt, rank, e.start_ns"
)
_AS_IT_CAME = [CODES[name] for name in ("heartbeat", "phase_open", "attempt_start")]
_OF_DELIVERY = ("settled_until", "provisional_ns")  # of an attempt's summary


def identities(conninfo: str) -> dict[tuple[str, str], list[int]]:
    """The numbers of the events of each life of each node's agent; fails where two events share one."""
    found: dict[tuple[str, str], list[int]] = {}
    with psycopg.connect(conninfo) as conn:
        for node, incarnation, seq, count in conn.execute(_SENT):
            assert 1 == count, (node, incarnation, seq)
            found.setdefault((node, incarnation), []).append(seq)
    return {key: sorted(numbers) for key, numbers in found.items()}


def ended(conninfo: str) -> int:
    """How many attempts have an end, by their agent's word."""
    query = "SELECT count(DISTINCT attempt_id) FROM events WHERE type = %s"
    with psycopg.connect(conninfo) as conn:
        (count,) = conn.execute(query, [CODES["attempt_end"]]).fetchall()[0]
    return int(count)


def quarantined(conninfo: str) -> list[tuple[Any, ...]]:
    """What was refused, with reasons."""
    with psycopg.connect(conninfo) as conn:
        return conn.execute("SELECT * FROM quarantine").fetchall()


def beats(conninfo: str) -> list[dict[str, Any]]:
    """Who was seen alive, when: the heartbeats as events of the wire."""
    with psycopg.connect(conninfo) as conn:
        rows = conn.execute(_BEATS, [CODES["heartbeat"]]).fetchall()
    return [
        {"type": "heartbeat", "seq": seq, "ts": at, **(body or {})} for seq, (at, body) in enumerate(rows)
    ]


def facts(conninfo: str) -> list[tuple[Any, ...]]:
    """All that trainers did, by whichever agent's life it was told, and however their steps were cut into windows."""
    with psycopg.connect(conninfo, row_factory=namedtuple_row) as conn:
        rows = conn.execute(_FACTS, [_AS_IT_CAME]).fetchall()
    steps = [row for row in rows if row.type == CODES["steps"]]
    return sorted([*united(steps), *(row for row in rows if row.type != CODES["steps"])], key=repr)


def united(windows: list[Any]) -> list[Any]:
    """Windows of steps, in order, with those as one of which the later goes on exactly where the earlier ends."""
    out: list[Any] = []
    for one in windows:
        before = out[-1] if out else None
        if before is None or _end(before) != (one[:3], one.first_step, one.start_ns, one.cursor_start):
            out.append(one)
            continue
        out[-1] = before._replace(
            end_ns=one.end_ns,
            last_step=one.last_step,
            cursor_end=one.cursor_end,
            wait_ns=before.wait_ns + one.wait_ns,
            slowest_ns=max(before.slowest_ns, one.slowest_ns),
        )
    return out


def _end(window: Any) -> tuple[Any, ...]:
    return window[:3], window.last_step + 1, window.end_ns, window.cursor_end


def long_windows(conninfo: str) -> int:
    """How many windows are of several steps."""
    query = "SELECT count(*) FROM events WHERE type = %s AND last_step > first_step"
    with psycopg.connect(conninfo) as conn:
        (count,) = conn.execute(query, [CODES["steps"]]).fetchall()[0]
    return int(count)


def books(conninfo: str) -> dict[str, list[Any]]:
    """Attempts with their sums and incidents, and the ledger's rows, in an order of their own."""
    with psycopg.connect(conninfo) as conn:
        attempts = [
            [*row, {name: value for name, value in summary.items() if name not in _OF_DELIVERY}]
            for *row, summary in conn.execute(_ATTEMPTS)
            if summary is not None
        ]
        ledger = sorted(map(list, conn.execute(_LEDGER)))
        jobs = sorted(map(list, conn.execute(_WAITING)))
    return {"jobs": jobs, "attempts": attempts, "ledger": ledger}


def same_books(chaos: str, quiet: str) -> None:
    """Both become, and are, the same."""
    until = time.monotonic() + BOOKED_S
    while (found := books(chaos)) != (expected := books(quiet)):
        assert time.monotonic() < until, _difference(expected, found)
        time.sleep(0.1)
    assert found["ledger"]


def same_facts(chaos: str, quiet: str) -> None:
    """Whatever trainers did was told once, and alike; also steps that were cut into windows in another way."""
    assert min(map(long_windows, (chaos, quiet))) > 0
    found, expected = facts(chaos), facts(quiet)
    assert found == expected, _difference({"facts": expected}, {"facts": found})


def _difference(expected: Mapping[str, list[Any]], found: Mapping[str, list[Any]]) -> str:
    lines = []
    for name, rows in expected.items():  # also of rows that are there, but not as often
        wanted, there = Counter(map(repr, rows)), Counter(map(repr, found[name]))
        lines += [f"{name} missing: {row}" for row in (wanted - there).elements()]
        lines += [f"{name} too many: {row}" for row in (there - wanted).elements()]
    return "\n".join(lines)
