"""Tokens, whose cluster something is, and the audit log, in the database.

A look-up is remembered for a moment, so that an agent's requests do not each ask twice: a revoked token is
refused `FRESH_S` later at the latest, by every process.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, insert, select, text, update
from sqlalchemy.exc import ProgrammingError

from fleet_ett.access import Grant, StoredToken
from fleet_ett.errors import NotFound, Unavailable
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.tables import audit, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Row

FRESH_S = 2.0
MOST_KNOWN = 20_000
AUDIT_EVERY_S = 60.0  # the same attempt is noted once in that time

# A job is its claimant's; else the cluster's that the books or, before they are booked, its own events name.
_CLUSTERS = text(
    "SELECT n.name, COALESCE(c.cluster, NULLIF(j.cluster, ''), f.cluster) AS cluster"
    " FROM unnest(CAST(:names AS text[])) AS n (name)"
    " LEFT JOIN claims c ON c.kind = :kind AND c.name = n.name"
    " LEFT JOIN jobs j ON :kind = 'job' AND j.job = n.name"
    " LEFT JOIN LATERAL (SELECT body ->> 'cluster' AS cluster FROM job_facts WHERE job_id = j.job_id"
    " AND body ->> 'cluster' <> '' ORDER BY source_id, seq DESC LIMIT 1) f ON true"
)
_CLAIM = text(
    "INSERT INTO claims (kind, name, cluster) SELECT :kind, n.name, n.cluster"
    " FROM unnest(CAST(:names AS text[]), CAST(:clusters AS text[])) AS n (name, cluster)"
    " ON CONFLICT DO NOTHING"
)


class PostgresTokens:
    """`fleet_ett.access.Tokens` over a pool; safe for many threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._any: tuple[float, bool] = (-FRESH_S, False)
        self._known: dict[str, tuple[float, StoredToken | None]] = {}
        self._noted: dict[tuple[str, ...], float] = {}

    def any(self) -> bool:
        """See `Tokens`. Once there is a token it stays so; rows are never deleted."""
        asked, found = self._any
        if not found and monotonic() - asked >= FRESH_S:
            with _reading(self._engine) as conn:
                found = bool(conn.scalar(select(exists(select(tokens.c.token_id)))))
            self._any = (monotonic(), found)
        return found

    def find(self, token_id: str) -> StoredToken | None:
        """See `Tokens`."""
        asked, found = self._known.get(token_id, (-FRESH_S, None))
        if monotonic() - asked >= FRESH_S:
            with _reading(self._engine) as conn:
                row = conn.execute(select(tokens).where(tokens.c.token_id == token_id)).one_or_none()
            found = None if row is None else _token(row)
            if len(self._known) >= MOST_KNOWN:  # forged ids must not fill the memory
                self._known = {}
            self._known[token_id] = (monotonic(), found)
        return found

    def audit(self, who: str, what: str, detail: dict[str, str]) -> None:
        """See `Tokens`; a repeat within a minute is not noted again."""
        key = (who, what, *sorted(detail.values()))
        if monotonic() - self._noted.get(key, -AUDIT_EVERY_S) < AUDIT_EVERY_S:
            return
        if len(self._noted) >= MOST_KNOWN:
            self._noted = {}
        self._noted[key] = monotonic()
        with transaction(self._engine) as conn:
            add_audit(conn, who, what, detail)

    def clusters(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """The cluster of each job or node (`kind`) that is somebody's."""
        with _reading(self._engine) as conn:
            return _clusters(conn, kind, names)

    def claim(self, kind: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Take names for clusters where they are nobody's; the cluster of each, whoever was first."""
        with transaction(self._engine) as conn:
            names = sorted(wanted)
            told = {"kind": kind, "names": names, "clusters": [wanted[name] for name in names]}
            conn.execute(_CLAIM, told)
            return _clusters(conn, kind, names)


def _clusters(conn: Connection, kind: str, names: Iterable[str]) -> dict[str, str]:
    found = conn.execute(_CLUSTERS, {"kind": kind, "names": sorted(names)})
    return {row.name: row.cluster for row in found if row.cluster}


@contextmanager
def _reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that says so where the tables are not there yet."""
    try:
        with transaction(engine) as conn:
            yield conn
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != "42P01":
            raise
        msg = "the database is not at the newest migration: run fleet-ett migrate"
        raise Unavailable(msg) from error


def add_token(conn: Connection, token: StoredToken) -> None:
    """Store a new token."""
    grant = token.grant
    conn.execute(
        insert(tokens).values(
            token_id=grant.token_id,
            name=grant.name,
            scope=grant.scope,
            clusters=list(grant.clusters),
            nodes=list(grant.nodes),
            teams=list(grant.teams),
            rate=grant.rate,
            secret_hash=token.secret_hash,
            created_ns=token.created_ns,
            expires_ns=token.expires_ns,
        )
    )


def change_token(conn: Connection, token_id: str, **columns: Any) -> None:
    """Set columns of a token that is not revoked. Raises `NotFound`."""
    wanted = (tokens.c.token_id == token_id, tokens.c.revoked_ns.is_(None))
    if not conn.execute(update(tokens).where(*wanted).values(**columns)).rowcount:
        msg = f"there is no token {token_id[:40]!a} that is not revoked"
        raise NotFound(msg)


def rotate_token(conn: Connection, token_id: str, *, secret_hash: bytes, old_until_ns: int) -> None:
    """Give a token another secret; the one before stays good until `old_until_ns`. Raises `NotFound`."""
    change_token(
        conn,
        token_id,
        old_hash=tokens.c.secret_hash,
        old_until_ns=old_until_ns,
        secret_hash=secret_hash,
    )


def list_tokens(conn: Connection) -> list[StoredToken]:
    """All tokens there ever were, the oldest first."""
    return [
        _token(row) for row in conn.execute(select(tokens).order_by(tokens.c.created_ns, tokens.c.token_id))
    ]


def add_audit(conn: Connection, who: str, what: str, detail: Mapping[str, object]) -> None:
    """Note who did what, now."""
    conn.execute(insert(audit).values(at_ns=time_ns(), who=who, what=what, detail=dict(detail)))


def list_audit(conn: Connection, most: int) -> Sequence[Row[Any]]:
    """The newest entries, the newest first."""
    return conn.execute(select(audit).order_by(audit.c.id.desc()).limit(most)).all()


def _token(row: Row[Any]) -> StoredToken:
    clusters, nodes, teams = (tuple(getattr(row, name)) for name in ("clusters", "nodes", "teams"))
    return StoredToken(
        Grant(row.token_id, row.name, row.scope, clusters, nodes, teams, row.rate),
        bytes(row.secret_hash),
        row.created_ns,
        None if row.old_hash is None else bytes(row.old_hash),
        row.old_until_ns,
        row.expires_ns,
        row.revoked_ns,
    )
