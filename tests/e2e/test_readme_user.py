"""As a user would: `pip install .` in a fresh environment, the README's lines in a training loop, a kill, a restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.demo.backstage import service, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
STEPS, SAVE_EVERY, KILL_AFTER = 60, 20, 47
LOADED = KILL_AFTER // SAVE_EVERY * SAVE_EVERY
REPLAYED = KILL_AFTER - LOADED
# The README's block comes between. Each line of the log is on the disk before the next thing happens.
BEFORE = f"""
import itertools, json, math, os, random, time

is_first = not os.path.exists("log")
log = open("log", "a", buffering=1)
last_step, weights, trained = {STEPS}, [0.0] * 8, 0

def note(what, step):
    log.write(json.dumps([0 if is_first else 1, what, step, time.monotonic_ns()]) + "\\n")

def load_checkpoint():
    global weights, trained
    if os.path.exists("checkpoint"):
        with open("checkpoint") as file:
            weights, trained = json.load(file)
    return trained

def save_checkpoint():
    with open("checkpoint.new", "w") as file:
        json.dump([weights, trained], file)
    os.replace("checkpoint.new", "checkpoint")

def generate():
    for step in itertools.count(trained + 1):
        note("asked", step)
        if is_first and step == {KILL_AFTER + 1}:  # this one never comes
            print(os.getpid(), flush=True)
            time.sleep(600)
        dice = random.Random(step)
        rows = [[dice.gauss(0, 1) for _ in weights] for _ in range(1000)]
        yield [(row, row[0] + row[1] > 0) for row in rows]

def train(batch):
    global trained
    for row, is_one in batch:
        score = 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, row))))
        for i, x in enumerate(row):
            weights[i] += 0.01 * (is_one - score) * x
    trained += 1
    if trained % {SAVE_EVERY} == 0:
        save_checkpoint()
    note("trained", trained)

