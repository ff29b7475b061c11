"""`fleet-ett serve --workers`: several processes behind one address, and none without its parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from fleet_ett import crew
from fleet_ett.crew import Crew
from tests.postgres.agents import Agent, S

if TYPE_CHECKING:
    from collections.abc import Iterator

T = time.time_ns() // S * S - 3600 * S


class Running:
    """A service of several processes."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def children(self) -> set[int]:
        """The processes under the parent."""
        return children_of(self.process.pid)

    def get(self, path: str) -> int:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return int(answer.status)

    def refuses(self) -> bool:
        """Whether nobody takes a connection."""
        at = urlsplit(self.url)
        try:
            socket.create_connection((at.hostname, at.port), timeout=30).close()
        except ConnectionRefusedError:
            return True
        return False

    def post(self, agent: Agent) -> int:
        body = json.dumps(agent.body()).encode()
        request = urllib.request.Request(self.url + "/v1/events", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["accepted"])


def children_of(pid: int) -> set[int]:
    """The processes whose parent that is; those that ended and were not asked for do not count."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.add(int(entry.parent.name))
    return found


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(what: str, true: object) -> None:
    """Wait until a call is true; fails after a minute."""
    assert callable(true)
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextmanager
def serving(database_url: str, *args: str, **more: str) -> Iterator[Running]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--port", "0", *args],
        env=environ | {"ETT_DATABASE_URL": database_url, "ETT_POOL_SIZE": "4"} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield Running(process, process.stdout.readline().removeprefix("fleet-ett listens on ").strip())
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def running(database_url: str) -> Iterator[Running]:
    with serving(database_url, "--workers", "2") as found:
        yield found


def test_the_processes_answer_as_one(running: Running) -> None:
    """Two for HTTP and one for attribution; what one has stored another one shows, booked."""
    assert 3 == len(running.children())
    told = [Agent(node=f"n{number}", incarnation=f"life-{number}") for number in range(24)]
    for rank, agent in enumerate(told):
        agent.say("phase", job="j", attempt="a", rank=rank, phase="compile_cold", start=T, end=T + S)
    with ThreadPoolExecutor(12) as pool:
        assert [1] * 24 == list(pool.map(running.post, told))

    def is_booked() -> bool:
        with urllib.request.urlopen(running.url + "/v1/jobs", timeout=30) as answer:
            return [one["job"] for one in json.load(answer)["items"]] == ["j"]

    until("the job is booked", is_booked)


def test_who_dies_is_replaced_and_the_others_answer_meanwhile(running: Running) -> None:
    before = running.children()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
        until(
            "it is gone", lambda pid=pid: not is_alive(pid)
        )  # which takes its time, and it counts until then
        until("it is replaced", lambda: len(running.children()) == 3)
        assert 200 == running.get("/healthz")
    assert before.isdisjoint(running.children())
    assert 200 == running.get("/readyz")


def test_sigterm_ends_all_in_order(database_url: str) -> None:
    """A request that is on its way is answered first; it had said one line."""
    with serving(database_url, "--workers", "2") as found:
        pids = found.children()
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(found.get, "/v1/jobs")
            sent.result()
        found.process.terminate()
        out, errors = found.process.communicate(timeout=60)
    assert (0, "") == (found.process.returncode, out)
    assert 1 == errors.count("stopped")
    assert "Traceback" not in errors
    assert not any(map(is_alive, pids))


def test_without_their_parent_they_end(database_url: str) -> None:
    """SIGKILL to the first is SIGKILL to all: nobody listens on its port after it."""
    with serving(database_url, "--workers", "2") as found:
        pids = found.children()
        assert 3 == len(pids)
        found.process.kill()
        until("they are gone", lambda: not any(map(is_alive, pids)))
        until("nobody listens", found.refuses)  # whose first thread is dead may hold the port for a moment


def test_who_answers_does_not_book(database_url: str) -> None:
    """One process for each by default: neither waits for the other."""
    with serving(database_url) as found:
        assert 2 == len(found.children())
        assert 200 == found.get("/readyz")


def test_who_breaks_at_once_is_tried_later_and_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a process that cannot live costs nothing."""
    monkeypatch.setattr(crew, "SHORT_LIFE_S", 60)  # on a busy machine no life is short
    lives = tmp_path / "lives"

    def broken(_: object) -> None:
        with lives.open("a") as file:
            file.write(f"{time.monotonic()}\n")
        os._exit(3)

    keeper = os.fork()
    if keeper == 0:
        Crew({"broken": broken}, patience=5).run(lambda: None, lambda: None)
        os._exit(0)
    try:
        until("three lives", lambda: lives.exists() and len(lives.read_text().splitlines()) >= 3)
    finally:
        os.kill(keeper, signal.SIGTERM)
        _, status = os.waitpid(keeper, 0)
    assert 0 == status
    first, second, third = map(float, lives.read_text().splitlines()[:3])
    assert second - first >= 0.1
    assert third - second >= 0.3


@pytest.mark.parametrize("told", ["0", "many", "65"])
def test_a_number_of_workers_that_cannot_be_is_refused(told: str) -> None:
    command = [sys.executable, "-m", "fleet_ett", "serve", "--workers", told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 2 == done.returncode
    assert f"ETT_WORKERS must be a whole number from 1 to 64, not '{told}'" in done.stderr
