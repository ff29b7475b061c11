"""`fleet-ett token`: make, list, rotate and revoke access tokens, and read the audit log.

Whoever may write to the database may do this; each act is noted with the user of this machine.
"""

from __future__ import annotations

import getpass
import json
import socket
from contextlib import contextmanager
from datetime import datetime, timezone
from time import time_ns
from typing import TYPE_CHECKING

from fleet_ett.access import Grant, StoredToken, check_grant, hash_of, new_id, new_secret
from fleet_ett.errors import Invalid
from fleet_ett.postgres import migrate as migrations
from fleet_ett.postgres import tokens
from fleet_ett.postgres.pool import transaction
from fleet_ett.serve import database_url, pool

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from fleet_ett.settings import Settings

DAY_NS = 86_400_000_000_000
MAX_DAYS = 36_500
MAX_GRACE_S = 31 * 86_400
RATE, RATE_OF_MANY = 50, 2000  # requests/s
MOST = 1000  # entries of the audit log that are shown
SECOND_NS = 1_000_000_000


def token(settings: Settings, args: argparse.Namespace) -> int:
    """Run one action. Raises `Invalid` for arguments that say nothing, `NotFound` for an id that is not there."""
    actions = {"create": _create, "list": _list, "rotate": _rotate, "revoke": _revoke, "audit": _audit}
    if (args.id is not None) != (args.action in ("rotate", "revoke")):
        msg = f"token {args.action} takes {'an id' if args.id is None else 'no id'}"
        raise Invalid(msg)
    if args.action == "create":
        _check(args)
    with _connection(settings) as conn:
        actions[args.action](conn, args)
    return 0


def _check(args: argparse.Namespace) -> None:
    if not args.name or not args.scope:
        msg = "token create needs --name and --scope"
        raise Invalid(msg)
    if args.days is not None and not 1 <= args.days <= MAX_DAYS:
        msg = f"--days is 1 to {MAX_DAYS}"
        raise Invalid(msg)
    check_grant(_grant(args, ""), everything=args.all)


def _grant(args: argparse.Namespace, token_id: str) -> Grant:
    many = args.scope == "ingest" and not args.node
    rate = args.rate if args.rate is not None else (RATE_OF_MANY if many else RATE)
    clusters, nodes, teams = (tuple(dict.fromkeys(names)) for names in (args.cluster, args.node, args.team))
    return Grant(token_id, args.name, args.scope, clusters, nodes, teams, rate)


def _create(conn: Connection, args: argparse.Namespace) -> None:
    now, secret, grant = time_ns(), new_secret(), _grant(args, new_id())
    expires = None if args.days is None else now + args.days * DAY_NS
    tokens.add_token(conn, StoredToken(grant, hash_of(secret), now, expires_ns=expires))
    detail = {"token": grant.token_id, "name": grant.name, "scope": grant.scope, "covers": _covers(grant)}
    tokens.add_audit(conn, _who(), "token created", detail)
    print(f"ett_{grant.token_id}_{secret}")


def _rotate(conn: Connection, args: argparse.Namespace) -> None:
    if not 0 <= args.grace <= MAX_GRACE_S:
        msg = f"--grace is 0 to {MAX_GRACE_S} s"
        raise Invalid(msg)
    secret, until = new_secret(), time_ns() + args.grace * SECOND_NS
    tokens.rotate_token(conn, args.id, secret_hash=hash_of(secret), old_until_ns=until)
    tokens.add_audit(conn, _who(), "token rotated", {"token": args.id, "grace_s": args.grace})
    print(f"ett_{args.id}_{secret}")


def _revoke(conn: Connection, args: argparse.Namespace) -> None:
    tokens.change_token(conn, args.id, revoked_ns=time_ns())
    tokens.add_audit(conn, _who(), "token revoked", {"token": args.id})
    print(f"token {args.id} is revoked; every process refuses it within {tokens.FRESH_S:.0f} s")


def _list(conn: Connection, args: argparse.Namespace) -> None:
    del args
    now = time_ns()
    for one in tokens.list_tokens(conn):
        grant = one.grant
        expires = "never" if one.expires_ns is None else _moment(one.expires_ns)
        row = (
            grant.token_id,
            one.state(now),
            grant.scope,
            _covers(grant),
            f"{grant.rate}/s",
            expires,
            grant.name,
        )
        print("\t".join(row))


def _audit(conn: Connection, args: argparse.Namespace) -> None:
    del args
    for row in tokens.list_audit(conn, MOST):
        # ASCII JSON: what a stranger sent cannot steer the terminal
        print("\t".join((_moment(row.at_ns), row.who, row.what, json.dumps(row.detail))))


def _covers(grant: Grant) -> str:
    parts = (("cluster", grant.clusters), ("node", grant.nodes), ("team", grant.teams))
    return " ".join(f"{kind}={json.dumps(name)}" for kind, names in parts for name in names) or "all"


def _moment(ns: int) -> str:
    return datetime.fromtimestamp(ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "?"
    return f"{user}@{socket.gethostname()}"


@contextmanager
def _connection(settings: Settings) -> Iterator[Connection]:
    with database_url(settings) as url:
        if settings.database_url is None:  # the embedded server is ours alone to migrate
            migrations.migrate(url)
        with pool(settings, url) as engine, transaction(engine) as conn:
            yield conn
