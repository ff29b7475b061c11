"""The socket that the service listens on, and the HTTP server on it."""

from __future__ import annotations

import ctypes
import logging
import resource
import socket
import ssl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn

from fleet_ett.errors import Invalid
from fleet_ett.garbage import Tidied
from fleet_ett.http.patience import PatientProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from fleet_ett.settings import Settings

log = logging.getLogger(__name__)
GRACE_S = 10  # what requests in flight get when the service stops
M_ARENA_MAX = -8  # malloc.h
BACKLOG = 2048  # connections that wait to be accepted


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


def answer(
    app: FastAPI,
    settings: Settings,
    listening: socket.socket,
    files: dict[str, Any],
    started: Callable[[], None],
) -> None:
    """Answer requests until SIGTERM or SIGINT; `started` is called once that begins."""
    config = uvicorn.Config(
        Tidied(app),
        http=PatientProtocol,
        log_config=None,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        proxy_headers=False,  # nobody's word for where a request came from
        # how many connections a process takes at once from those that wait: of several, each takes its share
        backlog=BACKLOG if settings.workers == 1 else 1,
        **files,
        lifespan="off",
    )
    _allow_connections()
    _share_arenas()
    _Server(config, started).run(sockets=[listening])


def _allow_connections() -> None:
    """As many open files as this user may have: each agent keeps a connection, and 1024 is the usual allowance."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have other limits beside this one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _share_arenas() -> None:
    """Two heaps for all threads: with one for each, glibc keeps twice as much of what bodies once took."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def say_where(listening: socket.socket, *, is_tls: bool) -> None:
    """One line for people, and for programs that asked for port 0."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    print(f"fleet-ett listens on {'https' if is_tls else 'http'}://{name}:{port}", flush=True)


class _Server(uvicorn.Server):
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)
        self._tell()
