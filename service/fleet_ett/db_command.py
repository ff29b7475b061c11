"""`fleet-ett db shard`: several database servers for one fleet. `fleet-ett db reader`: a role for dashboards.

`shard` with `--servers` (or ETT_SHARD_URLS) joins plain PostgreSQL servers by postgres_fdw; without, the tables of
one database are distributed by the extension Citus.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet_ett.postgres import report
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.shards import citus
from fleet_ett.postgres.shards.setup import set_up, statements
from fleet_ett.serve import database_url, pool
from fleet_ett.settings import database_urls

if TYPE_CHECKING:
    import argparse

    from fleet_ett.settings import Settings


def db(settings: Settings, args: argparse.Namespace) -> int:
    """Run one action. Raises `Invalid` for databases that cannot be used so, `Unavailable` for one that is away."""
    if args.action == "reader":
        return _reader(settings, args)
    if args.servers is not None:
        settings = replace(settings, shard_urls=database_urls("--servers", args.servers))
    if args.print:
        told = statements(settings.shard_urls, shown=True) if settings.shard_urls else citus.statements()
        for statement in told:
            print(f"{statement};")
        return 0
    with database_url(settings) as url:
        if settings.shard_urls:
            for line in set_up(url, settings.shard_urls):
                print(line, flush=True)
        else:
            with pool(settings, url) as engine:
                for line in citus.distribute(engine):
                    print(line, flush=True)
    return 0


def _reader(settings: Settings, args: argparse.Namespace) -> int:
    """Make the role or give it a new password, which alone goes to standard output."""
    if args.print:  # for psql, which knows the database's name
        for statement in report.statements(args.name, "...", ':"DBNAME"'):
            print(f"{statement};")
        return 0
    with database_url(settings) as url, pool(settings, url) as engine, transaction(engine) as conn:
        password = report.make_reader(conn, args.name)
    print(password)
    print(
        f"{args.name} reads the views of the schema report; this is its password, shown once", file=sys.stderr
    )
    return 0
