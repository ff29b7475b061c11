"""`fleet-ett demo` as a user runs it: what it prints agrees with what the training itself measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.demo.launcher import Launcher, Plan

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
RANKS = 2


@dataclass
class Demo:
    """A finished demo: what it printed, its books, and what the training logged."""

    text: str
    detail: dict[str, Any]
    cells: list[dict[str, Any]]
    timeline: list[dict[str, Any]]
    harm: dict[str, int]
    steps: dict[str, dict[int, int]]  # attempt -> step -> when its last rank was through (ns)
    losses: list[float]

    @property
    def attempts(self) -> dict[str, dict[str, Any]]:
        """The books of each attempt."""
        return {one["attempt"]: one for one in self.detail["attempts"]}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """One run of the demo."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "fleet_ett", "demo", "--exit", "--folder", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    books = json.loads((folder / "books.json").read_text())
    steps: dict[str, dict[int, int]] = defaultdict(dict)
    for row in (row for rank in range(RANKS) for row in log(folder, rank)):
        done_at = steps[row["attempt"]]
        done_at[row["step"]] = max(row["end"], done_at.get(row["step"], 0))
    losses = [row["loss"] for row in log(folder, 0)]
    harm = json.loads((folder / "harm.json").read_text())
    return Demo(done.stdout, **books, harm=harm, steps=steps, losses=losses)


def log(folder: Path, rank: int) -> list[dict[str, Any]]:
    """A rank's own log."""
    return [json.loads(line) for line in (folder / f"steps.rank{rank}.jsonl").read_text().splitlines()]


def test_a_line_that_is_being_written_is_none_yet(tmp_path: Path) -> None:
    """A file grows page by page: the launcher, which looks all the time, may see a part of a rank's line."""
    (tmp_path / "steps.rank0.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    seen = Launcher("j", tmp_path, [], Plan(), print, print).log(0)
    assert [{"step": 1}, {"step": 2}] == seen


def test_books_balance(demo: Demo) -> None:
    """Headings, job and the span from allocation to release agree to the nanosecond, and it says so."""
    wall = demo.detail["wall_ns"]

    assert "The books balance" in demo.text
    assert wall == sum(demo.detail["headings"].values()) == demo.detail["end"] - demo.detail["start"]
    assert 2 * wall == sum(demo.detail["gpu_headings"].values())


def test_printed_shares_are_the_books(demo: Demo) -> None:
    """Every heading with time in it is printed with its seconds."""
    printed = dict(re.findall(r"^  (\w+) +(\d+\.\d{3}) +\d+\.\d%", demo.text, re.MULTILINE))
    printed.pop("sum")

    assert {name: f"{ns / SECOND:.3f}" for name, ns in demo.detail["headings"].items() if ns} == printed


def test_steps_done_and_done_twice(demo: Demo) -> None:
    """Each step is productive once; what an attempt does at or below the highest step before is replay."""
    reached, replayed = 0, {}
    for attempt, steps in sorted(demo.steps.items()):
        replayed[attempt] = sum(step <= reached for step in steps)
        reached = max(reached, *steps)

    assert replayed == {name: one["steps_replayed"] for name, one in demo.attempts.items()}
    assert sum(replayed.values()) == demo.detail["steps"]["replayed"] > 0
    assert reached == demo.detail["steps"]["productive"]
    assert f"{sum(replayed.values())} of {reached} steps trained again" in demo.text


def test_rollbacks_are_to_the_newest_checkpoint(demo: Demo) -> None:
    """What each attempt loaded is the last multiple of the save interval that was reached before."""
    first, second = (max(demo.steps[f"launch-{i}"]) // 40 * 40 for i in (0, 1))

    assert [first, second] == [demo.attempts[f"launch-{i}"]["loaded_step"] for i in (1, 2)]
    assert [first + 1, second + 1] == [min(demo.steps[f"launch-{i}"]) for i in (1, 2)]


def test_kill(demo: Demo) -> None:
    """The attempt ends with the processes that the kill ended, and belongs to whoever took the node away."""
    incident = next(one for one in demo.detail["incidents"] if one["attempt"] == "launch-0")

    assert demo.harm["killed_at"] <= incident["at"] < demo.attempts["launch-1"]["start"]
    assert ("host_maintenance", "facility") == (incident["cause"], incident["component"])
    assert ("demo-b", 1) == (incident["node"], incident["rank"])
    assert incident["replay_ns"] > 0


def test_hang(demo: Demo) -> None:
    """From the last step to the end nothing progresses: the collective's time-out and a little more."""
    incident = next(one for one in demo.detail["incidents"] if one["attempt"] == "launch-1")
    last = max(demo.steps["launch-1"].values())
    stalled = demo.attempts["launch-1"]["headings"]["stall"]

    assert ("nccl_timeout", "unknown") == (incident["cause"], incident["kind"])
    assert abs(stalled - (incident["at"] - last)) < SECOND // 2
    assert stalled > 4 * SECOND


def test_little_is_unknown(demo: Demo) -> None:
    """The collectors report nearly everything that the run did, from when they are there on both nodes."""
    first, unknown = demo.timeline[0], demo.detail["headings"]["unknown"]
    alone = first["end"] - first["start"] if first["heading"] == "unknown" else 0

    assert demo.detail["start"] == first["start"]
    assert unknown - alone < 0.02 * demo.detail["wall_ns"]


def test_the_training_is_real(demo: Demo) -> None:
    """The loss falls well below that of a model that only knows how many click (0.61)."""
    assert demo.losses[0] > 0.65
    assert max(demo.losses[-20:]) < 0.45
