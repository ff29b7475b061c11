"""Who may what: tokens, and the grant that one stands for.

A token is `ett_<id>_<secret>`. The secret is 32 random bytes, so one SHA-256 keeps it as well as a slow
hash would: there is nothing to guess from. Only the hash is stored, and compared in constant time.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from fleet_ett.errors import Denied, Invalid, Unauthorized

SCOPES = ("ingest", "read", "admin")
MAX_NAME = 200  # characters
MAX_RATE = 1_000_000
_TOKEN = re.compile(r"ett_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOBODY = bytes(32)


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a token may do; an empty tuple does not narrow. `rate`: requests/s, 0 for no limit."""

    token_id: str
    name: str
    scope: str
    clusters: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    rate: int = 0

    def may_ingest(self) -> None:
        """Raise `Denied` unless events may be sent."""
        if self.scope != "ingest":
            msg = "this token does not send events: it needs the scope ingest"
            raise Denied(msg)

    def may_read(self) -> None:
        """Raise `Denied` unless the books, or a part of them, may be read."""
        if self.scope not in ("read", "admin"):
            msg = "this token does not read: it needs the scope read or admin"
            raise Denied(msg)

    def may_read_all(self) -> None:
        """Raise `Denied` unless what belongs to no single team may be read."""
        self.may_read()
        if self.teams:
            msg = "this is of the whole fleet, and the token reads only some teams"
            raise Denied(msg)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as the database has it; times in ns."""

    grant: Grant
    secret_hash: bytes
    created_ns: int
    old_hash: bytes | None = None
    old_until_ns: int | None = None
    expires_ns: int | None = None
    revoked_ns: int | None = None

    def state(self, now: int) -> str:
        """`live`, `revoked` or `expired` at `now`."""
        if self.revoked_ns is not None:
            return "revoked"
        return "expired" if self.expires_ns is not None and self.expires_ns <= now else "live"


class Tokens(Protocol):
    """Where tokens are looked up."""

    def any(self) -> bool:
        """Whether there ever was a token: then every request needs one. Raises `Unavailable`."""
        ...

    def find(self, token_id: str) -> StoredToken | None:
        """The token of that id. Raises `Unavailable`."""
        ...

    def audit(self, who: str, what: str, detail: dict[str, str]) -> None:
        """Note what somebody tried."""
        ...


def new_secret() -> str:
    """A secret of 32 random bytes, as text of 43 characters."""
    return secrets.token_urlsafe(32)


def new_id() -> str:
    """The public part of a token."""
    return secrets.token_hex(8)


def hash_of(secret: str) -> bytes:
    """What is stored of a secret."""
    return sha256(secret.encode()).digest()


def check_token(tokens: Tokens, text: str, *, now: int) -> Grant:
    """The grant of a token at `now` (ns). Raises `Unauthorized`, in the same words whatever is wrong with it."""
    parts = _TOKEN.fullmatch(text)
    found = tokens.find(parts[1]) if parts else None
    given = hash_of(parts[2]) if parts else _NOBODY
    is_secret = hmac.compare_digest(given, found.secret_hash if found else _NOBODY)
    if found and found.old_hash and found.old_until_ns and found.old_until_ns > now:
        is_secret |= hmac.compare_digest(given, found.old_hash)
    if found is None or not is_secret or found.state(now) != "live":
        msg = "the token is unknown, expired or revoked"
        raise Unauthorized(msg)
    return found.grant


def check_grant(grant: Grant, *, everything: bool) -> None:
    """Refuse a grant that says nothing, or two things. Raises `Invalid` with what is expected."""
    if grant.scope not in SCOPES:
        msg = f"the scope must be one of {', '.join(SCOPES)}"
        raise Invalid(msg)
    for name in (grant.name, *grant.clusters, *grant.nodes, *grant.teams):
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            msg = f"a name has 1 to {MAX_NAME} printable characters, not {name[:40]!a}"
            raise Invalid(msg)
    if (grant.clusters or grant.nodes) and grant.scope != "ingest":
        msg = "--cluster and --node belong to the scope ingest"
        raise Invalid(msg)
    if grant.teams and grant.scope != "read":
        msg = "--team belongs to the scope read"
        raise Invalid(msg)
    narrowed = bool(grant.clusters or grant.nodes or grant.teams)
    if grant.scope != "admin" and narrowed == everything:
        narrow = "--cluster or --node" if grant.scope == "ingest" else "--team"
        msg = f"say either {narrow}, or --all"
        raise Invalid(msg)
    if not 0 <= grant.rate <= MAX_RATE:
        msg = f"--rate is 0 (no limit) to {MAX_RATE} requests/s"
        raise Invalid(msg)
