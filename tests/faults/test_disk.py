"""A disk that is full, or answers late: nothing acknowledged is lost, nobody hangs, and it goes on by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from fleet_ett.core.policy import Policy
from fleet_ett.errors import Unavailable
from fleet_ett.postgres.embedded.folder import Folder
from fleet_ett.postgres.embedded.leftovers import read_pid
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from fleet_ett.worker import book_due_jobs
from tests.faults.books import check_books, check_events
from tests.faults.senders import Posting, make_senders
from tests.faults.server import folder, wait_until
from tests.faults.service import hosted, service
from tests.faults.shim import Fault, build
from tests.faults.test_failover import heartbeat, problem
from tests.postgres.agents import HOUR, Agent, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.server import Server

START = time.time_ns() - 72 * HOUR
SMALL_MIB = 256


@pytest.fixture(scope="module")
def shim() -> Iterator[Path]:
    with folder() as found:
        found.chmod(0o755)
        yield build("disk.c", found)


@pytest.fixture(scope="module")
def server(make: Callable[..., Server], shim: Path) -> Server:
    made = make("disk", "fsync=on", preload=shim).create()
    migrate(made.url)
    return made


@contextmanager
def full(server: Server, shim: Path) -> Iterator[None]:
    """No file grows meanwhile, but the log: its segment is a new one, or the server would need the next and give up."""
    server.do("SELECT pg_switch_wal()")
    server.do("SELECT pg_logical_emit_message(true, 'faults', 'the first word of the next segment')")
    with Fault(shim, "full"):
        yield


def long_story(incarnation: str, start: int) -> Agent:
    """Some hundred kB of events, which no free space inside the tables takes."""
    agent = Agent(incarnation=incarnation)
    for number in range(3000):
        agent.say("fault", ts=start + number, kind="other", text=f"{number:0100}")
    return agent


def test_a_disk_without_room(server: Server, shim: Path) -> None:
    """503 and not ready while files cannot grow, though the server runs; then on by itself."""
    with hosted(server.url, workers=0) as url, httpx.Client(base_url=url, timeout=60) as client:
        heartbeat(client)
        with full(server, shim):
            agent = long_story("full", START)
            for _ in range(2):
                assert "the disk of the database is full" in problem(heartbeat(client, agent))
            assert "the disk of the database is full" in problem(client.get("/readyz"))
            assert 200 == client.get("/healthz").status_code
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert len(agent.said) == heartbeat(client, agent).json()["accepted"]


def test_a_disk_without_room_for_books(server: Server, shim: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That is no fault of the job: its books wait for the disk, and are written as soon as there is room."""
    agent = Agent(incarnation="booked")
    for number in range(4000):
        agent.say("phase", job="full", attempt="a", rank=0, phase="evaluation" if number % 2 else "compile_cold",
                  start=START + number * 1000, end=START + number * 1000 + 900)  # fmt: skip
    engine = open_pool(server.url)
    try:
        with hosted(server.url, workers=0) as url, httpx.Client(base_url=url, timeout=60) as client:
            small = Agent(incarnation="small")
            crashed_and_resumed(small, "small", START)
            assert 200 == heartbeat(client, small).status_code
            assert book_due_jobs(engine, Policy())  # every table has a page now: only the segments need more
            assert 200 == heartbeat(client, agent).status_code
        with full(server, shim), pytest.raises(Unavailable, match="the disk of the database is full"):
            book_due_jobs(engine, Policy())
        assert "could not be booked" not in caplog.text
        assert [(None,)] == server.ask("SELECT error FROM jobs WHERE job = 'full'")
        while book_due_jobs(engine, Policy()):
            pass
        assert [(1,)] == server.ask("SELECT 1 FROM jobs WHERE job = 'full' AND summary IS NOT NULL")
    finally:
        engine.dispose()


