"""Raw events: stored once each, by identity.

A source's sequence numbers only ever rise, so an event beyond the highest one stored is new, and goes straight
into its partition. Anything else is looked up first. The source is locked meanwhile: what is not there then
cannot come from elsewhere before the commit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres.block_rows import SIGNATURE, TRAILER
from fleet_ett.postgres.event_rows import COLUMNS
from fleet_ett.postgres.pool import driver_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from fleet_ett.blocks import Block
    from fleet_ett.postgres.block_rows import Ints
    from fleet_ett.postgres.event_rows import Row

    Key = tuple[str, int]  # incarnation, seq
    Version = tuple[int, int | None, int]  # source id, corrected stamp (ns), digest

DAY_NS = 86_400_000_000_000
# How far apart two stamps of one event are looked for: an offset may change between two deliveries.
APART_NS = DAY_NS

_COPY = f"COPY events ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_FIND = text(
    "SELECT e.source_id, e.seq, e.start_ns, e.digest FROM events e"
    " JOIN unnest(CAST(:jobs AS bigint[]), CAST(:sources AS bigint[]), CAST(:seqs AS bigint[]))"
    " AS n (job_id, source_id, seq) USING (job_id, source_id, seq)"
    " WHERE e.start_ns BETWEEN :low AND :high"
)
_FIND_FACTS = text(
    "SELECT f.source_id, f.seq, NULL AS start_ns, f.digest FROM job_facts f"
    " JOIN unnest(CAST(:jobs AS bigint[]), CAST(:sources AS bigint[]), CAST(:seqs AS bigint[]))"
    " AS n (job_id, source_id, seq) USING (job_id, source_id, seq)"
)
_COUNT = text(
    "SELECT count(*) FROM events e JOIN unnest(CAST(:jobs AS bigint[]), CAST(:seqs AS bigint[]),"
    " CAST(:starts AS bigint[]), CAST(:digests AS bigint[])) AS n (job_id, seq, start_ns, digest)"
    " USING (job_id, seq, start_ns, digest)"
    " WHERE e.source_id = :source AND e.start_ns BETWEEN :low AND :high"
)
_ADD_FACTS = text(
    "INSERT INTO job_facts (job_id, source_id, seq, digest, body)"
    " SELECT n.job_id, n.source_id, n.seq, n.digest, CAST(n.body AS json)"
    " FROM unnest(CAST(:jobs AS bigint[]), CAST(:sources AS bigint[]), CAST(:seqs AS bigint[]),"
    " CAST(:digests AS bigint[]), CAST(:bodies AS text[])) AS n (job_id, source_id, seq, digest, body)"
)


@dataclass(frozen=True, slots=True)
class Suspect:
    """An identity that may have been stored before. `start_ns` is None for a `job` event."""

    key: Key
    job_id: int
    source_ids: tuple[int, ...]
    start_ns: int | None


@dataclass(slots=True)
class Versions:
    """What is stored under each identity, this batch's own events included."""

    by_key: dict[Key, list[Version]] = field(default_factory=lambda: defaultdict(list))

    def judge(self, key: Key, version: Version) -> str:
        """What a delivery is: `repeat`, `duplicate` (but for the clock offset), `conflict` or `accepted`."""
        there = self.by_key.get(key)
        if there is None:
            self.by_key[key] = [version]
            return "accepted"
        if version in there:
            return "repeat"
        verdict = "duplicate" if any(one[2] == version[2] for one in there) else "conflict"
        there.append(version)
        return verdict


def find_versions(conn: Connection, suspects: Sequence[Suspect]) -> Versions:
    """What is stored under the identities of the suspects."""
    out = Versions()
    for query, chosen in (
        (_FIND, [one for one in suspects if one.start_ns is not None]),
        (_FIND_FACTS, [one for one in suspects if one.start_ns is None]),
    ):
        if not chosen:
            continue
        key_of = {(source, one.key[1]): one.key for one in chosen for source in one.source_ids}
        triples = sorted({(one.job_id, source, one.key[1]) for one in chosen for source in one.source_ids})
        stamps = [one.start_ns or 0 for one in chosen]
        jobs, sources, seqs = zip(*triples, strict=True)
        told: dict[str, object] = {"jobs": list(jobs), "sources": list(sources), "seqs": list(seqs)}
        if query is _FIND:
            told |= {"low": min(stamps) - APART_NS, "high": max(stamps) + APART_NS}
        for source, seq, start, digest in conn.execute(query, told):
            out.by_key[key_of[source, seq]].append((source, start, digest))
    return out


def copy_events(conn: Connection, rows: Iterable[Row]) -> None:
    """Write rows that are known to be new. The partitions of their days must be there."""
    driver = conn.connection.driver_connection
    assert driver is not None
    with driver_errors(), driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(list(COLUMNS.values()))
        for row in rows:
            copy.write_row(row)


def copy_packed(conn: Connection, packed: Sequence[bytes]) -> None:
    """Write rows of `block_rows.pack` that are known to be new. The partitions of their days must be there."""
    driver = conn.connection.driver_connection
    assert driver is not None
    with driver_errors(), driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(b"".join((SIGNATURE, *packed, TRAILER)))


def are_repeats(conn: Connection, block: Block, source_id: int, job_ids: Ints, digest: Ints) -> bool:
    """Whether every event of a block is stored exactly as it is."""
    starts = block.corrected("start")
    told = {
        "jobs": job_ids.tolist(),
        "source": source_id,
        "seqs": block.ints("seq").tolist(),
        "starts": starts.tolist(),
        "digests": digest.tolist(),
        "low": int(starts.min()),
        "high": int(starts.max()),
    }
    return conn.execute(_COUNT, told).scalar() == len(block)


def add_facts(conn: Connection, rows: Sequence[tuple[int, int, int, int, str]]) -> None:
    """Write new `job` events: (job id, source id, seq, digest, body)."""
    if rows:
        names = ("jobs", "sources", "seqs", "digests", "bodies")
        columns = zip(*rows, strict=True)
        conn.execute(_ADD_FACTS, dict(zip(names, map(list, columns), strict=True)))
