"""Ports of loopback for programs that are started later, and perhaps again and again."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of loopback on which nobody listens, kept until this process ends.

    One that is looked up and let go may be given to somebody else before the program has it. A socket that is bound
    with SO_REUSEADDR and does not listen keeps the kernel from that, and is in no server's way that names the port.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = int(kept.getsockname()[1])
        kept.detach()  # it stays open
        return port
