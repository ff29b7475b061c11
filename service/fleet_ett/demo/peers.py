"""Two ranks that average vectors over a socket: each really waits for the other."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONNECT_S = 20.0


class PeerLost(Exception):  # noqa: N818 - named after what is seen: the other side is gone
    """The other rank closed the connection: it is dead."""


class CollectiveTimeout(Exception):  # noqa: N818 - named after what is seen
    """The other rank did not come to the collective in time: it hangs."""


class Peer:
    """The connection of rank 0 and rank 1. A collective waits at most `timeout_s`."""

    def __init__(self, rank: int, port: int, timeout_s: float) -> None:
        self._socket = _listen(port) if rank == 0 else _connect(port)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_s)
        self._timeout_s = timeout_s

    def mean(self, vector: NDArray[np.float32], what: str) -> NDArray[np.float32]:
        """The mean of both ranks' vectors. Raises `PeerLost` or `CollectiveTimeout`, which names `what`."""
        try:
            self._socket.sendall(vector.tobytes())
            other = self._receive(vector.nbytes)
        except TimeoutError:
            msg = f"collective operation timeout: the other rank did not come to {what} in {self._timeout_s:g} s"
            raise CollectiveTimeout(msg) from None
        except OSError as error:
            msg = f"the other rank is gone at {what}: {error.strerror}"
            raise PeerLost(msg) from None
        return ((vector + np.frombuffer(other, dtype=np.float32)) / 2).astype(np.float32)

    def barrier(self, what: str) -> None:
        """Wait until both ranks are here."""
        self.mean(np.zeros(1, dtype=np.float32), what)

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError(None, "connection closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _listen(port: int) -> socket.socket:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.settimeout(CONNECT_S)
        listening.bind(("127.0.0.1", port))
        listening.listen(1)
        return listening.accept()[0]


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=CONNECT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
