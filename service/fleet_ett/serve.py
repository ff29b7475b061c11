"""The commands that need a database: `serve`, `migrate`, `rebuild`.

`serve` owns the process: the embedded server when no other is named, migrations on it, the
attribution workers and the HTTP server; all end in order on SIGTERM or Ctrl-C, requests in flight first.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvicorn

from fleet_ett import worker
from fleet_ett.app import create_app
from fleet_ett.errors import Denied, Invalid, Unavailable
from fleet_ett.postgres import migrate as migrations
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer, default_data_dir
from fleet_ett.postgres.shards.servers import check_fleet, open_fleet, refuse_alone
from fleet_ett.postgres.shards.setup import set_up
from fleet_ett.postgres.tokens import PostgresTokens

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from types import FrameType

    from sqlalchemy import Engine

    from fleet_ett.postgres.shards.servers import Fleet
    from fleet_ett.settings import Settings

log = logging.getLogger(__name__)
GRACE_S = 10  # what requests in flight get when the service stops


class Stopped(SystemExit):
    """SIGTERM: unwind and leave with 0."""


def serve(settings: Settings, args: argparse.Namespace) -> int:
    """Run the service until it is told to stop. Raises `Denied` for an address that others can reach."""
    del args
    _log_to_stderr(settings)
    signal.signal(signal.SIGTERM, _stop)
    try:
        with ExitStack() as stack:
            files = tls_files(settings)
            listening = stack.enter_context(bind(settings))
            url = stack.enter_context(database_url(settings))
            if settings.database_url is None:  # the embedded server is ours alone to migrate
                migrations.migrate(url)
            engine = stack.enter_context(pool(settings, url))
            fleet = _fleet(settings, url, engine, stack)
            admit(settings, engine)
            stack.enter_context(worker.Workers(engine, settings if fleet is None else _one_worker(settings)))
            for one in () if fleet is None else fleet.servers:
                stack.enter_context(worker.Workers(one.engine, settings))
            server = _Server(
                uvicorn.Config(
                    create_app(settings, engine, fleet),
                    log_config=None,
                    access_log=settings.log_level == "debug",
                    timeout_graceful_shutdown=GRACE_S,
                    server_header=False,
                    proxy_headers=False,  # nobody's word for where a request came from
                    **files,
                    lifespan="off",
                )
            )
            server.run(sockets=[listening])
    except (Stopped, KeyboardInterrupt):
        pass
    log.info("stopped")
    return 0


def tls_files(settings: Settings) -> dict[str, Any]:
    """What uvicorn needs for TLS; nothing where it is not asked for. Raises `Invalid` for files that do not fit."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        if not settings.is_loopback:
            log.warning(
                "tokens travel in the clear: set ETT_TLS_CERT and ETT_TLS_KEY, or let a proxy speak TLS"
            )
        return {}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
        if key.stat().st_mode & 0o007:
            log.warning("every user of this machine can read or change %s (ETT_TLS_KEY)", key)
    except OSError as error:
        msg = f"ETT_TLS_CERT and ETT_TLS_KEY cannot be used: {error}"
        raise Invalid(msg) from None
    return {"ssl_certfile": cert, "ssl_keyfile": key}


def _no_password() -> str:
    """Nobody is there to type one."""
    msg = "ETT_TLS_KEY is encrypted: the service needs a key without a password"
    raise Invalid(msg)


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
    """Derive the books of one job, or of all, again from the raw events and say how many jobs."""
    with ExitStack() as stack:
        url = stack.enter_context(database_url(settings))
        engine = stack.enter_context(pool(settings, url))
        fleet = _fleet(settings, url, engine, stack)
        if fleet is None:
            engines = [engine]
        elif args.job is not None:
            engines = [fleet.owner(args.job).engine]
        else:
            engines = [server.engine for server in fleet.servers]
        policy = worker.policy_of(settings)
        jobs = sum(worker.rebuild(one, policy, job=args.job, as_of=args.as_of) for one in engines)
    print(f"rebuilt {jobs} job{'' if jobs == 1 else 's'}")
    return 0


def _fleet(settings: Settings, url: str, engine: Engine, stack: ExitStack) -> Fleet | None:
    """The servers that own the jobs; None where the one database does. Raises `Invalid` for those of other fleets."""
    if not settings.shard_urls:
        refuse_alone(engine)
        return None
    fleet = stack.enter_context(open_fleet(url, settings.shard_urls, size=settings.pool_size))
    check_fleet(fleet)
    return fleet


def _one_worker(settings: Settings) -> Settings:
    """For the home of several servers, which has no jobs: its worker only tidies up."""
    return replace(settings, workers=min(settings.workers, 1))


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


@contextmanager
def bind(settings: Settings) -> Iterator[socket.socket]:
    """A bound socket, so that a taken port is told before the database starts, and port 0 is known."""
    host = "127.0.0.1" if settings.host == "localhost" else settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: else each answer waits 40 ms
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, settings.port))
        except OSError as error:
            msg = f"cannot listen on {host} port {settings.port}: {error.strerror}; choose another with ETT_PORT"
            raise Invalid(msg) from None
        yield listening


class _Server(uvicorn.Server):
    """Says where it listens once it does, for people and for programs that asked for port 0."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            scheme = "https" if self.config.is_ssl else "http"
            print(f"fleet-ett listens on {scheme}://{name}:{port}", flush=True)


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


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped(0)
