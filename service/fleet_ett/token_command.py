"""`fleet-ett token`: make, list, rotate and revoke access tokens, give away jobs and nodes, read the audit log.

Whoever may write to the database may do this; each act is noted with the user of this machine. Only a secret goes to
standard output when it is made, once; no argument and no other output ever holds one.
"""

from __future__ import annotations

import getpass
import json
import socket
from contextlib import contextmanager
from datetime import datetime, timezone
from time import time_ns
from typing import TYPE_CHECKING

from fleet_ett.access import (
    FRESH_S,
    Grant,
    StoredToken,
    check_grant,
    check_names,
    hash_of,
    new_id,
    new_secret,
)
from fleet_ett.errors import Conflict, Invalid, NotFound
from fleet_ett.postgres import audit, claims, tokens
from fleet_ett.postgres import migrate as migrations
from fleet_ett.postgres.pool import transaction
from fleet_ett.serve import database_url, pool

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from fleet_ett.settings import Settings

DAY_NS = 86_400_000_000_000
MAX_DAYS = 36_500
MAX_GRACE_S = 31 * 86_400
RATE, RATE_OF_MANY = 50, 2000  # requests/s
MOST = 1000  # claims, and entries of the audit log, that are shown
SECOND_NS = 1_000_000_000


def token(settings: Settings, args: argparse.Namespace) -> int:
    """Run one action. Raises `Invalid` for arguments that say nothing, `NotFound`, `Conflict`."""
    actions = {
        "create": _create, "list": _list, "rotate": _rotate, "revoke": _revoke,
        "claims": _claims, "claim": _claim, "release": _release, "audit": _audit,
    }  # fmt: skip
    if (args.id is not None) != (args.action in ("rotate", "revoke")):
        msg = f"token {args.action} takes {'an id' if args.id is None else 'no id'}"
        raise Invalid(msg)
    if args.action == "create":
        _check(args)
    if args.action in ("claim", "release"):
        _check_claim(args)
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


def _check_claim(args: argparse.Namespace) -> None:
    wanted = 1 if args.action == "claim" else 0
    if len(args.cluster) != wanted or not (args.job or args.node):
        needs = "one --cluster and --job or --node" if wanted else "--job or --node"
        msg = f"token {args.action} takes {needs}"
        raise Invalid(msg)
    check_names(*args.cluster)


def _grant(args: argparse.Namespace, token_id: str) -> Grant:
    many = args.scope == "ingest" and not args.node
    rate = args.rate if args.rate is not None else (RATE_OF_MANY if many else RATE)
    clusters, nodes, teams = (tuple(dict.fromkeys(names)) for names in (args.cluster, args.node, args.team))
    return Grant(token_id, args.name, args.scope, clusters, nodes, teams, rate)


def _create(conn: Connection, args: argparse.Namespace) -> None:
    now, secret, grant = time_ns(), new_secret(), _grant(args, new_id())
    expires = None if args.days is None else now + args.days * DAY_NS
    if grant.nodes and len(grant.clusters) == 1:  # whose the nodes are is said here
        wanted = dict.fromkeys(grant.nodes, grant.clusters[0])
        claims.take_claims(conn, "node", wanted, _who())
        found = claims.find_clusters(conn, "node", grant.nodes)
        others = [name for name in grant.nodes if found[name] != grant.clusters[0]]
        if others:
            msg = f"the node {others[0]!a} is of the cluster {found[others[0]]!a}: token claim moves it"
            raise Conflict(msg)
    tokens.add_token(conn, StoredToken(grant, hash_of(secret), now, expires_ns=expires))
    detail = {"token": grant.token_id, "name": grant.name, "scope": grant.scope, "covers": _covers(grant)}
    audit.add_audit(conn, _who(), "token created", detail)
    _show_secret(args, grant.token_id, secret)


def _rotate(conn: Connection, args: argparse.Namespace) -> None:
    if not 0 <= args.grace <= MAX_GRACE_S:
        msg = f"--grace is 0 to {MAX_GRACE_S} s"
        raise Invalid(msg)
    secret, until = new_secret(), time_ns() + args.grace * SECOND_NS
    tokens.rotate_token(conn, args.id, secret_hash=hash_of(secret), old_until_ns=until)
    audit.add_audit(conn, _who(), "token rotated", {"token": args.id, "grace_s": args.grace})
    _show_secret(args, args.id, secret)


