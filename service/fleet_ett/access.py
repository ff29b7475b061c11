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
from typing import TYPE_CHECKING, Protocol

from fleet_ett.errors import Denied, Invalid, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Mapping

SCOPES = ("ingest", "read", "metrics", "admin")
READING = ("read", "admin")
MAX_NAME = 200  # characters
MAX_NAMES = 1000  # clusters, nodes or teams of one token
MAX_RATE = 1_000_000
FRESH_S = 2.0  # what is made, rotated or revoked holds in every process that much later at the latest
REFUSAL_S = 0.1  # however many strangers knock, the database is asked about them no oftener
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

    @property
    def who(self) -> str:
        """How the audit log calls the bearer."""
        return f"token {self.token_id}"

    def may_ingest(self) -> None:
        """Raise `Denied` unless events may be sent."""
        if self.scope != "ingest":
            msg = "this token does not send events: it needs the scope ingest"
            raise Denied(msg)

    def may_read(self) -> None:
        """Raise `Denied` unless the books, or a part of them, may be read."""
        if self.scope not in READING:
            msg = "this token does not read: it needs the scope read or admin"
            raise Denied(msg)

    def may_scrape(self) -> None:
        """Raise `Denied` unless the Prometheus page, which is of the whole fleet, may be read."""
        if self.scope == "metrics":
            return
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
    """All tokens, as they were a moment ago: looking one up asks nobody."""

    def asked(self) -> float:
        """When what is known was asked for (monotonic s)."""
        ...

    def refresh(self, *, not_before: float) -> None:
        """Ask again, unless that was at or after `not_before`. Raises `Unavailable`."""
        ...

    def any(self) -> bool:
        """Whether there ever was a token: then every request needs one."""
        ...

    def find(self, token_id: str) -> StoredToken | None:
        """The token of that id."""
        ...


class Note(Protocol):
    """Notes in the audit log what somebody tried."""

    def __call__(self, who: str, what: str, detail: Mapping[str, str]) -> None:
        """Never raises; floods are cut short."""
        ...


class Refused(Unauthorized):
    """A token that was good once: who shows it knows the secret, so that it is worth a note."""

    def __init__(self, message: str, *, who: str, state: str) -> None:
        super().__init__(message)
        self.who = who
        self.state = state


def new_secret() -> str:
    """A secret of 32 random bytes, as text of 43 characters."""
    return secrets.token_urlsafe(32)


def new_id() -> str:
    """The public part of a token."""
    return secrets.token_hex(8)


def hash_of(secret: str) -> bytes:
    """What is stored of a secret."""
    return sha256(secret.encode()).digest()


def is_token(text: str) -> bool:
    """Whether it looks like one."""
    return _TOKEN.fullmatch(text) is not None


def check_token(tokens: Tokens, text: str, *, now: int) -> Grant:
    """The grant of a token at `now` (ns). Raises `Unauthorized`, in the same words whatever is wrong with it."""
    parts = _TOKEN.fullmatch(text)
    found = tokens.find(parts[1]) if parts else None
    given = hash_of(parts[2]) if parts else _NOBODY
    is_secret = hmac.compare_digest(given, found.secret_hash if found else _NOBODY)
    if found and found.old_hash and found.old_until_ns and found.old_until_ns > now:
        is_secret |= hmac.compare_digest(given, found.old_hash)
    msg = "the token is unknown, expired or revoked"
    if found is None or not is_secret:
        raise Unauthorized(msg)
    state = found.state(now)
    if state != "live":
        raise Refused(msg, who=found.grant.who, state=state)
    return found.grant


def check_grant(grant: Grant, *, everything: bool) -> None:
    """Refuse a grant that says nothing, or two things. Raises `Invalid` with what is expected."""
    if grant.scope not in SCOPES:
        msg = f"the scope must be one of {', '.join(SCOPES)}"
        raise Invalid(msg)
    check_names(grant.name, *grant.clusters, *grant.nodes, *grant.teams)
    if (grant.clusters or grant.nodes) and grant.scope != "ingest":
        msg = "--cluster and --node belong to the scope ingest"
        raise Invalid(msg)
    if grant.nodes and not grant.clusters:
        msg = "--node needs --cluster: the token writes only jobs of the node's cluster"
        raise Invalid(msg)
    if grant.teams and grant.scope != "read":
        msg = "--team belongs to the scope read"
        raise Invalid(msg)
    if max(map(len, (grant.clusters, grant.nodes, grant.teams))) > MAX_NAMES:
        msg = f"a token names at most {MAX_NAMES} clusters, nodes or teams"
        raise Invalid(msg)
    narrowed = bool(grant.clusters or grant.nodes or grant.teams)
    if grant.scope in ("ingest", "read") and narrowed == everything:
        narrow = "--cluster (with --node)" if grant.scope == "ingest" else "--team"
        msg = f"say either {narrow}, or --all"
        raise Invalid(msg)
    if not 0 <= grant.rate <= MAX_RATE:
        msg = f"--rate is 0 (no limit) to {MAX_RATE} requests/s"
        raise Invalid(msg)


def check_names(*names: str) -> None:
    """Refuse what is no name. Raises `Invalid`."""
    for name in names:
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            msg = f"a name has 1 to {MAX_NAME} printable characters, not {name[:40]!a}"
            raise Invalid(msg)
