"""What a group of batches adds: each event judged against what is stored and against its neighbours in the group.

Nothing of the events is written here; sources are locked, and the ids of jobs and attempts come into being.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from fleet_ett.postgres import dimensions, events, partitions
from fleet_ett.postgres.block_rows import can_pack, digests, ids_of, pack, spans_of
from fleet_ett.postgres.dimensions import NodeOfAttempt
from fleet_ett.postgres.event_rows import FAULT, NODE_BEATS, digest, rows_of
from fleet_ett.postgres.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from ett_collector.wire import Event
    from fleet_ett.blocks import Block
    from fleet_ett.postgres.block_rows import Ints
    from fleet_ett.postgres.dimensions import Known, Source, Speaker
    from fleet_ett.postgres.event_rows import Row

TIMELY_NS = 30_000_000_000  # a node's own heartbeat that comes later may change books that are closed
_pack = msgspec.json.encode


class Delivery(NamedTuple):
    """The events of one batch that may be stored. `now`: when it came (ns)."""

    events: list[Event]
    blocks: list[Block]
    now: int


@dataclass(slots=True)
class Gathered:
    """Rows to write and marks for all; `verdicts` for each delivery: how many events are what."""

    verdicts: list[Counter[str]]
    rows: list[Row] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    days: set[int] = field(default_factory=set)
    facts: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    marks: Marks = field(default_factory=Marks)
    last_seq: dict[int, int] = field(default_factory=dict)
    nodes: set[NodeOfAttempt] = field(default_factory=set)

    def see(self, source_id: int, seq: int) -> None:
        """Note a sequence number of a source."""
        self.last_seq[source_id] = max(self.last_seq.get(source_id, -1), seq)


@dataclass(frozen=True, slots=True)
class _Names:
    """The ids of what the group names."""

    sources: dict[Speaker, Source]
    jobs: dict[str, int]
    attempts: dict[tuple[str, str], int]


def gather(conn: Connection, group: Sequence[Delivery], known: Known, learned: Known) -> Gathered:
    """Judge each event, and sort out what has to be written. Adds to `learned` what this transaction finds."""
    out = Gathered([Counter() for _ in group])
    told = [event for one in group for event in one.events]
    blocks = [block for one in group for block in one.blocks]
    if not told and not blocks:
        return out
    speak: set[Speaker] = {(event.incarnation, event.node) for event in told}
    speak |= {(block.incarnation, block.node) for block in blocks}
    sources = dimensions.lock_sources(conn, speak)
    jobs, keys = _named(told, blocks)
    learned.jobs = dimensions.job_ids(conn, known, jobs)
    learned.attempts = dimensions.attempt_ids(conn, known, keys, learned.jobs)
    names = _Names(sources, learned.jobs, learned.attempts)
    twice = _told_twice(told, blocks)
    single: list[tuple[Event, Delivery, Counter[str]]] = []
    for one, verdicts in zip(group, out.verdicts, strict=True):
        single += ((event, one, verdicts) for event in one.events)
        for block in one.blocks:
            taken = block.incarnation not in twice and can_pack(block)
            if not (taken and _take_block(conn, out, block, names, verdicts)):
                single += ((event, one, verdicts) for event in block.events())
    _judge_singly(conn, out, single, names)
    out.days |= {row.start_ns // partitions.DAY_NS for row in out.rows}
    return out


def _named(told: list[Event], blocks: list[Block]) -> tuple[set[str], set[tuple[str, str]]]:
    """The jobs, and the attempts by job and name, that come into being where they are not there."""
    jobs = {event.job for event in told if event.job is not None}
    keys: set[tuple[str, str]] = set()
    for event in told:
        if event.type == "heartbeat":
            keys.update((one["job"], one["attempt"]) for one in event.body.get("jobs", ()))
        elif event.job and event.attempt and event.type != "job":
            keys.add((event.job, event.attempt))
    for block in blocks:
        constant = "job" not in block.columns and "attempt" not in block.columns
        named, attempts = block.values("job"), block.values("attempt")
        keys.update([(named[0], attempts[0])] if constant else zip(named, attempts, strict=True))
    return jobs | {job for job, _ in keys}, keys


def _told_twice(told: list[Event], blocks: list[Block]) -> set[str]:
    """The incarnations with blocks that use a sequence number more than once."""
    seqs: dict[str, list[Ints]] = {}
    for block in blocks:
        seqs.setdefault(block.incarnation, []).append(block.ints("seq"))
    single: dict[str, list[int]] = {}
    for event in told:
        single.setdefault(event.incarnation, []).append(event.seq)
    out = set()
    for incarnation, parts in seqs.items():
        every = np.sort(np.concatenate([*parts, np.array(single.get(incarnation, ()), dtype=np.int64)]))
        if (every[1:] == every[:-1]).any():
            out.add(incarnation)
    return out


def _take_block(conn: Connection, out: Gathered, block: Block, names: _Names, verdicts: Counter[str]) -> bool:
    """Take a block whose events are all new, or all stored already; False where that is not so."""
    source = names.sources[block.incarnation, block.node]
    seqs = block.ints("seq")
    content, job_ids = digests(block), ids_of(block, names.jobs)
    if int(seqs.min()) <= source.last_seq:
        if not events.are_repeats(conn, block, source.source_id, job_ids, content):
            return False
        verdicts["repeat"] += len(block)
        return True
    verdicts["accepted"] += len(block)
    out.see(source.source_id, int(seqs.max()))
    out.packed.append(pack(block, content, source.source_id, job_ids, names.attempts))
    starts = block.corrected("start")
    out.days.update((np.unique(starts // partitions.DAY_NS)).tolist())
    for (job, attempt), first, last in spans_of(block, starts):
        job_id, attempt_id = names.jobs[job], names.attempts[job, attempt]
        out.marks.add(job_id, attempt_id, first)
        out.marks.add(job_id, attempt_id, last)
        out.nodes.add(NodeOfAttempt(job_id, attempt_id, block.node))
    return True


def _judge_singly(
    conn: Connection, out: Gathered, single: list[tuple[Event, Delivery, Counter[str]]], names: _Names
) -> None:
    rows = [_rows(event, names) for event, _, _ in single]
    suspects = [_suspect(event, own, names) for (event, _, _), own in zip(single, rows, strict=True)]
    versions = events.find_versions(conn, [one for one in suspects if one is not None])
    for (event, delivery, verdicts), own in zip(single, rows, strict=True):
        source = names.sources[event.incarnation, event.node]
        content = own[0].digest if own else digest(event)
        start = own[0].start_ns if own else None
        verdict = versions.judge((event.incarnation, event.seq), (source.source_id, start, content))
        verdicts[verdict] += 1
        out.see(source.source_id, event.seq)
        if verdict == "repeat":
            continue
        for row in own:
            _take(out, event, row, source, delivery.now)
            if verdict != "accepted" and row.attempt_id is not None:
                # another version of it may lie in books that are settled: they are made from all events
                out.marks.add(row.job_id, row.attempt_id, None, event.node)
        if not own:
            assert event.job is not None
            job_id = names.jobs[event.job]
            out.facts.append((job_id, source.source_id, event.seq, content, _pack(event.body).decode()))
            out.marks.add(job_id, None, None)


def _rows(event: Event, names: _Names) -> list[Row]:
    if event.type == "job":
        return []
    source = names.sources[event.incarnation, event.node]
    return list(rows_of(event, source.source_id, names.jobs, names.attempts))


def _suspect(event: Event, rows: list[Row], names: _Names) -> events.Suspect | None:
    """The identity to look up, for an event that may have been stored before."""
    source = names.sources[event.incarnation, event.node]
    if event.seq > source.last_seq:
        return None
    key = (event.incarnation, event.seq)
    if rows:
        return events.Suspect(key, rows[0].job_id, source.all_ids, rows[0].start_ns)
    assert event.job is not None
    return events.Suspect(key, names.jobs[event.job], source.all_ids, None)


def _take(out: Gathered, event: Event, row: Row, source: Source, now: int) -> None:
    """Write a row, and note what it concerns."""
    out.rows.append(row)
    if row.job_id > 0:
        out.marks.add(row.job_id, row.attempt_id, row.start_ns)
        if row.attempt_id is not None:
            nodes = _nodes_of(event)
            out.nodes.update(NodeOfAttempt(row.job_id, row.attempt_id, node) for node in nodes)
    elif row.type == FAULT or now - row.start_ns > TIMELY_NS or event.seq <= source.last_seq:
        out.marks.add(NODE_BEATS, None, row.start_ns, event.node)


def _nodes_of(event: Event) -> Iterator[str]:
    yield event.node
    if event.type == "attempt_start":  # elsewhere it is a field that nobody has checked
        yield from event.body.get("nodes", ())
        yield from event.body.get("gpus_by_node", ())
