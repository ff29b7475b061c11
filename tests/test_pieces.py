"""A batch in pieces: every event once, and the same server for a job in all times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.ingest import decode_batch
from fleet_ett.pieces import server_of, split

if TYPE_CHECKING:
    from ett_collector.wire import Event
    from fleet_ett.ingest import Batch
    from fleet_ett.pieces import Pieces

NOW = 1_772_452_800_000_000_000
SERVERS = 3


def batch_of(*events: dict[str, Any], batches: list[dict[str, Any]] | None = None) -> Batch:
    """The checked body of node n1 with those events, numbered in their order."""
    numbered = [{"seq": seq, **event} for seq, event in enumerate(events)]
    body = {"agent": {"node": "n1", "incarnation": "i"}, "events": numbered, "batches": batches or []}
    batch = decode_batch(body, now=NOW)
    assert [] == batch.refused
    return batch


def phase(job: str) -> dict[str, Any]:
    """A phase of a job."""
    return {"type": "phase", "job": job, "attempt": "a", "rank": 0, "phase": "x", "start": NOW, "end": NOW}


def told(pieces: dict[int, Batch]) -> dict[int, list[Event]]:
    """The events of each server in the sender's order."""
    return {server: piece.singly().events for server, piece in pieces.items()}


def own(pieces: Pieces) -> list[tuple[int, Event]]:
    """All events that are counted, by position."""
    found = [
        one
        for piece in pieces.own.values()
        for one in zip(piece.singly().positions, piece.singly().events, strict=True)
    ]
    return sorted(found, key=lambda one: one[0])


@pytest.mark.parametrize(
    ("job", "server"), [("job-0", 0), ("job-1", 1), ("job-2", 2), ("dlrm-7", 2), ("m\u00fcller", 2)]
)
def test_a_job_never_moves(job: str, server: int) -> None:
    """These numbers are in the databases of others: a version that changes them scatters their jobs."""
    assert server == server_of(job, SERVERS)


def test_jobs_are_spread_evenly() -> None:
    """A tenth more or less than its share at most."""
    counts = [0] * SERVERS
    for number in range(30_000):
        counts[server_of(f"team/run-{number}", SERVERS)] += 1
    assert all(9_000 < count < 11_000 for count in counts)


def test_an_event_goes_to_the_owner_of_its_job() -> None:
    """Each event is in one piece, as it was said, under its position."""
    batch = batch_of(*(phase(f"job-{number % 5}") for number in range(20)))
    pieces = split(batch, SERVERS)
    assert {} == pieces.copies
    assert batch.singly().events == [event for _, event in own(pieces)]
    for server, events in told(pieces.own).items():
        assert {server} == {server_of(event.job or "", SERVERS) for event in events}


def test_a_bulk_batch_of_several_jobs_is_divided() -> None:
    """Rows go with their jobs; the parts are bulk batches still."""
    jobs = [f"job-{number % 5}" for number in range(20)]
    columns = {"job": jobs, "seq": list(range(20)), "start": [NOW] * 20, "end": [NOW + 1] * 20}
    bulk = {"type": "phase", "attempt": "a", "rank": 0, "phase": "x", "columns": columns}
    batch = batch_of(batches=[bulk])
    assert [20] == [len(block) for block in batch.blocks]
    pieces = split(batch, SERVERS)
    assert batch.singly().events == [event for _, event in own(pieces)]
    assert all(not piece.events for piece in pieces.own.values())


def test_what_a_node_says_beside_all_jobs_is_known_everywhere_and_counted_once() -> None:
    """A fault without a job may concern any job of the node."""
    fault = {"type": "fault", "ts": NOW, "kind": "xid"}
    pieces = split(batch_of(fault, {"type": "heartbeat", "ts": NOW}), SERVERS)
    home = server_of("n1", SERVERS)
    assert {home} == pieces.own.keys()
    assert set(range(SERVERS)) - {home} == pieces.copies.keys()
    assert all(told(pieces.own)[home] == events for events in told(pieces.copies).values())


def test_a_heartbeat_tells_each_server_of_its_own_jobs() -> None:
    """No server hears of a job that another one owns."""
    jobs = [{"job": f"job-{number}", "attempt": "a", "ranks": [number]} for number in range(5)]
    pieces = split(batch_of({"type": "heartbeat", "ts": NOW, "jobs": jobs}), SERVERS)
    heard = {**told(pieces.own), **told(pieces.copies)}
    assert 1 == len(pieces.own)
    for server, events in heard.items():
        named = [one["job"] for event in events for one in event.body["jobs"]]
        assert [one["job"] for one in jobs if server_of(one["job"], SERVERS) == server] == named


def test_one_server_gets_the_batch_as_it_is() -> None:
    """Nothing is copied and nothing is cut."""
    batch = batch_of(
        phase("a"), {"type": "heartbeat", "ts": NOW}, {"type": "fault", "ts": NOW, "kind": "xid"}
    )
    pieces = split(batch, 1)
    assert {} == pieces.copies
    assert batch.singly().events == told(pieces.own)[0]
