"""A PostgreSQL of the test's own, without a watcher: started, killed, frozen, copied and filled up at will."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from fleet_ett.postgres.embedded.account import choose_account, open_to
from fleet_ett.postgres.embedded.cluster import USER, Cluster
from fleet_ett.postgres.embedded.folder import Folder
from fleet_ett.postgres.embedded.leftovers import is_ready, processes_in
from fleet_ett.postgres.embedded.programs import find_bin_dir, read_version, runnable_by
from tests.postgres.embedded import stands_still

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_S = 60  # for a loaded machine; nothing here waits that long
PORT = 5432  # of the socket's name


def wait_until(true: Callable[[], Any], deadline_s: float = DEADLINE_S) -> None:
    until = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that the server's user can enter, which pytest's own are not for root."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    try:
        yield parent
    finally:
        shutil.rmtree(parent)


class Server:
    """One data folder and the postmaster on it. `options`: what a server is told at its start."""

    def __init__(self, root: Path, *options: str, preload: Path | None = None) -> None:
        self.folder = Folder(root)
        self.options = options
        self.preload = preload
        self.process: subprocess.Popen[bytes] | None = None
        root.mkdir(exist_ok=True)
        account = choose_account(self.folder.pgdata)
        bin_dir = find_bin_dir(os.environ)
        version = read_version(bin_dir)
        if account is not None:
            open_to(account, root)
            bin_dir = runnable_by(account, bin_dir, version, root)
        self.cluster = Cluster(self.folder, bin_dir, version, account)

    @property
    def socket(self) -> str:
        return str(self.folder.pgdata / f".s.PGSQL.{PORT}")

    @property
    def conninfo(self) -> str:
        return make_conninfo(host=str(self.folder.pgdata), port=PORT, user=USER, dbname="ett")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/ett?host={self.folder.pgdata}&port={PORT}"

    def create(self) -> Server:
        """New data, with an empty database."""
        self.cluster.create()
        self.start()
        with psycopg.connect(make_conninfo(self.conninfo, dbname="postgres"), autocommit=True) as conn:
            conn.execute("CREATE DATABASE ett")
        return self

    def start(self, *, wait: bool = True) -> None:
        told = (
            "listen_addresses=", f"port={PORT}", f"unix_socket_directories={self.folder.pgdata}",
            "cluster_name=faults", "logging_collector=off", "fsync=off", *self.options,
        )  # fmt: skip
        words = [word for option in told for word in ("-c", option)]
        options: dict[str, Any] = self.cluster._as_account()
        if self.preload is not None:
            options["env"] |= {"LD_PRELOAD": str(self.preload), "FAULTS": str(self.preload.parent)}
        with self.folder.log.open("ab") as log:
            command = [self.cluster.bin_dir / "postgres", "-D", self.folder.pgdata, *words]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options
            )
        if wait:
            wait_until(self.is_ready)

    def is_ready(self) -> bool:
        return self.process is not None and is_ready(self.folder.pgdata, self.process.pid)

    def kill(self) -> None:
        """SIGKILL to the postmaster; its children notice and go."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not self.processes())

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends it in good order, SIGQUIT at once."""
        if self.process is not None:
            if self.process.poll() is None:
                self.signal(signal.SIGCONT)
                self.process.send_signal(how)
                self.process.wait(DEADLINE_S)
            wait_until(lambda: not self.processes())

    def processes(self) -> list[int]:
        return [pid for pid, _ in processes_in(self.folder.pgdata)]

    def signal(self, number: int) -> None:
        """A signal to every process of the server."""
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def freeze(self) -> None:
        """SIGSTOP to all, until all stand still: a child that is born meanwhile would answer."""
        wait_until(self._stand_still)

    def _stand_still(self) -> bool:
        self.signal(signal.SIGSTOP)
        return all(stands_still(pid) for pid in self.processes())

    def run(self, program: str, *words: str) -> str:
        """One of PostgreSQL's programs, as the server's user; what it said."""
        done = subprocess.run(
            [self.cluster.bin_dir / program, *words], capture_output=True, text=True, check=False,
            **self.cluster._as_account(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def standby(self, root: Path) -> Server:
        """A server that follows this one, started."""
        follower = Server(root, "hot_standby=on")
        account = follower.cluster.account
        if account is not None:
            follower.folder.pgdata.mkdir(mode=0o700)
            os.chown(follower.folder.pgdata, account.uid, account.gid)
        self.run(
            "pg_basebackup", "-h", str(self.folder.pgdata), "-U", USER, "-D", str(follower.folder.pgdata), "-R",
            "-c", "fast",
        )  # fmt: skip
        (follower.folder.pgdata / f".s.PGSQL.{PORT}.lock").unlink()  # the first server's own
        follower.start()
        return follower

    def promote(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            conn.execute("SELECT pg_promote()")

    def configure(self, **settings: str | None) -> None:
        """Change settings while the server runs; None for what the configuration says."""
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            for name, value in settings.items():
                what = f"RESET {name}" if value is None else f"SET {name} = '{value}'"
                conn.execute(f"ALTER SYSTEM {what}".encode())
            conn.execute("SELECT pg_reload_conf()")

    def do(self, command: str, *, database: str = "ett") -> None:
        with psycopg.connect(make_conninfo(self.conninfo, dbname=database), autocommit=True) as conn:
            conn.execute(command.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            return conn.execute(query.encode()).fetchall()


@contextmanager
def servers() -> Iterator[Callable[..., Server]]:
    """Makes servers, and ends all of them: `make("name", *options)`; the folder goes, too."""
    made: list[Server] = []

    with folder() as parent:

        def make(name: str, *options: str, preload: Path | None = None) -> Server:
            made.append(Server(parent / name, *options, preload=preload))
            return made[-1]

        try:
            yield make
        finally:
            for one in made:
                one.stop(signal.SIGQUIT)
