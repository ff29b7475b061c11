"""A batch stored in one transaction: its events once each, and a mark for what has to be booked again.

Either all of it is durable when the call returns, or nothing of it happened and the sender keeps the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from fleet_ett.errors import Unavailable
from fleet_ett.ingest import Refused, Stored
from fleet_ett.postgres import counts, dimensions, events, partitions, quarantine
from fleet_ett.postgres.block_rows import can_pack, digests, ids_of, pack, spans_of
from fleet_ett.postgres.event_rows import FAULT, NODE_BEATS, digest, rows_of
from fleet_ett.postgres.marks import Marks, add_marks
from fleet_ett.postgres.pool import told_unavailable, transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from ett_collector.wire import Event
    from fleet_ett.blocks import Block
    from fleet_ett.ingest import Batch
    from fleet_ett.postgres.block_rows import Ints
    from fleet_ett.postgres.dimensions import Known, Source
    from fleet_ett.postgres.event_rows import Row

TRIES = 3
# Nobody who posts waits longer than this for somebody else, or for one statement.
TIMEOUTS = "SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '30s'"
TIMELY_NS = 30_000_000_000  # a node's own heartbeat that comes later may change books that are closed
NO_PARTITION = "23514"
RETRIED = ("40001", "40P01")  # serialization failure, deadlock

_HORIZON = text("SELECT horizon_ns FROM retention")
_pack = msgspec.json.encode


@dataclass(slots=True)
class _Work:
    """What one transaction gathers: rows to write, marks, and what it learned."""

    rows: list[Row] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    days: set[int] = field(default_factory=set)
    facts: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    marks: Marks = field(default_factory=Marks)
    last_seq: dict[int, int] = field(default_factory=dict)
    nodes: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)

    def count(self, verdict: str, number: int = 1) -> None:
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + number

    def see(self, source_id: int, seq: int) -> None:
        self.last_seq[source_id] = max(self.last_seq.get(source_id, -1), seq)


class _MissingDaysError(Exception):
    """Partitions have to be made first."""


class PostgresStore:
    """`fleet_ett.ingest.Store` over a pool; safe for many threads. `counts`: whether events are counted here."""

    def __init__(self, engine: Engine, *, counts: bool = True) -> None:
        self._engine = engine
        self._counts = counts
        self._known = dimensions.Known()
        self._days: frozenset[int] = frozenset()

    def __call__(self, batch: Batch, *, now: int) -> Stored:
        """Store a batch; see `Store`."""
        with told_unavailable():
            for _ in range(TRIES):
                try:
                    return self._store(batch, now)
                except _MissingDaysError as missing:
                    self._add_days(missing.args[0], now)
                except DBAPIError as error:
                    # a partition was dropped since, or two transactions met: another try sees it
                    if getattr(error.orig, "sqlstate", None) not in (NO_PARTITION, *RETRIED):
                        raise
                    self._days = frozenset()
        msg = "the batch could not be stored: too much happened at once"
        raise Unavailable(msg, retry_after_s=1)

    def count_rejected(self) -> None:
        """Count a body that was refused as a whole."""
        with transaction(self._engine) as conn:
            counts.count_events(conn, {"rejected": 1})

    def _store(self, batch: Batch, now: int) -> Stored:
        learned = dimensions.Known()
        with self._engine.begin() as conn:
            conn.exec_driver_sql(TIMEOUTS)
            kept, blocks, late = _within_retention(conn, batch)
            work = self._gather(conn, kept, blocks, batch.agent.node, learned=learned, now=now)
            missing = {row.start_ns // partitions.DAY_NS for row in work.rows} | work.days
            missing -= self._days
            if missing:
                raise _MissingDaysError(missing)
            stored = self._write(conn, work, learned, now)
            if kept or blocks:
                agent = batch.agent
                offset = batch.clock_offset_ns
                dimensions.see_node(conn, agent.node, offset=offset, version=agent.version, now=now)
            refused = [*batch.refused, *late]
            quarantined = quarantine.add_refused(conn, batch.agent, refused, now=now)
            if self._counts:
                counts.count_events(
                    conn,
                    {
                        "accepted": stored.accepted - stored.conflicts,
                        "conflict": stored.conflicts,
                        "quarantined": quarantined,
                        "duplicate": stored.duplicates + len(refused) - quarantined,
                    },
                )
        self._known.learn(learned)
        return Stored(stored.accepted, stored.duplicates, stored.conflicts, tuple(late))

    def _gather(
        self, conn: Connection, kept: list[Event], blocks: list[Block], node: str, *, learned: Known, now: int
    ) -> _Work:
        """Judge each event, and sort out what has to be written."""
        work = _Work()
        if not kept and not blocks:
            return work
        speak = {event.incarnation for event in kept} | {block.incarnation for block in blocks}
        sources = dimensions.lock_sources(conn, node, speak)
        jobs, attempts = self._ids(conn, kept, blocks, learned)
        twice = _told_twice(kept, blocks)
        singly: list[Event] = []
        for block in blocks:
            source = sources[block.incarnation]
            taken = block.incarnation not in twice and can_pack(block)
            if not (taken and _take_block(conn, work, block, source, jobs=jobs, attempts=attempts)):
                singly += block.events()
        kept = [*kept, *singly]
        judged: list[tuple[Event, list[Row]]] = [
            (
                event,
                []
                if event.type == "job"
                else list(rows_of(event, sources[event.incarnation].source_id, jobs, attempts)),
            )
            for event in kept
        ]
        suspects = [_suspect(event, rows, sources[event.incarnation], jobs) for event, rows in judged]
        versions = events.find_versions(conn, [one for one in suspects if one is not None])
        for event, rows in judged:
            source = sources[event.incarnation]
            content = rows[0].digest if rows else digest(event)
            start = rows[0].start_ns if rows else None
            verdict = versions.judge((event.incarnation, event.seq), (source.source_id, start, content))
            work.count(verdict)
            work.see(source.source_id, event.seq)
            if verdict == "repeat":
                continue
            for row in rows:
                _take(work, event, row, source, now)
            if not rows:
                assert event.job is not None
                job_id = jobs[event.job]
                body = _pack(event.body).decode()
                work.facts.append((job_id, source.source_id, event.seq, content, body))
                work.marks.add(job_id, None, None)
        return work

    def _ids(
        self, conn: Connection, kept: list[Event], blocks: list[Block], learned: Known
    ) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        names = {event.job for event in kept if event.job is not None}
        keys = {
            (event.job, event.attempt)
            for event in kept
            if event.job and event.attempt and event.type != "job"
        }
        for event in kept:
            if event.type == "heartbeat":
                keys.discard((event.job or "", event.attempt or ""))
                keys.update((one["job"], one["attempt"]) for one in event.body.get("jobs", ()))
        for block in blocks:
            constant = "job" not in block.columns and "attempt" not in block.columns
            jobs, attempts = block.values("job"), block.values("attempt")
            keys.update([(jobs[0], attempts[0])] if constant else zip(jobs, attempts, strict=True))
        names.update(job for job, _ in keys)
        learned.jobs = dimensions.job_ids(conn, self._known, names)
        learned.attempts = dimensions.attempt_ids(conn, self._known, keys, learned.jobs)
        return learned.jobs, learned.attempts

    def _write(self, conn: Connection, work: _Work, learned: Known, now: int) -> Stored:
        if work.rows:
            events.copy_events(conn, work.rows)
        if work.packed:
            events.copy_packed(conn, work.packed)
        events.add_facts(conn, work.facts)
        for (job_id, attempt_id), nodes in sorted(work.nodes.items()):
            told = (attempt_id, hash(frozenset(nodes)))
            if told not in self._known.nodes:
                dimensions.add_attempt_nodes(conn, job_id, attempt_id, nodes)
                learned.nodes.add(told)
        dimensions.advance_sources(conn, work.last_seq)
        add_marks(conn, work.marks, now=now)
        told_of = work.verdicts.get
        conflicts = told_of("conflict", 0)
        duplicates = told_of("repeat", 0) + told_of("duplicate", 0)
        return Stored(told_of("accepted", 0) + conflicts, duplicates, conflicts)

    def _add_days(self, days: set[int], now: int) -> None:
        with transaction(self._engine) as conn:
            conn.exec_driver_sql(TIMEOUTS)
            partitions.add_partitions(conn, days, now=now)
        self._days |= days


def _within_retention(conn: Connection, batch: Batch) -> tuple[list[Event], list[Block], list[Refused]]:
    """The events and blocks that are not older than what is kept, and the events that are."""
    horizon = conn.execute(_HORIZON).scalar()
    if horizon is None:
        return batch.events, batch.blocks, []
    if any(int(block.corrected("start").min()) < horizon for block in batch.blocks):
        batch = batch.singly()
    kept: list[Event] = []
    late: list[Refused] = []
    for event, position in zip(batch.events, batch.positions, strict=True):
        if event.start is not None and event.start - event.clock_offset_ns < horizon:
            reason = "lies before what the service still keeps (retention)"
            late.append(Refused(position, event.seq, reason, {"type": event.type, "start": event.start}))
        else:
            kept.append(event)
    return kept, batch.blocks, late


def _told_twice(kept: list[Event], blocks: list[Block]) -> set[str]:
    """The incarnations with blocks that use a sequence number more than once."""
    seqs: dict[str, list[Ints]] = {}
    for block in blocks:
        seqs.setdefault(block.incarnation, []).append(block.ints("seq"))
    single: dict[str, list[int]] = {}
    for event in kept:
        single.setdefault(event.incarnation, []).append(event.seq)
    out = set()
    for incarnation, told in seqs.items():
        every = np.sort(np.concatenate([*told, np.array(single.get(incarnation, ()), dtype=np.int64)]))
        if (every[1:] == every[:-1]).any():
            out.add(incarnation)
    return out


def _take_block(
    conn: Connection,
    work: _Work,
    block: Block,
    source: Source,
    *,
    jobs: dict[str, int],
    attempts: dict[tuple[str, str], int],
) -> bool:
    """Take a block whose events are all new, or all stored already; False where that is not so."""
    seqs = block.ints("seq")
    content, job_ids = digests(block), ids_of(block, jobs)
    if int(seqs.min()) <= source.last_seq:
        if not events.are_repeats(conn, block, source.source_id, job_ids, content):
            return False
        work.count("repeat", len(block))
        return True
    work.count("accepted", len(block))
    work.see(source.source_id, int(seqs.max()))
    work.packed.append(pack(block, content, source.source_id, job_ids, attempts))
    starts = block.corrected("start")
    work.days.update((np.unique(starts // partitions.DAY_NS)).tolist())
    for (job, attempt), first, last in spans_of(block, starts):
        job_id, attempt_id = jobs[job], attempts[job, attempt]
        work.marks.add(job_id, attempt_id, first)
        work.marks.add(job_id, attempt_id, last)
        work.nodes.setdefault((job_id, attempt_id), set()).add(block.node)
    return True


def _suspect(event: Event, rows: list[Row], source: Source, jobs: dict[str, int]) -> events.Suspect | None:
    """The identity to look up, for an event that may have been stored before."""
    if event.seq > source.last_seq:
        return None
    key = (event.incarnation, event.seq)
    if rows:
        return events.Suspect(key, rows[0].job_id, source.all_ids, rows[0].start_ns)
    assert event.job is not None
    return events.Suspect(key, jobs[event.job], source.all_ids, None)


def _take(work: _Work, event: Event, row: Row, source: Source, now: int) -> None:
    """Write a row, and note what it concerns."""
    work.rows.append(row)
    if row.job_id > 0:
        work.marks.add(row.job_id, row.attempt_id, row.start_ns)
        if row.attempt_id is not None:
            told = work.nodes.setdefault((row.job_id, row.attempt_id), set())
            told.add(event.node)
            if event.type == "attempt_start":  # elsewhere it is a field that nobody has checked
                told.update(event.body.get("nodes", ()), event.body.get("gpus_by_node", ()))
    elif row.type == FAULT or now - row.start_ns > TIMELY_NS or event.seq <= source.last_seq:
        work.marks.add(NODE_BEATS, None, row.start_ns, event.node)
