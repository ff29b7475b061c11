"""The way from an agent to the service, cut in all ways in which networks are cut."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    Pair = tuple[socket.socket, socket.socket]

WHOLE = "whole"
REFUSED = "refused"  # connections are closed as soon as they come
SILENT = "silent"  # nothing passes any more, and nobody is told
HALVED = "halved"  # a request breaks off somewhere
UNANSWERED = "unanswered"  # the request arrives, the answer does not: what was committed is not known to be
SLOW = "slow"  # a few bytes at a time
TROUBLES = (REFUSED, SILENT, HALVED, UNANSWERED, SLOW)
PIECE = 100  # bytes at a time
PAUSE_S = 0.005


class Network:
    """A listening port whose connections go to `port`, in the state that `state` says when they are made."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.state = WHOLE
        self.connections = 0
        self._port = port
        self._chance = chance
        self._pairs: set[Pair] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def change(self, state: str) -> None:
        """What holds from now on, also for what is under way."""
        self.state = state
        if state != SLOW:
            self._break_off()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        self._break_off()

    def _break_off(self) -> None:
        with self._lock:
            for pair in self._pairs:
                for end in pair:
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(near, self.state), daemon=True).start()

    def _serve(self, near: socket.socket, state: str) -> None:
        with near, suppress(OSError):
            if state == REFUSED:
                return
            with socket.socket() as far:
                if state != SILENT:
                    far.connect(("127.0.0.1", self._port))
                pair = (near, far)
                with self._lock:
                    self._pairs.add(pair)
                try:
                    self._pass(near, far, state)
                finally:
                    with self._lock:
                        self._pairs.discard(pair)

    def _pass(self, near: socket.socket, far: socket.socket, state: str) -> None:
        if state == SILENT:
            while near.recv(65536):
                pass
            return
        back = threading.Thread(target=self._back, args=(far, near, state), daemon=True)
        back.start()
        left = self._chance.randrange(1, 700) if state == HALVED else None
        with suppress(OSError):
            while data := near.recv(PIECE if state == SLOW else 65536):
                if left is not None:
                    data, left = data[:left], left - len(data)
                far.sendall(data)
                if left is not None and left <= 0:
                    break
                if state == SLOW:
                    threading.Event().wait(PAUSE_S)
        with suppress(OSError):  # the service hears the end, and may still answer
            far.shutdown(socket.SHUT_WR)
        if left is not None:
            with suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
        back.join()

    def _back(self, far: socket.socket, near: socket.socket, state: str) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if state != UNANSWERED:
                    near.sendall(data)
        with suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)


@contextmanager
def network(port: int, chance: random.Random) -> Iterator[Network]:
    """A whole network until the block ends."""
    made = Network(port, chance)
    try:
        yield made
    finally:
        made.close()
