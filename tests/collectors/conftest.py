"""Real processes for the collectors' tests: a receiver, agents, trainers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.collectors.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLLECTORS = str(Path(__file__).parents[2] / "collectors")
PATIENCE_S = 30.0
# On a busy machine a next file may take longer than a trainer waits for it, and a small one be used up by other threads
# a hundred times before one of them comes to its turn: records would be lost that no test has lost.
PATIENT = """
from ett_collector import segment, spool
spool.START_S = spool.PATIENCE_S = 30
spool.TURNS = 10_000
"""


def until(what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait for something that other processes do; fail if it does not come."""
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@dataclass
class Bench:
    """One node: a spool folder, and what runs on it. Everything is ended with the test."""

    folder: Path
    receiver: Receiver
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def spool(self) -> Path:
        """The spool folder."""
        return self.folder / "spool"

    def environ(self, **more: str) -> dict[str, str]:
        """The environment of a process on this node."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ETT_", "SLURM_"))}
        return {**kept, "PYTHONPATH": COLLECTORS, "ETT_SPOOL_DIR": str(self.spool), **more}

    def spawn(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        """Start a process on this node."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=self.environ(**environ), text=True, **pipes)  # type: ignore[call-overload]
        self.running.append(process)
        return process

    def trainer(self, code: str, *within: str, **environ: str) -> subprocess.Popen[str]:
        """A Python process that runs `code`; `say(text)` and `wait()` talk to the test through its pipes.

        `within` is a command that starts it.
        """
        talk = "import sys, os, time\nsay = lambda text: print(text, flush=True)\nwait = lambda: sys.stdin.readline()\n"
        return self.spawn(*within, sys.executable, "-c", talk + code, **environ)

    def agent(
        self, *options: str, url: str | None = None, node: str = "node-a", **environ: str
    ) -> subprocess.Popen[str]:
        """An agent with short times."""
        base = ("--url", url or self.receiver.url, "--node", node, "--poll", "0.05", "--heartbeat", "0.5")
        return self.spawn(sys.executable, "-m", "ett_collector.agent.main", *base, *options, **environ)

    def stop(self, process: subprocess.Popen[str]) -> str:
        """End a process by SIGTERM; what it wrote to standard error."""
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        return errors

    def close(self) -> None:
        """End everything that still runs."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A service that stores what it is sent."""
    service = Receiver()
    yield service
    service.close()


@pytest.fixture
def bench(tmp_path: Path, receiver: Receiver) -> Iterator[Bench]:
    """A node with a service to talk to."""
    node = Bench(tmp_path, receiver)
    yield node
    node.close()
