"""The commands that need a database: `serve`, `migrate`, `rebuild`.

`serve` owns the embedded server when no other is named, migrations on it, and the processes that do the work: one or
several answer HTTP, one books jobs, so that neither waits for the other's interpreter. All end in order on SIGTERM or
Ctrl-C, requests in flight first.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fleet_ett import worker
from fleet_ett.app import create_app
from fleet_ett.crew import Crew, Stopped, stop
from fleet_ett.errors import Denied, Invalid, Unavailable
from fleet_ett.listening import GRACE_S, answer, bind, say_where, tls_files
from fleet_ett.postgres import migrate as migrations
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.refill import make_sums_anew
from fleet_ett.postgres.server import EmbeddedServer, default_data_dir
from fleet_ett.postgres.shards.servers import check_fleet, open_fleet, refuse_alone
from fleet_ett.postgres.shards.setup import set_up
from fleet_ett.postgres.tokens import PostgresTokens

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from fleet_ett.crew import Role
    from fleet_ett.postgres.shards.servers import Fleet
    from fleet_ett.settings import Settings

log = logging.getLogger(__name__)
MARGIN_S = 15  # beyond the grace of requests, until a process that does not end is killed


def serve(settings: Settings, args: argparse.Namespace) -> int:
    """Run the service until it is told to stop. Raises `Denied` for an address that others can reach."""
    del args
    _log_to_stderr(settings)
    signal.signal(signal.SIGTERM, stop)
    try:
        with ExitStack() as stack:
            files = tls_files(settings)
            listening = stack.enter_context(bind(settings))
            url = stack.enter_context(database_url(settings))
            if settings.database_url is None:  # the embedded server is ours alone to migrate
                migrations.migrate(url)
            _run_crew(settings, url, listening, files)
    except (Stopped, KeyboardInterrupt):
        pass
    log.info("stopped")
    return 0


def _run_crew(settings: Settings, url: str, listening: socket.socket, files: dict[str, Any]) -> None:
    """The service as several processes; this one only looks after them."""
    with ExitStack() as stack:  # nothing of it may be open when the others come into being
        engine, _ = _connect(settings, url, stack)
        admit(settings, engine)

    def http(ready: Callable[[], None]) -> None:
        with ExitStack() as stack:
            engine, fleet = _connect(settings, url, stack)
            answer(create_app(settings, engine, fleet), settings, listening, files, ready)

    def attribution(ready: Callable[[], None]) -> None:
        with ExitStack() as stack:
            engine, fleet = _connect(settings, url, stack)
            _start_attribution(settings, engine, fleet, stack)
            del ready  # nobody waits for it
            while True:
                signal.pause()

    roles: dict[str, Role] = {f"http {number}": http for number in range(1, settings.workers + 1)}
    if settings.attribution_workers:
        roles["attribution"] = attribution
    crew = Crew(roles, patience=GRACE_S + MARGIN_S)
    crew.run(partial(say_where, listening, is_tls=bool(files)), listening.close)


def _connect(settings: Settings, url: str, stack: ExitStack) -> tuple[Engine, Fleet | None]:
    engine = stack.enter_context(pool(settings, url))
    return engine, fleet_of(settings, url, engine, stack)


def _start_attribution(settings: Settings, engine: Engine, fleet: Fleet | None, stack: ExitStack) -> None:
    stack.enter_context(worker.Workers(engine, settings if fleet is None else _one_worker(settings)))
    for one in () if fleet is None else fleet.servers:
        stack.enter_context(worker.Workers(one.engine, settings))


def migrate(settings: Settings, args: argparse.Namespace) -> int:
    """Bring the database to the newest migration and say at which it is."""
    del args
    with database_url(settings) as url:
        if settings.shard_urls:
            for line in set_up(url, settings.shard_urls):
                print(line, flush=True)
        else:
            print(f"the database is at migration {migrations.migrate(url)}")
    return 0


def rebuild(settings: Settings, args: argparse.Namespace) -> int:
    """Derive the books of one job, or of all, again from the raw events, or all sums from the books."""
    if args.sums and (args.job is not None or args.as_of is not None):
        msg = "--sums makes those of all jobs from their books as they are: leave out --job and --as-of"
        raise Invalid(msg)
    with ExitStack() as stack:
        url = stack.enter_context(database_url(settings))
        engine = stack.enter_context(pool(settings, url))
        fleet = fleet_of(settings, url, engine, stack)
        if fleet is None:
            engines = [engine]
        elif args.job is not None:
            engines = [fleet.owner(args.job).engine]
        else:
            engines = [server.engine for server in fleet.servers]
        if args.sums:
            for one in engines:
                make_sums_anew(one)
            print("made the sums anew from the books")
            return 0
        policy = worker.policy_of(settings)
        jobs = sum(worker.rebuild(one, policy, job=args.job, as_of=args.as_of) for one in engines)
    print(f"rebuilt {jobs} job{'' if jobs == 1 else 's'}")
    return 0


def fleet_of(settings: Settings, url: str, engine: Engine, stack: ExitStack) -> Fleet | None:
    """The servers that own the jobs; None where the one database does. Raises `Invalid` for those of other fleets."""
    if not settings.shard_urls:
        refuse_alone(engine)
        return None
    fleet = stack.enter_context(open_fleet(url, settings.shard_urls, size=settings.pool_size))
    check_fleet(fleet)
    return fleet


def _one_worker(settings: Settings) -> Settings:
    """For the home of several servers, which has no jobs: its worker only tidies up."""
    return replace(settings, attribution_workers=min(settings.attribution_workers, 1))


def admit(settings: Settings, engine: Engine) -> None:
    """Say who may ask. Raises `Denied` where anybody on the network could read and write the books."""
    try:
        tokens = PostgresTokens(engine)
        tokens.refresh(not_before=0)
        if tokens.any():
            return
    except Unavailable as error:  # it may come later; until then the door stays shut
        log.warning("access tokens could not be looked up: %s", error.message)
        return
    if not settings.is_loopback:
        msg = (
            f"{settings.host} can be reached by others, and there is no access token: make one with "
            "fleet-ett token create, or listen on 127.0.0.1 (the default)"
        )
        raise Denied(msg)
    log.warning("open to everybody on this machine: no access token was ever made (fleet-ett token create)")


@contextmanager
def database_url(settings: Settings) -> Iterator[str]:
    """The database that the settings name, or the embedded one while the block runs."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    data_dir = settings.data_dir or default_data_dir(os.environ)
    with EmbeddedServer.start(data_dir, bin_dir=settings.pg_bin) as server:
        yield server.url


@contextmanager
def pool(settings: Settings, url: str) -> Iterator[Engine]:
    """Connections to the database, closed at the end."""
    engine = open_pool(url, size=settings.pool_size)
    try:
        yield engine
    finally:
        engine.dispose()


class OneLine(logging.Formatter):
    """A message is one line of printable text, whatever names and paths a stranger put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line; a traceback follows it as it is."""
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def _log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    if settings.log_level != "debug":  # they tell every look at the database's migration
        logging.getLogger("alembic").setLevel(logging.WARNING)
