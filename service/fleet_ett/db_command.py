"""`fleet-ett db shard`: several database servers for one fleet.

With `--servers` (or ETT_SHARD_URLS) plain PostgreSQL servers joined by postgres_fdw; without, the tables of one
database distributed by the extension Citus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet_ett.postgres.shards import citus
from fleet_ett.postgres.shards.setup import set_up, statements
from fleet_ett.serve import database_url, pool
from fleet_ett.settings import database_urls

if TYPE_CHECKING:
    import argparse

    from fleet_ett.settings import Settings


def db(settings: Settings, args: argparse.Namespace) -> int:
    """Run one action. Raises `Invalid` for databases that cannot be used so, `Unavailable` for one that is away."""
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
