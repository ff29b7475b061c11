"""The embedded server as its owners use it: in this process, and in others that start the same one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from fleet_ett.postgres.embedded.folder import Folder, is_locked
from fleet_ett.postgres.embedded.leftovers import processes_in, read_pid
from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN_DIR = find_bin_dir(os.environ)
DEADLINE_S = 60  # for a loaded machine; nothing here waits that long
OWNER = """
import sys
from pathlib import Path
from fleet_ett.postgres.server import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]), bin_dir=Path(sys.argv[2]))
print("owns", flush=True)
sys.stdin.read()
"""


def start(data_dir: Path) -> EmbeddedServer:
    return EmbeddedServer.start(data_dir, bin_dir=BIN_DIR)


def wait_until(true: Callable[[], object]) -> None:
    """Look until it is."""
    until = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def watchers(data_dir: Path) -> list[int]:
    """The processes that watch over the folder's server."""
    command = f"-m\0fleet_ett.postgres.embedded.watcher\0{data_dir}\0"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # gone meanwhile
                if command in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
    return found


def stands_still(pid: int) -> bool:
    """Whether a process was stopped, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def killed(data_dir: Path) -> Iterator[None]:
    """SIGKILL to the server; it stays away, for its watcher brings it back only when the block ends."""
    (watcher,) = watchers(data_dir)
    postmaster = read_pid(Folder(data_dir).pgdata)
    assert postmaster is not None
    os.kill(watcher, signal.SIGSTOP)
    try:
        wait_until(lambda: stands_still(watcher))
        os.kill(postmaster, signal.SIGKILL)
        yield
    finally:
        os.kill(watcher, signal.SIGCONT)


def is_gone(data_dir: Path) -> bool:
    """Whether neither a process of the server nor its watcher is left."""
    folder = Folder(data_dir)
    return not is_locked(folder.watch_lock) and not processes_in(folder.pgdata)


@contextmanager
def other_owner(data_dir: Path, bin_dir: Path = BIN_DIR, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has started the same server; gives it up at the end."""
    command = [sys.executable, "-c", OWNER, str(data_dir), str(bin_dir)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **env}) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owns\n"
        yield owner


def insert(server: EmbeddedServer, number: int) -> None:
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("create table if not exists kept (number int primary key)")
        connection.execute("insert into kept values (%s)", [number])


def kept(server: EmbeddedServer) -> list[int]:
    with psycopg.connect(server.conninfo) as connection:
        return [
            number for (number,) in connection.execute("select number from kept order by number").fetchall()
        ]
