"""Connections that do not say what they want, end; those that do are not disturbed."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
import uvicorn

from fleet_ett.app import create_app
from fleet_ett.http import patience
from fleet_ett.http.patience import PatientProtocol
from fleet_ett.settings import Settings
from tests.http.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture
def port(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a service that waits a moment for heads."""
    monkeypatch.setattr(patience, "HEAD_S", 1.0)  # in which a busy machine must send a head
    app = create_app(Settings(), engine)
    config = uvicorn.Config(app, port=0, http=PatientProtocol, log_config=None, lifespan="off")
    with serving(config) as url:
        yield int(url.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def test_a_head_that_trickles_in_is_not_waited_for(port: int) -> None:
    """Neither one that never begins, nor one that never ends, nor a second one on a connection."""
    for said in (
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET",
    ):
        with connect(port) as link:
            link.sendall(said)
            heard = b""
            while piece := link.recv(65536):
                heard += piece
        assert heard.startswith(b"HTTP/1.1 200") == said.endswith(b"GET")


def test_trickling_on_does_not_help(port: int) -> None:
    with connect(port) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises(ConnectionError):
            trickle(link)


def trickle(link: socket.socket) -> None:
    while True:
        link.sendall(b"X-A: b\r\n")
        time.sleep(0.02)


def test_a_body_may_take_longer_than_a_head(port: int) -> None:
    body = b'{"agent": {"node": "n", "incarnation": "i"}, "events": []}'
    head = f"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with connect(port) as link:
        link.sendall(head.encode())
        for at in range(0, len(body), 10):
            link.sendall(body[at : at + 10])
            time.sleep(0.25)
        heard = b""
        while piece := link.recv(65536):
            heard += piece
    assert heard.startswith(b"HTTP/1.1 200")


def test_who_was_answered_early_may_end_its_body(port: int) -> None:
    """Or the reset of the connection would take the answer, with its Retry-After, from the sender."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n"
    with connect(port) as link:
        link.sendall(head)
        for _ in range(10):
            link.sendall(b"x" * 1000)
            time.sleep(0.15)
        assert link.recv(65536).startswith(b"HTTP/1.1 413")