def test_a_disk_that_does_not_answer(server: Server, shim: Path) -> None:
    """A commit that waits for the disk is given up and told; what it did after all is a repeat."""
    agent = Agent(incarnation="slow")
    agent.say("heartbeat", ts=START)
    with (
        hosted(server.url, workers=0, answer_s=2) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        wait_until(lambda: heartbeat(client).status_code == 200)
        with Fault(shim, "slow"):
            problem(heartbeat(client, agent))
            problem(client.get("/readyz"))
            assert 200 == client.get("/healthz").status_code
            # reading needs no disk to be written; the machine may be slow beside
            wait_until(lambda: client.get("/v1/jobs").status_code == 200)
        wait_until(lambda: client.get("/readyz").status_code == heartbeat(client, agent).status_code == 200)
        query = "SELECT count(*) FROM events JOIN sources USING (source_id) WHERE incarnation = 'slow'"
        assert [(1,)] == server.ask(query)


def test_a_server_that_is_frozen(server: Server) -> None:
    """SIGSTOP to all of PostgreSQL while many ask: liveness answers, memory stays, SIGCONT heals."""
    senders = make_senders(4, START, name="frozen")
    with service(ETT_DATABASE_URL=server.url) as served:
        assert served.process is not None
        with Posting(senders, served.url, pause_s=0.02, timeout_s=3) as posting, ExitStack() as stack:
            wait_until(lambda: posting.answers > 8)
            stack.callback(server.signal, signal.SIGCONT)
            server.freeze()
            before = _resident(served.process.pid)
            for _ in range(50):  # more than there are threads for requests
                asking = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
                asking.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until = time.monotonic() + 2
            while time.monotonic() < until:
                assert 200 == served.status("/healthz")
                assert 503 == served.status("/readyz")
            assert _resident(served.process.pid) < before + 64 * 1024
            server.signal(signal.SIGCONT)
            wait_until(served.is_ready)
            posting.finish()
        check_events(server.conninfo, senders)
        check_books(server.conninfo, senders)


def _resident(pid: int) -> int:
    """kB."""
    with Path(f"/proc/{pid}/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.fixture
def small() -> Iterator[Path]:
    """A small file system of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux may mount a small file system")
    with folder() as parent:
        place = parent / "small"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m,mode=711", "small", place],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def pad(log: Path) -> None:
    """Use the last page of the log up."""
    with suppress(OSError), log.open("ab", buffering=0) as file:
        while file.write(b"\n"):
            pass


def kill(pgdata: Path) -> None:
    """SIGKILL to the postmaster, should it live."""
    pid = read_pid(pgdata)
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def fill(place: Path, *, leave: int) -> Path:
    """Somebody else's file that leaves so many bytes."""
    other = place / f"somebody-elses-{leave}"
    with other.open("wb") as file:
        free, size = _free(place), 0
        while free > leave:  # the database takes of it meanwhile
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), size, free - leave)
            size, free = os.fstat(file.fileno()).st_size, _free(place)
    return other


def _free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


@pytest.mark.skipif(
    not os.environ.get("ETT_SOAK"),
    reason="make soak-faults runs it: when a disk is full is the machine's affair",
)
def test_a_file_system_that_runs_full(small: Path) -> None:
    """The embedded server stops, perhaps again and again, and is back without anybody's help once there is room."""
    senders = make_senders(2, START, steps=600, a_body=60, name="small")
    pgdata = Folder(small / "data").pgdata
    with service("--data-dir", str(small / "data")) as served:
        with Posting(senders, served.url, pause_s=0.02) as posting:
            wait_until(lambda: posting.answers > 4)
            other = fill(small, leave=1_000_000)
            wait_until(lambda: all(503 in one.statuses[-2:] for one in senders))
            assert 503 == served.status("/readyz")
            more = fill(small, leave=0)
            pad(small / "data" / "postgres.log")
            kill(pgdata)  # and it cannot come back, nor can anybody complain
            time.sleep(1)
            assert (503, 200) == (served.status("/readyz"), served.status("/healthz"))
            more.unlink()
            other.unlink()
            wait_until(served.is_ready)
            posting.finish()
        conninfo = f"host={pgdata} port=5432 user=ett dbname=ett"
        check_events(conninfo, senders)
        check_books(conninfo, senders)
