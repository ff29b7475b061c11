"""Tokens in the database, and all of them in memory as they were a moment ago.

A request is judged by memory alone. Every `FRESH_S` a process asks whether anything changed, and reads all tokens
again only where it did.
"""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from fleet_ett.access import Grant, StoredToken
from fleet_ett.errors import NotFound, Unavailable
from fleet_ett.postgres.pool import on_connect, transaction
from fleet_ett.postgres.tables import token_changes, tokens

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Row

AGAIN_S = 1.0  # after the database could not be asked
ANSWER_S = 5.0  # every request waits for this one


class PostgresTokens:
    """`fleet_ett.access.Tokens` over a pool; safe for many threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asking = Lock()
        self._asked = float("-inf")
        self._failed: tuple[float, str] = (-AGAIN_S, "")
        self._version: object = None
        self._known: dict[str, StoredToken] = {}
        self._clusters: frozenset[str] = frozenset()
        on_connect(engine, self._forget)

    def _forget(self) -> None:
        """Read all again at the next look: the number of changes is of one server."""
        self._version = None

    def asked(self) -> float:
        """See `Tokens`."""
        return self._asked

    def refresh(self, *, not_before: float) -> None:
        """See `Tokens`. Who waits for another's question takes its answer."""
        with self._asking:
            if self._asked >= not_before:
                return
            at, why = self._failed
            if monotonic() - at < AGAIN_S:
                raise Unavailable(why)
            asked = monotonic()
            try:
                self._read()
            except Unavailable as error:
                self._failed = (monotonic(), error.message)
                raise
            self._asked = asked

    def any(self) -> bool:
        """See `Tokens`. Rows are never deleted: once there is a token it stays so."""
        return bool(self._known)

    def find(self, token_id: str) -> StoredToken | None:
        """See `Tokens`."""
        return self._known.get(token_id)

    def clusters(self) -> frozenset[str]:
        """The clusters that tokens which are not revoked are for."""
        return self._clusters

    def _read(self) -> None:
        with transaction(self._engine, answer_s=ANSWER_S) as conn:
            version = conn.scalar(select(token_changes.c.version))
            if version == self._version:
                return
            known = {one.grant.token_id: one for one in list_tokens(conn)}
        self._clusters = frozenset(
            name for one in known.values() if one.revoked_ns is None for name in one.grant.clusters
        )
        self._known, self._version = known, version


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
