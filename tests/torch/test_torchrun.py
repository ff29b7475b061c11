"""A real PyTorch job under torchrun, one worker killed: the books against the script's own clocks."""

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
    from collections.abc import Callable, Iterable, Iterator, Sequence

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

JOB = "torch/dlrm"
RANKS = (0, 1)
TRAIN = Path(__file__).with_name("train.py")
ROOT = Path(__file__).parents[2]
STEPS, SAVE_EVERY, KILL_AFTER = 65, 20, 47  # of train.py
# Between two phases lie a few lines of Python. How far the script's stamps lie from the recorder's is measured.
CLOCKS_NS = 50_000_000


@dataclass
class Run:
    """The job's books, its ledger by attempt and phase, and what each rank measured."""

    detail: dict[str, Any]
    by_phase: dict[tuple[int, str], int]
    measured: list[dict[str, Any]]

    def spans(self, attempt: int, phase: str) -> list[list[dict[str, Any]]]:
        """A phase as the script measured it: by rank, in order of time."""
        found = [m for m in self.measured if m["attempt"] == attempt and m.get("phase") == phase]
        return [sorted((m for m in found if m["rank"] == rank), key=lambda m: m["left"]) for rank in RANKS]

    def steps(self, attempt: int) -> list[int]:
        """The steps that both ranks completed in an attempt."""
        by_rank = [
            {
                m["step"]
                for m in self.measured
                if m["attempt"] == attempt and m["rank"] == rank and "step" in m
            }
            for rank in RANKS
        ]
        return sorted(set.union(*by_rank))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run of the job, with a service and an agent of its own."""
    folder = tmp_path_factory.mktemp("torch")
    with service() as books:
        agent = subprocess.Popen(
            [sys.executable, "-m", "ett_collector.agent.main", "--url", books.url, "--node", "torch-node",
             "--heartbeat", "1", "--window", "2", "--poll", "0.1"],
            env=environ(folder),
        )  # fmt: skip
        try:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            done = subprocess.run(
                [*command, "--max-restarts", "3", str(TRAIN)],
                env=environ(folder), capture_output=True, text=True, timeout=400, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-5000:]
            books.books(JOB, attempts=2)  # the agent has heard of the end
        finally:
            stop(agent)
        detail = books.books(JOB, attempts=2)
        cells = books.get("/v1/jobs/torch%2Fdlrm/ledger", by="attempt,phase")["items"]
        index = {one["attempt"]: one["index"] for one in detail["attempts"]}
        by_phase = {(index[row["attempt"]], row["phase"]): row["wall_ns"] for row in cells}
        yield Run(detail, by_phase, measured(folder))


def environ(folder: Path) -> dict[str, str]:
    """The environment of agent and trainers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    return kept | {
        "ETT_JOB": JOB,
        "ETT_SPOOL_DIR": str(folder / "spool"),
        "TEST_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "collectors"), str(ROOT / "service")]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        # a shared store still holds the addresses of the workers before the restart (pytorch#135712)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def measured(folder: Path) -> list[dict[str, Any]]:
    """All that the ranks measured."""
    return [
        {"rank": rank, **json.loads(line)}
        for rank in RANKS
        for line in (folder / f"measured.rank{rank}.jsonl").read_text().splitlines()
    ]


def within(
    ranks: Sequence[dict[str, Any]], begins: Callable[[Iterable[int]], int], *, least: bool = False
) -> int:
    """How long a phase of all ranks took: at most, from before the recorder was told to after it, or at least."""
    begin, end = (1, "leaving") if least else (0, "left")
    return max(int(one[end]) for one in ranks) - begins(int(one["begin"][begin]) for one in ranks)


def test_books_balance(run: Run) -> None:
    """To the nanosecond, two GPUs all the time: the hardware was kept over the restart."""
    wall = run.detail["wall_ns"]

    assert wall == sum(run.detail["headings"].values()) == run.detail["end"] - run.detail["start"]
    assert 2 * wall == sum(run.detail["gpu_headings"].values())


def test_replayed_steps_are_those_that_the_checkpoint_lost(run: Run) -> None:
    """What was done when the worker was killed, less the step that the checkpoint says it holds."""
    loaded = {m["loaded"] for m in run.measured if "loaded" in m}
    lost = max(run.steps(0)) - min(loaded)

    assert loaded == {KILL_AFTER // SAVE_EVERY * SAVE_EVERY}
    assert lost == KILL_AFTER % SAVE_EVERY
    assert lost == run.detail["steps"]["replayed"] == run.detail["attempts"][1]["steps_replayed"]
    assert STEPS == run.detail["steps"]["productive"] == max(run.steps(1))
    assert loaded == {run.detail["attempts"][1]["loaded_step"]}


def test_killed_worker_is_the_evidence(run: Run) -> None:
    """One incident: torchrun ended the other worker, and nobody else is blamed."""
    (incident,) = run.detail["incidents"]
    first, second = run.detail["attempts"]

    assert ("failed", "completed") == (first["outcome"], second["outcome"])
    assert ("torch-node", 1) == (incident["node"], incident["rank"])
    assert incident["replay_ns"] == run.detail["headings"]["replay"]


@pytest.mark.parametrize(
    ("attempt", "phase"),
    [
        (0, "process_group_init"),
        (0, "model_build"),
        (0, "compile_cold"),
        (1, "process_group_init"),
        (1, "model_build"),
        (1, "checkpoint_load"),
        (1, "compile_cache_restore"),
    ],
)
def test_startup_phases_are_as_long_as_measured(run: Run, attempt: int, phase: str) -> None:
    """The job is in a start-up phase from when its last rank enters it until its last rank leaves it."""
    ranks = [one for (one,) in run.spans(attempt, phase)]

    most, least = within(ranks, max) + CLOCKS_NS, within(ranks, max, least=True) - CLOCKS_NS
    assert most > run.by_phase[attempt, phase] > least


def test_blocking_saves_are_as_long_as_measured(run: Run) -> None:
    """A save blocks the job from its first rank's begin to its last rank's end."""
    for attempt, saves in ((0, 2), (1, 1)):
        found = run.spans(attempt, "checkpoint_save_block")
        each = list(zip(*found, strict=True))

        assert saves == len(each)
        booked = run.by_phase[attempt, "checkpoint_save_block"]
        most, least = (sum(within(one, min, least=is_least) for one in each) for is_least in (False, True))
        assert most + CLOCKS_NS > booked > least - CLOCKS_NS


def test_steps_are_as_long_as_measured(run: Run) -> None:
    """From the end of the compile to the last mark everything is a step, a wait for data or a save.

    The recorder's stamps lie between the script's. Until the last rank has begun its first step, and from when the
    first has made its last mark, the job may wait for somebody instead.
    """
    for attempt, compiled in enumerate(("compile_cold", "compile_cache_restore")):
        mine = [m for m in run.measured if m["attempt"] == attempt]
        leaving = max(m["leaving"] for m in mine if m.get("phase") == compiled)
        begun = max(m["begun"] for m in mine if "begun" in m)
        last = [[m["marked"] for m in mine if m["rank"] == rank and "step" in m][-1] for rank in RANKS]
        phases = ("step_new_data", "step_replayed", "data_stall", "checkpoint_save_block")
        booked = sum(run.by_phase.get((attempt, phase), 0) for phase in phases)

        least = min(before for before, _ in last) - begun
        most = max(after for _, after in last) - leaving
        assert least <= booked <= most


def test_the_compile_that_a_cache_saves_is_seen_as_repeated(run: Run) -> None:
    """Both attempts compiled the same graph: its key was seen before."""
    assert run.by_phase[1, "compile_cache_restore"] < run.by_phase[0, "compile_cold"]
    assert {"compile_cold", "compile_cache_restore"} <= set(run.detail["phases"])
