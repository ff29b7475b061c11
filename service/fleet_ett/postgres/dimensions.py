"""Names and their ids: sources, jobs, attempts, and the nodes that attempts run on.

Rows come into being with the first event that names them and never go. Several writers meet here, so rows are
always taken in sorted order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection

    Speaker = tuple[str, str]  # incarnation, node

MOST_KNOWN = 200_000  # ids that a process remembers; beyond it starts afresh

_LOCK_SOURCES = text(
    "SELECT source_id, incarnation, node, last_seq FROM sources WHERE incarnation = ANY(:incarnations)"
    " ORDER BY source_id FOR UPDATE"
)
_ADD_SOURCES = text(
    "INSERT INTO sources (incarnation, node)"
    " SELECT unnest(CAST(:incarnations AS text[])), unnest(CAST(:nodes AS text[])) ON CONFLICT DO NOTHING"
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
    " SELECT unnest(CAST(:jobs AS bigint[])), unnest(CAST(:attempts AS integer[])), unnest(CAST(:nodes AS text[]))"
    " ON CONFLICT DO NOTHING"
)
_SEEN = text(
    "INSERT INTO nodes (node, last_seen_ns, clock_offset_ns, agent_version)"
    " SELECT unnest(CAST(:nodes AS text[])), unnest(CAST(:stamps AS bigint[])), unnest(CAST(:offsets AS bigint[])),"
    " unnest(CAST(:versions AS text[]))"
    " ON CONFLICT (node) DO UPDATE SET last_seen_ns = EXCLUDED.last_seen_ns,"
    " clock_offset_ns = EXCLUDED.clock_offset_ns, agent_version = EXCLUDED.agent_version"
    " WHERE nodes.last_seen_ns <= EXCLUDED.last_seen_ns"
)


class NodeOfAttempt(NamedTuple):
    """A node that an attempt runs on."""

    job_id: int
    attempt_id: int
    node: str


class Seen(NamedTuple):
    """When a node was heard (ns), its clock's offset (ns) and its agent's version."""

    at: int
    offset: int
    version: str | None


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
    nodes: set[NodeOfAttempt] = field(default_factory=set)

    def learn(self, other: Known) -> None:
        """Take over what a transaction used, once it is committed."""
        if len(self.jobs) + len(self.attempts) + len(self.nodes) > MOST_KNOWN:
            self.jobs, self.attempts, self.nodes = {}, {}, set()
        self.jobs |= other.jobs
        self.attempts |= other.attempts
        self.nodes |= other.nodes


def lock_sources(conn: Connection, speakers: Iterable[Speaker]) -> dict[Speaker, Source]:
    """The sources by (incarnation, node), locked in one order until the end of the transaction.

    Two deliveries of one source thereby follow each other, which is what makes each event stored once.
    """
    wanted = sorted(set(speakers))
    incarnations = sorted({incarnation for incarnation, _ in wanted})
    found = conn.execute(_LOCK_SOURCES, {"incarnations": incarnations}).all()
    missing = sorted(set(wanted) - {(row.incarnation, row.node) for row in found})
    if missing:
        names, nodes = zip(*missing, strict=True)
        conn.execute(_ADD_SOURCES, {"incarnations": list(names), "nodes": list(nodes)})
        found = conn.execute(_LOCK_SOURCES, {"incarnations": incarnations}).all()
    own = {(row.incarnation, row.node): row.source_id for row in found}
    last_seq: dict[str, int] = {}
    all_ids: dict[str, list[int]] = {}
    for row in found:
        last_seq[row.incarnation] = max(row.last_seq, last_seq.get(row.incarnation, -1))
        all_ids.setdefault(row.incarnation, []).append(row.source_id)
    return {one: Source(own[one], last_seq[one[0]], tuple(all_ids[one[0]])) for one in wanted}


def advance_sources(conn: Connection, last_seq: dict[int, int]) -> None:
    """Note the highest sequence number by source id (of locked sources)."""
    if last_seq:
        conn.execute(_ADVANCE, {"ids": list(last_seq), "seqs": list(last_seq.values())})


def job_ids(conn: Connection, known: Known, names: Iterable[str]) -> dict[str, int]:
    """The ids of jobs by name; those that are new come into being."""
    wanted = sorted(set(names))
    there = known.jobs
    out = {name: there[name] for name in wanted if name in there}
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
    there = known.attempts
    out = {key: there[key] for key in wanted if key in there}
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


def add_attempt_nodes(conn: Connection, told: Collection[NodeOfAttempt]) -> None:
    """Note which nodes attempts run on."""
    if told:
        jobs, attempts, nodes = zip(*sorted(told), strict=True)
        conn.execute(_ADD_NODES, {"jobs": list(jobs), "attempts": list(attempts), "nodes": list(nodes)})


def see_nodes(conn: Connection, seen: Mapping[str, Seen]) -> None:
    """Note which nodes were heard."""
    if seen:
        nodes = sorted(seen)
        stamps, offsets, versions = zip(*(seen[node] for node in nodes), strict=True)
        told = {"nodes": nodes, "stamps": list(stamps), "offsets": list(offsets), "versions": list(versions)}
        conn.execute(_SEEN, told)
