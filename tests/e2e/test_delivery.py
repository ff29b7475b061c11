"""Agent and service are killed with SIGKILL again and again: the books are those of a quiet run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet_ett.demo.backstage import LISTENS, Service, stop
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = "delivery"
STEPS, SAVE_EVERY = 400, 50
TRAINER = f"""
import time
import ett_collector as ett
ett.start({JOB!r}, attempt="only")
ett.step_begin(1)
for n in range(1, {STEPS} + 1):
    time.sleep(0.01)
    ett.step(n)
    if n % {SAVE_EVERY} == 0:
        with ett.phase("checkpoint_save_block", step=n): time.sleep(0.005)
        ett.checkpoint_committed(n)
ett.end()
"""


class Node:
    """A trainer's node and the service, restarted at will."""

    def __init__(self, stack: ExitStack, folder: Path, data: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.data = data
        self.port = str(free_port())
        self.url = f"http://127.0.0.1:{self.port}"

    def environ(self) -> dict[str, str]:
        """Without settings of the machine's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
        sources = [str(Path(__file__).parents[2] / name) for name in ("service", "collectors")]
        return kept | {"PYTHONPATH": os.pathsep.join(sources), "ETT_SPOOL_DIR": str(self.folder / "spool")}

    def run(self, *command: str) -> subprocess.Popen[str]:
        """A Python process that ends with the test."""
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, *command], env=self.environ(), text=True, stdout=pipe)
        self.stack.callback(lambda: (stop(process), process.stdout and process.stdout.close()))
        return process

    def service(self) -> subprocess.Popen[str]:
        """The service, up."""
        process = self.run("-m", "fleet_ett", "serve", "--port", self.port, "--data-dir", str(self.data))
        assert process.stdout is not None
        assert process.stdout.readline().startswith(LISTENS)
        return process

    def agent(self) -> subprocess.Popen[str]:
        """An agent with short times."""
        times = ("--heartbeat", "0.3", "--window", "0.5", "--poll", "0.05", "--timeout", "5")
        return self.run("-m", "ett_collector.agent.main", "--url", self.url, "--node", "n", *times)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node; the database's folder stands where PostgreSQL may enter when we are root."""
    data = Path(tempfile.mkdtemp(prefix="ett-delivery-"))
    data.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        yield Node(stack, tmp_path, data / "postgres")


def test_kills_change_nothing(node: Node) -> None:
    """Every step once, every checkpoint once, one attempt that completed, and no time unaccounted for."""
    chance = random.Random(5)
    service, agent = node.service(), node.agent()
    trainer = node.run("-c", TRAINER)
    while trainer.poll() is None:
        time.sleep(0.3 + chance.random())
        agent.kill()
        agent.wait()
        agent = node.agent()
        time.sleep(0.2 * chance.random())
        service.kill()
        service.wait()
        service = node.service()
    Service(node.url).books(JOB, attempts=1)  # the agent has heard of the end
    stop(agent)

    detail = Service(node.url).books(JOB, attempts=1)
    (attempt,) = detail["attempts"]
    assert (1, STEPS, STEPS, 0) == (
        attempt["first_step"],
        attempt["last_step"],
        detail["steps"]["productive"],
        detail["steps"]["replayed"],
    )
    assert STEPS // SAVE_EVERY == attempt["saves"]
    assert ("completed", []) == (attempt["outcome"], detail["incidents"])
    assert detail["wall_ns"] == sum(detail["headings"].values())
    assert detail["data_quality"]["unknown_share"] < 0.02