batches = generate()
note("began", 0)
"""
AFTER = """
note("asked", step + 1)
"""


@dataclass
class Environment:
    """A virtual environment in which this project was installed, and nothing else."""

    folder: Path
    environ: dict[str, str]

    def run(
        self, command: str, *arguments: str, cwd: Path | None = None, **pipes: Any
    ) -> subprocess.Popen[str]:
        """Start one of its programs."""
        program = str(self.folder / "bin" / command)
        return subprocess.Popen([program, *arguments], cwd=cwd, env=self.environ, text=True, **pipes)

    def say(self, command: str, *arguments: str) -> str:
        """What one of its programs prints."""
        with self.run(command, *arguments, stdout=subprocess.PIPE) as process:
            said, _ = process.communicate()
        assert 0 == process.returncode
        return said


@dataclass
class Story:
    """What became of the training: its books, its own log and last checkpoint, and how long all took at most (ns)."""

    detail: dict[str, Any]
    log: list[tuple[int, str, int, int]]
    checkpoint: tuple[list[float], int]
    lasted: int

    def booked(self, attempt: int, heading: str) -> int:
        """Nanoseconds of an attempt under a heading."""
        return self.detail["attempts"][attempt]["headings"].get(heading, 0)

    def stamps(self, what: str, attempt: int) -> dict[int, int]:
        """When (monotonic ns) an attempt was there with each step."""
        return {step: at for of, name, step, at in self.log if (of, name) == (attempt, what)}

    def least(self, attempt: int) -> dict[int, int]:
        """How long each step took at least: from its batch to the end of its work."""
        asked, trained = self.stamps("asked", attempt), self.stamps("trained", attempt)
        return {step: at - asked[step] for step, at in trained.items()}

    def most(self, attempt: int) -> dict[int, int]:
        """How long it took at most: from the end of the work before to the next batch."""
        asked = self.stamps("asked", attempt)
        trained = self.stamps("began", attempt) | self.stamps("trained", attempt)
        before = dict(zip(list(trained)[1:], trained.values(), strict=False))
        return {step: asked[step + 1] - at for step, at in before.items()}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`python -m venv` and `pip install .`; offline, so what builds the wheel is that of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    left_out = ("ETT_", "PYTHON", "VIRTUAL_ENV", "PIP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    made = Environment(folder / "venv", kept | {"ETT_SPOOL_DIR": str(folder / "spool")})
    build = ["-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, *build, str(ROOT)], check=True, env=kept)
    subprocess.run([sys.executable, "-m", "venv", str(made.folder)], check=True, env=kept)
    made.say("pip", "install", "-q", "--no-index", *map(str, folder.glob("*.whl")))
    return made


@pytest.fixture(scope="module")
def story(fresh: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Trained, killed between two checkpoints, trained on to the end; the agent has sent all."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "train.py").write_text(BEFORE + readme_block() + AFTER)
    with service() as books:
        agent = fresh.run("ett-agent", "--url", books.url, "--node", "gpu-1")
        try:
            began = time.monotonic_ns()
            launch = ("ett-run", "--", str(fresh.folder / "bin" / "python"), "train.py")
            with fresh.run(*launch, cwd=folder, stdout=subprocess.PIPE) as first:
                assert first.stdout is not None
                os.kill(int(first.stdout.readline()), signal.SIGKILL)
                assert 128 + signal.SIGKILL == first.wait(30)
            with fresh.run(*launch, cwd=folder) as second:
                assert 0 == second.wait(30)
            lasted = time.monotonic_ns() - began
            books.books("train.py", attempts=2)
        finally:
            stop(agent)
        assert 0 == agent.returncode
        log = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        checkpoint = json.loads((folder / "checkpoint").read_text())
        yield Story(books.books("train.py", attempts=2), log, checkpoint, lasted)


def readme_block() -> str:
    """What the README says to add to a training loop."""
    (found,) = re.findall(
        r"^## Add it to a training loop\n\n```python\n(.*?)^```",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return found


def test_nothing_else_is_installed(fresh: Environment) -> None:
    code = "import importlib.metadata as found; print(*{one.name for one in found.distributions()})"
    assert {"fleet-ett"} == set(fresh.say("python", "-c", code).split()) - {"pip", "setuptools"}


def test_the_training_is_real(story: Story) -> None:
    """It went on from its checkpoint to the end, and learned which two of the numbers decide."""
    weights, trained = story.checkpoint
    assert STEPS == trained
    assert max(map(abs, weights[2:])) < min(weights[:2]) / 4


def test_two_attempts(story: Story) -> None:
    first, second = story.detail["attempts"]
    assert ("failed", 1, KILL_AFTER) == (first["outcome"], first["first_step"], first["last_step"])
    assert ("completed", LOADED + 1, STEPS) == (second["outcome"], second["first_step"], second["last_step"])


def test_one_incident(story: Story) -> None:
    """A bare SIGKILL, of which nobody says why: that is not guessed. It cost the gap, a start and the replay."""
    (incident,) = story.detail["incidents"]
    first, second = story.detail["attempts"]
    assert first["attempt"] == incident["attempt"]
    assert ("gpu-1", 0, "undiagnosed") == (incident["node"], incident["rank"], incident["cause"])
    assert (LOADED, REPLAYED) == (incident["rolled_back_to"], incident["replayed_steps"])
    assert second["start"] - first["end"] == incident["gap_ns"] == story.booked(0, "gap") > 0
    assert story.booked(1, "replay") == incident["replay_ns"]


def test_what_the_checkpoint_had_lost_is_replayed(story: Story) -> None:
    """Each step is new once; those from the checkpoint to the kill are trained again, and no others."""
    assert {"productive": STEPS, "replayed": REPLAYED} == story.detail["steps"]
    assert [0, REPLAYED] == [one["steps_replayed"] for one in story.detail["attempts"]]


def test_books_balance(story: Story) -> None:
    detail = story.detail
    assert detail["wall_ns"] == sum(detail["headings"].values()) == detail["end"] - detail["start"]
    assert detail["wall_ns"] == sum(one["wall_ns"] for one in detail["attempts"])


def test_ett_is_what_the_script_measured(story: Story) -> None:
    """The steps of an attempt lie between the script's own stamps.

    Of old and new ones in one window each counts as long as their mean: between the shortest and the longest.
    """
    steps = [(story.least(attempt), story.most(attempt)) for attempt in (0, 1)]
    for attempt, (least, most) in enumerate(steps):
        booked = story.booked(attempt, "productive") + story.booked(attempt, "replay")
        assert sum(least.values()) < booked < sum(most.values())
    assert 0 == story.booked(0, "replay")
    shortest, longest = min(steps[1][0].values()), max(steps[1][1].values())
    assert REPLAYED * shortest < story.booked(1, "replay") < REPLAYED * longest

    new = STEPS - KILL_AFTER
    low = sum(steps[0][0].values()) + new * shortest
    high = sum(steps[0][1].values()) + new * longest
    trained = [at for _, what, _, at in story.log if what == "trained"]
    assert low / story.lasted < story.detail["ett"] < high / (trained[-1] - trained[0])


def test_no_time_is_booked_for_what_was_not_done(story: Story) -> None:
    """A start with the load that the README's lines name, and steps; silence between the last of them and the kill."""
    assert story.detail["phases"]["checkpoint_load"] > 0
    there = {heading for heading, ns in story.detail["headings"].items() if ns}
    assert {"productive", "replay", "startup", "gap"} == there - {"unknown", "stall"}
