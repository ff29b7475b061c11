"""One event as rows of `events`, and a row as the event that it was.

What the books read most often has columns of its own; the rest of an event's fields is its `body`. Stamps are
stored corrected (stamp minus clock offset), and an event comes back exactly as it was said.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ett_collector.wire import Event
from fleet_ett.core.resume import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NODE_BEATS, NODE_FAULTS = 0, -1  # the job ids of what a node says beside all jobs
# The codes of `events.type`; never renumbered. `job` events have a table of their own.
TYPES = (
    "",
    "attempt_start",
    "attempt_end",
    "phase",
    "phase_open",
    "steps",
    "checkpoint",
    "heartbeat",
    "fault",
)
CODES = {name: code for code, name in enumerate(TYPES)}
STEPS, HEARTBEAT, FAULT = (CODES[name] for name in ("steps", "heartbeat", "fault"))
# Of these all of an attempt's are read whenever it is booked (`core.resume.ALWAYS`); an index has them alone.
RARE = tuple(code for code, name in enumerate(TYPES) if name in ALWAYS)
UNITS = (None, "optimizer_step", "micro_batch")
UNIT_CODES = {name: code for code, name in enumerate(UNITS) if name}

# The columns in the order of a COPY, with their types.
COLUMNS: dict[str, str] = {
    "job_id": "int8",
    "source_id": "int8",
    "seq": "int8",
    "start_ns": "int8",
    "digest": "int8",
    "end_ns": "int8",
    "clock_offset_ns": "int8",
    "first_step": "int8",
    "last_step": "int8",
    "cursor_start": "int8",
    "cursor_end": "int8",
    "data_wait_ns": "int8",
    "attempt_id": "int4",
    "rank": "int4",
    "type": "int2",
    "unit": "int2",
    "per_step": "int4",
    "phase": "text",
    "body": "text",
    "slowest_ns": "int8",
}
# A body's fields that are columns, by type of event.
OF_STEPS = ("first", "last", "cursor_start", "cursor_end", "data_wait", "slowest", "per_optimizer_step")
_NO_STEPS = (None,) * len(OF_STEPS)
FIRST_STEP = list(COLUMNS).index("first_step")

_content = msgspec.json.Encoder(order="deterministic").encode
_pack = msgspec.json.encode
_unpack = msgspec.json.decode


class Identity(NamedTuple):
    """What makes a row unique; two rows that differ in more than the digest are different deliveries."""

    job_id: int
    source_id: int
    seq: int
    start_ns: int
    digest: int


class Row(NamedTuple):
    """One row in the order of COLUMNS."""

    job_id: int
    source_id: int
    seq: int
    start_ns: int
    digest: int
    end_ns: int | None
    clock_offset_ns: int
    first_step: int | None
    last_step: int | None
    cursor_start: int | None
    cursor_end: int | None
    data_wait_ns: int | None
    attempt_id: int | None
    rank: int | None
    type: int
    unit: int | None
    per_step: int | None
    phase: str | None
    body: str | None
    slowest_ns: int | None


def digest(event: Event, part: str = "") -> int:
    """64 bits of an event's content without the clock offset; equal for a repeat. `part`: of a divided event."""
    told = (event.type, event.node, event.job, event.attempt, event.rank, event.start, event.end, event.body)
    content = _content((told, part) if part else told)
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)


def rows_of(
    event: Event,
    source_id: int,
    job_id_of: Mapping[str, int],
    attempt_id_of: Mapping[tuple[str, str], int],
) -> Iterator[Row]:
    """The rows of an event with a stamp; the first one stands for its identity."""
    if event.type == "heartbeat":
        named: dict[tuple[str, str], list[Any]] = {}
        for one in event.body.get("jobs", ()):
            named.setdefault((one["job"], one["attempt"]), []).append(one)
        if named:
            for (job, attempt), beats in sorted(named.items()):
                body = {**event.body, "jobs": beats}
                part = digest(event, f"{job}\0{attempt}")
                yield _row(event, source_id, job_id_of[job], attempt_id_of[job, attempt], part, body)
            return
        yield _row(event, source_id, NODE_BEATS, None, digest(event), event.body)
    elif event.job is None:
        yield _row(event, source_id, NODE_FAULTS, None, digest(event), event.body)
    else:
        attempt_id = None if event.attempt is None else attempt_id_of[event.job, event.attempt]
        yield _row(event, source_id, job_id_of[event.job], attempt_id, digest(event), event.body)


def _row(
    event: Event,
    source_id: int,
    job_id: int,
    attempt_id: int | None,
    digest_: int,
    body: Mapping[str, Any],
) -> Row:
    assert event.start is not None
    offset = event.clock_offset_ns
    steps: tuple[Any, ...] = _NO_STEPS
    unit = phase = None
    rest = body
    if event.type == "steps":
        steps = tuple(body.get(name) for name in OF_STEPS)
        unit = UNIT_CODES.get(body.get("unit", ""))
        if len(body) > len(steps) - steps.count(None) + (unit is not None):
            taken = OF_STEPS if unit is None else (*OF_STEPS, "unit")
            rest = {name: value for name, value in body.items() if name not in taken}
        else:
            rest = {}
    elif event.type in ("phase", "phase_open"):
        phase = body["phase"]
        rest = {name: value for name, value in body.items() if name != "phase"} if len(body) > 1 else {}
    first, last, cursor_start, cursor_end, data_wait, slowest, per_step = steps
    return Row(
        job_id,
        source_id,
        event.seq,
        event.start - offset,
        digest_,
        None if event.end is None else event.end - offset,
        offset,
        first,
        last,
        cursor_start,
        cursor_end,
        data_wait,
        attempt_id,
        event.rank,
        CODES[event.type],
        unit,
        per_step,
        phase,
        _pack(rest).decode() if rest else None,
        slowest,
    )


def event_of(
    row: Row,
    source: Callable[[int], tuple[str, str]],
    job: str | None,
    attempt: str | None,
) -> Event:
    """The event of a row; `source` tells the node and incarnation of a source id."""
    node, incarnation = source(row.source_id)
    offset = row.clock_offset_ns
    body: dict[str, Any] = _unpack(row.body) if row.body is not None else {}
    kind = TYPES[row.type]
    if row.type == STEPS:
        told = zip(OF_STEPS, (*row[FIRST_STEP : FIRST_STEP + 5], row.slowest_ns, row.per_step), strict=True)
        body |= {name: value for name, value in told if value is not None}
        if row.unit is not None:
            body["unit"] = UNITS[row.unit]
    elif row.phase is not None:
        body["phase"] = row.phase
    beat = row.type == HEARTBEAT
    return Event(
        kind,
        node,
        incarnation,
        row.seq,
        offset,
        None if beat else job,
        None if beat else attempt,
        row.rank,
        row.start_ns + offset,
        None if row.end_ns is None else row.end_ns + offset,
        body,
    )
