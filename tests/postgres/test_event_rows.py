"""An event stored and read comes back as it was said, whatever is in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ett_collector.wire import Event, canonical, decode_event
from fleet_ett.core.steps import StepBatch
from fleet_ett.ingest import Agent, Batch
from fleet_ett.postgres.event_reads import EventReads, Near, Place
from fleet_ett.postgres.event_rows import UNITS, Row, digest, event_of, rows_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

NOW = time.time_ns()
FAR = 2**62

names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=9)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
stamps = st.integers(NOW - 10**15, NOW)
ids: dict[str, Any] = {"job": st.just("j"), "attempt": st.just("a"), "rank": st.integers(0, 99_999)}
span: dict[str, Any] = {"start": stamps, "end": st.just(NOW)}
steps = st.fixed_dictionaries(
    {"type": st.just("steps"), **ids, **span, "first": st.integers(0, 9), "last": st.integers(9, 2**63 - 1)},
    optional={
        "cursor_start": st.integers(0, 5),
        "cursor_end": st.integers(5, 2**63 - 1),
        "unit": st.sampled_from(["optimizer_step", "micro_batch"]) | names,
        "per_optimizer_step": st.integers(1, 2**31 - 1),
        "data_wait": st.integers(0, 2**63 - 1),
        "slowest": st.integers(0, 2**63 - 1),
        "extra": values,
    },
)
phases = st.fixed_dictionaries(
    {"type": st.just("phase"), **ids, **span, "phase": names},
    optional={
        "work_key": names,
        "overlapped": st.booleans(),
        "span": names,
        "attrs": st.dictionaries(st.text(max_size=5), values, max_size=4),
    },
)
faults = st.fixed_dictionaries(
    {"type": st.just("fault"), "ts": stamps, "kind": st.just("xid")},
    optional={
        "job": st.just("j"),
        "rank": ids["rank"],
        "code": st.integers(0, 200),
        "text": st.text(max_size=20),
    },
)
beats = st.fixed_dictionaries(
    {"type": st.just("heartbeat"), "ts": stamps},
    optional={"jobs": st.just([{"job": "j", "attempt": "a", "ranks": [0, 3]}]), "note": values},
)
said = st.one_of(steps, phases, faults, beats)


def decoded(raw: dict[str, Any], offset: int = 0) -> Event:
    return decode_event(raw, node="n1", incarnation="life-1", clock_offset_ns=offset, now=NOW)


@given(said, st.integers(0, 2**63 - 1), st.integers(-(10**9), 10**9))
def test_a_row_is_its_event(raw: dict[str, Any], seq: int, offset: int) -> None:
    event = decoded({**raw, "seq": seq}, offset)
    (row,) = rows_of(event, 7, {"j": 1}, {("j", "a"): 2})
    assert event == event_of(row, lambda _: ("n1", "life-1"), event.job, event.attempt)


@given(said, said)
def test_equal_digests_are_equal_content(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The clock offset is left out: the same event with a newer estimate is a repeat."""
    first, second = decoded({**one, "seq": 1}), decoded({**other, "seq": 1}, offset=5)
    assert (canonical(first) == canonical(second)) == (digest(first) == digest(second))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15)
@given(st.lists(said, min_size=1, max_size=20), st.integers(-(10**9), 10**9))
def test_events_come_back_from_the_database(
    store: PostgresStore, engine: Engine, raws: list[dict[str, Any]], offset: int
) -> None:
    with engine.begin() as conn:
        conn.exec_driver_sql("TRUNCATE events, sources, jobs, attempts, attempt_nodes RESTART IDENTITY")
    store = type(store)(engine)
    events = [decoded({**raw, "seq": seq}, offset) for seq, raw in enumerate(raws)]
    batch = Batch(Agent("n1", "life-1", None), offset, events, list(range(len(events))))
    assert len(events) == store(batch, now=NOW).accepted
    with engine.connect() as conn:
        reads = EventReads(conn)
        ids_of = conn.exec_driver_sql("SELECT job_id, attempt_id FROM attempts").all()
        job_id, attempt_id = ids_of[0] if ids_of else (1, 1)
        place = Place(job_id, attempt_id, "j", "a", 0, FAR)
        near = reads.near([Near(place, low=0, high=FAR, beats_from=FAR, end=FAR, beats_to=0)])
        found = near.get(attempt_id, [])
        for part in reads.own([place]).get(attempt_id, []):
            found += part.events() if isinstance(part, StepBatch) else [part]
        nodes = [Row(*row) for row in conn.exec_driver_sql(_NODE_ROWS)]
        found += [event_of(row, lambda _: ("n1", "life-1"), None, None) for row in nodes if row.job_id == 0]
        found += [
            event_of(row, lambda _: ("n1", "life-1"), None if row.job_id < 0 else "j", None)
            for row in nodes
            if row.job_id != 0 and not ids_of
        ]
    expected = {event.seq: _known(event) for event in events}
    assert expected == {event.seq: _known(event) for event in found}


PLAIN = {"first", "last", "cursor_start", "cursor_end", "data_wait", "slowest", "per_optimizer_step", "unit"}
_NODE_ROWS = """
SELECT job_id, source_id, seq, start_ns, digest, end_ns, clock_offset_ns, first_step, last_step, cursor_start,
 cursor_end, data_wait_ns, attempt_id, rank, type, unit, per_step, phase, body::text, slowest_ns FROM events
WHERE attempt_id IS NULL
"""


def _known(event: Event) -> Event:
    """Step windows come as columns: the slowest step is not among them."""
    if event.type != "steps" or not event.body.keys() <= PLAIN or event.body.get("unit") not in UNITS:
        return event
    return event._replace(body={name: value for name, value in event.body.items() if name != "slowest"})
