"""The data folder of an embedded server: who starts, owns and watches it, said by file locks.

    <data folder>/
        postgres/         the server's own data; the only part that belongs to the server's user
        postgres.log      what the server says
        postgres.run/     start.lock    held by the one process that is starting the server
                          owners.lock   held, shared, by every process that uses the server
                          watch.lock    held by the watcher as long as it lives
                          state.json    what the watcher last said

A lock ends with the process that holds it, however that process ends: nothing here can go stale.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PORT = 5432  # names the socket; there is no TCP port
MAX_SOCKET_PATH = 107  # bytes of sun_path without its closing zero, on Linux; macOS has 103
STARTING, READY, FAILED, STOPPED = "starting", "ready", "failed", "stopped"


@dataclass(frozen=True, slots=True)
class State:
    """What the watcher last said; `code` and `message` tell why a start failed."""

    status: str
    socket_dir: str = ""
    pid: int = 0
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one embedded server."""

    root: Path

    @property
    def pgdata(self) -> Path:
        """The server's own data."""
        return self.root / "postgres"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.root / "postgres.log"

    @property
    def run(self) -> Path:
        """Locks and state."""
        return self.root / "postgres.run"

    @property
    def start_lock(self) -> Path:
        """Held by the one process that is starting the server."""
        return self.run / "start.lock"

    @property
    def owners_lock(self) -> Path:
        """Held, shared, by every process that uses the server; exclusively by a watcher that ends it."""
        return self.run / "owners.lock"

    @property
    def watch_lock(self) -> Path:
        """Held by the watcher as long as it lives."""
        return self.run / "watch.lock"

    def read_state(self) -> State:
        """What the watcher last said; `stopped` where there never was one."""
        try:
            return State(**json.loads((self.run / "state.json").read_bytes()))
        except FileNotFoundError:
            return State(STOPPED)

    def write_state(self, state: State) -> None:
        """Say something to all owners; they see the old or the new state, never a part of one."""
        new = self.run / "state.new"
        new.write_text(json.dumps(asdict(state)))
        new.replace(self.run / "state.json")

    def log_tail(self, start: int = 0, *, lines: int = 12) -> str:
        """The last lines of the server's log from byte `start` on; empty where there is none."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(start, size - 16_384))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock the file if that can be had now: a descriptor that holds the lock until closed, or None."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path, *, exclusively: bool = False) -> bool:
    """Whether anybody holds the file; with `exclusively`, whether a holder shares it with nobody."""
    descriptor = try_lock(path, shared=exclusively)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
