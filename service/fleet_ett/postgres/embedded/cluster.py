"""The server's data and its processes: `initdb`, start, stop, and what its failures mean.

All runs as the server's user. Durability is PostgreSQL's default (fsync on), pages carry checksums,
text is UTF-8 in the order of its bytes, times are UTC, and connections come through one socket that
its folder closes to everybody else.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_ett.errors import EttError, Invalid, Unavailable
from fleet_ett.postgres.embedded.account import Account, give
from fleet_ett.postgres.embedded.folder import MAX_SOCKET_PATH, PORT
from fleet_ett.postgres.embedded.leftovers import OURS
from fleet_ett.postgres.embedded.programs import OTHERWISE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet_ett.postgres.embedded.folder import Folder

USER = "ett"
PR_SET_PDEATHSIG = 1
# Written once into postgresql.conf, after which the file is the operator's.
CONF = """
# fleet-ett
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
datestyle = 'ISO, YMD'
log_line_prefix = '%m [%p] '
shared_buffers = {shared_mb}MB
"""
SHARE, LEAST_MB, MOST_MB = 8, 128, 1024  # of the machine's memory for pages that readers share
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One data folder with the programs and the user that run it; `account` None is ourselves."""

    folder: Folder
    bin_dir: Path
    version: str
    account: Account | None

    @property
    def major(self) -> str:
        """The version that data folders carry."""
        return self.version.partition(".")[0]

    def create(self) -> None:
        """Make the data unless they are there. Raises `Invalid` for data of another version or another kind.

        They are made beside their place and moved there when complete: an `initdb` that was killed
        leaves nothing that looks like data.
        """
        pgdata = self.folder.pgdata
        if pgdata.exists() and any(pgdata.iterdir()):
            self._check()
            return
        new = pgdata.with_name("postgres.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if self.account is not None:
            os.chown(new, self.account.uid, self.account.gid)
        done = subprocess.run(
            [
                self.bin_dir / "initdb", f"--pgdata={new}", f"--username={USER}", "--encoding=UTF8", "--locale=C",
                "--data-checksums", "--auth-local=trust", "--auth-host=reject", "--no-instructions",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            **self._as_account(),
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(new, ignore_errors=True)
            said = f"initdb failed:\n{done.stdout.strip()}"
            raise failure(said, pgdata)
        with (new / "postgresql.conf").open("a") as conf:
            conf.write(CONF.format(shared_mb=_shared_mb()))
        new.rename(pgdata)

    def _check(self) -> None:
        pgdata = self.folder.pgdata
        try:
            version = pgdata.joinpath("PG_VERSION").read_text().strip()
        except FileNotFoundError:
            msg = f"{pgdata} holds something else than PostgreSQL's data: set ETT_DATA_DIR to another folder"
            raise Invalid(msg) from None
        if version != self.major:
            msg = (
                f"{pgdata} holds data of PostgreSQL {version}, the programs in {self.bin_dir} are {self.version}: "
                f"set ETT_PG_BIN to the bin folder of PostgreSQL {version}; or pg_dump the data with it, set "
                "ETT_DATA_DIR to a new folder, and restore them there"
            )
            raise Invalid(msg)
        if self.account is not None and pgdata.stat().st_uid != self.account.uid:
            give(self.account, pgdata)

    def socket_dir(self) -> Path:
        """A folder for the socket: the data themselves, or a short temporary one where that path is too long."""
        pgdata = self.folder.pgdata
        path = os.fsencode(pgdata / f".s.PGSQL.{PORT}")
        # a comma separates hosts in a connection string
        if len(path) <= MAX_SOCKET_PATH and b"," not in path:
            return pgdata
        short = Path(tempfile.mkdtemp(prefix="ett-pg-", dir="/tmp"))  # TMPDIR may be as long
        if self.account is not None:
            os.chown(short, self.account.uid, self.account.gid)
        return short

    def start(self, socket_dir: Path, log: int) -> subprocess.Popen[bytes]:
        """Start the server, which ends with the process that calls this. It is not ready yet."""
        quoted = str(socket_dir).replace('"', '""')
        options = (
            "listen_addresses=", f"port={PORT}", f'unix_socket_directories="{quoted}"', "unix_socket_permissions=0700",
            OURS, "logging_collector=off", "log_destination=stderr",
        )  # fmt: skip
        words = [word for option in options for word in ("-c", option)]
        return subprocess.Popen(
            [self.bin_dir / "postgres", "-D", self.folder.pgdata, *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as_account(),
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - the watcher has no threads
        )  # fmt: skip

    def _as_account(self) -> dict[str, Any]:
        # no LD_LIBRARY_PATH or PG* of a training environment
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"}
        return {
            "env": env,
            "cwd": "/",
            "umask": 0o077,
            **(self.account.popen_options() if self.account else {}),
        }


def _shared_mb() -> int:
    """An eighth of the memory of the machine, or of the container that has a limit, between LEAST_MB and MOST_MB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int(CGROUP_LIMIT.read_text()))
    return min(max(memory // SHARE // 2**20, LEAST_MB), MOST_MB)


def _end_with_parent() -> Callable[[], None] | None:
    """What a child does so that the kernel ends it, in good order, when its parent is killed (Linux)."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:  # killed in between
            os._exit(1)

    return arrange


def failure(said: str, pgdata: Path) -> EttError:
    """The error for what PostgreSQL said as it failed, with what to do about it."""
    if "No space left on device" in said:
        return Unavailable(f"the disk of {pgdata} is full: make room, then start again\n{said}")
    if "could not create lock file" in said or "Permission denied" in said:
        return Invalid(
            f"the server's user may not write to {pgdata}: check its owner, or set ETT_DATA_DIR\n{said}"
        )
    if "is not compatible" in said or "incompatible with server" in said:
        return Invalid(f"{pgdata} was made by another build of PostgreSQL: {OTHERWISE}\n{said}")
    return Unavailable(f"PostgreSQL did not start on {pgdata}:\n{said}")
