"""What an earlier server left behind in its data folder: a process that still ends, a file that names a stranger.

`postmaster.pid` may name a live process that has nothing to do with this folder: its number was used
again, or a container came up again on its volume. PostgreSQL then refuses to start until somebody
removes the file, and removing it while an old server still works there destroys data. So it is
removed only when no process at all has the folder as its working directory, which each process of a
server has. The lock beside the socket is of the same kind. That needs /proc; without it (macOS)
PostgreSQL's own check stands.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from fleet_ett.errors import Invalid
from fleet_ett.postgres.embedded.folder import PORT

PROC = Path("/proc")
OURS = "cluster_name=fleet-ett"  # among the options of every server that a watcher started
PATIENCE_S = 5.0  # what processes of a dead server get to notice its death
POLL_S = 0.05


def clear(pgdata: Path, socket_dir: Path) -> None:
    """Return once no process of an earlier server is left in the folder and no file of it bars the next.

    A server of ours whose watcher was killed is shut down; its end may take as long as its last
    checkpoint. Raises `Invalid` for a running server that somebody else started.
    """
    began = time.monotonic()
    told: set[int] = set()
    while servers := [pid for pid, name in processes_in(pgdata) if name.startswith("postgres")]:
        postmaster = read_pid(pgdata)
        if postmaster in servers:
            if not _is_ours(pgdata):
                msg = (
                    f"a PostgreSQL that this service did not start (process {postmaster}) runs on {pgdata}: "
                    f"stop it (pg_ctl stop -D {pgdata}), then start again"
                )
                raise Invalid(msg)
            victims, how = [postmaster], signal.SIGINT
        elif time.monotonic() - began > PATIENCE_S:
            victims, how = servers, signal.SIGQUIT  # without their postmaster they serve nobody
        else:
            victims, how = [], signal.SIGQUIT
        for pid in victims:
            if pid not in told:
                told.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
        time.sleep(POLL_S)
    for lock in (pgdata / "postmaster.pid", socket_dir / f".s.PGSQL.{PORT}.lock"):
        named = _number(_lines(lock))
        if (
            named is not None
            and _is_alive(named)
            and PROC.joinpath("self").exists()
            and not processes_in(pgdata)
        ):
            lock.unlink(missing_ok=True)


def processes_in(pgdata: Path) -> list[tuple[int, str]]:
    """Processes that have the folder as their working directory, with their names; none without /proc."""
    try:
        here = pgdata.stat()
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for entry in PROC.iterdir() if PROC.joinpath("self").exists() else ():
        if entry.name.isdigit():
            # gone meanwhile, or another user's: then it has no business in a folder closed to all but one
            with suppress(OSError):
                there = (entry / "cwd").stat()
                if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                    found.append((int(entry.name), (entry / "comm").read_text().strip()))
    return found


def read_pid(pgdata: Path) -> int | None:
    """The process that `postmaster.pid` names; None without the file or a number in it."""
    return _number(_lines(pgdata / "postmaster.pid"))


def is_ready(pgdata: Path, pid: int) -> bool:
    """Whether the server with this process number takes connections, by its own word in `postmaster.pid`."""
    lines = _lines(pgdata / "postmaster.pid")
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7] == "ready"


def _lines(lock: Path) -> list[str]:
    try:
        return [line.strip() for line in lock.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return []


def _number(lines: list[str]) -> int | None:
    # a stand-alone backend (postgres --single) writes its number with a minus
    digits = lines[0].removeprefix("-") if lines else ""
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _is_ours(pgdata: Path) -> bool:
    with suppress(FileNotFoundError):
        return OURS in pgdata.joinpath("postmaster.opts").read_text(errors="replace")
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