def _show_secret(args: argparse.Namespace, token_id: str, secret: str) -> None:
    told = f"ett_{token_id}_{secret}"
    print(json.dumps({"id": token_id, "token": told}) if args.json else told)


def _revoke(conn: Connection, args: argparse.Namespace) -> None:
    tokens.change_token(conn, args.id, revoked_ns=time_ns())
    audit.add_audit(conn, _who(), "token revoked", {"token": args.id})
    told = f"token {args.id} is revoked; every process refuses it within {FRESH_S:.0f} s"
    print(json.dumps({"id": args.id, "state": "revoked"}) if args.json else told)


def _list(conn: Connection, args: argparse.Namespace) -> None:
    now = time_ns()
    for one in tokens.list_tokens(conn):
        grant = one.grant
        told = {
            "id": grant.token_id,
            "state": one.state(now),
            "scope": grant.scope,
            "covers": _covers(grant),
            "rate": f"{grant.rate}/s",
            "expires": "never" if one.expires_ns is None else _moment(one.expires_ns),
            "name": grant.name,
        }
        exact = {
            "clusters": grant.clusters,
            "nodes": grant.nodes,
            "teams": grant.teams,
            "rate": grant.rate,
            "created": _moment(one.created_ns),
        }
        _show(args, told, exact)


def _claims(conn: Connection, args: argparse.Namespace) -> None:
    for row in claims.list_claims(conn, MOST, clusters=args.cluster, jobs=args.job, nodes=args.node):
        at = _moment(row.at_ns)
        names = {"name": json.dumps(row.name), "cluster": json.dumps(row.cluster)}
        told = {"kind": row.kind, **names, "at": at, "who": row.who}
        _show(args, told, {"name": row.name, "cluster": row.cluster})


def _claim(conn: Connection, args: argparse.Namespace) -> None:
    (cluster,) = args.cluster
    for kind, names in (("job", args.job), ("node", args.node)):
        if names:
            before = claims.find_clusters(conn, kind, names)
            claims.take_claims(conn, kind, dict.fromkeys(names, cluster), _who(), is_moved=True)
            for name in names:
                detail = {"kind": kind, "name": name, "cluster": cluster, "before": before.get(name, "")}
                audit.add_audit(conn, _who(), "claim made", detail)
                _show(args, {"kind": kind, "name": json.dumps(name), "cluster": json.dumps(cluster)}, detail)


def _release(conn: Connection, args: argparse.Namespace) -> None:
    for kind, names in (("job", args.job), ("node", args.node)):
        if not names:
            continue
        found = claims.release_claims(conn, kind, names)
        missing = sorted(set(names) - found.keys())
        if missing:
            msg = f"nobody claims the {kind} {missing[0][:200]!a}"
            raise NotFound(msg)
        for name, cluster in sorted(found.items()):
            detail = {"kind": kind, "name": name, "cluster": cluster}
            audit.add_audit(conn, _who(), "claim released", detail)
            _show(args, {"kind": kind, "name": json.dumps(name), "released": json.dumps(cluster)}, detail)


def _audit(conn: Connection, args: argparse.Namespace) -> None:
    for row in audit.list_audit(conn, MOST):
        told = {"at": _moment(row.at_ns), "who": row.who, "what": row.what, "detail": json.dumps(row.detail)}
        _show(args, told, {"detail": row.detail})


def _show(args: argparse.Namespace, told: Mapping[str, str], exact: Mapping[str, object]) -> None:
    """One row: tab-separated, or JSON with the exact values. ASCII: what a stranger sent cannot steer the terminal."""
    print(json.dumps({**told, **exact}) if args.json else "\t".join(told.values()))


def _covers(grant: Grant) -> str:
    parts = (("cluster", grant.clusters), ("node", grant.nodes), ("team", grant.teams))
    return " ".join(f"{kind}={json.dumps(name)}" for kind, names in parts for name in names) or "all"


def _moment(ns: int) -> str:
    return datetime.fromtimestamp(ns // SECOND_NS, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


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
