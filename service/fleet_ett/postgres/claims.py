"""Whose jobs and nodes are, in the database; what is somebody's is remembered for a while.

A claim that an administrator moves or releases holds on in other processes for `KEPT_S` at most.
"""

from __future__ import annotations

from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text

from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.tables import claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Row

KEPT_S = 30.0
MOST_KEPT = 200_000

# A job is its claimant's; else the cluster's that the books or, before they are booked, its own events name.
_CLUSTERS = text(
    "SELECT n.name, COALESCE(c.cluster, NULLIF(j.cluster, ''), f.cluster) AS cluster"
    " FROM unnest(CAST(:names AS text[])) AS n (name)"
    " LEFT JOIN claims c ON c.kind = :kind AND c.name = n.name"
    " LEFT JOIN jobs j ON :kind = 'job' AND j.job = n.name"
    " LEFT JOIN LATERAL (SELECT body ->> 'cluster' AS cluster FROM job_facts WHERE job_id = j.job_id"
    " AND body ->> 'cluster' <> '' ORDER BY source_id, seq DESC LIMIT 1) f ON true"
)
_CLAIM = (
    "INSERT INTO claims (kind, name, cluster, at_ns, who) SELECT :kind, n.name, n.cluster, :now, :who"
    " FROM unnest(CAST(:names AS text[]), CAST(:clusters AS text[])) AS n (name, cluster)"
    " ON CONFLICT (kind, name) DO "
)
_TAKE = text(f"{_CLAIM} NOTHING")
_MOVE = text(f"{_CLAIM} UPDATE SET cluster = EXCLUDED.cluster, at_ns = EXCLUDED.at_ns, who = EXCLUDED.who")
_RELEASE = text(
    "DELETE FROM claims WHERE kind = :kind AND name = ANY(CAST(:names AS text[])) RETURNING name, cluster"
)


class PostgresClaims:
    """`fleet_ett.speakers.Claims` over a pool; safe for many threads. `with_tokens`: clusters that have tokens."""

    def __init__(self, engine: Engine, with_tokens: Callable[[], frozenset[str]]) -> None:
        self._engine = engine
        self._with_tokens = with_tokens
        self._kept: dict[tuple[str, str], tuple[str, float]] = {}

    def clusters(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """See `Claims`."""
        now = monotonic()
        wanted = set(names)
        out = {
            name: kept[0]
            for name in wanted
            if (kept := self._kept.get((kind, name))) is not None and now - kept[1] < KEPT_S
        }
        missing = wanted - out.keys()
        if missing:
            found = self._keep(kind, self.find(kind, missing))
            out |= found
            if kind == "job":  # nobody's yet, but the key says whose it will be
                out |= {
                    name: first
                    for name in missing - found.keys()
                    if (first := name.partition("/")[0]) != name and first in self._with_tokens()
                }
        return out

    def find(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """The cluster of each job or node that the database says is somebody's. Raises `Unavailable`."""
        with transaction(self._engine) as conn:
            return find_clusters(conn, kind, names)

    def claim(self, kind: str, wanted: Mapping[str, str], who: str) -> dict[str, str]:
        """See `Claims`."""
        with transaction(self._engine) as conn:
            take_claims(conn, kind, wanted, who)
            return self._keep(kind, find_clusters(conn, kind, wanted))

    def _keep(self, kind: str, found: dict[str, str]) -> dict[str, str]:
        now = monotonic()
        if len(self._kept) + len(found) > MOST_KEPT:
            self._kept = {}
        self._kept.update({(kind, name): (cluster, now) for name, cluster in found.items()})
        return found


def find_clusters(conn: Connection, kind: str, names: Iterable[str]) -> dict[str, str]:
    """The cluster of each job or node (`kind`) that is somebody's."""
    found = conn.execute(_CLUSTERS, {"kind": kind, "names": sorted(names)})
    return {row.name: row.cluster for row in found if row.cluster}


def take_claims(
    conn: Connection, kind: str, wanted: Mapping[str, str], who: str, *, is_moved: bool = False
) -> None:
    """Note the cluster of names that are nobody's; `is_moved`: of all."""
    names = sorted(wanted)  # in order: several take names at once
    clusters = [wanted[name] for name in names]
    told = {"kind": kind, "names": names, "clusters": clusters, "now": time_ns(), "who": who}
    conn.execute(_MOVE if is_moved else _TAKE, told)


def release_claims(conn: Connection, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Forget claims; the cluster of each that there was."""
    return {row.name: row.cluster for row in conn.execute(_RELEASE, {"kind": kind, "names": sorted(names)})}


def list_claims(
    conn: Connection, most: int, *, clusters: Sequence[str], jobs: Sequence[str], nodes: Sequence[str]
) -> Sequence[Row[Any]]:
    """The newest claims, the newest first; of those clusters, jobs and nodes where any are named."""
    query = select(claims).order_by(claims.c.at_ns.desc(), claims.c.kind, claims.c.name).limit(most)
    if clusters:
        query = query.where(claims.c.cluster.in_(clusters))
    if jobs or nodes:
        is_job = (claims.c.kind == "job") & claims.c.name.in_(jobs)
        query = query.where(is_job | ((claims.c.kind == "node") & claims.c.name.in_(nodes)))
    return conn.execute(query).all()
