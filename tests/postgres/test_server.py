"""The embedded server, with real processes that are really killed.

`ETT_PG_BIN=/usr/lib/postgresql/15/bin pytest tests/postgres/test_server*.py` runs the same against an installed
PostgreSQL.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import sqlalchemy

from fleet_ett.errors import Invalid
from fleet_ett.postgres.embedded import cluster
from fleet_ett.postgres.embedded.account import choose_account
from fleet_ett.postgres.embedded.folder import Folder
from fleet_ett.postgres.embedded.leftovers import processes_in, read_pid
from tests.postgres.embedded import (
    BIN_DIR,
    OWNER,
    insert,
    is_gone,
    kept,
    other_owner,
    stands_still,
    start,
    wait_until,
    watchers,
)

if TYPE_CHECKING:
    from pathlib import Path


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
        (watcher,) = watchers(data_dir)
        # at once for the watcher: its server gets no time to end in good order, or to be brought back
        os.kill(watcher, signal.SIGSTOP)
        wait_until(lambda: stands_still(watcher))
        for victim in (*(pid for pid, _ in processes_in(data_dir / "postgres")), watcher, owner.pid):
            with suppress(ProcessLookupError):  # without their first process the others go by themselves
                os.kill(victim, signal.SIGKILL)
    with start(data_dir) as server:
        assert [1] == kept(server)
        assert "automatic recovery in progress" in Folder(data_dir).log.read_text()


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
