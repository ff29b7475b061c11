"""`ett-run -- torchrun untouched.py`: the books of a job that has no line of ours, one worker killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.demo.backstage import service, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

JOB = "torch/untouched"
SCRIPT = Path(__file__).with_name("untouched.py")
ROOT = Path(__file__).parents[2]
STEPS, SAVE_EVERY, KILL_AFTER = 60, 20, 47  # of untouched.py
CLOCKS_NS = 50_000_000  # the script's clocks lie outside of the hooks'


@dataclass
class Run:
    """The job's books, its ledger by attempt and phase, and what the ranks measured."""

    detail: dict[str, Any]
    by_phase: dict[tuple[int, str], int]
    measured: list[dict[str, Any]]
    repeated: dict[str, Any]

    def took(self, attempt: int, what: str, *, starts: bool) -> int:
        """Until the last rank was done (ns), each time, added up: in the loop from when the first one began.

        A job that `starts` is in a phase once its last rank is, which was further behind before.
        """
        begin = max if starts else min
        found = [one for one in self.measured if (one["attempt"], one["what"]) == (attempt, what)]
        ranks = [[one for one in found if one["rank"] == rank] for rank in (0, 1)]
        return sum(
            max(one["start"] + one["ns"] for one in both) - begin(one["start"] for one in both)
            for both in zip(*ranks, strict=True)
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run of the job, with a service and an agent of its own."""
    folder = tmp_path_factory.mktemp("untouched")
    environment = environ(folder)
    with service() as books:
        agent = subprocess.Popen(
            [sys.executable, "-m", "ett_collector.agent.main", "--url", books.url, "--node", "torch-node",
             "--heartbeat", "1", "--window", "2", "--poll", "0.1"],
            env=environment,
        )  # fmt: skip
        try:
            done = subprocess.run(
                [sys.executable, "-m", "ett_collector.run", "--job", JOB, "--",
                 sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                 "--max-restarts", "3", str(SCRIPT)],
                env=environment, capture_output=True, text=True, timeout=400, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-5000:]
            books.books(JOB, attempts=2)  # the agent has heard of the end
        finally:
            stop(agent)
        detail = books.books(JOB, attempts=2)
        cells = books.get("/v1/jobs/torch%2Funtouched/ledger", by="attempt,phase")["items"]
        index = {one["attempt"]: one["index"] for one in detail["attempts"]}
        by_phase = {(index[row["attempt"]], row["phase"]): row["wall_ns"] for row in cells}
        lines = [line for file in folder.glob("measured.*") for line in file.read_text().splitlines()]
        yield Run(detail, by_phase, [json.loads(one) for one in lines], books.get("/v1/fleet/repeated-work"))


def environ(folder: Path) -> dict[str, str]:
    """The environment of agent and trainers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    return kept | {
        "ETT_SPOOL_DIR": str(folder / "spool"),
        "TEST_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "collectors"), str(ROOT / "service")]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        # a shared store still holds the addresses of the workers before the restart (pytorch#135712)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def test_books_balance(run: Run) -> None:
    """To the nanosecond, and little of it is unknown."""
    headings = run.detail["headings"]

    assert run.detail["wall_ns"] == sum(headings.values())
    assert headings.get("unknown", 0) < run.detail["wall_ns"] * 0.1


def test_steps_are_counted_on_from_the_checkpoint(run: Run) -> None:
    """Every step of the job once as new, and those that the checkpoint lost as replay."""
    lost = KILL_AFTER % SAVE_EVERY

    assert (STEPS, lost) == (run.detail["steps"]["productive"], run.detail["steps"]["replayed"])
    assert KILL_AFTER - lost == run.detail["attempts"][1]["loaded_step"]
    assert [] == [
        one for one in run.detail["flags"] if one["flag"] in {"step_jump", "checkpoint_step_mismatch"}
    ]


@pytest.mark.parametrize("attempt", [0, 1])
def test_process_start_and_imports(run: Run, attempt: int) -> None:
    """Importing torch takes its time, in each attempt."""
    assert run.by_phase[attempt, "process_import"] > 500_000_000
    assert run.by_phase.get((0, "launcher_start"), 0) > 0


@pytest.mark.parametrize(("attempt", "what", "phase"), [
    (0, "process_group_init", "process_group_init"),
    (1, "load", "checkpoint_load"),
    (0, "evaluation", "evaluation"),
    (1, "save", "checkpoint_save_block"),
])  # fmt: skip
def test_phases_are_as_long_as_measured(run: Run, attempt: int, what: str, phase: str) -> None:
    """By the script's own clocks."""
    booked = run.by_phase[attempt, phase]

    assert abs(run.took(attempt, what, starts=what in {"process_group_init", "load"}) - booked) < CLOCKS_NS


def test_compile_is_cold_once(run: Run) -> None:
    """The second attempt finds its graphs in the cache, under the keys of the first."""
    cold, restored = run.by_phase[0, "compile_cold"], run.by_phase[1, "compile_cache_restore"]

    assert restored < cold
    assert (1, "compile_cold") not in run.by_phase


def test_killed_worker_is_the_evidence(run: Run) -> None:
    """Nobody but the one that was killed."""
    (incident,) = run.detail["incidents"]

    assert ("torch-node", 1) == (incident["node"], incident["rank"])
    assert incident["replay_ns"] == run.detail["headings"]["replay"] > 0
    assert ["failed", "completed"] == [one["outcome"] for one in run.detail["attempts"]]
