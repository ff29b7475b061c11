"""The process that stands between a server and its owners: starts it, restarts it, ends it with the last owner.

Run as `python -m fleet_ett.postgres.embedded.watcher DATA_DIR BIN_DIR` by a process that holds the
folder's start lock. Returns once a watcher of its own session stands; that one lives until nobody
holds the owners' lock any more, however its owners ended. If the watcher itself is killed, the
kernel ends the server.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.errors import EttError, Invalid, Unavailable
from fleet_ett.postgres.embedded import leftovers
from fleet_ett.postgres.embedded.account import choose_account, open_to
from fleet_ett.postgres.embedded.cluster import Cluster, failure
from fleet_ett.postgres.embedded.folder import FAILED, READY, STARTING, STOPPED, Folder, State, try_lock
from fleet_ett.postgres.embedded.programs import read_version, runnable_by

if TYPE_CHECKING:
    import subprocess
    from types import FrameType

POLL_S = 0.05
MAX_LOG_BYTES = 10 * 1024 * 1024  # a longer log is put aside when a watcher starts
MAX_PAUSE_S = 5.0  # between attempts to bring a server back
AGAIN_S = 1.0  # between two words to a server that it shall end
STUCK_S = 120.0  # a server that takes longer to end is ended without its last checkpoint


def main(argv: list[str]) -> int:
    """Take the watch lock, and leave a child that watches."""
    folder, bin_dir = Folder(Path(argv[0])), Path(argv[1])
    os.umask(0o022)
    while try_lock(folder.watch_lock) is None:  # held until this process and its child are gone
        time.sleep(POLL_S)
    try:
        folder.write_state(State(STARTING))
    except OSError as error:
        _complain(_system_error(error, folder).message)
        return 1
    if os.fork():
        os._exit(0)  # the child holds the lock
    _leave_terminal(folder)
    return Watcher(folder, bin_dir).run()


class Watcher:
    """One server, from its start to the end of its last owner."""

    def __init__(self, folder: Folder, bin_dir: Path) -> None:
        self.folder = folder
        self.bin_dir = bin_dir
        self.told_to_stop = False
        self.owners: int | None = None  # held exclusively once nobody owns the server
        self.server: subprocess.Popen[bytes] | None = None
        self.is_told = False  # that it is ready
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> int:
        """Watch until nobody owns the server; a first start that fails is told to the owner who waits."""
        socket_dir = None
        try:
            cluster = self.prepare()
            socket_dir = cluster.socket_dir()
            self.bring_up(cluster, socket_dir)
            self.watch(cluster, socket_dir)
        except (EttError, OSError) as error:
            told = error if isinstance(error, EttError) else _system_error(error, self.folder)
            self.folder.write_state(State(FAILED, code=told.code, message=told.message))
            return 1
        finally:
            if self.server is not None and self.server.poll() is None:
                _end(self.server)
            if socket_dir is not None and socket_dir != self.folder.pgdata:
                shutil.rmtree(socket_dir, ignore_errors=True)
        self.folder.write_state(State(STOPPED))
        return 0

    def prepare(self) -> Cluster:
        """Find the user and programs, wait for what an earlier server left, make the data if there are none."""
        root = self.folder.root
        account = choose_account(self.folder.pgdata)
        version = read_version(self.bin_dir)
        bin_dir = self.bin_dir
        if account is not None:
            open_to(account, root)
            bin_dir = runnable_by(account, bin_dir, version, root)
        cluster = Cluster(self.folder, bin_dir, version, account)
        cluster.create()
        return cluster

    def bring_up(self, cluster: Cluster, socket_dir: Path) -> None:
        """Start the server and return once it takes connections, or nobody wants it any more.

        Recovery may take long. Raises what the server said if it ends before.
        """
        self.is_told = False
        leftovers.clear(self.folder.pgdata, socket_dir)
        log = os.open(self.folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            start = os.fstat(log).st_size
            self.server = cluster.start(socket_dir, log)
        finally:
            os.close(log)
        while not leftovers.is_ready(self.folder.pgdata, self.server.pid):
            if self.server.poll() is not None:
                raise failure(self.folder.log_tail(start), self.folder.pgdata)
            if self.is_over():
                return
            time.sleep(POLL_S / 5)
        self.tell_ready(socket_dir)

    def tell_ready(self, socket_dir: Path) -> None:
        """Say that the server takes connections."""
        assert self.server is not None
        self.folder.write_state(State(READY, socket_dir=str(socket_dir), pid=self.server.pid))
        self.is_told = True

    def watch(self, cluster: Cluster, socket_dir: Path) -> None:
        """Keep the server up until nobody owns it; one that died is brought back."""
        pause = POLL_S
        while not self.is_over():
            runs = self.server is not None and self.server.poll() is None
            if runs and self.is_told:
                pause = POLL_S
                time.sleep(POLL_S)
                continue
            try:
                if runs:  # but a full disk did not take the word of it
                    self.tell_ready(socket_dir)
                else:
                    self.folder.write_state(State(STARTING))
                    self.bring_up(cluster, socket_dir)
            except (EttError, OSError) as error:
                _complain(f"no server; next attempt in {pause:.1f} s: {error}")
                self.wait(pause)
                pause = min(2 * pause, MAX_PAUSE_S)

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than anybody owns the server."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_over():
            time.sleep(POLL_S)

    def is_over(self) -> bool:
        """Whether the server has to end: its last owner is gone. From then on nobody becomes one."""
        if self.owners is None:
            self.owners = try_lock(self.folder.owners_lock)
        return self.told_to_stop or self.owners is not None

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.told_to_stop = True


def _end(server: subprocess.Popen[bytes]) -> None:
    """Shut the server down: sessions are cut, then a last checkpoint is written, however long that takes."""
    until = time.monotonic() + STUCK_S
    again = 0.0
    while server.poll() is None:
        if time.monotonic() > until:
            server.send_signal(signal.SIGQUIT)
            server.wait()
        elif time.monotonic() > again:
            # said again: until a server has its handlers it ignores SIGINT, as it was born to a watcher that does
            server.send_signal(signal.SIGINT)
            again = time.monotonic() + AGAIN_S
        time.sleep(POLL_S / 5)


def _leave_terminal(folder: Folder) -> None:
    """Ignore what a terminal sends to its programs, hold none of its files, and complain into the log."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if folder.log.exists() and folder.log.stat().st_size > MAX_LOG_BYTES:
        folder.log.replace(folder.log.with_suffix(".log.1"))
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    os.chdir("/")


def _complain(line: str) -> None:
    """Into the server's log, which stands where our stderr was; that a full disk takes none is no reason to end."""
    with suppress(OSError):
        os.write(2, f"fleet-ett: {line}\n".encode(errors="replace"))


def _system_error(error: OSError, folder: Folder) -> EttError:
    if error.errno == errno.ENOSPC:
        return Unavailable(f"the disk of {folder.root} is full: make room, then start again")
    return Invalid(f"cannot keep a server in {folder.root}: {error}; set ETT_DATA_DIR to another folder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
