"""What runs behind the demo: the service on an embedded Postgres, and an agent on each node."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = ("demo-a", "demo-b")
READY_S, STOP_S, BOOKS_S = 60.0, 30.0, 60.0
LISTENS = "fleet-ett listens on "


class NotReady(RuntimeError):  # noqa: N818 - what is the matter, in the words of the user
    """Something behind the demo did not start or answer; the text says what."""


class Service:
    """The service's REST API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The JSON answer of a path. Raises `urllib.error.HTTPError`."""
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(self.url + path + asked, timeout=10) as answer:  # noqa: S310 - our own loopback
            found: dict[str, Any] = json.load(answer)
        return found

    def tell(self, node: str, event: dict[str, Any]) -> None:
        """Post one event as an operator's tool on a node would."""
        agent = {"node": node, "incarnation": f"operator-{os.urandom(8).hex()}", "version": "demo"}
        body = {
            "agent": agent,
            "clock_offset_ns": 0,
            "sent_at": time.time_ns(),
            "events": [{"seq": 1, **event}],
        }
        request = urllib.request.Request(  # noqa: S310
            self.url + "/v1/events", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            answer.read()

    def books(self, job: str, attempts: int) -> dict[str, Any]:
        """The job's detail once all of its attempts are booked; the agents have sent everything before."""
        path = f"/v1/jobs/{urllib.parse.quote(job, safe='')}"
        deadline = time.monotonic() + BOOKS_S
        before: dict[str, Any] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # it is not known yet, or the machine is busy
                found = self.get(path)
                over = [one["outcome"] for one in found["attempts"] if not one["live"]]
                if len(over) == attempts and over[-1] == "completed" and found == before:
                    return found
                before = found
            time.sleep(0.25)
        msg = (
            f"the job was not booked within {BOOKS_S:g} s; {self.url}{path} says: {json.dumps(before)[:2000]}"
        )
        raise NotReady(msg)


@contextlib.contextmanager
def service() -> Iterator[Service]:
    """The service as a process of its own, with a database that is deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-ett-demo-"))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user, who must get in
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    environ |= {"ETT_DATA_DIR": str(folder / "postgres"), "ETT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "fleet_ett", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline() if process.stdout is not None else ""
        if not said.startswith(LISTENS):
            msg = "the service did not start (its words are above)"
            raise NotReady(msg)
        found = Service(said.removeprefix(LISTENS).strip())
        _until_ready(found)
        yield found
    finally:
        stop(process)
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def agents(url: str, spools: list[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One agent a node, each with a spool folder and a name of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    running = []
    try:
        for node, spool in zip(NODES, spools, strict=True):
            options = {"--url": url, "--node": node, "--spool-dir": str(spool)}
            options |= {"--heartbeat": "1", "--window": "2", "--poll": "0.1"}
            command = [
                sys.executable,
                "-m",
                "ett_collector.agent.main",
                *(x for pair in options.items() for x in pair),
            ]
            running.append(subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL))
        yield running
    finally:
        for agent in running:
            stop(agent)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process by SIGTERM: an agent sends what it has first, the service answers what it was asked."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_ready(found: Service) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            found.get("/readyz")
        except OSError as error:
            if time.monotonic() > deadline:
                msg = f"{found.url}/readyz: {error}"
                raise NotReady(msg) from None
            time.sleep(0.1)
        else:
            return
