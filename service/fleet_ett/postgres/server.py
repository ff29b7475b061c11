"""The embedded PostgreSQL: a real server from a wheel, shared by all processes that use one data folder.

    with EmbeddedServer.start(default_data_dir(os.environ)) as server:
        engine = create_engine(server.url)

The first process to start it starts it, others find it running, and it ends with the last of them,
also when that one is killed. Committed is durable: fsync is on.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL

import fleet_ett
from fleet_ett.errors import Invalid, Unavailable
from fleet_ett.postgres.embedded.cluster import USER
from fleet_ett.postgres.embedded.folder import FAILED, PORT, READY, Folder, State, is_locked, try_lock
from fleet_ett.postgres.embedded.programs import wheel_bin_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

log = logging.getLogger(__name__)
DATABASE = "ett"
POLL_S = 0.02
FIRST_WORD_S, NEXT_WORD_S = 5.0, 10.0  # when somebody who waits hears why
MAX_WATCHERS = 3  # that may be killed under one start


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """`ETT_DATA_DIR`, or `fleet-ett` in the user's state directory; `/var/lib/fleet-ett` for root.

    Root's home bars the unprivileged user that the server then runs as.
    """
    if told := environ.get("ETT_DATA_DIR"):
        return Path(told).expanduser()
    state = Path(environ.get("XDG_STATE_HOME") or "")
    if state.is_absolute():
        return state / "fleet-ett"
    if os.geteuid() == 0:
        return Path("/var/lib/fleet-ett")
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "fleet-ett"


class EmbeddedServer:
    """A running server and this process's share in it. Made by `start`."""

    def __init__(self, folder: Folder, socket_dir: str, owner: int) -> None:
        self._folder = folder
        self._socket_dir = socket_dir
        self._owner: int | None = owner

    @classmethod
    def start(cls, data_dir: Path, *, bin_dir: Path | None = None) -> EmbeddedServer:
        """Start the server of this folder, or find it running; returns once it answers queries.

        `bin_dir` holds the programs to start it with (default: the wheel's). Recovery of a large
        database may take minutes; the log says what it waits for. Raises `Invalid` for what somebody
        has to set right, `Unavailable` for what may pass (a full disk), both saying what to do.
        """
        folder = Folder(Path(os.path.abspath(data_dir)))  # noqa: PTH100 - resolve() would follow links
        bin_dir = wheel_bin_dir() if bin_dir is None else bin_dir
        _make(folder)
        owner = _wait_for_lock(folder.owners_lock, folder, "for the server to end", shared=True)
        try:
            with _starting(folder):
                socket_dir = _bring_up(folder, bin_dir)
        except BaseException:
            os.close(owner)
            raise
        return cls(folder, socket_dir, owner)

    @property
    def url(self) -> str:
        """For SQLAlchemy: `postgresql+psycopg://...`."""
        query = {"host": self._socket_dir, "port": str(PORT)}
        url = URL.create("postgresql+psycopg", username=USER, database=DATABASE, query=query)
        return url.render_as_string(hide_password=False)

    @property
    def conninfo(self) -> str:
        """For psycopg and libpq: `host=... user=...`."""
        return _conninfo(self._socket_dir, DATABASE)

    def stop(self) -> None:
        """Give up this process's share; the last one waits until the server has ended. May be called twice."""
        if self._owner is None:
            return
        os.close(self._owner)
        self._owner = None
        seen = 0
        while seen < 2 and is_locked(self._folder.watch_lock):
            # twice, for the first may have been another process that looks, too
            seen = seen + 1 if _is_owned(self._folder) else 0
            time.sleep(POLL_S)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _make(folder: Folder) -> None:
    try:
        if not folder.root.is_dir():
            folder.root.parent.mkdir(parents=True, exist_ok=True)
            folder.root.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
        folder.run.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(folder.owners_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        msg = f"cannot keep data in {folder.root}: {error.strerror}; set ETT_DATA_DIR to a folder that can be written"
        raise Invalid(msg) from None


def _bring_up(folder: Folder, bin_dir: Path) -> str:
    """The socket's folder, once the server answers."""
    patience = _Patience(folder, "for the server to start")
    watchers = 0
    while True:
        if not is_locked(folder.watch_lock):
            state = folder.read_state()
            if watchers and state.status == FAILED:
                raise _error(state)
            if watchers == MAX_WATCHERS:
                msg = f"the server's watcher ended again and again:\n{folder.log_tail()}"
                raise Unavailable(msg)
            _spawn_watcher(folder, bin_dir)
            watchers += 1
        state = folder.read_state()
        if state.status == READY and _answers(state.socket_dir):
            return state.socket_dir
        patience.wait()


def _spawn_watcher(folder: Folder, bin_dir: Path) -> None:
    """Returns once a watcher holds its lock; it is nobody's child, and in no terminal's group."""
    source = str(Path(fleet_ett.__file__).parent.parent)
    module = "fleet_ett.postgres.embedded.watcher"
    done = subprocess.run(
        [sys.executable, "-m", module, folder.root, bin_dir.absolute()],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))},
    )  # fmt: skip
    if done.returncode:
        msg = f"the embedded server cannot be started: {done.stderr.strip()[-2000:]}"
        raise Unavailable(msg)


def _answers(socket_dir: str) -> bool:
    """Whether the server answers in our database, which is made where it is missing."""
    try:
        with psycopg.connect(
            _conninfo(socket_dir, "postgres"), autocommit=True, connect_timeout=10
        ) as connection:
            if (
                connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone()
                is None
            ):
                connection.execute(f"create database {DATABASE}")  # literal: a name of ours
    except psycopg.OperationalError as error:
        log.debug("no answer yet: %s", error)
        return False
    return True


def _conninfo(socket_dir: str, database: str) -> str:
    return make_conninfo(host=socket_dir, port=PORT, user=USER, dbname=database)


def _error(state: State) -> Invalid | Unavailable:
    return Invalid(state.message) if state.code == Invalid.code else Unavailable(state.message)


def _is_owned(folder: Folder) -> bool:
    """Whether a process shares in the server: not so while its watcher, which shares with nobody, ends it."""
    return is_locked(folder.owners_lock) and not is_locked(folder.owners_lock, exclusively=True)


@contextmanager
def _starting(folder: Folder) -> Iterator[None]:
    lock = _wait_for_lock(folder.start_lock, folder, "for another process that starts the server")
    try:
        yield
    finally:
        os.close(lock)


def _wait_for_lock(path: Path, folder: Folder, what: str, *, shared: bool = False) -> int:
    patience = _Patience(folder, what)
    while (lock := try_lock(path, shared=shared)) is None:
        patience.wait()
    return lock


class _Patience:
    """Waits in small steps without a limit, and from time to time says for what."""

    def __init__(self, folder: Folder, what: str) -> None:
        self.folder, self.what = folder, what
        self.began = time.monotonic()
        self.next_word = self.began + FIRST_WORD_S

    def wait(self) -> None:
        now = time.monotonic()
        if now >= self.next_word:
            self.next_word = now + NEXT_WORD_S
            said = self.folder.log_tail(lines=1) or "nothing"
            log.warning("waiting %s in %s, %.0f s so far; it last said: %s",
                        self.what, self.folder.root, now - self.began, said)  # fmt: skip
        time.sleep(POLL_S)
