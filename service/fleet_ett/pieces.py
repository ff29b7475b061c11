"""A batch in pieces, one for each database server that owns some of its jobs.

A job's server is a hash of its key: the same on every machine and in every version. What a node says beside all
jobs may concern any job, so every server gets it; one of them counts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from fleet_ett.ingest import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.wire import Event
    from fleet_ett.blocks import Block


@dataclass(slots=True)
class Pieces:
    """A batch by number of the server. `own`: each event once; `copies`: what other servers must have, too."""

    own: dict[int, Batch] = field(default_factory=dict)
    copies: dict[int, Batch] = field(default_factory=dict)


def server_of(job: str, servers: int) -> int:
    """Which of so many servers, counted from 0, owns a job."""
    return int.from_bytes(blake2b(job.encode(), digest_size=8).digest(), "big") % servers


def split(batch: Batch, servers: int) -> Pieces:
    """The pieces of a batch; what was refused of it stays with the whole."""
    out = Pieces()
    for event, position in zip(batch.events, batch.positions, strict=True):
        pieces = out.own
        for server, told in _concerned(event, servers):
            piece = _piece(pieces, server, batch)
            piece.events.append(told)
            piece.positions.append(position)
            pieces = out.copies
    for block in batch.blocks:
        for server, rows in _blocks(block, servers):
            _piece(out.own, server, batch).blocks.append(rows)
    for piece in out.copies.values():
        assert not piece.blocks  # a block's events name a job
    return out


def _piece(pieces: dict[int, Batch], server: int, batch: Batch) -> Batch:
    if server not in pieces:
        pieces[server] = Batch(batch.agent, batch.clock_offset_ns)
    return pieces[server]


def _concerned(event: Event, servers: int) -> Iterator[tuple[int, Event]]:
    """The servers that an event concerns with what each has to know; the first one counts it."""
    if event.type == "heartbeat":
        yield from _beats(event, servers)
    elif event.job is not None:
        yield server_of(event.job, servers), event
    else:
        home = server_of(event.node, servers)
        for step in range(servers):
            yield (home + step) % servers, event


def _beats(event: Event, servers: int) -> Iterator[tuple[int, Event]]:
    """A heartbeat: each server gets the jobs that it owns; of a node that names none, all hear that it lives."""
    own = None if event.job is None else server_of(event.job, servers)
    named: dict[int, list[Any]] = {}
    for one in event.body.get("jobs", ()):
        named.setdefault(server_of(one["job"], servers), []).append(one)
    if not named:
        home = server_of(event.node, servers) if own is None else own
        named = {(home + step) % servers: [] for step in range(servers)}
    for server, jobs in named.items():
        told = event if server == own else event._replace(job=None, attempt=None)
        yield server, told._replace(body={**event.body, "jobs": jobs}) if jobs else told


def _blocks(block: Block, servers: int) -> Iterator[tuple[int, Block]]:
    """The rows of a block by server."""
    if "job" not in block.columns:
        yield server_of(block.constants["job"], servers), block
        return
    jobs = block.columns["job"]
    owner = {job: server_of(job, servers) for job in set(jobs)}
    for server in sorted(set(owner.values())):
        rows = [at for at, job in enumerate(jobs) if owner[job] == server]
        yield server, block if len(rows) == len(jobs) else _chosen(block, rows)


def _chosen(block: Block, rows: list[int]) -> Block:
    return replace(
        block,
        columns={name: [column[row] for row in rows] for name, column in block.columns.items()},
        numbers={name: column[rows] if len(column) else column for name, column in block.numbers.items()},
        positions=[block.positions[row] for row in rows],
    )
