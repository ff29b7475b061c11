"""The environment with which a process was started."""

from __future__ import annotations

import os

LIMIT = 1024 * 1024


def parse_environ(data: bytes) -> dict[str, str]:
    """Parse `/proc/<pid>/environ`: `NAME=value`, each ended by a NUL."""
    pairs = (one.partition(b"=") for one in data.split(b"\0") if b"=" in one)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def read_environ(procfs: str, pid: int) -> dict[str, str]:
    """The environment of a process; empty where it is gone or not ours to read."""
    try:
        with open(os.path.join(procfs, str(pid), "environ"), "rb") as file:
            return parse_environ(file.read(LIMIT))
    except OSError:
        return {}
