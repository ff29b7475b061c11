"""A service, an agent, and jobs that are killed: what every framework's test stands on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from fleet_ett.demo.backstage import Service, service, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SIGKILLED = 128 + 9
NODE = "node-a"
UNKNOWN_SHARE = 0.05  # of these few seconds: what lies between two calls
BOOKS_S = 60.0


@dataclass
class Books:
    """A job's detail, and its ledger by attempt and phase (ns)."""

    detail: dict[str, Any]
    by_phase: dict[tuple[int, str], int]

    def check_replay(self, *, killed_at: int, saved_at: int, steps: int, batch: int | None = None) -> None:
        """The second attempt loaded `saved_at` and did again what was lost, and nothing else twice."""
        first, second = self.detail["attempts"]
        assert self.detail["wall_ns"] == sum(self.detail["headings"].values())
        assert ("failed", "completed") == (first["outcome"], second["outcome"])
        assert saved_at == second["loaded_step"]
        assert killed_at - saved_at == self.detail["steps"]["replayed"] == second["steps_replayed"]
        assert steps == self.detail["steps"]["productive"]
        assert self.by_phase[1, "step_replayed"] > 0
        if batch is not None:
            assert batch * (killed_at - saved_at) == self.detail["metrics"]["samples_replayed"]
        assert self.detail["unknown_share"] < UNKNOWN_SHARE

    def check_checkpoints(self) -> None:
        """Both attempts saved, and the second loaded."""
        assert self.by_phase[0, "checkpoint_save_block"] > 0
        assert self.by_phase[1, "checkpoint_save_block"] > 0
        assert self.by_phase[1, "checkpoint_load"] > 0
        assert self.detail["attempts"][0]["loaded_step"] is None

    def phases(self, attempt: int) -> set[str]:
        """The phases that an attempt's time is booked under."""
        return {phase for index, phase in self.by_phase if index == attempt}


class Stage:
    """Where jobs run: one node with its agent, a service that books what it sends."""

    def __init__(self, folder: Path, books: Service) -> None:
        self.folder = folder
        self.service = books

    def environ(self) -> dict[str, str]:
        """The environment of agent and trainers, without settings of the machine's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
        return kept | {
            "ETT_SPOOL_DIR": str(self.folder / "spool"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "collectors"), str(ROOT / "service")]),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
        }

    def run(self, job: str, *command: str, status: int, **environ: str) -> str:
        """Run a launch of a job under `ett-run` to its end; what it wrote to stderr."""
        folder = self.folder / job
        folder.mkdir(exist_ok=True)
        run = [sys.executable, "-m", "ett_collector.run", "--job", job, "--"]
        done = subprocess.run(
            [*run, sys.executable, *command],
            env=self.environ() | {"TEST_FOLDER": str(folder)} | environ,
            cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert status == done.returncode, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
        return done.stderr

    def killed_and_resumed(self, job: str, *command: str, **environ: str) -> Books:
        """A launch that kills itself once, and one that goes on from its checkpoint."""
        self.run(job, *command, status=SIGKILLED, **environ)
        self.run(job, *command, status=0, **environ)
        return self.books(job, attempts=2)

    def books(self, job: str, attempts: int, outcome: str = "completed") -> Books:
        """The books of a job whose processes have ended, once its last attempt has this outcome."""
        deadline = time.monotonic() + BOOKS_S
        detail: dict[str, Any] = {}
        while not _over(detail, attempts, outcome):
            assert time.monotonic() < deadline, f"{job} was not booked: {detail}"
            time.sleep(0.25)
            with suppress(HTTPError):
                detail = self.service.get(f"/v1/jobs/{job}")
        cells = self.service.get(f"/v1/jobs/{job}/ledger", by="attempt,phase")["items"]
        index = {one["attempt"]: one["index"] for one in detail["attempts"]}
        return Books(detail, {(index[row["attempt"]], row["phase"]): row["wall_ns"] for row in cells})


def _over(detail: dict[str, Any], attempts: int, outcome: str) -> bool:
    ended = [one["outcome"] for one in detail.get("attempts", ()) if not one["live"]]
    return len(ended) == attempts and ended[-1] == outcome


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One service and agent for all tests; each job has a name of its own."""
    folder = tmp_path_factory.mktemp("integrations")
    with service() as books:
        found = Stage(folder, books)
        agent = subprocess.Popen(
            [sys.executable, "-m", "ett_collector.agent.main", "--url", books.url, "--node", NODE,
             "--heartbeat", "1", "--window", "2", "--poll", "0.1"],
            env=found.environ(),
        )  # fmt: skip
        try:
            yield found
        finally:
            stop(agent)
