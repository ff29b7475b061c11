"""Names and their ids: sources, jobs, attempts, and the nodes that attempts run on.

Rows come into being with the first event that names them and never go. Several writers meet here, so rows are
always taken in sorted order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

MOST_KNOWN = 200_000  # ids that a process remembers; beyond it starts afresh

_LOCK_SOURCES = text(
    "SELECT source_id, incarnation, node, last_seq FROM sources WHERE incarnation = ANY(:incarnations)"
    " ORDER BY source_id FOR UPDATE"
)
_ADD_SOURCES = text(
    "INSERT INTO sources (incarnation, node) SELECT unnest(CAST(:incarnations AS text[])), :node"
    " ON CONFLICT DO NOTHING"
)
_ADVANCE = text(
    "UPDATE sources s SET last_seq = n.seq"
    " FROM unnest(CAST(:ids AS bigint[]), CAST(:seqs AS bigint[])) AS n (source_id, seq)"
    " WHERE s.source_id = n.source_id AND s.last_seq < n.seq"
)
_JOBS = text("SELECT job, job_id FROM jobs WHERE job = ANY(:names)")
_ADD_JOBS = text("INSERT INTO jobs (job) SELECT unnest(CAST(:names AS text[])) ON CONFLICT DO NOTHING")
_ATTEMPTS = text(
    "SELECT job_id, attempt, attempt_id FROM attempts"
    " JOIN unnest(CAST(:ids AS bigint[]), CAST(:names AS text[])) AS n (job_id, attempt) USING (job_id, attempt)"
)
_ADD_ATTEMPTS = text(
    "INSERT INTO attempts (job_id, attempt) SELECT n.job_id, n.attempt"
    " FROM unnest(CAST(:ids AS bigint[]), CAST(:names AS text[])) AS n (job_id, attempt) ON CONFLICT DO NOTHING"
)
_ADD_NODES = text(
    "INSERT INTO attempt_nodes (job_id, attempt_id, node)"
    " SELECT :job_id, :attempt_id, unnest(CAST(:nodes AS text[])) ON CONFLICT DO NOTHING"
)
_SEEN = text(
    "INSERT INTO nodes (node, last_seen_ns, clock_offset_ns, agent_version)"
    " VALUES (:node, :now, :offset, :version)"
    " ON CONFLICT (node) DO UPDATE SET last_seen_ns = EXCLUDED.last_seen_ns,"
    " clock_offset_ns = EXCLUDED.clock_offset_ns, agent_version = EXCLUDED.agent_version"
    " WHERE nodes.last_seen_ns <= EXCLUDED.last_seen_ns"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One incarnation on one node. `last_seq`: of the whole incarnation; `all_ids`: on any node."""

    source_id: int
    last_seq: int
    all_ids: tuple[int, ...]


@dataclass(slots=True)
class Known:
    """Ids that were seen committed: they never change, so a process need not ask for them again."""

    jobs: dict[str, int] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    nodes: set[tuple[int, int]] = field(default_factory=set)  # (attempt id, hash of the nodes told)

    def learn(self, other: Known) -> None:
        """Take over what a transaction used, once it is committed."""
        if len(self.jobs) + len(self.attempts) + len(self.nodes) > MOST_KNOWN:
            self.jobs, self.attempts, self.nodes = {}, {}, set()
        self.jobs |= other.jobs
        self.attempts |= other.attempts
        self.nodes |= other.nodes


def lock_sources(conn: Connection, node: str, incarnations: Iterable[str]) -> dict[str, Source]:
    """The sources of a batch by incarnation, locked until the end of the transaction.

    Two deliveries of one source thereby follow each other, which is what makes each event stored once.
    """
    wanted = sorted(set(incarnations))
    found = conn.execute(_LOCK_SOURCES, {"incarnations": wanted}).all()
    missing = sorted(set(wanted) - {row.incarnation for row in found if row.node == node})
    if missing:
        conn.execute(_ADD_SOURCES, {"incarnations": missing, "node": node})
        found = conn.execute(_LOCK_SOURCES, {"incarnations": wanted}).all()
    out: dict[str, Source] = {}
    for incarnation in wanted:
        rows = [row for row in found if row.incarnation == incarnation]
        own = next(row.source_id for row in rows if row.node == node)
        out[incarnation] = Source(
            own, max(row.last_seq for row in rows), tuple(row.source_id for row in rows)
        )
    return out


def advance_sources(conn: Connection, last_seq: dict[int, int]) -> None:
    """Note the highest sequence number by source id (of locked sources)."""
    if last_seq:
        conn.execute(_ADVANCE, {"ids": list(last_seq), "seqs": list(last_seq.values())})


def job_ids(conn: Connection, known: Known, names: Iterable[str]) -> dict[str, int]:
    """The ids of jobs by name; those that are new come into being."""
    wanted = sorted(set(names))
    out = {name: known.jobs[name] for name in wanted if name in known.jobs}
    missing = [name for name in wanted if name not in out]
    if missing:
        out |= {row.job: row.job_id for row in conn.execute(_JOBS, {"names": missing})}
        missing = [name for name in wanted if name not in out]
    if missing:
        conn.execute(_ADD_JOBS, {"names": missing})
        out |= {row.job: row.job_id for row in conn.execute(_JOBS, {"names": missing})}
    return out


def attempt_ids(
    conn: Connection, known: Known, keys: Iterable[tuple[str, str]], jobs: dict[str, int]
) -> dict[tuple[str, str], int]:
    """The ids of attempts by (job, attempt); those that are new come into being."""
    wanted = sorted(set(keys))
    out = {key: known.attempts[key] for key in wanted if key in known.attempts}
    name_of = {job_id: name for name, job_id in jobs.items()}
    for add in (False, True):
        missing = sorted((jobs[job], attempt) for job, attempt in wanted if (job, attempt) not in out)
        if not missing:
            break
        pairs = {"ids": [one[0] for one in missing], "names": [one[1] for one in missing]}
        if add:
            conn.execute(_ADD_ATTEMPTS, pairs)
        found = conn.execute(_ATTEMPTS, pairs)
        out |= {(name_of[row.job_id], row.attempt): row.attempt_id for row in found}
    return out


def add_attempt_nodes(conn: Connection, job_id: int, attempt_id: int, nodes: Iterable[str]) -> None:
    """Note that an attempt runs on those nodes."""
    conn.execute(_ADD_NODES, {"job_id": job_id, "attempt_id": attempt_id, "nodes": sorted(set(nodes))})


def see_node(conn: Connection, node: str, *, offset: int, version: str | None, now: int) -> None:
    """Note that a node was heard at `now` (ns), with its clock's offset and its agent's version."""
    conn.execute(_SEEN, {"node": node, "now": now, "offset": offset, "version": version})
