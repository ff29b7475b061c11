"""A TCP cable between the service and a database server: pulled out, frozen, re-plugged, cut at a COMMIT.

Reads just enough of PostgreSQL's protocol to know the messages: a byte of type and four of length.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE, AFTER = "before", "after"


class Cable:
    """`target`: the socket's path of the server that new connections reach; None refuses them."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.cut: str | None = (
            None  # at the next COMMIT of events, once: `BEFORE` it arrives, `AFTER` it was done
        )
        self.cuts = 0
        self.frozen = threading.Event()  # nothing passes any more, and nobody is told
        self.connections = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()  # a connection is made or broken, not both at once
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, **more: str) -> str:
        query = "".join(f"&{name}={value}" for name, value in more.items())
        return f"postgresql://ett@127.0.0.1:{self.port}/ett?sslmode=disable{query}"

    def pull(self) -> None:
        """Break every connection, also one that is just made; new ones reach the `target` of now."""
        with self._lock:
            for pair in self._pairs:
                _shut(*pair)
            self._pairs = []

    def close(self) -> None:
        """Stop listening, and break every connection."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._over.set()
        self.pull()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.socket(socket.AF_UNIX)
            with self._lock:
                target = self.target
                try:
                    if target is None:
                        raise ConnectionRefusedError
                    far.connect(target)
                except OSError:
                    near.close()
                    far.close()
                    continue
                self._pairs.append((near, far))
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        """Both ways until either ends. Nobody else closes: the number of a closed socket is soon another's."""
        mute = threading.Event()
        down = threading.Thread(target=self._down, args=(near, far, mute), daemon=True)
        down.start()
        with near, far:
            self._up(near, far, mute)
            down.join()

    def _up(self, near: socket.socket, far: socket.socket, mute: threading.Event) -> None:
        """From the service to the server, message by message."""
        with suppress(OSError, EOFError):
            first = near.recv(65536)  # the start-up packet has no type
            far.sendall(first)
            stores = False  # a batch of events, in the transaction at hand
            while True:
                head = _read(near, 5)
                body = _read(near, int.from_bytes(head[1:], "big") - 4)
                self._wait()
                stores = (stores or b"COPY events" in body) and body != b"ROLLBACK\0"
                how = self._taken() if stores and body == b"COMMIT\0" else None
                if how == BEFORE:
                    break
                if how == AFTER:
                    mute.set()
                    far.sendall(head + body)
                    far.shutdown(socket.SHUT_WR)  # once it is done the server hangs up, and so do we
                    return
                stores = stores and body != b"COMMIT\0"
                far.sendall(head + body)
        _shut(near, far)

    def _taken(self) -> str | None:
        """How to cut, for the first of several that commit at once."""
        with self._lock:
            how, self.cut = self.cut, None
            self.cuts += how is not None
        return how

    def _down(self, near: socket.socket, far: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                self._wait()
                if not mute.is_set():
                    near.sendall(data)
        _shut(near, far)

    def _wait(self) -> None:
        """A frozen cable stays frozen for the connections of that time."""
        if self.frozen.is_set():
            self._over.wait()


def _read(one: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        data = one.recv(size - len(parts))
        if not data:
            raise EOFError
        parts += data
    return parts


def _shut(*some: socket.socket) -> None:
    for one in some:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(target: str | None) -> Iterator[Cable]:
    """A cable until the block ends."""
    made = Cable(target)
    try:
        yield made
    finally:
        made.close()
